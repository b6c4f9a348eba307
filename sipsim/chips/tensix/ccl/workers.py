"""Workers of an operation on one chip, one per link and direction: lists of packets, and kernels.

A worker serves one link in one direction: the worker's writer is connected to the router of that link, and packets that
arrive over the link may raise the worker's semaphores. The kernels share a circular buffer as a pipeline: ``reader``
fills slots, ``adder`` adds up the operands in a slot, and ``writer`` sends the slots into the fabric.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from sipsim.chips.tensix.ccl.circular_buffer import CircularBuffer, slots_for
from sipsim.chips.tensix.ccl.tensors import PageGroup
from sipsim.chips.tensix.dataflow import Dataflow, NocAddress
from sipsim.chips.tensix.fabric.channels import Ring
from sipsim.chips.tensix.fabric.connection import FabricEndpoint, FabricSender
from sipsim.chips.tensix.fabric.packet import (
    OPPOSITE,
    Direction,
    Route,
    increment_of,
    multicast,
    unicast,
    write_and_increment,
    write_to,
)
from sipsim.chips.tensix.formats import Format
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.params import CclParams

WORD_BYTES, LOCAL_BYTES, SHARED, LOCAL = 4, 16, 4, 3


class Semaphores(NamedTuple):
    """Addresses of the semaphores of an operation: the same in the L1 of every worker.

    The values are counts. ``ready``: chips that have begun; ``arrived``: chunks that a relay has received; ``done``:
    source chips that have sent all data; ``partial``: chunks from the chip's other worker of the link. ``pushed``,
    ``summed``, ``popped``: packets of the circular buffer, shared by all fabrics, as calls on a chip run in sequence.
    """

    ready: int
    arrived: int
    done: int
    partial: int
    pushed: int
    summed: int
    popped: int

    @classmethod
    def at(cls, first: int, fabric: int) -> "Semaphores":
        """Return the semaphores of a fabric. ``first``: lowest address of all semaphores. ``fabric``: number of the
        fabric, unique in the system, since calls on fabrics that share a chip may overlap.
        """
        shared = first + LOCAL * LOCAL_BYTES + fabric * SHARED * WORD_BYTES
        ready, arrived, done, partial = (shared + number * WORD_BYTES for number in range(SHARED))
        local = (first + number * LOCAL_BYTES for number in range(LOCAL))
        return cls(ready, arrived, done, partial, *local)

    @property
    def end(self) -> int:
        """The address after the fabric's semaphores."""
        return self.partial + WORD_BYTES


class Until(NamedTuple):
    """Condition that the semaphore at ``word`` is ``value`` or more."""

    word: int
    value: int


class PacketOp(NamedTuple):
    """Packet of a worker's list. Once all conditions ``after`` hold, the operands at ``reads`` are read and added up.

    The sum is written to ``local`` and sent along ``route`` to ``target``, if given. ``signal``: a semaphore on the
    target chip, raised after this and all earlier packets; ``local_signal``: on this chip, after the local write.
    """

    pages: int
    nbytes: int
    reads: tuple[NocAddress, ...]
    after: tuple[Until, ...] = ()
    local: NocAddress | None = None
    route: Route | None = None
    target: NocAddress | None = None
    signal: NocAddress | None = None
    local_signal: NocAddress | None = None


SIDES = (Direction.E, Direction.W)
STEP = {Direction.E: 1, Direction.W: -1}
Cut = Callable[[int], list[PageGroup]]
"""A function that returns the page groups of a slice by the slice's number, equal on all chips."""


class Place(NamedTuple):
    """Position of a chip in a line or ring of ``size`` chips. ``is_both``: packets of a ring take both directions."""

    position: int
    size: int
    is_ring: bool
    is_both: bool = True

    def reach(self, way: Direction) -> int:
        """Return the number of chips that this chip's packets reach in direction ``way``."""
        if not self.is_ring:
            return self.size - 1 - self.position if way is Direction.E else self.position
        if not self.is_both:
            return self.size - 1 if way is Direction.E else 0
        return self.size // 2

    def reach_once(self, way: Direction) -> int:
        """Return :meth:`reach`, but count the chip of a ring that is equally far in both directions only for ``E``."""
        reach = self.reach(way)
        return reach - (way is Direction.W and self.is_shared(reach))

    def is_shared(self, hops: int) -> bool:
        """Whether the chip ``hops`` away is equally far in both directions, so that each direction carries half."""
        return self.is_ring and self.is_both and 2 * hops == self.size

    def at(self, way: Direction, hops: int) -> int:
        """Return the position of the chip ``hops`` away in direction ``way``."""
        return (self.position + STEP[way] * hops) % self.size


class Worker:
    """Worker of a link and a direction (``side``) in one call: the list of packets, and the state of the kernels.

    ``counts``: values of the worker's semaphores after earlier calls; the caller owns this dict. ``start_signals``:
    routes and semaphores that the worker raises at its start. ``begin``, ``end``: conditions that the worker awaits
    before the first packet and after the last.
    """

    endpoint: FabricEndpoint | None
    buffer: CircularBuffer
    dtype: Format
    launch_ns: float
    page_ns: float
    batch: int

    def __init__(self, link: int, side: Direction, core: Core, words: Semaphores, counts: dict[int, int]) -> None:
        self.link = link
        self.side = side
        self.core = core
        self.words = words
        self._counts = counts
        self._new: dict[int, int] = {}
        self.start_signals: list[tuple[Route, NocAddress]] = []
        self.begin: list[Until] = []
        self.packets: list[PacketOp] = []
        self.end: list[Until] = []

    def set_up(self, ccl: CclParams, base: int, dtype: Format, endpoint: FabricEndpoint | None) -> None:
        """Set the buffer, costs and endpoint of the worker's kernels. The circular buffer begins at ``base``; each slot
        has space for all operands of a packet. ``endpoint``: the connection to the fabric, or None.
        """
        operands = max((len(each.reads) for each in self.packets), default=1)
        slot_bytes, words = operands * ccl.packet_bytes, self.words
        ring = Ring(base, slots_for(slot_bytes, ccl), slot_bytes)
        self.endpoint = endpoint
        counts = words.pushed, words.summed, words.popped
        self.buffer = CircularBuffer(ring, ccl.packet_bytes, *counts, 1 / ccl.add_GBps)
        self.dtype, self.batch = dtype, ccl.read_packets
        self.launch_ns, self.page_ns = ccl.launch_ns, ccl.page_ns

    @property
    def adds(self) -> bool:
        """Whether any packet has several operands, so that the worker needs an adder."""
        return any(len(packet.reads) > 1 for packet in self.packets)

    @property
    def is_idle(self) -> bool:
        """Whether the worker has nothing to send, to copy or to await."""
        return not (self.start_signals or self.packets or self.end)

    def address(self, word: int) -> NocAddress:
        """Return the address of a semaphore of this worker, on any chip."""
        return NocAddress(self.core, word)

    def expect(self, word: int, count: int) -> Until:
        """Expect ``count`` more increments of a semaphore in this call; return the condition that all have arrived."""
        self._new[word] = self._new.get(word, 0) + count
        return self.until(word, self._new[word])

    def further(self, word: int, count: int) -> Until:
        """Return the condition that ``count`` increments more than expected so far have arrived."""
        return self.until(word, self._new.get(word, 0) + count)

    def until(self, word: int, count: int) -> Until:
        """Return the condition that ``count`` increments of this call have arrived at the semaphore at ``word``."""
        return Until(word, (self._counts.get(word, 0) + count) % 2**32)

    def settle(self) -> None:
        """Add the call's increments to the counts of earlier calls."""
        for word, count in self._new.items():
            self._counts[word] = self._counts.get(word, 0) + count


class CallPlan(NamedTuple):
    """Workers of a call, by link and direction. ``packet_bytes``: longest payload; ``fabric``: the fabric's number."""

    place: Place
    num_links: int
    packet_bytes: int
    fabric: int
    workers: dict[tuple[int, Direction], Worker]

    def toward(self, worker: Worker, way: Direction) -> Worker:
        """Return the worker on another chip whose semaphores count the packets that ``worker`` sends to ``way``."""
        return self.workers[worker.link, OPPOSITE[way]] if self.place.is_both else worker

    def share(self, pieces: Sequence[PageGroup], link: int) -> list[PageGroup]:
        """Return the page groups that a link carries: every ``num_links``-th."""
        return list(pieces[link :: self.num_links])

    def add_start_barrier(self) -> None:
        """Add a start barrier: each worker signals its start to the chips on its side, and waits for their signals."""
        for worker in self.workers.values():
            reach = self.place.reach(worker.side)
            facing = self.toward(worker, worker.side)
            if reach:
                worker.start_signals.append((multicast(1, reach, worker.side), facing.address(worker.words.ready)))
                worker.begin.append(worker.expect(worker.words.ready, reach))


def half(pieces: Sequence[PageGroup], side: Direction) -> list[PageGroup]:
    """Return the half of the page groups that direction ``side`` carries: the first half for E, the second for W."""
    middle = (len(pieces) + 1) // 2
    return list(pieces[:middle] if side is Direction.E else pieces[middle:])


def one_hop(way: Direction) -> Route:
    """Return the route to the neighbour in direction ``way``."""
    return unicast(1, way)


SIGN: Final = 0x80000000


def reader(worker: Worker, df: Dataflow) -> None:
    """Kernel that reads packets into the buffer, ``batch`` at a time. A batch is pushed when all bytes have arrived."""
    df.owe(worker.launch_ns)
    buffer, packets = worker.buffer, worker.packets
    df.store(buffer.popped, bytes(4))
    done = 0
    while done < len(packets):
        batch = packets[done : done + min(worker.batch, buffer.ring.slots)]
        buffer.wait_for_room(done + len(batch) - 1, df)
        count = _until_missing(batch, df)
        for number, packet in enumerate(batch[:count], done):
            slot = buffer.ring.address(number)
            for operand, source in enumerate(packet.reads):
                df.noc_async_read(source, slot + operand * buffer.operand_bytes, packet.nbytes)
        df.noc_async_read_barrier()
        done += count
        buffer.advance(done - 1, buffer.pushed, df)


def adder(worker: Worker, df: Dataflow) -> None:
    """Kernel that adds up the operands of each packet."""
    buffer = worker.buffer
    for number, packet in enumerate(worker.packets):
        buffer.wait_for_packet(number, buffer.pushed, df)
        if len(packet.reads) > 1:
            buffer.add(number, worker.dtype, packet.nbytes, len(packet.reads), df)
        buffer.advance(number, buffer.summed, df)


def writer(worker: Worker, df: Dataflow) -> None:
    """Kernel that signals its start to the other chips, waits for their start, and then sends or writes the packets."""
    df.instructions(worker.launch_ns)
    buffer = worker.buffer
    fabric = None
    if worker.endpoint is not None:
        fabric = FabricSender(worker.endpoint, df)
        fabric.open()
        for route, semaphore in worker.start_signals:
            fabric.send(route, increment_of(semaphore.core, semaphore.address), 0, 0)
    _wait_for(worker.begin, df)
    filled = buffer.summed if worker.adds else buffer.pushed
    for number, packet in enumerate(worker.packets):
        slot = buffer.wait_for_packet(number, filled, df)
        df.owe(worker.page_ns * packet.pages)
        _send(packet, slot, fabric, df)
        buffer.advance(number, buffer.popped, df)
    _wait_for(worker.end, df)
    if fabric is not None:
        fabric.close()
    df.noc_async_write_barrier()
    for word in (buffer.pushed, buffer.summed):
        df.store(word, bytes(4))


def _send(packet: PacketOp, address: int, fabric: FabricSender | None, df: Dataflow) -> None:
    """Send a packet into the fabric, write it to this chip, or both; then wait until the bytes have left."""
    if packet.route is not None and packet.target is not None:
        assert fabric is not None
        target = write_to(packet.target.core, packet.target.address)
        if packet.signal is not None:
            target = write_and_increment(*packet.target, *packet.signal)
        fabric.send(packet.route, target, address, packet.nbytes)
    if packet.local is not None:
        df.noc_async_write(address, packet.local, packet.nbytes)
    df.noc_async_writes_flushed()
    if packet.local_signal is not None:
        df.noc_async_write_barrier()
        df.noc_semaphore_inc(packet.local_signal, 1)


def _until_missing(batch: Sequence[PacketOp], df: Dataflow) -> int:
    """Wait until the first packet of a batch may be read.

    Returns:
        The number of leading packets that may be read.
    """
    _wait_for(batch[0].after, df)
    for count, packet in enumerate(batch):
        if not all(_has_reached(df, word, value) for word, value in packet.after):
            return count
    return len(batch)


def _wait_for(conditions: Sequence[Until], df: Dataflow) -> None:
    for word, value in conditions:
        df.wait_until(partial(_has_reached, df, word, value), f"the semaphore at 0x{word:x} to be {value} or more")


def _has_reached(df: Dataflow, word: int, value: int) -> bool:
    """Whether a word that counts up modulo 2**32 has reached a value."""
    return not df.peek_word(word) - value & SIGN
