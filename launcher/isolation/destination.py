"""Where a file that a flag names goes: to a path, or to standard output, in place of the table, for ``-``."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from sipsim.core.files.files import REWRITE, naming, open_named

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
    with naming(path), os.fdopen(_without_waiting(path), "w", newline="") as file:
        yield file


def _without_waiting(path: Path) -> int:
    """Open, and do not wait for somebody who reads a pipe."""
    try:
        fd = open_named(path, REWRITE | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "nobody reads this pipe", str(path)) from None
        raise
    os.set_blocking(fd, True)
    return fd
