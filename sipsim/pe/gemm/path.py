"""What bound each stage of a composite command: the time from its start, divided into named parts.

A path is what led to the end of one stage. A stage begins when the last of what it waits for has ended, and its path is
that one's and its own time. So the path of the last stage divides the time of the command without a rest, and nothing
else has to be kept.
"""

from typing import Final

Ps = int
Path = list[Ps]
"""The end of a stage, and the time of each part until then. Never changed once it is made."""

CYCLES: Final = 1
FILL: Final = 2
DMA_IN: Final = 3
OTHERS: Final = 4
FETCH: Final = 5
EPILOGUE: Final = 6
STORE: Final = 7
DMA_OUT: Final = 8
PARTS = (
    "cycles",
    "fill and drain",
    "DMA in",
    "waiting for others on an engine",
    "fetch from TCM",
    "epilogue",
    "store to TCM",
    "DMA out",
)
"""The names of the parts, from the second element of a path on."""


def start_of(start_ps: Ps) -> Path:
    """The path of a command's start."""
    return [start_ps, *(0 for _ in PARTS)]


def longer(path: Path, part: int, start_ps: Ps, end_ps: Ps) -> Path:
    """The path of a stage that began at ``start_ps``, when what it waited for had ended.

    What bound it besides, if that ended earlier, is another command on its engine.
    """
    found = path.copy()
    found[OTHERS] += start_ps - path[0]
    found[part] += end_ps - start_ps
    found[0] = end_ps
    return found


def parts_of(path: Path) -> tuple[Ps, ...]:
    """The time of each of :data:`PARTS`."""
    return tuple(path[1:])
