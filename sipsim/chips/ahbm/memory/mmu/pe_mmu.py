"""PE_MMU: translates the virtual addresses of a PE's commands when the kernel issues them.

One lookup for each page that a command touches. A hit takes no time: it is part of the cycle in which PE_DMA takes the
descriptor (``pe_dma.overhead_ns``). A miss takes a page walk,

    stall = misses x walk_ns

for which the kernel waits, so commands of a PE stay in order, and none overtakes a walk. ``walk_ns`` stands for the
dependent reads of the levels of the table. Parameters: ``pe_mmu`` of ``components.yaml``.

Limits: a walk is a latency, and its reads meet no other traffic; one TLB level; a kernel that stalls issues nothing,
so no two walks of a PE run at a time; physical addresses pass, as do PE_IPCQ's own reads of its rings.
"""

from typing import NamedTuple, Protocol

from sipsim.chips.ahbm.address import VIRTUAL_BIT
from sipsim.chips.ahbm.memory.mmu.page_table import Mapping, PageTable
from sipsim.chips.ahbm.memory.mmu.tlb import Tlb
from sipsim.config.schema.components import PeMmu as PeMmuCost
from sipsim.core.task import Task
from sipsim.core.units import ns_to_ps

TLB_MISS = "TLB miss"
"""The name of the span of a stall; its fact is the number of walks."""


class _Recent(NamedTuple):
    """The part of a mapping in the page that was used last, while the table is at ``version``."""

    version: int
    start: int
    stop: int
    offset: int


class MmuCpu(Protocol):
    """PE_CPU, on whose time a walk begins."""

    def pause_for(self, task: Task, stall_ps: int, what: str, *facts: object) -> None:
        """Block the kernel for a time, as a span called ``what``."""


class MmuPe(Protocol):
    """The PE, and the task of its present kernel."""

    cube: int
    pe: int
    task: Task | None

    @property
    def cpu(self) -> MmuCpu: ...


class PeMmu:
    """The MMU of one PE. ``hits`` and ``misses`` count lookups over the life of its SIP."""

    def __init__(self, pe: MmuPe, cost: PeMmuCost, table: PageTable) -> None:
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
