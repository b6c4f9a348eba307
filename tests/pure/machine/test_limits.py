"""Limits from downstream: a transfer that a buffer or a link without credits holds back, and those behind it."""

import random
from collections.abc import Callable
from functools import partial

import pytest
from mesh_traffic import meeting, workload
from plain_fabric import Journey, Watched, edge, route

import sipsim.noc.edges
from sipsim.engine import Engine
from sipsim.errors import InvariantViolation
from sipsim.noc.arbitration import COMM, COMPUTE, Arbitration, Want, divide
from sipsim.noc.fabric import Fabric
from sipsim.noc.graph import Edge, Route
from sipsim.noc.transfer import Transfer

EQUAL = Arbitration(10, (1, 1))
SHARED = edge(3, 7, 0, 1)
LOADS = (0.1, 0.3, 0.6, 0.9)


class Play:
    """Transfers and limits on one fabric; ``ends``: the tail of each. ``told``: when it was told."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.fabric = Watched(self.engine, EQUAL)
        self.made: dict[str, Transfer] = {}
        self.ends: dict[str, int] = {}
        self.told: dict[str, int] = {}

    def start(self, at_ps: int, name: str, way: Route, nbytes: int, vc: int = COMPUTE) -> None:
        def done(_head: int, tail: int) -> None:
            self.ends[name], self.told[name] = tail, self.engine.now_ps

        def begin() -> None:
            self.made[name] = self.fabric.start(way, nbytes, done, vc)

        self.engine.at(at_ps, begin)

    def limit(self, at_ps: int, name: str, where: Edge, most: float | None) -> None:
        """``most``: the part of the edge's bandwidth."""
        bandwidth = None if most is None else int(where.bandwidth_bps * most)
        self.engine.at(at_ps, lambda: self.fabric.limit(self.made[name], where, bandwidth))

    def run(self) -> dict[str, int]:
        assert self.engine.run_before(None, 200)
        assert all(self.told[name] <= tail for name, tail in self.ends.items())
        return self.ends


def test_a_limited_transfer_is_not_overtaken_in_its_channel() -> None:
    """A has a quarter of the edge, and B of its channel waits for it, while C of another channel uses the rest."""
    play = Play()
    play.start(0, "a", route(SHARED), 100)
    play.limit(20, "a", SHARED, 0.25)
    play.start(20, "b", route(SHARED), 10)
    play.start(20, "c", route(SHARED), 30, COMM)
    assert play.run() == {"a": 20 + 320 + 7, "b": 20 + 320 + 10 + 7, "c": 20 + 40 + 7}


def test_a_stopped_transfer_costs_no_event_until_it_may_go_on() -> None:
    """A link without credits: A and B behind it stand still, another channel does not, and neither is forgotten."""
    play = Play()
    play.start(0, "a", route(SHARED), 100)
    play.limit(20, "a", SHARED, 0)
    play.start(30, "b", route(SHARED), 10)
    play.start(30, "c", route(SHARED), 30, COMM)
    assert play.run() == {"c": 30 + 30 + 7}
    assert play.engine.next_ps() is None
    play.limit(500, "a", SHARED, None)
    assert play.run() == {"c": 67, "a": 500 + 80 + 7, "b": 500 + 80 + 10 + 7}


def test_a_limit_that_does_not_reach_the_edge_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fabric, "_set_limit", lambda self, lane, transfer, hop, now: None)
    play = Play()
    play.start(0, "a", route(SHARED), 100)
    play.limit(20, "a", SHARED, 0.25)
    assert play.run() == {"a": 107}, "planted: the limit changes nothing"


def test_a_limit_below_what_comes_holds_followers_back_at_once() -> None:
    """Bytes of A come at half the edge's rate and pass as they come, until its limit; B is behind it from then on."""
    play, slow = Play(), edge(1, 0, 0, 2)
    play.start(0, "a", route(slow, SHARED), 100)
    play.start(20, "b", route(SHARED), 60)
    play.limit(40, "a", SHARED, 0)
    play.start(50, "c", route(SHARED), 10, COMM)
    assert play.run() == {"c": 50 + 10 + 7}
    play.limit(1000, "a", SHARED, None)
    ends = play.run()
    assert ends["a"] > 1000
    assert ends["b"] > 1000


@pytest.mark.parametrize(("part", "left", "lifted"), [(0, 80, 500), (0.01, 75, 500), (0.25, 35, 200)])
def test_a_lifted_limit_is_lifted_for_followers_too(part: float, left: int, lifted: int) -> None:
    """A has passed 20 B before its limit; ``left``: what it has left when the limit is lifted."""
    play = Play()
    play.start(0, "a", route(SHARED), 100)
    play.limit(20, "a", SHARED, part)
    play.start(30, "b", route(SHARED), 10)
    play.limit(lifted, "a", SHARED, None)
    ends = play.run()
    assert ends["a"] == pytest.approx(lifted + left + 7, abs=1)
    assert ends["b"] == pytest.approx(lifted + left + 10 + 7, abs=1)


def test_limits_that_are_almost_none_or_all() -> None:
    """More than the bandwidth is no limit, the least above 0 is no stop, and what has passed stays so."""
    play = Play()
    play.start(0, "a", route(SHARED), 100)
    play.limit(10, "a", SHARED, 2)
    play.limit(101, "a", SHARED, 0)
    play.start(101, "b", route(SHARED), 10)
    assert play.run() == {"a": 107, "b": 118}
    play.start(1000, "c", route(SHARED), 10)
    play.engine.at(1000, lambda: play.fabric.limit(play.made["c"], SHARED, 1))
    play.run()
    assert play.ends["c"] > 10**12


def test_a_limit_for_an_edge_that_others_have_left() -> None:
    """Z has passed the edge when A comes, whose limit was set before: only the limit slows A."""
    play, near = Play(), edge(1, 50, 0, 1)
    play.start(0, "z", route(SHARED), 20)
    play.start(0, "a", route(near, SHARED), 40)
    play.limit(1, "a", SHARED, 0.5)
    assert play.run() == {"z": 20 + 7, "a": 50 + 80 + 7}


def test_a_limit_before_the_head_is_at_the_turn() -> None:
    """A waits in line behind Z when its limit is set; it begins when Z is through."""
    play = Play()
    play.start(0, "z", route(SHARED), 20)
    play.start(5, "a", route(SHARED), 40)
    play.limit(10, "a", SHARED, 0.5)
    assert play.run() == {"z": 20 + 7, "a": 20 + 80 + 7}


REFUSED: dict[str, tuple[Callable[[Fabric, Transfer], object], str]] = {
    "no byte": (lambda fabric, _: fabric.start(route(SHARED), 0, print), "at least a byte, not 0"),
    "no such channel": (lambda fabric, _: fabric.start(route(SHARED), 1, print, 2), "channel 2 has no weight"),
    "a lead": (
        lambda fabric, _: fabric.start(route(SHARED), 9, print, lead_ps=17),
        "lead_ps is 17; give at most 16 ps",
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


def test_a_limit_from_downstream() -> None:
    """100 B at full rate to 20, at a quarter to 60, where 70 are left; then on at full rate. Another channel gets the
    rest meanwhile.
    """
    play = Play()
    play.start(0, "a", route(SHARED), 100)
    play.limit(20, "a", SHARED, 0.25)
    play.start(20, "b", route(SHARED), 15, COMM)
    play.limit(60, "a", SHARED, None)
    assert play.run() == {"a": 60 + 70 + 7, "b": 20 + 20 + 7}


def test_a_limit_that_stands_before_the_head_comes() -> None:
    play = Play()
    play.start(0, "a", route(edge(1, 50, 0, 1), SHARED), 20)
    play.limit(0, "a", SHARED, 0.5)
    assert play.run() == {"a": 50 + 40 + 7}


# --- any limits at any time ---------------------------------------------------------------------------------


def limited(seed: int) -> None:
    """Limits on four of ten transfers at any time, lifted when nothing happens any more."""
    rng = random.Random(seed)
    journeys, arbitration = workload(seed, rng.choice(LOADS), rng.choice((4, 10, 60))) if seed % 2 else meeting(seed, 4)
    engine = Engine()
    fabric, ends, made = Watched(engine, arbitration), {}, {}

    def begin(index: int, journey: Journey) -> None:
        def done(_head: int, tail: int) -> None:
            ends[index] = tail
            assert tail >= engine.now_ps

        made[index] = fabric.start(journey.route, journey.nbytes, done, journey.vc)

    def limit(index: int, where: Edge, part: float | None) -> None:
        fabric.limit(made[index], where, None if part is None else int(where.bandwidth_bps * part))

    for index, journey in enumerate(journeys):
        engine.at(journey.start_ps, partial(begin, index, journey))
        for _ in range(rng.randint(1, 3) if rng.random() < 0.4 else 0):
            when = journey.start_ps + rng.randrange(1_500_000)
            engine.at(when, partial(limit, index, rng.choice(journey.route.edges), rng.choice(PARTS)))
    assert engine.run_before(None, 50 * len(journeys)), "events without end"
    stopped = {where for index, transfer in made.items() if index not in ends for where in stops(transfer)}
    for index, transfer in made.items():
        assert index in ends or any(leg.lane.edge in stopped for leg in transfer.legs), (
            "not told, and not behind a stop"
        )
    for index, transfer in made.items():
        for leg in transfer.legs:
            limit(index, leg.lane.edge, None)
    assert engine.run_before(None, 50 * len(journeys)), "events without end"
    assert len(ends) == len(journeys)


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
    monkeypatch.setattr(sipsim.noc.edges, "divide", _open)

    def everything() -> None:
        for seed in range(60):
            limited(seed)

    with pytest.raises(InvariantViolation, match="overtakes"):
        everything()
