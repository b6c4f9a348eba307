"""The interface of a part: a kind of node of the cube mesh, where its nodes sit, and what their edges cost.

A new part is one new module in this package, registered by its node kind.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, Protocol

from sipsim.config.model import Resolved
from sipsim.noc.graph import Node
from sipsim.registry import Registry
from sipsim.units import gbytes_per_s_to_bps, ns_to_ps


class Site(NamedTuple):
    """A router of a cube, to which a node is attached."""

    cube: int
    router: int


class Cost(Protocol):
    """What a node costs: what it adds to a head, and the bandwidth of the edges into and out of it."""

    @property
    def overhead_ns(self) -> float: ...

    @property
    def bandwidth_GBps(self) -> float: ...


class Part(ABC):
    """All nodes of one kind, in a system of one config.

    ``space``: the memory space that its nodes serve, if they do. Costs come from the config, or from the part's own
    module where the config has no section for it.
    """

    space: ClassVar[str | None] = None

    def __init__(self, resolved: Resolved) -> None:
        self.topology = resolved.topology
        self.components = resolved.components
        cost = self.cost()
        self.overhead_ps = ns_to_ps(cost.overhead_ns)
        self.bandwidth_bps = gbytes_per_s_to_bps(cost.bandwidth_GBps)

    @abstractmethod
    def cost(self) -> Cost:
        """What each node costs."""

    @abstractmethod
    def wire_mm(self, to: str) -> float:
        """Millimetres of wire to an adjacent node of kind ``to``: a router, or for routers and ports their like."""

    def site(self, node: Node) -> Site:
        """The router that a node is attached to: node ``n`` at router ``n`` of its cube, if not said otherwise."""
        return Site(node.cube, int(node.place))

    def place_of(self, pe: int) -> int:
        """The number of the node that serves a PE's part of the memory, the PE as in a physical address."""
        return pe


PARTS: Registry[type[Part]] = Registry("part", "sipsim.noc.parts")
