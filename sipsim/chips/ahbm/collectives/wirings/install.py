"""The queue pairs of a group's wiring: rings in its window, alike derived on every rank."""

from collections import Counter
from typing import NamedTuple

from sipsim.chips.ahbm.address import PePlace, PhysAddr
from sipsim.chips.ahbm.collectives.launch.workers import Place
from sipsim.chips.ahbm.collectives.queue_pairs import EntryBuilder, InstallPlan, Ring
from sipsim.chips.ahbm.system import System
from sipsim.collectives.group.group import Group
from sipsim.collectives.schedule.steps import Wiring
from sipsim.config.schema.model import IpcqKnobs
from sipsim.core.errors import ConfigError

SLOT_STEP_BYTES = 256
"""Slots that are made smaller, so that a window holds them, are a multiple of it."""


class RingSize(NamedTuple):
    """The rings of a wiring: ``n_slots`` of ``slot_size`` bytes each, at most ``directions`` on a PE."""

    n_slots: int
    slot_size: int
    directions: int

    @property
    def ring_bytes(self) -> int:
        return self.n_slots * self.slot_size

    @property
    def nbytes(self) -> int:
        """All rings of a PE."""
        return self.directions * self.ring_bytes


def ring_size(wiring: Wiring, knobs: IpcqKnobs, window_bytes: int) -> RingSize:
    """Rings as the settings have them, with smaller slots, then fewer, where so many do not fit the window.

    Raises:
        ConfigError: when not even one slot of 256 B a ring fits.
    """
    directions = most_directions(wiring)
    if not directions:
        return RingSize(knobs.n_slots, knobs.slot_size, 0)
    if not window_bytes:
        raise ConfigError(
            "the TCM has no room for rings of groups: set defaults.group_KiB lower, or the slots of the algorithm that "
            "is wired before the run"
        )
    n_slots, slot_size = slots_in(window_bytes // directions, knobs.n_slots, knobs.slot_size, knobs.hw_strict)
    if not slot_size:
        raise ConfigError(
            f"{directions} rings of a PE do not fit the {window_bytes} bytes of the TCM that its group has; "
            f"set defaults.group_KiB higher"
        )
    return RingSize(n_slots, slot_size, directions)


def slots_in(room_bytes: int, n_slots: int, slot_size: int, hw_strict: bool) -> tuple[int, int]:
    """Number and bytes of the slots of a ring in so much room, at most these; 0 bytes where none fits.

    Powers of two under ``hw_strict``, so that a slot is found with a mask (ADR-0023 D21).
    """
    count = max(min(n_slots, room_bytes // SLOT_STEP_BYTES), 1)
    if hw_strict:
        count = _power_of_two(count)
    nbytes = min(slot_size, room_bytes // count // SLOT_STEP_BYTES * SLOT_STEP_BYTES)
    return count, _power_of_two(nbytes) if hw_strict else nbytes


def _power_of_two(most: int) -> int:
    return 1 << most.bit_length() - 1 if most else 0


def most_directions(wiring: Wiring) -> int:
    """The queue pairs of the PE that has most."""
    return max(Counter(rank for rank, _ in wiring).values(), default=0)


def group_entries(
    system: System,
    knobs: IpcqKnobs,
    group: Group,
    wiring: Wiring,
    places: list[Place],
    offsets: dict[int, int],
    rank: int,
) -> InstallPlan:
    """The entries of all workers of a rank. ``knobs``: with their rings' size; ``offsets``: in each SIP's TCM."""
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
        bases = {ring: PhysAddr(*pe_of_rank[ring.rank], "tcm", starts[ring]).encode() for ring in used}
        builder = EntryBuilder(system, knobs, pe_of_rank, pairs, writer, bases, {})
        plan[pe_of_rank[rank]] = [builder.entry(ring) for ring in own]
    return plan
