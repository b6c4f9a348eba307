"""Matrices of times as a picture in SVG: a square for each pair, with its time where it fits and as its tooltip."""

from xml.sax.saxutils import escape

from launcher.probe.heat_map.colours import LEVELS, bounds_of, colour_of, ink_on
from launcher.probe.heat_map.heat_map import Grid, Scale

CELL, NUMBERED_CELL, MOST_NUMBERED = 14, 48, 24
"""Pixels of a square, of one with a number in it, and how many columns have numbers at most."""
MARGIN, LINE, FONT_PX = 48, 20, 11


def heat_map_svg(title: str, grids: list[Grid]) -> str:
    """One SVG document: the grids below each other, on one scale, and the scale."""
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
