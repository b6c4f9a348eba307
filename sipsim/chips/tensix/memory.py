"""Memory of one tile: bytes, callbacks of waiting tasks, and the ranges from which a transmission still reads."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable

from sipsim.core.errors import KernelMisuse, MemoryAccessError, SourceReused
from sipsim.core.paged_bytes import PagedBytes
from sipsim.core.units import format_exact_time_ps

PAGE_BYTES = 2**16
ZEROS = bytes(PAGE_BYTES)
"""A page of zeros; a comparison with it is much faster than ``any``."""
NEVER_PS = 2**62
ATOMIC_BYTES = 4
"""Word of semaphores in bytes: the size of an increment, and of a write that signals."""
Ps = int
Note = Callable[[str], None]
"""Callback after a write; the argument is the writer's name."""
FAR_END = "the far end of its link"
"""The writer's name for bytes that arrive over the link."""


class Pin:
    """Range that ``reader`` reads, so that no write may change it before ``until_ps``; NEVER_PS if unknown."""

    __slots__ = ("end", "first", "reader", "until_ps")

    def __init__(self, first: int, end: int, reader: str) -> None:
        self.first = first
        self.end = end
        self.reader = reader
        self.until_ps: Ps = NEVER_PS


class TileMemory:
    """Memory of one tile: ``nbytes`` bytes, initially 0. ``name``: the memory's name in messages. ``floor``: first
    address of programs; the memory below is the firmware's, and nothing writes there.

    ``on_write``: callbacks after each write. ``reserved``: addresses of a router, which no packet may write, except its
    termination word at ``signal_at``. ``last_arrival``: first address of the last message that arrived over the link,
    -1 before any message; ``last_origin``: of this message, if it was a packet of a fabric. ``arriving``: addresses of
    the message's bytes that are still to arrive. ``refresh()`` sets the statistics in ``reserved`` with :meth:`put`
    before a read, so that they take no time while nobody reads.
    """

    def __init__(self, name: str, nbytes: int, floor: int = 0) -> None:
        self.name = name
        self.floor = floor
        self.nbytes = nbytes
        self._bytes = PagedBytes(nbytes, PAGE_BYTES)
        self._pins: deque[Pin] = deque()
        self.reserved = self.statistics = range(0)
        self.signal_at = -1
        self.refresh: Callable[[], None] | None = None
        self.last_arrival = -1
        self.last_origin: tuple[int, int, int, int] | None = None
        self.arriving = range(0)
        self.on_write: list[Callable[[], None]] = []
        self._watched: list[int] = []
        self._notes: dict[int, Note] = {}

    def read(self, address: int, nbytes: int) -> bytes:
        """Return a copy of the bytes of a range.

        Raises:
            MemoryAccessError: for a range outside of the memory.
        """
        if address < 0 or nbytes < 0 or address + nbytes > self.nbytes:
            self.check(address, nbytes)
        if self.refresh is not None and self.statistics.start <= address < self.statistics.stop:
            self.refresh()
        return self._bytes.read(address, nbytes)

    def get(self, address: int, nbytes: int) -> bytes:
        """Return the bytes of a range as they are, without :attr:`refresh`."""
        return self._bytes.read(address, nbytes)

    def put(self, address: int, data: bytes) -> None:
        """Set bytes without a notice to watches and waiting tasks."""
        self._bytes.write(address, data)

    def write(self, address: int, data: bytes | memoryview, now_ps: Ps, writer: str) -> None:
        """Write bytes, and notify the watches of the range and all waiting tasks.

        Raises:
            MemoryAccessError: for a range outside of the memory or in the firmware's part.
            SourceReused: for a range from which a transmission still reads.
        """
        self.check_write(address, len(data), now_ps, writer)
        self._bytes.write(address, data)
        watched = self._watched
        first = bisect_left(watched, address)
        for each in watched[first : bisect_left(watched, address + len(data), first)]:
            self._notes[each](writer)
        for look in tuple(self.on_write):
            look()

    def watch(self, address: int, note: Note) -> None:
        """Call ``note(writer)`` at each write that covers ``address``, before waiting tasks poll."""
        insort(self._watched, address)
        self._notes[address] = note

    def unwatch(self, address: int) -> None:
        """End the watch of an address."""
        self._watched.remove(address)
        del self._notes[address]

    def clear(self, address: int, nbytes: int) -> None:
        """Set a range to 0, to remove bytes of earlier programs. Watches and waiting tasks are not notified."""
        self._bytes.write(address, bytes(nbytes))

    def check_write(self, address: int, nbytes: int, now_ps: Ps, writer: str) -> None:
        """Check that a range may be written now.

        Raises:
            MemoryAccessError: for a range outside of the memory or in the firmware's part.
            SourceReused: for a range from which a transmission still reads.
        """
        self.check_target(address, nbytes, writer)
        if self._pins:
            self._check_pins(address, nbytes, now_ps, writer)

    def check_target(self, address: int, nbytes: int, writer: str) -> None:
        """Check that a command may write to a range when the command arrives.

        Raises:
            MemoryAccessError: for a range outside of the memory or in the firmware's part.
        """
        self.check(address, nbytes)
        if address < self.floor:
            raise MemoryAccessError(
                f"{writer} writes {nbytes} B at 0x{address:x} of {self.name}, where the firmware is; give an address "
                f"from 0x{self.floor:x} on, where the memory of programs begins, such as one from tt.l1_base"
            )

    def pin(self, address: int, nbytes: int, reader: str, now_ps: Ps) -> Pin:
        """Forbid writes into a range, and return the pin, whose ``until_ps`` the reader sets."""
        self._drop_pins(now_ps)
        pin = Pin(address, address + nbytes, reader)
        self._pins.append(pin)
        return pin

    def word(self, address: int) -> int:
        """Return the 32-bit word at an address."""
        return int.from_bytes(self.read(address, ATOMIC_BYTES), "little")

    def check(self, address: int, nbytes: int) -> None:
        """Check that a range is inside the memory.

        Raises:
            MemoryAccessError: if the range is not inside.
        """
        if address < 0 or nbytes < 0 or address + nbytes > self.nbytes:
            raise MemoryAccessError(f"{nbytes} B at 0x{address:x} are outside of {self.name} ({self.nbytes} B)")

    def check_whole(self, address: int, nbytes: int, reader: str) -> None:
        """Check that a range has no bytes of a message whose first bytes have arrived, and the range's have not.

        Raises:
            KernelMisuse: if the range has such bytes.
        """
        arriving = self.arriving
        if address < arriving.stop and arriving.start < address + nbytes:
            raise KernelMisuse(
                f"{reader} reads {nbytes} B at 0x{address:x} of {self.name}, and bytes from 0x{arriving.start:x} on "
                "are still to arrive in a message whose first bytes are here; wait for a word at the end of the message"
            )

    def is_reserved(self, address: int, nbytes: int) -> bool:
        """Whether a range overlaps the addresses of a router. The word for its termination signal is open to all."""
        overlaps = address < self.reserved.stop and self.reserved.start < address + nbytes
        return overlaps and not (address == self.signal_at and nbytes == ATOMIC_BYTES)

    def pages(self) -> list[tuple[int, bytes]]:
        """Return the number and the bytes of each page that is not all 0, in order, for digests."""
        return [(page, bytes(data)) for page, data in sorted(self._bytes.pages.items()) if data != ZEROS]

    def _drop_pins(self, now_ps: Ps) -> None:
        pins = self._pins
        while pins and pins[0].until_ps <= now_ps:
            pins.popleft()

    def _check_pins(self, address: int, nbytes: int, now_ps: Ps, writer: str) -> None:
        self._drop_pins(now_ps)
        for pin in self._pins:
            if pin.first < address + nbytes and address < pin.end and now_ps < pin.until_ps:
                until = f" until {format_exact_time_ps(pin.until_ps)}" if pin.until_ps < NEVER_PS else ""
                raise SourceReused(
                    f"{writer} writes {nbytes} bytes at 0x{address:x} of {self.name}, which {pin.reader} reads{until}; "
                    "wait for the receiver's acknowledgement (a worker: for the semaphore) before the next write"
                )
