"""Time limits of user code in the launcher's process, such as hooks of an algorithm, before a run and in data checks.

A call that does not return within ``--progress-timeout`` is interrupted, and the error names its line.
"""

import contextlib
import sys
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from launcher.options import Options
from launcher.processes.this_host import own_state
from launcher.supervise.signals import ALARM_S, LEAST_ALARM_S, StopSignals, is_debugged, kept
from launcher.supervise.stall import IdleTimer
from sipsim.core.errors import ConfigError, Halt
from sipsim.core.forks import watched
from sipsim.records.code_place import code_place, outermost_users, shown, working_folder

NO_FOLDER = "the working directory no longer exists; change to another directory"


class StoppedEarly(Exception):
    """A command was stopped before its run. ``reason``: kind of failure; ``signum``: the signal, 0 after a timeout."""

    def __init__(self, reason: str, message: str, signum: int) -> None:
        super().__init__(message)
        self.reason = reason
        self.signum = signum


class Unfinished(Exception):
    """Code with a time limit was interrupted. ``reason``: why the run must end; empty if user code took too long.
    ``place``: file and line of user code; empty if no user code ran.
    """

    def __init__(self, text: str, reason: str, place: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.place = place


class _Stop(Halt):
    """Exception that interrupts user code."""


@contextlib.contextmanager
def limited(
    signals: StopSignals, options: Options, always: bool = False, base: FrameType | None = None
) -> Iterator[None]:
    """Interrupt user code in the body of the ``with`` if a call does not return in time, or if the run must end.

    ``always``: interrupt any code, not only of users, when the run must end. ``base``: the frame that calls the
    limited code; by default the frame of the ``with`` statement.

    Raises:
        Unfinished: if code was interrupted.
    """
    base, limit_s = base or sys._getframe(2), options.progress_timeout_s if options.deadlines else None
    timer, known_reason = IdleTimer(2 * ALARM_S), signals.reason()
    outcome = Unfinished("", "", "")
    last_call: FrameType | None = None

    def check(frame: FrameType | None) -> None:
        nonlocal outcome, last_call
        call, code, reason = outermost_users(frame, base), code_place(frame), signals.reason()
        place = shown(code.file, code.line, working_folder()) if call is not None else ""
        timer.note(own_state())
        if call is not last_call or is_debugged(frame):
            timer.moved()
        last_call, idle_s = call, timer.idle_s
        if reason is not None and reason != known_reason and (always or call is not None):
            outcome = Unfinished(signals.describe(reason), reason, place)
        elif call is not None and limit_s is not None and idle_s >= limit_s:
            name = call.f_code.co_name.replace("<module>", "its top level")
            outcome = Unfinished(f"{place}: {name} has not returned for {limit_s:g} s, --progress-timeout", "", place)
        else:
            return
        raise _Stop

    def refuse(call: str) -> NoReturn:
        raise RuntimeError(f"{call} would end the launcher's process")

    try:
        with kept(refuse), watched():
            signals.force_interrupt(max(LEAST_ALARM_S, min(ALARM_S, (limit_s or ALARM_S) / 4)), check)
            try:
                yield
            finally:
                signals.force_interrupt(0, lambda _frame: None)
    except _Stop:
        raise outcome from None


@contextlib.contextmanager
def preparing(options: Options, timeout_s: float | None) -> Iterator[None]:
    """Limit the time of user code in the body of the ``with``, which prepares a run.

    Raises:
        ConfigError: if user code does not return in time.
        StoppedEarly: after a signal, or after ``--timeout``.
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
