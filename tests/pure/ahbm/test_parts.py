"""A part of the cube mesh is one definition: a memory of a user's module, ``lab.scratch``, with sums by hand."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hardware import config, pair_bench

from sipsim.chips.ahbm.address import SPACES, PhysAddr
from sipsim.chips.ahbm.mesh import PARTS, CubeMeshGraph, Part, Site
from sipsim.chips.ahbm.tl.language import TL
from sipsim.chips.ahbm.tl.values import TensorHandle
from sipsim.config.schema import Resolved
from sipsim.core.dtypes import DTYPES
from sipsim.core.errors import ConfigError
from sipsim.core.registry import forget_modules
from sipsim.fabric.graph import Node, Route

COSTS = {
    "wire.ns_per_mm": 1,
    "cube.noc.router_pitch_mm": 2,
    "cube.noc.pe_distance_mm": 0.3,
    "cube.noc.ucie_distance_mm": 0.13,
    "sip.cube_gap_mm": 1.7,
    "pe_dma.overhead_ns": 3,
    "router.overhead_ns": 5,
    "ucie_port.fdi_to_fdi_ns": 14,
}


WITH_SCRATCH = {**COSTS, "parts": {"lab.scratch": {"KiB": 64, "access_ns": 40}}}


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Other tests have the spaces of this project alone."""
    yield
    for name in [each for each in sys.modules if each == "lab.scratch" or each.startswith("own_parts")]:
        del sys.modules[name]
    forget_modules()
    assert SPACES == ["tcm", "hbm", "sram"]


def text(route: Route) -> str:
    return " ".join(map(str, (route.start, *(edge.dst for edge in route.edges))))


@pytest.mark.parametrize(
    ("cube", "pe", "way", "latency_ps"),
    [
        # Wires 0.3 + 2 + 0.4 mm, nodes 3 + 2 * 5 + 19 ns, and 4800 B at 48 GB/s.
        (2, 1, "cube2.pe1 cube2.router1 cube2.router0 cube2.lab.scratch0", 2_700 + 32_000 + 100_000),
        # Wires 0.3 + 2 * 2 + 0.4 mm, nodes 3 + 3 * 5 + 19 ns.
        (2, 6, "cube2.pe6 cube2.router6 cube2.router7 cube2.router3 cube2.lab.scratch1", 4_700 + 37_000 + 100_000),
    ],
)
def test_a_part_has_its_own_places_and_costs(cube: int, pe: int, way: str, latency_ps: int) -> None:
    graph = CubeMeshGraph(config(WITH_SCRATCH))
    route = graph.route(Node("pe", cube, pe), graph.node_of(PhysAddr(0, cube, pe, "scratch", 64)))
    assert text(route) == way
    assert route.latency_ps(4800) == latency_ps


def test_from_another_cube_and_back() -> None:
    """Wires 0.3 + (1 + 4) * 2 + 2 * 0.13 + 1.7 + 0.4 = 12.66 mm; nodes PE 3, seven routers of 5, two ports of 7; from
    the part instead of the PE, its 19 ns come first and the PE's 3 last.
    """
    graph = CubeMeshGraph(config(WITH_SCRATCH))
    pe, memory = Node("pe", 0, 3), graph.memory_node(1, 5, "scratch")
    there, back = graph.route(pe, memory), graph.route(memory, pe)
    assert text(there) == (
        "cube0.pe3 cube0.router3 cube0.router7 cube0.ucieE "
        "cube1.ucieW cube1.router4 cube1.router5 cube1.router6 cube1.router7 cube1.router3 cube1.lab.scratch1"
    )
    assert there.head_ps() == back.head_ps() == 12_660 + 3_000 + 35_000 + 14_000 + 19_000
    assert (there.start_ps, back.start_ps) == (3_000, 19_000)
    assert {edge.bandwidth_bps for edge in back.edges[:1]} == {48 * 10**9}


@pytest.mark.ideal
def test_each_port_serves_in_turn_and_all_pes_see_the_same_bytes() -> None:
    """Three PEs store 48 B at a time: 0 and 1 by router 0, where they share an edge, and 5 by router 3. Then 5 loads.

    PE to port: wires 0.3 + 0.4 mm and 2 a router, nodes 3, 5 a router and 19 ns; the data drain in 1 ns, in 2 at half
    the rate; in the port 1 waits for 0. The acknowledgement takes the same way back, and 16 B drain in 0.333... ns,
    rounded up to a picosecond.
    """
    bench = pair_bench(WITH_SCRATCH)
    ends: dict[int, int] = {}
    seen: list[list[int]] = []

    def address(pe: int) -> int:
        return PhysAddr(0, 0, pe, "scratch", 64 * (pe % 4)).encode()

    def store(pe: int) -> Callable[[TL], None]:
        def body(tl: TL) -> None:
            tl.store(address(pe), TensorHandle(tl, np.full(12, pe, np.int32), DTYPES["i32"]))
            ends[pe] = bench.engine.now_ps
            if pe == 5:
                tl.store(address(5), tl.load(PhysAddr(0, 0, 5, "scratch", 0).encode(), 1, "i32"))
                seen.append(tl.load(address(1), 1, "i32").array.tolist())

        return body

    for pe in (0, 1, 5):
        bench.kernel(0, pe, store(pe))
    bench.run()
    way_ns = {0: 0.7 + 3 + 5 + 19, 1: 2.7 + 3 + 10 + 19, 5: 0.7 + 2 * 3 + 3 + 5 * 4 + 19}
    there_and_back_ps = {pe: round(2000 * ns) + (1_000 if pe == 5 else 2_000) + 334 for pe, ns in way_ns.items()}
    first_ps = round(1000 * way_ns[0]) + 2_000 + 40_000
    assert ends[0] == there_and_back_ps[0] + 40_000
    assert ends[1] == first_ps + 40_000 + round(1000 * way_ns[1]) + 334
    assert ends[5] == there_and_back_ps[5] + 40_000
    assert seen == [[0]], "5 has copied what 0 stored over what 1 stored"


def patched(patch: pytest.MonkeyPatch, change: Callable[[Any], None]) -> None:
    """Parts of the scratch memory that are made from now on are changed."""
    entry = PARTS._entries["lab.scratch"]

    def make(resolved: Resolved, params: Any) -> Part:
        made = entry.thing(resolved, params)
        change(made)
        return made

    made: Any = make
    made.Params = entry.thing.Params
    patch.setitem(PARTS._entries, "lab.scratch", entry._replace(thing=made))


def test_two_parts_of_one_space_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    CubeMeshGraph(config(WITH_SCRATCH))
    patched(monkeypatch, lambda made: setattr(made, "memory", made.memory._replace(space="sram")))
    with pytest.raises(ValueError, match=r"sram and lab\.scratch both serve memory space 'sram'; rename one"):
        CubeMeshGraph(config(WITH_SCRATCH))


@pytest.mark.parametrize("site", [Site(0, 24), Site(16, 0), Site(-1, 0), Site(0, -1)])
def test_a_part_at_a_router_that_does_not_exist_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    CubeMeshGraph(config(WITH_SCRATCH))
    patched(monkeypatch, lambda made: setattr(made, "site", lambda _node: site))
    graph = CubeMeshGraph(config(WITH_SCRATCH))
    where = rf"^cube0\.lab\.scratch0 is at router {site.router} of cube {site.cube}, which does not exist; a SIP has "
    with pytest.raises(ConfigError, match=where):
        graph.route(Node("pe", 0, 0), graph.memory_node(0, 0, "scratch"))


OWN = """
from sipsim.chips.ahbm.mesh import Memory, Part, part
from sipsim.config.schema import MemoryCost


@part({kind!r})
def made(_resolved, _params):
    cost = MemoryCost(overhead_ns=1, bandwidth_GBps=8, read_latency_ns=1, write_latency_ns=1)
    return Part(lambda: cost, lambda _to: 1, memory=Memory({space!r}, ("parts", {kind!r}), cost, lambda: 1024))
"""


@pytest.fixture
def own_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], None]:
    """Writes a module of a user, ``own_parts.NAME``, with a part of a kind and the memory space that it serves."""
    folder = tmp_path / "own_parts"
    folder.mkdir()
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, kind: str, space: str) -> None:
        monkeypatch.setitem(sys.modules, f"own_parts.{name}", ModuleType(""))
        monkeypatch.delitem(sys.modules, f"own_parts.{name}")
        (folder / f"{name}.py").write_text(OWN.format(kind=kind, space=space))

    monkeypatch.setitem(sys.modules, "own_parts", ModuleType(""))
    monkeypatch.delitem(sys.modules, "own_parts")
    return write


def test_more_spaces_than_codes_are_refused_by_key(own_part: Callable[[str, str, str], None]) -> None:
    """Addresses have one code besides those of the project."""
    own_part("first", "own_parts.first", "first")
    own_part("second", "own_parts.second", "second")
    with pytest.raises(ConfigError, match=r"^--set parts: parts\.own_parts\.second: memory space 'second': "):
        config({"parts": {"own_parts.first": {}, "own_parts.second": {}}})


def test_a_space_stays_as_long_as_the_module_that_defines_it(own_part: Callable[[str, str, str], None]) -> None:
    """The module's name need not be the node kind's."""
    own_part("first", "another_kind", "first")
    importlib.import_module("own_parts.first")
    CubeMeshGraph(config({"parts": {"another_kind": {}}}))
    forget_modules()
    assert SPACES == ["tcm", "hbm", "sram", "first"]
