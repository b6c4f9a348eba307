"""Where user code is: the file and line of a call, read from a frame when somebody asks. Running code pays nothing."""

import os
import sysconfig
import traceback
from pathlib import Path
from types import FrameType
from typing import NamedTuple

_ROOT = Path(__file__).parents[2]
_MACHINERY = tuple(f"{_ROOT / package}{os.sep}" for package in ("sipsim", "broker", "launcher"))
_ALGORITHMS = f"{_ROOT / 'sipsim' / 'ccl' / 'algorithms'}{os.sep}"
_WORDS = f"{_ROOT / 'sipsim' / 'tl'}{os.sep}"
INSTALLED = tuple(dict.fromkeys(sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")))
"""Folders of the interpreter's own and of installed packages."""


CodeLine = tuple[str, int]
"""A file and a line, "" and 0 where none is known."""


class CodePlace(NamedTuple):
    """A line of user code, "" and 0 where none is known. ``word``: that of ``tl`` which it calls, or ""."""

    file: str = ""
    line: int = 0
    word: str = ""


def code_place(frame: FrameType | None, chip_file: str = "") -> CodePlace:
    """The innermost user code of a frame and its callers: outside this project, but for its built-in algorithms.

    Code of installed packages, and of the file that defines the chip, is named only where there is no other.
    """
    word, library = "", CodePlace()
    less = (*INSTALLED, chip_file) if chip_file else INSTALLED
    while frame is not None:
        code = frame.f_code
        if _is_users(code.co_filename):
            place = CodePlace(_absolute(code.co_filename), frame.f_lineno or 0, word)
            if not code.co_filename.startswith(less) or code.co_filename.startswith(_ALGORITHMS):
                return place
            library = library if library.file else place
        elif not word and code.co_filename.startswith(_WORDS) and not code.co_name.startswith("_"):
            word = code.co_name
        frame = frame.f_back
    return library if library.file else CodePlace(word=word)


def user_line(frame: FrameType | None) -> CodeLine:
    """The file and line of the innermost user code of a frame and its callers; "" and 0 for none. Quick."""
    while frame is not None:
        filename = frame.f_code.co_filename
        if _known_users[filename]:
            return filename, frame.f_lineno
        frame = frame.f_back
    return "", 0


def raised_at(error: BaseException) -> str:
    """``file:line`` of the innermost user code that an exception passed through, in the working directory or not."""
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    users = [place for place in places if _known_users[place[0]] and not place[0].startswith(INSTALLED)]
    return shown(_absolute(users[-1][0]), users[-1][1], os.getcwd()) if users else ""


class _KnownUsers(dict[str, bool]):
    """Whether a file is of a user, found out once."""

    def __missing__(self, filename: str) -> bool:
        found = self[filename] = _is_users(filename)
        return found


_known_users = _KnownUsers()


def shown(file: str, line: int, folder: str = "") -> str:
    """``file:line`` for people: the path below ``folder``, else the last folder and the name; "" for no file."""
    if not file:
        return ""
    path = Path(file)
    if folder and path.is_relative_to(folder):
        return f"{path.relative_to(folder)}:{line}"
    return f"{Path(*path.parts[-2:]) if len(path.parts) > 2 else path}:{line}"


def _is_users(filename: str) -> bool:
    if filename.startswith(_ALGORITHMS):
        return True
    return not filename.startswith((*_MACHINERY, "<frozen "))


def _absolute(filename: str) -> str:
    """Text that any encoding can carry; names such as ``<string>`` stay."""
    path = filename if filename.startswith("<") else os.path.abspath(filename)
    return path.encode("utf-8", "backslashreplace").decode()
