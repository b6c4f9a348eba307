"""The interface of a part: a kind of node of the cube mesh, where its nodes sit, and what their edges cost.

A new part is one new module in this package, or a new memory one in :mod:`sipsim.chips.ahbm.memory`, registered by its
node kind.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec

from sipsim.chips.ahbm.address import add_space
from sipsim.config.schema.components import MemoryCost, TcmCost
from sipsim.config.schema.model import Resolved
from sipsim.config.schema.section import NoParams, Section
from sipsim.core.registry.registry import Registry
from sipsim.core.units import gbytes_per_s_to_bps, ns_to_ps
from sipsim.fabric.graph.graph import Framing, Node


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
    """All nodes of kind ``kind``, in a system of one config.

    ``Params``: what ``parts.<kind>`` of the components may hold, as ``params``; for parts whose costs have no section.
    """

    Params: ClassVar[type[Section]] = NoParams

    def __init__(self, resolved: Resolved, kind: str) -> None:
        self.topology = resolved.topology
        self.components = resolved.components
        self.params: Any = msgspec.convert(resolved.components.parts.get(kind, {}), self.Params)

    @cached_property
    def overhead_ps(self) -> int:
        """The time, in ps, that each node adds to a head."""
        return ns_to_ps(self.cost().overhead_ns)

    @cached_property
    def bandwidth_bps(self) -> int:
        """The bandwidth, in bytes a second, of the edges into and out of each node."""
        return gbytes_per_s_to_bps(self.cost().bandwidth_GBps)

    @abstractmethod
    def cost(self) -> Cost:
        """What each node costs."""

    @abstractmethod
    def wire_mm(self, to: str) -> float:
        """Millimetres of wire to an adjacent node of kind ``to``: a router, or for routers and ports their like."""

    def framing(self, to: str) -> Framing | None:
        """What the edge to an adjacent node of kind ``to`` adds to the bytes that it carries."""
        return None

    def site(self, node: Node) -> Site:
        """The router that a node is attached to: node ``n`` at router ``n`` of its cube, if not said otherwise."""
        return Site(node.cube, int(node.place))


class MemorySection(NamedTuple):
    """The costs of a memory, and the key path at which they stand in the config."""

    path: tuple[str, ...]
    cost: MemoryCost | TcmCost


class MemoryPart(Part):
    """Nodes that serve memory space ``space``. ``is_of_cube``: one memory a cube, whichever PE an address names."""

    space: ClassVar[str]
    is_of_cube: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if hasattr(cls, "space"):
            add_space(cls.space, cls.__module__)

    @abstractmethod
    def memory(self) -> MemorySection:
        """Access times, and the memory kind that pays them (:mod:`sipsim.chips.ahbm.memory`)."""

    @abstractmethod
    def capacity_bytes(self) -> int:
        """Bytes of each memory: of a PE's part, or of the cube's."""

    def place_of(self, pe: int) -> int:
        """The number of the node that serves an address, by the address's PE."""
        return pe


PARTS: Registry[type[Part]] = Registry(
    "part",
    {
        "sipsim.chips.ahbm.mesh.hbm": ("hbm",),
        "sipsim.chips.ahbm.mesh.io": ("io",),
        "sipsim.chips.ahbm.mesh.io_cpu": ("io_cpu",),
        "sipsim.chips.ahbm.mesh.m_cpu": ("m_cpu",),
        "sipsim.chips.ahbm.mesh.pe": ("pe",),
        "sipsim.chips.ahbm.mesh.router": ("router",),
        "sipsim.chips.ahbm.mesh.sram": ("sram",),
        "sipsim.chips.ahbm.mesh.ucie": ("ucie",),
    },
)


def part_kinds(resolved: Resolved) -> list[str]:
    """The node kinds of a system: all parts of this project, and the modules that ``parts`` of the components names."""
    built_in = PARTS.names()
    return [*built_in, *(kind for kind in resolved.components.parts if kind not in built_in)]


def memory_parts(resolved: Resolved) -> list[MemoryPart]:
    """Every part with a memory."""
    parts = (PARTS.get(kind)(resolved, kind) for kind in part_kinds(resolved))
    return [part for part in parts if isinstance(part, MemoryPart)]
