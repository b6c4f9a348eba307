"""Grids, of cubes in a SIP and of routers in a cube: their sides, and the steps from one place to another.

A place is a number, row by row from the north-west.
"""

PORTS = ("E", "W", "N", "S")
"""The sides of a grid, and the ports that sit there."""
_STEP = {"E": (1, 0), "W": (-1, 0), "N": (0, -1), "S": (0, 1)}
FACING = {"E": "W", "W": "E", "N": "S", "S": "N"}


def middle(port: str, w: int, h: int) -> int:
    """The middle place of a grid's side."""
    x, y = {"E": (w - 1, h // 2), "W": (0, h // 2), "N": (w // 2, 0), "S": (w // 2, h - 1)}[port]
    return y * w + x


def steps(first: int, last: int, width: int) -> list[str]:
    """Moves from one place of a grid to another, X before Y."""
    dx, dy = last % width - first % width, last // width - first // width
    return ["E" if dx > 0 else "W"] * abs(dx) + ["S" if dy > 0 else "N"] * abs(dy)


def neighbour(place: int, port: str, width: int) -> int:
    """The place next to one, on the side ``port``."""
    dx, dy = _STEP[port]
    return place + dy * width + dx
