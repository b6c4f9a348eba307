"""PE_MMU with its TLB, and the page tables of a SIP: virtual addresses of commands are translated at issue."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

from sipsim.chips.ahbm.address import VIRTUAL_BIT
from sipsim.chips.ahbm.parts import PeParts
from sipsim.config.schema import PeMmu as PeMmuCost
from sipsim.core.errors import InvariantViolation, MemoryAccessError, MmuFault
from sipsim.core.units import ns_to_ps

KEPT_UNMAPPED = 256
"""Number of unmapped mappings that are remembered for the message of a fault."""


class MmuMapEntry(NamedTuple):
    """Mapping of ``nbytes`` from virtual address ``va`` to physical address ``pa``."""

    va: int
    pa: int
    nbytes: int


class MmuMapMsg(NamedTuple):
    """Message that maps entries for a cube and PE; None means all (ADR-0023 D12). ``name``: name for errors."""

    target_cube: int | None
    target_pe: int | None
    entries: tuple[MmuMapEntry, ...]
    name: str = ""

    @property
    def n_entries(self) -> int:
        return len(self.entries)


class MmuUnmapMsg(NamedTuple):
    """Message that removes the mappings of a target that begin at the virtual addresses ``vas``."""

    target_cube: int | None
    target_pe: int | None
    vas: tuple[int, ...]

    @property
    def n_entries(self) -> int:
        return len(self.vas)


class Mapping(NamedTuple):
    """Mapped entry with a unique ``serial``; ``name``: name of the mapped object, for errors."""

    va: int
    nbytes: int
    pa: int
    serial: int
    name: str

    def __str__(self) -> str:
        return f"{self.name or 'a mapping'} at {self.va:#x} to {self.va + self.nbytes:#x}"


Target = tuple[int | None, int | None]


class PageTable:
    """Page tables of all PEs of a SIP, with pages of ``page_bytes``; messages of the host change them.

    A message maps for all PEs, for those of a cube, or for one PE. If several mappings cover an address, the narrowest
    applies, so that each PE may have a private copy at one address. PEs share the tables of their cube and SIP: an
    unused PE costs nothing.

    Limits: a mapping may begin anywhere in a page, as shards do, and a page may contain parts of several mappings. Each
    part is a separate translation with base and bounds, where hardware would have page frames. Tables take no memory.
    The tables change when the host allocates or frees a tensor; the host then waits until all PEs have answered its map
    (:class:`~sipsim.chips.ahbm.control.copies.Map`).

    ``on_unmap``: called with the serial of each unmapped mapping. ``version``: incremented at each change.
    """

    def __init__(self, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self.version = 0
        self.on_unmap: list[Callable[[int], None]] = []
        self._tables: dict[Target, list[Mapping]] = {}
        self._ended: deque[Mapping] = deque(maxlen=KEPT_UNMAPPED)
        self._serials = count()

    def map(self, message: MmuMapMsg) -> None:
        """Add the entries of a message.

        Raises:
            InvariantViolation: for an entry that overlaps another of the same target.
        """
        table = self._tables.setdefault((message.target_cube, message.target_pe), [])
        self.version += 1
        for va, pa, nbytes in message.entries:
            index = bisect_right(table, va, key=_va)
            new = Mapping(va, nbytes, pa, next(self._serials), message.name)
            for other in table[max(index - 1, 0) : index + 1]:
                if va < other.va + other.nbytes and other.va < va + nbytes:
                    raise InvariantViolation(f"{new} overlaps {other}; unmap the latter first")
            table.insert(index, new)

    def unmap(self, message: MmuUnmapMsg) -> None:
        """Remove the mappings of a message; TLBs drop these at once.

        Raises:
            InvariantViolation: for an address at which no mapping of this target begins.
        """
        table = self._tables.get((message.target_cube, message.target_pe), [])
        self.version += 1
        for va in message.vas:
            index = bisect_right(table, va, key=_va) - 1
            if index < 0 or table[index].va != va:
                raise InvariantViolation(f"no mapping begins at {va:#x}, so it cannot be unmapped")
            ended = table.pop(index)
            self._ended.append(ended)
            for drop in self.on_unmap:
                drop(ended.serial)

    def find(self, cube: int, pe: int, address: int, nbytes: int) -> Mapping:
        """Return the mapping that contains a range of virtual addresses, for one PE.

        Raises:
            MmuFault: for an address that is not mapped.
            MemoryAccessError: for a range that extends past the end of its mapping.
        """
        for table in self._seen_by(cube, pe):
            index = bisect_right(table, address, key=_va) - 1
            if index >= 0:
                found = table[index]
                if address + nbytes <= found.va + found.nbytes:
                    return found
                if address < found.va + found.nbytes:
                    what = f"{nbytes} bytes at virtual address {address:#x} are not within one shard of a tensor"
                    raise MemoryAccessError(f"{what}: {found}")
        raise self._fault(cube, pe, address, nbytes)

    def _seen_by(self, cube: int, pe: int) -> Iterator[list[Mapping]]:
        """Yield the tables that apply to a PE, the narrowest first."""
        tables = self._tables
        for target in ((cube, pe), (cube, None), (None, None)):
            table = tables.get(target)
            if table:
                yield table

    def _fault(self, cube: int, pe: int, address: int, nbytes: int) -> MmuFault:
        near = [each for table in self._seen_by(cube, pe) for each in table]
        below = max((each for each in near if each.va <= address), key=_va, default=None)
        above = min((each for each in near if each.va > address), key=_va, default=None)
        ended = next((each for each in reversed(self._ended) if each.va <= address < each.va + each.nbytes), None)
        if ended is not None:
            reason = f"{ended} was freed; keep the tensor while kernels use it"
        else:
            found = (f"{side} {each}" for side, each in (("below", below), ("above", above)) if each is not None)
            reason = f"nearest mappings: {', '.join(found) or 'none'}"
        return MmuFault(
            f"{nbytes} bytes at virtual address {address:#x} are not mapped for cube {cube}, PE {pe}; {reason}",
            cube=cube,
            pe=pe,
        )


def _va(mapping: Mapping) -> int:
    return mapping.va


Key = tuple[int, int]
"""Key of a translation: serial of the mapping and number of the page."""


class Tlb:
    """TLB with at most ``entries`` translations: fully associative, LRU replacement."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._held: dict[Key, None] = {}

    def __len__(self) -> int:
        return len(self._held)

    def touch(self, key: Key) -> bool:
        """Use a translation and insert it if missing; return whether it was a hit."""
        held = self._held
        was_there = key in held
        if was_there:
            del held[key]
        elif len(held) == self._entries:
            del held[next(iter(held))]
        held[key] = None
        return was_there

    def drop(self, serial: int) -> None:
        """Drop the translations of a mapping that ends."""
        for key in [key for key in self._held if key[0] == serial]:
            del self._held[key]


TLB_MISS = "TLB miss"
"""Name of the span of a stall; its fact is the number of page walks."""


class _Recent(NamedTuple):
    """The last translation: ``offset`` for addresses from ``start`` up to ``stop - 1``, valid at table ``version``."""

    version: int
    start: int
    stop: int
    offset: int


class PeMmu:
    """MMU of one PE; its parameters are ``pe_mmu`` of ``components.yaml``.

    The MMU does one lookup per page that a command touches. A hit takes no time: it is part of the cycle in which
    PE_DMA takes the descriptor (``pe_dma.overhead_ns``). A miss takes a page walk,

        stall = misses x walk_ns

    for which the kernel waits, so commands of a PE stay in order and none overtakes a walk. ``walk_ns`` includes the
    dependent reads of all levels of the table.

    Limits: a walk is a fixed latency without contention; the TLB has one level; a stalled kernel issues no commands, so
    the walks of a PE never overlap; physical addresses are not translated, nor are PE_IPCQ's reads of its rings.

    ``hits`` and ``misses`` count lookups over the life of the SIP.
    """

    def __init__(self, pe: PeParts, cost: PeMmuCost, table: PageTable) -> None:
        self._pe = pe
        self._table = table
        self._walk_ps = ns_to_ps(cost.walk_ns)
        self.tlb = Tlb(cost.tlb_entries)
        self.hits = self.misses = 0
        self._recent = _Recent(-1, 0, 0, 0)
        table.on_unmap.append(self.tlb.drop)

    def translate(self, address: int, nbytes: int) -> int:
        """Return the physical address of a range; block the running kernel for the page walks of misses.

        Raises:
            MmuFault: for an address that is not mapped, at the call or at the end of the walk.
            MemoryAccessError: for a range that extends past the end of its shard.
        """
        if not address & VIRTUAL_BIT:
            return address
        version, start, stop, offset = self._recent
        if start <= address and address + nbytes <= stop and version == self._table.version:
            self.hits += 1
            return address + offset
        mapping = self._table.find(self._pe.cube, self._pe.pe, address, nbytes)
        page_bytes, touch = self._table.page_bytes, self.tlb.touch
        pages = range(address // page_bytes, (address + nbytes - 1) // page_bytes + 1)
        misses = sum(not touch((mapping.serial, page)) for page in pages)
        self._recent = self._part_in(mapping, pages[-1])
        self.hits += len(pages) - misses
        if misses:
            self.misses += misses
            self._walk(misses)
            return self.look_up(address, nbytes)
        return mapping.pa + address - mapping.va

    def _part_in(self, mapping: Mapping, page: int) -> _Recent:
        page_bytes = self._table.page_bytes
        start, stop = max(mapping.va, page * page_bytes), min(mapping.va + mapping.nbytes, (page + 1) * page_bytes)
        return _Recent(self._table.version, start, stop, mapping.pa - mapping.va)

    def look_up(self, address: int, nbytes: int) -> int:
        """Return the physical address of a range from the page table, in no time and without the TLB.

        Raises:
            MmuFault: for an address that is not mapped.
            MemoryAccessError: for a range that extends past the end of its shard.
        """
        mapping = self._table.find(self._pe.cube, self._pe.pe, address, nbytes)
        return mapping.pa + address - mapping.va

    def _walk(self, walks: int) -> None:
        """Block the kernel for sequential page walks, after PE_CPU has issued all earlier commands."""
        task, stall_ps = self._pe.task, walks * self._walk_ps
        if stall_ps:
            assert task is not None
            self._pe.cpu.pause_for(task, stall_ps, TLB_MISS, walks)
