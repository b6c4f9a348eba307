"""Limits from downstream: a transfer that a buffer or a link without credits holds back, and those behind it."""

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest
from mesh_traffic import LOADS, meeting, workload
from plain_fabric import Journey, Traffic, Watched, edge, route

import sipsim.fabric.noc.edges
from sipsim.core.engine import Engine
from sipsim.core.errors import InvariantViolation
from sipsim.fabric.graph import Edge
from sipsim.fabric.noc.arbitration import COMM, COMPUTE, Arbitration, Want, divide
from sipsim.fabric.noc.fabric import Fabric
from sipsim.fabric.noc.transfer import Transfer

EQUAL = Arbitration(10, (1, 1))
SHARED = edge(3, 7, 0, 1)


class Limited(NamedTuple):
    """Transfers, limits (at, of which, on which edge, part of its bandwidth), and by hand when each ends."""

    journeys: list[Journey]
    limits: list[tuple[int, int, Edge, float | None]]
    ends: list[int]


def over(start: int, nbytes: int, *edges: Edge, vc: int = COMPUTE) -> Journey:
    return Journey(start, route(*(edges or (SHARED,))), nbytes, vc=vc)


NEAR = edge(1, 50, 0, 1)
LIMITED: dict[str, Limited] = {
    # B of A's channel waits for A, while C of another channel uses the rest.
    "not overtaken in its channel": Limited(
        [over(0, 100), over(20, 10), over(20, 30, vc=COMM)],
        [(20, 0, SHARED, 0.25)],
        [20 + 320 + 7, 20 + 320 + 10 + 7, 20 + 40 + 7],
    ),
    # 100 B at full rate to 20, at a quarter to 60, where 70 are left; then on at full rate.
    "from downstream, and lifted": Limited(
        [over(0, 100), over(20, 15, vc=COMM)],
        [(20, 0, SHARED, 0.25), (60, 0, SHARED, None)],
        [60 + 70 + 7, 20 + 20 + 7],
    ),
    "before the head comes": Limited([over(0, 20, NEAR, SHARED)], [(0, 0, SHARED, 0.5)], [50 + 40 + 7]),
    "on an edge that others have left": Limited(
        [over(0, 20), over(0, 40, NEAR, SHARED)], [(1, 1, SHARED, 0.5)], [20 + 7, 50 + 80 + 7]
    ),
    "of a transfer that waits in line": Limited(
        [over(0, 20), over(5, 40)], [(10, 1, SHARED, 0.5)], [20 + 7, 20 + 80 + 7]
    ),
    # More than the bandwidth is no limit, and what has passed stays so.
    "that changes nothing": Limited(
        [over(0, 100), over(101, 10)], [(10, 0, SHARED, 2), (101, 0, SHARED, 0)], [107, 118]
    ),
}


def played(journeys: list[Journey], limits: list[tuple[int, int, Edge, float | None]]) -> Traffic:
    """As far as it goes."""
    traffic = Traffic(journeys, Watched, EQUAL)
    for limit in limits:
        traffic.limit(*limit)
    run(traffic)
    return traffic


def run(traffic: Traffic) -> None:
    assert traffic.engine.run_before(None, 200)
    assert all(end.now_ps <= end.tail_ps for end in traffic.ends.values())


def tails(traffic: Traffic) -> dict[int, int]:
    return {index: end.tail_ps for index, end in traffic.ends.items()}


@pytest.mark.parametrize("name", LIMITED)
def test_a_limit(name: str) -> None:
    journeys, limits, ends = LIMITED[name]
    assert tails(played(journeys, limits)) == dict(enumerate(ends))


def test_a_stopped_transfer_costs_no_event_until_it_may_go_on() -> None:
    """A link without credits: A and B behind it stand still, another channel does not, and neither is forgotten."""
    traffic = played([over(0, 100), over(30, 10), over(30, 30, vc=COMM)], [(20, 0, SHARED, 0)])
    assert tails(traffic) == {2: 30 + 30 + 7}
    assert traffic.engine.next_ps() is None
    traffic.limit(500, 0, SHARED, None)
    run(traffic)
    assert tails(traffic) == {2: 67, 0: 500 + 80 + 7, 1: 500 + 80 + 10 + 7}


def test_a_limit_that_does_not_reach_the_edge_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fabric, "_set_limit", lambda self, lane, transfer, hop, now: None)
    traffic = played([over(0, 100)], [(20, 0, SHARED, 0.25)])
    assert tails(traffic) == {0: 107}, "planted: the limit changes nothing"


def test_a_limit_below_what_comes_holds_followers_back_at_once() -> None:
    """Bytes of A come at half the edge's rate and pass as they come, until its limit; B is behind it from then on."""
    slow = edge(1, 0, 0, 2)
    journeys = [over(0, 100, slow, SHARED), over(20, 60), over(50, 10, vc=COMM)]
    traffic = played(journeys, [(40, 0, SHARED, 0)])
    assert tails(traffic) == {2: 50 + 10 + 7}
    traffic.limit(1000, 0, SHARED, None)
    run(traffic)
    assert traffic.ends[0].tail_ps > 1000
    assert traffic.ends[1].tail_ps > 1000


@pytest.mark.parametrize(("part", "left", "lifted"), [(0, 80, 500), (0.01, 75, 500), (0.25, 35, 200)])
def test_a_lifted_limit_is_lifted_for_followers_too(part: float, left: int, lifted: int) -> None:
    """A has passed 20 B before its limit; ``left``: what it has left when the limit is lifted."""
    traffic = played([over(0, 100), over(30, 10)], [(20, 0, SHARED, part), (lifted, 0, SHARED, None)])
    assert traffic.ends[0].tail_ps == pytest.approx(lifted + left + 7, abs=1)
    assert traffic.ends[1].tail_ps == pytest.approx(lifted + left + 10 + 7, abs=1)


def test_the_least_limit_is_no_stop() -> None:
    """1 bit/s."""
    traffic = played([over(1000, 10)], [(1000, 0, SHARED, 1.5 / SHARED.bandwidth_bps)])
    assert traffic.ends[0].tail_ps > 10**12


REFUSED: dict[str, tuple[Callable[[Fabric, Transfer], object], str]] = {
    "no byte": (lambda fabric, _: fabric.start(route(SHARED), 0, print), "at least a byte, not 0"),
    "no such channel": (lambda fabric, _: fabric.start(route(SHARED), 1, print, 2), "channel 2 has no weight"),
    "a lead": (
        lambda fabric, _: fabric.start(route(SHARED), 9, print, lead_ps=17),
        "lead_ps is 17; give 0 to 16 ps",
    ),
    "a lead after its end": (
        lambda fabric, _: fabric.start(route(SHARED), 9, print, lead_ps=-1),
        "lead_ps is -1; give 0 to 16 ps",
    ),
    "an edge elsewhere": (lambda fabric, one: fabric.limit(one, edge(1, 0, 0, 1), 1), "1 does not pass edge"),
    "less than nothing": (lambda fabric, one: fabric.limit(one, SHARED, -1), "a bandwidth of 0 or more, not -1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_fabric_refuses(name: str) -> None:
    fabric = Fabric(Engine(), Arbitration(256, (1, 1)))
    made = fabric.start(route(SHARED), 100, print)
    action, said = REFUSED[name]
    with pytest.raises(ValueError, match=said):
        action(fabric, made)


# --- any limits at any time ---------------------------------------------------------------------------------


def limited(seed: int) -> None:
    """Limits on four of ten transfers at any time, lifted when nothing happens any more."""
    rng = random.Random(seed)
    journeys, arbitration = workload(seed, rng.choice(LOADS), rng.choice((4, 10, 60))) if seed % 2 else meeting(seed, 4)
    traffic = Traffic(journeys, Watched, arbitration)
    for index, journey in enumerate(journeys):
        for _ in range(rng.randint(1, 3) if rng.random() < 0.4 else 0):
            when = journey.start_ps + rng.randrange(1_500_000)
            traffic.limit(when, index, rng.choice(journey.route.edges), rng.choice(PARTS))
    engine, ends, made = traffic.engine, traffic.ends, traffic.made
    assert engine.run_before(None, 50 * len(journeys)), "events without end"
    stopped = {where for index, transfer in made.items() if index not in ends for where in stops(transfer)}
    for index, transfer in made.items():
        assert index in ends or any(leg.lane.edge in stopped for leg in transfer.legs), (
            "not told, and not behind a stop"
        )
        for leg in transfer.legs:
            traffic.fabric.limit(transfer, leg.lane.edge, None)
    assert engine.run_before(None, 50 * len(journeys)), "events without end"
    assert len(ends) == len(journeys)
    assert all(end.tail_ps >= end.now_ps for end in ends.values())


def stops(transfer: Transfer) -> list[Edge]:
    """The edges on which a transfer is stopped."""
    return [transfer.legs[hop].lane.edge for hop, part in (transfer.limits or {}).items() if not part]


PARTS = (0, 0.01, 0.1, 0.5, 0.9, None)


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(60, 1000, 60))])
def test_limits_lose_no_transfer_and_change_no_order(first: int) -> None:
    """The witness sees all; every transfer ends once its limits are lifted, in its turn."""
    for seed in range(first, first + 60):
        limited(seed)


def _open(wants: tuple[Want, ...], weights: tuple[int, ...]) -> tuple[int, ...]:
    return divide(tuple(want._replace(is_here=False) for want in wants), weights)


def test_the_witness_finds_a_limited_transfer_that_is_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sipsim.fabric.noc.edges, "divide", _open)

    def everything() -> None:
        for seed in range(60):
            limited(seed)

    with pytest.raises(InvariantViolation, match="overtakes"):
        everything()
