"""Edges that virtual channels share: by hand, against a reference of nothing but chunks, and what always holds."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_fabric import (
    WEIGHTS,
    Journey,
    alone,
    amounts,
    chunked_reference,
    edge,
    random_journeys,
    random_mixed_journeys,
    reference,
    route,
    routes,
    travel,
)
from sweeps import batches
from witness import Witness

from sipsim.noc.graph import Route
from sipsim.noc.switching import Switching
from sipsim.noc.trains import Visit
from sipsim.noc.virtual_channels import COMM, COMPUTE, CREDIT, Arbitration, Turn

NETWORKS = 3000
EQUAL = Arbitration(10, (1, 1))
SHARED = edge(3, 7, 0, 1)


def ends_of(arbitration: Arbitration | None, *journeys: Journey) -> list[tuple[int, int]]:
    """(head, tail) of each."""
    return [end[1:] for end in travel(list(journeys), arbitration=arbitration)[0]]


def through_shared(start: int, nbytes: int, vc: int) -> Journey:
    return Journey(start, route(SHARED), nbytes, vc=vc)


# --- alone ----------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(routes, amounts, st.integers(0, 10**9), st.integers(0, 10**4), st.integers(-(10**5), 0))
def test_alone_it_takes_exactly_the_contract(way: Route, nbytes: int, start: int, delay: int, lead: int) -> None:
    """Whatever the chunks, and in one event."""
    journey = Journey(start, way, nbytes, delay, lead_ps=lead)
    (end,), _, engine = travel([journey], arbitration=EQUAL)
    assert end == alone(journey)
    assert engine.events == 2, "its start, which is the test's, and its end"


@settings(deadline=None)
@given(routes, routes, amounts, st.integers(0, 10**9))
def test_cut_anywhere_it_arrives_the_same(first: Route, second: Route, nbytes: int, start: int) -> None:
    """Over two fabrics, as between two SIPs, and in one."""
    whole_head = start + first.head_ps() + second.head_ps()
    ((head, tail),) = ends_of(EQUAL, Journey(start, first, nbytes))
    end = ends_of(EQUAL, Journey(tail, second, nbytes, span_ps=tail - head))
    assert end == [(whole_head, whole_head + max(first.drain_ps(nbytes), second.drain_ps(nbytes)))]


# --- by hand --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("chunk", "leaves"), [(10, 40), (20, 40), (50, 50), (100, 100)])
def test_a_short_message_waits_for_a_chunk_and_not_for_a_long_train(chunk: int, leaves: int) -> None:
    """100 B have the edge from 0, 5 B of the other channel come at 33. They wait for the end of the chunk that is being
    sent; the long train is 5 later.
    """
    ends = ends_of(Arbitration(chunk, (1, 1)), through_shared(0, 100, COMPUTE), through_shared(33, 5, COMM))
    assert ends == [(7, 112 if leaves < 100 else 107), (leaves + 7, leaves + 12)]


def test_chunks_count_from_the_end() -> None:
    """95 B in chunks of 10: the first has 5, the second ends at 15, and who comes at 33 waits until 35."""
    ends = ends_of(EQUAL, through_shared(0, 95, COMPUTE), through_shared(33, 5, COMM))
    assert ends == [(7, 107), (42, 47)]


def test_a_waiting_channel_gets_the_edge_at_the_end_of_the_turn() -> None:
    """Three chunks a turn: the second turn ends at 60."""
    ends = ends_of(Arbitration(10, (3, 1)), through_shared(0, 100, COMPUTE), through_shared(33, 5, COMM))
    assert ends == [(7, 112), (67, 72)]


def test_strict_priority_gets_the_edge_at_the_end_of_the_chunk() -> None:
    """And keeps it as long as it has something."""
    arbitration = Arbitration(10, (3, 1, 0))
    long, credit, comm = through_shared(0, 100, COMPUTE), through_shared(33, 25, CREDIT), through_shared(34, 5, COMM)
    assert ends_of(arbitration, long, credit, comm) == [(7, 137), (47, 72), (92, 97)]


def test_channels_take_turns_and_trains_of_one_channel_do_not() -> None:
    """Two channels, two trains of 40 each: A and C of the one, B and D of the other. Chunks go A A B A B A B C B C D C
    D C D D: all of A before C, all of B before D.
    """
    a, b, c, d = (through_shared(start, 40, vc) for start, vc in ((0, 0), (12, 1), (13, 0), (14, 1)))
    assert ends_of(EQUAL, a, b, c, d) == [(7, 67), (27, 97), (77, 147), (107, 167)]


def test_a_turn_goes_on_with_the_next_train() -> None:
    """Weights 3 and 1, trains of a chunk: three of the one channel for one of the other."""
    arbitration = Arbitration(10, (3, 1))
    journeys = [through_shared(0, 10, 0), *(through_shared(1, 10, vc) for vc in (0, 0, 0, 0, 1, 1))]
    tails = [tail - 7 for _, tail in ends_of(arbitration, *journeys)]
    assert tails == [10, 20, 30, 50, 60, 40, 70]


def test_without_arbitration_channels_share_one_queue() -> None:
    assert ends_of(None, through_shared(0, 100, COMPUTE), through_shared(33, 5, COMM)) == [(7, 107), (107, 112)]


def test_a_blocked_train_leaves_the_next_edge_to_others() -> None:
    """A's second half waits on X for B; on Y, which only A crosses, C of B's channel then goes in between.

    A's chunks would be on X at 0, 10, 20 and 30; B comes at 15 with three chunks and has X at 20, 40 and 60, A at 30
    and 50. A's chunks reach Y, 5 later, at 5, 15, 35 and 55. C comes to Y at 26, where the edge is idle, with 9 B.
    """
    x, y = edge(1, 5, 0, 1), edge(2, 0, 0, 1)
    a, b, c = Journey(0, route(x, y), 40), Journey(15, route(x), 30, vc=1), Journey(26, route(y), 9, vc=1)
    assert ends_of(EQUAL, a, b, c) == [(5, 65), (25, 75), (26, 35)]


def test_a_later_train_of_a_channel_uses_an_idle_edge() -> None:
    """As above, and C is of A's channel: B keeps A from Y for a while, in which C goes over it."""
    x, y = edge(1, 5, 0, 1), edge(2, 0, 0, 1)
    a, b, c = Journey(0, route(x, y), 40), Journey(15, route(x), 30, vc=1), Journey(26, route(y), 9)
    assert ends_of(EQUAL, a, b, c) == [(5, 65), (25, 75), (26, 35)]


def test_a_slow_train_uses_its_turns_when_its_chunks_are_there() -> None:
    """A comes over a slow edge, 10 B in 100 ps, with chunks of 2; B has 60 B for the fast edge from 15 on. A's chunk
    that has begun ends at 20; the next is there at 40, and needs the edge for 2 only.
    """
    slow, fast = edge(1, 0, 0, 10), edge(2, 0, 0, 1)
    a, b = Journey(0, route(slow, fast), 10), Journey(15, route(fast), 60, vc=1)
    (_, end_a), (_, end_b) = ends_of(Arbitration(2, (1, 1)), a, b)
    assert end_a == 100
    assert end_b <= 20 + 60 + 3 * 2


def test_an_end_is_final_when_its_last_chunk_starts() -> None:
    """95 B on a link of 40 ps, told 40 + 10 before the end: at 85, when the last chunk starts. Who comes at 85 waits
    for it; who comes at 84 goes first, and it is told 5 later.
    """
    link = edge(1, 40, 0, 1)
    for lead in (50, 80):
        for start, told in ((85, (85, 40, 135)), (84, (90, 40, 140))):
            journeys = [Journey(0, route(link), 95, lead_ps=lead), Journey(start, route(link), 5, vc=1)]
            (end, other), _, _ = travel(journeys, arbitration=EQUAL)
            assert end == told
            assert other.head_ps == (135 if start == 85 else 125)


def test_at_one_time_the_earlier_start_goes_first() -> None:
    """Both reach the edge at 40, where a chunk of A ends. B was started before A and is in time; C, started later, is
    not.
    """
    far = edge(1, 40, 0, 1)
    b, a = Journey(0, route(SHARED), 5, 40, vc=1), Journey(0, route(SHARED), 100)
    assert ends_of(EQUAL, b, a)[0] == (47, 52)
    a, c = Journey(0, route(SHARED), 100), Journey(0, route(far, SHARED), 5, vc=1)
    assert ends_of(EQUAL, a, c)[1] == (57, 62)


def test_contention_costs_events_for_conflicts_only() -> None:
    """Two trains of a thousand chunks that share an edge to their ends take few events."""
    _, _, engine = travel([through_shared(0, 10**4, vc) for vc in (0, 1)], arbitration=EQUAL)
    assert engine.events < 2 + 2 * 16


@pytest.mark.parametrize("arbitration", [Arbitration(0, (1,)), Arbitration(1, ()), Arbitration(1, (1, -1))])
def test_invalid_arbitrations_raise(arbitration: Arbitration) -> None:
    with pytest.raises(ValueError, match=r"chunk|channel"):
        travel([], arbitration=arbitration)


# --- against the reference ------------------------------------------------------------------------------------


def mixed_differs(seed: int) -> bool:
    journeys, arbitration = random_mixed_journeys(seed)
    return travel(journeys, arbitration=arbitration)[0] != chunked_reference(journeys, arbitration)


@pytest.mark.parametrize("first_seed", batches(NETWORKS, 750))
def test_switching_agrees_with_the_reference(first_seed: int) -> None:
    """Events, heads and tails of all transfers, where no edge is faster than the one before. The mutants below show
    what it notices.
    """
    assert [seed for seed in range(first_seed, first_seed + 750) if mixed_differs(seed)] == []


def test_one_channel_by_itself_is_one_queue() -> None:
    """All of one channel, with any weights: as without channels, to the picosecond, and as that reference."""
    for seed in range(300):
        mixed, arbitration = random_mixed_journeys(seed)
        vc = seed % len(arbitration.weights)
        journeys = [journey._replace(vc=vc) for journey in mixed]
        assert travel(journeys, arbitration=arbitration)[0] == travel(journeys)[0] == reference(journeys)


def test_the_random_networks_have_conflicts() -> None:
    """Most transfers wait somewhere, and many would wait otherwise with one queue."""
    waited = shared = total = 0
    for seed in range(200):
        journeys, arbitration = random_mixed_journeys(seed)
        mixed = chunked_reference(journeys, arbitration)
        alone = [chunked_reference([journey], arbitration)[0] for journey in journeys]
        total += len(journeys)
        waited += sum(a != b for a, b in zip(alone, mixed, strict=True))
        shared += sum(a != b for a, b in zip(reference(journeys), mixed, strict=True))
    assert 0.5 < waited / total < 0.9
    assert 0.3 < shared / total < 0.8


def _always_the_first(self: Turn, able: list[int]) -> int:
    self.begin(able[0])
    return able[0]


def _weights_of_one(self: Turn, vc: int) -> None:
    self.vc, self.left = vc, 1


def _strict_waits_its_turn(self: Turn, vc: int, to: int) -> bool | None:
    return False if self.weights[vc] else None


def _remembers(self: Turn) -> None:
    if not hasattr(self, "vc"):
        self.vc, self.left = len(self.weights) - 1, 0


def _never_gives_way(self: Switching, *_: object) -> None:
    pass


def _newest_first(self: Switching, lane: Any, visit: Visit) -> None:
    enter(self, lane, visit)
    lane.queues[visit.train.vc].rotate(1)


def _by_time_only(self: Switching, time_ps: int, *_: object) -> bool:
    return time_ps <= self._latest[0]


def _cuts_one_edge_only(self: Switching, run: Any, share: int) -> None:
    taker, run.taker = run.taker, None
    cut(self, run, share)
    run.taker = taker


def _flies_through(self: Switching, lane: Any) -> None:
    lane.spans = []


enter, cut = Switching._enter, Switching._cut

ORDERS = [
    (Turn, "choose", _always_the_first),
    (Turn, "begin", _weights_of_one),
    (Turn, "yields", _strict_waits_its_turn),
    (Turn, "forget", _remembers),
    (Switching, "_interrupt", _never_gives_way),
    (Switching, "_enter", _newest_first),
    (Switching, "_is_over", _by_time_only),
    (Switching, "_cut", _cuts_one_edge_only),
    (Switching, "_clear_spans", _flies_through),
]


@pytest.mark.parametrize(("place", "name", "mutant"), ORDERS, ids=lambda x: getattr(x, "__name__", x))
def test_the_reference_finds_planted_orders(
    place: type, name: str, mutant: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each shows on at least one network of these, as another result or as a failure."""
    monkeypatch.setattr(place, name, mutant)

    def shows(seed: int) -> bool:
        try:
            return mixed_differs(seed)
        except (AssertionError, IndexError, KeyError, AttributeError, ValueError):
            return True

    assert any(shows(seed) for seed in range(300))


# --- what always holds ----------------------------------------------------------------------------------------


def any_traffic(seed: int) -> tuple[list[Journey], Arbitration]:
    """Slow edges before fast ones, trains that come over a link, framed links where a way ends; of all channels."""
    rng = random.Random(seed)
    arbitration = Arbitration(rng.choice((1, 2, 3, 5)), rng.choice((*WEIGHTS, (1,))))
    journeys = [j._replace(vc=rng.randrange(len(arbitration.weights))) for j in random_journeys(seed)]
    return [_leaves_by_its_link(journey) for journey in journeys], arbitration


def _leaves_by_its_link(journey: Journey) -> Journey:
    """On a SIP only the last edge of a way is framed."""
    *before, last = journey.route.edges
    return journey._replace(route=journey.route._replace(edges=(*(e for e in before if e.link is None), last)))


def watched(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    journeys, arbitration = any_traffic(seed)
    witness = Witness(monkeypatch)
    ends, fabric, _ = travel(journeys, arbitration=arbitration)
    monkeypatch.undo()
    witness.check(fabric, journeys, ends)
    for journey, end in zip(journeys, ends, strict=True):
        head = journey.start_ps + journey.delay_ps - journey.span_ps + journey.route.head_ps()
        drain = max(journey.span_ps, journey.route.drain_ps(journey.nbytes))
        assert end.head_ps >= head
        assert end.tail_ps >= head + drain


@pytest.mark.parametrize("first_seed", batches(NETWORKS, 750))
def test_no_edge_carries_too_much_nor_idles_nor_mixes_trains(first_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every train each byte crosses each edge once, not before it came and no faster than the edge; in a channel who
    came first goes first while its next chunk is there; the edge is never idle while all of a train is there; what was
    told is what happened.
    """
    for seed in range(first_seed, first_seed + 750):
        watched(seed, monkeypatch)


RULES = [
    (Switching, "_enter", _newest_first),
    (Switching, "_cut", _cuts_one_edge_only),
    (Switching, "_clear_spans", _flies_through),
]


@pytest.mark.parametrize(("place", "name", "mutant"), RULES, ids=lambda x: getattr(x, "__name__", x))
def test_the_witness_finds_planted_bugs(
    place: type, name: str, mutant: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each breaks one of those rules on at least one network of these."""

    def breaks(seed: int) -> bool:
        with pytest.MonkeyPatch.context() as planted:
            planted.setattr(place, name, mutant)
            try:
                watched(seed, monkeypatch)
            except (AssertionError, IndexError, KeyError, AttributeError, StopIteration):
                return True
            return False

    assert any(breaks(seed) for seed in range(300))


def test_a_wait_behind_a_slow_train_is_planned_again_at_each_event() -> None:
    """A message behind a chunk that an edge of a 64th of the speed feeds, told when its last chunk starts."""
    slow, fast = edge(1, 600, 0, 64), edge(2, 600, 0, 1)
    journeys = [Journey(0, route(slow, fast), 4096, vc=1), Journey(6000, route(fast), 256, lead_ps=856)]
    ends, _, engine = travel(journeys, arbitration=Arbitration(256, (1, 1, 0)))
    assert ends[0].tail_ps == 600 + 64 * 4096 + 600
    assert engine.events - len(journeys) <= 6


def test_a_new_train_may_let_another_start_earlier() -> None:
    """B waits behind A's stream, of its channel, until C of another channel interrupts A upstream: B uses the gap."""
    x, y = edge(1, 5, 0, 1), edge(2, 0, 0, 1)
    a, b, c = Journey(0, route(x, y), 4000), Journey(10, route(y), 9), Journey(15, route(x), 300, vc=1)
    ends = travel([a, b, c], arbitration=EQUAL)[0]
    assert ends[1].now_ps == ends[1].tail_ps < 60
