"""Position of user code: file and line of a call, read from a frame on request, so that running code is not slowed."""

import os
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType, TracebackType
from typing import NamedTuple, TypeVar

from sipsim.core.errors import error_text, pass_on_halt
from sipsim.core.moved import HOMES

Thing = TypeVar("Thing")
_ROOT = Path(__file__).parents[2]
_MACHINERY = tuple(f"{_ROOT / package}{os.sep}" for package in ("sipsim", "broker", "launcher"))
_ALGORITHMS = tuple(f"{_ROOT / home.replace('.', os.sep)}{os.sep}" for home in HOMES)
_WORDS = f"{_ROOT / 'sipsim/chips/ahbm/tl'}{os.sep}"
INSTALLED = tuple(dict.fromkeys(sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")))
"""Folders of the standard library and of installed packages."""


CRASH = "Fatal Python error: "
"""The start of the line by which Python's fault handler reports a crash."""
_CRASH_FRAME = re.compile(r'  File "(.*)", line ([0-9]+) in .*')
CodeLine = tuple[str, int]
"""File and line of code; "" and 0 if unknown."""


class CodePlace(NamedTuple):
    """A line of user code; "" and 0 if unknown. ``word``: the function of ``tl`` that the line calls, or ""."""

    file: str = ""
    line: int = 0
    word: str = ""


def code_place(frame: FrameType | None, chip_file: str = "") -> CodePlace:
    """Return the innermost user code among a frame and its callers. Built-in algorithms count as user code.

    A line of an installed package, or of the file that defines the chip, is returned only without other user code.
    """
    word, library = "", CodePlace()
    library_paths = (*INSTALLED, chip_file) if chip_file else INSTALLED
    while frame is not None:
        code = frame.f_code
        if _is_users(_source(frame)):
            place = CodePlace(_absolute(code.co_filename), frame.f_lineno or 0, word)
            if not code.co_filename.startswith(library_paths) or code.co_filename.startswith(_ALGORITHMS):
                return place
            library = library if library.file else place
        elif not word and code.co_filename.startswith(_WORDS) and not code.co_name.startswith("_"):
            word = code.co_name
        frame = frame.f_back
    return library if library.file else CodePlace(word=word)


def crash_place(lines: Iterable[str]) -> CodeLine:
    """Return the innermost user code in the last report of Python's fault handler in the lines of a log."""
    found, is_sought = ("", 0), False
    for line in lines:
        frame = _CRASH_FRAME.fullmatch(line)
        if line.startswith(CRASH):
            found, is_sought = ("", 0), True
        elif is_sought and frame is not None and _is_users(frame[1]) and not frame[1].startswith(INSTALLED):
            found, is_sought = (frame[1], int(frame[2])), False
    return found


def outermost_users(frame: FrameType | None, base: FrameType) -> FrameType | None:
    """Return the outermost frame of user code, except built-in algorithms, from ``frame`` up to ``base``; or None."""
    found = None
    while frame is not None and frame is not base:
        filename = frame.f_code.co_filename
        if not filename.startswith((*_MACHINERY, *INSTALLED, "<frozen ")):
            found = frame
        frame = frame.f_back
    return found


def user_line(frame: FrameType | None) -> CodeLine:
    """Return file and line of the innermost user code among a frame and its callers; ("", 0) if there is none."""
    while frame is not None:
        filename = frame.f_code.co_filename
        if _known_users[_source(frame) if filename[:1] == "<" else filename]:
            return filename, frame.f_lineno
        frame = frame.f_back
    return "", 0


def raised_at(error: BaseException) -> str:
    """Return ``file:line`` of the innermost user code that an exception passed through, or ""."""
    users = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(trace_of(error))
        if _known_users[_source(frame)] and not frame.f_code.co_filename.startswith(INSTALLED)
    ]
    return shown(_absolute(users[-1][0]), users[-1][1], working_folder()) if users else ""


def users_traceback(error: BaseException, with_own: bool = True) -> str:
    """Return the traceback of the user's frames; if there are none, of all frames (``with_own``), or an empty text."""
    frames = traceback.extract_tb(trace_of(error))
    users = [frame for frame in frames if not frame.filename.startswith(_MACHINERY)]
    if not users and not with_own:
        return ""
    lines = traceback.format_list(users or frames)
    last = result_or_none(lambda: "".join(traceback.format_exception_only(error))) or error_text(error)
    return "Traceback (most recent call last):\n" + "".join(lines) + last


def result_or_none(query: Callable[[], Thing]) -> Thing | None:
    """Return ``query()``, which calls methods of a user's exception; None if these methods raise."""
    try:
        return query()
    except BaseException as failed:
        pass_on_halt(failed)
        return None


def trace_of(error: BaseException) -> TracebackType | None:
    """Return the traceback of an exception, even if its class overrides ``__traceback__``."""
    found: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
    return found


def working_folder() -> str:
    """Return the working folder, for paths in messages; "" if the folder was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""


class _KnownUsers(dict[str, bool]):
    """Cache of :func:`_is_users` by file name."""

    def __missing__(self, filename: str) -> bool:
        found = self[filename] = _is_users(filename)
        return found


_known_users = _KnownUsers()


def shown(file: str, line: int, folder: str = "") -> str:
    """Return ``file:line`` for messages: relative to ``folder``, else with the last folder only; "" without a file."""
    if not file:
        return ""
    path = Path(file)
    if folder and path.is_relative_to(folder):
        return f"{path.relative_to(folder)}:{line}"
    return f"{Path(*path.parts[-2:]) if len(path.parts) > 2 else path}:{line}"


def _source(frame: FrameType) -> str:
    """Return the file of a frame's code; for generated code such as a dataclass's ``__init__``, the module's file."""
    filename = frame.f_code.co_filename
    if not filename.startswith("<"):
        return filename
    if str(frame.f_globals.get("__name__")).startswith("namedtuple_"):
        return "<frozen collections>"
    return str(frame.f_globals.get("__file__", filename))


def _is_users(filename: str) -> bool:
    if filename.startswith(_ALGORITHMS):
        return True
    return not filename.startswith((*_MACHINERY, "<frozen "))


def _absolute(filename: str) -> str:
    """Return an absolute path as text that UTF-8 can encode; names such as ``<string>`` stay."""
    path = filename if filename.startswith(("<", "/")) else os.path.join(working_folder(), filename)
    path = path if filename.startswith("<") else os.path.normpath(path)
    return path.encode("utf-8", "backslashreplace").decode()
