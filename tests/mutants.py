"""Plants known bugs and checks that a test sees each: ``python -m tests.mutants [NAME...]``.

A row of ``mutants.toml`` is a bug: a text of the product, and what replaces it. Each is planted in a copy of the tree
below a temporary folder, where its tests run; at least one must fail. NAME chooses the rows whose name contains it. The
exit code is the number of rows that no test sees, or whose text is not in the product any more (at most 100); 101 for a
NAME of no row. It runs by hand, and at night.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".toml")
TESTS_FAILED = 1
"""pytest's exit code; 0: all passed, 2 and above: they did not run."""

HANGS = -1
LONGEST_S = 900
MOST_MISSED = 100
NO_ROW = MOST_MISSED + 1


class Mutant(NamedTuple):
    """A planted bug: ``old``, which stands once in ``file``, becomes ``new``. ``tests``: arguments of pytest."""

    name: str
    file: str
    old: str
    new: str
    tests: list[str]


def mutants() -> list[Mutant]:
    """The rows of the table."""
    rows: list[dict[str, Any]] = tomllib.loads(TABLE.read_text())["mutant"]
    return [Mutant(**row) for row in rows]


def copied(folder: Path) -> Path:
    """A copy of the tracked files of this checkout, as they are."""
    names = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def tested(tree: Path, tests: Sequence[str]) -> int:
    """pytest's exit code for some tests of a tree; ``HANGS`` when they take too long."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--hypothesis-seed=1"]
    environ = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(
            [*command, *tests], cwd=tree, env=environ, capture_output=True, timeout=LONGEST_S
        ).returncode
    except subprocess.TimeoutExpired:
        return HANGS


def problem(mutant: Mutant, tree: Path, without: Callable[[Path, tuple[str, ...]], int]) -> str:
    """Why no test sees a mutant, in a line; empty if one does. ``without``: :func:`tested`, for the tree as it is."""
    path = tree / mutant.file
    text = path.read_text() if path.is_file() else ""
    if text.count(mutant.old) != 1:
        return f"its old text stands {text.count(mutant.old)} times in {mutant.file}; correct the row"
    if code := without(tree, tuple(mutant.tests)):
        return f"its tests do not pass without it: {_ended(code)}"
    path.write_text(text.replace(mutant.old, mutant.new))
    code = tested(tree, mutant.tests)
    path.write_text(text)
    return "" if code == TESTS_FAILED else f"no test fails: {_ended(code)}"


def _ended(code: int) -> str:
    return f"they took more than {LONGEST_S} s" if code == HANGS else f"pytest's exit code is {code}"


def main(names: list[str]) -> int:
    """Run the rows, and return the exit code."""
    rows = mutants()
    if unknown := [name for name in names if not any(name in each.name for each in rows)]:
        print(f"no row of {TABLE.name} has {unknown[0]!r} in its name", file=sys.stderr)
        return NO_ROW
    chosen = [each for each in rows if not names or any(name in each.name for name in names)]
    missed, without = 0, cache(tested)
    with tempfile.TemporaryDirectory(prefix="ahbm-mutants-") as folder:
        tree = copied(Path(folder))
        for mutant in chosen:
            why = problem(mutant, tree, without)
            missed += bool(why)
            print(f"{'MISSED' if why else 'seen  '}  {mutant.name}{f': {why}' if why else ''}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} seen")
    return min(missed, MOST_MISSED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
