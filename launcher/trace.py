"""The ranks' traces as one file, in order of simulated time."""

import csv
from pathlib import Path

from sipsim.trace import TraceLine

T_PS, RANK = TraceLine._fields.index("t_ps"), TraceLine._fields.index("rank")


def write_trace(folder: str, target: Path) -> str:
    """Merge what the ranks left in ``folder``; why that cannot be, or "".

    A line that a dying process cut short is left out.
    """
    rows = []
    for path in sorted(Path(folder).glob("trace.*.csv")):
        whole = csv.reader(path.read_text().rpartition("\n")[0].splitlines())
        rows += [(int(row[T_PS]), int(row[RANK]), index, row) for index, row in enumerate(whole)]
    try:
        with target.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(TraceLine._fields)
            writer.writerows(row for *_, row in sorted(rows))
    except OSError as error:
        return f"--trace-ccl {target}: {error.strerror}; the trace is not whole"
    return ""
