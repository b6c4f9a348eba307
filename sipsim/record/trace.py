"""The trace of sends and receives: one line each, ``(rank, t, dir, nbytes)`` of ADR-0023 D14, with cube and PE."""

import csv
from pathlib import Path
from typing import NamedTuple

from sipsim.errors import OutputError


class TraceLine(NamedTuple):
    """A send that returned, or a receive that ended, at ``t_ps``."""

    rank: int
    cube: int
    pe: int
    t_ps: int
    op: str
    dir: str
    nbytes: int


TRACE_FILE = "trace.csv"
"""The name of a rank's trace in its artifact folder."""


class TraceFile:
    """A rank's trace, flushed after each line, so that the lines before a crash are in the file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)
        self._is_lost = False
        self._lines = csv.writer(self._file, lineterminator="\n")

    def append(self, line: TraceLine) -> None:
        """Write one line.

        Raises:
            OutputError: when the disk is full.
        """
        try:
            self._lines.writerow(line)
        except OSError as error:
            self._is_lost = True
            folder = Path(self._file.name).parent
            hint = "make room there, set TMPDIR to another folder, or leave --trace-ccl out"
            raise OutputError(f"{folder}: the trace cannot be written: {error.strerror}; {hint}") from None

    def close(self) -> None:
        """Close the file."""
        try:
            self._file.close()
        except OSError:
            # `append` has reported the lost line, which Python still buffers.
            if not self._is_lost:
                raise
