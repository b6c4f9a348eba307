"""Messages from one rank of a group to another: workers, programs and queue pairs of a pair of ranks. Pure.

Both ranks derive all of it from the tensor's size and layout, which must be alike, and from the group alone, in
whatever order their calls come. Sending and receiving have PEs of their own, where a cube has two, so that a rank that
sends can receive at the same time: ranks that all send first, and then receive, do not wait for each other.
"""

from math import gcd
from typing import NamedTuple

from sipsim.chips.ahbm.address import PePlace, PhysAddr
from sipsim.chips.ahbm.collectives.launch.workers import Place, WorkerSettings, worker_places
from sipsim.chips.ahbm.collectives.programs.program import Instruction, Shards, tiles_of
from sipsim.chips.ahbm.collectives.queue_pairs import EntryBuilder, InstallPlan, Ring
from sipsim.chips.ahbm.collectives.wirings.install import slots_in
from sipsim.chips.ahbm.collectives.wirings.process_group import ProcessGroup, pair_generation
from sipsim.chips.ahbm.system import System
from sipsim.collectives.call.base import DeviceTensor
from sipsim.collectives.group.group import towards
from sipsim.collectives.schedule.blocks import Block, Part
from sipsim.config.schema.model import IpcqKnobs
from sipsim.core.errors import ConfigError

PAIR_BYTES = 16384
"""Of each PE's TCM, for each group: the rings in which it receives from the other ranks of the group, one at a time."""
MOST_SLOTS = 4


class Pair(NamedTuple):
    """Group ranks ``src`` and ``dst`` of a group."""

    group: ProcessGroup
    src: int
    dst: int

    @property
    def sips(self) -> tuple[int, int]:
        """Of source and destination."""
        return self.group.group.sips[self.src], self.group.group.sips[self.dst]

    @property
    def generation(self) -> int:
        """The number of its queue pairs in this row, which does not depend on the order of calls."""
        return pair_generation(self.group.number, self.src * self.group.group.size + self.dst, self.group.rows)

    def slots(self, knobs: IpcqKnobs) -> tuple[int, int]:
        """Number and bytes of the slots of a ring: at most those of ``knobs``, and as many as have room.

        Raises:
            ConfigError: for a group without room for rings, or of so many ranks that a ring has none.
        """
        if not self.group.window:
            raise ConfigError(f"{self.group.name} has no room for rings in the TCM; set defaults.group_KiB lower")
        room = PAIR_BYTES // (self.group.group.size - 1)
        count, nbytes = slots_in(room, min(MOST_SLOTS, knobs.n_slots), knobs.slot_size, knobs.hw_strict)
        if not nbytes:
            raise ConfigError(
                f"{self.group.name} has too many ranks for messages between two of them; make a smaller one"
            )
        return count, nbytes

    def ring_offset(self, rank: int, sender: int, ring_bytes: int) -> int:
        """In the TCM of ``rank``'s workers, where it receives from ``sender``."""
        window = self.group.window[self.group.group.sips[rank]]
        return window + self.group.window_bytes + (sender - (sender > rank)) * ring_bytes


def turn(src: int, dst: int, size: int) -> tuple[int, int]:
    """When ranks that send to each other in a batch take the message from ``src`` to ``dst``, of ``size`` ranks.

    By distance, then in up to three rounds: messages of one distance form rings of ranks, and those that follow each
    other in a ring, one received and the other sent by the same rank, have different rounds. So no rank has two
    messages in one turn, but those from ``src`` to ``dst`` itself.
    """
    distance = (dst - src) % size
    rings = gcd(distance, size)
    length, step = size // rings, distance // rings
    if length == 1:
        return 0, 0
    place = src // rings * pow(step, -1, length) % length
    return distance, 2 if place == length - 1 and length % 2 else place % 2


class PairWorkers(NamedTuple):
    """The PEs that send on the source, and those that receive on the destination, in pairs."""

    senders: list[Place]
    receivers: list[Place]


def pair_workers(
    tensor: DeviceTensor, n_pes: int, settings: WorkerSettings, allowed: tuple[int, ...] = ()
) -> PairWorkers:
    """Of a message of the size and layout of a tensor.

    The PE that receives follows from the PE that sends alone, and no other PE sends to it: so messages of all layouts
    between two ranks share their queue pairs.
    """
    pes = list(allowed or range(n_pes))
    halves = (pes[::2], pes[1::2]) if len(pes) > 1 else (pes, pes)
    receiver = dict(zip(*halves, strict=False))
    senders = worker_places(tensor.dp.places(), tensor.nbytes, n_pes, settings, list(receiver))
    return PairWorkers(senders, [(cube, receiver[pe]) for cube, pe in senders])


def pair_program(
    pair: Pair, tensor: DeviceTensor, worker: int, n_workers: int, slot_bytes: int, sends: bool
) -> list[Instruction]:
    """The instructions of one worker: its part of the elements, tile by tile."""
    shard = tensor.numel() // tensor.dp.blocks()
    first, stop = Part(worker, worker + 1, n_workers).of(tensor.numel())
    tiles = tiles_of(
        Block(stop - first, first, first), Shards(shard, shard), max(slot_bytes // tensor.dtype.itemsize, 1)
    )
    if sends:
        way = towards(pair.dst)
        return [Instruction((0, a, b), b - a, load_at=first + a, send=way) for a, b in tiles]
    way = towards(pair.src)
    return [Instruction((0, a, b), b - a, recv=way, store_at=first + a) for a, b in tiles]


def pair_entries(
    system: System, knobs: IpcqKnobs, pair: Pair, places: list[tuple[Place, Place]]
) -> tuple[InstallPlan, list[list[PePlace]]]:
    """The queue pairs of pairs of workers, and the PEs of each, source first. ``knobs``: with their rings' size.

    Only the destination has a ring: where the source's would lie, it receives by the pair of the other direction.
    """
    plan: InstallPlan = {}
    out, back = Ring(0, towards(pair.dst)), Ring(1, towards(pair.src))
    members = []
    ring_bytes = knobs.n_slots * knobs.slot_size
    for sender, receiver in places:
        pe_of_rank = [PePlace(pair.sips[0], *sender), PePlace(pair.sips[1], *receiver)]
        ends = ((out, pair.src, pair.dst), (back, pair.dst, pair.src))
        bases = {
            ring: PhysAddr(*pe_of_rank[ring.rank], "tcm", pair.ring_offset(rank, sender_rank, ring_bytes)).encode()
            for ring, rank, sender_rank in ends
        }
        builder = EntryBuilder(system, knobs, pe_of_rank, {out: back}, {back: out}, bases, {})
        for ring in (out, back):
            plan[pe_of_rank[ring.rank]] = [builder.entry(ring)]
        members.append(pe_of_rank)
    return plan, members
