"""Creation of the queue pairs of every PE from a neighbour table: paired rings, their addresses, credit latencies.

Each process derives the same queue pairs from the config, without communication. A neighbour table that cannot be
installed raises a ``ConfigError`` before the run (ADR-0023 F4, I3, I4; ADR-0025 I3.1).
"""

from collections.abc import Iterator, Mapping
from itertools import islice, pairwise, product
from typing import NamedTuple

from sipsim.chips.ahbm.address import LEAD_PE, RING_VA_BASE, PePlace, PhysAddr, Region
from sipsim.chips.ahbm.collectives.neighbours import OPPOSITE, RECEIVES_IN, NeighbourTable, reverse_direction
from sipsim.chips.ahbm.collectives.rules import check_room_of_rings
from sipsim.chips.ahbm.hardware import MAX_DIRECTIONS
from sipsim.chips.ahbm.ipcq.credits import credit_mode_of
from sipsim.chips.ahbm.ipcq.messages import IpcqEndpoint, IpcqInitEntry
from sipsim.chips.ahbm.system import AhbmSystem
from sipsim.config.check import Problem
from sipsim.config.schema import IpcqKnobs, RankPer
from sipsim.core.errors import ConfigError
from sipsim.fabric.graph import Node


class Ring(NamedTuple):
    """Receive ring, identified by its rank and the direction from which the rank receives."""

    rank: int
    direction: str


RingMap = dict[Ring, Ring]
InstallPlan = dict[PePlace, list[IpcqInitEntry]]

RING_VA_ALIGN_BYTES = 256
"""Alignment of the virtual addresses of rings, which are independent of the physical addresses."""


def places_in_order(system: AhbmSystem, rank_per: RankPer, world_size: int) -> list[PePlace]:
    """Return the PEs of the first ranks: a rank is a PE, a cube (its lead PE), or a SIP (the lead PE of cube 0)."""
    cubes = range(1 if rank_per == "sip" else system.n_cubes)
    pes = range(system.n_pes) if rank_per == "pe" else (LEAD_PE,)
    every = (PePlace(*place) for place in product(range(system.n_sips), cubes, pes))
    return list(islice(every, world_size))


def pair_rings(table: NeighbourTable, one_way: bool = False, opposite: Mapping[str, str] = OPPOSITE) -> RingMap:
    """Return the ring that each direction writes to: ``{(rank, direction): (peer, peer's direction)}``.

    A peer without a direction back (unidirectional ring) gets a receive-only ring in the opposite direction. With
    ``one_way`` every peer gets such a ring, even if each of two ranks has direction E to the other.

    Raises:
        ConfigError: two senders would write to one ring.
    """
    pairs: RingMap = {}
    writer: dict[Ring, Ring] = {}
    for rank in sorted(table):
        for direction, peer in table[rank].items():
            if peer not in table:
                raise ConfigError(
                    f"rank {rank}, direction {direction}: there is no rank {peer}; ranks are 0 to {len(table) - 1}"
                )
            reverse = None if one_way else reverse_direction(table, rank, peer, direction, opposite)
            reverse = reverse or opposite.get(direction) or RECEIVES_IN.get(direction, direction)
            ring = Ring(peer, reverse)
            if ring in writer:
                other = writer[ring]
                raise ConfigError(
                    f"two senders for one receive ring: rank {other.rank} {other.direction} and "
                    f"rank {rank} {direction} both lead to rank {peer} {reverse}; "
                    f"give each sender another direction (ADR-0025 D6)"
                )
            pairs[Ring(rank, direction)] = ring
            writer[ring] = Ring(rank, direction)
    _check_mutual(pairs, writer)
    return pairs


def _check_mutual(pairs: RingMap, writer: RingMap) -> None:
    """Check that a direction sends to and receives from the same peer, as credits require (ADR-0023 I3)."""
    for ring, peer in pairs.items():
        sender = writer.get(ring)
        if sender is not None and sender.rank != peer.rank:
            raise ConfigError(
                f"I3: rank {ring.rank} sends to rank {peer.rank} in direction {ring.direction}, but receives in this "
                f"direction from rank {sender.rank}; make neighbours mutual, or use another direction name"
            )


def install(
    system: AhbmSystem,
    knobs: IpcqKnobs,
    rank_to_pe: list[PePlace],
    table: NeighbourTable,
    one_way: bool = False,
    opposite: Mapping[str, str] = OPPOSITE,
) -> InstallPlan:
    """Return the entries of every PE, in the order of its rings in memory.

    Raises:
        ConfigError: rings do not fit their memory or exceed the limit of a PE, or a table cannot be paired.
    """
    pairs = pair_rings(table, one_way, opposite)
    writer = {ring: sender for sender, ring in pairs.items()}
    directions = _directions_by_rank(table, writer)
    _check_room(system, knobs, directions)
    bases = {
        Ring(rank, direction): _ring_base_pa(system, knobs, rank_to_pe[rank], index, len(directions[rank]))
        for rank in directions
        for index, direction in enumerate(directions[rank])
    }
    mmu = system.resolved.components.pe_mmu
    vas = _ring_vas(knobs, bases) if mmu is not None and mmu.virtual_rings else {}
    builder = EntryBuilder(system, knobs, rank_to_pe, pairs, writer, bases, vas)
    return {
        rank_to_pe[rank]: [builder.entry(Ring(rank, direction)) for direction in directions[rank]]
        for rank in directions
    }


def _directions_by_rank(table: NeighbourTable, writer: RingMap) -> dict[int, list[str]]:
    found: dict[int, set[str]] = {rank: set(table[rank]) for rank in sorted(table)}
    for ring in writer:
        found[ring.rank].add(ring.direction)
    return {rank: sorted(names) for rank, names in found.items()}


def _check_room(system: AhbmSystem, knobs: IpcqKnobs, directions: dict[int, list[str]]) -> None:
    rank = max(directions, key=lambda r: len(directions[r]), default=0)
    names = directions.get(rank, [])
    system.tcm.check_queue_pairs(len(names), f"rank {rank}")
    if knobs.hw_strict and len(names) > MAX_DIRECTIONS:
        raise ConfigError(
            f"hw_strict: rank {rank} has {len(names)} directions ({', '.join(names)}), and a PE has registers for "
            f"{MAX_DIRECTIONS} (ADR-0023 D17); use fewer directions, or set hw_strict to false"
        )
    try:
        check_room_of_rings(system.resolved, knobs, len(names))
    except Problem as problem:
        raise ConfigError(f"{problem} (rank {rank} receives in {', '.join(names)})") from None


def _ring_base_pa(system: AhbmSystem, knobs: IpcqKnobs, place: PePlace, index: int, count: int) -> int:
    """Return a ring's address: rings are contiguous at the bottom of their memory, in HBM at the top."""
    ring_bytes, memory = knobs.n_slots * knobs.slot_size, ring_memory(system, knobs.buffer_kind)
    start = memory.size - count * ring_bytes if knobs.buffer_kind == "hbm" else 0
    return ring_pa(system, place, knobs.buffer_kind, memory.offset + start + index * ring_bytes)


def ring_memory(system: AhbmSystem, kind: str) -> Region:
    """Return the memory of one PE that may contain rings: the TCM's IPCQ region, its HBM slice, its share of SRAM."""
    if kind == "tcm":
        return system.tcm.ipcq
    return Region(0, system.capacities[kind] // (system.n_pes if kind == "sram" else 1))


def ring_pa(system: AhbmSystem, place: PePlace, kind: str, offset: int) -> int:
    """Return the physical address of ``offset`` in a PE's memory of :func:`ring_memory`; PEs share a cube's SRAM."""
    if kind == "sram":
        return PhysAddr(place.sip, place.cube, 0, kind, place.pe * ring_memory(system, kind).size + offset).encode()
    return PhysAddr(*place, kind, offset).encode()


def _ring_vas(knobs: IpcqKnobs, bases: Mapping[Ring, int]) -> dict[Ring, int]:
    """Return consecutive virtual addresses of all rings (ADR-0023 D2.5, MMU mode)."""
    stride = -(-knobs.n_slots * knobs.slot_size // RING_VA_ALIGN_BYTES) * RING_VA_ALIGN_BYTES
    return {ring: RING_VA_BASE + index * stride for index, ring in enumerate(bases)}


class EntryBuilder:
    """Builder of a wiring's entries from ring addresses: ``bases`` are physical, ``vas`` virtual addresses."""

    def __init__(
        self,
        system: AhbmSystem,
        knobs: IpcqKnobs,
        rank_to_pe: list[PePlace],
        pairs: RingMap,
        writer: RingMap,
        bases: dict[Ring, int],
        vas: dict[Ring, int],
    ) -> None:
        self._system = system
        self._knobs = knobs
        self._places = rank_to_pe
        self._pairs = pairs
        self._writer = writer
        self._bases = bases
        self._vas = vas
        self._credit_ps: dict[tuple[Node, Node, object], int] = {}

    def entry(self, ring: Ring) -> IpcqInitEntry:
        """Return the queue pair of one direction. The peer of a receive-only ring is the rank that writes to it."""
        can_send, system = ring in self._pairs, self._system
        peer_ring = self._pairs[ring] if can_send else self._writer[ring]
        knobs, place, peer_place = self._knobs, self._places[ring.rank], self._places[peer_ring.rank]
        base = self._bases.get(peer_ring, 0) if can_send else 0
        va = self._vas.get(peer_ring, 0) if can_send else 0
        peer = IpcqEndpoint(*peer_place, knobs.buffer_kind, base, va, knobs.n_slots, knobs.slot_size)
        port = system.port_towards(place.sip, peer_place.sip, ring.direction) if place.sip != peer_place.sip else None
        credit_ps = self._credit_latency_ps(place, peer_place, port)
        return IpcqInitEntry(
            ring.direction,
            peer,
            self._bases[ring],
            knobs.n_slots,
            knobs.slot_size,
            can_send,
            credit_ps,
            ring in self._writer,
            credit_mode_of(knobs.credit_return_mode, system.is_die_to_die(place.sip, peer_place.sip, port)),
        )

    def _credit_latency_ps(self, src: PePlace, dst: PePlace, port: str | None) -> int:
        """Return a credit's latency over the whole path (ADR-0023 D9). Equal paths between SIPs share a cache entry."""
        system = self._system
        start, end = Node("pe", src.cube, src.pe), Node("pe", dst.cube, dst.pe)
        path: tuple[object, ...] | None = None
        if port is not None:
            far = system.far_ends[src.sip, port]
            over_one_link = port, far.port, system.link_of(src.sip, port)
            path = over_one_link if far.sip == dst.sip else (src.sip, dst.sip, port)
        key = (start, end, path)
        if key not in self._credit_ps:
            route = system.end_to_end(src.sip, start, dst.sip, end, port)
            self._credit_ps[key] = route.latency_ps(self._knobs.ipcq_credit_size_bytes)
        return self._credit_ps[key]


def check_rings_disjoint(plan: InstallPlan) -> None:
    """Check that receive rings do not overlap (ADR-0025 I3.1), by a sorted sweep, O(n log n).

    Raises:
        ConfigError: names two rings that overlap.
    """
    rings = sorted(
        (e.my_rx_base_pa, e.my_rx_base_pa + e.n_slots * e.slot_size, place, e.direction)
        for place, entries in plan.items()
        for e in entries
    )
    for (_, stop, place, direction), (start, _, other, other_direction) in pairwise(rings):
        if start < stop:
            raise ConfigError(
                f"I3.1: receive ring {direction} of PE {tuple(place)} overlaps "
                f"ring {other_direction} of PE {tuple(other)}"
            )


def check_endpoints(plan: InstallPlan, kind: str) -> None:
    """Check that the ends of each queue pair name each other and all rings are in memory ``kind`` (ADR-0023 I3, I4).

    Each receive ring has exactly one sender, at the place in its entry, with the same ring size.

    Raises:
        ConfigError: names the first end that fails the check.
    """
    rings = {e.my_rx_base_pa: (place, e) for place, entries in plan.items() for e in entries}
    written: dict[int, tuple[PePlace, str]] = {}
    for place, entry in _ends(plan):
        where = f"{entry.direction} of PE {tuple(place)}"
        _check_kind(entry, where, kind)
        if not entry.can_send:
            continue
        peer_place, facing = rings.get(entry.peer.rx_base_pa, (None, entry))
        if peer_place != entry.peer[:3] or facing.peer[:3] != place:
            raise ConfigError(f"I3: {where} sends to PE {entry.peer[:3]}, which has no ring for this sender")
        if (facing.n_slots, facing.slot_size) != (entry.peer.n_slots, entry.peer.slot_size):
            raise ConfigError(f"I3: {where} assumes a wrong size of ring {facing.direction} of PE {entry.peer[:3]}")
        if entry.peer.rx_base_pa in written:
            other, direction = written[entry.peer.rx_base_pa]
            raise ConfigError(f"I3: {direction} of PE {tuple(other)} and {where} write to the same ring")
        written[entry.peer.rx_base_pa] = place, entry.direction
    for place, entry in _ends(plan):
        if not entry.can_send and entry.my_rx_base_pa not in written:
            raise ConfigError(f"I3: no rank sends to the receive-only ring {entry.direction} of PE {tuple(place)}")


def _ends(plan: InstallPlan) -> Iterator[tuple[PePlace, IpcqInitEntry]]:
    return ((place, entry) for place, entries in plan.items() for entry in entries)


def _check_kind(entry: IpcqInitEntry, where: str, kind: str) -> None:
    kinds = entry.peer.buffer_kind, PhysAddr.decode(entry.my_rx_base_pa).space
    wrong = next((k for k in kinds if k != kind), None)
    if wrong is not None:
        raise ConfigError(f"I4: {where} has a ring in {wrong}, but the rings of its group must be in {kind}")
