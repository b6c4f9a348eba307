"""Levels of a range of values, and a colour for each, from light to dark."""

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
