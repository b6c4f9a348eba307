"""Describes an exception in a SIP for the user: kind, one line with the place, and a traceback where it helps."""

import traceback
from pathlib import Path
from typing import NamedTuple

from broker.mail.streams import LostPacket
from broker.wire import NOWHERE, FailureSite
from sipsim.errors import AhbmError
from sipsim.task import TaskFailed
from sipsim.units import format_time_ps

LONGEST_MESSAGE = 4096
LONGEST_DETAIL = 65536
_SIMULATOR = tuple(str(Path(__file__).resolve().parents[2] / package) for package in ("sipsim", "broker", "launcher"))


class Failure(NamedTuple):
    """``kind`` is one of ``sipsim.errors.ERROR_KINDS``; ``detail`` is a traceback or empty."""

    kind: str
    message: str
    detail: str
    where: FailureSite = NOWHERE


def describe(error: BaseException, rank: int, now_ps: int) -> Failure:
    """The description of an exception that ended SIP ``rank`` at ``now_ps``."""
    place, cause, on_pe = f"rank {rank}", error, (-1, -1)
    if isinstance(error, TaskFailed) and error.__cause__ is not None:
        place, cause, on_pe = f"rank {rank}, {error.place}", error.__cause__, error.on_pe
    when = f"at {format_time_ps(now_ps)}"
    if isinstance(cause, AhbmError):
        cube, pe = on_pe if cause.cube is None or cause.pe is None else (cause.cube, cause.pe)
        where = FailureSite(cube, pe, cause.direction)
        return Failure(cause.kind, f"{cause} ({place}, {when})", _last_line(cause), where)
    if isinstance(cause, LostPacket):
        return Failure("lost_packet", f"{cause} ({place}, {when})", "")
    text = _sendable(str(cause), LONGEST_MESSAGE)
    what = f"{type(cause).__name__}: {text}" if text else type(cause).__name__
    kind = "exception" if isinstance(error, TaskFailed) else "internal"
    detail = _sendable(_traceback(cause), LONGEST_DETAIL)
    return Failure(kind, f"{what} ({place}, {when})", detail, FailureSite(*on_pe))


def _sendable(text: str, longest: int) -> str:
    """Text that any encoding can carry, cut to ``longest`` characters."""
    clean = text.encode("utf-8", "backslashreplace").decode()
    return clean if len(clean) <= longest else f"{clean[:longest]} ... ({len(clean)} characters)"


def _last_line(error: BaseException) -> str:
    """The last line of the user's code in the traceback, or nothing."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_SIMULATOR)]
    if not frames:
        return ""
    last = frames[-1]
    path = Path(last.filename)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return _sendable(f"  {shown}:{last.lineno}: {last.line}", LONGEST_MESSAGE)


def _traceback(error: BaseException) -> str:
    """The traceback without the simulator's frames, unless there are no others."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if not frame.filename.startswith(_SIMULATOR)]
    lines = traceback.format_list(users or frames)
    return "Traceback (most recent call last):\n" + "".join(lines) + "".join(traceback.format_exception_only(error))
