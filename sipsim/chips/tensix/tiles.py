"""Tiles of a chip, whose memories are made at the first use, and NoC commands between these memories."""

from collections.abc import Callable, Hashable
from functools import partial

from sipsim.chips.tensix.jitter import Jitter
from sipsim.chips.tensix.memory import ATOMIC_BYTES, TileMemory
from sipsim.chips.tensix.noc import Core, FloorPlan, Kind, NocGraph, Tree
from sipsim.chips.tensix.processor import Processor
from sipsim.chips.tensix.replay import InFlight
from sipsim.chips.tensix.results import TileLog
from sipsim.core.engine import Engine
from sipsim.core.errors import KernelMisuse
from sipsim.fabric.flows import FlowFabric
from sipsim.fabric.graph import Done, Route

Ps = int
TRANSACTION_IDS = 16
"""The most NoC commands in progress per NIU (network interface unit), that is per tile and NoC."""
REQUEST_BYTES = 1
NO_MEMORY = "has no memory; Tensix, Ethernet and DRAM tiles have memory"
KIB, MIB = 2**10, 2**20


class Tiles:
    """Tiles of SIP ``sip``: memories, and NoC commands of processors and routers."""

    def __init__(
        self,
        sip: int,
        plan: FloorPlan,
        graph: NocGraph,
        fabric: FlowFabric,
        engine: Engine,
        log: TileLog,
        jitter: Jitter | None = None,
    ) -> None:
        self._sip = sip
        self._plan = plan
        self._graph = graph
        self._fabric = fabric
        self.engine = engine
        self.log = log
        self.jitter = jitter
        self._memories: dict[Core, TileMemory] = {}
        noc = plan.params.noc
        self.packet_bytes = noc.flit_bytes * noc.packet_flits

    def memory(self, core: Core) -> TileMemory:
        """Return the memory of a tile.

        Raises:
            KernelMisuse: if the tile has no memory.
        """
        memory = self._memories.get(core)
        if memory is None:
            kind = self._plan.kinds.get(core)
            if kind is None:
                raise KernelMisuse(f"tile {core} {NO_MEMORY}")
            name = f"{kind.value} {core} of SIP {self._sip}"
            memory = self._memories[core] = TileMemory(name, self._nbytes(kind), self._floor(kind))
        return memory

    def clear(self, core: Core, address: int, nbytes: int) -> None:
        """Set a range of a tile to 0, to remove bytes of earlier programs."""
        self.memory(core).clear(address, nbytes)
        if self.log.replay is not None:
            self.log.replay.cleared(core, address, nbytes)

    def store(self, core: Core, address: int, data: bytes, by: str) -> None:
        """Store bytes in a tile now. ``by``: name of the kernel, or of the part of a fabric."""
        self.memory(core).write(address, data, self.engine.now_ps, by)
        if self.log.replay is not None:
            self.log.replay.stored(core, address, data)

    def problem_of(self, core: Core, address: int, nbytes: int) -> str:
        """Return why no packet may write to this memory of a tile, on any chip of the run; empty if a packet may."""
        kind = self._plan.kinds.get(core)
        if kind is None:
            return f"tile {core} {NO_MEMORY}"
        size, text = self._nbytes(kind), f"{nbytes} B at 0x{address:x} are outside of tile {core}"
        if address + nbytes > size:
            return f"{text}, which has {size} B"
        floor = self._floor(kind)
        text = f"{nbytes} B at 0x{address:x} of tile {core} are below 0x{floor:x}, where the firmware is"
        return text if address < floor else ""

    def in_use(self) -> list[tuple[Core, TileMemory]]:
        """Return the tiles whose memory was used, in order, each with the memory."""
        return sorted(self._memories.items())

    def receivers(self, first: Core, last: Core) -> list[Core]:
        """Return the tiles that take a multicast to a rectangle (:meth:`FloorPlan.receivers`)."""
        return self._plan.receivers(first, last)

    def write(
        self,
        by: Processor,
        address: int,
        core: Core,
        to: int,
        nbytes: int,
        write_id: int | None = None,
        is_copy: bool = False,
    ) -> None:
        """Start a write of bytes from the processor's tile, copied when they leave, to address ``to`` of tile ``core``.
        They leave now, or later with jitter unless the write ``is_copy``. ``write_id``: transaction id of the write,
        counted in ``by.unsent`` until the bytes have left.
        """
        route = self._graph.data_route(by.noc, by.core, core)
        arrive, leaves_ps = self._leave(by, address, (core,), to, nbytes, route, is_copy)
        if write_id is not None:
            by.unsent[write_id] += 1
            self.engine.at(by.flushed_ps, lambda: _has_left(by, write_id))
        wait_ps = leaves_ps - self.engine.now_ps
        self._start(by.noc, by.core, core, route, nbytes, lambda _head_ps, _tail_ps: arrive(core), wait_ps=wait_ps)

    def multicast(self, by: Processor, address: int, cores: tuple[Core, ...], to: int, nbytes: int) -> None:
        """Start a multicast write of bytes from the processor's tile to the same address of several tiles. The bytes
        leave as those of :meth:`write`; each tile acknowledges, and ``by.writes`` counts each.
        """
        tree = self._graph.tree(by.noc, by.core, cores)
        arrive, leaves_ps = self._leave(by, address, cores, to, nbytes, tree.route, is_copy=False)
        delay_ps = leaves_ps - self.engine.now_ps
        if self.jitter is not None:
            delay_ps = self.jitter.noc_delay_ps(by.noc, by.core, cores[-1], self.engine.now_ps, delay_ps)
        self._spread((by.noc, by.core), tree, nbytes, arrive, delay_ps)

    def _leave(
        self, by: Processor, address: int, cores: tuple[Core, ...], to: int, nbytes: int, route: Route, is_copy: bool
    ) -> tuple[Callable[[Core], None], Ps]:
        """Prepare a write to the same address of ``cores``. Return the function that handles the arrival at one of
        them, and the time at which the bytes leave.
        """
        memories = {core: self.memory(core) for core in cores}
        data = by.memory.read(address, nbytes)
        for memory in memories.values():
            memory.check_target(to, nbytes, by.name)
        by.memory.check_whole(address, nbytes, by.name)
        by.writes += len(cores)
        start_ps, replay = self.engine.now_ps, self.log.replay
        jitter = None if is_copy else self.jitter
        leaves_ps = start_ps if jitter is None else jitter.departure_ps(by.noc, by.core, start_ps)
        by.flushed_ps = max(by.flushed_ps, leaves_ps) + route.edges[0].drain_ps(nbytes)
        flight: InFlight | None = None

        def leave() -> None:
            nonlocal data, flight
            data = by.memory.read(address, nbytes)
            flight = None if replay is None else replay.issued(by.core, by.core, address, data, len(cores))

        if leaves_ps > start_ps:
            self.engine.at(leaves_ps, leave)
        elif replay is not None:
            flight = replay.issued(by.core, by.core, address, data, len(cores))

        def arrive(core: Core) -> None:
            memories[core].write(to, data, self.engine.now_ps, by.name)
            self.log.noc_write(start_ps, by.core, core, to, data)
            if flight is not None and replay is not None:
                replay.arrived(flight, core, memories[core], to, nbytes)
            by.writes -= 1
            by.acked_ps = max(
                by.acked_ps, self.engine.now_ps + self._graph.word_ps(by.noc, core, by.core, REQUEST_BYTES)
            )
            _notify(by)

        return arrive, leaves_ps

    def increment(self, by: Processor, core: Core, address: int, by_how_much: int) -> None:
        """Start an atomic increment of a word, which arrives after all earlier writes of the processor to that tile."""
        memory = self.memory(core)
        memory.check_target(address, ATOMIC_BYTES, by.name)
        start_ps, replay = self.engine.now_ps, self.log.replay
        flight = None if replay is None else replay.increment_issued(by.core, core, address)

        def arrive(_head_ps: int, _tail_ps: int) -> None:
            value = (memory.word(address) + by_how_much) % 2**32
            memory.write(address, value.to_bytes(ATOMIC_BYTES, "little"), self.engine.now_ps, by.name)
            self.log.noc_increment(start_ps, by.core, core, address, value)
            if flight is not None and replay is not None:
                replay.incremented(flight, core, memory, address, by_how_much)

        self._start(by.noc, by.core, core, self._graph.between(by.noc, by.core, core), ATOMIC_BYTES, arrive)

    def read(self, by: Processor, core: Core, address: int, to: int, nbytes: int) -> None:
        """Start a read into the processor's tile: a request to tile ``core``, which returns the bytes."""
        memory = self.memory(core)
        memory.check(address, nbytes)
        by.memory.check_target(to, nbytes, by.name)
        by.reads += 1
        start_ps, replay = self.engine.now_ps, self.log.replay

        def serve(_head_ps: int, _tail_ps: int) -> None:
            data = memory.read(address, nbytes)
            flight = None if replay is None else replay.issued(by.core, core, address, data)

            def arrive(_head_ps: int, _tail_ps: int) -> None:
                by.memory.write(to, data, self.engine.now_ps, by.name)
                self.log.noc_read(start_ps, core, by.core, to, data)
                if flight is not None and replay is not None:
                    replay.arrived(flight, by.core, by.memory, to, nbytes)
                by.reads -= 1
                _notify(by)

            back = self._graph.data_route(by.noc, core, by.core)
            self._start(by.noc, core, by.core, back, nbytes, arrive, (by.noc, core, by.core))

        request = self._graph.between(by.noc, by.core, core)
        self._start(by.noc, by.core, core, request, REQUEST_BYTES, serve, (by.noc, by.core, REQUEST_BYTES))

    def _start(
        self,
        noc: int,
        src: Core,
        dst: Core,
        route: Route,
        nbytes: int,
        done: Done,
        source: Hashable = None,
        wait_ps: int = 0,
    ) -> None:
        """Start a transfer ``wait_ps`` from now. ``source``: key of the sender, whose transfers stay in order; None for
        the tile's NIU.
        """
        jitter = self.jitter
        delay_ps = wait_ps if jitter is None else jitter.noc_delay_ps(noc, src, dst, self.engine.now_ps, wait_ps)
        self._carry(source or (noc, src), route, nbytes, done, delay_ps)

    def deliver(
        self,
        src: Core,
        cores: tuple[Core, ...],
        to: int,
        data: bytes,
        by: str,
        delay_ps: int,
        arrived: Callable[[int], None],
    ) -> None:
        """Write bytes to the same address of one tile or several for a router, ``delay_ps`` from now, over the NoC with
        the shorter path or tree.

        ``arrived(acknowledged_ps)``: called at the arrival at each tile, with the time of the tile's acknowledgement.
        """
        memories = {core: self.memory(core) for core in cores}
        for memory in memories.values():
            memory.check_target(to, len(data), by)
        noc = self._graph.nearer(src, cores[0]) if len(cores) == 1 else self._graph.nearer_tree(src, cores)
        if self.jitter is not None:
            delay_ps = self.jitter.noc_delay_ps(noc, src, cores[-1], self.engine.now_ps, delay_ps)
        start_ps, replay = self.engine.now_ps + delay_ps, self.log.replay
        flight = None if replay is None else replay.made(src, data, len(cores))

        def arrive(core: Core) -> None:
            memories[core].write(to, data, self.engine.now_ps, by)
            self.log.noc_write(start_ps, src, core, to, data)
            if flight is not None and replay is not None:
                replay.arrived(flight, core, memories[core], to, len(data))
            arrived(self.engine.now_ps + self._graph.word_ps(noc, core, src, REQUEST_BYTES))

        if len(cores) > 1:
            self._spread((noc, src), self._graph.tree(noc, src, cores), len(data), arrive, delay_ps)
            return
        route = self._graph.data_route(noc, src, cores[0])
        self._carry((noc, src), route, len(data), lambda _head_ps, _tail_ps: arrive(cores[0]), delay_ps)

    def _spread(self, source: Hashable, tree: Tree, nbytes: int, arrive: Callable[[Core], None], delay_ps: int) -> None:
        """Carry a packet over a tree, in ``delay_ps``: one flow on all edges, which ends at each tile once the tile's
        own path has brought the last byte.
        """
        whole_ps = tree.route.head_ps()

        def left(_head_ps: int, tail_ps: int) -> None:
            for core, head_ps in tree.heads_ps.items():
                self.engine.at(tail_ps - whole_ps + head_ps, partial(arrive, core))

        train = self._fabric.train(source, in_flight=TRANSACTION_IDS)
        self._fabric.start(train, tree.route, nbytes, None, left, delay_ps)

    def _carry(self, source: Hashable, route: Route, nbytes: int, done: Done, delay_ps: int) -> None:
        train = self._fabric.train(source, in_flight=TRANSACTION_IDS)
        self._fabric.start(train, route, nbytes, done, None, delay_ps)

    def deliver_increment(
        self, src: Core, core: Core, address: int, by_how_much: int, delay_ps: int, is_behind_writes: bool = False
    ) -> None:
        """Add to a word of a tile for a router, starting ``delay_ps`` from now. ``is_behind_writes``: whether the
        increment follows all writes of :meth:`deliver` to that tile; otherwise it takes the time of an idle path.
        """
        memory = self.memory(core)
        memory.check(address, ATOMIC_BYTES)
        replay = self.log.replay
        flight = None if replay is None else replay.increment_issued(src, core, address)

        def arrive(_head_ps: int = 0, _tail_ps: int = 0) -> None:
            value = (memory.word(address) + by_how_much) % 2**32
            memory.write(address, value.to_bytes(ATOMIC_BYTES, "little"), self.engine.now_ps, "a router")
            self.log.noc_increment(self.engine.now_ps, src, core, address, value)
            if flight is not None and replay is not None:
                replay.incremented(flight, core, memory, address, by_how_much)

        if not is_behind_writes:
            self.notify(src, core, delay_ps, arrive)
            return
        noc = self._graph.nearer(src, core)
        if self.jitter is not None:
            delay_ps = self.jitter.noc_delay_ps(noc, src, core, self.engine.now_ps, delay_ps)
        self._carry((noc, src), self._graph.data_route(noc, src, core), ATOMIC_BYTES, arrive, delay_ps)

    def notify(self, src: Core, core: Core, delay_ps: int, notified: Callable[[], None]) -> None:
        """Call ``notified`` when a word from tile ``src`` reaches tile ``core``: after ``delay_ps`` plus the time of a
        word on the NoC with the shorter path, if idle.
        """
        noc = self._graph.nearer(src, core)
        if self.jitter is not None:
            delay_ps = self.jitter.noc_delay_ps(noc, src, core, self.engine.now_ps, delay_ps)
        path_ps = self._graph.word_ps(noc, src, core, ATOMIC_BYTES)
        self.engine.at(self.engine.now_ps + delay_ps + path_ps, notified)

    def _floor(self, kind: Kind) -> int:
        params = self._plan.params
        return {Kind.TENSIX: params.tensix.kernel_base, Kind.ETHERNET: params.ethernet.kernel_base}.get(kind, 0)

    def _nbytes(self, kind: Kind) -> int:
        params = self._plan.params
        return {
            Kind.TENSIX: params.tensix.l1_KiB * KIB,
            Kind.ETHERNET: params.ethernet.l1_KiB * KIB,
            Kind.DRAM: params.dram.channel_MiB * MIB,
        }[kind]


def _has_left(processor: Processor, write_id: int) -> None:
    processor.unsent[write_id] -= 1
    # Kernels poll this counter of the core like a word of L1, so waits for words test their conditions again.
    for look in tuple(processor.memory.on_write):
        look()


def _notify(processor: Processor) -> None:
    for look in tuple(processor.on_arrival):
        look()
