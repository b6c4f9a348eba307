"""The queue pairs of one SIP that are made and ended while time runs, a generation at a time.

All ranks of a generation make theirs by themselves, in any order in time: what comes for one that is not made here yet
is held by PE_IPCQ (:mod:`sipsim.chips.ahbm.ipcq.generations`). Its number is the same on all ranks, and is used once in
a run. Its rings may lie where those of an earlier, closed one lay; those of two that are not closed never overlap.
"""

from bisect import bisect, insort
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from sipsim.chips.ahbm.address import RING_VA_BASE, PePlace
from sipsim.chips.ahbm.collectives.queue_pairs import InstallPlan
from sipsim.chips.ahbm.ipcq.generations import ClosedGenerations
from sipsim.chips.ahbm.ipcq.messages import Installed, IpcqInitEntry
from sipsim.chips.ahbm.ipcq.queue_pair import full_name
from sipsim.chips.ahbm.memory.mmu import MmuMapEntry, MmuMapMsg, MmuUnmapMsg, PageTable
from sipsim.chips.ahbm.parts import PeParts, SipParts
from sipsim.core.errors import InvariantViolation

LATER_RINGS_VA_BASE = RING_VA_BASE | 1 << 61
"""Virtual addresses of rings of later generations: this, and the physical one."""


class RingRange(NamedTuple):
    """The addresses of a receive ring."""

    start: int
    stop: int
    generation: int


class SipGenerations:
    """One SIP's generations. ``pe``: a PE by cube and number, made at its first use.

    ``live``: by number, its PEs with their queue pairs; ``closed``: the numbers of the closed.

    ``installed``: all that were ever made, kept for the explanation of a run; None without ``keeps``.
    """

    def __init__(self, sip: SipParts, pe: Callable[[int, int], PeParts], keeps: bool) -> None:
        self._sip = sip
        self._pe = pe
        self.installed: list[Installed] | None = [] if keeps else None
        self.live: dict[int, dict[PePlace, list[IpcqInitEntry]]] = {}
        self.closed = ClosedGenerations()
        self._rings: dict[PePlace, list[RingRange]] = {}

    def install(self, generation: int, plan: InstallPlan, pe_of_rank: Sequence[PePlace]) -> None:
        """Make the queue pairs of this SIP's PEs, and these PEs if need be; held messages are delivered in this step.

        ``plan``: of all PEs of the generation, its directions by short name; ``pe_of_rank``: these PEs by rank. Later
        calls add further PEs to a generation that is not closed.

        Raises:
            InvariantViolation: for a number below 1, one that was in use, or one that is in use on such a PE; or a ring
                that overlaps another one of the PE.
        """
        sip, size = self._sip, len(pe_of_rank)
        here = self.live.get(generation, {})
        if generation < 1 or generation in self.closed or any(place in here for place in pe_of_rank):
            raise InvariantViolation(f"generation {generation} is or was in use on rank {sip.sip}")
        self.live[generation] = here
        for rank, place in enumerate(pe_of_rank):
            if place.sip != sip.sip:
                continue
            entries = self._with_virtual_rings(plan.get(place, []))
            self._take_rings(generation, place, entries)
            self._pe(place.cube, place.pe).ipcq.install(generation, entries, rank, size)
            here[place] = entries
            if self.installed is not None:
                self.installed += [Installed(generation, place[:3], entry) for entry in entries]
            if sip.page_table is not None:
                map_rings(sip.page_table, place, entries, generation)

    def close(self, generation: int) -> None:
        """End the queue pairs of this SIP's PEs. What they still get are the credits of what they have sent.

        Raises:
            IpcqInUse: while a ring holds a message that no receive has taken and released, or a send or receive waits;
                then none is ended.
            InvariantViolation: when it is not installed.
        """
        sip, table = self._sip, self._sip.page_table
        if generation not in self.live:
            raise InvariantViolation(
                f"generation {generation} is to be closed, and rank {sip.sip} has not installed it"
            )
        ipcqs = {place: self._pe(place.cube, place.pe).ipcq for place in self.live[generation]}
        for ipcq in ipcqs.values():
            ipcq.check_idle(generation)
        for place, ipcq in ipcqs.items():
            ipcq.close(generation)
            self._rings[place] = [ring for ring in self._rings[place] if ring.generation != generation]
            vas = tuple(e.peer.rx_base_va for e in self.live[generation][place] if e.peer.rx_base_va)
            if table is not None and vas:
                table.unmap(MmuUnmapMsg(place.cube, place.pe, vas))
        del self.live[generation]
        self.closed.add(generation)

    def _take_rings(self, generation: int, place: PePlace, entries: list[IpcqInitEntry]) -> None:
        """Note where a PE receives in a generation. Those of the plan are noted at its first one."""
        taken = self._rings.get(place)
        if taken is None:
            taken = self._rings[place] = sorted(_ring_ranges(0, self._sip.plan.entries_of(place)))
        for ring in _ring_ranges(generation, entries):
            index = bisect(taken, ring)
            for other in taken[max(index - 1, 0) : index + 1]:
                if ring.start < other.stop and other.start < ring.stop:
                    raise InvariantViolation(
                        f"a ring of generation {generation} overlaps one of generation {other.generation} "
                        f"on rank {place.sip} cube {place.cube} PE {place.pe}",
                        cube=place.cube,
                        pe=place.pe,
                    )
            insort(taken, ring)

    def _with_virtual_rings(self, entries: list[IpcqInitEntry]) -> list[IpcqInitEntry]:
        """Give the peers' rings virtual addresses, if the MMU translates those of rings."""
        mmu = self._sip.plan.resolved.components.pe_mmu
        if mmu is None or not mmu.virtual_rings:
            return entries
        return [
            e._replace(peer=e.peer._replace(rx_base_va=LATER_RINGS_VA_BASE | e.peer.rx_base_pa)) if e.can_send else e
            for e in entries
        ]


def map_rings(table: PageTable, place: PePlace, entries: list[IpcqInitEntry], generation: int) -> None:
    """Map the rings that a PE sends to by a virtual address, for this PE."""
    for direction, peer in ((entry.direction, entry.peer) for entry in entries if entry.peer.rx_base_va):
        entry = MmuMapEntry(peer.rx_base_va, peer.rx_base_pa, peer.n_slots * peer.slot_size)
        name = f"the ring that {full_name(direction, generation)} of {'.'.join(map(str, place))} sends to"
        table.map(MmuMapMsg(place.cube, place.pe, (entry,), name))


def _ring_ranges(generation: int, entries: Sequence[IpcqInitEntry]) -> Iterator[RingRange]:
    """Those that a PE receives in."""
    for entry in entries:
        if entry.can_receive:
            yield RingRange(entry.my_rx_base_pa, entry.my_rx_base_pa + entry.n_slots * entry.slot_size, generation)
