"""The interface of a topology: a function from the sizes to directed links, and its number of dimensions."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from sipsim.config.schema.model import Sips
from sipsim.core.registry.registry import Registry

Shape = tuple[int, int]


def grid_text(shape: Shape) -> str:
    """A shape as flags and result files write it."""
    return f"{shape[0]}x{shape[1]}"


class SipLink(NamedTuple):
    """One directed link: from a port of a SIP to a port of another."""

    src: int
    src_port: str
    dst: int
    dst_port: str

    @property
    def near_end(self) -> str:
        """The port that it leaves by, as ``SIP.port``."""
        return f"{self.src}.{self.src_port}"

    @property
    def far_end(self) -> str:
        """The port that it arrives at, as ``SIP.port``."""
        return f"{self.dst}.{self.dst_port}"

    @property
    def name(self) -> str:
        return f"{self.near_end}>{self.far_end}"


Builder = Callable[[Sips, Shape], Iterator[SipLink]]


class Topology(NamedTuple):
    """``dimensions`` 2 asks for a shape or a square count; ``build`` yields every directed link.

    ``size``: the (width, height) that it always has, ``(count, 1)`` with one dimension; None: any.
    ``takes_num_links``: whether ``build`` reads ``system.sips.num_links``. ``reserved``: the ports at both ends, as
    ``SIP.port``, of links that programs leave alone unless they ask for them. ``chip``: what its SIPs are where a
    config does not say it.
    """

    dimensions: int
    build: Builder
    size: Shape | None = None
    takes_num_links: bool = False
    reserved: frozenset[str] = frozenset()
    chip: str | None = None


TOPOLOGIES: Registry[Topology] = Registry(
    "topology",
    {
        "sipsim.topology.links.custom": ("custom",),
        "sipsim.topology.links.grid": (
            "ring_1d",
            "torus_2d",
            "mesh_2d_no_wrap",
        ),
        "sipsim.topology.tenstorrent": (
            "n300",
            "t3000",
            "galaxy",
            "galaxy_torus",
            "blackhole_8",
            "tt_line",
            "tt_ring",
        ),
    },
)


def topology(
    name: str,
    dimensions: int,
    size: Shape | None = None,
    takes_num_links: bool = False,
    reserved: frozenset[str] = frozenset(),
    chip: str | None = None,
) -> Callable[[Builder], Builder]:
    """Decorator that registers a builder as the topology ``name``; the rest is that of :class:`Topology`."""

    def add(build: Builder) -> Builder:
        TOPOLOGIES.register(name, build)(Topology(dimensions, build, size, takes_num_links, reserved, chip))
        return build

    return add


@cache
def natural_order(port: str) -> tuple[str | int, ...]:
    """A key that sorts names of ports by their text and their numbers: eth2 before eth10."""
    texts_and_numbers = re.split("([0-9]+)", port)
    return tuple(int(part) if place % 2 else part for place, part in enumerate(texts_and_numbers))


def both_directions(a: int, a_port: str, b: int, b_port: str) -> Iterator[SipLink]:
    """The two directed links of one cable."""
    yield SipLink(a, a_port, b, b_port)
    yield SipLink(b, b_port, a, a_port)
