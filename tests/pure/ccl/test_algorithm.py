"""Algorithm modules: required exports, the kernel's arguments, and the ``neighbors`` hook."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hardware import TOPOLOGIES_OF_AHBM, config, system_of
from schedules import group_of, task_of

from sipsim.ccl.algorithm import Algorithm
from sipsim.ccl.tables.base import TABLES
from sipsim.config.model import AlgorithmEntry
from sipsim.errors import ConfigError
from sipsim.plan.plan import Plan
from sipsim.system.system import System
from sipsim.task import NOT_PLAIN

GOOD = """
TOPO_NAME_TO_KIND = {"ring_1d": 7, "custom": 3}
def kernel(t_ptr, tl): pass
def kernel_args(world_size, n_elem): return world_size, n_elem
"""
PLAIN = "\n".join(GOOD.split("\n")[2:])
BUILT_IN = {"E": 6, "W": 4}
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


def system() -> System:
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


# --- the contract ---------------------------------------------------------------------------------------------

WHERE = "algorithms.mine.module = mine.py: "
HOOKS = ("kernel", "kernel_args", "neighbors", "reference", "root_cube", "suits")
BROKEN = [
    (GOOD.replace("def kernel(", "def colonel("), "exports no kernel; an algorithm module must (ADR-0023 D11)"),
    (GOOD.replace("kernel_args", "args"), "exports no kernel_args; an algorithm module must (ADR-0023 D11)"),
    (GOOD + "kernel = 3", "kernel must be a function, not int"),
    *((GOOD + f"def {hook}(*args):\n    yield 1", f"{hook} {NOT_PLAIN}") for hook in HOOKS),
    *((GOOD + f"async def {hook}(*args): pass", f"{hook} {NOT_PLAIN}") for hook in HOOKS),
    ("class Odd(BaseException): pass\nraise Odd('no luck')", "cannot be imported: Odd: no luck"),
    (GOOD + "kernel_args = (1, 2)", "kernel_args must be a function, not tuple"),
    (GOOD + "TOPO_NAME_TO_KIND = ['ring_1d']", "TOPO_NAME_TO_KIND must be a dict of names to ints, not list"),
    (GOOD + "neighbors = {'E': 1}", "neighbors must be a function, not dict"),
    (GOOD + "reference = 3", "reference must be a function, not int"),
    ("raise RuntimeError('no luck')", "cannot be imported: RuntimeError: no luck"),
    ("raise RuntimeError('no luck,\\nagain')", r"cannot be imported: RuntimeError: no luck,\nagain"),
    ("import sys; sys.exit(3)", "cannot be imported: SystemExit: 3"),
    ("import no_such_thing", "cannot be imported: ModuleNotFoundError: No module named 'no_such_thing'"),
    ("x = 0\ndef f(:\n", "cannot be imported: SyntaxError: invalid syntax (mine.py, line 2)"),
]


@pytest.mark.parametrize(("source", "message"), BROKEN)
def test_one_line_for_a_broken_module(load: Load, source: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(source)
    assert str(caught.value) == WHERE + message


def test_a_missing_file_and_a_missing_module(load: Load) -> None:
    with pytest.raises(ConfigError) as no_file:
        load(GOOD, "nowhere/mine.py")
    assert str(no_file.value) == (
        "algorithms.mine.module = nowhere/mine.py: cannot be imported: "
        "FileNotFoundError: nowhere/mine.py: no such Python file"
    )
    with pytest.raises(ConfigError, match="cannot be imported: ModuleNotFoundError: No module named 'no_such'"):
        load(GOOD, "no_such.thing")


def test_a_topology_that_it_does_not_run_on(load: Load) -> None:
    """F4: found when the plan is made."""
    with pytest.raises(ConfigError) as caught:
        load(GOOD).topology_kind("torus_2d")
    message = "system.sips.topology = torus_2d: algorithm mine does not run on it; allowed: custom, ring_1d"
    assert str(caught.value) == message


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


@pytest.mark.parametrize(("source", "root"), [(GOOD, None), (GOOD + ROOT, None), (GOOD + ROOT, 15)])
def test_a_root_cube_that_is_allowed(load: Load, source: str, root: int | None) -> None:
    load(source, root_cube=root).check_root_cube(system())


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (GOOD, "algorithms.mine.root_cube = 3: the algorithm has no root cube; leave it null"),
        (GOOD + ROOT, "algorithms.mine.root_cube = 3: must be null or 15, the cube where the reduction ends"),
        (
            GOOD + "\ndef root_cube(system): 1 / 0\n",
            "algorithms.mine.module = mine.py: root_cube raised ZeroDivisionError: division by zero (mine.py:6)",
        ),
    ],
)
def test_a_root_cube_that_is_refused(load: Load, source: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(source, root_cube=3).check_root_cube(system())
    assert str(caught.value) == line


@pytest.mark.ideal
def test_the_plan_checks_the_root_cube() -> None:
    with pytest.raises(ConfigError, match=r"^algorithms\.intercube_allreduce\.root_cube = 0: must be null or 15, "):
        Plan(config({"algorithms.intercube_allreduce.root_cube": 0}))


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
        ("(world_size, n_elem, system)", "(2, 9, 'System')"),
        ("(world_size, n_elem, system=None)", "(2, 9, 'System')"),
        ("(world_size, n_elem, *, extra=1)", "(2, 9)"),
    ],
)
def test_a_hook_with_a_third_parameter_gets_the_system(load: Load, signature: str, passed: str) -> None:
    names = [name.split("=")[0] for name in signature.strip("()").split("*")[0].split(", ") if name]
    listed = ", ".join("type(system).__name__" if name == "system" else name for name in names)
    hook = f"def kernel_args{signature}: return ({listed})\n"
    assert str(load(PLAIN + hook).kernel_args(system(), 2, 0, 9)) == passed
    assert str(load(GOOD + hook).kernel_args(system(), 32, 0, 9)) == passed[:-1] + ", 0, 7, 2, 1)"


TAKES = [
    ("(t_ptr, a, b, tl)", PLAIN, None),
    ("(t_ptr, a, b, tl=None, extra=1)", PLAIN, None),
    ("(*args)", GOOD, None),
    (
        "(t_ptr, a, tl)",
        PLAIN,
        "kernel(t_ptr, a, tl) cannot take 4 values: the tensor's address, 2 of kernel_args, and tl",
    ),
    (
        "(t_ptr, a, b, tl)",
        GOOD,
        "kernel(t_ptr, a, b, tl) cannot take 8 values: the tensor's address, 2 of kernel_args, rank, topology code, "
        "width and height of the SIP grid, and tl",
    ),
]


@pytest.mark.parametrize(("signature", "module", "message"), TAKES)
def test_a_kernel_that_cannot_take_what_it_gets(load: Load, signature: str, module: str, message: str | None) -> None:
    algorithm = load(module + f"def kernel{signature}: pass\n")
    args = algorithm.kernel_args(system(), 2, 0, 9)
    if message is None:
        algorithm.check_takes(args)
        return
    with pytest.raises(ConfigError) as caught:
        algorithm.check_takes(args)
    assert str(caught.value) == WHERE + message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return n_elem", "TypeError: 'int' object is not iterable"),
        ("raise ValueError('no\\nway')", r"ValueError: no\nway (mine.py:3)"),
    ],
)
def test_kernel_args_that_fail_are_one_line(load: Load, body: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(PLAIN + f"def kernel_args(world_size, n_elem): {body}\n").kernel_args(system(), 2, 0, 9)
    assert str(caught.value) == f"{WHERE}kernel_args(2, 9) raised {message}"


# --- schedules ------------------------------------------------------------------------------------------------

EXCHANGE = """
from functools import partial
from sipsim.ccl.group import pairwise_wiring, towards
from sipsim.ccl.schedule.steps import *
from sipsim.ccl.schedule.steps import OWN_FIRST, ARRIVED_FIRST

COLLECTIVES, alive = ("all_reduce",), []
def wiring(group): return pairwise_wiring({(0, 1)})
def steps(rank, how=OWN_FIRST): return [Step(0, towards(1 - rank), (0,), towards(1 - rank), (0,), how)]
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
OTHERS = ("Flow(1, 1, partial(steps, how=ARRIVED_FIRST))", "Flow(2, 1, steps)", "Flow(1, 2, steps)")


def test_the_hash_of_a_schedule_is_that_of_its_steps(load: Load) -> None:
    """Whatever functions give them, made anew for each call or not: ranks share none."""

    def hashes(flow: str) -> list[str]:
        algorithm = load(EXCHANGE.replace("FLOW", flow))
        return [algorithm.check_task(task_of("all_reduce", group_of("ring_1d", (2, 1)), 64)) for _ in range(2)]

    (alike,) = {each for flow in ALIKE for each in hashes(flow)}
    others = {each for flow in OTHERS for each in hashes(flow)}
    assert len(others - {alike}) == len(OTHERS)


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
def test_a_self_wired_algorithm_needs_a_neighbors_hook(load: Load, topology: str) -> None:
    """F4 of ADR-0023: no table and no hook. With a hook, its result counts."""
    with pytest.raises(ConfigError) as caught:
        load(GOOD, topology=topology).neighbour_table(system(), 4)
    assert str(caught.value) == (
        f"{WHERE}exports no neighbors, which topology {topology} asks for (ADR-0023 F4); write it, or name a built-in "
        "table as algorithms.mine.topology: mesh_2d, mesh_2d_no_wrap, ring_1d, ring_1d_unidir, torus_2d, tree_binary"
    )
    source = GOOD + "def neighbors(rank, size, b): return b or {'E': (rank + 1) % size}\n"
    assert neighbours(load(source, topology=topology)) == {"E": 6}


RANKS = "ranks are 0 to 31"
FAILING = [
    ("return b['up']", "raised KeyError: 'up'"),
    ("return 3", "raised TypeError: 'int' object is not iterable"),
    ("raise ValueError('no\\nway')", r"raised ValueError: no\nway"),
    ("import sys; sys.exit('no')", "raised SystemExit: no"),
    ("raise BaseException('no')", "raised BaseException: no"),
    (
        "raise type('Mute', (Exception,), {'__str__': lambda s: 1 / 0})",
        "raised Mute (its __str__ raises ZeroDivisionError)",
    ),
    ("return {'E': [1]}", f"direction 'E' leads to [1], which is no rank; {RANKS}"),
    ("return {'E': 1.0}", f"direction 'E' leads to 1.0, which is no rank; {RANKS}"),
    ("return {'E': '1'}", f"direction 'E' leads to '1', which is no rank; {RANKS}"),
    ("return {'E': None}", f"direction 'E' leads to None, which is no rank; {RANKS}"),
    ("return {'E': rank != 3}", f"direction 'E' leads to True, which is no rank; {RANKS}"),
    ("return {'E': 32}", f"direction 'E' leads to rank 32, which does not exist; {RANKS}"),
    ("return {'E': -1}", f"direction 'E' leads to rank -1, which does not exist; {RANKS}"),
    ("b['up'] = 32; return b", f"direction 'up' leads to rank 32, which does not exist; {RANKS}"),
    ("return {'E': rank}", "direction 'E' leads back to the rank itself; leave it out"),
    ("return {3: rank}", "direction 3 is no name; directions are text"),
    ("return {('E',): 1}", "direction ('E',) is no name; directions are text"),
    (
        "return {'E#1': 1}",
        "direction 'E#1' has a #, which is for the names of queue pairs that are made while time runs",
    ),
]


@pytest.mark.parametrize(("body", "message"), FAILING, ids=[body for body, _ in FAILING])
def test_a_hook_that_fails_is_one_line(load: Load, body: str, message: str) -> None:
    """It raises, or returns no map of names to other ranks. The line names algorithm, rank and direction."""
    with pytest.raises(ConfigError) as caught:
        load(GOOD + f"def neighbors(rank, size, b):\n    {body}\n").neighbour_table(system(), 32)
    assert str(caught.value) == f"{WHERE}neighbors(rank=0) {message}"


def test_a_hook_with_too_few_parameters(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"neighbors\(rank=0\) raised TypeError: neighbors\(\) takes 1 positional"):
        load(GOOD + "def neighbors(rank): return {}\n").neighbour_table(system(), 32)


def test_the_first_wrong_rank_is_named(load: Load) -> None:
    source = GOOD + "def neighbors(rank, size, b): return {'E': (rank + 1) % size if rank != 5 else size}\n"
    with pytest.raises(ConfigError, match=r"neighbors\(rank=5\) direction 'E' leads to rank 8, which does not exist"):
        load(source).neighbour_table(system(), 8)


@pytest.mark.ideal
@pytest.mark.parametrize(
    "settings", [{"rank_per": "sip"}, {"rank_per": "pe"}, {"world_size": 16}, {"rank_per": "pe", "world_size": 32}]
)
def test_the_built_in_algorithm_takes_every_cube(settings: dict[str, object]) -> None:
    """Its ranks are cubes (ADR-0032 D3)."""
    entry = {f"algorithms.intercube_allreduce.{key}": value for key, value in settings.items()}
    with pytest.raises(ConfigError, match="ValueError: every cube takes part; leave rank_per and world_size null"):
        Plan(config(entry))
