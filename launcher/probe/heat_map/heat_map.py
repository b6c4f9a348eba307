"""Matrices of times as text, in numbers where they fit the terminal, else in shades, of blocks of pairs if need be.

On a terminal that has colours each cell has one; piped, the text says the same.
"""

import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

from launcher.probe.heat_map.colours import LEVELS, bounds_of, colour_of, ink_on, level_of

SHADES = ".:-=+*%#@"
SAME = "-"
RULER = 10

Cells = list[list[float | None]]


class Grid(NamedTuple):
    """A matrix to draw: ``ns[row][column]``, None where there is nothing to show."""

    title: str
    rows: list[str]
    columns: list[str]
    ns: Cells


class Run(NamedTuple):
    """Text of one level, or of none (None)."""

    text: str
    level: int | None = None


Line = list[Run]


class Scale(NamedTuple):
    """The range of all values that are drawn together."""

    least: float
    most: float

    @classmethod
    def of(cls, grids: Iterable[Grid]) -> "Scale":
        """The range of all values of these."""
        values = [ns for grid in grids for row in grid.ns for ns in row if ns is not None]
        return cls(min(values), max(values))

    def level(self, ns: float) -> int:
        """As of ``colours.level_of``."""
        return level_of(ns, self.least, self.most)


def heat_map(grids: list[Grid], columns: int) -> list[Line]:
    """The lines of all grids, on one scale and in one form, and the scale below; none longer than ``columns``, if at
    all possible."""
    scale = Scale.of(grids)
    draw = _form(grids, scale, columns)
    lines: list[Line] = []
    for grid in grids:
        lines += [[Run(f"{grid.title}, ns")], *draw(grid), []]
    used = {scale.level(ns) for grid in grids for row in grid.ns for ns in row if ns is not None}
    return lines + _legend(scale, sorted(used), columns)


def show(lines: list[Line]) -> None:
    """Print them, with colours where standard output is a terminal that has some."""
    if not sys.stdout.isatty():
        print("\n".join("".join(run.text for run in line).rstrip() for line in lines))
        return
    from rich.console import Console
    from rich.style import Style
    from rich.text import Text

    styles = [Style(color=ink_on(level), bgcolor=colour_of(level)) for level in range(LEVELS)]
    console = Console(highlight=False)
    for line in lines:
        text = Text()
        for run in line:
            text.append(run.text, None if run.level is None else styles[run.level])
        console.print(text, soft_wrap=True)


def _form(grids: list[Grid], scale: Scale, columns: int) -> Callable[[Grid], list[Line]]:
    """The most exact way to draw all grids that is not too wide."""
    label = max(len(name) for grid in grids for name in (*grid.rows, *grid.columns))
    n_columns = max(len(grid.columns) for grid in grids)
    for decimals in (1, 0):
        width = max(len(f"{scale.most:.{decimals}f}"), label) + 1
        if label + n_columns * width <= columns:
            return lambda grid: _numbers(grid, scale, label, width, decimals)
    for width in (2, 1):
        if label + 1 + n_columns * width <= columns:
            return lambda grid: _shades(grid, scale, label, width)
    fold = -(-n_columns // max(columns - label - 1, 1))
    return lambda grid: [
        [Run(f"each character is {fold} x {fold} pairs: the longest time of them")],
        *_shades(_folded(grid, fold), scale, label, 1, fold),
    ]


def _numbers(grid: Grid, scale: Scale, label: int, width: int, decimals: int) -> list[Line]:
    lines = [[Run(" " * label + "".join(f"{name:>{width}}" for name in grid.columns))]]
    for name, row in zip(grid.rows, grid.ns, strict=True):
        cells = [
            Run(f"{SAME:>{width}}") if ns is None else Run(f"{ns:>{width}.{decimals}f}", scale.level(ns)) for ns in row
        ]
        lines.append([Run(f"{name:>{label}}"), *cells])
    return lines


def _shades(grid: Grid, scale: Scale, label: int, width: int, fold: int = 1) -> list[Line]:
    places = range(0, len(grid.columns), RULER)
    ruler = "".join(f"{grid.columns[at]:<{RULER * width}}" for at in places)
    lines = [[Run(" " * (label + 1) + ruler[: len(grid.columns) * width])]]
    for name, row in zip(grid.rows, grid.ns, strict=True):
        cells = [
            Run(" " * width) if ns is None else Run(SHADES[scale.level(ns)] * width, scale.level(ns)) for ns in row
        ]
        lines.append([Run(f"{name:>{label}} "), *cells])
    return lines


def _folded(grid: Grid, fold: int) -> Grid:
    """Blocks of ``fold`` by ``fold`` cells as one, the largest of them."""
    rows, columns = (range(0, len(names), fold) for names in (grid.rows, grid.columns))

    def largest(row: int, column: int) -> float | None:
        cells = (ns for line in grid.ns[row : row + fold] for ns in line[column : column + fold] if ns is not None)
        return max(cells, default=None)

    cells = [[largest(row, column) for column in columns] for row in rows]
    return Grid(grid.title, [grid.rows[at] for at in rows], [grid.columns[at] for at in columns], cells)


def _legend(scale: Scale, levels: list[int], columns: int) -> list[Line]:
    """The shade and the range of each level, as many in a line as fit."""
    parts = []
    for level in levels:
        low, high = bounds_of(level, scale.least, scale.most)
        parts.append(Run(f"{SHADES[level]} {low:.1f} to {high:.1f}", level))
    lines: list[Line] = [[Run("scale, ns:")]]
    room = columns
    for part in parts:
        if len(part.text) + 2 > room - sum(len(run.text) for run in lines[-1]):
            lines.append([Run(" " * len("scale, ns:"))])
        lines[-1] += [Run("  "), part]
    return lines
