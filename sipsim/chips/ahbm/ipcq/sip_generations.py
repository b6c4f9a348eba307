"""Generations of one SIP: queue pairs that are installed and closed together during the simulation.

Each rank installs a generation independently, at any simulated time: PE_IPCQ holds messages that arrive before the
install (:mod:`sipsim.chips.ahbm.ipcq.generations`). The number of a generation is the same on all ranks and is used
once per run. Its rings may reuse the addresses of a closed generation; rings of open generations never overlap.
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
"""Virtual address of a ring of a later generation: this value OR the physical address."""


class RingRange(NamedTuple):
    """Addresses of a receive ring, from ``start`` to before ``stop``, and the ring's generation."""

    start: int
    stop: int
    generation: int


class SipGenerations:
    """Installs and closes the generations of one SIP. ``pe`` returns a PE by cube and number, built at its first use.

    ``live``: PEs and queue pairs of each open generation, by number. ``closed``: numbers of the closed generations.

    ``installed``: every queue pair ever installed, for the explanation of a run; None if ``keeps`` is false.
    """

    def __init__(self, sip: SipParts, pe: Callable[[int, int], PeParts], keeps: bool) -> None:
        self._sip = sip
        self._pe = pe
        self.installed: list[Installed] | None = [] if keeps else None
        self.live: dict[int, dict[PePlace, list[IpcqInitEntry]]] = {}
        self.closed = ClosedGenerations()
        self._rings: dict[PePlace, list[RingRange]] = {}

    def install(self, generation: int, plan: InstallPlan, pe_of_rank: Sequence[PePlace]) -> None:
        """Install the queue pairs of this SIP's PEs, and build the PEs if needed. Held messages are delivered at once.

        ``plan``: the queue pairs of all PEs of the generation, by short name; ``pe_of_rank``: these PEs by rank. Later
        calls may add PEs to an open generation.

        Raises:
            ConfigError: if a PE has no room for the metadata of its queue pairs.
            InvariantViolation: for a number below 1, a closed generation, a PE that is already in this generation, or a
                ring that overlaps another ring of its PE.
        """
        sip, size = self._sip, len(pe_of_rank)
        places = self.live.get(generation, {})
        if generation < 1 or generation in self.closed or any(place in places for place in pe_of_rank):
            raise InvariantViolation(f"generation {generation} is or was in use on rank {sip.sip}")
        self.live[generation] = places
        for rank, place in enumerate(pe_of_rank):
            if place.sip != sip.sip:
                continue
            entries = self._with_virtual_rings(plan.get(place, []))
            self._take_rings(generation, place, entries)
            self._pe(place.cube, place.pe).ipcq.install(generation, entries, rank, size)
            places[place] = entries
            if self.installed is not None:
                self.installed += [Installed(generation, place[:3], entry) for entry in entries]
            if sip.page_table is not None:
                map_rings(sip.page_table, place, entries, generation)

    def close(self, generation: int) -> None:
        """Close the queue pairs of this SIP's PEs. Afterwards they accept only credits for messages that they sent.

        Raises:
            IpcqInUse: if a ring holds a message that is not received and released, or a send or receive waits; then
                no queue pair is closed.
            InvariantViolation: if the generation is not installed.
        """
        sip, table = self._sip, self._sip.page_table
        if generation not in self.live:
            raise InvariantViolation(f"generation {generation} cannot be closed: rank {sip.sip} has not installed it")
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
        """Reserve the addresses of a PE's receive rings; the first call also reserves the plan's rings."""
        taken = self._rings.get(place)
        if taken is None:
            taken = self._rings[place] = sorted(_ring_ranges(0, self._sip.plan.entries_of(place)))
        self._sip.plan.system.tcm.check_queue_pairs(len(taken) + len(entries), place)
        for ring in _ring_ranges(generation, entries):
            index = bisect(taken, ring)
            for other in taken[max(index - 1, 0) : index + 1]:
                if ring.start < other.stop and other.start < ring.stop:
                    raise InvariantViolation(
                        f"a ring of generation {generation} overlaps a ring of generation {other.generation} "
                        f"on rank {place.sip} cube {place.cube} PE {place.pe}",
                        cube=place.cube,
                        pe=place.pe,
                    )
            insort(taken, ring)

    def _with_virtual_rings(self, entries: list[IpcqInitEntry]) -> list[IpcqInitEntry]:
        """Return the entries, with virtual addresses of the peers' rings if the MMU translates rings."""
        mmu = self._sip.plan.resolved.components.pe_mmu
        if mmu is None or not mmu.virtual_rings:
            return entries
        return [
            e._replace(peer=e.peer._replace(rx_base_va=LATER_RINGS_VA_BASE | e.peer.rx_base_pa)) if e.can_send else e
            for e in entries
        ]


def map_rings(table: PageTable, place: PePlace, entries: list[IpcqInitEntry], generation: int) -> None:
    """Map the virtual addresses of the rings that a PE sends to, for this PE."""
    for direction, peer in ((entry.direction, entry.peer) for entry in entries if entry.peer.rx_base_va):
        entry = MmuMapEntry(peer.rx_base_va, peer.rx_base_pa, peer.n_slots * peer.slot_size)
        name = f"the ring that {full_name(direction, generation)} of {'.'.join(map(str, place))} sends to"
        table.map(MmuMapMsg(place.cube, place.pe, (entry,), name))


def _ring_ranges(generation: int, entries: Sequence[IpcqInitEntry]) -> Iterator[RingRange]:
    """Yield the address ranges of a PE's receive rings."""
    for entry in entries:
        if entry.can_receive:
            yield RingRange(entry.my_rx_base_pa, entry.my_rx_base_pa + entry.n_slots * entry.slot_size, generation)
