"""Memory ports: what an access takes of a memory, on top of the fabric's time.

A port serves the accesses of one node. Its kind decides what each takes: a class that is registered by name and chosen
by ``kind`` of the memory's section in ``components.yaml``. Bytes are in :mod:`sipsim.chips.ahbm.memory.store`.

The bandwidth of a memory is that of edges, which a port puts before the route of a read and behind that of a write: its
ports, or its banks. So an access over a route takes the longer of the memory's and the route's times for its bytes, not
their sum, and accesses share a memory as transfers share an edge (:mod:`sipsim.fabric.sharing`).
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

import msgspec

from sipsim.chips.ahbm.address import Block, TcmMap
from sipsim.chips.ahbm.mesh import Memory
from sipsim.config.schema import MemoryCost, NoParams, Positive, Section, TcmCost
from sipsim.core.engine import Engine
from sipsim.core.registry import Registry
from sipsim.core.units import gbytes_per_s_to_bps, ns_to_ps
from sipsim.fabric.graph import Edge, FixedBytes, Node, Route, bottleneck

Ps = int
FIXED_LATENCY = "fixed_latency"
"""The kind of a memory whose section names none."""
_ROUTES_KEPT = 256


class AccessTerm(NamedTuple):
    """A part of the time of an access that meets no other, and the key in its memory's section that it comes from."""

    what: str
    key: str
    ps: Ps


class Wait(NamedTuple):
    """What an access took beyond its terms, and why: ``parts`` are (reason, ps).

    ``is_read`` of ``nbytes`` at ``address``, by the port at ``node``; it came at ``now_ps``, and ended at ``end_ps``.
    """

    node: str
    is_read: bool
    address: int
    nbytes: int
    now_ps: Ps
    end_ps: Ps
    parts: tuple[tuple[str, Ps], ...]


class Refusal(NamedTuple):
    """A parameter that does not fit the others or the memory: its name, what to do, and the keys of what it must
    fit."""

    name: str
    what: str
    others: tuple[tuple[str, ...], ...] = ()


class Reading(NamedTuple):
    """A read that has begun. Its first byte leaves the memory in ``first_ps``, and the last one is there ``span_ps``
    later, both if no one holds it back on ``route``."""

    route: Route
    first_ps: Ps
    span_ps: Ps


Load = tuple[str, int]
"""An edge of a memory, by its name, and the bytes that an access takes of it; 0: those that it carries."""


class MemoryPort:
    """The port of a memory at a node, made at its first use. ``Params``: what ``params`` of its section may hold.

    ``least_read_ps`` and ``least_write_ps``: no access takes less. ``is_constant``: what an access takes does not
    depend on when it begins, so it may be computed in advance. Writes end in the order in which their last bytes come.
    ``bandwidths``: of its edges in bytes a second, by name; ``bandwidth_key``: of its section, where they come from.
    ``unused``: keys of its section that have no effect, and the key that has it in place of each. ``waits``: of all
    accesses so far, if it is a list. ``in_flits``: transfers carry more bytes than their accesses have. ``here``: the
    route to a part at its node. ``depends_on_address``: of a TCM, whether the address of an access decides which edges
    it takes.
    """

    Params: ClassVar[type[Section]] = NoParams
    is_constant: ClassVar[bool] = True
    bandwidth_key: ClassVar[str] = "params.bandwidth_GBps"
    unused: ClassVar[dict[str, str]] = {}
    depends_on_address: bool = False

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, node: Node) -> None:
        self.params: Any = msgspec.convert(cost.params, self.Params)
        self.engine = engine
        self.node = node
        self.least_read_ps = ns_to_ps(cost.read_latency_ns)
        self.least_write_ps = ns_to_ps(cost.write_latency_ns)
        self.bandwidths: dict[str, int] = {}
        self.waits: list[Wait] | None = None
        self.in_flits = False
        self.here = Route(node, 0, ())
        self._routes: dict[tuple[int, bool, tuple[Load, ...]], tuple[Route, Route]] = {}

    def lay_out(self, regions: TcmMap | None) -> None:
        """Note the regions of a TCM, before the first access; None: another memory."""

    @classmethod
    def refusal(cls, params: Any, capacity_bytes: int) -> Refusal | None:
        """What is wrong with ``params`` together, or with a memory of that size."""
        return None

    def loads(self, block: Block, is_read: bool) -> tuple[Load, ...]:
        """What an access to a block takes of the memory's edges."""
        return ()

    def reading(self, block: Block, route: Route | None = None) -> Reading:
        """Begin to read a block now, and send it over ``route``; without one, to a part at this node."""
        route = self._over(route or self.here, self.loads(block, True), True)
        return Reading(route, self.least_read_ps, 0)

    def writing(self, block: Block, route: Route | None = None) -> Route:
        """The route of a write to a block, which comes over ``route``; without one, from a part at this node."""
        return self._over(route or self.here, self.loads(block, False), False)

    def written_ps(self, block: Block) -> Ps:
        """The time until a write ends whose last byte is here now."""
        return self.least_write_ps

    def through(self, nbytes: int, read: Iterable[Block], written: Block) -> Route:
        """The route of ``nbytes`` through an engine at this node, which reads the blocks ``read`` while it writes the
        block ``written``: each edge of the memory once, for all bytes that the accesses take of it.
        """
        accesses = [*[(each, True) for each in read], (written, False)]
        taken: dict[str, int] = {}
        for block, is_read in accesses:
            for name, of_edge in self.loads(block, is_read):
                taken[name] = taken.get(name, 0) + (of_edge or block.nbytes)
        loads = tuple([(name, 0 if total == nbytes else total) for name, total in taken.items()])
        return self._over(self.here, loads, True)

    def edge(self, name: str, nbytes: int = 0) -> Edge:
        """One of the memory's edges, taken for ``nbytes``; 0: for those that a transfer carries."""
        return Edge(self.node, self.node, 0, 0, self.bandwidths[name], FixedBytes(nbytes) if nbytes else None, name)

    def _over(self, route: Route, loads: tuple[Load, ...], is_read: bool) -> Route:
        """A route with edges of the memory before or behind it: the same object at each call."""
        if not loads:
            return route
        known = self._routes.get((id(route), is_read, loads))
        if known is None:
            if len(self._routes) >= _ROUTES_KEPT:
                self._routes.clear()
            own = [self.edge(*load) for load in loads]
            edges = (*own, *route.edges) if is_read else (*route.edges, *own)
            known = self._routes[id(route), is_read, loads] = route, route._replace(edges=edges)
        return known[1]

    def read_span_ps(self, nbytes: int) -> Ps:
        """Least time from the first to the last byte of a read."""
        return bottleneck(self.reading(Block.piece(0, nbytes)).route.edges, nbytes).ps

    def write_span_ps(self, nbytes: int, address: int = 0) -> Ps:
        """Least time for which the port takes in ``nbytes``, before ``least_write_ps``."""
        return bottleneck(self.writing(Block.piece(address, nbytes)).edges, nbytes).ps

    def copy_span_ps(self, src: int, dst: int, nbytes: int) -> Ps:
        """Least time of a copy within the memory, from an address to another, beside ``least_read_ps`` and
        ``least_write_ps``: bytes are written as they are read."""
        route = self.through(nbytes, (Block.piece(src, nbytes),), Block.piece(dst, nbytes))
        return bottleneck(route.edges, nbytes).ps

    def read_terms(self) -> tuple[AccessTerm, ...]:
        """What ``least_read_ps`` is made of."""
        return (AccessTerm("read access", "read_latency_ns", self.least_read_ps),)

    def write_terms(self) -> tuple[AccessTerm, ...]:
        """What ``least_write_ps`` is made of."""
        return (AccessTerm("write access", "write_latency_ns", self.least_write_ps),)


MEMORY_KINDS: Registry[type[MemoryPort]] = Registry(
    "memory kind",
    {
        "sipsim.chips.ahbm.memory.banked_sram": ("banked_sram",),
        "sipsim.chips.ahbm.memory.ports": (
            "fixed_latency",
            "latency_bandwidth",
        ),
        "sipsim.chips.ahbm.memory.tcm_ports": ("tcm_ports",),
        "sipsim.chips.ahbm.memory.hbm": ("hbm_controller",),
    },
    classes_of=MemoryPort,
)


class MemoryPorts:
    """The memory ports of one SIP. ``memories``: by space. ``in_flits``: whether transfers are in flits. ``waits``: the
    list that gets what accesses waited for.
    """

    def __init__(
        self, memories: Mapping[str, Memory], engine: Engine, in_flits: bool = False, waits: list[Wait] | None = None
    ) -> None:
        self._memories = memories
        self._engine = engine
        self._in_flits = in_flits
        self._waits = waits
        self._ports: dict[tuple[str, Node], MemoryPort] = {}

    def at(self, space: str, node: Node) -> MemoryPort:
        """The port of a memory space at the node that serves it."""
        port = self._ports.get((space, node))
        if port is None:
            memory = self._memories[space]
            kind = MEMORY_KINDS.get(memory.cost.kind or FIXED_LATENCY)
            port = self._ports[space, node] = kind(memory.cost, self._engine, node)
            port.waits, port.in_flits = self._waits, self._in_flits
            port.lay_out(None if memory.regions is None else memory.regions())
        return port


@MEMORY_KINDS.register(FIXED_LATENCY)
class FixedLatency(MemoryPort):
    """A memory whose every access takes the configured latency, however many there are at a time.

    ``read_latency_ns`` and ``write_latency_ns`` of the memory's section; the bandwidth is that of the NoC's edges.
    """


class Bandwidth(Section, frozen=True):
    """``bandwidth_GBps``: of reads and writes together."""

    bandwidth_GBps: Positive


@MEMORY_KINDS.register("latency_bandwidth")
class LatencyBandwidth(MemoryPort):
    """A latency, and a bandwidth that reads and writes share: the fast model of a memory, for sweeps.

    ``read_latency_ns`` and ``write_latency_ns`` of the section, ``params.bandwidth_GBps`` of the one half-duplex port.
    Limits: no banks, rows, refresh or turnaround.
    """

    Params = Bandwidth

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, node: Node) -> None:
        super().__init__(cost, engine, node)
        self.bandwidths = {"port": gbytes_per_s_to_bps(self.params.bandwidth_GBps)}

    def loads(self, block: Block, is_read: bool) -> tuple[Load, ...]:
        return (("port", block.nbytes),)
