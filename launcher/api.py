"""Python interface to ``ahbm-launch``: :func:`run` makes the same run, prints nothing and restores the process.

A keyword is a flag's long name with ``_`` for ``-`` (``n_elem``, ``no_timeouts``), or a flag's letter (``b``). Keywords
have the types, defaults and checks of the flags. The import of ``launcher`` limits BLAS to one thread: it sets
``OPENBLAS_NUM_THREADS``, ``OMP_NUM_THREADS`` and ``MKL_NUM_THREADS`` unless the environment contains them.
"""

import argparse
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from launcher import flag_types
from launcher.isolation import isolated
from launcher.options import FLAGS, Options, ParserExit, launch_parser, parse
from launcher.result.document import RunOutcome
from launcher.run.preparing import NO_FOLDER, StoppedEarly
from launcher.run.run import checked, run_checked
from launcher.supervise.signals import StoppedAtOnce
from sipsim.core.errors import ConfigError
from sipsim.core.registry import unknown_name
from sipsim.records.code_place import working_folder
from sipsim.records.spawn_call import SpawnCall

TERMINAL = frozenset({"help", "version", *(name for name, flag in FLAGS.items() if flag.terminal)})
"""Flags that only change what a terminal shows."""


def command_line(
    script: str | os.PathLike[str] | None,
    script_args: Sequence[object],
    as_module: bool,
    keywords: Mapping[str, object],
) -> list[str]:
    """Return the command line of ``ahbm-launch`` for the same run.

    A value of ``keywords`` is text, a number, a path, or a sequence of these if the flag takes several values; None
    selects the flag's default. Flags without a value take True or False.

    Raises:
        ConfigError: for a keyword without a flag, and for a value of another type.
    """
    flags = {name: action for action in launch_parser()._actions if (name := _keyword(action)) not in TERMINAL}
    words: list[str] = []
    for name, value in keywords.items():
        if name not in flags:
            raise ConfigError(unknown_name("keyword", name, flags))
        words += [] if value is None else _words(name, flags[name], value)
    if script is None:
        if script_args or as_module:
            raise ConfigError("script_args and as_module need a script")
        return words
    return [*words, "-m" if as_module else "--", os.fspath(script), *map(str, script_args)]


def parsed(words: list[str]) -> Options:
    """Return the options of a command line that :func:`command_line` has returned.

    Raises:
        ConfigError: one line with the flag, the value and what is allowed.
    """
    try:
        return parse(words)
    except ParserExit as usage:
        raise ConfigError(usage.text.removeprefix("ahbm-launch: ")) from None


def _keyword(action: argparse.Action) -> str:
    strings = action.option_strings
    return next((s for s in strings if s.startswith("--")), strings[0]).lstrip("-").replace("-", "_")


def _words(name: str, action: argparse.Action, value: object) -> list[str]:
    flag = next((s for s in action.option_strings if s.startswith("--")), action.option_strings[0])
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise ConfigError(f"{name}={value!r}: must be True or False")
        if isinstance(action, argparse.BooleanOptionalAction):
            return [action.option_strings[not value]]
        return [flag] if value else []
    if isinstance(action, argparse._AppendAction):
        values = value if isinstance(value, (list, tuple)) else (value,)
        return [f"{flag}={_text(name, each)}" for each in values]
    if action.type is flag_types.output and str(value) == "-":
        raise ConfigError(f"{name}='-': a run from Python prints nothing; name a file, or take the outcome's document")
    return [f"{flag}={_text(name, value)}"]


def _text(name: str, value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(_text(name, each) for each in value)
    if isinstance(value, bool) or not isinstance(value, (str, int, float, os.PathLike)):
        raise ConfigError(f"{name}={value!r}: must be text, a number, a path, or a sequence of them")
    return str(value)


def run(
    script: str | os.PathLike[str] | None = None,
    *,
    script_args: Sequence[object] = (),
    as_module: bool = False,
    **options: object,
) -> RunOutcome:
    """Simulate the built-in collective, or a host script (with ``as_module``, a module).

    ``options``: the flags of ``ahbm-launch --help`` as keywords, with the flags' defaults:
    ``run(sips=4, topology="torus_2d", bytes=["64K", "1M"], set=["cube.pes=4"], engine="inproc", json="out.json")``.

    Only files that options name are written. After the run, also after a failed one, the process is restored: import
    paths, modules, environment, working directory, random states, signal handlers, threads, files.

    A process makes one run at a time, in any thread. In other threads than the main thread, signals do not stop a run,
    and ``timeout`` does not stop endless user code with ``engine="inproc"``. Other engines fork this process: a lock
    that another thread holds at the fork stays locked in the SIPs. A signal that stops a run (SIGINT, SIGTERM, SIGHUP)
    is raised again after the run, for Ctrl-C as KeyboardInterrupt; the status in result files is ``interrupted``.

    Returns:
        The outcome, even if the run fails, is stopped by ``timeout``, or has wrong numbers; see ``exit_code``.

    Raises:
        ConfigError: one line with the flag or key, the value and what is allowed, before anything has started; also
            when ``timeout`` is reached before the start.
        RuntimeError: if another run is active in this process.
    """
    return run_spawned(None, script, script_args, as_module, options)


def run_spawned(
    call: SpawnCall | None,
    script: str | os.PathLike[str] | None,
    script_args: Sequence[object],
    as_module: bool,
    options: Mapping[str, object],
) -> RunOutcome:
    """Make the run of :func:`run`. ``call``: the worker that ``mp.spawn`` calls in place of the script's ``worker``."""
    started_s = time.monotonic()
    if not working_folder():
        raise ConfigError(NO_FOLDER)
    argv = command_line(script, script_args, as_module, options)
    chosen = parsed(argv).changed(spawn=call)
    try:
        with isolated() as output:
            outcome = replace(run_checked(checked(chosen, argv), argv, started_s), output=output())
    except StoppedEarly as stopped:
        if stopped.signum:
            signal.raise_signal(stopped.signum)
        raise ConfigError(str(stopped)) from None
    except StoppedAtOnce:
        raise KeyboardInterrupt from None
    if outcome.signal:
        signal.raise_signal(outcome.signal)
    return outcome
