"""Algorithm modules: required exports, the kernel's arguments, and the ``neighbors`` hook."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hardware import TOPOLOGIES_OF_AHBM, config, system_of
from schedules import group_of, task_of

from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.chips.ahbm.collectives.neighbours import TABLES
from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.ahbm.system import AhbmSystem
from sipsim.collectives.schedule import VECTOR
from sipsim.collectives.semantics import Collective, Task, every_rank
from sipsim.config.schema import AlgorithmEntry
from sipsim.core.errors import ConfigError

GOOD = """
TOPO_NAME_TO_KIND = {"ring_1d": 7, "custom": 3}
def kernel(t_ptr, tl): pass
def kernel_args(world_size, n_elem): return world_size, n_elem
"""
PLAIN = "\n".join(GOOD.split("\n")[2:])
BUILT_IN = {"E": 6, "W": 4}
INTERCUBE = "sipsim.chips.ahbm.collectives.algorithms.intercube_allreduce"
Load = Callable[..., Algorithm]


@pytest.fixture
def load(here: Path) -> Iterator[Load]:
    """Write a module, load it as an algorithm by its path; and remove it afterwards."""
    before = set(sys.modules)

    def loaded(source: str, module: str = "mine.py", topology: str = "none", **entry: Any) -> Algorithm:
        (here / "mine.py").write_text(source)
        return Algorithm("mine", AlgorithmEntry(module=module, topology=topology, **entry))

    yield loaded
    for name in set(sys.modules) - before:
        del sys.modules[name]


def system() -> AhbmSystem:
    return system_of(config({}))


def neighbours(algorithm: Algorithm, size: int = 32) -> dict[str, int]:
    """Those of rank 5."""
    return algorithm.neighbour_table(system(), size)[5]


# --- loading --------------------------------------------------------------------------------------------------


def test_a_file_is_a_module(load: Load) -> None:
    algorithm = load(GOOD)
    assert algorithm.kernel.__name__ == "kernel"
    assert algorithm.topology_kind("ring_1d") == 7
    assert algorithm.reference is None


def test_a_file_by_its_absolute_path(load: Load, here: Path) -> None:
    assert load(GOOD, str(here / "mine.py")).topology_kind("custom") == 3


def test_two_files_of_one_stem_stay_apart(here: Path) -> None:
    """Each is loaded under its algorithm's name."""
    loaded = []
    for folder, kind in (("a", 1), ("b", 2)):
        (here / folder).mkdir()
        (here / folder / "same.py").write_text(GOOD.replace("7", str(kind)))
        loaded.append(Algorithm(folder, AlgorithmEntry(module=f"{folder}/same.py", topology="none")))
        del sys.modules[f"_ahbm_algorithm_{folder}"]
    assert [a.topology_kind("ring_1d") for a in loaded] == [1, 2]


def test_a_module_may_use_its_own_classes(load: Load) -> None:
    """``dataclasses`` look their module up."""
    source = "import dataclasses\n@dataclasses.dataclass\nclass Plan:\n    n: int = 3\n" + GOOD
    assert load(source).topology_kind("ring_1d") == 7


def test_every_sip_has_a_module_of_its_own(load: Load) -> None:
    """State that a kernel keeps in its module is not shared between SIPs."""
    algorithm = load(GOOD + "seen = []\ndef kernel(t_ptr, tl): seen.append(tl); return len(seen)\n")
    one, two = algorithm.fresh_instance(0), algorithm.fresh_instance(1)
    assert [one.kernel(None, 1), one.kernel(None, 2), two.kernel(None, 3)] == [1, 2, 1]
    assert two.topology_kind("ring_1d") == 7


def test_the_built_in_algorithm() -> None:
    resolved = config({})
    algorithm = Algorithm("intercube_allreduce", resolved.ccl.algorithms["intercube_allreduce"])
    assert algorithm.reference is not None
    assert algorithm.kernel_args(system_of(resolved), 32, 1, 128) == (128, 4, 4, 2, 1, 0, 2, 1)


# --- the contract: what does not keep it is in inproc/transcripts/algorithms.txt -------------------------------


@pytest.mark.ideal
def test_on_a_topology_that_it_does_not_run_on_it_is_not_wired_and_its_calls_are_refused() -> None:
    """Collectives over groups run there all the same."""
    settings = {
        "system.sips.topology": "custom",
        "system.sips.custom_links": [{"a": 0, "a_port": "E", "b": 1, "b_port": "W"}],
    }
    plan = Plan(config(settings))
    assert plan.entries == {}
    with pytest.raises(ConfigError, match="algorithm intercube_allreduce does not run on it; allowed: mesh_2d_no_wr"):
        plan.world.kernel_args(plan.system, 0, 8)


ROOT = "\ndef root_cube(system): return system.n_cubes - 1\n"


@pytest.mark.parametrize(
    ("source", "root"), [(GOOD, None), (GOOD, 0), (GOOD, 15), (GOOD + ROOT, None), (GOOD + ROOT, 15)]
)
def test_a_root_cube_that_is_allowed(load: Load, source: str, root: int | None) -> None:
    load(source, root_cube=root).check_root_cube(system())


# --- what the kernel gets -------------------------------------------------------------------------------------


def test_with_topologies_the_kernel_gets_the_grid_of_sips(load: Load) -> None:
    """ADR-0032 D5: n_sips to the hook; SIP, code, width, height appended."""
    assert load(GOOD).kernel_args(system(), 32, 1, 9) == (2, 9, 1, 7, 2, 1)


@pytest.mark.parametrize("topology", TOPOLOGIES_OF_AHBM)
def test_without_topologies_the_kernel_gets_what_the_hook_returns(load: Load, topology: str) -> None:
    """ADR-0023 D11: the wiring's world size to the hook, nothing appended, and it runs on any topology of SIPs."""
    settings = {"system.sips.topology": topology, "system.sips.count": 4}
    if topology == "custom":
        cables = [{"a": i, "a_port": "E", "b": i + 1, "b_port": "W"} for i in range(3)]
        settings["system.sips.custom_links"] = cables
    assert load(PLAIN).kernel_args(system_of(config(settings)), 7, 1, 9) == (7, 9)


@pytest.mark.parametrize(
    ("signature", "passed"),
    [
        ("(world_size, n_elem)", "(2, 9)"),
        ("(world_size, n_elem, system)", "(2, 9, 'AhbmSystem')"),
        ("(world_size, n_elem, system=None)", "(2, 9, 'AhbmSystem')"),
        ("(world_size, n_elem, *, extra=1)", "(2, 9)"),
    ],
)
def test_a_hook_with_a_third_parameter_gets_the_system(load: Load, signature: str, passed: str) -> None:
    names = [name.split("=")[0] for name in signature.strip("()").split("*")[0].split(", ") if name]
    listed = ", ".join("type(system).__name__" if name == "system" else name for name in names)
    hook = f"def kernel_args{signature}: return ({listed})\n"
    assert str(load(PLAIN + hook).kernel_args(system(), 2, 0, 9)) == passed
    assert str(load(GOOD + hook).kernel_args(system(), 32, 0, 9)) == passed[:-1] + ", 0, 7, 2, 1)"


@pytest.mark.parametrize(
    ("signature", "module"),
    [("(t_ptr, a, b, tl)", PLAIN), ("(t_ptr, a, b, tl=None, extra=1)", PLAIN), ("(*args)", GOOD)],
)
def test_a_kernel_that_can_take_what_it_gets(load: Load, signature: str, module: str) -> None:
    algorithm = load(module + f"def kernel{signature}: pass\n")
    algorithm.check_takes(algorithm.kernel_args(system(), 2, 0, 9))


# --- schedules ------------------------------------------------------------------------------------------------

EXCHANGE = """
from functools import partial
from sipsim.collectives.group import pairwise_wiring, towards
from sipsim.collectives.schedule import *
from sipsim.collectives.schedule import OWN_FIRST, ARRIVED_FIRST

COLLECTIVES, alive = ("all_reduce",), []
def wiring(group): return pairwise_wiring({(0, 1)})
def steps(rank, how=OWN_FIRST, blocks=(0,)): return [Step(0, towards(1 - rank), blocks, towards(1 - rank), blocks, how)]
class Steps:
    def __call__(self, rank): return steps(rank)
def transfers(): return [Transfer(0, rank, towards(1 - rank), (0,), OWN_FIRST) for rank in (0, 1)]
def schedule(task):
    alive.append(FLOW)
    return [alive[-1]]
"""
ALIKE = (
    "Flow(1, 1, steps)",
    "Flow(1, 1, lambda rank: steps(rank))",
    "Flow(1, 1, partial(steps, how=OWN_FIRST))",
    "Flow(1, 1, Steps())",
    "flow_of(1, 1, transfers(), wiring(None))",
    "flow_of(1, 1, lambda rank: transfers()[rank : rank + 1], wiring(None))",
)
OTHERS = (
    "Flow(1, 1, partial(steps, how=ARRIVED_FIRST))",
    "Flow(2, 1, steps)",
    "Flow(1, 2, partial(steps, blocks=(0, 1)))",
)


def test_the_hash_of_a_schedule_is_that_of_its_steps(load: Load) -> None:
    """Whatever functions give them, made anew for each call or not: ranks share none."""

    def hashes(flow: str) -> list[str]:
        algorithm = load(EXCHANGE.replace("FLOW", flow))
        return [algorithm.check_task(task_of("all_reduce", group_of("ring_1d", (2, 1)), 64)) for _ in range(2)]

    (alike,) = {each for flow in ALIKE for each in hashes(flow)}
    others = {each for flow in OTHERS for each in hashes(flow)}
    assert len(others - {alike}) == len(OTHERS)


def test_who_has_which_unit_is_checked_for_the_group_that_runs(load: Load) -> None:
    """A row is defined by what it says of 2 to 4 ranks."""
    row = Collective("lab.five", "", VECTOR, lambda unit, rank, size, root: size < 5, every_rank, ("sum",))
    algorithm = load(EXCHANGE.replace("FLOW", ALIKE[0]))
    with pytest.raises(ConfigError, match="in a group of 5, unit 0 is needed, but no rank holds it"):
        algorithm.check_task(Task(row, group_of("ring_1d", (5, 1)), 64, 4))


# --- the hooks ------------------------------------------------------------------------------------------------


PATTERNS = {
    "A: in place": ("def neighbors(rank, size, built_in): built_in['N'] = rank ^ 5 or 9; return built_in\n", {"N": 9}),
    "A: dropped": ("def neighbors(rank, size, built_in): del built_in['W']; return built_in\n", {"W": None}),
    "A: a changed one": ("def neighbors(rank, size, b): return {**b, 'W': (rank + 5) % size}\n", {"W": 10}),
    "B: from the system": (
        "def neighbors(rank, size, b, system): return {'E': system.n_cubes} if rank == 5 else {}\n",
        {"E": 16, "W": None},
    ),
    "B: its own": (
        "def neighbors(rank, size, b): return {'S': (rank + 1) % size}\n",
        {"E": None, "W": None, "S": 6},
    ),
    "B: has none": ("def neighbors(rank, size, built_in): return {}\n", {"E": None, "W": None}),
    "B: as pairs": ("def neighbors(rank, size, b): return [('E', rank ^ 1)]\n", {"E": 4, "W": None}),
    "C: absent": ("", {}),
    "C: is None": ("neighbors = None\n", {}),
    "C: keeps it": ("def neighbors(rank, size, built_in): return None\n", {}),
    "C: scribbles": ("def neighbors(rank, size, built_in): built_in.clear(); built_in['N'] = 99\n", {}),
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_neighbours(load: Load, pattern: str) -> None:
    """The patterns of ADR-0023 D11, on a ring."""
    source, change = PATTERNS[pattern]
    expected = {way: peer for way, peer in {**BUILT_IN, **change}.items() if peer is not None}
    assert neighbours(load(GOOD + source, topology="ring_1d")) == expected


def test_a_changed_map_of_one_rank_does_not_change_another(load: Load) -> None:
    """A hook may keep its argument and change it later."""
    source = (
        "kept = []\ndef neighbors(rank, size, b):\n    for old in kept: old.clear()\n    kept.append(b)\n    return b\n"
    )
    table = load(GOOD + source, topology="ring_1d").neighbour_table(system(), 8)
    assert table == {rank: TABLES.get("ring_1d").build(rank, 8) for rank in range(8)}


@pytest.mark.parametrize("topology", ["none", "custom"])
def test_a_neighbors_hook_alone_decides_the_wiring(load: Load, topology: str) -> None:
    source = GOOD + "def neighbors(rank, size, b): return b or {'E': (rank + 1) % size}\n"
    assert neighbours(load(source, topology=topology)) == {"E": 6}


def test_a_module_without_neighbors_gets_the_wiring_of_all_cubes(load: Load) -> None:
    """ADR-0032 D5: on both SIPs of a ring. Cube 5 of a 4x4 mesh is in its middle."""
    table = load(GOOD).neighbour_table(system(), 32)
    assert table[5] == {"N": 1, "S": 9, "E": 6, "W": 4, "global_E": 21, "global_W": 21}
    assert table == load(GOOD, module=INTERCUBE).neighbour_table(system(), 32)


def test_a_custom_table_needs_a_neighbors_hook(load: Load) -> None:
    """F4 of ADR-0023: no table and no hook."""
    with pytest.raises(ConfigError) as caught:
        load(GOOD, topology="custom").neighbour_table(system(), 4)
    assert str(caught.value) == (
        "algorithms.mine.module = mine.py: exports no neighbors, which topology custom requires (ADR-0023 F4); "
        "define neighbors, or set algorithms.mine.topology "
        "to a built-in table: mesh_2d, mesh_2d_no_wrap, ring_1d, ring_1d_unidir, torus_2d, tree_binary"
    )


@pytest.mark.parametrize(
    ("own", "missing"), [("def kernel(*_): pass", "kernel_args"), ("def kernel_args(*_): ()", "kernel")]
)
def test_a_schedule_with_a_kernel_of_its_own_has_both_of_its_functions(load: Load, own: str, missing: str) -> None:
    with pytest.raises(ConfigError, match=f"exports no {missing};"):
        load(f"{EXCHANGE}\ndef schedule(task): return []\n{own}\n")
