"""Memory ports: timing of memory accesses, in addition to the time of the fabric.

A port serves the accesses of one node. Its class is the memory kind, registered by name and selected by ``kind`` of the
memory's section in ``components.yaml``. The contents of memories are in :mod:`sipsim.chips.ahbm.memory.store`.

The bandwidth of a memory is that of its edges (ports or banks): a memory port adds the edges before the route of a read
and after the route of a write. So an access over a route takes the longer of the memory's and the route's times for its
bytes, not their sum, and accesses share a memory as transfers share an edge (:mod:`sipsim.fabric.sharing`).
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

import msgspec

from sipsim.chips.ahbm.address import Block, TcmMap
from sipsim.chips.ahbm.mesh import Memory
from sipsim.config.schema import MemoryCost, NoParams, Positive, Section, TcmCost
from sipsim.core.engine import Engine
from sipsim.core.processes import Steps
from sipsim.core.registry import Registry
from sipsim.core.units import gbytes_per_s_to_bps, ns_to_ps
from sipsim.fabric.graph import Edge, FixedBytes, Node, Route, bottleneck

Ps = int
FIXED_LATENCY = "fixed_latency"
"""Default kind of a memory."""
_ROUTES_KEPT = 256


class AccessTerm(NamedTuple):
    """Part of the time of an uncontended access, and the key of the memory's section that sets this part."""

    what: str
    key: str
    ps: Ps


class Wait(NamedTuple):
    """Delay of an access beyond its :class:`AccessTerm` times; ``parts`` are (reason, ps).

    The access to ``nbytes`` at ``address``, at the port of ``node``, began at ``now_ps`` and ended at ``end_ps``.
    """

    node: str
    is_read: bool
    address: int
    nbytes: int
    now_ps: Ps
    end_ps: Ps
    parts: tuple[tuple[str, Ps], ...]


class Refusal(NamedTuple):
    """Problem: a parameter does not fit others or the memory. ``name``: the parameter. ``what``: problem and remedy.
    ``others``: config keys that the parameter has to fit.
    """

    name: str
    what: str
    others: tuple[tuple[str, ...], ...] = ()


class Reading(NamedTuple):
    """Read that has begun: without contention on ``route``, its first byte leaves the memory in ``first_ps`` and its
    last byte ``span_ps`` later.
    """

    route: Route
    first_ps: Ps
    span_ps: Ps


Load = tuple[str, int]
"""Name of a memory's edge, and bytes of an access on this edge; 0 stands for the bytes of the transfer."""


class _Turn:
    """Access that waits for its service since ``now_ps``. ``begin()`` begins it."""

    def __init__(self, block: Block, now_ps: Ps, begin: Callable[[], None]) -> None:
        self.block, self.now_ps, self.begin = block, now_ps, begin
        self.is_served = False


class MemoryPort:
    """Port of a memory at a node, built at its first use. ``Params``: schema of ``params`` of its section.

    ``least_read_ps``, ``least_write_ps``: minimum times of an access. ``is_constant``: the time of an access does not
    depend on its start, so it may be computed in advance. Writes end in the order in which their last bytes arrive.
    ``bandwidths``: B/s of each edge, by name; ``bandwidth_key``: the section's key that sets them. ``unused``: keys of
    the section without effect, each with the key to use in its place. ``waits``: list to which waits are appended, or
    None. ``in_flits``: whether transfers carry more bytes than their accesses. ``here``: empty route at the port's
    node. ``depends_on_address``: whether the edges of an access to a TCM depend on its address. ``is_served``: whether
    the kind has its own :meth:`serve`; its least times are those of an access that is served at once.
    """

    Params: ClassVar[type[Section]] = NoParams
    is_constant: ClassVar[bool] = True
    bandwidth_key: ClassVar[str] = "params.bandwidth_GBps"
    unused: ClassVar[dict[str, str]] = {}
    is_served: ClassVar[bool] = False
    depends_on_address: bool = False

    def __init_subclass__(cls) -> None:
        if cls.serve is not MemoryPort.serve:
            cls.is_served, cls.is_constant = True, False

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
        self._unserved: tuple[deque[_Turn], deque[_Turn]] = deque(), deque()

    def lay_out(self, regions: TcmMap | None) -> None:
        """Set the regions of a TCM before the first access; None if the memory is not a TCM."""

    @classmethod
    def refusal(cls, params: Any, capacity_bytes: int) -> Refusal | None:
        """Return the problem of ``params`` with each other or with the memory's size, or None."""
        return None

    def loads(self, block: Block, is_read: bool) -> tuple[Load, ...]:
        """Return the memory's edges that an access to a block uses, with the bytes that count on each edge."""
        return ()

    def reading(self, block: Block, route: Route | None = None) -> Reading:
        """Begin to read a block now and send it over ``route``, or to a part at this node if ``route`` is None."""
        route = self._over(route or self.here, self.loads(block, True), True)
        return Reading(route, self.least_read_ps, 0)

    def writing(self, block: Block, route: Route | None = None) -> Route:
        """Return the route of a write to a block over ``route``, or from a part at this node if ``route`` is None."""
        return self._over(route or self.here, self.loads(block, False), False)

    def written_ps(self, block: Block) -> Ps:
        """Return the time from the arrival of a write's last byte, now, to the end of the write, in ps."""
        return self.least_write_ps

    def serve(self, block: Block, is_read: bool) -> Steps:
        """Serve an access that reaches the memory now, as a SimPy process: the access begins when the process ends.

        A read begins with its latency; of a write, all bytes have arrived. Reads begin in the order in which they reach
        the memory, and so do writes. Not for the kind of a TCM.
        """
        yield from ()

    def when_served(self, block: Block, is_read: bool, begin: Callable[[], None]) -> None:
        """Call ``begin()`` when an access that reaches the memory now has been served, behind earlier reads or writes
        as it is one; at once, if the memory has no :meth:`serve`.
        """
        if not self.is_served:
            begin()
            return
        turn, turns = _Turn(block, self.engine.now_ps, begin), self._unserved[is_read]
        turns.append(turn)

        def served(_process: object) -> None:
            turn.is_served = True
            while turns and turns[0].is_served:
                first = turns.popleft()
                self._note_service(first, is_read)
                first.begin()

        process = self.engine.env.start(self.serve(block, is_read), f"memory {self.node}")
        process.callbacks.append(served)

    def _note_service(self, turn: "_Turn", is_read: bool) -> None:
        now_ps, block = self.engine.now_ps, turn.block
        if self.waits is not None and now_ps > turn.now_ps:
            end_ps, parts = now_ps + (0 if is_read else self.least_write_ps), (("its process", now_ps - turn.now_ps),)
            self.waits.append(Wait(str(self.node), is_read, block.address, block.nbytes, turn.now_ps, end_ps, parts))

    def through(self, nbytes: int, read: Iterable[Block], written: Block) -> Route:
        """Return the route of ``nbytes`` through an engine at this node that reads blocks ``read`` and writes block
        ``written`` at the same time: each edge of the memory once, for all bytes that the accesses take of it.
        """
        accesses = [*[(each, True) for each in read], (written, False)]
        taken: dict[str, int] = {}
        for block, is_read in accesses:
            for name, of_edge in self.loads(block, is_read):
                taken[name] = taken.get(name, 0) + (of_edge or block.nbytes)
        loads = tuple([(name, 0 if total == nbytes else total) for name, total in taken.items()])
        return self._over(self.here, loads, True)

    def edge(self, name: str, nbytes: int = 0) -> Edge:
        """Return an edge of the memory that carries ``nbytes``, or the bytes of the transfer if ``nbytes`` is 0."""
        return Edge(self.node, self.node, 0, 0, self.bandwidths[name], FixedBytes(nbytes) if nbytes else None, name)

    def _over(self, route: Route, loads: tuple[Load, ...], is_read: bool) -> Route:
        """Return a route with edges of the memory before or after it, cached: the same object at each call."""
        if not loads:
            return route
        cached = self._routes.get((id(route), is_read, loads))
        if cached is None:
            if len(self._routes) >= _ROUTES_KEPT:
                self._routes.clear()
            memory_edges = [self.edge(*load) for load in loads]
            edges = (*memory_edges, *route.edges) if is_read else (*route.edges, *memory_edges)
            cached = self._routes[id(route), is_read, loads] = route, route._replace(edges=edges)
        return cached[1]

    def read_span_ps(self, nbytes: int) -> Ps:
        """Return the least time from the first to the last byte of a read, in ps."""
        return bottleneck(self.reading(Block.piece(0, nbytes)).route.edges, nbytes).ps

    def write_span_ps(self, nbytes: int, address: int = 0) -> Ps:
        """Return the least time to transfer ``nbytes`` into the memory, without ``least_write_ps``, in ps."""
        return bottleneck(self.writing(Block.piece(address, nbytes)).edges, nbytes).ps

    def copy_span_ps(self, src: int, dst: int, nbytes: int) -> Ps:
        """Return the least time of a copy within the memory, without ``least_read_ps`` and ``least_write_ps``, in ps:
        bytes are written as they are read.
        """
        route = self.through(nbytes, (Block.piece(src, nbytes),), Block.piece(dst, nbytes))
        return bottleneck(route.edges, nbytes).ps

    def read_terms(self) -> tuple[AccessTerm, ...]:
        """Return the terms whose sum is ``least_read_ps``."""
        return (AccessTerm("read access", "read_latency_ns", self.least_read_ps),)

    def write_terms(self) -> tuple[AccessTerm, ...]:
        """Return the terms whose sum is ``least_write_ps``."""
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
    """Memory ports of one SIP. ``memories``: memory of each space. ``in_flits``: whether transfers are in flits.
    ``waits``: list to which waits of accesses are appended, None if these are not recorded.
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
        """Return the port of a memory space at the node that serves it."""
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
    """Memory whose accesses all take the configured latency, without contention.

    Config: ``read_latency_ns`` and ``write_latency_ns`` of the memory's section. Only the NoC's edges limit bandwidth.
    """


class Bandwidth(Section, frozen=True):
    """Parameters of ``latency_bandwidth``: ``bandwidth_GBps`` is shared by reads and writes."""

    bandwidth_GBps: Positive


@MEMORY_KINDS.register("latency_bandwidth")
class LatencyBandwidth(MemoryPort):
    """Fast model of a memory, for sweeps: a latency, and a bandwidth that reads and writes share.

    Config: ``read_latency_ns`` and ``write_latency_ns`` of the section, ``params.bandwidth_GBps`` of the half-duplex
    port. Limits: no banks, rows, refresh or turnaround.
    """

    Params = Bandwidth

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, node: Node) -> None:
        super().__init__(cost, engine, node)
        self.bandwidths = {"port": gbytes_per_s_to_bps(self.params.bandwidth_GBps)}

    def loads(self, block: Block, is_read: bool) -> tuple[Load, ...]:
        return (("port", block.nbytes),)
