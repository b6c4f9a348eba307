"""The trace of sends and receives: one line each, ``(rank, t, dir, nbytes)`` of ADR-0023 D14, with cube and PE."""

import csv
from pathlib import Path
from typing import Annotated, NamedTuple

from sipsim.core.fields import no_time, simulated_time
from sipsim.records.oplog.line_file import LineFile


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
    """A rank's trace. ``close`` and errors as in :class:`LineFile`."""

    def __init__(self, path: Path) -> None:
        self._file = LineFile(path, "the trace", "--trace-ccl")
        self._lines = csv.writer(self._file, lineterminator="\n")
        self.close = self._file.close

    def append(self, line: TraceLine) -> None:
        """Write one line."""
        self._lines.writerow(line)
