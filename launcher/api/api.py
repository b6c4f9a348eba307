"""Runs from Python: :func:`run` does what ``ahbm-launch`` does, prints nothing and leaves its process as it was.

Importing ``launcher`` sets BLAS to one thread: ``OPENBLAS_NUM_THREADS`` and its like, where they are not set.
"""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace

from launcher.api.keywords import command_line, parsed
from launcher.isolation.isolation import isolated
from launcher.result.document import RunOutcome
from launcher.run.preparing import NO_FOLDER, StoppedEarly
from launcher.run.run import checked, run_checked
from launcher.supervise.signals.signals import StoppedAtOnce
from sipsim.core.errors import ConfigError
from sipsim.records.code_place import working_folder

__all__ = ["RunOutcome", "run"]


def run(
    script: str | os.PathLike[str] | None = None,
    *,
    script_args: Sequence[object] = (),
    as_module: bool = False,
    **options: object,
) -> RunOutcome:
    """Simulate: the built-in collective, or a host script (with ``as_module``, a module's name).

    ``options``: the flags of ``ahbm-launch --help``, as ``launcher.api.keywords`` writes them, with their defaults:
    ``run(sips=4, topology="torus_2d", bytes=["64K", "1M"], set=["cube.pes=4"], engine="inproc", json="out.json")``.

    Files are written where options ask for them. Afterwards the process is as it was before, also when the run has
    failed: import paths, modules, environment, working directory, random states, signal handlers, threads, files.

    One run at a time. In any thread, but only in the main thread do signals stop a run, and does ``timeout`` stop
    endless user code with ``engine="inproc"``. Other engines fork this process: a lock that another thread holds then
    stays locked in the SIPs. A signal that stops a run (Ctrl-C, SIGTERM, SIGHUP) is raised again at its end, for the
    handler that was there before: KeyboardInterrupt for Ctrl-C. The result files say ``interrupted``.

    Returns:
        The outcome, also of a run that fails, is stopped by ``timeout``, or has wrong numbers; see ``exit_code``.

    Raises:
        ConfigError: one line with the flag or key, the value and what is allowed, before anything has started; also
            when ``timeout`` is reached by then.
        RuntimeError: while another run is under way in this process.
    """
    started_s = time.monotonic()
    if not working_folder():
        raise ConfigError(NO_FOLDER)
    argv = command_line(script, script_args, as_module, options)
    try:
        with isolated() as output:
            prepared, chosen = checked(parsed(argv), argv)
            outcome = replace(run_checked(prepared, chosen, argv, started_s), output=output())
    except StoppedEarly as stopped:
        if stopped.signum:
            signal.raise_signal(stopped.signum)
        raise ConfigError(str(stopped)) from None
    except StoppedAtOnce:
        raise KeyboardInterrupt from None
    if outcome.signal:
        signal.raise_signal(outcome.signal)
    return outcome
