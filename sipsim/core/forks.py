"""Fork safety: excludes processes that a user's code forks from the simulation.

A forked process has copies of the simulation's state, of its sockets without their threads, and of its open files. The
process may run code of the user. It must not use the simulator, nor continue the simulation when that code returns.
"""

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from sipsim.core.errors import error_text

_OWN = ("launcher.", "sipsim.", "broker.")
_FILES = tuple(str(Path(__file__).parents[2] / name.replace(".", os.sep)) for name in _OWN)
_CHILD_HANDLERS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGALRM: signal.SIG_DFL,
    signal.SIGUSR1: signal.SIG_IGN,
    signal.SIGUSR2: signal.SIG_IGN,
}
"""The handlers that replace the simulator's signal handlers in a forked process."""


class _State:
    """Fork state of a process: whether it simulates, was forked by a user's code, and has fork hooks installed."""

    simulates = False
    is_child = False
    is_watched = False
    on_fork: Callable[[], None] | None = None


PROCESS = _State()
"""The state of this process. Hot paths read ``is_child`` directly to save a call."""


@contextlib.contextmanager
def watched(on_fork: Callable[[], None] | None = None) -> Iterator[None]:
    """Return a context in which this process runs a user's code: a process forked there cannot use the simulator.
    ``on_fork``: called in this process after a fork.
    """
    if not PROCESS.is_watched:
        PROCESS.is_watched = True
        os.register_at_fork(before=_flush, after_in_parent=_note_fork, after_in_child=_begin_child)
    before = PROCESS.simulates, PROCESS.on_fork
    PROCESS.simulates, PROCESS.on_fork = True, on_fork
    try:
        yield
    finally:
        PROCESS.simulates, PROCESS.on_fork = before
        if PROCESS.is_child:
            end_child(sys.exc_info()[1])


def refuse_child() -> None:
    """Check that this process may use the simulator; called at the entry points of the API for users.

    Raises:
        RuntimeError: in a process that a user's code has forked.
    """
    if PROCESS.is_child:
        raise RuntimeError(f"process {os.getpid()} was forked by a script or kernel, so it cannot use the simulator")


def end_child(error: BaseException | None) -> NoReturn:
    """End a forked process, whose code has returned or raised ``error``, with Python's usual exit status and output."""
    status = 0
    try:
        if error is not None and not issubclass(type(error), SystemExit):
            status = 1
            frames = [
                frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_FILES)
            ]
            print(*traceback.format_list(frames), error_text(error), sep="", file=sys.stderr)
        elif error is not None:
            code = error.code  # type: ignore[attr-defined]
            status = code & 0xFF if isinstance(code, int) else int(code is not None)
            if code is not None and not isinstance(code, int):
                print(code, file=sys.stderr)
        _flush()
    except BaseException:
        status = 1
    finally:
        os._exit(status)


def _flush() -> None:
    """Flush the output streams before a fork; otherwise both processes would write the buffered text."""
    if PROCESS.simulates:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()


def _note_fork() -> None:
    if PROCESS.simulates and PROCESS.on_fork is not None:
        PROCESS.on_fork()


def _begin_child() -> None:
    if not PROCESS.simulates:
        return
    PROCESS.is_child = True
    with contextlib.suppress(ValueError):
        signal.set_wakeup_fd(-1)
    for signum, handler in _CHILD_HANDLERS.items():
        if str(getattr(signal.getsignal(signum), "__module__", "")).startswith(_OWN):
            signal.signal(signum, handler)
