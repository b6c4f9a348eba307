"""Where a file that a flag names goes: to a path, or to standard output, in place of the table, for ``-``."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

STANDARD_OUTPUT = Path("-")


def absolute(path: Path) -> Path:
    """The same destination from any working directory."""
    return path if path == STANDARD_OUTPUT else path.absolute()


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """The destination, to be written to; line ends are written as they are given."""
    if path == STANDARD_OUTPUT:
        yield sys.stdout
        sys.stdout.flush()
        return
    with path.open("w", newline="") as file:
        yield file
