"""Signals and timeout of a run: Ctrl-C, SIGTERM and ``--timeout`` stop the run, SIGUSR1 requests the run's state.

A signal handler only records the reason and wakes the loop, so no message is lost. A second Ctrl-C raises
:class:`StoppedAtOnce`. Outside the main thread, where Python handles no signals, only the timeout stops a run.
"""

import contextlib
import functools
import os
import posix
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType, TracebackType
from typing import Any, NoReturn

from sipsim.core.errors import Halt

REASONS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "terminated"}

SAID = {"interrupted": "interrupted by Ctrl-C", "terminated": "terminated by a signal"}
FORCE_AFTER_S = 1.0
ALARM_S = 0.5
LEAST_ALARM_S = 0.01
"""The shortest period of alarms: a shorter period leaves no time for the interrupted code."""
OnAlarm = Callable[[FrameType | None], None]


class ForcedStop(Halt):
    """The run must stop, and user code does not poll: raised in the main thread, in any code that runs there."""


class StoppedAtOnce(Halt):
    """A second Ctrl-C was pressed: the launcher stops without waiting for the end of current work."""


class StopSignals:
    """Stop signals of a run, as a context manager. ``signum``: the signal that stopped the run; 0 if none has."""

    def __init__(self, timeout_s: float | None) -> None:
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self._noted: str | None = None
        self.signum = 0
        self._handles = threading.current_thread() is threading.main_thread()
        self._previous: dict[int, object] = {}
        self._forces = False
        self._force_s: float | None = None
        self._on_alarm: OnAlarm = lambda _frame: None
        self.status_requested = False
        """Whether SIGUSR1 has requested the state of synchronisation; the code that prints it resets this."""
        self._wakeup, self._wake = socket.socketpair()

    def __enter__(self) -> "StopSignals":
        for end in (self._wakeup, self._wake):
            end.setblocking(False)
        if not self._handles:
            return self
        self._old_fd = signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for signum in REASONS:
            if signum == signal.SIGHUP and signal.getsignal(signum) == signal.SIG_IGN:
                # Set by nohup: the run continues without its terminal.
                continue
            self._previous[signum] = signal.signal(signum, self._handle)
        self._previous[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, self._note_status_request)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._forces:
            signal.setitimer(signal.ITIMER_REAL, *self._old_timer)
        for signum, handler in self._previous.items():
            # None: the handler was not installed from Python.
            if handler is not None:
                signal.signal(signum, handler)  # type: ignore[arg-type]
        if self._handles:
            signal.set_wakeup_fd(self._old_fd)
        self._wakeup.close()
        self._wake.close()

    def force_interrupt(self, every_s: float, on_alarm: OnAlarm) -> None:
        """Call ``on_alarm`` with the running frame every ``every_s`` seconds; 0 ends the calls.

        ``on_alarm`` may raise :class:`ForcedStop` to end user code that does not poll; see :attr:`is_overdue`.
        """
        if not self._handles:
            return
        self._on_alarm = on_alarm
        if not self._forces:
            self._forces = True
            self._old_timer = signal.getitimer(signal.ITIMER_REAL)
            self._previous[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._alarm)
        signal.setitimer(signal.ITIMER_REAL, every_s, every_s)

    @property
    def is_overdue(self) -> bool:
        """Whether the run should have ended ``FORCE_AFTER_S`` ago, which shows that the running code does not poll."""
        if self.reason() is None:
            return False
        now_s = time.monotonic()
        if self._force_s is None:
            self._force_s = now_s + FORCE_AFTER_S
        return now_s >= self._force_s

    @property
    def fileno(self) -> int:
        """The descriptor, for a poller, that is readable after a signal until :meth:`drain`."""
        return self._wakeup.fileno()

    def drain(self) -> None:
        """Empty the descriptor; must be called before :meth:`reason`, so that no signal is missed."""
        with contextlib.suppress(BlockingIOError):
            self._wakeup.recv(4096)

    def reason(self) -> str | None:
        """Return why the run must end now: ``interrupted``, ``terminated`` or ``timeout``; None if the run continues.
        This method makes no system call, since the engines call it between any two messages.
        """
        if self._noted is None and self._deadline is not None and time.monotonic() >= self._deadline:
            self._noted = "timeout"
        return self._noted

    def seconds_left(self, at_most: float) -> float:
        """Return how many seconds a loop may sleep before it must call :meth:`reason` again."""
        if self._deadline is None or self._noted is not None:
            return at_most
        return max(0.0, min(at_most, self._deadline - time.monotonic()))

    def describe(self, reason: str) -> str:
        """Return the reason as a message."""
        if reason == "timeout":
            return f"--timeout {self._timeout_s:g} s reached" if self._timeout_s else "timeout"
        return SAID[reason]

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self._noted is not None and signum == signal.SIGINT:
            raise StoppedAtOnce
        self._noted = self._noted or REASONS[signal.Signals(signum)]
        self.signum = self.signum or signum

    def _note_status_request(self, signum: int, frame: FrameType | None) -> None:
        self.status_requested = True

    def _alarm(self, signum: int, frame: FrameType | None) -> None:
        self._on_alarm(frame)


def is_debugged(frame: FrameType | None) -> bool:
    """Whether a debugger traces this thread or waits at a prompt, so that time passes without progress."""
    if sys.gettrace() is not None:
        return True
    while frame is not None:
        if frame.f_globals.get("__name__") == "bdb":
            return True
        frame = frame.f_back
    return False


ENDS = ((os, "_exit"), (posix, "_exit"), (os, "execv"), (posix, "execv"), (os, "execve"), (posix, "execve"))
"""Functions that end or replace the process, in ``os`` and ``posix``; other functions with this effect call these."""


@contextlib.contextmanager
def kept(refuse: Callable[[str], NoReturn]) -> Iterator[None]:
    """Protect this process from exits by user code in the body: such a call becomes a call of ``refuse`` with its text.

    ``refuse`` must raise. Not covered are C code, ``os.abort`` and fatal signals, forked processes, and threads that
    existed before.
    """
    pid, others = os.getpid(), {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}

    def guarded(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def guard(*args: Any, **kwargs: Any) -> Any:
            if os.getpid() == pid and threading.get_ident() not in others:
                refuse(f"os.{name}({', '.join(map(repr, args[:1]))})")
            return original(*args, **kwargs)

        return guard

    real: list[tuple[ModuleType, str, Any]] = [(module, name, getattr(module, name)) for module, name in ENDS]
    for module, name, original in real:
        setattr(module, name, guarded(name, original))
    try:
        yield
    finally:
        for module, name, original in real:
            setattr(module, name, original)
