"""The ranks' traces as one file, in order of simulated time."""

from pathlib import Path

from sipsim.trace import HEADER, TraceLine


def write_trace(folder: str, target: Path) -> None:
    """Merge what the ranks left in ``folder``; a line that a dying process cut short is left out."""
    lines = [
        (int(fields[T_PS]), int(fields[RANK]), index, line)
        for path in sorted(Path(folder).glob("trace.*.csv"))
        for index, line in enumerate(path.read_text().splitlines())
        if len(fields := line.split(",")) == len(TraceLine._fields)
    ]
    target.write_text("\n".join([HEADER, *(line for *_, line in sorted(lines))]) + "\n")


T_PS, RANK = TraceLine._fields.index("t_ps"), TraceLine._fields.index("rank")
