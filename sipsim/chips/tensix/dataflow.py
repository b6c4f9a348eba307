"""What a data movement kernel calls: NoC commands, semaphores, words of L1. Names are those of the CCL developer guide.

A kernel is a Python function whose last argument is one of these. Every call takes time of the processor that runs it
(``RiscParams``); commands that it starts go on by themselves. Addresses are those of an L1; a :class:`NocAddress` names
the tile too. Words are 32 bit, little-endian, as are semaphores.
"""

from collections.abc import Callable
from typing import NamedTuple

from sipsim.chips.tensix.memory import Note
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.processor import Looks, Processor
from sipsim.chips.tensix.tiles import ATOMIC_BYTES, TRANSACTION_IDS, Tiles
from sipsim.core.errors import KernelMisuse
from sipsim.core.units import PS_PER_NS, ns_to_ps

LONGEST_NS = 1e9
ACCESS_BYTES = 16
"""Of L1 by a load or a store."""


class NocAddress(NamedTuple):
    """An address of a tile, as ``get_noc_addr`` makes it."""

    core: Core
    address: int


class Dataflow:
    """The commands of one processor of a worker or of an Ethernet core."""

    def __init__(self, processor: Processor, tiles: Tiles) -> None:
        self._processor = processor
        self._tiles = tiles

    # --- addresses and words --------------------------------------------------------------------------------------

    @property
    def core(self) -> Core:
        """The tile that the kernel runs on."""
        return self._processor.core

    @staticmethod
    def get_noc_addr(x: int, y: int, address: int) -> NocAddress:
        """An address of the tile at ``x``, ``y``, in coordinates of NoC 0."""
        return NocAddress(Core(x, y), address)

    def read_word(self, address: int) -> int:
        """The word at an address of this L1; takes an access."""
        self._processor.spend(self._processor.l1_access_ps)
        return self._processor.memory.word(address)

    def peek_word(self, address: int) -> int:
        """The word at an address of this L1, without time: for :meth:`wait_until`, or beside a call that takes some."""
        return self._processor.memory.word(address)

    def write_word(self, address: int, value: int) -> None:
        """Set the word at an address of this L1; takes an access.

        Raises:
            KernelMisuse: for what is no word.
        """
        if type(value) is not int or not 0 <= value < 2**32:
            raise KernelMisuse(f"{self._processor.name}: a word is a whole number from 0 to 2**32 - 1, not {value!r}")
        self.write_bytes(address, value.to_bytes(ATOMIC_BYTES, "little"))

    def write_bytes(self, address: int, data: bytes) -> None:
        """Store bytes in this L1; takes an access for each 16 B."""
        processor = self._processor
        processor.memory.check_write(address, len(data), processor.engine.now_ps, processor.name)
        processor.spend(processor.l1_access_ps * _accesses(len(data)))
        processor.memory.write(address, data, processor.engine.now_ps, processor.name)

    def read_bytes(self, address: int, nbytes: int) -> bytes:
        """Bytes of this L1; takes an access for each 16 B."""
        self._processor.spend(self._processor.l1_access_ps * _accesses(nbytes))
        return self._processor.memory.read(address, nbytes)

    def peek(self, address: int, nbytes: int) -> bytes:
        """Bytes of this L1, in no time: for what :meth:`wait_until` asks, and for what other calls have paid."""
        return self._processor.memory.read(address, nbytes)

    def store(self, address: int, data: bytes) -> None:
        """As :meth:`write_bytes`, at once: the access takes its time with the next command or wait."""
        processor = self._processor
        processor.owed_ps += processor.l1_access_ps * _accesses(len(data))
        processor.memory.write(address, data, processor.engine.now_ps, processor.name)

    def put(self, address: int, data: bytes) -> None:
        """Store bytes in this L1, in no time: for what other calls have paid."""
        processor = self._processor
        processor.memory.write(address, data, processor.engine.now_ps, processor.name)

    # --- the NoC --------------------------------------------------------------------------------------------------

    def noc_async_write(self, source: int, destination: NocAddress, nbytes: int) -> None:
        """Start to write ``nbytes`` of this L1 to a tile: a command for each packet of the NoC, whose bytes are taken
        when it has been issued.
        """
        for done, part in self._packets(nbytes):
            self._issue()
            self._tiles.write(self._processor, source + done, destination.core, destination.address + done, part)

    def noc_async_write_one_packet_with_trid(
        self, source: int, destination: NocAddress, nbytes: int, transaction_id: int
    ) -> None:
        """As :meth:`noc_async_write`, with a transaction id that :meth:`are_writes_sent` is asked about."""
        self._check_transaction_id(transaction_id)
        if len(self._packets(nbytes)) > 1:
            most = self._tiles.packet_bytes
            raise KernelMisuse(f"{self._processor.name}: a packet of the NoC has {most} B at most, not {nbytes}")
        self._issue()
        self._tiles.write(self._processor, source, destination.core, destination.address, nbytes, transaction_id)

    def are_writes_sent(self, transaction_id: int) -> bool:
        """Whether the bytes of all writes of a transaction id have left this L1. Takes no time: for
        :meth:`wait_until`, or beside a call that does.
        """
        self._check_transaction_id(transaction_id)
        return not self._processor.unsent[transaction_id]

    def noc_async_read(self, source: NocAddress, destination: int, nbytes: int) -> None:
        """Start to read ``nbytes`` of a tile into this L1: a command for each packet of the NoC."""
        for done, part in self._packets(nbytes):
            self._issue()
            self._tiles.read(self._processor, source.core, source.address + done, destination + done, part)

    def noc_semaphore_inc(self, semaphore: NocAddress, increment: int) -> None:
        """Start to add to a word of a tile. It comes there behind the writes that were started before it.

        Raises:
            KernelMisuse: for what is no whole number.
        """
        if type(increment) is not int:
            raise KernelMisuse(f"{self._processor.name}: an increment is a whole number, not {increment!r}")
        self._issue()
        self._tiles.increment(self._processor, semaphore.core, semaphore.address, increment)

    def noc_async_writes_flushed(self) -> None:
        """Wait until the bytes of all writes have left this L1, as far as no other processor's were on their way."""
        processor = self._processor
        processor.spend_until(processor.flushed_ps, "its writes to leave")

    def noc_async_write_barrier(self) -> None:
        """Wait until all writes have arrived, and have been acknowledged."""
        processor = self._processor
        if processor.writes:
            self._wait(lambda: not processor.writes, "its writes to arrive", processor.on_arrival)
        processor.spend_until(processor.acked_ps, "an acknowledgement")

    def noc_async_read_barrier(self) -> None:
        """Wait until the bytes of all reads are here."""
        processor = self._processor
        if processor.reads:
            self._wait(lambda: not processor.reads, "its reads", processor.on_arrival)

    def noc_semaphore_set(self, address: int, value: int) -> None:
        """Set a semaphore in this L1."""
        self.write_word(address, value)

    def noc_semaphore_wait(self, address: int, value: int) -> None:
        """Wait until a semaphore in this L1 is ``value``."""
        memory = self._processor.memory
        self.wait_until(lambda: memory.word(address) == value, f"the semaphore at 0x{address:x} to be {value}")

    def noc_semaphore_wait_min(self, address: int, value: int) -> None:
        """Wait until a semaphore in this L1 is ``value`` or more."""
        memory = self._processor.memory
        self.wait_until(lambda: memory.word(address) >= value, f"the semaphore at 0x{address:x} to be {value} or more")

    # --- time -----------------------------------------------------------------------------------------------------

    def wait_until(self, is_so: Callable[[], bool], what: object) -> int:
        """Look until ``is_so()``, which reads words of this L1 without taking time; ``what``: for a deadlock's report.

        As a loop around a look that takes ``poll_ns``, but looks that find nothing cost no event.

        Returns:
            The number of looks.
        """
        return self._wait(is_so, what, self._processor.memory.on_write)

    def look_in_vain(self, looks: int) -> None:
        """Looks that find nothing: their time passes with the next command or wait."""
        self._processor.owed_ps += looks * self._processor.poll_ps

    def instructions(self, ns: float) -> None:
        """Spend ``ns`` on instructions that are no calls of these.

        Raises:
            KernelMisuse: for less than 0, or no number.
        """
        if not 0 <= ns < LONGEST_NS:
            raise KernelMisuse(f"{self._processor.name}: instructions take from 0 to {LONGEST_NS:g} ns, not {ns!r}")
        self._processor.spend(ns_to_ps(ns))

    def spend_until(self, ns: float) -> None:
        """Spend what is left up to a time on instructions."""
        self._processor.spend_until(ns_to_ps(ns), "a time")

    def owe(self, ns: float) -> None:
        """As :meth:`instructions`, but their time passes with the next command or wait."""
        self._processor.owed_ps += ns_to_ps(ns)

    def owe_noc_command(self) -> None:
        """A NoC command of a word, whose effect another call has: its time passes with the next command or wait."""
        self._processor.owed_ps += self._processor.noc_command_ps

    def watch(self, address: int, note: Note) -> None:
        """Call ``note(writer)`` at each write that covers ``address`` of this L1."""
        self._processor.memory.watch(address, note)

    def unwatch(self, address: int) -> None:
        """End the watch of an address."""
        self._processor.memory.unwatch(address)

    def get_timestamp_ns(self) -> float:
        """The time now; reading it takes ``timer_ns``."""
        self._processor.spend(self._processor.timer_ps)
        return self._processor.engine.now_ps / PS_PER_NS

    def _check_transaction_id(self, transaction_id: int) -> None:
        if not 0 <= transaction_id < TRANSACTION_IDS:
            most = TRANSACTION_IDS - 1
            raise KernelMisuse(f"{self._processor.name}: there is no transaction id {transaction_id}; 0 to {most}")

    def _wait(self, is_so: Callable[[], bool], what: object, looks: Looks) -> int:
        return self._processor.wait_until(is_so, what, looks)

    def _packets(self, nbytes: int) -> list[tuple[int, int]]:
        """Where each packet begins, and its size."""
        if nbytes < 1:
            raise KernelMisuse(f"{self._processor.name}: a NoC command moves a byte or more, not {nbytes}")
        most = self._tiles.packet_bytes
        return [(done, min(most, nbytes - done)) for done in range(0, nbytes, most)]

    def _issue(self) -> None:
        self._processor.spend(self._processor.noc_command_ps)


def _accesses(nbytes: int) -> int:
    return max(-(-nbytes // ACCESS_BYTES), 1)
