"""Matrices of times as text: tables of numbers, or maps of shades if numbers are too wide; coloured on a terminal."""

import sys
from collections.abc import Callable
from typing import NamedTuple

SHADES = ".:-=+*%#@"
"""One character for each level of the value range, from the lowest level."""
LEVELS = len(SHADES)
LIGHT, DARK = (255, 247, 188), (140, 45, 4)
DARK_LEVELS = LEVELS // 2 + 1
"""The lowest level whose text is white."""
SAME = "-"
RULER = 10


class Grid(NamedTuple):
    """A matrix to draw: ``ns[row][column]`` is a time in ns, or None for an empty cell."""

    title: str
    rows: list[str]
    columns: list[str]
    ns: list[list[float | None]]


class Span(NamedTuple):
    """Piece of text with the colour of a level; without colour if ``level`` is None."""

    text: str
    level: int | None = None


Line = list[Span]


class Scale(NamedTuple):
    """The range, in ns, of all values that are drawn together."""

    least: float
    most: float

    def level(self, ns: float) -> int:
        """Return the level of a value, from 0; 0 if all values are equal."""
        if self.most == self.least:
            return 0
        return min(int((ns - self.least) * LEVELS / (self.most - self.least)), LEVELS - 1)

    def bound(self, level: int) -> float:
        """Return the lower bound of a level, which is the upper bound of the level before."""
        return self.least + level * (self.most - self.least) / LEVELS


def heat_map(grids: list[Grid], columns: int) -> list[Line]:
    """Return the lines of all grids, drawn with the same scale and form, and the lines of a legend.

    Cells are numbers if the lines fit into ``columns`` characters, else shades.
    """
    values = [ns for grid in grids for row in grid.ns for ns in row if ns is not None]
    scale = Scale(min(values), max(values))
    draw = _form(grids, scale, columns)
    lines: list[Line] = []
    for grid in grids:
        lines += [[Span(f"{grid.title}, ns")], *draw(grid), []]
    return lines + _legend(scale, sorted(set(map(scale.level, values))), columns)


def show(lines: list[Line]) -> None:
    """Print lines, with colours on a terminal."""
    if not sys.stdout.isatty():
        print("\n".join("".join(run.text for run in line).rstrip() for line in lines))
        return
    from rich.console import Console
    from rich.style import Style
    from rich.text import Text

    styles = [
        Style(color="#ffffff" if level >= DARK_LEVELS else "#000000", bgcolor=_colour_of(level))
        for level in range(LEVELS)
    ]
    console = Console(highlight=False)
    for line in lines:
        text = Text()
        for run in line:
            text.append(run.text, None if run.level is None else styles[run.level])
        console.print(text, soft_wrap=True)


def _colour_of(level: int) -> str:
    """Return the colour of a level as ``#rrggbb``."""
    part = level / (LEVELS - 1)
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(LIGHT, DARK, strict=True))


def _form(grids: list[Grid], scale: Scale, columns: int) -> Callable[[Grid], list[Line]]:
    """Return the function that draws all grids most exactly within ``columns``, or the narrowest if none fits."""
    label = max(len(name) for grid in grids for name in (*grid.rows, *grid.columns))
    n_columns = max(len(grid.columns) for grid in grids)
    for decimals in (1, 0):
        width = max(len(f"{scale.most:.{decimals}f}"), label) + 1
        if label + n_columns * width <= columns:
            return lambda grid: _numbers(grid, scale, label, width, decimals)
    shade_width = 2 if label + 1 + n_columns * 2 <= columns else 1
    return lambda grid: _shades(grid, scale, label, shade_width)


def _numbers(grid: Grid, scale: Scale, label: int, width: int, decimals: int) -> list[Line]:
    lines = [[Span(" " * label + "".join(f"{name:>{width}}" for name in grid.columns))]]
    for name, row in zip(grid.rows, grid.ns, strict=True):
        cells = [
            Span(f"{SAME:>{width}}") if ns is None else Span(f"{ns:>{width}.{decimals}f}", scale.level(ns))
            for ns in row
        ]
        lines.append([Span(f"{name:>{label}}"), *cells])
    return lines


def _shades(grid: Grid, scale: Scale, label: int, width: int) -> list[Line]:
    ruler = "".join(f"{name:<{RULER * width}}" for name in grid.columns[::RULER])
    lines = [[Span(" " * (label + 1) + ruler[: len(grid.columns) * width])]]
    for name, row in zip(grid.rows, grid.ns, strict=True):
        cells = [
            Span(" " * width) if ns is None else Span(SHADES[scale.level(ns)] * width, scale.level(ns)) for ns in row
        ]
        lines.append([Span(f"{name:>{label}} "), *cells])
    return lines


def _legend(scale: Scale, levels: list[int], columns: int) -> list[Line]:
    """Return lines with the shade and the value range of each level, as many levels per line as fit."""
    lines: list[Line] = [[Span("scale, ns:")]]
    for level in levels:
        text = f"{SHADES[level]} {scale.bound(level):.1f} to {scale.bound(level + 1):.1f}"
        if len(text) + 2 > columns - sum(len(run.text) for run in lines[-1]):
            lines.append([Span(" " * len("scale, ns:"))])
        lines[-1] += [Span("  "), Span(text, level)]
    return lines
