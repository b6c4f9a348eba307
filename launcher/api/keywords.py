"""The keywords of ``launcher.api.api.run`` as a command line: the names, types, defaults and checks are those of the
flags.

A keyword is a flag's long name with ``_`` for ``-`` (``n_elem``, ``timeout``, ``no_timeouts``), or its letter (``b``).
"""

import argparse
import os
from collections.abc import Mapping, Sequence

from launcher import flag_types
from launcher.options.options import Options, Usage, launch_parser, parse
from sipsim.core.errors import ConfigError
from sipsim.core.registry.registry import unknown_name

TERMINAL = frozenset({"help", "version", "list", "dry_run", "quiet", "verbose"})
"""Flags that only change what a terminal shows."""


def command_line(
    script: str | os.PathLike[str] | None,
    script_args: Sequence[object],
    as_module: bool,
    keywords: Mapping[str, object],
) -> list[str]:
    """The command line of ``ahbm-launch`` for the same run.

    A value is text as the flag takes it, a number, a path, or a sequence of these where a flag takes several; None: the
    default. Flags without a value take True or False.

    Raises:
        ConfigError: for a keyword that is no flag's, and for a value of another type.
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
    """The options of :func:`command_line`.

    Raises:
        ConfigError: one line with the flag, the value and what is allowed.
    """
    try:
        return parse(words)
    except Usage as usage:
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
        several = value if isinstance(value, (list, tuple)) else (value,)
        return [f"{flag}={_text(name, each)}" for each in several]
    if action.type is flag_types.output and str(value) == "-":
        raise ConfigError(f"{name}='-': a run from Python prints nothing; name a file, or take the outcome's document")
    return [f"{flag}={_text(name, value)}"]


def _text(name: str, value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(_text(name, each) for each in value)
    if isinstance(value, bool) or not isinstance(value, (str, int, float, os.PathLike)):
        raise ConfigError(f"{name}={value!r}: must be text, a number, a path, or a sequence of them")
    return str(value)
