"""The limits of code of a user that runs in the launcher's own process: before a run, and when its data are checked.

Such as the hooks of an algorithm. A call that does not return within ``--progress-timeout`` is ended and named.
"""

import contextlib
import sys
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from launcher.options import Options
from launcher.processes.this_host import own_state
from launcher.supervise.signals import ALARM_S, LEAST_ALARM_S, StopSignals, is_debugged, kept
from launcher.supervise.stall import QuietTimer
from sipsim.core.errors import ConfigError, Halt
from sipsim.core.forks import watched
from sipsim.records.code_place import code_place, outermost_users, shown, working_folder

NO_FOLDER = "the working directory does not exist any more; change to one that does"


class StoppedEarly(Exception):
    """A command that was stopped before its run. ``reason``: a kind of failure; ``signum``: the signal, 0 for none."""

    def __init__(self, reason: str, message: str, signum: int) -> None:
        super().__init__(message)
        self.reason = reason
        self.signum = signum


class Unfinished(Exception):
    """Code of a user did not return, and was ended. ``reason``: why the run must end, empty if the code took too long.
    ``place``: where it was, empty if no such code ran.
    """

    def __init__(self, text: str, reason: str, place: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.place = place


class _Stop(Halt):
    """Raised in code of a user."""


@contextlib.contextmanager
def limited(
    signals: StopSignals, options: Options, always: bool = False, base: FrameType | None = None
) -> Iterator[None]:
    """Code of a user within it has to return, and must end when the run must; all other code, too, with ``always``.

    ``base``: the frame below which that is; by default that of the ``with`` statement.

    Raises:
        Unfinished: when it was ended.
    """
    base, limit_s = base or sys._getframe(2), options.progress_timeout_s if options.deadlines else None
    timer, ends = QuietTimer(2 * ALARM_S), signals.reason()
    why = Unfinished("", "", "")
    last: FrameType | None = None

    def look(frame: FrameType | None) -> None:
        nonlocal why, last
        call, found, reason = outermost_users(frame, base), code_place(frame), signals.reason()
        place = shown(found.file, found.line, working_folder()) if call is not None else ""
        timer.note(own_state())
        if call is not last or is_debugged(frame):
            timer.moved()
        last, quiet_s = call, timer.quiet_s
        if reason is not None and reason != ends and (always or call is not None):
            why = Unfinished(signals.describe(reason), reason, place)
        elif call is not None and limit_s is not None and quiet_s >= limit_s:
            name = call.f_code.co_name.replace("<module>", "its top level")
            why = Unfinished(f"{place}: {name} has not returned for {limit_s:g} s, --progress-timeout", "", place)
        else:
            return
        raise _Stop

    def refuse(call: str) -> NoReturn:
        raise RuntimeError(f"{call} would end the launcher's process")

    try:
        with kept(refuse), watched():
            signals.force_interrupt(max(LEAST_ALARM_S, min(ALARM_S, (limit_s or ALARM_S) / 4)), look)
            try:
                yield
            finally:
                signals.force_interrupt(0, lambda _frame: None)
    except _Stop:
        raise why from None


@contextlib.contextmanager
def preparing(options: Options, timeout_s: float | None) -> Iterator[None]:
    """Prepare a run within it.

    Raises:
        ConfigError: code of a user does not return, or would end this process.
        StoppedEarly: by a signal, or by ``--timeout``.
    """
    place, base = "", sys._getframe(2)
    with StopSignals(timeout_s) as signals:
        try:
            with limited(signals, options, always=True, base=base):
                yield
        except Unfinished as stopped:
            if not stopped.reason:
                raise ConfigError(str(stopped)) from None
            place = stopped.place
        reason = signals.reason()
    if reason is not None:
        at = f" at {place}" if place else ""
        raise StoppedEarly(reason, f"{signals.describe(reason)}, while the run was prepared{at}", signals.signum)
