"""Memory contents of one SIP: every TCM, HBM slice and SRAM in one physically addressed store, without timing."""

from collections.abc import Callable, Iterator
from typing import Protocol

from sipsim.chips.ahbm.address import OFFSET_BITS, Block, PhysAddr
from sipsim.core.errors import MemoryAccessError
from sipsim.core.paged_bytes import PagedBytes
from sipsim.records.oplog import OpLog, record_kind, values_as_text

PAGE_BYTES = 2**14
"""Bytes of a page; a new page is filled with zeros, even if a shard or a ring needs less."""
_OFFSET_MASK = (1 << OFFSET_BITS) - 1


class HostWrites(Protocol):
    """Listener that is called while the host writes to memories."""

    def host_wrote(self, address: int, data: bytes | memoryview) -> None:
        """Take a write of :meth:`MemoryStore.write_from_host`."""

    def host_cleared(self, address: int, nbytes: int) -> None:
        """Take a call of :meth:`MemoryStore.clear`."""


class MemoryStore:
    """All memories of SIP ``sip``. ``capacities``: bytes by space. ``of_cube``: spaces with one memory per cube.

    PE_DMA and PE_IPCQ time the accesses. Pages are created at their first write; bytes that were never written read as
    zero. ``listeners``: notified of the host's writes. ``place``: format of the name of a PE.
    """

    place = "cube {} PE {}"

    def __init__(self, sip: int, capacities: dict[str, int], of_cube: frozenset[str] = frozenset()) -> None:
        self._sip = sip
        self._capacities = capacities
        self._of_cube = of_cube
        self._banks: dict[int, PagedBytes] = {}
        self._first: dict[int, int] = {}
        self.listeners: list[HostWrites] = []

    def read(self, address: int, nbytes: int) -> bytes:
        """Return a copy of ``nbytes`` at a physical address.

        Raises:
            MemoryAccessError: for addresses outside this SIP or the memory.
        """
        bank, offset = self._find(address, nbytes)
        page, start = divmod(offset, PAGE_BYTES)
        if start + nbytes <= PAGE_BYTES:
            data = bank.pages.get(page)
            return bytes(nbytes) if data is None else bytes(memoryview(data)[start : start + nbytes])
        return bank.read(offset, nbytes)

    def write(self, address: int, data: bytes | memoryview) -> None:
        """Write ``data`` at a physical address.

        Raises:
            MemoryAccessError: for addresses outside this SIP or the memory.
        """
        nbytes = len(data)
        bank, offset = self._find(address, nbytes)
        page, start = divmod(offset, PAGE_BYTES)
        content = bank.pages.get(page)
        if content is not None and start + nbytes <= PAGE_BYTES:
            content[start : start + nbytes] = data
        else:
            bank.write(offset, data)

    def read_block(self, block: Block) -> bytes:
        """Return a copy of the bytes of a block.

        Raises:
            MemoryAccessError: for addresses outside this SIP or the memory.
        """
        self._find(block.address, block.reach_bytes)
        return b"".join([self.read(address, block.row_bytes) for address in block.addresses])

    def write_block(self, block: Block, data: bytes) -> None:
        """Write the bytes of a block.

        Raises:
            MemoryAccessError: for addresses outside this SIP or the memory; nothing is written.
        """
        self._find(block.address, block.reach_bytes)
        view, nbytes = memoryview(data), block.row_bytes
        for row, address in enumerate(block.addresses):
            self.write(address, view[row * nbytes : (row + 1) * nbytes])

    def write_from_host(self, address: int, data: bytes | memoryview) -> None:
        """Write ``data`` as :meth:`write` does, for host code, and notify the listeners; takes no simulated time."""
        self.write(address, data)
        for each in self.listeners:
            each.host_wrote(address, data)

    def clear(self, address: int, nbytes: int) -> None:
        """Set bytes at a physical address to zero, for host code, and free whole pages.

        Raises:
            MemoryAccessError: for addresses outside this SIP or the memory.
        """
        bank, offset = self._find(address, nbytes)
        first, last = offset // PAGE_BYTES, (offset + nbytes - 1) // PAGE_BYTES
        pages = range(first, last + 1) if last - first < len(bank.pages) else sorted(bank.pages)
        for page in [page for page in pages if page in bank.pages and first <= page <= last]:
            start = max(offset - page * PAGE_BYTES, 0)
            stop = min(offset + nbytes - page * PAGE_BYTES, PAGE_BYTES)
            if stop - start == PAGE_BYTES:
                del bank.pages[page]
            else:
                bank.pages[page][start:stop] = bytes(stop - start)
        for each in self.listeners:
            each.host_cleared(address, nbytes)

    def canonical(self, address: int) -> int:
        """Return the lowest address of the byte at ``address``, which may have one address per PE of its cube."""
        space = address >> OFFSET_BITS
        first = self._first.get(space)
        if first is None:
            place = PhysAddr.decode(address)._replace(offset=0)
            first = (place._replace(pe=0) if place.space in self._of_cube else place).encode()
            self._first[space] = first
        return first | (address & _OFFSET_MASK)

    @staticmethod
    def address_text(address: int) -> str:
        """Return the text of an address in reports of the second pass."""
        return f"{address:#x}"

    def pages(self) -> Iterator[tuple[int, bytearray]]:
        """Yield all existing pages, as (canonical address, content)."""
        found = {self.canonical(bank << OFFSET_BITS): content for bank, content in self._banks.items()}
        for first, content in found.items():
            for page, data in content.pages.items():
                yield first + page * PAGE_BYTES, data

    def check(self, address: int, nbytes: int) -> None:
        """Check that a range may be read and written.

        Raises:
            MemoryAccessError: for addresses outside this SIP or the memory.
        """
        self._find(address, nbytes)

    def _find(self, address: int, nbytes: int) -> tuple[PagedBytes, int]:
        key, offset = address >> OFFSET_BITS, address & _OFFSET_MASK
        bank = self._banks.get(key)
        if bank is None:
            bank = self._banks[key] = self._new_bank(address)
        if nbytes < 0 or offset + nbytes > bank.nbytes:
            raise MemoryAccessError(
                f"{nbytes} bytes at {PhysAddr.decode(address)} are outside the memory of {bank.nbytes} bytes"
            )
        return bank, offset

    def _new_bank(self, address: int) -> PagedBytes:
        try:
            place = PhysAddr.decode(address)
        except ValueError as error:
            raise MemoryAccessError(str(error)) from None
        if place.sip != self._sip:
            raise MemoryAccessError(f"{place} is not a memory of SIP {self._sip}")
        if place.space in self._of_cube and place.pe:
            return self._find(place._replace(pe=0, offset=0).encode(), 0)[0]
        return PagedBytes(self._capacities[place.space], PAGE_BYTES)


HOST_WRITE = record_kind("host.write", "addr", "nbytes", "values")
HOST_CLEAR = record_kind("host.clear", "addr", "nbytes")


class HostLog:
    """Listener that notes the host's writes in the file of ``oplog``. ``now()`` returns the time in ps.

    A write of the host is not an operation, so it does not enter the digest of the log.
    """

    def __init__(self, oplog: OpLog, now: Callable[[], int]) -> None:
        self._oplog = oplog
        self._now = now

    def host_wrote(self, address: int, data: bytes | memoryview) -> None:
        """Note a write of the host."""
        self._note(HOST_WRITE, address, len(data), values_as_text(data))

    def host_cleared(self, address: int, nbytes: int) -> None:
        """Note that the host cleared bytes."""
        self._note(HOST_CLEAR, address, nbytes)

    def _note(self, kind: str, address: int, *fields: object) -> None:
        now_ps, place = self._now(), PhysAddr.decode(address)
        self._oplog.note((kind, now_ps, now_ps, place.cube, place.pe, address, *fields))
