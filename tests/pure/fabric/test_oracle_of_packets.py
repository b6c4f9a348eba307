"""The packet oracle itself: the timing contract alone, shares, order, and no edge beyond its rate."""

from collections import defaultdict

import pytest
from packets import PACKET_BYTES, packet_ends_ps
from traffic import KINDS, WEIGHTS, System, classes, ends_on, graph, random_system, traffic
from water_filling import Offered

from sipsim.core.units import drain_ps
from sipsim.fabric.flows import FlowFabric
from sipsim.fabric.graph import Edge, Node, Route

ONE = (1,)
MIB = 2**20
PACKET_PS = drain_ps(PACKET_BYTES, 64 * 10**9)


def wire(name: int, gbps: float = 64, wire_ps: int = 250, overhead_ps: int = 1000) -> Edge:
    return Edge(Node("router", 0, name), Node("router", 1, name), wire_ps, overhead_ps, int(gbps * 10**9))


def way(*edges: Edge) -> Route:
    return Route(edges[0].src, 1000, edges)


SHARED = wire(0)


def over_shared(source: int, nbytes: int, channel: int = 0, start_ps: int = 0, *onward: Edge) -> Offered:
    """A transfer over an edge of its source's own, and then the shared one."""
    return Offered(source, channel, start_ps, nbytes, way(wire(10 + source), SHARED, *onward))


@pytest.mark.parametrize("nbytes", [1, 256, 257, 100_000])
@pytest.mark.parametrize(
    "rates", [(64,), (60, 60), (128, 12.5, 60, 64, 12.5), (12.5, 128, 60, 12.5, 128), (64, 60, 12.5, 60), (60, 128) * 3]
)
def test_a_transfer_alone_takes_the_timing_contract(rates, nbytes):
    route = way(*(wire(at, gbps, wire_ps=333 * at) for at, gbps in enumerate(rates)))
    assert packet_ends_ps([Offered(0, 0, 77, nbytes, route)], ONE) == [77 + route.latency_ps(nbytes)]


def test_a_transfer_alone_takes_the_timing_contract_across_all_cubes():
    route = graph().route(Node("pe", 0, 0), Node("pe", 15, 7))
    assert packet_ends_ps([Offered(0, 0, 0, 2**18, route)], ONE) == [route.latency_ps(2**18)]


@pytest.mark.parametrize("behind_ps", [0, 10_000])
@pytest.mark.parametrize("pieces", [1, 2**10])
def test_two_equal_senders_both_take_twice_the_time(pieces, behind_ps):
    """Also if one sends packets of 64 B."""
    nbytes = 2**16
    offered = [over_shared(0, nbytes), *[over_shared(1, nbytes // pieces, 0, behind_ps)] * pieces]
    first, *_, last = packet_ends_ps(offered, ONE)
    twice_ps = offered[0].route.head_ps() + 2 * drain_ps(nbytes, 64 * 10**9)
    assert abs(first - twice_ps) <= 2 * PACKET_PS + behind_ps
    assert abs(last - twice_ps) <= 2 * PACKET_PS + behind_ps


def test_a_source_holds_what_its_8_places_an_edge_do_not():
    """Its next transfer, which goes elsewhere, leaves behind the last byte of this one."""
    slow, own, elsewhere = wire(1, 12.5), wire(10), wire(2)
    offered = [Offered(0, 0, 0, 2**16, way(own, slow)), Offered(0, 0, 0, 256, way(own, elsewhere))]
    offered.append(Offered(0, 0, 0, 256, way(wire(3))))
    first, *others = packet_ends_ps(offered, ONE)
    ahead = [(first - end) // drain_ps(PACKET_BYTES, slow.bandwidth_bps) for end in others]
    assert ahead == [7, 7]


def test_senders_that_are_slower_than_an_edge_fill_it_together():
    offered = [Offered(at, 0, 0, 2**16, way(wire(10 + at, 12.5), SHARED)) for at in range(5)]
    alone_ps = offered[0].route.latency_ps(2**16)
    assert all(alone_ps <= end <= alone_ps + 4 * PACKET_PS for end in packet_ends_ps(offered, ONE))


def test_64_bytes_beside_8_MiB_wait_less_than_a_packet():
    small = [over_shared(at, 64, at % 2, at * 2_000_123) for at in range(1, 60)]
    ends = packet_ends_ps([over_shared(0, 8 * MIB), *small], (1, 1))
    alone_ps = small[0].route.latency_ps(64)
    assert all(0 <= end - each.start_ps - alone_ps < PACKET_PS for end, each in zip(ends[1:], small, strict=True))
    assert ends[0] > small[-1].start_ps


@pytest.mark.parametrize("first", [0, 1])
def test_channels_share_by_weight(first):
    """At 4:1 the heavy one has all its bytes when the other has a quarter."""
    offered = [over_shared(0, MIB, first), over_shared(1, MIB, 1 - first)]
    heavy, light = sorted(packet_ends_ps(offered, (4, 1)))
    head_ps, drain = offered[0].route.head_ps(), drain_ps(MIB, 64 * 10**9)
    assert abs(heavy - head_ps - drain * 5 // 4) <= PACKET_PS
    assert abs(light - head_ps - drain * 2) <= PACKET_PS


def test_a_strict_channel_goes_first_and_the_lower_before_the_higher():
    offered = [over_shared(0, MIB, 2), over_shared(1, MIB, 1), over_shared(2, MIB, 0)]
    head_ps, drain = offered[0].route.head_ps(), drain_ps(MIB, 64 * 10**9)
    ends = packet_ends_ps(offered, (1, 0, 0))
    order = [1, 2, 0]
    assert all(abs(ends[2 - vc] - head_ps - drain * (at + 1)) <= 2 * PACKET_PS for at, vc in enumerate(order))


@pytest.mark.parametrize("weights", [(1, 1), (4, 1), (1, 4)])
def test_a_queue_that_waits_for_places_keeps_the_slow_edge_behind_it_full(weights):
    slow = over_shared(0, 2**16, 0, 0, wire(1, 12.5))
    offered = [slow, *(over_shared(at, MIB, 1, 0, wire(2)) for at in (1, 2, 3))]
    late_ps = packet_ends_ps(offered, weights)[0] - slow.route.latency_ps(2**16)
    assert 0 <= late_ps <= 8 * PACKET_PS


@pytest.mark.parametrize("kind", KINDS)
def test_no_edge_carries_more_than_its_rate_and_no_transfer_passes_an_earlier_one(kind):
    """What begins and ends in an interval has drained in it over each of its edges."""
    offered = traffic(kind, 1, 60, 90)
    ends = packet_ends_ps(offered, WEIGHTS)
    on: dict[Edge, list[tuple[int, int, int]]] = defaultdict(list)
    last: dict[object, int] = defaultdict(int)
    for end_ps, each in zip(ends, offered, strict=True):
        assert end_ps >= each.start_ps + each.route.latency_ps(each.nbytes)
        for hop, edge in enumerate(each.route.edges):
            before, behind = each.route.edges[:hop], each.route.edges[hop:]
            begin_ps = each.start_ps + each.route._replace(edges=before).head_ps()
            on[edge].append((begin_ps, end_ps - sum(e.wire_ps + e.overhead_ps for e in behind), each.nbytes))
        key = each.source, each.channel, each.route
        assert last[key] + each.route.drain_ps(each.nbytes) <= end_ps + 1, "each end is rounded up"
        last[key] = end_ps
    for edge, passed in on.items():
        for begin, _, _ in passed:
            within = 0
            for _, end, nbytes in sorted((each for each in passed if each[0] >= begin), key=lambda each: each[1]):
                within += nbytes
                assert drain_ps(within, edge.bandwidth_bps) <= end - begin


def test_random_systems_end_and_are_made_alike_again():
    for seed in range(100):
        system = random_system(seed, 3)
        ends = packet_ends_ps(system.offered, system.weights)
        for end, each in zip(ends, system.offered, strict=True):
            assert end >= each.start_ps + each.route.latency_ps(each.nbytes)
        assert random_system(seed, 3) == system


def test_size_classes_tell_slowdown_and_wait():
    offered = [over_shared(at, nbytes) for at, nbytes in enumerate((256, 100, 257))]
    alone = [each.route.latency_ps(each.nbytes) for each in offered]
    found = classes([alone[0], 3 * alone[1], alone[2] + 5000], offered)
    assert list(found) == [256, 4096]
    assert found[256] == (2, 2.0, 3.0, alone[1] / 1000)
    assert (found[4096].transfers, found[4096].mean_wait_ns) == (1, 5.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("percent", "seeds"),
    [(30, 2), (60, 2), *(pytest.param(percent, 12, marks=pytest.mark.slow) for percent in (30, 60, 90))],
)
def test_flows_are_near_to_packets(kind, percent, seeds):
    """The mean of long ones within 6 %, of short ones the wait within 40 ns; on one shared edge or at one hot port the
    mean of every class within 2.5 %, where there are enough of it."""
    offered = [traffic(kind, seed, 120 if seeds == 2 else 400, percent) for seed in range(seeds)]
    flows = [end for each in offered for end in ends_on(FlowFabric, System(WEIGHTS, {}, each))]
    packets = [end for each in offered for end in packet_ends_ps(each, WEIGHTS)]
    every = [each for some in offered for each in some]
    found, wanted = classes(flows, every), classes(packets, every)
    for size, known in wanted.items():
        off = found[size].mean_slowdown / known.mean_slowdown - 1
        if size > 4096 or (kind in ("single", "hot") and known.transfers > 500):
            assert abs(off) <= (0.025 if kind in ("single", "hot") else 0.06), (size, off)
        else:
            assert abs(found[size].mean_wait_ns - known.mean_wait_ns) <= 40, size
