"""Bounds of collectives from their links: by hand for topologies whose bound is known, and below every algorithm."""

from fractions import Fraction

import pytest
from bench._lower_bounds import bandwidth_bound, cuts
from link_elements import link_elements
from schedules import MODULES, group_of, task_of

from sipsim.collectives.group import Group
from sipsim.fabric.links.ucie import Ucie

N = 2**9 * 3**2 * 5 * 7
"""Bytes of a unit, of elements of one byte; links carry a byte a nanosecond."""

GROUPS = {
    "ring 2": lambda: group_of("ring_1d", (2, 1)),
    "ring 7": lambda: group_of("ring_1d", (7, 1)),
    "ring 8": lambda: group_of("ring_1d", (8, 1)),
    "line 5": lambda: group_of("mesh_2d_no_wrap", (5, 1)),
    "torus 2x2": lambda: group_of("torus_2d", (2, 2)),
    "torus 4x2": lambda: group_of("torus_2d", (4, 2)),
    "torus 4x4": lambda: group_of("torus_2d", (4, 4)),
    "mesh 3x3": lambda: group_of("mesh_2d_no_wrap", (3, 3)),
    "mesh 4x2": lambda: group_of("mesh_2d_no_wrap", (4, 2)),
    "half of a ring": lambda: group_of("ring_1d", (8, 1), (0, 1, 2, 3)),
    "one of a ring": lambda: group_of("ring_1d", (8, 1), (3,)),
    "diagonal of a mesh": lambda: group_of("mesh_2d_no_wrap", (3, 3), (0, 4, 8)),
}
BOUNDS = [
    ("ring 2", "all_reduce", Fraction(1, 2)),
    ("ring 7", "all_reduce", Fraction(6, 7)),
    ("line 5", "all_reduce", 1),
    ("torus 4x4", "all_reduce", Fraction(15, 32)),
    ("mesh 3x3", "all_reduce", Fraction(2, 3)),
    ("mesh 4x2", "all_reduce", Fraction(7, 10)),
    ("half of a ring", "all_reduce", Fraction(1, 2)),
    ("diagonal of a mesh", "all_reduce", Fraction(1, 2)),
    ("one of a ring", "all_reduce", 0),
    ("ring 8", "all_gather", Fraction(7, 2)),
    ("torus 4x4", "reduce_scatter", Fraction(15, 4)),
    ("line 5", "reduce_scatter", 4),
    ("ring 7", "broadcast", Fraction(1, 2)),
    ("torus 4x4", "broadcast", Fraction(1, 4)),
    ("mesh 3x3", "reduce", Fraction(1, 2)),
    ("ring 8", "gather", Fraction(7, 2)),
    ("mesh 3x3", "scatter", 4),
    ("ring 8", "all_to_all", 8),
    ("line 5", "all_to_all", 6),
    ("torus 4x4", "all_to_all", 8),
]


@pytest.mark.parametrize(("where", "collective", "bound"), BOUNDS)
def test_bounds_by_hand(where: str, collective: str, bound: Fraction | int) -> None:
    found = bandwidth_bound(task_of(collective, GROUPS[where](), N, itemsize=1), 4096)
    assert found.ps == bound * N * 1000, found


def busiest(name: str, collective: str, group: Group) -> tuple[Fraction, Fraction]:
    """The time of an algorithm's busiest link, and the bound, in ns."""
    task = task_of(collective, group, N, itemsize=1)
    counted = link_elements(task, MODULES[name].schedule(task), MODULES[name].wiring(group))
    return Fraction(max(counted.values(), default=0)), bandwidth_bound(task, 4096).ps / 1000


@pytest.mark.parametrize("where", GROUPS)
def test_no_algorithm_is_below_the_bound(where: str) -> None:
    group = GROUPS[where]()
    for name, module in MODULES.items():
        for collective in module.COLLECTIVES:
            time_ns, bound_ns = busiest(name, collective, group)
            assert time_ns >= bound_ns, (name, collective)


REACHED = [
    (
        "bidirectional_ring",
        "ring 8",
        ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all"),
    ),
    ("multidim_ring", "torus 2x2", ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")),
    ("multidim_ring", "torus 4x2", ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")),
    ("multidim_ring", "torus 4x4", ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")),
    ("multidim_ring", "mesh 3x3", ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")),
    ("multidim_ring", "mesh 4x2", ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")),
    ("line", "line 5", ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter")),
    ("direct", "line 5", ("all_to_all",)),
    ("direct", "ring 7", ("all_to_all",)),
]


@pytest.mark.parametrize(("name", "where", "collectives"), REACHED)
def test_algorithms_that_reach_the_bound(name: str, where: str, collectives: tuple[str, ...]) -> None:
    group = GROUPS[where]()
    for collective in collectives:
        time_ns, bound_ns = busiest(name, collective, group)
        assert bound_ns <= time_ns <= bound_ns + 8 * group.size, collective


def test_the_bound_counts_framing_and_names_its_links() -> None:
    """Flits of 256 B with 20 of overhead: the best message fills its flits."""
    group = group_of("mesh_2d_no_wrap", (3, 1))
    flits = Ucie(
        bandwidth_GBps=64, fdi_to_fdi_ns=2, reach_mm=1, ns_per_mm=1, retimers=0, retimer_ns=0,
        flit_bytes=256, flit_overhead_bytes=20,
    )  # fmt: skip
    group.system.link_kinds = [flits] * len(group.system.links)
    found = bandwidth_bound(task_of("all_reduce", group, N, itemsize=1), 4096)
    assert found.ps == Fraction(N * 256 * 1000, 64 * 236)
    assert (found.where, found.nbytes) == ("links out of SIP 0", N)


def test_every_cut_is_a_part_of_the_system() -> None:
    system = GROUPS["mesh 3x3"]().system
    named = dict(cuts(system))
    assert all(0 < len(sips) < 9 for sips in named.values())
    assert named["SIPs in columns 0 to 1"] == {0, 1, 3, 4, 6, 7}
    assert named["the 3 SIPs around SIP 2"] == {1, 2, 5}
