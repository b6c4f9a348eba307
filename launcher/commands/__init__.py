"""Commands, and their common code: safe standard output, exit codes of mistakes and signals, results as files."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from launcher.isolation import opened, safe_output
from launcher.options import ParserExit
from launcher.processes.descendants import left_line, own_children_ended
from launcher.run.preparing import NO_FOLDER, StoppedEarly
from launcher.supervise.signals import REASONS, SAID, StoppedAtOnce
from sipsim.core.errors import ERROR_KINDS, AhbmError, ConfigError, OutputError
from sipsim.records.code_place import working_folder


class Stopped(KeyboardInterrupt):
    """A stop signal has interrupted a command. ``reason``: ``interrupted`` or ``terminated``, kinds of failures."""

    def __init__(self, reason: str) -> None:
        super().__init__(SAID[reason])
        self.reason = reason


def run_command(name: str, answer: Callable[[], None]) -> int:
    """Call ``answer`` and return 0; on an error, print one line that begins with ``name``, and return an exit code."""
    return until_stopped(name, lambda: _answered(name, answer))


def until_stopped(name: str, run: Callable[[], int]) -> int:
    """Call ``run`` in :func:`with_safe_output`; return the exit code of ``run``, or of the signal that stopped ``run``.

    A signal raises :class:`Stopped` in ``run``, which may print partial results; then one line names the signal.
    """
    return with_safe_output(name, lambda: _unless_stopped(name, run))


def _unless_stopped(name: str, run: Callable[[], int]) -> int:
    try:
        with _stoppable():
            return run()
    except KeyboardInterrupt as stopped:
        reason = stopped.reason if isinstance(stopped, Stopped) else "interrupted"
        print(f"{name}: {SAID[reason]}", file=sys.stderr)
        return ERROR_KINDS[reason]


@contextmanager
def _stoppable() -> Iterator[None]:
    def stop(signum: int, _frame: FrameType | None) -> None:
        raise Stopped(REASONS[signal.Signals(signum)])

    # Only the main thread handles signals; nohup ignores SIGHUP.
    is_main = threading.current_thread() is threading.main_thread()
    handled = [signum for signum in REASONS if is_main and signal.getsignal(signum) not in (signal.SIG_IGN, None)]
    before = [(signum, signal.signal(signum, stop)) for signum in handled]
    try:
        yield
    finally:
        for signum, handler in before:
            signal.signal(signum, handler)


def with_safe_output(name: str, run: Callable[[], int]) -> int:
    """Call ``run`` and return an exit code; after Ctrl-C, or if output cannot be written, also print one line."""
    with safe_output() as out:
        code = _code_of(name, run)
        out.flush()
        if out.trouble:
            print(f"{name}: standard output cannot be written: {out.trouble}", file=sys.stderr)
            return code or ERROR_KINDS["internal"]
        return code


def _code_of(name: str, run: Callable[[], int]) -> int:
    if not working_folder():
        print(f"{name}: {NO_FOLDER}", file=sys.stderr)
        return ConfigError.exit_code

    def report(pids: list[int]) -> None:
        print(f"{name}: {left_line('code of a user', pids)}", file=sys.stderr)

    try:
        with own_children_ended(report):
            return run()
    except StoppedEarly as stopped:
        print(f"{name}: {stopped}", file=sys.stderr)
        return ERROR_KINDS[stopped.reason]
    except StoppedAtOnce:
        print(f"{name}: interrupted twice, stopped at once", file=sys.stderr)
    except KeyboardInterrupt:
        print(f"{name}: {SAID['interrupted']}", file=sys.stderr)
    return ERROR_KINDS["interrupted"]


def _answered(name: str, answer: Callable[[], None]) -> int:
    try:
        answer()
    except ParserExit as usage:
        print(usage.text, file=sys.stderr if usage.exit_code else sys.stdout)
        return usage.exit_code
    except AhbmError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return ConfigError.exit_code
    return 0


def write_file(path: Path | None, content: str | bytes) -> None:
    """Write text or bytes to the file that a flag names, or to standard output for ``-``; do nothing if path is None.

    Raises:
        OutputError: if the file cannot be written.
    """
    if path is None:
        return
    try:
        with opened(path) as file:
            if isinstance(content, str):
                file.write(content)
            else:
                file.buffer.write(content)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from None
