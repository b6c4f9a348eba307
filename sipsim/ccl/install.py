"""From a neighbour table to the queue pairs of every PE: which ring faces which, where it lies, what a credit costs.

Derived from the config without communication, so that every process has the same plan. What cannot be
installed is a ``ConfigError`` here, before anything runs (ADR-0023 F4, I3; ADR-0025 I3.1).
"""

from itertools import pairwise
from typing import NamedTuple

from sipsim.address import PhysAddr
from sipsim.ccl.neighbours import OPPOSITE, NeighbourTable, reverse_direction
from sipsim.config.model import IpcqKnobs
from sipsim.errors import ConfigError
from sipsim.noc.graph import Node
from sipsim.pe.ipcq_messages import IpcqEndpoint, IpcqInitEntry
from sipsim.system import System


class PePlace(NamedTuple):
    """A PE of the system."""

    sip: int
    cube: int
    pe: int


class Ring(NamedTuple):
    """The receive ring of one rank and direction."""

    rank: int
    direction: str


RingMap = dict[Ring, Ring]
InstallPlan = dict[PePlace, list[IpcqInitEntry]]


def pair_rings(table: NeighbourTable) -> RingMap:
    """For every direction that sends, the ring that it writes to: ``{(rank, direction): (peer, its direction)}``.

    Where the peer has no way back (a unidirectional ring) it gets a receive-only ring in the opposite direction.

    Raises:
        ConfigError: when two senders would write to one ring.
    """
    pairs: RingMap = {}
    writer: dict[Ring, Ring] = {}
    for rank in sorted(table):
        for direction, peer in table[rank].items():
            if peer not in table:
                raise ConfigError(
                    f"rank {rank}, direction {direction}: there is no rank {peer}; ranks are 0 to {len(table) - 1}"
                )
            back = reverse_direction(table, rank, peer, direction) or OPPOSITE.get(direction, direction)
            ring = Ring(peer, back)
            if ring in writer:
                other = writer[ring]
                raise ConfigError(
                    f"two senders for one receive ring: rank {other.rank} {other.direction} and "
                    f"rank {rank} {direction} both lead to rank {peer} {back}; "
                    f"give each a direction of its own (ADR-0025 D6)"
                )
            pairs[Ring(rank, direction)] = ring
            writer[ring] = Ring(rank, direction)
    _check_mutual(pairs, writer)
    return pairs


def _check_mutual(pairs: RingMap, writer: RingMap) -> None:
    """I3 of ADR-0023: a direction that both sends and receives does both with the same peer; credits rely on it."""
    for ring, far in pairs.items():
        sender = writer.get(ring)
        if sender is not None and sender.rank != far.rank:
            raise ConfigError(
                f"I3: rank {ring.rank} sends {ring.direction} to rank {far.rank}, but receives there from rank "
                f"{sender.rank}; make neighbours mutual, or use another direction name"
            )


def install(system: System, knobs: IpcqKnobs, rank_to_pe: list[PePlace], table: NeighbourTable) -> InstallPlan:
    """All entries of all PEs, per PE in the order of their rings in memory.

    Raises:
        ConfigError: rings that do not fit their memory, or a table that cannot be paired.
    """
    pairs = pair_rings(table)
    faces = {ring: sender for sender, ring in pairs.items()}
    directions = _directions_by_rank(table, faces)
    bases = {
        Ring(rank, direction): _ring_base_pa(system, knobs, rank_to_pe[rank], index, len(directions[rank]))
        for rank in directions
        for index, direction in enumerate(directions[rank])
    }
    builder = _EntryBuilder(system, knobs, rank_to_pe, pairs, faces, bases)
    return {
        rank_to_pe[rank]: [builder.entry(Ring(rank, direction)) for direction in directions[rank]]
        for rank in directions
    }


def _directions_by_rank(table: NeighbourTable, faces: RingMap) -> dict[int, list[str]]:
    found: dict[int, set[str]] = {rank: set(table[rank]) for rank in sorted(table)}
    for ring in faces:
        found[ring.rank].add(ring.direction)
    return {rank: sorted(names) for rank, names in found.items()}


def _ring_base_pa(system: System, knobs: IpcqKnobs, place: PePlace, index: int, count: int) -> int:
    """Rings lie one after the other: in the TCM's IPCQ region, at the top of the PE's HBM, or of the cube's SRAM."""
    ring_bytes = knobs.n_slots * knobs.slot_size
    kind = knobs.buffer_kind
    if kind == "tcm":
        start, room, pe = system.tcm.ipcq.offset, system.tcm.ipcq.size, place.pe
    elif kind == "hbm":
        start, room, pe = system.capacities["hbm"] - count * ring_bytes, system.capacities["hbm"], place.pe
    else:
        room = system.capacities["sram"] // system.n_pes
        start, pe = place.pe * room, 0
    if count * ring_bytes > room:
        raise ConfigError(
            f"{count} IPCQ rings of {knobs.n_slots} x {knobs.slot_size} bytes do not fit the {room} bytes that "
            f"{kind} has for them; lower n_slots or slot_size, or choose another buffer_kind"
        )
    return PhysAddr(place.sip, place.cube, pe, kind, start + index * ring_bytes).encode()


class _EntryBuilder:
    def __init__(
        self,
        system: System,
        knobs: IpcqKnobs,
        rank_to_pe: list[PePlace],
        pairs: RingMap,
        faces: RingMap,
        bases: dict[Ring, int],
    ) -> None:
        self._system = system
        self._knobs = knobs
        self._places = rank_to_pe
        self._pairs = pairs
        self._faces = faces
        self._bases = bases
        self._credit_ps: dict[tuple[Node, Node, str], int] = {}

    def entry(self, ring: Ring) -> IpcqInitEntry:
        """The queue pair of one direction. A receive-only ring's peer is the rank that writes to it."""
        can_send = ring in self._pairs
        far = self._pairs[ring] if can_send else self._faces[ring]
        knobs, here, there = self._knobs, self._places[ring.rank], self._places[far.rank]
        base = self._bases.get(far, 0) if can_send else 0
        peer = IpcqEndpoint(*there, knobs.buffer_kind, base, 0, knobs.n_slots, knobs.slot_size)
        credit_ps = self._credit_latency_ps(here, there, ring.direction)
        return IpcqInitEntry(
            ring.direction, peer, self._bases[ring], knobs.n_slots, knobs.slot_size, can_send, credit_ps
        )

    def _credit_latency_ps(self, here: PePlace, there: PePlace, direction: str) -> int:
        """The whole path's latency for a credit (ADR-0023 D9). SIPs are alike, so paths over one link are shared."""
        system = self._system
        src, dst = Node("pe", here.cube, here.pe), Node("pe", there.cube, there.pe)
        if here.sip == there.sip:
            port, way = None, "local"
        else:
            port = system.port_towards(here.sip, there.sip, direction)
            direct = system.far_ends[here.sip, port].sip == there.sip
            way = f"{port}>{system.far_ends[here.sip, port].port}" if direct else f"{here.sip}:{there.sip}:{port}"
        key = (src, dst, way)
        if key not in self._credit_ps:
            route = system.end_to_end(here.sip, src, there.sip, dst, port)
            self._credit_ps[key] = route.latency_ps(self._knobs.ipcq_credit_size_bytes)
        return self._credit_ps[key]


def check_rings_disjoint(plan: InstallPlan) -> None:
    """I3.1 of ADR-0025: receive rings never overlap. Sorted sweep, so n log n.

    Raises:
        ConfigError: naming two rings that do.
    """
    rings = sorted(
        (e.my_rx_base_pa, e.my_rx_base_pa + e.n_slots * e.slot_size, place, e.direction)
        for place, entries in plan.items()
        for e in entries
    )
    for (_, stop, place, direction), (start, _, other, other_direction) in pairwise(rings):
        if start < stop:
            raise ConfigError(
                f"I3.1: receive ring {direction} of {tuple(place)} overlaps ring {other_direction} of {tuple(other)}"
            )
