"""Describes an exception in a SIP for the user: kind, one line with the place, and for some kinds a traceback."""

import traceback
from pathlib import Path
from typing import Any, NamedTuple

from broker.wire import NOWHERE, FailureSite
from sipsim.core.errors import HOST_MEMORY, NO_MEMORY, AhbmError, error_text
from sipsim.core.streams import LostPacket
from sipsim.core.task import TaskFailed
from sipsim.core.units import format_time_ps
from sipsim.records.code_place import INSTALLED, raised_at, result_or_none, users_traceback, working_folder

LONGEST_MESSAGE = 4096
LONGEST_DETAIL = 65536
_SIMULATOR = tuple(str(Path(__file__).resolve().parents[2] / package) for package in ("sipsim", "broker", "launcher"))


class Failure(NamedTuple):
    """A described failure: ``kind``: of ``ERROR_KINDS``; ``detail``: traceback or ""; ``blames``: as in ``Failed``."""

    kind: str
    message: str
    detail: str
    where: FailureSite = NOWHERE
    blames: int | None = None


def describe(error: BaseException, rank: int, now_ps: int) -> Failure:
    """Return the description of an exception that ended SIP ``rank`` at ``now_ps``; never raises.

    The methods of a user's exception may raise, so ``isinstance`` is not used: it reads the property ``__class__``.
    """
    place, cause, on_pe = f"rank {rank}", error, (-1, -1)
    in_task = error if type(error) is TaskFailed else None
    if in_task is not None and in_task.__cause__ is not None:
        place, cause, on_pe = f"rank {rank}, {in_task.place}", in_task.__cause__, in_task.on_pe
        if in_task.shows_line and (line := raised_at(cause)):
            place = f"{place} at {line}"
    when = f"at {format_time_ps(now_ps)}"
    if issubclass(type(cause), AhbmError | LostPacket):
        named = result_or_none(lambda: _named(cause, f"({place}, {when})", on_pe))
        if named is not None:
            return named
    what, kind = error_text(cause), "internal" if in_task is None else "exception"
    if issubclass(type(cause), SystemExit):
        what = _exit_text(cause)
    if issubclass(type(cause), MemoryError):
        what, kind = f"{what}; {NO_MEMORY}", HOST_MEMORY
    message = f"{_sendable(what, LONGEST_MESSAGE)} ({place}, {when})"
    detail = _sendable(users_traceback(cause, kind != HOST_MEMORY), LONGEST_DETAIL)
    return Failure(kind, message, detail, FailureSite(*on_pe))


def _named(cause: Any, at: str, on_pe: tuple[int, int]) -> Failure:
    """Return the failure for an error whose class defines the kind. ``at``: place and time, for the message."""
    if issubclass(type(cause), LostPacket):
        return Failure("lost_packet", f"{cause} {at}", "")
    cube, pe = on_pe if cause.cube is None or cause.pe is None else (cause.cube, cause.pe)
    where = FailureSite(cube, pe, cause.direction)
    return Failure(cause.kind, f"{_sendable(str(cause), LONGEST_DETAIL)} {at}", _last_line(cause), where, cause.rank)


def _exit_text(leaving: BaseException) -> str:
    """Return the text for a SystemExit: its exit code and the place of the call."""
    where = raised_at(leaving)
    code = result_or_none(lambda: "".join((repr(leaving.code),)))  # type: ignore[attr-defined]
    return f"sys.exit({'...' if code is None else code}) was called{f' at {where}' if where else ''}"


def _sendable(text: str, longest: int) -> str:
    """Return text that UTF-8 can encode, cut to ``longest`` characters."""
    clean = text.encode("utf-8", "backslashreplace").decode()
    return clean if len(clean) <= longest else f"{clean[:longest]} ... ({len(clean)} characters)"


def _last_line(error: BaseException) -> str:
    """Return the last line of the user's code in the traceback, or "". A line of an installed package or of Python's
    library, by which the simulator may have been called, is the user's only if there is no other.
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_SIMULATOR)]
    if not frames:
        return ""
    last = next((frame for frame in reversed(frames) if not frame.filename.startswith(INSTALLED)), frames[-1])
    path, folder = Path(last.filename), working_folder()
    shown = path.relative_to(folder) if folder and path.is_relative_to(folder) else path
    return _sendable(f"  {shown}:{last.lineno}: {last.line}", LONGEST_MESSAGE)
