"""The workers of an operation on one chip, one a link and side: their lists of packets, and their kernels.

A worker serves one link in one direction: its writer is connected to the router there, and what comes over that link
may raise its semaphores. Its kernels share a circular buffer: ``reader`` fills it, ``adder`` adds up what is in a place
of it, and ``writer`` empties it into the fabric. Each goes on with the next packet while the one behind it has this
one.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from sipsim.chips.tensix.ccl.tensors import BUFFER_BYTES, Piece, add
from sipsim.chips.tensix.dataflow import Dataflow, NocAddress
from sipsim.chips.tensix.fabric.channels import Ring
from sipsim.chips.tensix.fabric.connection import FabricEndpoint, FabricSender
from sipsim.chips.tensix.fabric.packet import (
    OPPOSITE,
    Route,
    Way,
    increment_of,
    multicast,
    unicast,
    write_and_increment,
    write_to,
)
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.params import CclParams
from sipsim.core.dtypes import DType

WORD_BYTES, LOCAL_BYTES, SHARED, LOCAL = 4, 16, 4, 3


class Words(NamedTuple):
    """Semaphores, by their address: the same in the L1 of every worker of an operation.

    ``ready``: chips that have begun; ``arrived``: chunks that are here for a relay; ``done``: sources all of whose data
    is here; ``partial``: chunks of the other worker of this chip. ``pushed``, ``summed`` and ``popped``: packets of the
    circular buffer, which all fabrics share, as the kernels of a chip's calls follow one another.
    """

    ready: int
    arrived: int
    done: int
    partial: int
    pushed: int
    summed: int
    popped: int

    @classmethod
    def at(cls, first: int, fabric: int) -> "Words":
        """Those of a fabric, from the address of all of them on. ``fabric``: a number that no other fabric of one of
        its chips has, as chips tell one another that they have begun while one of them is in a call on another fabric.
        """
        behind = first + LOCAL * LOCAL_BYTES + fabric * SHARED * WORD_BYTES
        ready, arrived, done, partial = (behind + number * WORD_BYTES for number in range(SHARED))
        local = (first + number * LOCAL_BYTES for number in range(LOCAL))
        return cls(ready, arrived, done, partial, *local)

    @property
    def end(self) -> int:
        """The address behind those of the fabric."""
        return self.partial + WORD_BYTES


class Until(NamedTuple):
    """Wait until a semaphore is ``value`` or more."""

    word: int
    value: int


class Packet(NamedTuple):
    """A packet to read, to add up, to send or to write. ``reads``: places whose bytes are added up.

    It is written to ``local``, and sent along ``route`` to ``target``. ``signal``: a semaphore there that is raised
    behind it and what was sent before it; ``told``: one of this chip, behind the local write.
    """

    pages: int
    nbytes: int
    reads: tuple[NocAddress, ...]
    after: tuple[Until, ...] = ()
    local: NocAddress | None = None
    route: Route | None = None
    target: NocAddress | None = None
    signal: NocAddress | None = None
    told: NocAddress | None = None


SIDES = (Way.E, Way.W)
STEP = {Way.E: 1, Way.W: -1}
Cut = Callable[[int], list[Piece]]
"""The pieces of a slice: its number to how it is cut, the same on all chips."""


class Place(NamedTuple):
    """Chip ``position`` of ``size`` in a line or ring. ``is_both``: packets of a ring go both ways, else forward."""

    position: int
    size: int
    is_ring: bool
    is_both: bool = True

    def reach(self, way: Way) -> int:
        """Chips that packets of this direction are for."""
        if not self.is_ring:
            return self.size - 1 - self.position if way is Way.E else self.position
        if not self.is_both:
            return self.size - 1 if way is Way.E else 0
        return self.size // 2

    def is_shared(self, hops: int) -> bool:
        """Whether the chip so far away is as far the other way, so that each carries half of what it gets."""
        return self.is_ring and self.is_both and 2 * hops == self.size

    def at(self, way: Way, hops: int) -> int:
        """The chip so many hops away."""
        return (self.position + STEP[way] * hops) % self.size


class Worker:
    """The worker of ``link`` on a side in one call: its list of packets, and what its kernels work with.

    ``counts``: what its semaphores were raised to by the calls before; it is for the caller to keep. ``hellos``: whom
    it tells that it has begun, with the semaphore there; ``begin``, ``end``: what it waits for before the first packet
    and behind the last.
    """

    endpoint: FabricEndpoint | None
    buffer: Ring
    dtype: DType
    operand_bytes: int
    launch_ns: float
    page_ns: float
    add_ns_per_byte: float
    batch: int

    def __init__(self, link: int, side: Way, core: Core, words: Words, counts: dict[int, int]) -> None:
        self.link = link
        self.side = side
        self.core = core
        self.words = words
        self._counts = counts
        self._new: dict[int, int] = {}
        self.hellos: list[tuple[Route, NocAddress]] = []
        self.begin: list[Until] = []
        self.packets: list[Packet] = []
        self.end: list[Until] = []

    def equip(self, ccl: CclParams, base: int, dtype: DType, endpoint: FabricEndpoint | None) -> None:
        """Give its kernels what they need besides packets: a circular buffer from ``base`` on, with room in a slot for
        the operands of a packet, costs, and the way into the fabric, if it has one.
        """
        operands = max((len(each.reads) for each in self.packets), default=1)
        slot_bytes = operands * ccl.packet_bytes
        slots = min(max(BUFFER_BYTES // slot_bytes, 1), ccl.buffer_packets)
        self.endpoint = endpoint
        self.buffer = Ring(base, slots, slot_bytes)
        self.dtype, self.operand_bytes, self.batch = dtype, ccl.packet_bytes, ccl.read_packets
        self.launch_ns, self.page_ns, self.add_ns_per_byte = ccl.launch_ns, ccl.page_ns, 1 / ccl.add_GBps

    @property
    def adds(self) -> bool:
        """Whether there is anything to add up."""
        return any(len(packet.reads) > 1 for packet in self.packets)

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do."""
        return not (self.hellos or self.packets)

    def address(self, word: int) -> NocAddress:
        """A semaphore of it, on whatever chip."""
        return NocAddress(self.core, word)

    def expect(self, word: int, count: int) -> Until:
        """So many more increments of a semaphore by this call, and the condition that they have come."""
        self._new[word] = self._new.get(word, 0) + count
        return self.until(word, self._new[word])

    def further(self, word: int, count: int) -> Until:
        """The condition that so many more have come than are expected up to now."""
        return self.until(word, self._new.get(word, 0) + count)

    def until(self, word: int, count: int) -> Until:
        """The condition that this call has raised a semaphore so far."""
        return Until(word, (self._counts.get(word, 0) + count) % 2**32)

    def settle(self) -> None:
        """The call's increments count as come."""
        for word, count in self._new.items():
            self._counts[word] = self._counts.get(word, 0) + count


class Crew(NamedTuple):
    """All workers of a call, by link and side. ``packet_bytes``: of the longest payload; ``fabric``: its number."""

    place: Place
    num_links: int
    packet_bytes: int
    fabric: int
    workers: dict[tuple[int, Way], Worker]

    def toward(self, worker: Worker, way: Way) -> Worker:
        """That to which packets of a direction are told when they have come: it is on the side from which they come."""
        return self.workers[worker.link, OPPOSITE[way]] if self.place.is_both else worker

    def share(self, pieces: Sequence[Piece], link: int) -> list[Piece]:
        """The pieces that go over a link."""
        return list(pieces[link :: self.num_links])

    def greet(self) -> None:
        """Each worker tells the chips on its side that it has begun, and waits until they have told it."""
        for worker in self.workers.values():
            reach = self.place.reach(worker.side)
            facing = self.toward(worker, worker.side)
            if reach:
                worker.hellos.append((multicast(1, reach, worker.side), facing.address(worker.words.ready)))
                worker.begin.append(worker.expect(worker.words.ready, reach))


def half(pieces: Sequence[Piece], side: Way) -> list[Piece]:
    """Of what both directions share, the part of one."""
    middle = (len(pieces) + 1) // 2
    return list(pieces[:middle] if side is Way.E else pieces[middle:])


def hop(way: Way) -> Route:
    """To the neighbour."""
    return unicast(1, way)


SIGN: Final = 0x80000000


def reader(worker: Worker, df: Dataflow) -> None:
    """Reads packets, ``batch`` at a time: a batch is in the buffer when its last byte is."""
    df.owe(worker.launch_ns)
    words, buffer, packets = worker.words, worker.buffer, worker.packets
    df.store(words.popped, bytes(4))
    done = 0
    while done < len(packets):
        batch = packets[done : done + min(worker.batch, buffer.slots)]
        _wait_for_room(worker, done + len(batch), df)
        count = _until_missing(batch, df)
        for number, packet in enumerate(batch[:count], done):
            at = buffer.address(number)
            for operand, place in enumerate(packet.reads):
                df.noc_async_read(place, at + operand * worker.operand_bytes, packet.nbytes)
        df.noc_async_read_barrier()
        done += count
        df.store(words.pushed, done.to_bytes(4, "little"))


def adder(worker: Worker, df: Dataflow) -> None:
    """Adds up the operands of each packet."""
    words, buffer = worker.words, worker.buffer
    for number, packet in enumerate(worker.packets):
        df.wait_until(partial(_is_more, df, words.pushed, number), "operands")
        if len(packet.reads) > 1:
            _add(worker, packet, buffer.address(number), df)
        df.store(words.summed, (number + 1).to_bytes(4, "little"))


def writer(worker: Worker, df: Dataflow) -> None:
    """Tells the other chips that it has begun, waits for them, and passes the packets on."""
    df.instructions(worker.launch_ns)
    words, buffer = worker.words, worker.buffer
    fabric = None
    if worker.endpoint is not None:
        fabric = FabricSender(worker.endpoint, df)
        fabric.open()
        for route, semaphore in worker.hellos:
            fabric.send(route, increment_of(semaphore.core, semaphore.address), 0, 0)
    _wait_for(worker.begin, df)
    filled = words.summed if worker.adds else words.pushed
    for number, packet in enumerate(worker.packets):
        df.wait_until(partial(_is_more, df, filled, number), "a page to pass on")
        df.owe(worker.page_ns * packet.pages)
        _pass_on(packet, buffer.address(number), fabric, df)
        df.store(words.popped, (number + 1).to_bytes(4, "little"))
    _wait_for(worker.end, df)
    if fabric is not None:
        fabric.close()
    df.noc_async_write_barrier()
    for word in (words.pushed, words.summed):
        df.store(word, bytes(4))


def _pass_on(packet: Packet, address: int, fabric: FabricSender | None, df: Dataflow) -> None:
    """Write it here, send it on, and wait until its bytes have left."""
    if packet.route is not None and packet.target is not None:
        assert fabric is not None
        target = write_to(packet.target.core, packet.target.address)
        if packet.signal is not None:
            target = write_and_increment(*packet.target, *packet.signal)
        fabric.send(packet.route, target, address, packet.nbytes)
    if packet.local is not None:
        df.noc_async_write(address, packet.local, packet.nbytes)
    df.noc_async_writes_flushed()
    if packet.told is not None:
        df.noc_async_write_barrier()
        df.noc_semaphore_inc(packet.told, 1)


def _add(worker: Worker, packet: Packet, address: int, df: Dataflow) -> None:
    """The sum of a packet's operands, in place of the first."""
    count, nbytes, stride = len(packet.reads), packet.nbytes, worker.operand_bytes
    parts = [df.peek(address + operand * stride, nbytes) for operand in range(count)]
    df.owe((count - 1) * nbytes * worker.add_ns_per_byte)
    df.put(address, add(worker.dtype, parts))


def _wait_for_room(worker: Worker, end: int, df: Dataflow) -> None:
    popped, least = worker.words.popped, end - worker.buffer.slots
    if least > 0:
        df.wait_until(lambda: df.peek_word(popped) >= least, "room in its buffer")


def _until_missing(batch: Sequence[Packet], df: Dataflow) -> int:
    """Wait for what the first packet needs.

    Returns:
        How many of the batch have come.
    """
    _wait_for(batch[0].after, df)
    for count, packet in enumerate(batch):
        if not all(_has_come(df, word, value) for word, value in packet.after):
            return count
    return len(batch)


def _wait_for(conditions: Sequence[Until], df: Dataflow) -> None:
    for word, value in conditions:
        df.wait_until(partial(_has_come, df, word, value), f"the semaphore at 0x{word:x} to be {value} or more")


def _is_more(df: Dataflow, word: int, number: int) -> bool:
    return df.peek_word(word) > number


def _has_come(df: Dataflow, word: int, value: int) -> bool:
    """Whether a word that only grows, and begins again behind 2**32 - 1, is at a value or behind it."""
    return not df.peek_word(word) - value & SIGN
