"""PE_MMU with its TLB, and the page tables of a SIP: virtual addresses of commands, translated at their issue."""

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
"""The last mappings that ended, for the message of a fault."""


class MmuMapEntry(NamedTuple):
    """``nbytes`` of virtual addresses from ``va`` on lie at physical address ``pa``."""

    va: int
    pa: int
    nbytes: int


class MmuMapMsg(NamedTuple):
    """Map entries for the PEs of a target; None means all (ADR-0023 D12). ``name``: what is mapped, for messages."""

    target_cube: int | None
    target_pe: int | None
    entries: tuple[MmuMapEntry, ...]
    name: str = ""


class MmuUnmapMsg(NamedTuple):
    """End the mappings of a target that begin at these virtual addresses."""

    target_cube: int | None
    target_pe: int | None
    vas: tuple[int, ...]


class Mapping(NamedTuple):
    """An entry that is mapped; ``serial`` is another one for each."""

    va: int
    nbytes: int
    pa: int
    serial: int
    name: str

    def __str__(self) -> str:
        return f"{self.name or 'a mapping'} at {self.va:#x} to {self.va + self.nbytes:#x}"


Target = tuple[int | None, int | None]


class PageTable:
    """The tables of all PEs of a SIP, in pages of ``page_bytes``: what the host maps for its PEs, as messages say it.

    A message maps for all PEs, for those of a cube, or for one PE; where several do, the narrowest counts, so that each
    PE may have a copy of its own behind one address. Tables that are alike are kept once: a PE that is not used costs
    nothing.

    Limits: a mapping may begin anywhere in a page, as shards do, and a page may hold parts of several mappings. Each
    part is a translation of its own, with base and bounds, where hardware would have page frames. Tables take no
    memory, and mapping takes no time: the host's calls deliver the messages, which :mod:`sipsim.chips.ahbm.control`
    does not carry yet.

    ``on_unmap``: called with the serial of what is unmapped. ``version``: another number after each change.
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
                    raise InvariantViolation(f"{new} overlaps {other}; unmap that first")
            table.insert(index, new)

    def unmap(self, message: MmuUnmapMsg) -> None:
        """End mappings; TLBs drop them at once.

        Raises:
            InvariantViolation: for an address at which none of this target begins.
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
        """The mapping that a range of virtual addresses lies in, as one PE sees it.

        Raises:
            MmuFault: for an address that is not mapped.
            MemoryAccessError: for a range that does not end within the mapping that it begins in.
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
        """The tables of a PE, the narrowest first."""
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
            why = f"{ended} was freed; keep the tensor while kernels use it"
        else:
            found = (f"{side} {each}" for side, each in (("below", below), ("above", above)) if each is not None)
            why = f"mapped near it: {', '.join(found) or 'nothing'}"
        return MmuFault(
            f"{nbytes} bytes at virtual address {address:#x} are not mapped for cube {cube}, PE {pe}; {why}",
            cube=cube,
            pe=pe,
        )


def _va(mapping: Mapping) -> int:
    return mapping.va


Key = tuple[int, int]
"""The serial of a mapping and the number of a page."""


class Tlb:
    """The last translations in use, at most ``entries``: fully associative, the least recently used one leaves."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._held: dict[Key, None] = {}

    def __len__(self) -> int:
        return len(self._held)

    def touch(self, key: Key) -> bool:
        """Use a translation; whether it was there. If not, it is from now on."""
        held = self._held
        was_there = key in held
        if was_there:
            del held[key]
        elif len(held) == self._entries:
            del held[next(iter(held))]
        held[key] = None
        return was_there

    def drop(self, serial: int) -> None:
        """Forget a mapping, which ends."""
        for key in [key for key in self._held if key[0] == serial]:
            del self._held[key]


TLB_MISS = "TLB miss"
"""The name of the span of a stall; its fact is the number of walks."""


class _Recent(NamedTuple):
    """The part of a mapping in the page that was used last, while the table is at ``version``."""

    version: int
    start: int
    stop: int
    offset: int


class PeMmu:
    """The MMU of one PE; its parameters are ``pe_mmu`` of ``components.yaml``.

    One lookup for each page that a command touches. A hit takes no time: it is part of the cycle in which PE_DMA takes
    the descriptor (``pe_dma.overhead_ns``). A miss takes a page walk,

        stall = misses x walk_ns

    for which the kernel waits, so commands of a PE stay in order, and none overtakes a walk. ``walk_ns`` stands for the
    dependent reads of the levels of the table.

    Limits: a walk is a latency, and its reads meet no other traffic; one TLB level; a kernel that stalls issues
    nothing, so no two walks of a PE run at a time; physical addresses pass, as do PE_IPCQ's own reads of its rings.

    ``hits`` and ``misses`` count lookups over the life of its SIP.
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
        """The physical address of a range that the running kernel uses; the kernel waits for the walks of misses.

        Raises:
            MmuFault: for an address that is not mapped, when the kernel uses it or at the end of the walk.
            MemoryAccessError: for a range that does not end within its shard.
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
        """The physical address by the page table; it takes no time, and the TLB does not see it.

        Raises:
            MmuFault: for an address that is not mapped.
            MemoryAccessError: for a range that does not end within its shard.
        """
        mapping = self._table.find(self._pe.cube, self._pe.pe, address, nbytes)
        return mapping.pa + address - mapping.va

    def _walk(self, walks: int) -> None:
        """The kernel waits for the walks, one after the other, once PE_CPU has issued what it gave before."""
        task, stall_ps = self._pe.task, walks * self._walk_ps
        if stall_ps:
            assert task is not None
            self._pe.cpu.pause_for(task, stall_ps, TLB_MISS, walks)
