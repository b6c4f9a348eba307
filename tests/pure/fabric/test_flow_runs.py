"""What holds in every run of the fabric of flows: random traffic, looked at through its history."""

import random
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import pytest
import water_filling
from plain_fabric import End, Journey
from sweeps import batches
from traffic import ends_on, random_system

from sipsim.core.engine import Engine
from sipsim.fabric.channels import Arbitration
from sipsim.fabric.delays import Past, delayed
from sipsim.fabric.flows import FlowFabric
from sipsim.fabric.graph import Edge, FixedBytes, Node, Route
from sipsim.fabric.sharing import RATE_BITS, divide, joined

UNIT = 1 << RATE_BITS
ROUNDING = UNIT
"""A byte a second: what rounding may be in the sum of an edge."""
Key = tuple[object, int]


class Run(NamedTuple):
    """Journeys in the order of their starts; by their numbers, their histories and what ``left`` and ``done`` were told
    and when. ``promises``: (time, train, no transfer of it leaves before).
    """

    journeys: list[Journey]
    pasts: list[Past]
    left: dict[int, End]
    ends: dict[int, End]
    promises: list[tuple[int, Key, int]]

    def by_train(self) -> dict[Key, list[int]]:
        """The numbers of each train's journeys."""
        found: dict[Key, list[int]] = {}
        for at, each in enumerate(self.journeys):
            found.setdefault((each.source, each.vc), []).append(at)
        return found


def random_journeys(seed: int) -> tuple[list[Journey], tuple[int, ...]]:
    """Of :func:`traffic.random_system`, and some with bytes that come late or slowly, several in flight, and over
    edges of memories, some of which take other bytes than theirs."""
    draw, memories = random.Random(seed), random.Random(seed)
    system = random_system(seed, draw.choice((1, 3)), draw.random() < 0.5)
    in_flight = {source: draw.choice((1, 1, 2, 4)) for source in range(12)}
    journeys = []
    for each in sorted(system.offered, key=lambda each: each.start_ps):
        delay_ps = draw.choice((0, 0, 5_000, 400_000))
        span_ps = draw.choice((0, delay_ps))
        many = in_flight[each.source]  # type: ignore[index]
        rest = delay_ps, span_ps, each.channel, each.source, many
        journeys.append(Journey(each.start_ps, through_memories(each.route, each.nbytes, memories), each.nbytes, *rest))
    return journeys, system.weights


def through_memories(route: Route, nbytes: int, draw: random.Random) -> Route:
    """A route with up to three edges of memories behind it, taken for a half of the bytes or up to their double."""
    node, some = Node("m", 0, 0), draw.sample(range(3), draw.choice((0, 1, 1, 3)))
    framings = [draw.choice((None, FixedBytes(-(-nbytes * draw.randint(4, 16) // 8)))) for _ in some]
    rates = 30_000_000_000, 64_000_000_000, 200_000_000_000
    ends = [Edge(node, node, 0, 0, rates[at], framings[index], f"bank {at}") for index, at in enumerate(some)]
    return route._replace(edges=(*route.edges, *ends))


def run(seed: int, order: random.Random | None = None, *, is_watched: bool = False, compares: bool = False) -> Run:
    """Every other one is followed to its leaving. ``order``: of starts of one time that are not of one train.
    ``compares``: on a fabric :class:`Whole`, without a history."""
    journeys, weights = random_journeys(seed)
    engine, promises = Engine(), []
    fabric = (Whole if compares else FlowFabric)(engine, Arbitration(256, weights))
    fabric.history, fabric.is_watched = None if compares else [], is_watched
    left: dict[int, End] = {}
    ends: dict[int, End] = {}
    started: list[int] = []

    def note(to: dict[int, End], at: int, head_ps: int, tail_ps: int) -> None:
        assert at not in to, "told twice"
        to[at] = End(engine.now_ps, head_ps, tail_ps)

    def start(at: int) -> None:
        way = journeys[at]
        train = fabric.train(way.source, way.vc, way.in_flight)
        leaving = (lambda *times: note(left, at, *times)) if at % 2 else None
        done = lambda *times: note(ends, at, *times)  # noqa: E731
        started.append(at)
        fabric.start(train, way.route, way.nbytes, done, leaving, way.delay_ps, way.span_ps)

    numbers = list(range(len(journeys)))
    if order is not None:
        place = {key: order.random() for key in sorted({(each.source, each.vc) for each in journeys})}  # type: ignore[type-var]
        numbers.sort(key=lambda at: (journeys[at].start_ps, place[journeys[at].source, journeys[at].vc]))
    for at in numbers:
        engine.at(journeys[at].start_ps, lambda at=at: start(at))  # type: ignore[misc]
    while (now := engine.next_ps()) is not None:
        assert engine.run_before(now + 1, 10**5)
        promises += [(now, key, train.least_mail_ps(now)) for key, train in fabric._trains.items()]
    pasts = dict(zip(started, fabric.history or (), strict=not compares))
    return Run(journeys, [pasts[at] for at in sorted(pasts)], left, ends, promises)


class Whole(FlowFabric):
    """A fabric that also divides among all flows that edges join, and compares."""

    def _divide(self) -> None:
        weights = self._arbitration.weights
        flows, lines = joined(self._changed)
        before = [(flow.rate, flow.neck, flow.tight, flow.is_sure) for flow in flows]
        divide(flows, lines, weights)
        whole = [(flow.rate, flow.neck) for flow in flows]
        for flow, known in zip(flows, before, strict=True):
            flow.rate, flow.neck, flow.tight, flow.is_sure = known
        self.touched = self.divisions << 10  # as if among many flows
        super()._divide()
        assert [(flow.rate, flow.neck) for flow in flows] == whole


# --- the rules ------------------------------------------------------------------------------------------------


def ends_are_told_once_and_kept(seed: int) -> None:
    """``done`` is called once, at the end, which ``left`` has named with the head when the last byte left."""
    ran = run(seed)
    assert sorted(ran.ends) == list(range(len(ran.journeys)))
    assert sorted(ran.left) == list(range(1, len(ran.journeys), 2))
    for at, (now_ps, head_ps, tail_ps) in ran.ends.items():
        past, way_ps = ran.pasts[at], ran.journeys[at].route.head_ps()
        assert (now_ps, head_ps, tail_ps) == (tail_ps, past.begin_ps + way_ps, past.leave_ps + way_ps)
        assert ran.left.get(at, End(past.leave_ps, head_ps, tail_ps)) == (past.leave_ps, head_ps, tail_ps)


def wires(journey: Journey) -> list[Edge]:
    """What a journey takes besides memories."""
    return [edge for edge in journey.route.edges if not edge.memory]


def trains_keep_their_order(seed: int) -> None:
    """A transfer begins behind those before it, when its first byte is there; no more than ``in_flight`` are under way,
    no two over the same wires."""
    ran = run(seed)
    for numbers in ran.by_train().values():
        before: list[int] = []
        for at in numbers:
            journey, begin_ps = ran.journeys[at], ran.pasts[at].begin_ps
            assert begin_ps >= journey.start_ps + journey.delay_ps - journey.span_ps
            assert all(ran.pasts[each].begin_ps <= begin_ps for each in before)
            under_way = [each for each in before if ran.pasts[each].leave_ps > begin_ps]
            assert len(under_way) < journey.in_flight
            assert all(wires(ran.journeys[each]) != wires(journey) for each in under_way)
            before.append(at)


def rates(past: Past) -> list[tuple[int, int, Fraction]]:
    """(from, to, payload bytes a second) of a flow."""
    own = Fraction(past.nbytes * 10**12, past.own_ps)
    found = [(past.begin_ps, own), *((each.from_ps, Fraction(each.rate, UNIT)) for each in past.periods)]
    ends_ps = [from_ps for from_ps, _ in found[1:]]
    return [(from_ps, to_ps, rate) for (from_ps, rate), to_ps in zip(found, [*ends_ps, past.leave_ps], strict=True)]


def all_bytes_leave(seed: int) -> None:
    """At the rates of its history each flow has as many bytes as it has, but for what a picosecond moves."""
    for past in run(seed).pasts:
        stretches = rates(past)
        moved = sum((to_ps - from_ps) * rate for from_ps, to_ps, rate in stretches) / 10**12
        assert abs(moved - past.nbytes) <= max(rate for _, _, rate in stretches) / 10**12


def edges_keep_their_rates(seed: int) -> None:
    """Between changes no edge carries more wire bytes than its rate; a flow below its own limit has a full edge."""
    pasts = run(seed).pasts
    times = sorted({time for past in pasts for stretch in rates(past) for time in stretch[:2]})
    parts = [(past, from_ps, to_ps, rate) for past in pasts for from_ps, to_ps, rate in rates(past)]
    for now, then in pairwise(times):
        present = [(past, rate) for past, from_ps, to_ps, rate in parts if from_ps <= now and then <= to_ps]
        carried: dict[Edge, Fraction] = {}
        for past, rate in present:
            for edge in past.route.edges:
                taken = rate * edge.wire_bytes(past.nbytes) / past.nbytes
                carried[edge.shared] = carried.get(edge.shared, 0) + taken
        assert all(sum_of <= edge.bandwidth_bps + ROUNDING for edge, sum_of in carried.items())
        for past, rate in present:
            full = any(carried[edge.shared] >= edge.bandwidth_bps - ROUNDING for edge in past.route.edges)
            assert full or rate * past.own_ps >= (past.nbytes - 1) * 10**12


def lost_time_is_named(seed: int) -> None:
    """By edge and others, or waiting in its train: exactly what it came later than alone."""
    ran = run(seed)
    for journey, past, end in zip(ran.journeys, ran.pasts, (ran.ends[at] for at in range(len(ran.ends))), strict=True):
        there_ps = journey.start_ps + journey.delay_ps - journey.span_ps
        own_ps = max(journey.route.latency_ps(journey.nbytes) - journey.route.head_ps(), journey.span_ps)
        late_ps = end.tail_ps - there_ps - journey.route.head_ps() - own_ps
        named = [share for each in delayed([past]) for share in each.shares]
        assert sum(share.delay_ps for share in named) == late_ps
        on_way = {(edge.src, edge.dst) for edge in journey.route.edges}
        assert all((share.src, share.dst) in on_way and share.others for share in named)


def promises_are_kept(seed: int) -> None:
    """No transfer of a train leaves before what the train said at any time after its start."""
    ran = run(seed)
    trains = ran.by_train()
    for now, key, promise_ps in ran.promises:
        under_way = [ran.pasts[at] for at in trains[key] if ran.pasts[at].now_ps <= now < ran.pasts[at].leave_ps]
        assert all(promise_ps <= past.leave_ps for past in under_way)


def equal_starts_have_no_order(seed: int) -> None:
    """But those of a train."""
    first = run(seed).ends
    assert all(run(seed, random.Random(other)).ends == first for other in range(3))


def ends_are_the_definitions(seed: int) -> None:
    """By fractions, for all flows at each change. With several channels shares of an edge that is never full bind the
    definition, and not the fabric."""
    channels, most_ps = ((1, 5), (3, 1000))[seed % 2]
    system = random_system(seed, channels, seed % 4 < 2)
    wanted = water_filling.ends_ps(system.offered, system.weights, system.number)
    off_ps = [float(abs(end - want)) for end, want in zip(ends_on(FlowFabric, system), wanted, strict=True)]
    assert max(off_ps) <= most_ps


def what_is_left_out_would_not_change(seed: int) -> None:
    """A division among a part of the flows gives each flow the rate, and the edge that holds it back, of the whole."""
    compared, whole = run(seed, compares=True), run(seed)
    assert (compared.ends, compared.left) == (whole.ends, whole.left)


def what_is_passed_on_follows_its_bytes(seed: int) -> None:
    """Every third transfer passes on what another brings, over the way of any: head behind head, tail behind tail."""
    journeys, weights = random_journeys(seed)
    draw, engine, pairs = random.Random(seed), Engine(), []
    fabric = FlowFabric(engine, Arbitration(256, weights))
    fabric.history = history = []

    def start(at: int, way: Journey) -> None:
        train = fabric.train(way.source, way.vc, way.in_flight)
        fed = fabric.start(train, way.route, way.nbytes, None, is_fed=at % 3 == 0)
        if at % 3 == 0:
            passed, fetch = history[-1], fabric.train(("fetch", way.source), way.vc)
            fabric.start(fetch, draw.choice(journeys).route, way.nbytes, None, feeds=fed)
            pairs.append((history[-1], passed))

    for at, way in enumerate(journeys):
        engine.at(way.start_ps, lambda at=at, way=way: start(at, way))  # type: ignore[misc]
    assert engine.run_before(None, 10**6)
    for fetched, passed in pairs:
        head_ps = fetched.route.head_ps() - passed.route.start_ps
        assert passed.begin_ps >= fetched.begin_ps + head_ps
        assert passed.leave_ps >= fetched.leave_ps + head_ps


RULES = [
    what_is_left_out_would_not_change,
    what_is_passed_on_follows_its_bytes,
    ends_are_told_once_and_kept,
    trains_keep_their_order,
    all_bytes_leave,
    edges_keep_their_rates,
    lost_time_is_named,
    promises_are_kept,
    equal_starts_have_no_order,
]


SEEDS = 100


@pytest.mark.parametrize("first", batches(20 * SEEDS, SEEDS))
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_holds(rule: Callable[[int], None], first: int) -> None:
    hold(rule, first)


def hold(rule: Callable[[int], None], first: int = 0) -> None:
    for seed in range(first, first + SEEDS):
        rule(seed)


def test_it_is_the_definition() -> None:
    hold(ends_are_the_definitions)


def test_each_division_is_fair() -> None:
    """By its own check."""
    for seed in range(200):
        run(seed, is_watched=True)
