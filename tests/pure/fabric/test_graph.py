"""The SIP as a graph: routes are chains, X before Y, with the configured costs, made on first use."""

from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hardware import ONE_SIP, Bench, WiredPlan, config
from hypothesis import given, settings
from hypothesis import strategies as st

from sipsim.chips.ahbm.address import PePlace, PhysAddr
from sipsim.chips.ahbm.mesh import CubeMeshGraph
from sipsim.chips.ahbm.plan import Plan
from sipsim.fabric.graph import PORTS, Edge, Node, Route, bottleneck, link_edge
from sipsim.fabric.links.kind import LINK_KINDS

FACING = {"E": "W", "W": "E", "N": "S", "S": "N"}
STEP = {(1, 0): "E", (-1, 0): "W", (0, -1): "N", (0, 1): "S"}
ODD_COSTS = {
    "wire.ns_per_mm": 1,
    "cube.noc.router_pitch_mm": 2,
    "cube.noc.pe_distance_mm": 0.3,
    "cube.noc.hbm_distance_mm": 0.7,
    "cube.noc.sram_distance_mm": 0.11,
    "cube.noc.ucie_distance_mm": 0.13,
    "sip.cube_gap_mm": 1.7,
    "sip.port_distance_mm": 1.9,
    "pe_dma.overhead_ns": 3,
    "router.overhead_ns": 5,
    "ucie_port.fdi_to_fdi_ns": 14,
    "io_port.overhead_ns": 11,
    "hbm.overhead_ns": 13,
    "sram.overhead_ns": 17,
    "pe_dma.bandwidth_GBps": 60,
    "router.bandwidth_GBps": 64,
    "ucie_port.bandwidth_GBps": 40,
    "io_port.bandwidth_GBps": 32,
    "hbm.bandwidth_GBps": 20,
    "sram.bandwidth_GBps": 50,
}
"""Every distance, overhead and bandwidth is another, so that none can be taken for its neighbour."""


def graph(settings_: dict[str, Any] | None = None) -> CubeMeshGraph:
    return CubeMeshGraph(config(settings_ or {}))


def nodes(route: Route) -> list[Node]:
    return [route.start, *(edge.dst for edge in route.edges)]


def text(route: Route) -> str:
    return " ".join(map(str, nodes(route)))


def ends(made: CubeMeshGraph, pes: int) -> list[Node]:
    """Every node that a transfer may start or end at."""
    cubes = range(made.n_cubes)
    return [
        *(Node(kind, cube, pe) for cube in cubes for kind in ("pe", "hbm") for pe in range(pes)),
        *(Node("sram", cube, 0) for cube in cubes),
        *(Node("io", -1, port) for port in PORTS),
    ]


# --- by hand --------------------------------------------------------------------------------------------------


def test_a_route_by_hand() -> None:
    """From PE 3 of cube 0 to the HBM of PE 4 of cube 5, one to the E and one to the S, in cubes of 4x2 routers."""
    route = graph().route(Node("pe", 0, 3), Node("hbm", 5, 4))
    assert text(route) == (
        "cube0.pe3 cube0.router3 cube0.router7 cube0.ucieE "
        "cube1.ucieW cube1.router4 cube1.router5 cube1.router6 cube1.ucieS "
        "cube5.ucieN cube5.router2 cube5.router1 cube5.router0 cube5.router4 cube5.hbm4"
    )


def test_its_latency_by_hand() -> None:
    """Wires 0.3 + (1 + 2 + 3) * 2 + 4 * 0.13 + 2 * 1.7 + 0.7 = 16.92 mm at 1 ns; nodes PE 3, nine routers of 5, four
    UCIe ports of 7, HBM 13, together 89 ns; and 4096 B at the 20 GB/s of the HBM's port, 204.8 ns.
    """
    route = graph(ODD_COSTS).route(Node("pe", 0, 3), Node("hbm", 5, 4))
    assert route.head_ps() == 16_920 + 89_000
    assert route.drain_ps(4096) == 204_800
    assert route.latency_ps(4096) == 16_920 + 89_000 + 204_800


@pytest.mark.ideal
def test_the_route_to_a_port_by_hand() -> None:
    """From PE 0 of the south-east cube to port E, in the middle of the E side, at cube 11.

    Wires 0.3 + (2 + 1) * 2 + 2 * 0.13 + 1.7 + 1.9 = 10.16 mm; nodes PE 3, five routers of 5, two UCIe ports of 7, IO
    port 11, together 53 ns; 100 B at its 32 GB/s take 3.125 ns.
    """
    route = graph(ODD_COSTS).route(Node("pe", 15, 0), Node("io", -1, "E"))
    assert text(route) == (
        "cube15.pe0 cube15.router0 cube15.router1 cube15.router2 cube15.ucieN "
        "cube11.ucieS cube11.router6 cube11.router7 io.E"
    )
    assert route.latency_ps(100) == 10_160 + 53_000 + 3_125


def test_inside_one_cube() -> None:
    """The SRAM is attached to router 0: 0.3 + 4 * 2 + 0.11 mm, nodes 3 + 5 * 5 + 17."""
    route = graph(ODD_COSTS).route(Node("pe", 2, 7), Node("sram", 2, 0))
    assert text(route) == "cube2.pe7 cube2.router7 cube2.router6 cube2.router5 cube2.router4 cube2.router0 cube2.sram0"
    assert route.latency_ps(1000) == 8_410 + 45_000 + 20_000


def test_links_add_framing() -> None:
    """66 B on an Ethernet wire for 16: 5.28 ns at 12.5 GB/s, and 500 ns."""
    link = LINK_KINDS.get("ethernet")(
        bandwidth_GBps=12.5,
        latency_ns=500,
        max_payload_bytes=1500,
        min_frame_bytes=0,
        preamble_bytes=8,
        header_bytes=14,
        stream_header_bytes=12,
        fcs_bytes=4,
        gap_bytes=12,
        forwarding="cut_through",
    )
    edge = link_edge("E", link.latency_ps, link.bandwidth_bps, link)
    assert (edge.wire_ps, edge.overhead_ps, edge.drain_ps(16), edge.wire_bytes(16)) == (500_000, 0, 5_280, 66)


def test_one_route_after_another() -> None:
    """The overhead of the middle node belongs to the second route."""
    made = graph(ODD_COSTS)
    first = made.route(Node("pe", 8, 0), Node("io", -1, "W"))
    second = made.route(Node("io", -1, "E"), Node("pe", 11, 0))
    joined = first.then(second)
    assert joined.head_ps() == first.head_ps() + second.head_ps()
    assert joined.drain_ps(100) == max(first.drain_ps(100), second.drain_ps(100))


@pytest.mark.parametrize(
    ("address", "node"),
    [
        (PhysAddr(0, 3, 2, "tcm", 9), Node("pe", 3, 2)),
        (PhysAddr(1, 3, 2, "hbm", 9), Node("hbm", 3, 2)),
        (PhysAddr(0, 3, 0, "sram", 9), Node("sram", 3, 0)),
    ],
)
def test_the_node_of_an_address(address: PhysAddr, node: Node) -> None:
    assert graph().node_of(address) == node


# --- any SIP --------------------------------------------------------------------------------------------------

meshes = st.fixed_dictionaries({"w": st.integers(1, 4), "h": st.integers(1, 4)})


@settings(max_examples=40)
@given(meshes, meshes, st.data())
def test_every_route_of_any_sip(cubes: dict[str, int], routers: dict[str, int], data: st.DataObject) -> None:
    """Every node is reached from every node by a chain of adjacent nodes, X before Y. Where the chain turns no corner
    among cubes, both ways cost the same.
    """
    pes = routers["w"] * routers["h"]
    ports = {port: data.draw(st.none() | st.integers(0, cubes["w"] * cubes["h"] - 1)) for port in PORTS}
    shape = {"sip.cube_mesh": cubes, "cube.noc.routers": routers, "cube.pes": pes, "sip.ports": ports}
    made = graph({**ODD_COSTS, **shape})
    everything = ends(made, pes)
    for _ in range(12):
        src, dst = data.draw(st.sampled_from(everything)), data.draw(st.sampled_from(everything))
        route = made.route(src, dst)
        assert (nodes(route)[0], nodes(route)[-1]) == (src, dst)
        assert all(a.dst == b.src for a, b in pairwise(route.edges))
        assert all(edge.src == route.start for edge in route.edges[:1])
        assert len(set(nodes(route))) == len(nodes(route))
        check_dimension_order(route, cubes["w"], routers["w"])
        check_adjacent(route, cubes["w"], routers["w"])
        if route.edges and not turns(route, cubes["w"]):
            assert made.route(dst, src).latency_ps(4096) == route.latency_ps(4096)


def check_dimension_order(route: Route, cubes_w: int, routers_w: int) -> None:
    path = [node for node in nodes(route) if node.kind == "router"]
    by_cube = list(dict.fromkeys(node.cube for node in path))
    assert x_before_y(by_cube, cubes_w)
    for cube in by_cube:
        assert x_before_y([int(node.place) for node in path if node.cube == cube], routers_w)


def turns(route: Route, cubes_w: int) -> bool:
    """Whether it moves among cubes in X and in Y: then its reverse route turns at the opposite corner."""
    cubes = [node.cube for node in nodes(route) if node.kind == "router"]
    return cubes[0] % cubes_w != cubes[-1] % cubes_w and cubes[0] // cubes_w != cubes[-1] // cubes_w


def x_before_y(places: list[int], width: int) -> bool:
    """Whether a walk over a grid makes single steps, never turns back, and never moves in X after it moved in Y."""
    moves = [(b % width - a % width, b // width - a // width) for a, b in pairwise(places)]
    kinds = list(dict.fromkeys(moves))
    return all(move in STEP for move in kinds) and [bool(dy) for _, dy in kinds] in ([], [False], [True], [False, True])


def check_adjacent(route: Route, cubes_w: int, routers_w: int) -> None:
    for edge in route.edges:
        a, b = edge.src, edge.dst
        if a.kind == b.kind == "ucie":
            assert FACING[str(a.place)] == b.place
            assert STEP[b.cube % cubes_w - a.cube % cubes_w, b.cube // cubes_w - a.cube // cubes_w] == a.place
        elif "io" not in (a.kind, b.kind):
            assert a.cube == b.cube
        if {a.kind, b.kind} in ({"pe", "router"}, {"hbm", "router"}):
            assert a.place == b.place


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [((4, 4), (11, 8, 2, 14)), ((3, 3), (5, 3, 1, 7)), ((1, 1), (0, 0, 0, 0)), ((2, 1), (1, 0, 1, 1))],
)
def test_ports_sit_in_the_middle_of_their_side(mesh: tuple[int, int], expected: tuple[int, ...]) -> None:
    """E, W, N, S."""
    made = graph({"sip.cube_mesh": {"w": mesh[0], "h": mesh[1]}})
    assert tuple(made.port_cube(port) for port in PORTS) == expected


def test_ports_sit_where_configured() -> None:
    """Cube 0 too, which is false in Python."""
    made = graph({"sip.ports.E": 0, "sip.ports.S": 9})
    assert [made.port_cube(port) for port in PORTS] == [0, 8, 2, 9]
    assert text(made.route(Node("io", -1, "E"), Node("pe", 0, 7))) == "io.E cube0.router7 cube0.pe7"


# --- when parts come to life ----------------------------------------------------------------------------------


def test_edges_and_routes_are_made_once_on_first_use() -> None:
    made = graph()
    assert not made._edges
    one = made.route(Node("pe", 0, 0), Node("pe", 0, 2))
    assert len(made._edges) == 4
    assert made.route(Node("pe", 0, 0), Node("pe", 0, 2)) is one
    other = made.route(Node("pe", 0, 1), Node("pe", 0, 2))
    assert other.edges[-1] is one.edges[-1]


def test_idle_cubes_cost_nothing() -> None:
    """A SIP of 16 cubes of 8 PEs, two of which communicate: two PEs, the edges between them, memory for the rings."""
    table = {0: {"E": 1}, 1: {"W": 0}}
    bench = Bench(WiredPlan(config({"system.sips.count": 1}), [PePlace(0, 0, 0), PePlace(0, 1, 0)], table))
    assert [pe.ipcq.place for pe in bench.sip.pes_in_use()] == [(0, 0, 0), (0, 1, 0)]
    assert not bench.sip.fabric.use()
    assert not bench.sip.memory._banks
    bench.kernel(0, 0, lambda tl: tl.send("E", src_addr=0, shape=8, dtype="f32"))
    bench.kernel(1, 0, lambda tl: tl.recv("W", 8, "f32"))
    bench.run()
    assert len(bench.sip.pes_in_use()) == 2
    ports = {(edge.src.cube, edge.memory) for edge in bench.sip.fabric.use() if edge.memory}
    assert ports == {(0, "read port"), (1, "read port"), (1, "write port")}
    assert len([edge for edge in bench.sip.fabric.use() if not edge.memory]) == 10
    assert {node.cube for edge in bench.sip.fabric.use() for node in (edge.src, edge.dst)} == {0, 1}
    assert len(bench.sip.memory._banks) == 2


def test_a_pe_is_made_when_it_first_runs() -> None:
    plan = WiredPlan(config(ONE_SIP), [], {})
    bench = Bench(plan)
    assert bench.sip.pes_in_use() == []
    bench.kernel(1, 5, lambda tl: None)
    bench.run()
    (made,) = bench.sip.pes_in_use()
    assert (made.cube, made.pe) == (1, 5)
    assert bench.sip.pe(1, 5) is made


def test_the_plan_of_the_built_in_collective_uses_one_pe_a_cube() -> None:
    assert {(place.cube, place.pe) for place in Plan(config({})).entries} == {(cube, 0) for cube in range(16)}


class Storing(NamedTuple):
    """A framing that adds no bytes, with a fixed store behind it."""

    held_ps: int

    def wire_bytes(self, payload_bytes: int) -> int:
        return payload_bytes

    def stored_ps(self, payload_bytes: int) -> int:
        return self.held_ps


@pytest.mark.parametrize(
    ("held_ps", "hops", "drain_ps", "stored"),
    [
        # The link needs 100 ns, the edge behind it 60 ns: it ends first as long as the head is held back less than 40.
        (0, (0,), 100_000, ()),
        (39_000, (0,), 100_000, ()),
        (40_000, (0, 1), 100_000, ()),
        (70_000, (1,), 60_000, ((0, 70_000),)),
        # The tail is there after 100 ns, and no head is later.
        (300_000, (1,), 60_000, ((0, 100_000),)),
    ],
)
def test_what_is_stored_adds_to_what_drains_after_it(
    held_ps: int, hops: tuple[int, ...], drain_ps: int, stored: tuple[tuple[int, int], ...]
) -> None:
    """600 B over a link of 6 GB/s, then an edge of 10."""
    link = link_edge("E", 500_000, 6 * 10**9, Storing(held_ps))
    behind = Edge(Node("router", 0, 0), Node("router", 0, 1), 0, 0, 10 * 10**9)
    assert bottleneck([link, behind], 600) == (hops, drain_ps, stored)
