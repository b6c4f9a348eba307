"""The fabric of flows, rule by rule, by hand."""

import random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_fabric import Journey, Traffic, Watched, alone, amounts, edge, flits, route, routes, travel

from sipsim.core.engine import Engine
from sipsim.fabric.channels import ONE_QUEUE, Arbitration
from sipsim.fabric.delays import delayed
from sipsim.fabric.flows import FlowFabric
from sipsim.fabric.graph import Done, Route

MIB = 2**20
PS_PER_BYTE = 16
SHARED = edge(1, 700, 300, PS_PER_BYTE)
"""62.5 GB/s, and a nanosecond for the head."""


def to(number: int, *, shared: bool = True) -> Route:
    """A way of its own behind the shared edge, and one before it."""
    own = edge(10 + number, 40, 10, PS_PER_BYTE)
    return route(own, SHARED, edge(50 + number, 20, 5, PS_PER_BYTE)) if shared else route(own)


def tails(*journeys: Journey, weights: tuple[int, ...] = (1,)) -> list[int]:
    return [end.tail_ps for end in travel(journeys, Watched, Arbitration(256, weights))[0]]


def lone_ps(nbytes: int) -> int:
    return to(0).latency_ps(nbytes)


# --- alone ----------------------------------------------------------------------------------------------------


@given(routes, amounts, st.integers(0, 5000), st.integers(0, 10**6), st.integers(1, 50), st.sampled_from([1, 4]))
def test_alone_it_takes_the_timing_contract(
    way: Route, nbytes: int, delay_ps: int, span_ps: int, repeats: int, in_flight: int
) -> None:
    """Any chain of wires, with links and their framing; what has come over a link, and what comes out of a memory."""
    journey = Journey(7, way, nbytes, delay_ps, in_flight=in_flight)
    assert travel([journey])[0] == [alone(journey)]
    late = journey._replace(start_ps=10**7, span_ps=span_ps)
    head, tail = alone(late)[1:]
    [end] = travel([late])[0]
    assert end[1:] == (head - span_ps, head - span_ps + max(tail - head, span_ps))
    follow = [journey._replace(source="one")] * repeats
    drain_ps = tail - head
    assert [end.tail_ps for end in travel(follow)[0]] == [
        alone(journey).tail_ps + drain_ps * at for at in range(repeats)
    ]


def test_alone_it_is_one_event_and_in_a_train_two() -> None:
    _, _, engine = travel([Journey(0, to(0), 1000)])
    assert engine.events == 1 + 1, "the start of the journey, and its end"
    _, _, engine = travel([Journey(0, to(0), 1000, source="a")] * 3)
    assert engine.events == 3 + 2 + 2 + 1


# --- together -------------------------------------------------------------------------------------------------


def test_two_share_and_end_together() -> None:
    assert tails(Journey(0, to(0), 4096), Journey(0, to(1), 4096)) == [lone_ps(4096) + 4096 * PS_PER_BYTE] * 2
    assert tails(Journey(0, to(0), 4096), Journey(0, to(1, shared=False), 4096))[0] == lone_ps(4096)


def test_what_follows_a_slow_one_has_its_own_limit() -> None:
    """One whose bytes come slowly, alone; later another of its way meets a third one, which is a little slow."""
    slow_ps, little_ps, later_ps = 40_960 * PS_PER_BYTE, 5120 * PS_PER_BYTE, 10**9
    slow = Journey(0, to(0), 4096, slow_ps, slow_ps, source="a")
    following = slow._replace(start_ps=later_ps, delay_ps=0, span_ps=0)
    third = Journey(later_ps, to(1), 4096, little_ps, little_ps)
    together_ps = later_ps + lone_ps(4096) + 4096 * PS_PER_BYTE
    assert tails(slow, following, third) == [slow_ps + slow.route.head_ps(), together_ps, together_ps]


@pytest.mark.parametrize("start_ps", [0, 5_000_000, 50_000_000])
def test_a_short_one_waits_for_less_than_a_packet_of_a_long_one(start_ps: int) -> None:
    took_ps = tails(Journey(0, to(0), 8 * MIB), Journey(start_ps, to(1), 64))[1] - start_ps
    assert took_ps - lone_ps(64) < 256 * PS_PER_BYTE


def test_it_waits_for_less_than_a_packet_on_each_edge_that_it_shares() -> None:
    """A long one of another source on each of three edges."""
    edges = [edge(at, 100, 10, PS_PER_BYTE) for at in range(3)]
    long = [Journey(0, route(edge(10 + at, 0, 0, PS_PER_BYTE), each), 8 * MIB) for at, each in enumerate(edges)]
    way = route(*edges)
    took_ps = tails(*long, Journey(10**6, way, 64))[-1] - 10**6
    assert took_ps - way.latency_ps(64) < 3 * 256 * PS_PER_BYTE


def test_the_order_of_equal_starts_does_not_matter() -> None:
    journeys = [Journey(0, to(at), 64 << at, vc=at % 2) for at in range(8)]
    draw, found = random.Random(1), set()
    for _ in range(20):
        order = draw.sample(range(8), 8)
        ends = tails(*(journeys[at] for at in order), weights=(3, 1))
        found.add(tuple(end for _, end in sorted(zip(order, ends, strict=True))))
    assert len(found) == 1


def test_a_start_a_little_earlier_changes_no_total() -> None:
    for first, second in ((0, 0), (0, 10_000), (10_000, 0)):
        last_ps = max(tails(Journey(first, to(0), MIB), Journey(second, to(1), MIB)))
        assert last_ps - lone_ps(0x1) == pytest.approx(2 * MIB * PS_PER_BYTE, rel=1e-3)


@pytest.mark.parametrize("weights", [(1, 1), (4, 1), (1, 3)])
def test_channels_share_by_weight(weights: tuple[int, ...]) -> None:
    """Three flows of the first channel and one of the second: when the second has ended, the first has had its part."""
    size = 3 * MIB
    journeys = [*(Journey(0, to(at), size) for at in range(3)), Journey(0, to(3), size, vc=1)]
    total = size * PS_PER_BYTE * sum(weights)
    ends = tails(*journeys, weights=weights)
    one, other = max(ends[:3]) - lone_ps(1), ends[3] - lone_ps(1)
    first_done = 3 * total / weights[0] < total / weights[1]
    assert (one if first_done else other) == pytest.approx(
        3 * total / weights[0] if first_done else total / weights[1], rel=1e-3
    )


def test_with_one_channel_a_source_has_one_train() -> None:
    fabric = FlowFabric(Engine(), ONE_QUEUE)
    assert fabric.train("a", 1) is fabric.train("a", 0) is fabric.train("a", 1)


def test_a_strict_channel_stops_the_others_which_have_no_event() -> None:
    journeys = [Journey(0, to(0), MIB, vc=1), Journey(1000, to(1), MIB, vc=0)]
    running = Traffic(journeys, Watched, Arbitration(256, (0, 1)))
    running.engine.run_before(2000, 100)
    strict_leaves_ps = 1000 + MIB * PS_PER_BYTE
    assert running.engine.next_ps() == strict_leaves_ps
    running.engine.run_before(None, 100)
    assert running.ends[1].tail_ps == 1000 + lone_ps(MIB)
    assert running.ends[0].tail_ps == pytest.approx(lone_ps(2 * MIB), abs=2)


def test_shares_of_an_edge_are_shares_of_wire_bytes() -> None:
    """64 B fill a flit of 256 B: beside long ones of 240 B a flit they get a half of the wire, and 64 B take two flits'
    time for it."""
    wire = edge(1, 0, 0, 1, flits(256, 16))
    ends = tails(Journey(0, route(wire), 24_000), Journey(0, route(wire)._replace(start_ps=1), 64))
    assert ends == [25_600 + 256, 1 + 512]


def test_an_edge_that_holds_nobody_back_joins_nobody() -> None:
    """Two of a slow source each on an edge of twice their rate: no division, one event each."""
    slow, wide = edge(1, 0, 0, 40), edge(2, 0, 0, 20)
    ways = [route(slow, wide), route(edge(3, 0, 0, 40), wide)]
    _, fabric, engine = travel([Journey(0, way, 100) for way in ways])
    assert (fabric.divisions, engine.events) == (0, 4)


def test_bandwidth_is_divided_once_in_a_picosecond() -> None:
    """Behind all of its starts, and once more behind all that leave together."""
    _, fabric, _ = travel([Journey(0, to(at), 1000) for at in range(8)])
    assert (fabric.divisions, fabric.touched) == (2, 8)
    running = Traffic([Journey(0, to(0), 1000), Journey(0, to(1), 1000)])
    start = running.fabric.start
    late = lambda: start(running.fabric.train("late"), to(2), 1000, None)  # noqa: E731
    running.engine.at(0, lambda: running.engine.at(0, late))
    running.engine.run_before(1, 100)
    assert (running.fabric.divisions, running.fabric.touched) == (1, 3), "one starts in an event that another makes"
    _, fabric, _ = travel([Journey(0, to(at), size) for at, size in enumerate((1000, 1000, 1000, 2000))])
    assert (fabric.divisions, fabric.touched) == (2, 4 + 1)


@pytest.mark.parametrize(("count", "nbytes"), [(6, 1), (300, 16), (1500, 2560)])
def test_a_division_ends_whatever_rounding_leaves(count: int, nbytes: int) -> None:
    """Of an edge with flits, for a byte of payload 256 on the wire; and of one with many flows."""
    wire = edge(1, 0, 0, 1, flits(256, 0))._replace(bandwidth_bps=64 * 10**9)
    ends = tails(*(Journey(0, route(wire), nbytes) for _ in range(count)))
    assert ends == [pytest.approx(count * wire.drain_ps(nbytes), abs=count)] * count


# --- trains ---------------------------------------------------------------------------------------------------


def test_in_flight_lets_ways_of_one_train_go_beside_each_other() -> None:
    apart = [route(edge(1, 0, 0, 10)), route(edge(2, 0, 0, 10))]
    journeys = [Journey(0, way, 100, source="a", in_flight=2) for way in (*apart, apart[0])]
    assert tails(*journeys) == [1000, 1000, 2000]
    assert tails(*(each._replace(in_flight=1) for each in journeys)) == [1000, 2000, 3000]


def test_what_is_not_there_yet_holds_back_what_follows() -> None:
    journeys = [Journey(0, to(0), 100, 9000, source="a"), Journey(0, to(0), 100, source="a")]
    assert tails(*journeys) == [9000 + lone_ps(100), 9000 + lone_ps(200)]


class Passed(NamedTuple):
    """By name, ``tails``; and (head, tail) of the fetch at the end of its way, and of what passes it on."""

    tails: dict[str, int]
    fetched: tuple[int, int]
    passed: tuple[int, int]


def passed_on(
    fetch: Route, onward: Route, nbytes: int, *others: tuple[str, Route], span_ps: int = 0, before: int = 0
) -> Passed:
    """What is fetched over one way and passed on over another, behind ``before`` bytes of its train. ``others``:
    transfers of as many bytes, each (its source, its way); those of source ``message`` follow it in its train."""
    engine = Engine()
    fabric = Watched(engine, ONE_QUEUE)
    found: dict[str, tuple[int, int]] = {}

    def note(name: str) -> Done:
        return lambda head_ps, tail_ps: found.update({name: (head_ps, tail_ps)})

    message = fabric.train("message")

    def start() -> None:
        if before:
            fabric.start(message, onward, before, note("before"))
        fed = fabric.start(message, onward, nbytes, note("passed"), is_fed=True)
        for source, way in others:
            fabric.start(fabric.train(source), way, nbytes, note(source))
        fabric.start(fabric.train("fetch"), fetch, nbytes, note("fetched"), None, span_ps, span_ps, fed)

    engine.at(0, start)
    engine.run_before(None, 1000)
    return Passed({name: tail for name, (_, tail) in found.items()}, found["fetched"], found["passed"])


FETCH, ONWARD = route(edge(1, 100, 1000, 20)), route(edge(2, 300, 0, 10), start_ps=1000)
"""A node with an overhead of 1000 ps is between them."""


@given(routes, routes, amounts, st.integers(0, 5000), st.integers(0, 10**6))
def test_what_is_passed_on_alone_takes_both_heads_and_the_longest_drain(
    fetch: Route, onward: Route, nbytes: int, common_ps: int, span_ps: int
) -> None:
    """The overhead of the node between them counts once."""
    last = fetch.edges[-1]._replace(overhead_ps=common_ps)
    fetch = Route(fetch.start, fetch.start_ps, (*fetch.edges[:-1], last))
    fresh = [each._replace(src=each.src._replace(cube=7), dst=each.dst._replace(cube=8)) for each in onward.edges]
    onward = route(*fresh, start_ps=common_ps)
    drain_ps = max(span_ps, *(way.latency_ps(nbytes) - way.head_ps() for way in (fetch, onward)))
    head_ps = fetch.head_ps() + onward.head_ps() - common_ps
    assert passed_on(fetch, onward, nbytes, span_ps=span_ps).passed == (head_ps, head_ps + drain_ps)


def test_what_is_passed_on_ends_no_sooner_than_its_bytes_are_there() -> None:
    """Beside another fetch they come at half the rate, and so does a fetch of another way behind it in its train."""
    alone_ps = 100 + 1000 + 300 + 500 * 20
    assert passed_on(FETCH, ONWARD, 500).passed == (1400, alone_ps)
    found = passed_on(FETCH, ONWARD, 500, ("other", FETCH))
    assert found.passed == (1400, alone_ps + 500 * 20)
    assert found.passed[1] == found.fetched[1] + 300
    assert passed_on(FETCH, ONWARD, 500, ("other", ONWARD)).passed == (1400, alone_ps), "a half is enough for it"
    far = route(edge(1, 100_000, 1000, 20))
    found = passed_on(far, ONWARD, 500, ("other", far))
    assert found.passed == (101_300, 101_300 + 500 * 20 * 2), "the last byte left its source before the first one came"


def test_what_follows_waits_for_what_is_passed_on() -> None:
    """It is submitted when nothing of the bytes is there, and begins when the last of them leaves."""
    followed = passed_on(FETCH, ONWARD, 500, ("message", ONWARD))
    assert followed.passed[1] == 11_400
    assert followed.tails["message"] == 11_400 + 500 * 10
    late = passed_on(FETCH, ONWARD, 500, ("message", ONWARD), ("other", FETCH))
    assert (late.passed[1], late.tails["message"]) == (21_400, 21_400 + 500 * 10)
    behind = passed_on(FETCH, ONWARD, 500, before=3000)
    assert behind.tails["before"] == 1000 + 300 + 3000 * 10
    assert behind.passed == (31_300, 31_300 + 500 * 10), "its bytes are there"


# --- what a run sees -------------------------------------------------------------------------------------------


def test_a_planned_end_that_has_moved_is_no_event() -> None:
    """The first would have ended at its own time; nothing of the run has that time."""
    running = Traffic([Journey(0, to(0), 1000), Journey(500, to(1), 1000)])
    running.engine.run_before(501, 10)
    assert running.engine.next_ps() == 500 + 2 * (1000 - 500 // PS_PER_BYTE) * PS_PER_BYTE - 500 % PS_PER_BYTE * 2
    assert running.engine.last_local_ps() != lone_ps(1000)
    events = running.engine.events
    running.engine.run_before(None, 100)
    assert running.engine.events - events == 4, "one leaves and ends, a division, the other one ends"
    assert running.engine.now_ps == max(end.tail_ps for end in running.ends.values())


def test_a_fabric_refuses() -> None:
    fabric = FlowFabric(Engine(), Arbitration(256, (1, 1)))
    with pytest.raises(ValueError, match="a transfer of 0 bytes cannot be sent"):
        fabric.start(fabric.train("a"), to(0), 0, None)
    with pytest.raises(ValueError, match="channel 2 has no weight"):
        fabric.train("a", 2)
    with pytest.raises(ValueError, match="chunk_bytes is 0; must be at least 1 byte"):
        FlowFabric(Engine(), Arbitration(0, (1,)))
    with pytest.raises(ValueError, match="must contain a weight of 0 or more"):
        FlowFabric(Engine(), Arbitration(256, ()))


# --- why a transfer was late ----------------------------------------------------------------------------------


def with_history(journeys: list[Journey]) -> tuple[list[int], FlowFabric]:
    running = Traffic(journeys)
    running.fabric.history = []
    running.engine.run_before(None, 1000)
    return [running.ends[at].tail_ps for at in range(len(journeys))], running.fabric


def test_a_late_transfer_names_the_edges_and_the_others() -> None:
    """Of three that share an edge, one of which waits for its train, each is late by exactly what is named."""
    journeys = [Journey(0, to(0), 4000), Journey(100, to(1), 3000, source="a"), Journey(100, to(1), 100, source="a")]
    ends, fabric = with_history([*journeys, Journey(0, to(2, shared=False), 5000)])
    late = list(delayed(fabric.history or ()))
    assert [sum(share.delay_ps for share in each.shares) for each in late] == [
        end - each.start_ps - lone_ps(each.nbytes) for end, each in zip(ends, journeys, strict=False)
    ]
    assert {share.src for share in late[0].shares} == {SHARED.src}
    assert {share.others for share in late[0].shares} == {"cube0.router11 to cube1.router51"}
    assert late[2].shares[0].others == "earlier transfers of its source"


def test_nobody_is_late_alone() -> None:
    _, fabric = with_history([Journey(0, to(0), 1000), Journey(10**6, to(1), 1000)])
    assert list(delayed(fabric.history or ())) == []
