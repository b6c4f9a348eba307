"""Rings, tori and meshes: grids with and without wrap. Rank = row * width + column."""

from collections.abc import Iterator

from sipsim.config.schema.model import Sips
from sipsim.topology.links.base import Shape, SipLink, both_directions, topology


def _grid(shape: Shape, wrap: bool) -> Iterator[SipLink]:
    width, height = shape
    for y in range(height):
        for x in range(width):
            if width > 1 and (wrap or x + 1 < width):
                yield from both_directions(y * width + x, "E", y * width + (x + 1) % width, "W")
            if height > 1 and (wrap or y + 1 < height):
                yield from both_directions(y * width + x, "S", ((y + 1) % height) * width + x, "N")


@topology("ring_1d", dimensions=1)
def ring_1d(sips: Sips, shape: Shape) -> Iterator[SipLink]:
    """``count`` SIPs in a ring, E to W; two SIPs are joined twice."""
    return _grid((sips.count, 1), wrap=True)


@topology("torus_2d", dimensions=2)
def torus_2d(sips: Sips, shape: Shape) -> Iterator[SipLink]:
    """A grid that wraps in both dimensions."""
    return _grid(shape, wrap=True)


@topology("mesh_2d_no_wrap", dimensions=2)
def mesh_2d_no_wrap(sips: Sips, shape: Shape) -> Iterator[SipLink]:
    """A grid without wrap."""
    return _grid(shape, wrap=False)
