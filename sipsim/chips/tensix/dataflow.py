"""Calls of a data movement kernel: NoC commands, semaphores, words of L1. Names are as in the CCL developer guide.

A kernel is a Python function whose last argument is a :class:`Dataflow`. Every call takes time of the processor that
runs the kernel (``RiscParams``); the NoC executes commands while the kernel continues. Plain addresses are in the
kernel's L1; a :class:`NocAddress` also contains the tile. Words and semaphores have 32 bits and are little-endian.
"""

from collections.abc import Callable
from typing import NamedTuple, NoReturn

from sipsim.chips.tensix.formats import Format
from sipsim.chips.tensix.memory import ATOMIC_BYTES, TileMemory
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.processor import NOC, POLLS, Looks, Processor
from sipsim.chips.tensix.tiles import TRANSACTION_IDS, Tiles
from sipsim.core.errors import KernelMisuse
from sipsim.core.units import PS_PER_NS, ns_to_ps

LONGEST_NS = 1e9
ACCESS_BYTES = 16
"""Bytes of L1 that one load or store accesses."""


class NocAddress(NamedTuple):
    """Address of the NoC: a tile, and an address in the tile's memory; made by ``get_noc_addr``."""

    core: Core
    address: int


class NocMulticastAddress(NamedTuple):
    """Address of the NoC in all Tensix tiles of a rectangle; made by ``get_noc_multicast_addr``."""

    first: Core
    last: Core
    address: int

    @property
    def core(self) -> NoReturn:
        """No tile: calls for one tile ask for it.

        Raises:
            KernelMisuse: always.
        """
        what = f"an address of tiles {self.first} to {self.last} in a call for one tile"
        raise KernelMisuse(f"{what}; give what get_noc_addr returns, or call a multicast")


class Dataflow:
    """Commands of a processor of a worker or Ethernet core. ``memory``: the tile's L1, which library kernels watch."""

    def __init__(self, processor: Processor, tiles: Tiles) -> None:
        self._processor = processor
        self.memory: TileMemory = processor.memory
        self._tiles = tiles
        self._idle_ps = 0
        """Time of each poll that finds nothing, besides the poll's own."""

    # --- addresses and words --------------------------------------------------------------------------------------

    @property
    def core(self) -> Core:
        """The tile of the kernel."""
        return self._processor.core

    @staticmethod
    def get_noc_addr(x: int, y: int, address: int) -> NocAddress:
        """Return an address of the tile at ``x``, ``y``, in coordinates of NoC 0."""
        return NocAddress(Core(x, y), address)

    @staticmethod
    def get_noc_multicast_addr(x_start: int, y_start: int, x_end: int, y_end: int, address: int) -> NocMulticastAddress:
        """Return an address of the Tensix tiles of a rectangle, from the upper left tile to the lower right one, in
        coordinates of NoC 0. Tiles of other kinds in the rectangle opt out.
        """
        return NocMulticastAddress(Core(x_start, y_start), Core(x_end, y_end), address)

    def read_word(self, address: int) -> int:
        """Return the word at an address of this L1. Takes the time of one access.

        Raises:
            KernelMisuse: for an address that is no multiple of 4.
        """
        self._check_word(address)
        self._processor.spend(self._processor.l1_access_ps)
        return self._processor.memory.word(address)

    def peek_word(self, address: int) -> int:
        """Return a word of this L1 in no time, for use in :meth:`wait_until` or next to a call that takes the time."""
        return self._processor.memory.word(address)

    def write_word(self, address: int, value: int) -> None:
        """Set the word at an address of this L1. Takes the time of one access.

        Raises:
            KernelMisuse: if the value is not in 0 to 2**32 - 1, or the address is no multiple of 4.
        """
        self._check_word(address)
        if type(value) is not int or not 0 <= value < 2**32:
            raise KernelMisuse(f"{self._processor.name}: a word is a whole number from 0 to 2**32 - 1, not {value!r}")
        self.write_bytes(address, value.to_bytes(ATOMIC_BYTES, "little"))

    def write_bytes(self, address: int, data: bytes) -> None:
        """Store bytes in this L1. Takes the time of one access per 16 B."""
        processor = self._processor
        processor.memory.check_write(address, len(data), processor.engine.now_ps, processor.name)
        jitter = self._tiles.jitter
        late_ps = 0 if jitter is None else jitter.store_delay_ps(processor.name)
        processor.spend(processor.l1_access_ps * _accesses(len(data)) + late_ps)
        self._tiles.store(processor.core, address, data, processor.name)

    def read_bytes(self, address: int, nbytes: int) -> bytes:
        """Return bytes of this L1. Takes the time of one access per 16 B.

        Raises:
            KernelMisuse: for more than 16 B, of which some are still to arrive in a message over the link.
        """
        if nbytes > ACCESS_BYTES:
            self._processor.memory.check_whole(address, nbytes, self._processor.name)
        self._processor.spend(self._processor.l1_access_ps * _accesses(nbytes))
        return self._processor.memory.read(address, nbytes)

    def peek(self, address: int, nbytes: int) -> bytes:
        """Return bytes of this L1 in no time, for use in :meth:`wait_until` or if another call takes the time."""
        return self._processor.memory.read(address, nbytes)

    def store(self, address: int, data: bytes) -> None:
        """Store bytes in this L1 now; the time of the accesses is spent with the next command or wait."""
        self._processor.owe(self._processor.l1_access_ps * _accesses(len(data)))
        self._tiles.store(self._processor.core, address, data, self._processor.name)

    def put_sum(self, address: int, dtype: Format, nbytes: int, stride: int, operands: int) -> None:
        """Replace the first of several operands in this L1, ``stride`` bytes apart, by their sum, in no time."""
        processor, replay = self._processor, self._tiles.log.replay
        parts = [processor.memory.read(address + number * stride, nbytes) for number in range(operands)]
        processor.memory.write(address, dtype.add(parts), processor.engine.now_ps, processor.name)
        if replay is not None:
            replay.added(processor.core, processor.memory, address, dtype.name, nbytes, stride, operands)

    # --- the NoC --------------------------------------------------------------------------------------------------

    def noc_async_write(self, source: int, destination: NocAddress, nbytes: int) -> None:
        """Start to write ``nbytes`` of this L1 to a tile, with one command per NoC packet. The bytes of a packet are
        copied when the packet's command has been issued, or, with jitter, when the packet leaves.
        """
        for done, part in self._packets(nbytes):
            self._issue()
            self._tiles.write(self._processor, source + done, destination.core, destination.address + done, part)

    def noc_async_write_multicast(
        self, source: int, destination: NocMulticastAddress, nbytes: int, num_dests: int
    ) -> None:
        """Start to write ``nbytes`` of this L1 to each Tensix tile of a rectangle but this one, with one command per
        NoC packet. ``num_dests``: the number of these tiles. A packet uses each link of its way once. Multicasts to the
        same tiles arrive in order; a multicast and another command may arrive in either order.

        Raises:
            KernelMisuse: for a rectangle whose corners are no Tensix tiles, or another number of tiles.
        """
        self._multicast("noc_async_write_multicast", source, destination, nbytes, num_dests, is_looped=False)

    def noc_async_write_multicast_loopback_src(
        self, source: int, destination: NocMulticastAddress, nbytes: int, num_dests: int
    ) -> None:
        """Start to write as :meth:`noc_async_write_multicast` does, also to this tile if the rectangle contains it;
        ``num_dests`` counts this tile then.

        Raises:
            KernelMisuse: as for :meth:`noc_async_write_multicast`, and for a rectangle of this tile alone.
        """
        name = "noc_async_write_multicast_loopback_src"
        self._multicast(name, source, destination, nbytes, num_dests, is_looped=True)

    def noc_semaphore_set_multicast(self, source: int, destination: NocMulticastAddress, num_dests: int) -> None:
        """Start to write the word at ``source`` of this L1 to a semaphore of each Tensix tile of a rectangle but this
        one, behind earlier multicasts to the same tiles. ``num_dests``: as for :meth:`noc_async_write_multicast`.

        Raises:
            KernelMisuse: as for :meth:`noc_async_write_multicast`, and for an address that is no multiple of 4.
        """
        self._multicast(
            "noc_semaphore_set_multicast", source, destination, ATOMIC_BYTES, num_dests, is_looped=False, is_word=True
        )

    def noc_semaphore_set_multicast_loopback_src(
        self, source: int, destination: NocMulticastAddress, num_dests: int
    ) -> None:
        """Start to write as :meth:`noc_semaphore_set_multicast` does, also to this tile if the rectangle contains it;
        ``num_dests`` counts this tile then.

        Raises:
            KernelMisuse: as for :meth:`noc_semaphore_set_multicast`, and for a rectangle of this tile alone.
        """
        name = "noc_semaphore_set_multicast_loopback_src"
        self._multicast(name, source, destination, ATOMIC_BYTES, num_dests, is_looped=True, is_word=True)

    def noc_async_write_copy(self, source: int, destination: NocAddress, nbytes: int) -> None:
        """Start to write as :meth:`noc_async_write` does, for library kernels: the bytes are copied when the packet's
        command has been issued, with jitter, too, as if each command had a buffer of its own.
        """
        for done, part in self._packets(nbytes):
            self._issue()
            to = destination.address + done
            self._tiles.write(self._processor, source + done, destination.core, to, part, is_copy=True)

    def noc_async_write_one_packet_with_trid(
        self, source: int, destination: NocAddress, nbytes: int, transaction_id: int
    ) -> None:
        """Start to write one NoC packet, with a transaction id for :meth:`are_writes_sent`.

        Raises:
            KernelMisuse: for an unknown transaction id, or more bytes than a packet may contain.
        """
        self._check_transaction_id(transaction_id)
        if len(self._packets(nbytes)) > 1:
            limit = self._tiles.packet_bytes
            raise KernelMisuse(f"{self._processor.name}: a packet of the NoC has at most {limit} B, not {nbytes} B")
        self._issue()
        self._tiles.write(self._processor, source, destination.core, destination.address, nbytes, transaction_id)

    def are_writes_sent(self, transaction_id: int) -> bool:
        """Whether the bytes of all writes of a transaction id have left this L1. The call takes no time, so use this
        method in :meth:`wait_until` or next to a call that takes time.
        """
        self._check_transaction_id(transaction_id)
        return not self._processor.unsent[transaction_id]

    def noc_async_read(self, source: NocAddress, destination: int, nbytes: int) -> None:
        """Start to read ``nbytes`` of a tile into this L1, with one command per NoC packet."""
        for done, part in self._packets(nbytes):
            self._issue()
            self._tiles.read(self._processor, source.core, source.address + done, destination + done, part)

    def noc_semaphore_inc(self, semaphore: NocAddress, increment: int) -> None:
        """Start to add ``increment`` to a word of a tile. The increment arrives after all writes started earlier.

        Raises:
            KernelMisuse: if the increment is not a whole number, or the address is no multiple of 4.
        """
        self._check_word(semaphore.address)
        if type(increment) is not int:
            raise KernelMisuse(f"{self._processor.name}: an increment is a whole number, not {increment!r}")
        self._issue()
        self._tiles.increment(self._processor, semaphore.core, semaphore.address, increment)

    def noc_async_writes_flushed(self) -> None:
        """Wait until the bytes of all writes have left this L1; the departure time is computed for an idle NoC."""
        processor = self._processor
        processor.spend_until(processor.flushed_ps, "its writes to leave", NOC)

    def noc_async_write_barrier(self) -> None:
        """Wait until all writes have arrived and have been acknowledged."""
        processor = self._processor
        if processor.writes:
            self._wait(lambda: not processor.writes, "its writes to arrive", processor.on_arrival, NOC)
        late_ps = processor.acked_ps - processor.engine.now_ps
        if self._idle_ps and late_ps > 0:
            period_ps = processor.poll_ps + self._idle_ps
            processor.spend(-(-late_ps // period_ps) * period_ps, "an acknowledgement", NOC)
        else:
            processor.spend_until(processor.acked_ps, "an acknowledgement", NOC)

    def noc_async_read_barrier(self) -> None:
        """Wait until the bytes of all reads are in this L1."""
        processor = self._processor
        if processor.reads:
            self._wait(lambda: not processor.reads, "its reads", processor.on_arrival, NOC)

    def noc_semaphore_set(self, address: int, value: int) -> None:
        """Set a semaphore in this L1."""
        self.write_word(address, value)

    def noc_semaphore_wait(self, address: int, value: int) -> None:
        """Wait until a semaphore in this L1 equals ``value``.

        Raises:
            KernelMisuse: for an address that is no multiple of 4.
        """
        self._check_word(address)
        memory = self._processor.memory
        self.wait_until(lambda: memory.word(address) == value, f"the semaphore at 0x{address:x} to be {value}")

    def noc_semaphore_wait_min(self, address: int, value: int) -> None:
        """Wait until a semaphore in this L1 is ``value`` or more.

        Raises:
            KernelMisuse: for an address that is no multiple of 4.
        """
        self._check_word(address)
        memory = self._processor.memory
        self.wait_until(lambda: memory.word(address) >= value, f"the semaphore at 0x{address:x} to be {value} or more")

    # --- time -----------------------------------------------------------------------------------------------------

    def wait_until(self, is_so: Callable[[], bool], what: object) -> int:
        """Poll until ``is_so()``, which reads words of this L1 in no time, is true. ``what``: name of the wait, for the
        report of a deadlock. Each poll takes ``poll_ns``; polls that find nothing need no simulation event.

        Returns:
            The number of polls.
        """
        return self._wait(is_so, what, self._processor.memory.on_write)

    def owe_polls(self, polls: int) -> None:
        """Add the time of ``polls`` polls that find nothing to the time that the next command or wait spends."""
        self._processor.owe(polls * self._processor.poll_ps, POLLS)

    def instructions(self, ns: float) -> None:
        """Spend ``ns`` on the kernel's other instructions.

        Raises:
            KernelMisuse: if ``ns`` is less than 0 or not a number.
        """
        if not 0 <= ns < LONGEST_NS:
            raise KernelMisuse(f"{self._processor.name}: instructions take from 0 to {LONGEST_NS:g} ns, not {ns!r}")
        self._processor.spend(ns_to_ps(ns))

    def spend_until(self, ns: float) -> None:
        """Spend the time until simulated time ``ns`` on instructions."""
        self._processor.spend_until(ns_to_ps(ns), "a time")

    def owe(self, ns: float) -> None:
        """Add ``ns`` for instructions to the time that the next command or wait spends."""
        self._processor.owe(ns_to_ps(ns))

    def owe_noc_command(self) -> None:
        """Add the time of a NoC command without effect to the time that the next command or wait spends."""
        self._processor.owe(self._processor.noc_command_ps)

    def get_timestamp_ns(self) -> float:
        """Return the simulated time in ns. The call takes ``timer_ns``."""
        self._processor.spend(self._processor.timer_ps)
        return self._processor.engine.now_ps / PS_PER_NS

    def _check_word(self, address: int) -> None:
        if address % ATOMIC_BYTES:
            what = f"{self._processor.name}: 0x{address:x} is no address of a word or semaphore"
            raise KernelMisuse(f"{what}; give a multiple of {ATOMIC_BYTES} B")

    def _check_transaction_id(self, transaction_id: int) -> None:
        if not 0 <= transaction_id < TRANSACTION_IDS:
            last = TRANSACTION_IDS - 1
            raise KernelMisuse(f"{self._processor.name}: transaction id {transaction_id} is not in 0 to {last}")

    def _multicast(
        self,
        name: str,
        source: int,
        destination: object,
        nbytes: int,
        num_dests: int,
        is_looped: bool,
        is_word: bool = False,
    ) -> None:
        if not isinstance(destination, NocMulticastAddress):
            what = f"{self._processor.name}: {name} to {destination!r}"
            raise KernelMisuse(f"{what}; give what get_noc_multicast_addr returns")
        if is_word:
            self._check_word(source)
            self._check_word(destination.address)
        try:
            inside = self._tiles.receivers(destination.first, destination.last)
        except KernelMisuse as misuse:
            raise KernelMisuse(f"{self._processor.name}: {name}: {misuse}") from None
        cores = tuple(core for core in inside if is_looped or core != self.core)
        what = f"{self._processor.name}: {name} to tiles {destination.first} to {destination.last}"
        if not cores or cores == (self.core,):
            raise KernelMisuse(f"{what}: no other Tensix tile is there; use noc_async_write")
        if num_dests != len(cores):
            counted = "with" if is_looped else "without"
            counts = f"num_dests={num_dests!r}, but {len(cores)} Tensix tiles are there, {counted} the source's own"
            raise KernelMisuse(f"{what}: {counts}; give num_dests={len(cores)}")
        for done, part in self._packets(nbytes):
            self._issue()
            self._tiles.multicast(self._processor, source + done, cores, destination.address + done, part)

    def _wait(self, is_so: Callable[[], bool], what: object, looks: Looks, kind: str = POLLS) -> int:
        return self._processor.wait_until(is_so, what, looks, kind, self._idle_ps)

    def _packets(self, nbytes: int) -> list[tuple[int, int]]:
        """Return the offset and the size of each packet of the NoC."""
        if nbytes < 1:
            raise KernelMisuse(f"{self._processor.name}: a NoC command moves 1 B or more, not {nbytes} B")
        limit = self._tiles.packet_bytes
        return [(done, min(limit, nbytes - done)) for done in range(0, nbytes, limit)]

    def _issue(self) -> None:
        self._processor.spend(self._processor.noc_command_ps)


def _accesses(nbytes: int) -> int:
    return max(-(-nbytes // ACCESS_BYTES), 1)
