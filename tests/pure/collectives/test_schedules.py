"""Every algorithm that is a schedule: its results by the definition, its traffic by its formula, its bits on all ranks.

Programs of all workers of all ranks are carried out, tile by tile, with rings of few slots.
"""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from link_elements import link_elements
from schedules import MODULES, Joined, carry_out, group_of, sources_of, task_of, wrong_ranks

from sipsim.chips.ahbm.collectives.programs import Shards
from sipsim.collectives.group import Group
from sipsim.collectives.patterns.trees import complementary, in_order
from sipsim.collectives.semantics import COLLECTIVES

CASES = [(name, collective) for name, module in MODULES.items() for collective in module.COLLECTIVES]
STAR = ((0, "E", 1, "N"), (1, "E", 2, "W"), (1, "S", 3, "W"))
GROUPS = {
    "one": lambda: group_of("ring_1d", (1, 1)),
    "ring of 2": lambda: group_of("ring_1d", (2, 1)),
    "ring of 5": lambda: group_of("ring_1d", (5, 1)),
    "ring of 8": lambda: group_of("ring_1d", (8, 1)),
    "line of 2": lambda: group_of("mesh_2d_no_wrap", (2, 1)),
    "line of 6": lambda: group_of("mesh_2d_no_wrap", (6, 1)),
    "part of a ring": lambda: group_of("ring_1d", (8, 1), (5, 0, 3, 2)),
    "torus 2x2": lambda: group_of("torus_2d", (2, 2)),
    "torus 3x2": lambda: group_of("torus_2d", (3, 2)),
    "torus 3x3": lambda: group_of("torus_2d", (3, 3)),
    "column of a torus": lambda: group_of("torus_2d", (3, 4), (1, 4, 7, 10)),
    "corner of a torus": lambda: group_of("torus_2d", (4, 4), (1, 2, 5, 6)),
    "rows of a torus": lambda: group_of("torus_2d", (3, 4), (3, 4, 5, 6, 7, 8)),
    "spread over a torus": lambda: group_of("torus_2d", (4, 4), (1, 3, 9, 11)),
    "mesh 3x2": lambda: group_of("mesh_2d_no_wrap", (3, 2)),
    "mesh 3x3": lambda: group_of("mesh_2d_no_wrap", (3, 3)),
    "diagonal of a mesh": lambda: group_of("mesh_2d_no_wrap", (3, 3), (4, 0, 8)),
    "custom": lambda: group_of("custom", (4, 1), None, STAR),
}


def groups_of_systems() -> st.SearchStrategy[Group]:
    """Any SIPs in any order of a small system."""

    def some_of(system: Joined) -> st.SearchStrategy[Group]:
        sips = st.lists(st.integers(0, system.n_sips - 1), min_size=1, max_size=9, unique=True)
        return sips.map(lambda found: Group(tuple(found), system))

    systems = st.one_of(
        st.builds(Joined, st.just("ring_1d"), st.tuples(st.integers(1, 9), st.just(1))),
        st.builds(Joined, st.just("torus_2d"), st.tuples(st.integers(1, 4), st.integers(1, 4))),
        st.builds(Joined, st.just("mesh_2d_no_wrap"), st.tuples(st.integers(1, 4), st.integers(1, 4))),
        st.just(Joined("custom", (4, 1), STAR)),
    )
    return systems.flatmap(some_of)


@pytest.mark.parametrize(("name", "collective"), CASES)
def test_results_are_those_of_the_definition(name: str, collective: str) -> None:
    """37 elements, no multiple of anything; large ones, so that schedules cut them in pieces, and small ones, which
    are loaded and stored together.
    """
    for where, group_in in GROUPS.items():
        group = group_in()
        for itemsize, n_workers in ((2048, 3), (4, 1)):
            task = task_of(collective, group, 37, root=group.size - 1, itemsize=itemsize)
            assert not wrong_ranks(MODULES[name], task, n_workers=n_workers, n_slots=3), where


@pytest.mark.slow
@pytest.mark.parametrize(("name", "collective"), CASES)
@settings(max_examples=150)
@given(data=st.data())
def test_results_of_any_call(name: str, collective: str, data: st.DataObject) -> None:
    check_any_call(name, collective, data)


@settings(max_examples=60)
@given(case=st.sampled_from(CASES), data=st.data())
def test_results_of_some_calls(case: tuple[str, str], data: st.DataObject) -> None:
    check_any_call(*case, data)


def check_any_call(name: str, collective: str, data: st.DataObject) -> None:
    group = data.draw(groups_of_systems())
    task = task_of(
        collective,
        group,
        data.draw(st.integers(1, 40), "elements"),
        data.draw(st.integers(0, group.size - 1), "root"),
        data.draw(st.sampled_from([1, 4, 4096]), "bytes of an element"),
        COLLECTIVES.get(collective).in_place and data.draw(st.booleans(), "in place"),
    )
    shards = data.draw(st.sampled_from([Shards(0, 0), Shards(5, 0), Shards(3, 7), Shards(8, 8)]), "shards")
    assert not wrong_ranks(
        MODULES[name],
        task,
        data.draw(st.sampled_from(task.collective.ops or ("none",)), "operator"),
        n_workers=data.draw(st.integers(1, 5), "workers"),
        n_slots=data.draw(st.integers(1, 3), "slots"),
        tile=data.draw(st.integers(1, 9), "tile"),
        shards=shards,
    )


@pytest.mark.parametrize("name", [name for name, module in MODULES.items() if "all_reduce" in module.COLLECTIVES])
def test_ranks_have_the_same_bits(name: str) -> None:
    """An all-reduce of floating numbers of many sizes, whose sums depend on the order of additions."""
    for where in ("ring of 5", "ring of 8", "line of 6", "torus 3x2", "mesh 3x3", "custom"):
        task = task_of("all_reduce", GROUPS[where](), 61, itemsize=2048)
        sources = sources_of(task, dtype="f4")
        results = carry_out(MODULES[name], task, sources, n_workers=2)
        texts = {result.tobytes() for result in results}
        assert (len(texts) == 1) == MODULES[name].RANK_IDENTICAL, where
        total = np.sum(np.array(sources), axis=0)
        assert not all(np.array_equal(result, total) for result in results), "the order did not matter"


def test_the_operands_of_an_exchange_stand_in_one_order() -> None:
    """The larger of +0 and -0 is the second, so ranks agree only where both combine in the same order."""
    task = task_of("all_reduce", GROUPS["ring of 8"](), 8)
    sources = [np.full(8, -0.0 if rank % 3 else 0.0, "f4") for rank in range(8)]

    def larger(own: np.ndarray, arrived: np.ndarray) -> np.ndarray:
        return np.where(own > arrived, own, arrived)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("schedules.combine", lambda op, own, arrived: larger(own, arrived))
        results = carry_out(MODULES["recursive_doubling"], task, sources, "max")
    assert len({result.tobytes() for result in results}) == 1


@pytest.mark.parametrize("name", [name for name, module in MODULES.items() if hasattr(module, "busiest_link")])
@pytest.mark.parametrize("n_elem", [2**7 * 3**3 * 5 * 7, 24])
def test_the_busiest_link_carries_what_the_formula_says(name: str, n_elem: int) -> None:
    """A number that all cuts divide, and one that they do not, short enough for other ways; in any group."""
    module, told = MODULES[name], 0
    for where, group_in in GROUPS.items():
        group = group_in()
        for collective, root in product(module.COLLECTIVES, {0, group.size // 2}):
            task = task_of(collective, group, n_elem, root)
            formula = module.busiest_link(task)
            if formula is not None and not getattr(module, "suits", lambda _task: "")(task):
                counted = link_elements(task, module.schedule(task), module.wiring(group))
                slack = 0 if n_elem > 100 else 4 * group.size
                assert abs(max(counted.values(), default=0) - formula) <= slack, (where, collective, root)
                told += 1
    assert told, "the module has a formula for no case here"


@pytest.mark.parametrize("where", ["ring of 2", "ring of 5", "ring of 8", "torus 3x3"])
@pytest.mark.parametrize("n_elem", [2**5 * 3 * 5 * 7, 2**16])
@pytest.mark.parametrize("name", ["tree", "double_tree"])
def test_ranks_of_trees_move_no_more_than_the_formula_says(name: str, where: str, n_elem: int) -> None:
    module, group = MODULES[name], GROUPS[where]()
    for collective in module.COLLECTIVES:
        task = task_of(collective, group, n_elem, group.size - 1)
        moved = Counter[tuple[int, bool]]()
        flows = module.schedule(task)
        for rank in range(group.size):
            for flow in flows:
                for step in flow.steps_of(rank):
                    share = n_elem * flow.weight / flow.pieces / len(flows)
                    moved[rank, True] += len(step.sends) * share
                    moved[rank, False] += len(step.recvs) * share
        most = max(moved.values())
        assert module.most_moved(task) / 3 <= most <= module.most_moved(task) * 1.001


def test_double_trees_share_no_inner_rank() -> None:
    for size in range(2, 65):
        first, second = ({parent for parent, _ in pairs} for pairs in (in_order(size), complementary(size)))
        assert not first & second


def test_every_collective_over_ranks_has_several_algorithms() -> None:
    """So that ``auto`` has a choice."""
    names = [name for name in COLLECTIVES.names() if not COLLECTIVES.get(name).per_cube]
    assert names
    for name in names:
        assert len([case for case in CASES if case[1] == name]) >= 3, name


@pytest.mark.parametrize("where", ["ring of 8", "line of 6", "torus 2x2", "torus 3x2", "mesh 3x3", "custom"])
@pytest.mark.parametrize(
    ("name", "collective"),
    [("one_shot", "all_reduce"), ("direct", "reduce_scatter"), ("direct", "reduce"), ("direct", "gather")],
)
def test_few_bytes_are_taken_from_the_nearest_first(name: str, collective: str, where: str) -> None:
    """So nothing but the last message is combined after it has come."""
    task = task_of(collective, GROUPS[where](), 4, root=2)
    wiring = MODULES[name].wiring(task.group)
    (flow,) = MODULES[name].schedule(task)
    for rank in range(task.size):
        sources = [wiring[rank, step.recv][0] for step in flow.steps_of(rank) if step.recv]
        links = [task.group.distances[source][rank] for source in sources]
        assert links == sorted(links)
        assert len(links) == (task.size - 1 if rank == 2 or not task.collective.has_root else 0)


def test_a_rank_sends_in_each_round_what_is_more_than_a_few_bytes() -> None:
    """All ranks are at work in all rounds, and messages of a round go as far round the group."""
    task = task_of("all_to_all", GROUPS["mesh 3x3"](), 4096)
    (flow,) = MODULES["direct"].schedule(task)
    assert [[step.round for step in flow.steps_of(rank)] for rank in range(9)] == [[*range(1, 9)]] * 9
