"""The fabric with finite input buffers: the timing contract alone, credits, arbitration, head-of-line blocking."""

from typing import Any

import pytest
from buffered_traffic import DEEP, FarEnd, buffered, watched
from hypothesis import given
from hypothesis import strategies as st
from plain_fabric import Journey, alone, amounts, edge, flits, route, routes, travel

import sipsim.fabric.buffered.fabric
from sipsim.core.engine import Engine
from sipsim.core.errors import InvariantViolation
from sipsim.fabric.buffered.fabric import OTHERS, delayed_packets
from sipsim.fabric.buffered.ports import BufferedPacket, Buffers, Fifo, Output, cut
from sipsim.fabric.channels import Arbitration
from sipsim.fabric.graph import Edge, Node, Route
from sipsim.fabric.transport import EdgeUse

CHUNK = Arbitration(100, (1,))
"""Packets of 100 B, which take 100 ps on an edge of 1 ps a byte."""


def between(src: str | int, dst: str | int, wire_ps: int = 0, overhead_ps: int = 0, ps_per_byte: int = 1) -> Edge:
    """An edge between two nodes that are named."""
    return Edge(Node("router", 0, src), Node("router", 0, dst), wire_ps, overhead_ps, 10**12 // ps_per_byte)


def tails(journeys: list[Journey], depth: int, arbitration: Arbitration = CHUNK) -> list[int]:
    """When each has arrived."""
    return [end.tail_ps for end in travel(journeys, buffered(depth), arbitration)[0]]


# --- alone ----------------------------------------------------------------------------------------------------


@given(st.integers(1, 10**5), st.integers(0, 10**9), st.integers(100, 5000), st.integers(0, 10**9))
def test_parts_of_a_drain_add_up_and_are_longer_for_a_longer_one(nbytes: int, total: int, size: int, more: int) -> None:
    """And the last packet takes at least as long as its bytes of the whole, so that an end is told in time."""
    count = -(-nbytes // size)
    parts, longer = cut(total, nbytes, size), cut(total + more, nbytes, size)
    assert parts.first_ps + (count - 1) * parts.each_ps + max(count - parts.longer_from, 0) == total
    for packet in range(count):
        assert 0 <= parts.part_ps(packet) <= longer.part_ps(packet)
    assert parts.part_ps(count - 1) >= total * min(size, nbytes) // nbytes


@given(routes, amounts, st.integers(64, 3000), st.integers(0, 5000), st.integers(0, 10**6))
def test_alone_it_takes_the_timing_contract(path: Route, nbytes: int, chunk: int, delay_ps: int, span_ps: int) -> None:
    """Any chain of wires, with links and their framing, slow before fast and fast before slow; and a train that
    arrives over a link, longer or shorter than the slowest edge's drain."""
    arbitration = Arbitration(chunk, (1,))
    journey = Journey(7, path, nbytes, delay_ps)
    assert travel([journey], buffered(DEEP), arbitration)[0] == [alone(journey)]
    train = journey._replace(start_ps=10**7, span_ps=span_ps)
    head, tail = alone(train)[1:]
    assert path.latency_ps(nbytes) == tail - 10**7 - delay_ps
    drain_ps = tail - head
    [end] = travel([train], buffered(DEEP), arbitration)[0]
    assert end[1:] == (head - span_ps, head - span_ps + max(drain_ps, span_ps))


def test_a_packet_may_be_longer_than_a_chunk_and_not_shorter() -> None:
    path = route(edge(1, 10, 5, 1), edge(2, 20, 5, 3))
    journey = Journey(0, path, 1000)
    assert travel([journey], buffered(4, 400), CHUNK)[0] == [alone(journey)]
    with pytest.raises(ValueError, match="packet_bytes is 99, less than a chunk of 100 bytes"):
        Buffers(1, 99).check(100)
    with pytest.raises(ValueError, match="a buffer of 0 packets is too small; give at least 1"):
        Buffers(0, 100).check(100)


@pytest.mark.parametrize(
    ("depth", "rate"),
    [(1, 1), (2, 2), (3, 3), pytest.param(4, 4, id="as deep as the round trip"), pytest.param(9, 4, id="deeper")],
)
def test_credits_bound_the_bandwidth_below_a_depth(depth: int, rate: int) -> None:
    """A packet takes 100 ps, a credit's round trip 400 ps: 100 + 2 x 120 + 60. In it ``rate`` packets leave.

    Depth 4 is ``1 + (2 x wire + overhead) / d``, from which on nothing waits for credits.
    """
    path = route(edge(1, 120, 60, 1), edge(2, 70, 0, 1))
    packets = 12
    last_leaves_ps = (packets - 1) // rate * 400 + (packets - 1) % rate * 100
    assert tails([Journey(0, path, packets * 100)], depth) == [last_leaves_ps + 180 + 70 + 100]


# --- those that wait -------------------------------------------------------------------------------------------


def test_a_packet_that_waits_holds_back_those_behind_it_whatever_their_way() -> None:
    """Two flows that share their first edge alone: 800 B to a slow end, then 100 B elsewhere.

    The slow edge takes 1000 ps for each of eight packets. The other source's packet takes its turn behind the first of
    them, and so it waits in their buffer until that has left; it follows in 100 ps where bytes wait at their source.
    """
    shared = between("a", "b")
    slow, quick = between("b", "c", ps_per_byte=10), between("b", "d")
    flows = [Journey(0, route(shared, slow), 800), Journey(0, route(shared, quick), 100)]
    assert [end.tail_ps for end in travel(flows, arbitration=CHUNK)[0]] == [8000, 111], "flows: a tenth of the edge"
    for depth in (1, 2, 8):
        assert tails(flows, depth) == [8000 + 100, 1000 + 100]


def test_what_one_source_sends_follows_what_it_has_sent_before() -> None:
    """One transfer at a time, or two, unless they are of one route: in both fabrics."""
    shared = between("a", "b")
    slow, quick = between("b", "c", ps_per_byte=10), between("b", "d")
    ways = route(shared, slow), route(shared, quick)
    for in_flight, short_ps in ((1, 8000 + 100), (2, 1000 + 100)):
        flows = [
            Journey(0, path, nbytes, source="a", in_flight=in_flight)
            for path, nbytes in zip(ways, (800, 100), strict=True)
        ]
        assert tails(flows, 2)[1] == short_ps
        alike = [Journey(0, ways[1], nbytes, source="a", in_flight=in_flight) for nbytes in (800, 100)]
        assert tails(alike, 2) == [800, 900] == [end.tail_ps for end in travel(alike, arbitration=CHUNK)[0]]


@pytest.mark.parametrize(("depth", "before"), [(1, 1), (2, 2), (4, 4), (8, 5)])
def test_back_pressure_reaches_a_flow_from_another_source(depth: int, before: int) -> None:
    """A flow to a slow end, of 1000 ps a packet, fills the buffer of node c; one from another source comes at 450 ps.

    The first place that is free there is its (round robin), behind ``before`` packets: as many as there is room for, or
    those that have come by then.
    """
    first, on, slow = between("a", "b"), between("b", "c"), between("c", "d", ps_per_byte=10)
    side, away = between("x", "b"), between("c", "e")
    flows = [Journey(0, route(first, on, slow), 1000), Journey(450, route(side, on, away), 100)]
    assert tails(flows, depth)[1] == before * 1000 + 100


@pytest.mark.parametrize(
    ("weights", "ends"),
    [((1,), [31, 32]), ((1, 1), [31, 32]), ((3, 1), [21, 32]), ((1, 4), [32, 20]), ((1, 0), [32, 16])],
)
def test_an_edge_is_shared_by_weight_or_in_turns(weights: tuple[int, ...], ends: list[int]) -> None:
    """Sixteen packets each of two channels, from two inputs, over one edge, in packet times: with weights 3 to 1 the
    first has sent 16 when the other has sent 5. With one channel the inputs take turns."""
    flows = [Journey(0, route(between(src, "b", 1), between("b", "c")), 1600, vc=vc) for vc, src in enumerate("ax")]
    assert tails(flows, 2, Arbitration(100, weights)) == [1 + end * 100 for end in ends]


def test_replies_pass_requests_that_wait() -> None:
    """A reply from the same source as a request that waits, over the same edges, has buffers of its own."""
    engine = Engine()
    fabric = watched(engine, CHUNK, 1, 100)
    path, ends = route(between("a", "b"), between("b", "c", ps_per_byte=10)), {}

    def send(is_reply: bool, nbytes: int) -> None:
        train = fabric.train("a", is_reply=True) if is_reply else fabric.train("b")
        fabric.start(train, path, nbytes, lambda _head, tail: ends.update({is_reply: tail}))

    send(False, 1000)
    send(True, 100)
    engine.run_before(None, 1000)
    assert ends == {False: 11_000, True: 2000}, "after one packet of the request, in turn"


def test_what_passes_an_edge_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = edge(1, 500, 200, 1), edge(2, 900, 100, 4, flits(64, 6))
    both = route(near, far)
    for kept in (1, 4096):
        monkeypatch.setattr(sipsim.fabric.buffered.fabric, "_MAX_PATHS", kept)
        _, fabric, _ = travel(
            [Journey(0, both, 1000), Journey(0, both, 58), Journey(9, route(near), 10)], buffered(2), CHUNK
        )
        assert fabric.use() == {near: EdgeUse(3, 1068, 1068), far: EdgeUse(2, 18 * 64 + 64, far.drain_ps(1000) + 256)}


def test_a_late_transfer_names_the_edges_where_it_waited() -> None:
    shared, slow, quick = between("a", "b", 10), between("b", "c", 0, 30, 10), between("b", "d")
    engine = Engine()
    fabric = watched(engine, CHUNK, 2, 100)
    fabric.history = []
    for path, nbytes in ((route(shared, slow), 400), (route(shared, quick), 100), (route(shared, quick), 1)):
        fabric.start(fabric.train("a"), path, nbytes, None)
    engine.run_before(None, 1000)
    first, second, third = (each for each, _ in fabric.history)
    assert (first.end_ps, second.end_ps, third.end_ps) == (10 + 4000 + 30, 4010 + 100, 4110 + 1)
    late = list(delayed_packets(fabric.history))
    assert [(each.dst, each.nbytes, sum(part.delay_ps for part in each.shares)) for each in late] == [
        ("cube0.routerd", 100, 4110 - 110),
        ("cube0.routerd", 1, 4111 - 11),
    ]
    assert {part.others for each in late for part in each.shares} == {OTHERS}


def test_a_frame_waits_for_places_at_the_end_of_its_link() -> None:
    """Three frames of two packets of 100 ps; the far end has room for one and gives its places back 500 ps after its
    tail has come: a frame goes every 1000 + 200 + 500 ps. A long frame takes the whole buffer; with room for three
    frames none waits."""
    inside, link = between("a", "port"), between("port", "far", 1000)._replace(framing=flits(200, 0))
    path = route(inside, link)

    def tails_of(link_depth: int, *sizes: int) -> list[int]:
        engine, got = Engine(), []
        fabric = watched(engine, CHUNK, 4, 100, link_depth)
        end = FarEnd(engine, fabric, link, 500)

        def send(nbytes: int) -> None:
            def done(_head: int, tail: int) -> None:
                got.append(tail)
                end.arrived(0, min(-(-nbytes // 100), link_depth), tail)

            fabric.start(fabric.train("a"), path, nbytes, done)

        for nbytes in sizes:
            send(nbytes)
        engine.run_before(None, 1000)
        return got

    assert tails_of(6, 200, 200, 200) == [1200, 1400, 1600]
    assert tails_of(2, 200, 200, 200) == [1200, 1200 + 1700, 1200 + 3400]
    assert tails_of(2, 600, 200) == [1600, 1600 + 500 + 1200], "longer than the buffer"


# --- the witness finds what breaks ------------------------------------------------------------------------------


def _no_credits(self: Output, fifo: Fifo) -> bool:
    lane = fifo.queue[0].flow.path.steps[fifo.queue[0].hop].lane
    if lane is not None and not self.slots[lane]:
        self.slots[lane].append(0)
    return True


def _newest_first(self: Fifo) -> BufferedPacket:
    return self.queue.pop()


BROKEN: list[tuple[type, str, Any, str]] = [
    (Output, "_has_room", _no_credits, "credits and .* places in use do not add up"),
    (Fifo, "pop", _newest_first, "overtakes another one"),
]


@pytest.mark.parametrize(("where", "name", "wrong", "found"), BROKEN, ids=lambda value: str(value)[:20])
def test_a_broken_buffer_is_found(
    where: type, name: str, wrong: Any, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    depth = 1 if where is Output else 4
    path = route(between("a", "b"), between("b", "c", ps_per_byte=10))
    if where is Fifo:
        right = Fifo.pop
        wrong = lambda self: right(self) if self.upstream is None else _newest_first(self)  # noqa: E731
    monkeypatch.setattr(where, name, wrong)
    with pytest.raises(InvariantViolation, match=found):
        travel([Journey(0, path, 600)], buffered(depth), CHUNK)
