"""Trees of NoC multicasts: whom they reach, by hand and beside unicasts, and that a link carries a packet once."""

import pytest

from sipsim.chips.api.chip import CHIPS
from sipsim.chips.config import load
from sipsim.chips.tensix.chip import TensixKind
from sipsim.chips.tensix.noc import Core, FloorPlan, NocGraph
from sipsim.config.load import parse_set
from sipsim.core.engine import Engine
from sipsim.fabric.channels import ONE_QUEUE
from sipsim.fabric.flows import FlowFabric

KIND = CHIPS.get("wormhole")
assert isinstance(KIND, TensixKind)
PARAMS = KIND.params(load(overrides=[parse_set("system.chip=wormhole")]))
GRAPH, PLAN = NocGraph(PARAMS), FloorPlan(PARAMS)
RECTANGLES = [((2, 2), (4, 4)), ((4, 5), (6, 7)), ((1, 1), (9, 11)), ((3, 3), (3, 3)), ((1, 7), (9, 7))]
SOURCES = [Core(1, 1), Core(3, 3), Core(9, 11), Core(9, 0)]


def tiles(first: tuple[int, int], last: tuple[int, int], src: Core) -> tuple[Core, ...]:
    return tuple(core for core in PLAN.receivers(Core(*first), Core(*last)) if core != src)


@pytest.mark.parametrize("noc", [0, 1])
@pytest.mark.parametrize("src", SOURCES, ids=str)
@pytest.mark.parametrize(("first", "last"), RECTANGLES, ids=str)
def test_a_tree_reaches_each_tile_over_each_link_once(
    noc: int, src: Core, first: tuple[int, int], last: tuple[int, int]
) -> None:
    """Each edge begins where an earlier one ends, and no two are equal: the path of each tile is the tree's own."""
    cores = tiles(first, last, src)
    if not cores:
        return
    tree = GRAPH.tree(noc, src, cores)
    edges = tree.route.edges
    assert len(set(edges)) == len(edges)
    came = {edges[0].src: 0}
    for edge in edges:
        assert edge.dst not in came, "a tree has one path to each node"
        came[edge.dst] = came[edge.src] + edge.wire_ps
    assert set(tree.heads_ps) == set(cores)
    ends = {edge.dst: core for core in cores for edge in GRAPH.between(noc, src, core).edges[-1:]}
    assert {core: came[node] for node, core in ends.items()} == tree.heads_ps
    leaves = {node for node in came if not any(edge.src == node for edge in edges)}
    assert leaves == set(ends), "nothing goes beyond the last tile"


@pytest.mark.parametrize("noc", [0, 1])
def test_the_way_to_a_tile_is_no_shorter_than_a_unicast(noc: int) -> None:
    cores = tiles((2, 2), (4, 4), Core(1, 1))
    tree = GRAPH.tree(noc, Core(1, 1), cores)
    for core in cores:
        assert tree.heads_ps[core] >= GRAPH.between(noc, Core(1, 1), core).head_ps()


def test_a_tree_by_hand() -> None:
    """From 1-1 on NoC 0: right to column 2, down it, and right along rows 2 and 3."""
    tree = GRAPH.tree(0, Core(1, 1), tiles((2, 2), (3, 3), Core(1, 1)))
    hop, niu = PARAMS.cycles_ps(PARAMS.noc.hop_cycles), PARAMS.cycles_ps(PARAMS.noc.niu_cycles)
    hops = {Core(2, 2): 2, Core(3, 2): 3, Core(2, 3): 3, Core(3, 3): 4}
    assert tree.heads_ps == {core: 2 * niu + count * hop for core, count in hops.items()}
    assert len(tree.route.edges) == 1 + 1 + 2 + 2 + 4


def test_multicasts_share_the_links_that_both_use() -> None:
    """Two multicasts over one row take about twice the time of two over different rows, and of one."""
    rows = {"same": (3, 3), "other": (3, 5), "one": (3,)}

    def time_of(sources: tuple[int, ...]) -> int:
        engine, ends = Engine(), list[int]()
        fabric = FlowFabric(engine, ONE_QUEUE)
        for number, y in enumerate(sources):
            tree = GRAPH.tree(0, Core(1, y), tiles((2, y), (4, y), Core(1, y)))
            fabric.start(fabric.train(number), tree.route, 2**14, None, lambda _head, tail: ends.append(tail))
        engine.run_before(None, 100)
        return max(ends)

    took = {name: time_of(sources) for name, sources in rows.items()}
    assert took["other"] == took["one"]
    assert took["same"] > 1.8 * took["one"] - PARAMS.cycles_ps(100)
