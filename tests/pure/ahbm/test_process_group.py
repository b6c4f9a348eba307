"""Wirings of a process group: their generations, and the room that they take from each other."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from schedules import group_of
from wire_packets import credit

from sipsim.chips.ahbm.address import Region
from sipsim.chips.ahbm.collectives.wirings import (
    FIRST_PAIR,
    MOST_GROUPS,
    ProcessGroup,
    WindowAllocator,
    pair_generation,
    wiring_generation,
)
from sipsim.chips.ahbm.ipcq.messages import WireCredit
from sipsim.fabric.links.frames import decode, encode

KNOBS = cast(Any, SimpleNamespace(buffer_kind="tcm", n_slots=4, slot_size=256, hw_strict=False))
WIRING = {(0, "to1"): (1, "to0"), (1, "to0"): (0, "to1")}
LAST_WIRING = 2**45


def algorithm(name: str) -> Any:
    return SimpleNamespace(name=name, wiring=lambda group: WIRING)


def test_algorithms_that_take_the_room_of_each_other_have_no_last_turn() -> None:
    windows = WindowAllocator(2, {"tcm": Region(0, 1024)}, 1024)
    group = ProcessGroup(3, group_of("ring_1d", (2, 1)), windows, windows.take((0, 1)), 1024)
    names = ["one", "two"] * (FIRST_PAIR // 2 + 2)
    made = [group.wired(algorithm(name), KNOBS) for name in names]
    assert [wired.generation for wired, _ in made] == [wiring_generation(3, number + 1) for number in range(len(names))]
    assert [[old.algorithm for old in gone] for _, gone in made[1:]] == [[name] for name in names[:-1]]
    assert len({wired.generation for wired, _ in made}) == len(names)


def test_no_generation_is_given_twice() -> None:
    groups = (0, 1, 2, MOST_GROUPS - 1)
    numbers = (1, 2, FIRST_PAIR - 1, FIRST_PAIR, FIRST_PAIR + 1, 2 * FIRST_PAIR, 3 * FIRST_PAIR - 1, LAST_WIRING)
    found = [wiring_generation(group, number) for group in groups for number in numbers]
    found += [pair_generation(group, number) for group in groups for number in (0, 1, FIRST_PAIR - 1)]
    assert len(set(found)) == len(found)
    assert min(found) == 1
    assert max(found) < 2**63


@pytest.mark.parametrize("generation", [0, 2**31, wiring_generation(MOST_GROUPS - 1, LAST_WIRING)])
def test_a_packet_carries_any_generation(generation: int) -> None:
    packet = WireCredit(0, 0, credit(1, 2, (0, 0, 0), "E", 3, 4, generation))
    assert decode(encode(packet)) == packet
