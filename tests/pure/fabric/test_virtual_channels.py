"""Edges that virtual channels share: exact alone, to a chunk where transfers meet, and what always holds."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from chunk_exact.switching import Switching
from hypothesis import given
from hypothesis import strategies as st
from mesh_traffic import CHUNK_PS, LOADS, compared, meeting, workload
from plain_fabric import (
    Journey,
    Watched,
    alone,
    amounts,
    chunked_reference,
    edge,
    lead_of,
    random_mixed_journeys,
    reference,
    route,
    routes,
    travel,
)
from sweeps import batches, crossed

import sipsim.fabric.noc.edges
from sipsim.core.errors import InvariantViolation
from sipsim.fabric.graph import Route
from sipsim.fabric.noc.arbitration import COMM, COMPUTE, CREDIT, EDGE, Arbitration, Want, divide
from sipsim.fabric.noc.fabric import Fabric
from sipsim.fabric.noc.transfer import WHOLE, Leg, Share, Transfer

EQUAL = Arbitration(10, (1, 1))
SHARED = edge(3, 7, 0, 1)


def ends_of(arbitration: Arbitration | None, *journeys: Journey) -> list[tuple[int, int]]:
    """(head, tail) of each."""
    return [end[1:] for end in travel(list(journeys), arbitration=arbitration)[0]]


def through_shared(start: int, nbytes: int, vc: int) -> Journey:
    return Journey(start, route(SHARED), nbytes, vc=vc)


# --- alone ----------------------------------------------------------------------------------------------------


@given(routes, amounts, st.integers(0, 10**9), st.integers(0, 10**4), st.integers(0, 100))
def test_alone_it_takes_exactly_the_contract(way: Route, nbytes: int, start: int, delay: int, percent: int) -> None:
    """Whatever the chunks, and in one event."""
    journey = Journey(start, way, nbytes, delay, lead_ps=lead_of(way, nbytes, EQUAL, percent))
    (end,), _, engine = travel([journey], arbitration=EQUAL)
    assert end == alone(journey)
    assert engine.events == 2, "its start, which is the test's, and its end"


@given(routes, routes, amounts, st.integers(0, 10**9))
def test_cut_anywhere_it_arrives_the_same(first: Route, second: Route, nbytes: int, start: int) -> None:
    """Over two fabrics, as between two SIPs, and in one."""
    whole_head = start + first.head_ps() + second.head_ps()
    ((head, tail),) = ends_of(EQUAL, Journey(start, first, nbytes))
    end = ends_of(EQUAL, Journey(tail, second, nbytes, span_ps=tail - head))
    assert end == [(whole_head, whole_head + max(first.drain_ps(nbytes), second.drain_ps(nbytes)))]


# --- by hand --------------------------------------------------------------------------------------------------


def test_two_that_meet_go_at_half_the_rate_each() -> None:
    """100 B have the edge from 0; 20 B of the other channel come at 33 and need 40. The long train is 20 later."""
    assert ends_of(EQUAL, through_shared(0, 100, COMPUTE), through_shared(33, 20, COMM)) == [(7, 127), (40, 80)]


def test_weights_divide_an_edge() -> None:
    """Three to one: 20 B need 80."""
    ends = ends_of(Arbitration(10, (3, 1)), through_shared(0, 200, COMPUTE), through_shared(33, 20, COMM))
    assert ends == [(7, 227), (40, 120)]


def test_strict_priority_takes_what_it_needs() -> None:
    """25 B of it hold both others up for 25."""
    arbitration = Arbitration(10, (3, 1, 0))
    long, credit, comm = through_shared(0, 100, COMPUTE), through_shared(33, 25, CREDIT), through_shared(34, 5, COMM)
    ends = ends_of(arbitration, long, credit, comm)
    assert ends[:2] == [(7, 137), (40, 65)]
    assert ends[2] == (65, 85)


def test_a_transfer_waits_for_those_of_its_channel() -> None:
    """C behind A and beside B: A and B share until 87, where A is through; then B's last 3 and C. C is no more than a
    chunk, so its end is fixed when it starts, at the half rate that it has then.
    """
    a, b, c = through_shared(0, 60, 0), through_shared(33, 30, 1), through_shared(40, 10, 0)
    ends = ends_of(EQUAL, a, b, c)
    assert [tail - 7 for _, tail in ends] == [87, 93, 107]
    assert ends[2][0] == 94


def test_a_slowed_transfer_leaves_the_rest_of_the_next_edge_to_others() -> None:
    """A shares X with B and takes half of Y; C of A's channel goes at once on Y, in its first chunk before A."""
    x, y = edge(1, 5, 0, 1), edge(2, 0, 0, 1)
    a, b, c = Journey(0, route(x, y), 40), Journey(15, route(x), 30, vc=1), Journey(26, route(y), 9)
    ends = ends_of(EQUAL, a, b, c)
    assert ends[2] == (26, 35)
    assert ends[0] == (5, 70)


def test_transfers_that_come_over_one_edge_do_not_contend_on_the_next() -> None:
    """They share X; on Y, as fast, neither needs more than what comes."""
    x, y = edge(1, 5, 0, 1), edge(2, 0, 0, 1)
    one, two = (Journey(start, route(x, y), 40, vc=vc) for vc, start in enumerate((0, 10)))
    assert ends_of(EQUAL, one, two) == [(5, 75), (15, 85)]
    _, fabric, _ = travel([one, two], arbitration=EQUAL)
    assert [fabric.lanes[each].stamp > 0 for each in (x, y)] == [True, False]


def test_an_end_is_fixed_when_its_last_chunk_could_pass() -> None:
    """95 B on a link of 40 ps, told 40 + 10 before the end, at 85: what comes then shares what is left of the edge."""
    link = edge(1, 40, 0, 1)
    (end, other), _, _ = travel(
        [Journey(0, route(link), 95, lead_ps=50), Journey(90, route(link), 5, vc=1)], arbitration=EQUAL
    )
    assert end == (85, 40, 135)
    assert other.tail_ps == 140
    (end, other), _, _ = travel(
        [Journey(0, route(link), 95, lead_ps=50), Journey(60, route(link), 5, vc=1)], arbitration=EQUAL
    )
    assert end.tail_ps == 140
    assert end.now_ps <= 90


def test_contention_costs_events_for_conflicts_only() -> None:
    """Two trains of a thousand chunks that share an edge to their ends take few events."""
    _, _, engine = travel([through_shared(0, 10**4, vc) for vc in (0, 1)], arbitration=EQUAL)
    assert engine.events <= 2 + 2 * 3


@pytest.mark.parametrize("arbitration", [Arbitration(0, (1,)), Arbitration(1, ()), Arbitration(1, (1, -1))])
def test_invalid_arbitrations_raise(arbitration: Arbitration) -> None:
    with pytest.raises(ValueError, match=r"chunk|channel"):
        travel([], arbitration=arbitration)


def test_edges_are_divided_no_more_often_than_transfers_meet() -> None:
    """A transfer takes part in some ten divisions at this load; one that outran its bytes made many times that."""
    for seed in range(2):
        journeys, how = workload(seed, 0.6, 300)
        _, fabric, engine = travel(journeys, arbitration=how)
        assert sum(lane.stamp for lane in fabric.lanes.values()) <= 20 * len(journeys)
        assert engine.events <= 10 * len(journeys)


def test_small_transfers_behind_a_large_one_cost_no_events_while_they_wait() -> None:
    """They wait for all of it: a look each time half of what is left could have passed, not each chunk."""
    journeys = [through_shared(0, 10**6, 0), through_shared(0, 10**6, 1), *[through_shared(0, 16, 0)] * 4]
    _, _, engine = travel(journeys, arbitration=Arbitration(256, (1, 1)))
    assert engine.events < 150


# --- how an edge is divided -------------------------------------------------------------------------------------

HALF, TENTH = EDGE // 2, EDGE // 10
DIVISIONS: dict[str, tuple[list[Want], tuple[int, ...], list[int]]] = {
    "equal weights": ([Want(0, EDGE), Want(1, EDGE)], (1, 1), [HALF, HALF]),
    "a modest one leaves the rest": ([Want(0, TENTH), Want(1, EDGE)], (1, 1), [TENTH, EDGE - TENTH]),
    "three to one": ([Want(0, EDGE), Want(1, EDGE)], (3, 1), [EDGE * 3 // 4, EDGE // 4]),
    "strict first": ([Want(0, EDGE), Want(2, TENTH)], (1, 1, 0), [EDGE - TENTH, TENTH]),
    "two strict ones, the lower first": ([Want(1, EDGE), Want(0, TENTH)], (0, 0), [EDGE - TENTH, TENTH]),
    "the earlier of a channel": ([Want(0, EDGE), Want(0, EDGE), Want(1, EDGE)], (1, 1), [HALF, 0, HALF]),
    "what the earlier leaves": ([Want(0, TENTH), Want(0, EDGE), Want(1, EDGE)], (1, 1), [TENTH, HALF - TENTH, HALF]),
    "a fixed one first": ([Want(0, EDGE), Want(1, TENTH, True)], (1, 1), [EDGE - TENTH, TENTH]),
    "none behind a fixed one whose bytes wait": (
        [Want(0, TENTH, True, True), Want(0, EDGE), Want(1, HALF)], (1, 1), [TENTH, 0, HALF],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIVISIONS)
def test_an_edge_is_divided(name: str) -> None:
    wants, weights, expected = DIVISIONS[name]
    assert list(divide(tuple(wants), weights)) == expected


@given(
    st.lists(st.builds(Want, st.integers(0, 3), st.integers(0, EDGE), st.booleans(), st.booleans()), max_size=8),
    st.tuples(*[st.integers(0, 3)] * 4),
)
def test_no_more_than_the_edge_and_no_more_than_is_wanted(wants: list[Want], weights: tuple[int, ...]) -> None:
    parts = divide(tuple(wants), weights)
    assert sum(parts) <= EDGE
    assert all(0 <= part <= want.part for part, want in zip(parts, wants, strict=True))


# --- against the references -----------------------------------------------------------------------------------


def test_one_channel_by_itself_is_one_queue() -> None:
    """All of one channel, with any weights: as without channels, to the picosecond, and as that reference."""
    for seed in range(300):
        mixed, arbitration = random_mixed_journeys(seed)
        vc = seed % len(arbitration.weights)
        journeys = [journey._replace(vc=vc) for journey in mixed]
        found = travel(journeys, arbitration=arbitration)[0]
        assert found == travel(journeys)[0]
        assert [end[1:] for end in found] == [end[1:] for end in reference(journeys)]


def test_the_chunk_exact_simulation_is_nothing_but_chunks() -> None:
    """The reference of the tests below agrees with one that moves every chunk by itself."""
    for seed in range(400):
        journeys, arbitration = random_mixed_journeys(seed)
        assert travel(journeys, Switching, arbitration)[0] == chunked_reference(journeys, arbitration)


MEETINGS = [(2, 300, 1.0), (3, 200, 0.98), (5, 150, 0.94)]


@pytest.mark.parametrize(("count", "seeds", "wanted"), MEETINGS)
def test_transfers_that_meet_end_within_a_chunk(count: int, seeds: int, wanted: float) -> None:
    """Two always, three and five nearly always."""
    found = [
        difference
        for seed in range(seeds)
        for difference in compared(*meeting(seed, count), Fabric, Switching).differences_ps
    ]
    assert sum(each <= CHUNK_PS for each in found) / len(found) >= wanted


@pytest.mark.parametrize(("load", "seeds"), crossed(LOADS, [4, 250], ordinary=[(0.1, 4)]))
def test_the_mean_latency_of_random_workloads(load: float, seeds: int) -> None:
    """Within 1 % of the chunk-exact simulation; the ordinary suite has too few of them for that, and allows 2 %."""
    found = [compared(*workload(seed, load), Fabric, Switching) for seed in range(seeds)]
    ratio = sum(each.took_ps for each in found) / sum(each.expected_ps for each in found)
    assert ratio == pytest.approx(1, abs=0.01 if seeds > 6 else 0.02)


# --- what always holds ----------------------------------------------------------------------------------------


def traffic(seed: int) -> tuple[list[Journey], Arbitration]:
    return workload(seed, LOADS[seed % 4], 100) if seed % 2 else meeting(seed, 4)


@pytest.mark.parametrize("first_seed", batches(400, 20))
def test_no_edge_carries_too_much_nor_idles_nor_mixes_transfers(first_seed: int) -> None:
    """The witness sees every division and every transfer; ends come in time and are not changed once told."""
    for seed in range(first_seed, first_seed + 20):
        journeys, arbitration = traffic(seed)
        ends, _, _ = travel(journeys, Watched, arbitration)
        for journey, end in zip(journeys, ends, strict=True):
            assert end.tail_ps >= alone(journey).tail_ps
            assert end.now_ps <= end.tail_ps - journey.lead_ps


def _too_much(wants: tuple[Want, ...], weights: tuple[int, ...]) -> list[int]:
    return [want.part for want in wants]


def _half(wants: tuple[Want, ...], weights: tuple[int, ...]) -> list[int]:
    return [part // 2 for part in divide(wants, weights)]


def _no_lines(line: list[tuple[Transfer, int]], leg: Leg) -> bool:
    return True


def _newest_first(wants: tuple[Want, ...], weights: tuple[int, ...]) -> tuple[int, ...]:
    return divide(wants[::-1], weights)[::-1]


def _unlimited_feed(self: Transfer, hop: int, now: int) -> tuple[int, int]:
    return WHOLE, 0


BUGS = [
    (sipsim.fabric.noc.edges, "divide", _too_much),
    (sipsim.fabric.noc.edges, "divide", _half),
    (sipsim.fabric.noc.edges, "divide", _newest_first),
    (sipsim.fabric.noc.edges, "follows_straight", _no_lines),
]


@pytest.mark.parametrize(("place", "name", "mutant"), BUGS, ids=lambda x: getattr(x, "__name__", x))
def test_the_witness_finds_planted_bugs(
    place: Any, name: str, mutant: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each breaks one of those rules in this traffic."""
    monkeypatch.setattr(place, name, mutant)

    def everything() -> None:
        for seed in range(40):
            travel(traffic(seed)[0], Watched, traffic(seed)[1])

    with pytest.raises(InvariantViolation):
        everything()


def _never_told(self: Fabric, transfer: Transfer, hop: int, now: int) -> None:
    pass


def _nothing_on_the_way(self: Transfer, hop: int, now: int) -> list[int]:
    return []


def _no_past(self: Transfer, hop: int, now: int) -> tuple[int, int]:
    past, self.past = self.past, {}
    try:
        return INFLOW(self, hop, now)
    finally:
        self.past = past


INFLOW = Transfer.inflow
RULES = [
    (None, "", None, [(3, 1216), (4, 381), (4, 1348), (5, 920), (4, 369), (4, 940), (5, 888), (5, 343)]),
    (Transfer, "inflow", _no_past, [(3, 1216), (4, 381), (4, 1348), (5, 920)]),
    (Transfer, "changes_on_the_way", _nothing_on_the_way, [(4, 369), (4, 940), (5, 888), (5, 343)]),
]
"""What is replaced, and meetings (how many, seed) that are exact to a chunk without that."""


@pytest.mark.parametrize(("place", "name", "mutant", "meetings"), RULES, ids=["as it is", "past", "changes"])
def test_rates_of_the_past_reach_edges_downstream(
    place: Any, name: str, mutant: Any, meetings: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an edge passed at another rate before, and a rate that has changed upstream, still have to come."""
    if place is not None:
        monkeypatch.setattr(place, name, mutant)
    for count, seed in meetings:
        difference = max(compared(*meeting(seed, count), Fabric, Switching).differences_ps)
        assert (difference <= CHUNK_PS) == (place is None), (count, seed)


@pytest.mark.parametrize("looks_sooner", [True, False], ids=["as it is", "planted"])
def test_ends_are_put_off_rarely_and_by_little(looks_sooner: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An end that turns out later than the lookahead allows is told late: a few in a thousand, by tens of ns."""
    late: list[int] = []

    def put_off(self: Fabric, transfer: Transfer, now: int) -> int:
        told = PUT_OFF(self, transfer, now)
        late.append(told - (transfer.end_ps() or 0))
        return told

    monkeypatch.setattr(Fabric, "_put_off", put_off)
    if not looks_sooner:
        monkeypatch.setattr(Fabric, "_look_sooner", lambda self, transfer, now: None)
    for seed in range(8):
        journeys, arbitration = workload(seed, 0.3)
        travel(journeys, Fabric, arbitration)
    is_fine = sum(each > 0 for each in late) <= 8 * 200 * 0.005 and max(late, default=0) <= 100_000
    assert is_fine == looks_sooner, sorted(late)[-5:]


PUT_OFF = Fabric._put_off


DRIFTS = [
    (Fabric, "_pass_on", _never_told),
    (Fabric, "_expect_to_catch_up", _never_told),
    (Transfer, "inflow", _unlimited_feed),
    (Share, "lets_slip", lambda self, transfer, now: False),
]


@cache
def unplanted_ps() -> int:
    """The sum of all differences of the fabric as it is."""
    return sum(sum(compared(*workload(seed, 0.3, 100), Fabric, Switching).differences_ps) for seed in range(6))


@pytest.mark.slow
@pytest.mark.parametrize(("place", "name", "mutant"), DRIFTS, ids=lambda x: getattr(x, "__name__", x))
def test_the_comparison_finds_planted_bugs(
    place: Any, name: str, mutant: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each makes the sum of all differences larger, or breaks a rule."""
    runs = [workload(seed, 0.3, 100) for seed in range(6)]
    right = unplanted_ps()
    monkeypatch.setattr(place, name, mutant)
    try:
        planted = sum(sum(compared(*run, Watched, Switching).differences_ps) for run in runs)
    except (AssertionError, InvariantViolation):
        return
    assert planted > 1.05 * right
