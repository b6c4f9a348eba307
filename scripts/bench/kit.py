"""What benches share: flags, the table, ``--json``, runs of commands, CPU time and a yardstick in plain SimPy.

A bench is a module beside this one. Its ``FLAGS`` are its flags by name, ``measure(chosen)`` prints tables and returns
the document of ``--json``, and ``holds(document)``, where there is one, says whether its claim holds.
"""

import argparse
import ast
import gc
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn, TypeVar

import simpy

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parent
T = TypeVar("T")


class Flag(NamedTuple):
    """A flag with its value, the one with ``--quick``, and its help. A tuple is a list with commas, False a switch."""

    usual: Any
    quick: Any
    help: str
    choices: Sequence[str] | None = None


# --- the command --------------------------------------------------------------------------------------------------


def benches() -> dict[str, str]:
    """Each bench with the first sentence of its docstring."""
    files = [file for file in sorted(HERE.glob("*.py")) if not file.stem.startswith("_") and file.stem != "kit"]
    return {file.stem: (ast.get_docstring(ast.parse(file.read_text())) or "").splitlines()[0] for file in files}


def parser_of(name: str, bench: ModuleType, is_quick: bool) -> argparse.ArgumentParser:
    """The flags of a bench, with their values in its help."""
    parser = argparse.ArgumentParser(
        f"bench {name}", description=bench.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="less of it, in seconds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    for key, flag in bench.FLAGS.items():
        value = flag.quick if is_quick else flag.usual
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
        text = f"{flag.help} ({shown})" if shown != "" else flag.help
        if value is False:
            parser.add_argument(f"--{key}", action="store_true", help=flag.help)
            continue
        parser.add_argument(
            f"--{key}", type=_reader(flag), default=value, metavar=key[0].upper(), help=text.replace("%", "%%")
        )
    return parser


def _reader(flag: Flag) -> Callable[[str], Any]:
    is_list = isinstance(flag.usual, tuple)
    kind = type(flag.usual[0] if is_list else flag.usual)

    def read(text: str) -> Any:
        words = text.split(",") if is_list else [text]
        if unknown := [word for word in words if flag.choices and word not in flag.choices]:
            raise argparse.ArgumentTypeError(f"{unknown[0]} is none of {', '.join(flag.choices or ())}")
        values = tuple(map(kind, words))
        return values if is_list else values[0]

    read.__name__ = f"list of {kind.__name__}" if is_list else kind.__name__
    return read


def main(words: Sequence[str], about: str | None) -> int:
    """The command: list the benches, or run one of them. ``about``: its help."""
    known = benches()
    if not words or words[0] in ("-h", "--help"):
        if words:
            print(about)
        for name, line in known.items():
            print(f"{name:<10}{line}")
        return 0
    name, *flags = words
    if name not in known:
        print(f"bench: there is no bench {name}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    document = document_of(name, *flags)
    holds = getattr(importlib.import_module(f"bench.{name}"), "holds", None)
    return 0 if holds is None or holds(document) else 1


def refuse(name: str, line: str) -> NoReturn:
    """End bench ``name``, which cannot measure what was asked for."""
    print(f"bench {name}: {line}", file=sys.stderr)
    raise SystemExit(2)


def document_of(name: str, *flags: str) -> Any:
    """What a bench measures with these flags; written to the file of ``--json``, too."""
    bench = importlib.import_module(f"bench.{name}")
    chosen = parser_of(name, bench, "--quick" in flags).parse_args(flags)
    document = bench.measure(chosen)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(document, indent=1) + "\n")
    return document


# --- the table ----------------------------------------------------------------------------------------------------


class Table:
    """A table whose rows are printed as they come. A column is its head and a format with a width: ``"us each:9.1f"``.

    Cells that are None are shown as ``-``. ``title``: a line above the heads.
    """

    def __init__(self, *columns: str, title: str = "") -> None:
        heads, self._formats = zip(*(column.rsplit(":", 1) for column in columns), strict=True)
        if title:
            print(title)
        print(self._line(heads))

    def row(self, *cells: Any, more: str = "") -> None:
        """Print a row. ``more``: text after the last column."""
        print(f"{self._line(cells)}{more}".rstrip(), flush=True)

    def _line(self, cells: Sequence[Any]) -> str:
        shown = []
        for cell, spec in zip(cells, self._formats, strict=True):
            is_plain = isinstance(cell, str) or cell is None
            width = re.match(r"[<>]?\d+", spec)
            assert width is not None, spec
            sign = "" if spec[0] in "<>" else ">"
            shown.append(f"{'-' if cell is None else cell:{sign}{width[0]}}" if is_plain else f"{cell:{sign}{spec}}")
        return " ".join(shown).rstrip()


# --- runs of commands ---------------------------------------------------------------------------------------------


class Command(NamedTuple):
    """A command that has ended: its JSON document, wall time, and the CPU time of its processes."""

    document: dict[str, Any]
    wall_s: float
    cpu_s: float


def command(name: str, *flags: object, under: Sequence[str] = ()) -> Command:
    """Run a command of this checkout as a user does, from its start to its end, ``under`` the words of a tool.

    Raises:
        SystemExit: it failed.
    """
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as errors:
        out = Path(folder, "out.json")
        words = [*under, str(SCRIPTS / name), *map(str, flags), "--json", str(out)]
        began_s = time.perf_counter()
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began_s
        process.returncode = os.waitstatus_to_exitcode(status)
        if status:
            errors.seek(0)
            raise SystemExit(f"bench: {shlex.join(words[:-2])}: {errors.read().decode(errors='replace').strip()}")
        return Command(json.loads(out.read_text()), wall_s, usage.ru_utime + usage.ru_stime)


def launch(*flags: object) -> dict[str, Any]:
    """The document of a run of ``ahbm-launch``."""
    return command("ahbm-launch", *flags).document


# --- CPU time -----------------------------------------------------------------------------------------------------


def cpu_s(function: Callable[[], T]) -> tuple[float, T]:
    """CPU seconds of this process in a call, and its result."""
    gc.collect()
    began_s = time.process_time()
    result = function()
    return time.process_time() - began_s, result


def bare_simpy_s(messages: int) -> float:
    """CPU seconds of a credit ring in plain SimPy: what this machine does just now.

    A Container, a Store and two timeouts a message; no fabric, no data.
    """
    env = simpy.Environment()
    free, slots = simpy.Container(env, 8, 8), simpy.Store(env)

    def sender() -> Iterator[Any]:
        for number in range(messages):
            yield free.get(1)
            yield env.timeout(64)
            yield slots.put(number)

    def receiver() -> Iterator[Any]:
        for _ in range(messages):
            yield slots.get()
            yield env.timeout(16)
            yield free.put(1)

    env.process(sender())
    env.process(receiver())
    return cpu_s(env.run)[0]
