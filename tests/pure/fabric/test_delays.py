"""What transfers lose where they meet: by hand, and for random traffic down to the picosecond."""

import random

from plain_fabric import Journey, edge, route, travel

from sipsim.fabric.graph import Edge, Node, Route
from sipsim.fabric.noc.arbitration import Arbitration
from sipsim.fabric.noc.delays import Delayed, delayed
from sipsim.fabric.noc.fabric import Fabric
from sipsim.fabric.noc.transfer import Transfer


class Remembering(Fabric):
    """A fabric that keeps what has started."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.history = []


def delays(journeys: list[Journey], arbitration: Arbitration | None = None) -> list[Delayed]:
    fabric = travel(journeys, Remembering, *([] if arbitration is None else [arbitration]))[1]
    return list(delayed(fabric.history or []))


def between(src: int, dst: int, ps_per_byte: int = 1) -> Edge:
    """A wire of 100 ps between two routers of one cube."""
    return Edge(Node("router", 0, src), Node("router", 0, dst), 100, 50, 10**12 // ps_per_byte)


FIRST, OTHER, JOINT, SLOW = between(0, 2), between(1, 2), between(2, 3), between(3, 4, 3)


def test_alone_nothing_is_lost() -> None:
    assert delays([Journey(0, route(FIRST, JOINT, SLOW), 1000)]) == []


def test_the_second_waits_for_the_first_on_the_edge_that_both_use() -> None:
    found = delays([Journey(0, route(FIRST, JOINT), 1000), Journey(0, route(OTHER, JOINT), 400)])
    assert [(each.src, each.now_ps) for each in found] == [("cube0.router1", 0)]
    assert found[0].shares == ((JOINT.src, JOINT.dst, "cube0.router0 to cube0.router3", 1000),)
    assert found[0].end_ps == 1000 + 400 + 2 * 150


def test_a_late_head_is_late_on_a_slower_edge_too() -> None:
    found = delays([Journey(0, route(FIRST, JOINT), 1000), Journey(0, route(OTHER, JOINT, SLOW), 1000)])
    assert [(share.src, share.delay_ps) for share in found[0].shares] == [(JOINT.src, 1000)]
    found = delays([Journey(0, route(SLOW), 1000), Journey(0, route(JOINT, SLOW), 1000)])
    assert [(share.src, share.delay_ps) for share in found[0].shares] == [(SLOW.src, SLOW.drain_ps(1000) - 150)]


def test_a_slower_edge_hides_what_dividing_a_faster_one_costs() -> None:
    """Half of the joint edge is 2 ps a byte, and the slow one takes 3."""
    both = [Journey(0, route(JOINT, SLOW), 4096, vc=0), Journey(0, route(FIRST, JOINT), 4096, vc=1)]
    found = {each.dst: sum(share.delay_ps for share in each.shares) for each in delays(both, Arbitration(256, (1, 1)))}
    assert found.get("cube0.router4", 0) <= 256
    assert found["cube0.router3"] >= 4096 - 256


def test_two_channels_that_divide_an_edge_both_lose() -> None:
    both = [Journey(0, route(JOINT), 4096, vc=0), Journey(0, route(JOINT), 4096, vc=1)]
    found = delays(both, Arbitration(256, (1, 1)))
    lost = sorted(share.delay_ps for each in found for share in each.shares)
    assert len(lost) == 2
    assert 4096 - 256 <= lost[0] <= lost[1] == 4096


def test_random_traffic_loses_what_its_shares_say() -> None:
    """End less the end alone, for every transfer of 40 random workloads, one queue and two channels."""
    for seed in range(40):
        draw = random.Random(seed)
        edges = [edge(name, draw.choice((0, 70)), draw.choice((0, 30)), draw.choice((1, 2, 5))) for name in range(6)]
        ways = [_way(draw, edges) for _ in range(5)]
        journeys = [
            Journey(draw.randrange(3000), draw.choice(ways), draw.choice((1, 64, 700, 4000)), vc=draw.randrange(2))
            for _ in range(30)
        ]
        fabric = travel(journeys, Remembering, Arbitration(256, draw.choice(((1, 1), (3, 1)))))[1]
        history = fabric.history or []
        lost = {(each.now_ps, each.src, each.dst, each.nbytes, each.end_ps): each for each in delayed(history)}
        assert lost, seed
        for each in history:
            key = each.now_ps, str(each.route.start), str(each.route.edges[-1].dst), each.nbytes
            end_ps = each.transfer.end_ps()
            assert end_ps is not None
            late_ps = end_ps - _alone_ps(each.transfer)
            found = lost.get((*key, end_ps))
            assert sum(share.delay_ps for share in found.shares) == late_ps if found else late_ps == 0, (seed, key)


def _way(draw: random.Random, edges: list[Edge]) -> Route:
    return route(*sorted(draw.sample(edges, draw.randint(1, 4)), key=edges.index))


def _alone_ps(transfer: Transfer) -> int:
    head, tail = transfer.source_head_ps, transfer.source_tail_ps
    for leg in transfer.legs:
        tail = max(tail, head + leg.drain_ps) + leg.onward_ps
        head += leg.onward_ps
    return tail
