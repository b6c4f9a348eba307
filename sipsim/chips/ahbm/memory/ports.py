"""Memory ports: where a transfer meets a memory, and what an access takes there on top of the fabric's time.

A port serves the accesses of one node. Its kind decides how long each takes: a class that is registered by name and
chosen by ``kind`` of the memory's section in ``components.yaml``. Bytes are in :mod:`sipsim.chips.ahbm.memory.store`.

Data stream: those of a read leave the memory while later ones are still read (:meth:`MemoryPort.read_out`), and those
of a write come while earlier ones are written (:meth:`MemoryPort.write`). So an access over a route takes the longer of
the memory's and the route's times for its bytes, not their sum.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right, insort
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec

from sipsim.chips.ahbm.memory.store import Block, MemoryStore
from sipsim.chips.ahbm.mesh import MemoryPart
from sipsim.config.schema import MemoryCost, NoParams, Positive, Section, TcmCost
from sipsim.core.engine import Engine
from sipsim.core.errors import InvariantViolation
from sipsim.core.registry import Registry
from sipsim.core.units import drain_ps, gbytes_per_s_to_bps, ns_to_ps
from sipsim.fabric.graph import Node

Ps = int
FIXED_LATENCY = "fixed_latency"
"""The kind of a memory whose section names none."""


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


class MemoryPort(ABC):
    """One port, made at its first use. ``Params``: what ``params`` of its section may hold.

    ``least_read_ps`` and ``least_write_ps``: no access takes less. An access begins at the call, when the last byte of
    its command or of its data is at the port, and its end is an event of the engine, later than the call.
    ``is_constant``: every access takes just that, so its end may be computed in advance, without an event.
    ``keeps_order``: no write ends before one that began before it.
    ``bandwidth_key``: of its section, where the times of ``read_span_ps`` and ``write_span_ps`` come from.
    ``unused``: keys of its section that have no effect, and the key that has it in place of each.
    ``waits``: of all accesses so far, if it is a list. ``origin_ps``: the row start, from which what comes at fixed
    times is counted, such as refresh.
    """

    Params: ClassVar[type[Section]] = NoParams
    is_constant: ClassVar[bool] = False
    keeps_order: ClassVar[bool] = False
    bandwidth_key: ClassVar[str] = "params.bandwidth_GBps"
    unused: ClassVar[dict[str, str]] = {}
    least_read_ps: Ps
    least_write_ps: Ps

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, store: MemoryStore) -> None:
        self.params: Any = msgspec.convert(cost.params, self.Params)
        self.engine = engine
        self.node: Node | None = None
        self.waits: list[Wait] | None = None
        self.origin_ps: Ps = 0
        self._store = store

    @classmethod
    def refusal(cls, params: Any, capacity_bytes: int) -> Refusal | None:
        """What is wrong with ``params`` together, or with a memory of that size."""
        return None

    def check_buses(self) -> None:
        """Check from now on that no two accesses are on one bus at a time (``--check-invariants``), if it has any."""
        return

    @abstractmethod
    def time_read(self, address: int, nbytes: int, done: Callable[[], None]) -> None:
        """Call ``done()`` at the end of a read. The bytes are the caller's to take."""

    @abstractmethod
    def time_write(self, address: int, nbytes: int, done: Callable[[], None]) -> None:
        """Call ``done()`` at the end of a write. The bytes are the caller's to put there, in that step."""

    def stream_read(self, address: int, nbytes: int, leave: Callable[[Ps], None]) -> None:
        """Call ``leave(span_ps)`` when the first byte of a read leaves; the last one leaves ``span_ps`` later."""
        self.time_read(address, nbytes, partial(leave, 0))

    def stream_write(self, address: int, nbytes: int, span_ps: Ps, done: Callable[[], None]) -> None:
        """As :meth:`time_write`; the first byte was here ``span_ps`` ago, the last one is here now."""
        self.time_write(address, nbytes, done)

    def time_read_block(self, block: Block, done: Callable[[], None]) -> None:
        """As :meth:`time_read` for a block; a port that knows no addresses takes the time of its bytes in one piece."""
        self.time_read(block.address, block.nbytes, done)

    def stream_read_block(self, block: Block, leave: Callable[[Ps], None]) -> None:
        """As :meth:`stream_read` for a block."""
        self.stream_read(block.address, block.nbytes, leave)

    def stream_write_block(self, block: Block, span_ps: Ps, done: Callable[[], None]) -> None:
        """As :meth:`stream_write` for a block."""
        self.stream_write(block.address, block.nbytes, span_ps, done)

    def read_span_ps(self, nbytes: int) -> Ps:
        """Least time from the first to the last byte of a read; it is in ``least_read_ps`` if they leave together."""
        return 0

    def write_span_ps(self, nbytes: int) -> Ps:
        """Least time for which the port takes in ``nbytes``, before ``least_write_ps``."""
        return 0

    def copy_span_ps(self, src: int, dst: int, nbytes: int) -> Ps:
        """Least time of a copy within the memory, from an address to another, beside ``least_read_ps`` and
        ``least_write_ps``: bytes are written as they are read."""
        return max(self.read_span_ps(nbytes), self.write_span_ps(nbytes))

    def read_terms(self) -> tuple[AccessTerm, ...]:
        """What ``least_read_ps`` is made of."""
        return (AccessTerm("read access", "read_latency_ns", self.least_read_ps),)

    def write_terms(self) -> tuple[AccessTerm, ...]:
        """What ``least_write_ps`` is made of."""
        return (AccessTerm("write access", "write_latency_ns", self.least_write_ps),)

    def read(self, address: int, nbytes: int, done: Callable[[bytes], None]) -> None:
        """Read ``nbytes`` at a physical address; ``done(data)`` with what is there at the end of the access.

        Raises:
            MemoryAccessError: at its end, outside the memory.
        """
        store = self._store
        self.time_read(address, nbytes, lambda: done(store.read(address, nbytes)))

    def read_out(self, address: int, nbytes: int, leave: Callable[[bytes, Ps], None]) -> None:
        """Read ``nbytes`` at a physical address; ``leave(data, span_ps)`` with what is there when the first one leaves.

        Raises:
            MemoryAccessError: then, outside the memory.
        """
        store = self._store
        self.stream_read(address, nbytes, lambda span_ps: leave(store.read(address, nbytes), span_ps))

    def write(self, address: int, data: bytes, done: Callable[[], None], span_ps: Ps = 0) -> None:
        """Write ``data`` at a physical address, which came over ``span_ps``; ``done()`` in the step in which the bytes
        are there.

        Raises:
            MemoryAccessError: at its end, outside the memory.
        """

        def written() -> None:
            self._store.write(address, data)
            done()

        self.stream_write(address, len(data), span_ps, written)

    def read_block(self, block: Block, done: Callable[[bytes], None]) -> None:
        """As :meth:`read` for the bytes of a block."""
        store = self._store
        self.time_read_block(block, lambda: done(store.read_block(block)))

    def read_out_block(self, block: Block, leave: Callable[[bytes, Ps], None]) -> None:
        """As :meth:`read_out` for the bytes of a block."""
        store = self._store
        self.stream_read_block(block, lambda span_ps: leave(store.read_block(block), span_ps))

    def write_block(self, block: Block, data: bytes, done: Callable[[], None], span_ps: Ps = 0) -> None:
        """As :meth:`write` for the bytes of a block."""

        def written() -> None:
            self._store.write_block(block, data)
            done()

        self.stream_write_block(block, span_ps, written)


class StreamingPort(MemoryPort):
    """A port that knows the times of an access when it begins, from when its parts are free: busy-until arithmetic.

    A block is claimed row by row, so that banks, open rows and rows narrower than a burst cost what they cost. Limit:
    each row of a write may be taken in from when the first byte of the block came.
    """

    @abstractmethod
    def claim_read(self, address: int, nbytes: int) -> tuple[Ps, Ps]:
        """Begin a read now: time until its first byte leaves, and from then to the last one."""

    @abstractmethod
    def claim_write(self, address: int, nbytes: int, span_ps: Ps) -> Ps:
        """Take in a write whose last byte is here now, and the first was ``span_ps`` ago: time until its end."""

    def time_read(self, address: int, nbytes: int, done: Callable[[], None]) -> None:
        first_ps, span_ps = self.claim_read(address, nbytes)
        self.engine.at(self.engine.now_ps + first_ps + span_ps, done)

    def time_write(self, address: int, nbytes: int, done: Callable[[], None]) -> None:
        self.engine.at(self.engine.now_ps + self.claim_write(address, nbytes, 0), done)

    def stream_read(self, address: int, nbytes: int, leave: Callable[[Ps], None]) -> None:
        first_ps, span_ps = self.claim_read(address, nbytes)
        self.engine.at(self.engine.now_ps + first_ps, partial(leave, span_ps))

    def stream_write(self, address: int, nbytes: int, span_ps: Ps, done: Callable[[], None]) -> None:
        self.engine.at(self.engine.now_ps + self.claim_write(address, nbytes, span_ps), done)

    def time_read_block(self, block: Block, done: Callable[[], None]) -> None:
        first_ps, span_ps = self._claim_read_block(block)
        self.engine.at(self.engine.now_ps + first_ps + span_ps, done)

    def stream_read_block(self, block: Block, leave: Callable[[Ps], None]) -> None:
        first_ps, span_ps = self._claim_read_block(block)
        self.engine.at(self.engine.now_ps + first_ps, partial(leave, span_ps))

    def stream_write_block(self, block: Block, span_ps: Ps, done: Callable[[], None]) -> None:
        nbytes, kept = block.row_bytes, self._part_waits()
        end_ps = max([self.claim_write(address, nbytes, span_ps) for address in block.addresses])
        own_ps = [max(self.write_span_ps(each) - span_ps, 0) for each in (block.nbytes, nbytes)]
        self._join_waits(kept, False, block, end_ps, own_ps[0] - own_ps[1])
        self.engine.at(self.engine.now_ps + end_ps, done)

    def _claim_read_block(self, block: Block) -> tuple[Ps, Ps]:
        """Begin to read all rows now: time until the first byte leaves, and from then to the last one."""
        nbytes, kept = block.row_bytes, self._part_waits()
        claims = [self.claim_read(address, nbytes) for address in block.addresses]
        first_ps, end_ps = min([first for first, _ in claims]), max([first + span for first, span in claims])
        self._join_waits(kept, True, block, end_ps, self.read_span_ps(block.nbytes) - self.read_span_ps(nbytes))
        return first_ps, end_ps - first_ps

    def _part_waits(self) -> list[Wait] | None:
        """Keep the waits of rows apart from those of whole accesses, which are returned."""
        kept, self.waits = self.waits, None if self.waits is None else []
        return kept

    def _join_waits(self, kept: list[Wait] | None, is_read: bool, block: Block, end_ps: Ps, own_ps: Ps) -> None:
        """The wait of a block is that of its last row, less the ``own_ps`` in which its rows follow each other."""
        rows, self.waits = self.waits or (), kept
        last = next((each.parts for each in reversed(rows) if each.end_ps == self.engine.now_ps + end_ps), ())
        parts = []
        for reason, ps in reversed(last):
            parts.append((reason, ps - own_ps))
            own_ps = max(own_ps - ps, 0)
        self.note_wait(is_read, block.address, block.nbytes, self.engine.now_ps + end_ps, *reversed(parts))

    def note_wait(self, is_read: bool, address: int, nbytes: int, end_ps: Ps, *parts: tuple[str, Ps]) -> None:
        """Keep what an access that began now took beyond its terms, if waits are kept."""
        some = tuple(part for part in parts if part[1] > 0)
        if self.waits is not None and some:
            now_ps = self.engine.now_ps
            self.waits.append(Wait(str(self.node), is_read, address, nbytes, now_ps, end_ps, some))


MEMORY_KINDS: Registry[type[MemoryPort]] = Registry(
    "memory kind",
    {
        "sipsim.chips.ahbm.memory.banked_sram": ("banked_sram",),
        "sipsim.chips.ahbm.memory.ports": (
            "fixed_latency",
            "latency_bandwidth",
            "tcm_ports",
        ),
        "sipsim.chips.ahbm.memory.hbm": ("hbm_controller",),
    },
)


class MemoryPorts:
    """The memory ports of one SIP since the row start, which is now. ``memories``: the part that serves each space.

    ``check_buses``: checks as in :meth:`MemoryPort.check_buses`. ``waits``: where what accesses waited for is kept.
    """

    def __init__(
        self,
        memories: Mapping[str, MemoryPart],
        engine: Engine,
        store: MemoryStore,
        check_buses: bool = False,
        waits: list[Wait] | None = None,
    ) -> None:
        self._memories = memories
        self._engine = engine
        self._store = store
        self._check_buses = check_buses
        self._origin_ps = engine.now_ps
        self._waits = waits
        self._ports: dict[tuple[str, Node], MemoryPort] = {}

    def at(self, space: str, node: Node) -> MemoryPort:
        """The port of a memory space at the node that serves it."""
        port = self._ports.get((space, node))
        if port is None:
            cost = self._memories[space].memory().cost
            kind = MEMORY_KINDS.get(cost.kind or FIXED_LATENCY)
            port = self._ports[space, node] = kind(cost, self._engine, self._store)
            port.node, port.waits, port.origin_ps = node, self._waits, self._origin_ps
            if self._check_buses:
                port.check_buses()
        return port


@MEMORY_KINDS.register(FIXED_LATENCY)
class FixedLatency(MemoryPort):
    """A memory whose every access takes the configured latency, however many there are at a time.

    ``read_latency_ns`` and ``write_latency_ns`` of the memory's section; the bandwidth is that of its edges.
    """

    is_constant = True
    keeps_order = True

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, store: MemoryStore) -> None:
        super().__init__(cost, engine, store)
        self.least_read_ps = ns_to_ps(cost.read_latency_ns)
        self.least_write_ps = ns_to_ps(cost.write_latency_ns)

    def time_read(self, address: int, nbytes: int, done: Callable[[], None]) -> None:
        self.engine.at(self.engine.now_ps + self.least_read_ps, done)

    def time_write(self, address: int, nbytes: int, done: Callable[[], None]) -> None:
        self.engine.at(self.engine.now_ps + self.least_write_ps, done)


KEPT = 256
"""Stretches of a bus that a later one is compared with."""


class BusWitness:
    """Sees all stretches of time for which a bus was given to an access, in any order (``--check-invariants``).

    Raises:
        InvariantViolation: when two of them overlap.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._taken: list[tuple[Ps, Ps]] = []

    def took(self, start_ps: Ps, end_ps: Ps) -> None:
        """The bus carries an access from ``start_ps`` to ``end_ps``."""
        taken, at = self._taken, bisect_right(self._taken, (start_ps, end_ps))
        for other_start, other_end in taken[max(at - 1, 0) : at + 1]:
            if other_start < end_ps and start_ps < other_end:
                raise InvariantViolation(
                    f"{self._name}: its bus carries two accesses at a time, from {start_ps} to {end_ps} ps and from "
                    f"{other_start} to {other_end} ps"
                )
        insort(taken, (start_ps, end_ps))
        if len(taken) > 2 * KEPT:
            del taken[:KEPT]


class Bus:
    """A path of bytes that carries one access at a time, in the order in which they are claimed.

    It is busy-until arithmetic. ``free_ps``: when all accesses are through.
    """

    __slots__ = ("free_ps", "witness")

    def __init__(self) -> None:
        self.free_ps: Ps = 0
        self.witness: BusWitness | None = None

    def take(self, from_ps: Ps, ps: Ps) -> Ps:
        """Give the bus to an access for ``ps``, not before ``from_ps``; when that begins."""
        start_ps = self.free_ps if self.free_ps > from_ps else from_ps
        self.free_ps = start_ps + ps
        if self.witness is not None:
            self.witness.took(start_ps, self.free_ps)
        return start_ps


LATENCY_BANDWIDTH = "latency_bandwidth"
OTHERS = "other accesses"


class Bandwidth(Section, frozen=True):
    """``bandwidth_GBps``: of reads and writes together."""

    bandwidth_GBps: Positive


class BusPort(StreamingPort):
    """A port with a bus for reads and one for writes, which may be the same.

    An access of ``n`` bytes has its bus for ``n / bandwidth_GBps``, in the order of arrival:

    * a read's first byte leaves ``read_latency_ns`` after the bus is its own, its last one ``n / bandwidth`` later;
    * a write has the bus from when its first byte came, and ends ``write_latency_ns`` after both the last byte's
      arrival and its time on the bus.

    An access costs one event and O(1) arithmetic.

    Limits: no banks, rows, refresh or turnaround; a long access holds the bus to its end, so a short one behind it
    waits for all of it; a write whose data come more slowly than the bus takes them claims the bus as one piece, from
    its head on.
    """

    keeps_order = True

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, store: MemoryStore, is_shared: bool) -> None:
        super().__init__(cost, engine, store)
        self.least_read_ps = ns_to_ps(cost.read_latency_ns)
        self.least_write_ps = ns_to_ps(cost.write_latency_ns)
        self._bps = gbytes_per_s_to_bps(self.params.bandwidth_GBps)
        self._reads = Bus()
        self._writes = self._reads if is_shared else Bus()

    def check_buses(self) -> None:
        for bus, what in ((self._writes, "writes"), (self._reads, "reads")):
            bus.witness = BusWitness(f"{self.node}, {what}")

    def read_span_ps(self, nbytes: int) -> Ps:
        return drain_ps(nbytes, self._bps)

    def write_span_ps(self, nbytes: int) -> Ps:
        return drain_ps(nbytes, self._bps)

    def copy_span_ps(self, src: int, dst: int, nbytes: int) -> Ps:
        """Of one bus: the write has it after the read, whose latency passes meanwhile."""
        span_ps = drain_ps(nbytes, self._bps)
        return max(span_ps, 2 * span_ps - self.least_read_ps) if self._reads is self._writes else span_ps

    def claim_read(self, address: int, nbytes: int) -> tuple[Ps, Ps]:
        now_ps, span_ps = self.engine.now_ps, drain_ps(nbytes, self._bps)
        wait_ps = self._reads.take(now_ps, span_ps) - now_ps
        first_ps = wait_ps + self.least_read_ps
        if wait_ps:
            self.note_wait(True, address, nbytes, now_ps + first_ps + span_ps, (OTHERS, wait_ps))
        return first_ps, span_ps

    def claim_write(self, address: int, nbytes: int, span_ps: Ps) -> Ps:
        now_ps, drain = self.engine.now_ps, drain_ps(nbytes, self._bps)
        came_ps = now_ps - span_ps
        start_ps = self._writes.take(came_ps, drain)
        rest_ps = max(start_ps + drain - now_ps, 0)
        wait_ps = rest_ps - max(drain - span_ps, 0)
        end_ps = rest_ps + self.least_write_ps
        if wait_ps:
            self.note_wait(False, address, nbytes, now_ps + end_ps, (OTHERS, wait_ps))
        return end_ps


@MEMORY_KINDS.register(LATENCY_BANDWIDTH)
class LatencyBandwidth(BusPort):
    """A latency, and a bandwidth that reads and writes share: the fast model of a memory, for sweeps.

    ``read_latency_ns`` and ``write_latency_ns`` of the section, ``params.bandwidth_GBps`` of the one half-duplex bus.
    """

    Params = Bandwidth

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, store: MemoryStore) -> None:
        super().__init__(cost, engine, store, is_shared=True)


class Ports(Section, frozen=True):
    """``ports``: one for reads and one for writes, or one for both. ``bandwidth_GBps``: of each."""

    bandwidth_GBps: Positive
    ports: Literal["read_and_write", "shared"] = "read_and_write"


@MEMORY_KINDS.register("tcm_ports")
class TcmPorts(BusPort):
    """A PE's own memory: a port for reads and one for writes, or one for both, ``params.bandwidth_GBps`` each.

    ``read_latency_ns`` and ``write_latency_ns`` of the section come on top. Loads and stores of the PE, copies,
    messages that arrive in its rings, and what PE_GEMM fetches and stores (:mod:`sipsim.chips.ahbm.gemm.pipeline`) use
    the same ports. Limits: no banks within a port; what PE_MATH reads and writes is not counted.
    """

    Params = Ports

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, store: MemoryStore) -> None:
        super().__init__(cost, engine, store, is_shared=cost.params.get("ports") == "shared")
