"""The ranks' traces as one file, in order of simulated time."""

import contextlib
import csv
from collections.abc import Iterator
from pathlib import Path

from launcher.isolation.destination import opened
from sipsim.core.files.files import reader
from sipsim.records.oplog.trace import TRACE_FILE, TraceLine

T_PS, RANK = TraceLine._fields.index("t_ps"), TraceLine._fields.index("rank")


def write_trace(folder: str, target: Path) -> str:
    """Merge the traces in the ranks' folders below ``folder``; returns why that failed, or "". ``target``: see
    :mod:`launcher.isolation.destination`.

    Lines that a killed process has left incomplete are skipped.
    """
    rows = []
    try:
        for path in sorted(Path(folder).glob(f"rank-*/{TRACE_FILE}")):
            with reader(path) as trace:
                whole = trace.read().decode(errors="replace").rpartition("\n")[0].splitlines()
            rows += [(t_ps, rank, index, row) for index, (t_ps, rank, row) in enumerate(_read(whole))]
        with opened(target) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(TraceLine._fields)
            writer.writerows(row for *_, row in sorted(rows))
    except OSError as error:
        return f"--trace-ccl {error.filename or target}: {error.strerror}; the trace is incomplete"
    return ""


def _read(lines: list[str]) -> Iterator[tuple[int, int, list[str]]]:
    for line in lines:
        with contextlib.suppress(ValueError, csv.Error):
            (row,) = csv.reader([line])
            if len(row) == len(TraceLine._fields):
                yield int(row[T_PS]), int(row[RANK]), row
