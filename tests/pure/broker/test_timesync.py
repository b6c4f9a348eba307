"""The broker's decision, fact by fact and against a model with reactions; whole runs: ``test_timesync_property``."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.ids import MAX_PS, Channel
from broker.sync.timesync import Bound, ProtocolError, Quiescent, TimeSync, least
from broker.wire import Grant, Report, decode_for_sip, encode

NOTHING: tuple[()] = ()


def report(next_ps=None, held_ps=None, sent=NOTHING, taken=NOTHING, waiting=0, promise_ps=None, now_ps=0) -> Report:
    return Report(now_ps, next_ps, held_ps, sent, taken, waiting, promise_ps)


def pair(delay_ps: int = 10, back_ps: int | None = 10) -> TimeSync:
    """Two SIPs: a channel from 0 to 1 of ``delay_ps``, and one from 1 to 0 of ``back_ps``."""
    back = [] if back_ps is None else [Channel(1, 0, back_ps, "back")]
    return TimeSync(2, [Channel(0, 1, delay_ps, "forth"), *back])


def test_no_grant_before_every_first_report() -> None:
    sync = TimeSync(3, [Channel(0, 1, 10, "a"), Channel(1, 2, 10, "b")])
    assert sync.report(0, report(next_ps=0)) == []
    assert sync.report(2, report(next_ps=5)) == []
    assert sync.report(1, report()) == [(0, Grant(None, ())), (2, Grant(20, ()))]


def test_an_idle_interval_is_skipped_in_one_grant() -> None:
    sync = pair()
    sync.report(0, report(next_ps=1_000_000))
    assert sync.report(1, report()) == [(0, Grant(1_000_020, ()))]


def test_silent_when_next_equals_the_horizon() -> None:
    sync = pair(delay_ps=3, back_ps=5)
    sync.report(0, report(next_ps=100))
    assert sync.report(1, report(next_ps=95)) == [(1, Grant(103, ()))]
    assert not sync.is_running(0)
    assert sync.horizon_ps(0) == 100 == sync.next_event_bound_ps(0)
    assert sync.report(1, report(next_ps=96)) == [(0, Grant(101, ())), (1, Grant(103, ()))]


def test_no_barrier_and_a_running_sip_stands_where_it_was_granted() -> None:
    sync = pair()
    sync.report(0, report(next_ps=0))
    assert sync.report(1, report(next_ps=7)) == [(0, Grant(17, ())), (1, Grant(10, ()))]
    assert sync.report(1, report(next_ps=12)) == [], "SIP 0 still stands at 0"
    assert sync.report(0, report(next_ps=40)) == [(1, Grant(32, ()))]


def test_a_source_without_inputs_is_unbounded() -> None:
    sync = pair(back_ps=None)
    sync.report(1, report(next_ps=3))
    assert sync.report(0, report(next_ps=2)) == [(0, Grant(None, ())), (1, Grant(12, ()))]
    assert sync.horizon_ps(0) is None
    assert sync.bound(0) is None


def test_a_grant_names_the_packets_that_must_have_been_taken() -> None:
    sync = pair()
    sync.report(0, report(next_ps=0))
    sync.report(1, report(next_ps=100))
    assert sync.report(0, report(sent=((1, 3, 25),))) == [(1, Grant(45, ((0, 3),)))]
    assert sync.report(1, report(next_ps=100, held_ps=60, taken=((0, 3),))) == [(1, Grant(80, ()))]


def test_every_least_arrival_is_kept_until_the_count_covers_it() -> None:
    sync = pair(back_ps=None)
    sync.report(1, report())
    sync.report(0, report(next_ps=0))
    sync.report(0, report(next_ps=10, sent=((1, 2, 50),)))
    assert sync.next_event_bound_ps(1) == 50
    sync.report(0, report(next_ps=20, sent=((1, 5, 90),)))
    assert sync.next_event_bound_ps(1) == 50
    assert sync.report(0, report(next_ps=200, sent=((1, 6, 70),))) == [(0, Grant(None, ())), (1, Grant(210, ((0, 6),)))]
    assert sync.report(1, report(held_ps=90, taken=((0, 4),))) == [(1, Grant(210, ((0, 6),)))]
    assert sync.next_event_bound_ps(1) == 70


def test_packets_may_be_taken_before_their_sender_reports_them() -> None:
    sync = pair()
    sync.report(0, report(next_ps=0))
    sync.report(1, report(next_ps=1))
    sync.report(1, report(next_ps=60, held_ps=30, taken=((0, 2),)))
    assert sync.report(0, report(sent=((1, 2, 30),))) == [(1, Grant(50, ()))]
    assert sync.next_event_bound_ps(1) == 30


def test_packets_in_flight_to_a_running_sip_bound_the_others() -> None:
    sync = TimeSync(3, [Channel(0, 1, 10, "a"), Channel(1, 2, 10, "b")])
    sync.report(0, report(next_ps=0))
    sync.report(2, report(next_ps=60))
    assert sync.report(1, report(next_ps=1, promise_ps=500)) == [
        (0, Grant(None, ())),
        (1, Grant(10, ())),
    ], "SIP 2 is bounded by 0, through 1"
    assert sync.report(0, report(next_ps=300, sent=((1, 1, 45),))) == [(0, Grant(None, ()))]
    assert sync.is_running(1)
    assert sync.bound(2) == Bound(1, 45, 10, ["b"])


def test_quiescent_counts_blocked_kernels() -> None:
    sync = pair()
    sync.report(0, report(waiting=2))
    assert sync.report(1, report()) == Quiescent((2, 0))


def test_not_quiescent_while_a_packet_is_in_flight_or_a_sip_runs() -> None:
    sync = pair()
    sync.report(0, report(next_ps=0))
    assert sync.report(1, report()) == [(0, Grant(20, ()))]
    assert sync.report(0, report(sent=((1, 1, 15),))) == [(1, Grant(35, ((0, 1),)))]
    assert sync.report(1, report(taken=((0, 1),))) == Quiescent((0, 0))


def test_an_idle_sip_beside_a_running_one_is_not_quiescent() -> None:
    sync = pair(delay_ps=10, back_ps=10)
    sync.report(0, report(next_ps=0))
    assert sync.report(1, report(next_ps=5)) == [(0, Grant(15, ())), (1, Grant(10, ()))]
    assert sync.report(0, report()) == []
    assert sync.report(1, report()) == Quiescent((0, 0))


# --- promises -------------------------------------------------------------------------------------------------


def test_a_promise_extends_horizons_but_does_not_end_the_run() -> None:
    sync = pair()
    sync.report(0, report(next_ps=5, promise_ps=1000))
    assert sync.report(1, report(next_ps=400)) == [(0, Grant(410, ())), (1, Grant(420, ()))]
    assert sync.report(1, report()) == []
    assert sync.is_running(0)


def test_held_and_in_flight_packets_lower_a_promise() -> None:
    sync = pair(back_ps=None)
    sync.report(1, report(next_ps=900))
    sync.report(0, report(next_ps=5, held_ps=40, promise_ps=1000))
    assert sync.horizon_ps(1) == 50

    sync = TimeSync(3, [Channel(0, 1, 10, "a"), Channel(1, 2, 10, "b")])
    sync.report(1, report(promise_ps=1000, next_ps=700))
    sync.report(2, report(next_ps=800))
    sync.report(0, report(next_ps=0, sent=((1, 1, 60),)))
    assert sync.bound(2) == Bound(0, 0, 20, ["a", "b"])
    sync.report(0, report(next_ps=500))
    assert sync.bound(2) == Bound(1, 60, 10, ["b"])


def test_a_promise_ends_with_the_report_that_made_it() -> None:
    sync = pair(back_ps=None)
    sync.report(1, report(next_ps=900))
    sync.report(0, report(next_ps=5, promise_ps=1000))
    assert sync.horizon_ps(1) == 1010
    sync.report(0, report(next_ps=30))
    assert sync.horizon_ps(1) == 40


def test_a_promise_before_the_next_event_bounds_no_sip() -> None:
    sync = pair()
    sync.report(0, report(next_ps=100, promise_ps=0))
    assert sync.report(1, report(next_ps=100, promise_ps=3)) == [(0, Grant(110, ())), (1, Grant(110, ()))]


def test_a_promise_of_an_idle_sip_bounds_no_sip() -> None:
    sync = pair()
    sync.report(0, report(next_ps=100))
    assert sync.report(1, report(promise_ps=3)) == [(0, Grant(120, ()))]


def test_a_horizon_after_the_last_time_is_none() -> None:
    sync = pair()
    sync.report(0, report(next_ps=MAX_PS, promise_ps=MAX_PS))
    ((rank, grant),) = sync.report(1, report())
    assert (rank, grant) == (0, Grant(None, ()))
    assert decode_for_sip(encode(grant)) == grant


def test_a_promise_to_send_nothing_bounds_no_sip() -> None:
    sync = pair()
    sync.report(0, report(next_ps=5, promise_ps=MAX_PS))
    assert sync.report(1, report(next_ps=400)) == [(0, Grant(410, ())), (1, Grant(420, ()))], "each by itself"
    sync = pair(back_ps=None)
    sync.report(0, report(next_ps=5, promise_ps=MAX_PS))
    assert sync.report(1, report(next_ps=400)) == [(0, Grant(None, ())), (1, Grant(None, ()))]
    assert sync.bound(1) is None


# --- reports that cannot be true ------------------------------------------------------------------------------


def test_a_second_report_without_a_grant_is_refused_with_the_last_facts() -> None:
    sync = pair()
    sync.report(0, report(next_ps=77))
    with pytest.raises(ProtocolError, match="SIP 0 reported without a grant") as caught:
        sync.report(0, report(next_ps=78))
    assert "next_ps=77" in caught.value.detail


def test_reported_packets_are_at_least_one() -> None:
    """In a first report too."""
    with pytest.raises(ProtocolError, match="SIP 0 reported 0 packets sent to SIP 1; last report: 0"):
        pair().report(0, report(sent=((1, 0, 10),)))


@pytest.mark.parametrize("count", [1, 2])
def test_counts_of_sent_packets_only_grow(count: int) -> None:
    sync = pair()
    sync.report(1, report())
    sync.report(0, report(next_ps=0, sent=((1, 2, 10),)))
    with pytest.raises(ProtocolError, match=f"SIP 0 reported {count} packets sent to SIP 1; last report: 2"):
        sync.report(0, report(sent=((1, count, 30),)))


def test_counts_of_taken_packets_never_shrink() -> None:
    sync = pair()
    sync.report(0, report(next_ps=900))
    sync.report(1, report(next_ps=0, taken=((0, 2),)))
    with pytest.raises(ProtocolError, match="SIP 1 reported 1 packets taken of SIP 0; last report: 2"):
        sync.report(1, report(taken=((0, 1),)))


@pytest.mark.parametrize(
    ("rank", "wrong"),
    [(2, report()), (-2, report()), (0, report(sent=((2, 1, 5),))), (0, report(taken=((4095, 1),)))],
)
def test_unknown_ranks_are_refused(rank: int, wrong: Report) -> None:
    with pytest.raises(ProtocolError, match=r"SIPs are 0 to 1"):
        pair().report(rank, wrong)


# --- bounds and totals ----------------------------------------------------------------------------------------


def test_the_bound_names_the_sip_and_the_chain() -> None:
    sync = TimeSync(3, [Channel(0, 1, 10, "a"), Channel(1, 2, 10, "b"), Channel(0, 2, 40, "long")])
    for rank, next_ps in enumerate((5, 30, 100)):
        sync.report(rank, report(next_ps=next_ps))
    assert sync.bound(2) == Bound(0, 5, 20, ["a", "b"])
    assert sync.bound(1) == Bound(0, 5, 10, ["a"])
    assert sync.horizon_ps(2) == 25


def test_totals() -> None:
    sync = pair(back_ps=None)
    sync.report(0, report(next_ps=4))
    sync.report(1, report(next_ps=6))
    assert (sync.reports, sync.grants, sync.windows, sync.window_ps_sum) == (2, 2, 1, 8)


@given(st.lists(st.none() | st.integers(0, 10)))
def test_least_takes_none_as_never(times: list[int | None]) -> None:
    known = sorted(t for t in times if t is not None)
    assert least(*times) == (known[0] if known else None)


# --- against a recomputation of everything --------------------------------------------------------------------

NEVER = 10**30


class World:
    """A few SIPs that send and report at random, and the bounds of ``timesync``, computed from all facts each time."""

    def __init__(self, rng: random.Random) -> None:
        size = self.size = rng.randint(1, 4)
        self.rng = rng
        ends = [(rng.randrange(size), rng.randrange(size)) for _ in range(rng.randint(1, 2 * size))]
        self.channels = [Channel(a, b, rng.randint(1, 9), f"c{i}") for i, (a, b) in enumerate(ends)]
        self.reactions = [rng.choice((0, 0, 3, 20)) for _ in range(size)]
        self.delays = self._delays()
        self.last: list[Report | None] = [None] * size
        self.running = [True] * size
        self.start = [0] * size
        self.sent = {(a, b): 0 for a in range(size) for b in range(size)}
        self.announced, self.taken = dict(self.sent), dict(self.sent)
        self.news: dict[tuple[int, int], int] = {}
        self.flight: dict[tuple[int, int], list[tuple[int, int]]] = {pair: [] for pair in self.sent}

    def _delays(self) -> list[list[int]]:
        """Floyd-Warshall, with the reactions of intermediate SIPs."""
        least = [[NEVER] * self.size for _ in range(self.size)]
        for c in self.channels:
            least[c.src][c.dst] = min(least[c.src][c.dst], c.delay_ps)
        for via in range(self.size):
            for a in range(self.size):
                for b in range(self.size):
                    least[a][b] = min(least[a][b], least[a][via] + self.reactions[via] + least[via][b])
        return least

    def send(self, rank: int) -> None:
        outgoing = [c for c in self.channels if c.src == rank]
        if outgoing:
            c = self.rng.choice(outgoing)
            self.sent[rank, c.dst] += 1
            arrival_ps = self.start[rank] + c.delay_ps + self.rng.randint(0, 9)
            self.news[rank, c.dst] = min(self.news.get((rank, c.dst), NEVER), arrival_ps)

    def report(self, rank: int) -> Report:
        """A legal one: at least the packets that the grant required are taken."""
        rng, start = self.rng, self.start[rank]
        soon = [None, start + rng.randint(0, 9), start + rng.randint(0, 30)]
        news = {pair: arrival for pair, arrival in self.news.items() if pair[0] == rank}
        taken = {}
        for source in range(self.size):
            pair = (source, rank)
            least = self.needed[rank].get(source, self.taken[pair]) if self.last[rank] else 0
            count = rng.choice((least, rng.randint(least, self.sent[pair])))
            if count > self.taken[pair]:
                taken[source] = self.taken[pair] = count
        for pair, arrival in news.items():
            del self.news[pair]
            self.announced[pair] = self.sent[pair]
            self.flight[pair].append((self.sent[pair], arrival))
        sent = tuple((dst, self.sent[src, dst], arrival) for (src, dst), arrival in sorted(news.items()))
        promise_ps = rng.choice((None, 0, start + rng.randint(0, 30), MAX_PS))
        made = report(rng.choice(soon), rng.choice(soon), sent, tuple(sorted(taken.items())), rank, promise_ps)
        self.last[rank], self.running[rank] = made, False
        return made

    def event_bound(self, rank: int) -> int:
        last = self.last[rank]
        assert last is not None
        return min([self.arriving(rank), *(t for t in (last.next_ps, last.held_ps) if t is not None)])

    def arriving(self, rank: int) -> int:
        """The least arrival of all packets that were reported as sent and not as taken."""
        flights = [(pair, flight) for pair, sent in self.flight.items() if pair[1] == rank for flight in sent]
        return min((arrival for pair, (count, arrival) in flights if count > self.taken[pair]), default=NEVER)

    def send_bound(self, rank: int) -> int:
        last, event = self.last[rank], self.event_bound(rank)
        assert last is not None
        if last.promise_ps is None or event == NEVER:
            return event
        held = NEVER if last.held_ps is None else last.held_ps
        reaction = self.reactions[rank]
        return max(event, min(last.promise_ps, held + reaction, self.arriving(rank) + reaction))

    def horizon(self, rank: int) -> int:
        return min(self.send_bound(k) + self.delays[k][rank] for k in range(self.size))

    def decide(self) -> list[tuple[int, int | None, dict[int, int]]] | Quiescent:
        """All possible grants: rank, horizon, need."""
        if None in self.last:
            return []
        ranks = range(self.size)
        if not any(self.running) and all(self.event_bound(rank) == NEVER for rank in ranks):
            return Quiescent(tuple(ranks))
        granted = [r for r in ranks if not self.running[r] and self.event_bound(r) < min(self.horizon(r), NEVER)]
        count, taken = self.announced, self.taken
        self.needed = {r: {s: count[s, r] for s in ranks if count[s, r] > taken[s, r]} for r in ranks}
        for rank in granted:
            self.start[rank], self.running[rank] = self.event_bound(rank), True
        return [(r, self.horizon(r) if self.horizon(r) <= MAX_PS else None, self.needed[r]) for r in granted]


@pytest.mark.parametrize("examples", [100, pytest.param(400, marks=pytest.mark.slow)])
def test_grants_equal_a_recomputation(examples: int) -> None:
    settings(max_examples=examples)(given(st.randoms(use_true_random=False))(assert_grants))()


def assert_grants(rng: random.Random) -> None:
    """After some reports, grants and horizons equal those of ``World``, which recomputes all N, X and D."""
    world = World(rng)
    sync = TimeSync(world.size, world.channels, world.reactions)
    for _ in range(40):
        running = [rank for rank in range(world.size) if world.running[rank]]
        for _ in range(rng.randint(0, 2)):
            world.send(rng.choice(running))
        for rank in rng.sample(running, rng.randint(1, len(running))):
            sync.note(rank, world.report(rank))
        decision, expected = sync.decide(), world.decide()
        if isinstance(expected, Quiescent):
            assert decision == expected
            return
        assert not isinstance(decision, Quiescent)
        assert [(to, grant.horizon_ps, dict(grant.need)) for to, grant in decision] == expected
        for k in range(world.size if None not in world.last else 0):
            assert (sync.next_event_bound_ps(k) or 0) == (world.event_bound(k) if world.event_bound(k) < NEVER else 0)
            assert sync.horizon_ps(k) == (world.horizon(k) if world.horizon(k) <= MAX_PS else None)
            assert sync.is_running(k) == world.running[k]
        assert any(world.running), "some SIP can run until all is quiescent"


class TestLimit:
    def limited(self, limit_ps: int) -> TimeSync:
        return TimeSync(2, [Channel(0, 1, 10, "forth"), Channel(1, 0, 10, "back")], None, limit_ps)

    @pytest.mark.parametrize("limit_ps", [6, 14])
    def test_no_horizon_is_beyond_it(self, limit_ps: int) -> None:
        sync = self.limited(limit_ps)
        sync.report(0, report(next_ps=5))
        assert sync.report(1, report(next_ps=5)) == [(0, Grant(limit_ps, ())), (1, Grant(limit_ps, ()))]

    def test_an_unbounded_horizon_is_bounded_by_it(self) -> None:
        sync = TimeSync(1, [], None, 50)
        assert sync.report(0, report(next_ps=5)) == [(0, Grant(50, ()))]
        assert sync.report(0, report(next_ps=50, waiting=1)) == Quiescent((1,), True)

    def test_packets_in_flight_beyond_it_do_not_hold_it_up(self) -> None:
        sync = self.limited(20)
        sync.report(0, report(next_ps=5))
        sync.report(1, report())
        assert sync.report(0, report(sent=((1, 1, 25),), now_ps=5)) == Quiescent((0, 0), True)

    def test_those_before_it_do(self) -> None:
        sync = self.limited(20)
        sync.report(0, report(next_ps=5))
        sync.report(1, report())
        assert sync.report(0, report(sent=((1, 1, 19),), now_ps=5)) == [(1, Grant(20, ((0, 1),)))]

    def test_the_end_before_it_is_the_end(self) -> None:
        sync = self.limited(20)
        sync.report(0, report())
        assert sync.report(1, report()) == Quiescent((0, 0), False)
