"""Wirings of process groups: their queue pairs, and the memory windows for the receive rings.

Every rank derives the same windows, rings and generations without communication: all ranks of a run create and destroy
groups in one order, and all ranks of a group make the same calls in the same order. So a sender knows the address of
its peer's ring without a request. A group has the same window on every PE of a SIP.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import product
from math import gcd
from typing import Any, NamedTuple

from sipsim.chips.ahbm.address import PePlace, Region
from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.chips.ahbm.collectives.launch import Place, WorkerSettings, worker_places
from sipsim.chips.ahbm.collectives.programs import Instruction, Program, Shards, tiles_of
from sipsim.chips.ahbm.collectives.queue_pairs import EntryBuilder, InstallPlan, Ring, ring_pa
from sipsim.chips.ahbm.system import AhbmSystem
from sipsim.collectives.call import COPIES, DeviceTensor, TensorLayout, group_name
from sipsim.collectives.group import Group, towards
from sipsim.collectives.schedule import Extent, Share, Wiring
from sipsim.config.schema import IpcqKnobs
from sipsim.core.errors import ConfigError


class Communicator(NamedTuple):
    """Communicator: a group of ranks, their algorithm, and the queue pairs ``entries`` between the ranks.

    ``pe_of_rank``: the PE of each rank, on which the kernels run.
    """

    algorithm: Algorithm
    pe_of_rank: list[PePlace]
    entries: InstallPlan

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.pe_of_rank)

    def on_sip(self, sip: int) -> "Communicator":
        """Return a copy for one SIP, so that SIPs in one process share no state of the algorithm's module."""
        return self._replace(algorithm=self.algorithm.fresh_instance(sip))

    def places_on(self, sip: int) -> list[PePlace]:
        """Return the PEs on one SIP, by rank."""
        return [place for place in self.pe_of_rank if place.sip == sip]

    def check_holders(self, layouts: Iterable[TensorLayout], sip: int) -> None:
        """Check that a kernel runs on every non-lead PE that holds a part of a tensor. If the algorithm divides tensors
        among PEs, also check that kernels run on no other PEs.

        Raises:
            ValueError: no kernel would process some part, or some kernel has no part.
        """
        running = set(self.places_on(sip))
        is_divided = self.algorithm.layout is not None and self.algorithm.layout[1] != COPIES
        for dp in layouts:
            if is_divided and dp.num_cubes * dp.num_pes != len(running):
                raise ValueError(
                    f"algorithm {self.algorithm.name} runs on {len(running)} PEs of SIP {sip}, but the tensor lies on "
                    f"{dp.num_cubes * dp.num_pes} PEs; {_remedy(len(running), dp.num_cubes)}"
                )
            for place in product((sip,), range(dp.num_cubes), range(1, dp.num_pes)):
                if place not in running:
                    raise ValueError(
                        f"algorithm {self.algorithm.name} runs no kernel on PE {place[2]} of cube {place[1]}, where a "
                        f"part of the tensor lies; use DPPolicy(num_pes=1), or an algorithm with rank_per: pe"
                    )

    def kernel_args(self, system: AhbmSystem, sip: int, n_elem: int) -> tuple[Any, ...]:
        """Return the algorithm's kernel arguments on ``sip`` (:meth:`Algorithm.kernel_args`)."""
        return self.algorithm.kernel_args(system, self.world_size, sip, n_elem)


def _remedy(n_running: int, n_cubes: int) -> str:
    pes, remainder = divmod(n_running, n_cubes)
    equal_cubes = "set rank_per and world_size so that every cube has equally many PEs with a kernel"
    return equal_cubes if remainder else f"use DPPolicy(num_pes={pes})"


NAMES = {"tcm": "the TCM", "hbm": "HBM", "sram": "SRAM"}
"""Memories of rings, as messages name them."""
SLOT_STEP_BYTES = 256
"""Granularity of slot sizes that are reduced to fit a window."""


class RingSize(NamedTuple):
    """Size of a wiring's rings: ``n_slots`` slots of ``slot_size`` bytes each, at most ``directions`` rings per PE."""

    n_slots: int
    slot_size: int
    directions: int

    @property
    def ring_bytes(self) -> int:
        return self.n_slots * self.slot_size

    @property
    def nbytes(self) -> int:
        """Bytes of all rings of a PE."""
        return self.directions * self.ring_bytes


def ring_size(wiring: Wiring, knobs: IpcqKnobs, window_bytes: int) -> RingSize:
    """Return the size of a wiring's rings: the configured size, or the largest that fits ``window_bytes`` per PE.

    Raises:
        ConfigError: not even one slot of 256 B per ring fits.
    """
    directions = most_directions(wiring)
    if not directions:
        return RingSize(knobs.n_slots, knobs.slot_size, 0)
    if not window_bytes:
        raise ConfigError(
            f"{NAMES[knobs.buffer_kind]} has no room for rings of groups; lower defaults.group_KiB, or n_slots or "
            f"slot_size of the algorithm that is wired before the run"
        )
    n_slots, slot_size = slots_in(window_bytes // directions, knobs.n_slots, knobs.slot_size, knobs.hw_strict)
    if not slot_size:
        raise ConfigError(
            f"{directions} rings of a PE do not fit the {window_bytes} bytes of the group's window in "
            f"{NAMES[knobs.buffer_kind]}; raise defaults.group_KiB"
        )
    return RingSize(n_slots, slot_size, directions)


def slots_in(free_bytes: int, n_slots: int, slot_size: int, hw_strict: bool) -> tuple[int, int]:
    """Return (number, bytes) of a ring's slots in ``free_bytes``, at most the given values; 0 bytes if no slot fits.

    Both values are powers of two under ``hw_strict``, so that a slot is addressed with a mask (ADR-0023 D21).
    """
    count = max(min(n_slots, free_bytes // SLOT_STEP_BYTES), 1)
    if hw_strict:
        count = _power_of_two(count)
    nbytes = min(slot_size, free_bytes // count // SLOT_STEP_BYTES * SLOT_STEP_BYTES)
    return count, _power_of_two(nbytes) if hw_strict else nbytes


def _power_of_two(limit: int) -> int:
    return 1 << limit.bit_length() - 1 if limit else 0


def most_directions(wiring: Wiring) -> int:
    """Return the largest number of queue pairs of any PE."""
    return max(Counter(rank for rank, _ in wiring).values(), default=0)


def group_entries(
    system: AhbmSystem,
    knobs: IpcqKnobs,
    group: Group,
    wiring: Wiring,
    places: list[Place],
    offsets: dict[int, int],
    rank: int,
) -> InstallPlan:
    """Return the queue pairs of a rank's workers. ``offsets``: offset of the first ring in a PE's memory, by SIP."""
    directions: dict[int, list[str]] = {}
    for end, direction in sorted(wiring):
        directions.setdefault(end, []).append(direction)
    ring_bytes = knobs.n_slots * knobs.slot_size
    starts = {
        Ring(each, direction): offsets[group.sips[each]] + index * ring_bytes
        for each, names in directions.items()
        for index, direction in enumerate(names)
    }
    pairs = {Ring(*end): Ring(*peer) for end, peer in wiring.items()}
    writer = {ring: sender for sender, ring in pairs.items()}
    own = [Ring(rank, direction) for direction in directions.get(rank, [])]
    used = {*own, *(pairs[ring] for ring in own if ring in pairs)}
    plan: InstallPlan = {}
    for cube, pe in places if own else ():
        pe_of_rank = [PePlace(sip, cube, pe) for sip in group.sips]
        bases = {ring: ring_pa(system, pe_of_rank[ring.rank], knobs.buffer_kind, starts[ring]) for ring in used}
        builder = EntryBuilder(system, knobs, pe_of_rank, pairs, writer, bases, {})
        plan[pe_of_rank[rank]] = [builder.entry(ring) for ring in own]
    return plan


class WindowAllocator:
    """Allocator of group windows of ``nbytes`` each. A window is a part of each memory in ``pools``, on every PE.

    ``pools``: by kind of memory, the region of a PE that is divided into windows.
    """

    def __init__(self, n_sips: int, pools: Mapping[str, Region], nbytes: int) -> None:
        self._pools = pools
        self.nbytes = nbytes
        self.count = min(region.size // nbytes for region in pools.values())
        self._free = [list(range(self.count)) for _ in range(n_sips)]

    def offset(self, kind: str, window: int) -> int:
        """Return the offset of a window in a PE's memory of this kind."""
        return self._pools[kind].offset + window * self.nbytes

    def take(self, sips: tuple[int, ...]) -> dict[int, int]:
        """Allocate the lowest free window on each SIP of a group; return the number of the window by SIP.

        Raises:
            ConfigError: a SIP has no free window; nothing is allocated.
        """
        full = next((sip for sip in sips if not self._free[sip]), None)
        if full is not None:
            names = " or ".join(NAMES[kind] for kind in self._pools)
            raise ConfigError(
                f"SIP {full} is in {self.count} groups; {names} of its PEs has no room for the rings of another group; "
                f"destroy a group with destroy_process_group(group), or lower defaults.group_KiB or defaults.slot_size"
            )
        return {sip: self._free[sip].pop(0) for sip in sips}

    def free(self, window: dict[int, int]) -> None:
        """Free a group's window."""
        for sip, number in window.items():
            self._free[sip] = sorted([*self._free[sip], number])


class RingAllocator:
    """Allocator of a window's bytes for wirings; evicts the least recently used wirings for a new one.

    A group allocates in the order of its calls, so that all of its ranks get the same offsets.
    """

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._taken: dict[str, tuple[int, int]] = {}

    def use(self, name: str) -> bool:
        """Return whether a wiring is allocated, and mark it as most recently used."""
        taken = self._taken.pop(name, None)
        if taken is not None:
            self._taken[name] = taken
        return taken is not None

    def take(self, name: str, nbytes: int) -> tuple[int, list[str]]:
        """Allocate a new wiring; return its offset in the window, and the names of the wirings evicted for this.

        Raises:
            ConfigError: the wiring is larger than the window.
        """
        if nbytes > self._nbytes:
            raise ConfigError(f"rings of {name}: {nbytes} B do not fit {self._nbytes} B; raise defaults.group_KiB")
        evicted: list[str] = []
        while (offset := self._gap(nbytes)) is None:
            evicted.append(next(iter(self._taken)))
            del self._taken[evicted[-1]]
        self._taken[name] = offset, nbytes
        return offset, evicted

    def _gap(self, nbytes: int) -> int | None:
        """Return the first offset with ``nbytes`` free bytes; None if no gap is large enough."""
        offset = 0
        for start, size in sorted(self._taken.values()):
            if start - offset >= nbytes:
                return offset
            offset = start + size
        return offset if self._nbytes - offset >= nbytes else None


FIRST_PAIR = 2**14
"""First generation of point-to-point pairs within a group; lower numbers are generations of wirings."""
PER_GROUP = 2 * FIRST_PAIR
MOST_GROUPS = 2**16
"""Maximum number of groups in a run."""
PER_TURN = MOST_GROUPS * PER_GROUP
"""Generations of all groups in one range; a group with more wirings continues in further ranges, up to 2**63."""


def wiring_generation(group: int, number: int) -> int:
    """Return the generation of wiring ``number``, counted from 1, of the group with number ``group``."""
    span, index = divmod(number, FIRST_PAIR)
    return span * PER_TURN + group * PER_GROUP + index


def pair_generation(group: int, number: int, row: int = 0) -> int:
    """Return the generation of pair ``number``, counted from 0, of a group in result row ``row``, counted from 0."""
    return row * PER_TURN + group * PER_GROUP + FIRST_PAIR + number


class InstalledWiring(NamedTuple):
    """Installed queue pairs of an algorithm, with rings at ``offset`` in the window. Calls add workers to ``places``.

    A wiring has the same generation and offset on all ranks of a group.
    """

    generation: int
    algorithm: str
    wiring: Wiring
    size: RingSize
    offset: int
    places: dict[Place, None]


class WiringUse(NamedTuple):
    """Wiring to use, and the evicted wirings ``gone``, which the caller must close first."""

    wired: InstalledWiring
    gone: list[InstalledWiring]


class ProcessGroup:
    """Process group. ``number`` is equal on all ranks; 0 is the group of all SIPs. ``window``: number of the group's
    window, by SIP; empty if no window was free. ``calls``: number of collectives that the group has started. ``pes``:
    PEs of each cube that may be workers; empty if all may. ``rows``: number of result rows since the group's creation.
    """

    def __init__(
        self,
        number: int,
        group: Group,
        windows: WindowAllocator,
        window: dict[int, int],
        window_bytes: int,
        pes: tuple[int, ...] = (),
    ) -> None:
        self.number = number
        self.group = group
        self._windows = windows
        self.window = window
        self.calls = self.rows = 0
        self.pes = pes
        self.window_bytes = window_bytes
        self._space = {kind: RingAllocator(window_bytes) for kind in NAMES}
        self._wired: dict[str, InstalledWiring] = {}
        self._n_wirings = 0

    @property
    def name(self) -> str:
        """Name of the group in messages."""
        return group_name(self.number, self.group.sips)

    def __repr__(self) -> str:
        return self.name

    def offset(self, kind: str, sip: int) -> int:
        """Return the offset of the group's window in the memory of this kind of each PE of a SIP."""
        return self._windows.offset(kind, self.window[sip])

    def wired(self, algorithm: Algorithm, knobs: IpcqKnobs) -> WiringUse:
        """Return the wiring of an algorithm; if its rings have no space in the window, allocate them.

        Raises:
            ConfigError: the rings of the wiring do not fit the window.
        """
        name, space = algorithm.name, self._space[knobs.buffer_kind]
        if space.use(name):
            return WiringUse(self._wired[name], [])
        assert algorithm.wiring is not None
        wiring: Wiring = algorithm.wiring(self.group)
        size = ring_size(wiring, knobs, self.window_bytes)
        offset, names = space.take(name, size.nbytes)
        gone = [self._wired.pop(each) for each in names]
        self._n_wirings += 1
        generation = wiring_generation(self.number, self._n_wirings)
        self._wired[name] = InstalledWiring(generation, name, wiring, size, offset, {})
        return WiringUse(self._wired[name], gone)

    def close(self) -> list[InstalledWiring]:
        """Remove and return all wirings of the group, which the caller must close."""
        gone = [*self._wired.values()]
        self._wired.clear()
        self._space = {kind: RingAllocator(self.window_bytes) for kind in NAMES}
        return gone


PAIR_BYTES = 16384
"""Bytes per PE and group for the rings of point-to-point messages from the other ranks of the group."""
MOST_SLOTS = 4


class PeerPair(NamedTuple):
    """Point-to-point connection from group rank ``src`` to group rank ``dst``.

    Both ranks derive the properties of the pair only from the group and from the tensor's size and layout, which must
    be equal on both ranks; the order of calls does not matter.
    """

    group: ProcessGroup
    src: int
    dst: int

    @property
    def sips(self) -> tuple[int, int]:
        """SIPs of source and destination."""
        return self.group.group.sips[self.src], self.group.group.sips[self.dst]

    @property
    def generation(self) -> int:
        """Generation of the pair's queue pairs in this result row, independent of the order of calls."""
        return pair_generation(self.group.number, self.src * self.group.group.size + self.dst, self.group.rows)

    def slots(self, knobs: IpcqKnobs) -> tuple[int, int]:
        """Return (number, bytes) of a ring's slots: the values of ``knobs``, reduced if necessary to fit the window.

        Raises:
            ConfigError: the group has no window, or so many ranks that no slot fits.
        """
        if not self.group.window:
            where = NAMES[knobs.buffer_kind]
            raise ConfigError(f"{self.group.name} has no window for rings in {where}; lower defaults.group_KiB")
        ring_bytes = PAIR_BYTES // (self.group.group.size - 1)
        count, nbytes = slots_in(ring_bytes, min(MOST_SLOTS, knobs.n_slots), knobs.slot_size, knobs.hw_strict)
        if not nbytes:
            raise ConfigError(f"{self.group.name} has too many ranks for point-to-point messages; make a smaller group")
        return count, nbytes

    def ring_offset(self, kind: str, rank: int, sender: int, ring_bytes: int) -> int:
        """Return the offset in memory ``kind`` of the ring in which ``rank``'s workers receive from ``sender``."""
        window = self.group.offset(kind, self.group.group.sips[rank])
        return window + self.group.window_bytes + (sender - (sender > rank)) * ring_bytes


def turn(src: int, dst: int, size: int) -> tuple[int, int]:
    """Return the turn of the message from ``src`` to ``dst`` in a batch between ``size`` ranks, as a sort key.

    Turns are ordered by distance, then by up to three rounds: the messages of one distance form rings of ranks, and two
    messages that follow each other in a ring (a rank receives one and sends the other) are in different rounds. So a
    rank has at most one message per turn, apart from several messages from ``src`` to ``dst``.
    """
    distance = (dst - src) % size
    rings = gcd(distance, size)
    length, step = size // rings, distance // rings
    if length == 1:
        return 0, 0
    position = src // rings * pow(step, -1, length) % length
    return distance, 2 if position == length - 1 and length % 2 else position % 2


class PairWorkers(NamedTuple):
    """Paired workers of a message: the PEs that send on the source, and the PEs that receive on the destination."""

    senders: list[Place]
    receivers: list[Place]


def pair_workers(
    tensor: DeviceTensor, n_pes: int, settings: WorkerSettings, allowed: tuple[int, ...] = ()
) -> PairWorkers:
    """Return the workers of a message with the size and layout of a tensor.

    If a cube has two PEs or more, different PEs send and receive, so that a rank can send and receive at the same time:
    ranks that all send first, and then receive, do not deadlock. PEs are paired independently of the
    layout, so messages of all layouts between two ranks share the queue pairs.
    """
    pes = list(allowed or range(n_pes))
    halves = (pes[::2], pes[1::2]) if len(pes) > 1 else (pes, pes)
    receiver = dict(zip(*halves, strict=False))
    senders = worker_places(tensor.dp.places(), tensor.nbytes, n_pes, settings, list(receiver))
    return PairWorkers(senders, [(cube, receiver[pe]) for cube, pe in senders])


def pair_program(
    pair: PeerPair, tensor: DeviceTensor, worker: int, n_workers: int, slot_bytes: int, sends: bool
) -> Program:
    """Return the program of one worker, which sends or receives its part of the elements tile by tile."""
    shard = tensor.numel() // tensor.dp.blocks()
    first, stop = Share(worker, worker + 1, n_workers).of(tensor.numel())
    tiles = tiles_of(
        Extent(stop - first, first, first), Shards(shard, shard), max(slot_bytes // tensor.dtype.itemsize, 1)
    )
    if sends:
        direction = towards(pair.dst)
        return Program([Instruction((0, a, b), b - a, load_at=first + a, send=direction) for a, b in tiles])
    direction = towards(pair.src)
    return Program([Instruction((0, a, b), b - a, recv=direction, store_at=first + a) for a, b in tiles])


def pair_entries(
    system: AhbmSystem, knobs: IpcqKnobs, pair: PeerPair, places: list[tuple[Place, Place]]
) -> tuple[InstallPlan, list[list[PePlace]]]:
    """Return the queue pairs of pairs of workers, and the PEs of each pair, source first. ``knobs`` set the ring size.

    Only the destination has a ring. The source's ring of the opposite direction belongs to another pair.
    """
    plan: InstallPlan = {}
    out, back = Ring(0, towards(pair.dst)), Ring(1, towards(pair.src))
    members = []
    ring_bytes, kind = knobs.n_slots * knobs.slot_size, knobs.buffer_kind
    for sender, receiver in places:
        pe_of_rank = [PePlace(pair.sips[0], *sender), PePlace(pair.sips[1], *receiver)]
        ends = ((out, pair.src, pair.dst), (back, pair.dst, pair.src))
        bases = {
            ring: ring_pa(system, pe_of_rank[ring.rank], kind, pair.ring_offset(kind, rank, sender_rank, ring_bytes))
            for ring, rank, sender_rank in ends
        }
        builder = EntryBuilder(system, knobs, pe_of_rank, {out: back}, {back: out}, bases, {})
        for ring in (out, back):
            plan[pe_of_rank[ring.rank]] = [builder.entry(ring)]
        members.append(pe_of_rank)
    return plan, members
