"""Who uses an edge when: exact when alone, first come first served otherwise, by hand and against a plain reference."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_fabric import (
    Journey,
    alone,
    amounts,
    edge,
    ends_of,
    random_journeys,
    reference,
    route,
    routes,
    travel,
)
from witness import ClaimWitness, check_lane

import sipsim.noc.fabric
from sipsim.noc.fabric import Fabric, Lane, Transfer
from sipsim.noc.graph import Route

NETWORKS = 600
REAL_CLAIM = sipsim.noc.fabric._claim

# --- alone ----------------------------------------------------------------------------------------------------

times = st.integers(0, 10**9)


@settings(deadline=None)
@given(routes, amounts, times, st.integers(0, 10**4), st.integers(-(10**5), 0))
def test_alone_it_takes_exactly_the_contract(way: Route, nbytes: int, start: int, delay: int, lead: int) -> None:
    """Every wire and every node once, the bottleneck's drain once, in one event whatever the number of hops."""
    journey = Journey(start, way, nbytes, delay, lead_ps=lead)
    (end,), _, engine = travel([journey])
    assert end == alone(journey)
    assert engine.events == 2, "its start, which is the test's, and its end"


@settings(deadline=None)
@given(routes, amounts, st.integers(0, 10**7))
def test_a_train_from_a_link_continues_as_in_one_fabric(way: Route, nbytes: int, span: int) -> None:
    """Its tail is here and its head was here ``span`` earlier: what it still has to pay is the rest of the head's way,
    and of the drain only what is more than the span.
    """
    start = 10**8
    ((head, tail),) = ends_of(Journey(start, way, nbytes, span_ps=span))
    latency = way.head_ps()
    assert head == start - span + latency
    assert tail == head + max(span, way.drain_ps(nbytes))


@settings(deadline=None)
@given(routes, routes, amounts, times)
def test_cut_anywhere_it_arrives_the_same(first: Route, second: Route, nbytes: int, start: int) -> None:
    """Over two fabrics, from one to the other when the last byte is there, as between two SIPs; and in one."""
    whole = Route(first.start, first.start_ps, (*first.edges, *second.edges))
    whole_head = start + whole.head_ps() + second.start_ps
    ((head, tail),) = ends_of(Journey(start, first, nbytes))
    ((end_head, end_tail),) = ends_of(Journey(tail, second, nbytes, span_ps=tail - head))
    assert (end_head, end_tail) == (whole_head, whole_head + whole.drain_ps(nbytes))


def test_an_event_before_the_end() -> None:
    """``lead_ps``: 30 ps before the tail is through, knowing where head and tail will be."""
    way = route(edge(1, 10, 0, 1), edge(2, 40, 0, 1))
    ends, _, _ = travel([Journey(0, way, 50, lead_ps=30)])
    assert ends == [(70, 50, 100)]


# --- in each other's way, by hand -----------------------------------------------------------------------------

FAR, NEAR, SHARED = edge(1, 100, 0, 1), edge(2, 20, 0, 1), edge(3, 7, 0, 1)


def test_a_later_starter_that_reaches_the_edge_first_is_served_first() -> None:
    """50 B from afar reach the shared edge at 100; 50 B that start 40 later reach it at 60 and are through at 110. The
    first waits there for 10.
    """
    (one, two) = ends_of(Journey(0, route(FAR, SHARED), 50), Journey(40, route(NEAR, SHARED), 50))
    assert two == (67, 117)
    assert one == (117, 167)


def test_no_wait_where_the_edge_is_free_in_between() -> None:
    """The second comes at 30 and is through at 80, the first comes at 100."""
    assert ends_of(Journey(0, route(FAR, SHARED), 50), Journey(10, route(NEAR, SHARED), 50)) == [(107, 157), (37, 87)]


def test_equal_arrivals_are_served_in_start_order() -> None:
    """Both heads reach the edge at 100."""
    ends = ends_of(Journey(0, route(FAR, SHARED), 50), Journey(80, route(NEAR, SHARED), 50))
    assert ends == [(107, 157), (157, 207)]


def test_three_in_the_order_of_their_heads() -> None:
    """Heads at 100, 60 and 40, 30 B each: through at 70, 100 (no wait: 60 waits for 70), 130."""
    middle = edge(4, 10, 0, 1)
    journeys = (
        Journey(0, route(FAR, SHARED), 30),
        Journey(20, route(edge(5, 40, 0, 1), SHARED), 30),
        Journey(30, route(middle, SHARED), 30),
    )
    assert ends_of(*journeys) == [(107, 137), (77, 107), (47, 77)]


def test_a_displaced_train_frees_later_edges() -> None:
    """A is delayed on X by B, so that it reaches Y after C, which then need not wait for A any more.

    A reaches X at 100 and would reach Y at 100 too; C reaches Y at 120 and, behind A's 50, would be through at 200. B
    reaches X at 90 with 50 B: A is on X from 140, reaches Y at 140, and C has Y from 120 to 170.
    """
    x, y = edge(6, 0, 0, 1), edge(7, 0, 0, 1)
    a = Journey(0, route(FAR, x, y), 50)
    c = Journey(5, route(edge(8, 115, 0, 1), y), 50)
    b = Journey(50, route(edge(9, 40, 0, 1), x), 50)
    assert ends_of(a, c) == [(100, 150), (150, 200)]
    assert ends_of(a, c, b) == [(170, 220), (120, 170), (90, 140)]


def test_a_head_that_has_reached_its_edge_is_never_displaced() -> None:
    """A waits on the edge behind B from 20; who comes at 25 waits behind A."""
    b, a, late = (Journey(t, route(NEAR, SHARED), n) for t, n in ((0, 50), (0, 40), (5, 1)))
    assert ends_of(b, a, late)[1:] == [(77, 117), (117, 118)]


def test_a_train_displaced_twice_is_served_by_its_last_arrival() -> None:
    """C displaces B on X and then, going on, on Y, by which B comes to X: only the later time at which B then reaches X
    counts there. C has X from 4 to 24 and Y from 5 to 25; B, who came to Y at 6, has it until 35 and reaches X at 25,
    behind A, who waits there since 7.
    """
    x, y = edge(6, 1, 0, 1), edge(7, 0, 0, 1)
    a, b, c = Journey(2, route(x), 20, 5), Journey(3, route(y, x), 10, 3), Journey(4, route(x, y), 20)
    assert ends_of(a, b, c) == [(25, 45), (45, 55), (5, 25)]


def test_a_train_is_displaced_with_one_that_overtook_it() -> None:
    """Q stands behind M on X and before it on W, as M's way between the two is longer. N then displaces M on P, before
    all that; M is 3 later everywhere, and Q where it was.
    """
    p, x, v, w = (edge(i, wire, 0, 1) for i, wire in enumerate((0, 0, 40, 0)))
    m, q, n = Journey(0, route(p, x, v, w), 5, 10), Journey(1, route(x, w), 5, 29), Journey(5, route(p), 5, 3)
    assert ends_of(m, q) == [(50, 55), (30, 35)]
    assert ends_of(m, q, n) == [(53, 58), (30, 35), (8, 13)]


SLOW = edge(10, 0, 0, 10)


def test_a_slowly_fed_train_leaves_what_it_does_not_need() -> None:
    """10 B come at 10 ps each and need the fast edge only for their last 10 ps, from 90 to 100. Who reaches it at 30
    goes at once.
    """
    assert ends_of(Journey(0, route(SLOW, SHARED), 10), Journey(10, route(NEAR, SHARED), 10)) == [(7, 107), (37, 47)]


def test_a_gap_is_used_up_and_then_the_time_behind() -> None:
    """The gap is [0, 90). Who comes at 60 with 20 B is through at 80; who comes at 75 with 20 B gets the 10 that are
    left and 10 after the train: 110.
    """
    train = Journey(0, route(SLOW, SHARED), 10)
    one, two = (Journey(t, route(NEAR, SHARED), 20) for t in (40, 55))
    assert ends_of(train, one, two) == [(7, 107), (67, 87), (87, 117)]


def test_a_head_that_waits_leaves_when_the_edge_is_free() -> None:
    """The train reaches the edge at 5, which others have until 200; by then it is all there and takes 10."""
    ends = ends_of(Journey(0, route(SHARED), 200), Journey(5, route(SLOW, SHARED), 10))
    assert ends[1] == (207, 217)


def test_contention_costs_events_for_conflicts_only() -> None:
    """A hundred in one queue: an end each, and none more where nobody is displaced."""
    _, _, engine = travel([Journey(0, route(NEAR, SHARED), 50)] * 100)
    assert engine.events == 200


# --- against the reference ------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_seed", range(0, NETWORKS, 100))
def test_the_fabric_agrees_with_the_reference(first_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends, heads and tails of all transfers of each network; old claims are forgotten early in every other one. The
    mutants below show what it notices.
    """
    for seed in range(first_seed, first_seed + 100):
        monkeypatch.setattr(sipsim.noc.fabric, "_PRUNE_AT", (64, 2)[seed % 2])
        journeys = random_journeys(seed)
        assert travel(journeys)[0] == reference(journeys), f"seed {seed}"


def test_the_random_networks_have_conflicts() -> None:
    """Most transfers wait somewhere, and many are displaced."""
    waited = total = 0
    for seed in range(NETWORKS):
        journeys = random_journeys(seed)
        alone = [reference([journey])[0] for journey in journeys]
        total += len(journeys)
        waited += sum(a != b for a, b in zip(alone, reference(journeys), strict=True))
    assert 0.4 < waited / total < 0.9


class ReservesAtTheStart(Fabric):
    """The whole way is claimed behind whoever is there already."""

    def _plan(self, transfer: Transfer, head: int, tail: int, now: int) -> None:
        for lane in (hop.lane for hop in transfer.hops):
            lane.claims.clear()
        super()._plan(transfer, head, tail, now)


class LastComeFirst(Fabric):
    """Equal heads are served newest first."""

    def _replan(self, transfer: Transfer, index: int, head: int, tail: int, now: int) -> None:
        transfer.seq = -transfer.seq
        super()._replan(transfer, index, head, tail, now)


class NeverEarlier(Fabric):
    """An end that was told can only be put off."""

    def _arrive(self, transfer: Transfer, head: int, tail: int) -> None:
        super()._arrive(transfer, max(head, transfer.head_ps), max(tail, transfer.tail_ps))


@pytest.mark.parametrize("mutant", [ReservesAtTheStart, LastComeFirst, NeverEarlier])
def test_the_reference_finds_planted_orders(mutant: type[Fabric]) -> None:
    """Each of the three shows on at least one network of these."""
    assert any(_differs(random_journeys(seed), mutant) for seed in range(200))


def _no_gaps(lane: Lane, head: int, tail: int, drain: int) -> tuple[int, int]:
    start = max(lane.free_ps, head)
    lane.free_ps = max(start, tail - drain) + drain
    return start, lane.free_ps


def _head_to_tail(lane: Lane, head: int, tail: int, drain: int) -> tuple[int, int]:
    start = max(lane.free_ps, head)
    lane.free_ps = max(start + drain, tail)
    return start, lane.free_ps


def _moves_as_a_whole(lane: Lane, head: int, tail: int, drain: int) -> tuple[int, int]:
    _, end = REAL_CLAIM(lane, head, tail, drain)
    return head + end - max(head + drain, tail), end


def _double_use(lane: Lane, head: int, tail: int, drain: int) -> tuple[int, int]:
    start = max(lane.free_ps, head)
    if any(a <= head and head + drain <= b for a, b in lane.gaps) and head == tail:
        return head, head + drain
    if start + drain < tail:
        lane.gaps = (*lane.gaps, (start, tail - drain))
    lane.free_ps = max(start + drain, tail)
    return start, lane.free_ps


CLAIMS = [_no_gaps, _head_to_tail, _double_use, _moves_as_a_whole]


@pytest.mark.parametrize("claim", CLAIMS)
def test_the_reference_finds_planted_claims(claim: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sipsim.noc.fabric, "_claim", claim)
    assert any(_differs(random_journeys(seed), Fabric) for seed in range(200))


def _differs(journeys: list[Journey], kind: type[Fabric]) -> bool:
    try:
        return travel(journeys, kind)[0] != reference(journeys)
    except (AssertionError, IndexError):
        return True


# --- what an edge carries -------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_seed", range(0, NETWORKS, 200))
def test_an_edge_carries_its_bandwidth_and_no_more_and_never_idles(
    first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims of an edge never overlap, hold exactly the transfer's drain, and lie between its head and its end. While a
    whole train waits its edge is busy; and where a train ends later than its own bytes came, none of the time since its
    head was left idle, unless its bytes had all gone and only its tail had to wait.
    """
    for seed in range(first_seed, first_seed + 200):
        witness = ClaimWitness()
        monkeypatch.setattr(sipsim.noc.fabric, "_claim", witness.claim)
        journeys = random_journeys(seed)
        travel(journeys)
        lanes = list(witness.taken())
        monkeypatch.undo()
        assert sum(map(len, lanes)) == sum(len(journey.route.edges) for journey in journeys)
        for claims in lanes:
            check_lane(claims)
