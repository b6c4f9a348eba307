"""``mp.spawn`` of PyTorch's shape: a script that runs once as ``__main__`` runs its worker on all SIPs.

Under ``ahbm-launch``, the call starts the run of the command line; in another Python program, it starts a run by
:mod:`launcher.api`. SIPs load the script as a module, so they do not run code under ``if __name__ == "__main__"``.
"""

import runpy
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from launcher.options import Options
from launcher.result.document import RunOutcome
from sipsim.core.errors import ERROR_KINDS, ConfigError
from sipsim.node.script import ScriptNamespace
from sipsim.records.spawn_call import MAIN, SpawnCall


class ProcessException(Exception):
    """A run failed. ``error_index``: the failed rank, or -1; ``error_pid``: the process ID of this rank, or -1."""

    def __init__(self, message: str, error_index: int, error_pid: int) -> None:
        super().__init__(message)
        self.msg = message
        self.error_index = error_index
        self.error_pid = error_pid


class ProcessRaisedException(ProcessException):
    """A worker raised an exception; the message contains its traceback. ``error_index``: the rank."""


class ProcessExitedException(ProcessException):
    """The process of a rank ended with ``exit_code``. ``signal_name``: the signal that killed the process, or None."""

    def __init__(self, message: str, index: int, pid: int, exit_code: int, signal_name: str | None) -> None:
        super().__init__(message, index, pid)
        self.exit_code = exit_code
        self.signal_name = signal_name


class SpawnContext:
    """Return value of ``spawn(..., join=False)``: the run has ended, and :meth:`join` raises its failure."""

    def __init__(self, outcome: RunOutcome) -> None:
        self._outcome = outcome

    def join(self, timeout: float | None = None) -> bool:
        """Return True if the run succeeded.

        Raises:
            ProcessException: the run failed.
        """
        _raise_failure(self._outcome)
        return True


class MainScript:
    """Script that ``ahbm-launch`` runs once as ``__main__``. ``launch``: starts the run of the command line."""

    running: ClassVar["MainScript | None"] = None

    def __init__(self, options: Options, launch: Callable[[SpawnCall], RunOutcome], n_sips: int) -> None:
        self._options = options
        self._launch = launch
        self._n_sips = n_sips
        self.outcome: RunOutcome | None = None

    def run(self) -> int:
        """Run the script; return the script's exit code if it is not 0, else the exit code of the run.

        Raises:
            ConfigError: the script does not call ``mp.spawn``, or calls it with arguments that are refused.
        """
        script, code = self._options.script, 0
        assert script is not None
        try:
            with self._installed(script):
                if self._options.as_module:
                    runpy.run_module(script, run_name=MAIN, alter_sys=True)
                else:
                    runpy.run_path(script, run_name=MAIN)
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        except ProcessException:
            pass  # The run has printed its failure.
        except ConfigError:
            raise
        except Exception:
            traceback.print_exc()
            code = ERROR_KINDS["exception"]
        if self.outcome is None and not code:
            raise ConfigError(f"{script}: neither calls mp.spawn nor defines worker(rank, world_size, torch); add one")
        return code or (0 if self.outcome is None else self.outcome.exit_code)

    def spawn(self, call: SpawnCall, nprocs: int, options: dict[str, object]) -> RunOutcome:
        """Make the run of the command line with this call as its job."""
        if self.outcome is not None:
            raise ConfigError("mp.spawn: ahbm-launch makes one run; call spawn once, or run the script with python")
        if options:
            raise ConfigError(
                f"mp.spawn: {next(iter(options))}=... is refused under ahbm-launch; use a flag of ahbm-launch"
            )
        if nprocs != self._n_sips:
            raise ConfigError(
                f"mp.spawn: nprocs={nprocs!r}, and the system has {self._n_sips} SIPs; "
                f"give nprocs={self._n_sips}, or another --sips"
            )
        self.outcome = self._launch(call)
        return self.outcome

    @contextmanager
    def _installed(self, script: str) -> Iterator[None]:
        before = sys.argv, sys.path[:]
        MainScript.running = self
        sys.argv = [script, *self._options.script_args]
        sys.path.insert(0, "" if self._options.as_module else str(Path(script).resolve().parent))
        try:
            yield
        finally:
            MainScript.running = None
            sys.argv, sys.path[:] = before


def spawn(
    fn: Callable[..., object],
    args: tuple[object, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
    **options: object,
) -> SpawnContext | None:
    """Run ``fn(rank, *args)`` in the processes of ``nprocs`` SIPs, ranks 0 to ``nprocs`` - 1, and wait for their end.

    ``fn``: a function with a module-level name. ``args``: numbers, strings, bytes, lists, tuples, dicts and NumPy
    arrays. ``options``: keywords of :func:`launcher.api.run`, such as ``topology="torus_2d"``. Under
    ``ahbm-launch`` no options are allowed, and ``nprocs`` must equal the number of SIPs. The run ends before the call
    returns; with ``join=False``, only ``join`` of the returned context raises the run's failure. ``daemon`` and
    ``start_method`` have no effect: the launcher ends all processes of a run.

    Raises:
        ConfigError: an argument cannot be used; no process has started.
        ProcessRaisedException: a worker raised an exception.
        ProcessExitedException: the process of a rank ended.
        ProcessException: the run failed otherwise, such as by a deadlock.
    """
    if ScriptNamespace.installed is not None:
        raise ConfigError('mp.spawn: called on a rank; call it behind if __name__ == "__main__", and in no worker')
    if type(nprocs) is not int or nprocs < 1:
        raise ConfigError(f"mp.spawn: nprocs={nprocs!r}: must be a whole number of at least 1")
    call = SpawnCall.of(fn, args)
    outcome = (MainScript.running.spawn if MainScript.running is not None else _run_alone)(call, nprocs, options)
    if not join:
        return SpawnContext(outcome)
    _raise_failure(outcome)
    return None


def _run_alone(call: SpawnCall, nprocs: int, options: dict[str, object]) -> RunOutcome:
    from launcher.api import run_spawned

    main = sys.modules[MAIN]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if file is None:
        raise ConfigError(
            "mp.spawn: this program has no file, from which ranks load the worker; write the program to a file"
        )
    if "sips" in options:
        raise ConfigError("mp.spawn: leave sips=... out; nprocs is the number of SIPs")
    script = file if spec is None else spec.name
    outcome = run_spawned(call, script, sys.argv[1:], spec is not None, {"sips": nprocs, **options})
    sys.stdout.write(outcome.output)
    sys.stdout.flush()
    return outcome


def _raise_failure(outcome: RunOutcome) -> None:
    error = outcome.error
    if error is None:
        if outcome.exit_code:
            raise ProcessException(f"the run failed with exit code {outcome.exit_code}", -1, -1)
        return
    rank = -1 if error["rank"] is None else error["rank"]
    pid = error.get("pid", -1)
    if error["kind"] == "exception":
        text = f"\n\n-- Process {rank} terminated with the following error:\n{outcome.detail}\n{error['message']}"
        raise ProcessRaisedException(text, rank, pid)
    if error["kind"] == "process_died":
        killed_by = error.get("signal")
        exit_code = -signal.Signals[killed_by] if killed_by else error.get("exit_code", outcome.exit_code)
        raise ProcessExitedException(error["message"], rank, pid, exit_code, killed_by)
    raise ProcessException(f"{error['kind']}: {error['message']}", rank, pid)
