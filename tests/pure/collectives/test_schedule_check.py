"""A schedule that cannot be carried out, or leaves another result, is refused by rank and round; no other is."""

import re
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules import MODULES, group_of, task_of

from sipsim.collectives.evaluate import check_results
from sipsim.collectives.group import pairwise_wiring
from sipsim.collectives.schedule import (
    OWN_FIRST,
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
    "rank 2 sends in direction 'to1' in round 3, which is not in wiring(); directions of rank 2: to0": flow(
        Transfer(3, 2, "to1", (0,))
    ),
    "rank 5 sends in direction 'to0' in round 3, which is not in wiring(); directions of rank 5: none": flow(
        Transfer(3, 5, "to0", (0,))
    ),
    "rank 0 receives in direction 'to3' in round 3, which is not in wiring(); directions of rank 0: to1, to2": (
        steps(Step(3, recv="to3", recvs=(0,)))
    ),
    "rank 2 sends block 4 in round 3; with 1 unit in 4 pieces blocks are numbered from 0 to 3": flow(
        Transfer(3, 2, "to0", (3, 4)), pieces=4
    ),
    "rank 2 sends block 2 in round 3; with 1 unit in 2 pieces": flow(Transfer(3, 2, "to0", (original(2),)), pieces=2),
    "rank 0 receives block 1 in round 3": steps(Step(3, recv="to1", recvs=(1,))),
    "rank 1 receives in round 3 with combine 7; give REPLACE, OWN_FIRST or ARRIVED_FIRST": flow(
        Transfer(3, 0, "to1", (0,), 7)
    ),
    "rank 0: a step of round 1 follows round 1; order steps by round": steps(
        Step(1, "to1", (0,)), Step(1, "to2", (0,))
    ),
    "schedule() returned []; return a list of flows, such as [flow_of(...)]": [],
    "schedule() returned (Transfer(": (Transfer(3, 0, "to1", (0,)),),
    "a flow has pieces 0; give an integer of at least 1": flow(pieces=0),
    "a flow has ahead Ahead(sends=1, receives=0, loads=4)": [flow()[0]._replace(ahead=Ahead(receives=0))],
    "rank 0 sends and receives block 0 in round 3 after different blocks; send it in another round": (
        flow(Transfer(3, 0, "to1", (0, 1)), Transfer(3, 1, "to0", (1, 0)), pieces=2)
    ),
    "rank 0 sends in round 0.5; a round is an integer": flow(Transfer(cast(int, 0.5), 0, "to1", (0,))),
    "rank 0 sends blocks 0 in round 3; give a tuple of block numbers, such as (0,)": flow(
        Transfer(3, 0, "to1", cast(Any, 0))
    ),
    "the transfers of rank 1 contain one with src=0": [
        flow_of(1, 1, lambda _rank: [Transfer(3, 0, "to1", (0,))], STAR)
    ],
    "a flow has weight 0.5; give an integer of at least 1": [Flow(cast(int, 0.5), 1, lambda _rank: [])],
}


@pytest.mark.parametrize("says", SCHEDULES)
def test_a_wrong_schedule(says: str) -> None:
    with pytest.raises(ScheduleError, match=re.escape(says)):
        check_schedule(SCHEDULES[says], STAR, 3, 1)


WIRINGS: dict[str, Any] = {
    "wiring() returned None; it must return a dict": None,
    "wiring() contains (3, 'to0'); give (rank, direction): a rank from 0 to 2": {(3, "to0"): BACK},
    "wiring() contains (0, ''); give": {THERE: (0, "")},
    "wiring() contains (0, 'a#1'); give (rank, direction): a rank from 0 to 2 and a name without #": {
        THERE: (0, "a#1")
    },
    "wiring() contains 1; give": {THERE: 1},
    "wiring() leads direction to0 of rank 1 back to the rank itself": {THERE: THERE},
    "wiring() leads direction to0 of rank 1 to to1 of rank 0, which does not lead back": {THERE: BACK},
}


@pytest.mark.parametrize("says", WIRINGS)
def test_a_wrong_wiring(says: str) -> None:
    with pytest.raises(ScheduleError, match=re.escape(says)):
        check_wiring(WIRINGS[says], 3)


TO_ROOT = Transfer(0, 1, "to0", (0,), OWN_FIRST), Transfer(1, 2, "to0", (0,), OWN_FIRST)
RESULTS = {
    ("reduce", "rank 0 ends with block 0 of 1 without the values of rank 2"): TO_ROOT[:1],
    ("reduce", "rank 0 ends with block 0 of 1 without the values of ranks 0, 1"): (
        TO_ROOT[0],
        TO_ROOT[1]._replace(combine=0),
    ),
    ("reduce", "rank 0 ends with block 0 of 1 in which the values of rank 1 are combined more than once"): (
        *TO_ROOT,
        Transfer(2, 1, "to0", (0,), OWN_FIRST),
    ),
    ("broadcast", "rank 2 ends with block 0 of 1 unwritten; rank 0 held this block before"): (
        Transfer(0, 0, "to1", (0,)),
    ),
    ("broadcast", "rank 1 combines block 0 in round 0; broadcast only moves data"): (
        Transfer(0, 0, "to1", (0,), OWN_FIRST),
    ),
    ("broadcast", "rank 1 sends block 0 in round 0, but does not hold this block"): (Transfer(0, 1, "to0", (0,)),),
}


@pytest.mark.parametrize(("collective", "says"), RESULTS)
def test_a_schedule_with_another_result(collective: str, says: str) -> None:
    task = task_of(collective, group_of("ring_1d", (3, 1)), 8)
    with pytest.raises(ScheduleError, match=re.escape(says)):
        check_results(flow(*RESULTS[collective, says]), STAR, task)


CASES = [(name, collective) for name, module in MODULES.items() for collective in module.COLLECTIVES]
GROUPS = [("ring_1d", (4, 1)), ("ring_1d", (5, 1)), ("torus_2d", (3, 2)), ("mesh_2d_no_wrap", (3, 3))]


@given(st.sampled_from(CASES), st.sampled_from(GROUPS), st.sampled_from([1, 40, 100_000]), st.data())
def test_a_schedule_needs_each_of_its_messages(
    case: tuple[str, str], where: tuple[str, tuple[int, int]], n_elem: int, data: st.DataObject
) -> None:
    module, group = MODULES[case[0]], group_of(*where)
    task = task_of(case[1], group, n_elem, root=data.draw(st.integers(0, group.size - 1)))
    schedule, wiring = module.schedule(task), module.wiring(group)
    check_schedule(schedule, wiring, task.size, units(task.collective.cut, task.size))
    check_results(schedule, wiring, task)
    number = data.draw(st.integers(0, len(schedule) - 1))
    steps_of = [schedule[number].steps_of(rank) for rank in range(group.size)]
    sends = [(rank, at) for rank, own in enumerate(steps_of) for at, step in enumerate(own) if step.sends]
    rank, at = data.draw(st.sampled_from(sends))
    step = steps_of[rank][at]
    peer, _ = wiring[rank, step.send]
    there = next(place for place, each in enumerate(steps_of[peer]) if each.round == step.round)

    def without(of: int) -> list[Step]:
        own = [*steps_of[of]]
        if of == rank:
            own[at] = own[at]._replace(send="", sends=())
        if of == peer:
            own[there] = own[there]._replace(recv="", recvs=())
        return own

    schedule[number] = schedule[number]._replace(steps_of=without)
    with pytest.raises(ScheduleError):
        check_results(schedule, wiring, task)


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
                check_results(module.schedule(task), wiring, task)
                checked += 1
    assert checked > 1


@given(st.integers(0, 20), st.integers(1, 20))
def test_a_send_overtakes_fewer_receives_than_a_ring_has_slots(sends: int, n_slots: int) -> None:
    within = Ahead(sends, 5, 6).within(n_slots)
    assert within.sends < n_slots
    assert within == Ahead(within.sends, 5, 6)
    assert within.sends in (sends, n_slots - 1)
