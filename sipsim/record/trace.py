"""The trace of sends and receives: one line each, ``(rank, t, dir, nbytes)`` of ADR-0023 D14, with cube and PE."""

import csv
from pathlib import Path
from typing import Annotated, NamedTuple

from sipsim.errors import OutputError
from sipsim.record.fields import no_time, simulated_time


class TraceLine(NamedTuple):
    """A send that returned, or a receive that ended, at ``t_ps``."""

    rank: Annotated[int, no_time("The SIP whose kernel sent or received.")]
    cube: Annotated[int, no_time("The cube of the kernel's PE.")]
    pe: Annotated[int, no_time("The kernel's PE.")]
    t_ps: Annotated[int, simulated_time("When the message left for the ring, or the receive ended, in ps.")]
    op: Annotated[str, no_time("send or recv.")]
    dir: Annotated[str, no_time("The direction that the kernel named, or of the message that it got.")]
    nbytes: Annotated[int, no_time("The size of the message in bytes, without framing.")]
    run: Annotated[
        int | None, no_time("The collective, as its index in the result's runs; empty in a kernel of torch.launch.")
    ]
    start_ps: Annotated[int, simulated_time("When the kernel asked for it, in ps.")]
    peer: Annotated[str, no_time("The PE at the other end, as SIP.CUBE.PE.")]
    phase: Annotated[str, no_time("The phase of the kernel when it asked, as tl.phase names it; empty for none.")]


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
