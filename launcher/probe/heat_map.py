"""Heat maps of matrices of times, as text and as SVG: a range has levels, each with a colour from light to dark."""

import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple
from xml.sax.saxutils import escape

LEVELS = 9
LIGHT, DARK = (255, 247, 188), (140, 45, 4)
DARK_LEVELS = LEVELS // 2 + 1
"""From this level on, text on the colour is white."""


def level_of(value: float, least: float, most: float) -> int:
    """The level of a value of a range, from 0; of all values in a range of one value."""
    return min(int((value - least) * LEVELS / (most - least)), LEVELS - 1) if most > least else 0


def bounds_of(level: int, least: float, most: float) -> tuple[float, float]:
    """The least and the most value of a level."""
    step = (most - least) / LEVELS
    return least + level * step, least + (level + 1) * step


def colour_of(level: int) -> str:
    """``#rrggbb``."""
    part = level / (LEVELS - 1)
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(LIGHT, DARK, strict=True))


def ink_on(level: int) -> str:
    """The colour of text on a level's."""
    return "#ffffff" if level >= DARK_LEVELS else "#000000"


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
    all possible.

    Cells are numbers where they fit, else shades, of blocks of pairs if need be.
    """
    scale = Scale.of(grids)
    draw = _form(grids, scale, columns)
    lines: list[Line] = []
    for grid in grids:
        lines += [[Run(f"{grid.title}, ns")], *draw(grid), []]
    used = {scale.level(ns) for grid in grids for row in grid.ns for ns in row if ns is not None}
    return lines + _legend(scale, sorted(used), columns)


def show(lines: list[Line]) -> None:
    """Print them; a terminal that has colours shows each cell in its own, and the text says the same without."""
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


CELL, NUMBERED_CELL, MOST_NUMBERED = 14, 48, 24
"""Pixels of a square, of one with a number in it, and how many columns have numbers at most."""
MARGIN, LINE, FONT_PX = 48, 20, 11


def heat_map_svg(title: str, grids: list[Grid]) -> str:
    """One SVG document: the grids below each other, on one scale, and the scale.

    A pair is a square, with its time where it fits and as its tooltip.
    """
    scale = Scale.of(grids)
    cell = NUMBERED_CELL if max(len(grid.columns) for grid in grids) <= MOST_NUMBERED else CELL
    parts, top = [_text(MARGIN, LINE, title)], 2 * LINE
    for grid in grids:
        parts += _grid(grid, scale, cell, top)
        top += 3 * LINE + len(grid.rows) * cell
    parts += _svg_legend(scale, top)
    width = MARGIN + max(max(len(grid.columns) for grid in grids) * cell, LEVELS * 90, 7 * len(title)) + MARGIN
    size = f'width="{width}" height="{top + 3 * LINE}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="{FONT_PX}">'
    return "\n".join([head, f'<rect {size} fill="#ffffff"/>', *parts, "</svg>\n"])


def _grid(grid: Grid, scale: Scale, cell: int, top: int) -> list[str]:
    parts = [_text(MARGIN, top, f"{grid.title}, ns")]
    every = 1 if cell == NUMBERED_CELL else 4
    for column, name in list(enumerate(grid.columns))[::every]:
        parts.append(_text(MARGIN + column * cell, top + LINE, name))
    for row, (name, line) in enumerate(zip(grid.rows, grid.ns, strict=True)):
        y = top + LINE + 6 + row * cell
        if row % every == 0:
            parts.append(_text(4, y + cell // 2 + 4, name))
        for column, ns in enumerate(line):
            if ns is not None:
                where = f"{name} to {grid.columns[column]}: {ns:.3f} ns"
                parts.append(_cell(MARGIN + column * cell, y, cell, scale.level(ns), where))
                if cell == NUMBERED_CELL:
                    parts.append(_text(MARGIN + column * cell + 4, y + cell // 2 + 4, f"{ns:.1f}", scale.level(ns)))
    return parts


def _svg_legend(scale: Scale, top: int) -> list[str]:
    parts = []
    for level in range(LEVELS):
        low, high = bounds_of(level, scale.least, scale.most)
        parts.append(_cell(MARGIN + level * 90, top, CELL, level, f"{low:.1f} to {high:.1f} ns"))
        parts.append(_text(MARGIN + level * 90 + CELL + 4, top + FONT_PX, f"{low:.1f}"))
    return parts


def _cell(x: int, y: int, size: int, level: int, tooltip: str) -> str:
    title = f"<title>{escape(tooltip)}</title>"
    return f'<rect x="{x}" y="{y}" width="{size}" height="{size}" fill="{colour_of(level)}">{title}</rect>'


def _text(x: int, y: int, text: str, level: int = 0) -> str:
    return f'<text x="{x}" y="{y}" fill="{ink_on(level)}">{escape(text)}</text>'
