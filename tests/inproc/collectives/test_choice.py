"""How ``auto`` finds the algorithm that costs least, from bounds and few ranks: what it leaves out, and its work."""

from typing import Any

import pytest

from launcher.options import parse
from launcher.run.prepare import prepare
from sipsim.chips.ahbm.collectives import cost as work
from sipsim.chips.ahbm.collectives.catalog import BOUNDS, cheapest, ranked
from sipsim.chips.ahbm.collectives.cost import Cost
from sipsim.chips.ahbm.collectives.launch import PlannedCall
from sipsim.chips.ahbm.host.builtin_job import tasks_of
from sipsim.chips.ahbm.plan import Plan
from sipsim.collectives.semantics import COLLECTIVES

SYSTEMS = ("--topology ring_1d --sips 5", "--topology torus_2d --shape 3x2 --sips 6", "--topology ring_1d --sips 8")
SYSTEMS += ("--topology mesh_2d_no_wrap --shape 3x2 --sips 6",)
SIZES = "1K", "96K", "8M"


def task_of(system: str, collective: str, size: str) -> tuple[Plan, PlannedCall]:
    argv = (*system.split(), "--collective", collective, "--bytes", size, "--algorithm", "direct")
    made = prepare(parse([*argv]))
    definition = COLLECTIVES.get(collective)
    assert isinstance(made.plan, Plan)
    return made.plan, tasks_of(made.job, definition, made.plan)[0][0]


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "broadcast"])
def test_no_bound_is_above_the_estimate_and_the_least_estimate_is_chosen(system: str, collective: str) -> None:
    for size in SIZES:
        plan, made = task_of(system, collective, size)
        choices = ranked(plan.catalog, made)
        for choice in choices:
            cost = Cost(choice.algorithm, made)
            for bound in BOUNDS:
                assert bound(cost) <= choice.estimate.time_ps, (choice.algorithm.name, size, bound)
        found = cheapest(plan.catalog, made)
        assert found is not None
        assert found.name == choices[0].algorithm.name


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter"])
def test_one_rank_that_stands_for_all_has_their_estimate(collective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a thread a flow, as where there are more ranks."""
    monkeypatch.setattr(work, "MOST_THREADS", 1)
    alone = 0
    for system in SYSTEMS[:2]:
        for size in SIZES:
            plan, made = task_of(system, collective, size)
            for algorithm in plan.catalog.able(made.task):
                one, every = Cost(algorithm, made), Cost(algorithm, made)
                every._work.__dict__["schedule"] = [flow._replace(alike=False) for flow in one._work.schedule]
                assert one.estimate() == every.estimate(), (algorithm.name, size)
                assert len(every._work.ranks) == made.task.size
                alone += len(one._work.ranks) == 1
    assert alone >= 6


def test_the_work_of_a_choice_grows_as_the_ranks_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in moves; all ranks of a ring have n * n of them."""
    made_moves: list[int] = []
    whole: Any = work.moves_of

    def counted(*args: Any) -> Any:
        moves = whole(*args)
        made_moves.append(len(moves))
        return moves

    monkeypatch.setattr(work, "moves_of", counted)
    counts = []
    for sips in (48, 96):
        plan, made = task_of(f"--topology ring_1d --sips {sips}", "all_reduce", "64K")
        made_moves.clear()
        cheapest(plan.catalog, made)
        counts.append(sum(made_moves))
    assert counts[1] < 2.5 * counts[0]
