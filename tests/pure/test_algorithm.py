"""Algorithm modules: what one must export, and the three things that its ``neighbors`` may do with a table."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hardware import config

from sipsim.ccl.algorithm import Algorithm
from sipsim.config.model import AlgorithmEntry
from sipsim.errors import ConfigError
from sipsim.plan import Plan
from sipsim.system import System

GOOD = """
TOPO_NAME_TO_KIND = {"ring_1d": 7, "custom": 3}
def kernel(t_ptr, tl): pass
def kernel_args(world_size, n_elem): return world_size, n_elem
"""
BUILT_IN = {"E": 1, "W": 2}
Load = Callable[..., Algorithm]


@pytest.fixture
def load(here: Path) -> Iterator[Load]:
    """Write a module, load it as an algorithm by its path; afterwards no trace of it is left."""
    before = set(sys.modules)

    def loaded(source: str, module: str = "mine.py") -> Algorithm:
        (here / "mine.py").write_text(source)
        return Algorithm("mine", AlgorithmEntry(module=module, topology="none"))

    yield loaded
    for name in set(sys.modules) - before:
        del sys.modules[name]


def system() -> System:
    return System(config({}))


def neighbours(algorithm: Algorithm) -> dict[str, int]:
    return algorithm.neighbours(5, 32, dict(BUILT_IN), system())


# --- loading --------------------------------------------------------------------------------------------------


def test_a_file_is_a_module(load: Load) -> None:
    """Planted: the path's stem imported by name, which finds another module or none."""
    algorithm = load(GOOD)
    assert algorithm.kernel.__name__ == "kernel"
    assert algorithm.topology_kind("ring_1d") == 7
    assert algorithm.kernel_args(system(), 9) == (2, 9)
    assert algorithm.reference is None


def test_a_file_by_its_absolute_path(load: Load, here: Path) -> None:
    assert load(GOOD, str(here / "mine.py")).topology_kind("custom") == 3


def test_two_files_of_one_stem_stay_apart(here: Path) -> None:
    """Each is loaded under its algorithm's name. Planted: the stem used for ``sys.modules``."""
    loaded = []
    for folder, kind in (("a", 1), ("b", 2)):
        (here / folder).mkdir()
        (here / folder / "same.py").write_text(GOOD.replace("7", str(kind)))
        loaded.append(Algorithm(folder, AlgorithmEntry(module=f"{folder}/same.py", topology="none")))
        del sys.modules[f"_ahbm_algorithm_{folder}"]
    assert [a.topology_kind("ring_1d") for a in loaded] == [1, 2]


def test_a_module_may_use_its_own_classes(load: Load) -> None:
    """``dataclasses`` look their module up. Planted: the module not registered before it runs."""
    source = "import dataclasses\n@dataclasses.dataclass\nclass Plan:\n    n: int = 3\n" + GOOD
    assert load(source).topology_kind("ring_1d") == 7


def test_every_sip_has_a_module_of_its_own(load: Load) -> None:
    """What one SIP's kernel keeps in its module, another's does not see. Planted: one module for all SIPs."""
    algorithm = load(GOOD + "seen = []\ndef kernel(t_ptr, tl): seen.append(tl); return len(seen)\n")
    one, two = algorithm.private_copy(0), algorithm.private_copy(1)
    assert [one.kernel(None, 1), one.kernel(None, 2), two.kernel(None, 3)] == [1, 2, 1]
    assert two.topology_kind("ring_1d") == 7
    assert one.source_sha256() == algorithm.source_sha256()


def test_the_hash_is_of_the_source(load: Load) -> None:
    """Every SIP must run the same. Planted: the hash of the path."""
    one, same, other = load(GOOD).source_sha256(), load(GOOD).source_sha256(), load(GOOD + "#").source_sha256()
    assert one == same != other


def test_the_built_in_one() -> None:
    resolved = config({})
    algorithm = Algorithm("intercube_allreduce", resolved.ccl.algorithms["intercube_allreduce"])
    assert algorithm.reference is not None
    assert algorithm.kernel_args(System(resolved), 128) == (128, 4, 4, 2)


# --- the contract ---------------------------------------------------------------------------------------------

WHERE = "algorithms.mine.module = mine.py: "
BROKEN = [
    (GOOD.replace("def kernel(", "def colonel("), "exports no kernel; an algorithm module must (ADR-0032 D7)"),
    (GOOD.replace("kernel_args", "args"), "exports no kernel_args; an algorithm module must (ADR-0032 D7)"),
    (GOOD.replace("TOPO_", "TOP_"), "exports no TOPO_NAME_TO_KIND; an algorithm module must (ADR-0032 D7)"),
    (GOOD + "kernel = 3", "kernel must be a function, not int"),
    (GOOD + "kernel_args = (1, 2)", "kernel_args must be a function, not tuple"),
    (GOOD + "TOPO_NAME_TO_KIND = ['ring_1d']", "TOPO_NAME_TO_KIND must be a dict of names to ints, not list"),
    ("raise RuntimeError('no luck')", "cannot be imported: RuntimeError: no luck"),
    ("raise RuntimeError('no luck,\\nagain')", r"cannot be imported: RuntimeError: no luck,\nagain"),
    ("import sys; sys.exit(3)", "cannot be imported: SystemExit: 3"),
    ("import no_such_thing", "cannot be imported: ModuleNotFoundError: No module named 'no_such_thing'"),
    ("x = 0\ndef f(:\n", "cannot be imported: SyntaxError: invalid syntax (mine.py, line 2)"),
]


@pytest.mark.parametrize(("source", "says"), BROKEN)
def test_one_line_for_a_broken_module(load: Load, source: str, says: str) -> None:
    """Planted: the exception itself let through, or its line ends; a hook that is looked for only when it is called."""
    with pytest.raises(ConfigError) as caught:
        load(source)
    assert str(caught.value) == WHERE + says


def test_a_missing_file_and_a_missing_module(load: Load) -> None:
    """Planted: a path without a file left to importlib, which answers with None."""
    with pytest.raises(ConfigError) as no_file:
        load(GOOD, "nowhere/mine.py")
    assert str(no_file.value) == (
        "algorithms.mine.module = nowhere/mine.py: cannot be imported: "
        "FileNotFoundError: nowhere/mine.py: no such Python file"
    )
    with pytest.raises(ConfigError, match="cannot be imported: ModuleNotFoundError: No module named 'no_such'"):
        load(GOOD, "no_such.thing")


def test_a_topology_that_it_does_not_run_on(load: Load) -> None:
    """F4: found when the plan is made. Planted: a ``KeyError`` in the kernel's arguments."""
    with pytest.raises(ConfigError) as caught:
        load(GOOD).topology_kind("torus_2d")
    says = "system.sips.topology = torus_2d: algorithm mine does not run on it; allowed: custom, ring_1d"
    assert str(caught.value) == says


def test_the_plan_refuses_it_before_anything_runs() -> None:
    settings = {
        "system.sips.topology": "custom",
        "system.sips.custom_links": [{"a": 0, "a_port": "E", "b": 1, "b_port": "W"}],
    }
    with pytest.raises(ConfigError, match="algorithm intercube_allreduce does not run on it; allowed: mesh_2d_no_wr"):
        Plan(config(settings))


# --- the hooks ------------------------------------------------------------------------------------------------


PATTERNS = {
    "A: none": ("", BUILT_IN),
    "A: keeps it": ("def neighbors(rank, size, built_in): return None\n", BUILT_IN),
    "B: in place": ("def neighbors(rank, size, built_in): built_in['N'] = rank\n", {**BUILT_IN, "N": 5}),
    "B: a changed one": ("def neighbors(rank, size, built_in): return {**built_in, 'W': size}\n", {"E": 1, "W": 32}),
    "C: replaces it": ("def neighbors(rank, size, built_in): return {'S': rank + size}\n", {"S": 37}),
    "C: has none": ("def neighbors(rank, size, built_in): return {}\n", {}),
    "C: from the system": ("def neighbors(rank, size, b, system): return {'E': system.n_cubes}\n", {"E": 16}),
    "C: as pairs": ("def neighbors(rank, size, built_in): return [('E', 4)]\n", {"E": 4}),
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_neighbours(load: Load, pattern: str) -> None:
    """Planted: an empty answer taken for none (``answer or built_in``); the changes of B lost."""
    source, expected = PATTERNS[pattern]
    assert neighbours(load(GOOD + source)) == expected


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def neighbors(rank, size, b): return b['up']\n", "neighbors(rank=5) raised KeyError: 'up'"),
        ("def neighbors(rank): return {}\n", "neighbors(rank=5) raised TypeError: neighbors() takes 1 positional"),
        ("def neighbors(rank, size, b): return 3\n", "neighbors(rank=5) raised TypeError: 'int' object is not iter"),
        (
            "def neighbors(rank, size, b): raise ValueError('no\\nway')\n",
            r"neighbors(rank=5) raised ValueError: no\nway",
        ),
        ("def neighbors(rank, size, b): return {'E': [1]}\n", "neighbors(rank=5) "),
        ("def neighbors(rank, size, b): return {'E': 1.0}\n", "neighbors(rank=5) "),
        ("def neighbors(rank, size, b): return {3: 1}\n", "neighbors(rank=5) "),
    ],
)
def test_a_hook_that_fails_is_one_line(load: Load, source: str, says: str) -> None:
    """It raises, or answers what is no map of names to ranks. Planted: the traceback, as an internal error."""
    with pytest.raises(ConfigError) as caught:
        neighbours(load(GOOD + source))
    assert str(caught.value).startswith(WHERE + says)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("signature", "passed"),
    [
        ("(world_size, n_elem)", "(2, 9)"),
        ("(world_size, n_elem, system)", "(2, 9, 'System')"),
        ("(world_size, n_elem, system=None)", "(2, 9, 'System')"),
        ("(world_size, n_elem, *, extra=1)", "(2, 9)"),
    ],
)
def test_the_system_is_given_to_those_who_ask(load: Load, signature: str, passed: str) -> None:
    """Planted: keyword-only parameters counted."""
    names = [name.split("=")[0] for name in signature.strip("()").split("*")[0].split(", ") if name]
    listed = ", ".join("type(system).__name__" if name == "system" else name for name in names)
    source = GOOD + f"def kernel_args{signature}: return ({listed})\n"
    assert str(load(source).kernel_args(system(), 9)) == passed
