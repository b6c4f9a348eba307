"""A schedule that cannot be carried out is told by rank and round; those of this package can."""

import re
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules import MODULES, group_of, task_of

from sipsim.collectives.group import pairwise_wiring
from sipsim.collectives.schedule import (
    Ahead,
    Flow,
    ScheduleError,
    Step,
    Transfer,
    check_schedule,
    check_wiring,
    flow_of,
    original,
    units,
)

STAR = pairwise_wiring({(0, 1), (0, 2)})
THERE, BACK = (1, "to0"), (0, "to1")


def flow(*transfers: Transfer, pieces: int = 1) -> list[Flow]:
    return [flow_of(1, pieces, transfers, STAR)]


def steps(*own: Step) -> list[Flow]:
    """Of rank 0; the others have none."""
    return [Flow(1, 1, lambda rank: [*own] if rank == 0 else [])]


SCHEDULES = {
    "rank 0 sends to ranks 1 and 2 in round 3 (directions to1, to2); a rank sends once in a round": flow(
        Transfer(3, 0, "to1", (0,)), Transfer(3, 0, "to2", (0,))
    ),
    "ranks 1 and 2 send to rank 0 in round 3 (its directions to1, to2); a rank receives once in a round": flow(
        Transfer(3, 2, "to0", (0,)), Transfer(3, 1, "to0", (0,))
    ),
    "rank 2 sends in direction 'to1' in round 3, which its wiring() does not join; directions of rank 2: to0": flow(
        Transfer(3, 2, "to1", (0,))
    ),
    "rank 5 sends in direction 'to0' in round 3, which its wiring() does not join; directions of rank 5: none": flow(
        Transfer(3, 5, "to0", (0,))
    ),
    "rank 0 receives in direction 'to3' in round 3, which its wiring() does not join; directions of rank 0: to1, to2": (
        steps(Step(3, recv="to3", recvs=(0,)))
    ),
    "rank 2 sends block 4 of 4 in round 3; with 1 unit in 4 pieces blocks are numbered from 0 to 3": flow(
        Transfer(3, 2, "to0", (3, 4)), pieces=4
    ),
    "rank 2 sends block 2 of 2 in round 3; with 1 unit in 2 pieces": flow(
        Transfer(3, 2, "to0", (original(2),)), pieces=2
    ),
    "rank 0 receives block 1 of 1 in round 3": steps(Step(3, recv="to1", recvs=(1,))),
    "rank 1 receives in round 3 with combine 7; must be REPLACE, OWN_FIRST or ARRIVED_FIRST": flow(
        Transfer(3, 0, "to1", (0,), 7)
    ),
    "rank 0 has a step of round 1 behind one of round 1; rounds rise": steps(
        Step(1, "to1", (0,)), Step(1, "to2", (0,))
    ),
    "schedule() returned []; must be a list of flows, such as [flow_of(...)]": [],
    "schedule() returned (Transfer(": (Transfer(3, 0, "to1", (0,)),),
    "a flow has pieces 0; must be an integer of at least 1": flow(pieces=0),
    "a flow has ahead Ahead(sends=1, receives=0, loads=4)": [flow()[0]._replace(ahead=Ahead(receives=0))],
    "a flow has weight 0.5; must be an integer of at least 1": [Flow(cast(int, 0.5), 1, lambda _rank: [])],
}


@pytest.mark.parametrize("says", SCHEDULES)
def test_a_wrong_schedule(says: str) -> None:
    with pytest.raises(ScheduleError, match=re.escape(says)):
        check_schedule(SCHEDULES[says], STAR, 3, 1)


WIRINGS: dict[str, Any] = {
    "wiring() returned None; must be a dict": None,
    "wiring() has (3, 'to0'); must be (rank, direction), of ranks 0 to 2": {(3, "to0"): BACK},
    "wiring() has (0, ''); must be": {THERE: (0, "")},
    "wiring() has (0, 'a#1'); must be (rank, direction), of ranks 0 to 2 and a name without #": {THERE: (0, "a#1")},
    "wiring() has 1; must be": {THERE: 1},
    "wiring() leads direction to0 of rank 1 back to the rank itself": {THERE: THERE},
    "wiring() leads direction to0 of rank 1 to to1 of rank 0, which does not lead back": {THERE: BACK},
}


@pytest.mark.parametrize("says", WIRINGS)
def test_a_wrong_wiring(says: str) -> None:
    with pytest.raises(ScheduleError, match=re.escape(says)):
        check_wiring(WIRINGS[says], 3)


@pytest.mark.parametrize("name", MODULES)
def test_the_schedules_of_this_package_can_be_carried_out(name: str) -> None:
    """What the catalog takes for granted; with units in pieces, and with roots."""
    module, checked = MODULES[name], 0
    for group in (group_of("ring_1d", (1, 1)), group_of("ring_1d", (4, 1)), group_of("torus_2d", (3, 2))):
        for collective in module.COLLECTIVES:
            task = task_of(collective, group, 100_000, root=group.size - 1)
            if not getattr(module, "suits", lambda _task: "")(task):
                wiring = module.wiring(group)
                check_wiring(wiring, task.size)
                check_schedule(module.schedule(task), wiring, task.size, units(task.collective.cut, task.size))
                checked += 1
    assert checked > 1


@given(st.integers(0, 20), st.integers(1, 20))
def test_a_send_overtakes_fewer_receives_than_a_ring_has_slots(sends: int, n_slots: int) -> None:
    within = Ahead(sends, 5, 6).within(n_slots)
    assert within.sends < n_slots
    assert within == Ahead(within.sends, 5, 6)
    assert within.sends in (sends, n_slots - 1)
