"""A part of the cube mesh is one definition: a part of this file, on routers of its own, with sums by hand."""

import pytest
from hardware import config

from sipsim.config.model import Node as Cost
from sipsim.noc.cube_mesh import CubeMeshGraph
from sipsim.noc.graph import Node, Route
from sipsim.noc.parts.base import PARTS, Part, Site
from sipsim.topology.address import PhysAddr

COSTS = {
    "wire.ns_per_mm": 1,
    "cube.noc.router_pitch_mm": 2,
    "cube.noc.pe_distance_mm": 0.3,
    "cube.noc.ucie_distance_mm": 0.13,
    "sip.cube_gap_mm": 1.7,
    "pe_dma.overhead_ns": 3,
    "router.overhead_ns": 5,
    "ucie_port.overhead_ns": 7,
}


class TwoPortSram(Part):
    """An SRAM a cube with two ports, on routers 0 and 3: PEs 0 to 3 use the first, the others the second."""

    space = "scratch"

    def cost(self) -> Cost:
        return Cost(overhead_ns=19, bandwidth_GBps=48)

    def wire_mm(self, to: str) -> float:
        return 0.4

    def site(self, node: Node) -> Site:
        return Site(node.cube, (0, 3)[int(node.place)])

    def place_of(self, pe: int) -> int:
        return pe // 4


@pytest.fixture(autouse=True)
def _with_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    PARTS.names()
    monkeypatch.setattr(PARTS, "_things", dict(PARTS._things))
    PARTS.register("scratch")(TwoPortSram)


def text(route: Route) -> str:
    return " ".join(map(str, (route.start, *(edge.dst for edge in route.edges))))


@pytest.mark.parametrize(
    ("cube", "pe", "way", "latency_ps"),
    [
        # Wires 0.3 + 2 + 0.4 mm, nodes 3 + 2 * 5 + 19 ns, and 4800 B at 48 GB/s.
        (2, 1, "cube2.pe1 cube2.router1 cube2.router0 cube2.scratch0", 2_700 + 32_000 + 100_000),
        # Wires 0.3 + 2 * 2 + 0.4 mm, nodes 3 + 3 * 5 + 19 ns.
        (2, 6, "cube2.pe6 cube2.router6 cube2.router7 cube2.router3 cube2.scratch1", 4_700 + 37_000 + 100_000),
    ],
)
def test_a_part_has_its_own_places_and_costs(cube: int, pe: int, way: str, latency_ps: int) -> None:
    graph = CubeMeshGraph(config(COSTS))
    route = graph.route(Node("pe", cube, pe), graph.node_of(PhysAddr(0, cube, pe, "scratch", 64)))
    assert text(route) == way
    assert route.latency_ps(4800) == latency_ps


def test_from_another_cube_and_back() -> None:
    """Wires 0.3 + (1 + 4) * 2 + 2 * 0.13 + 1.7 + 0.4 = 12.66 mm; nodes PE 3, seven routers of 5, two ports of 7; from
    the part instead of the PE, its 19 ns come first and the PE's 3 last.
    """
    graph = CubeMeshGraph(config(COSTS))
    pe, memory = Node("pe", 0, 3), graph.memory_node(1, 5, "scratch")
    there, back = graph.route(pe, memory), graph.route(memory, pe)
    assert text(there) == (
        "cube0.pe3 cube0.router3 cube0.router7 cube0.ucieE "
        "cube1.ucieW cube1.router4 cube1.router5 cube1.router6 cube1.router7 cube1.router3 cube1.scratch1"
    )
    assert there.head_ps() == back.head_ps() == 12_660 + 3_000 + 35_000 + 14_000 + 19_000
    assert (there.start_ps, back.start_ps) == (3_000, 19_000)
    assert {edge.bandwidth_bps for edge in back.edges[:1]} == {48 * 10**9}


def test_two_parts_of_one_space_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TwoPortSram, "space", "sram")
    with pytest.raises(ValueError, match="scratch and sram both serve memory space 'sram'"):
        CubeMeshGraph(config({}))
