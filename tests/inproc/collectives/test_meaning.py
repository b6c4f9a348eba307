"""What ``all_reduce`` means: elementwise over ranks in every shape and layout, unless the config says otherwise."""

import pytest
from runs import Run, ccl_file, run, script_file
from sweeps import crossed

FLAGS = ("--sips", 3, "--set", "sip.cube_mesh={w: 2, h: 1}", "--set", "cube.pes=2")
LAYOUTS = {
    "a row a cube": "(2, 8), dp=DPPolicy(num_cubes=2)",
    "two rows a cube": "(4, 8), dp=DPPolicy(num_cubes=2)",
    "a row a PE": "(4, 8), dp=DPPolicy('row_wise', 'row_wise', 2, 2)",
    "columns a PE": "(2, 8), dp=DPPolicy('row_wise', 'column_wise', 2, 2)",
    "one cube": "(2, 8), dp=DPPolicy(num_cubes=1)",
    "columns a cube": "(2, 8), dp=DPPolicy('column_wise', num_cubes=2)",
}
HOWS = {"": "", "auto": ", algorithm='auto'", "ring": ", algorithm='ring'", "a group": ", group=dist.group.WORLD"}
ELEMENTWISE, ALL_ROWS = 1 + 2 + 3, 2 * (1 + 2 + 3)
OWN = """
from sipsim.chips.ahbm.collectives.algorithms.intercube_allreduce import TOPO_NAME_TO_KIND, kernel
from sipsim.chips.ahbm.collectives.algorithms.intercube_allreduce import kernel_args, neighbors
"""


def all_reduced(folder, layouts, *flags, how: str = "", call: str = "dist.all_reduce") -> Run:
    """A run in which tensors of these layouts, of ones, twos and threes by rank, are reduced."""
    lines = [f"    {call}(torch.ones({layout}).fill_(rank + 1){how})" for layout in layouts]
    head = "def worker(rank, world_size, torch):\n    dist = torch.distributed\n    dist.init_process_group()\n"
    return run(*FLAGS, *flags, script_file(folder, head + "\n".join(lines) + "\n"))


def totals(done: Run) -> list[set[float]]:
    """The values of each tensor, on all ranks together."""
    assert done.outcome.error is None, done.outcome.error
    count = len(done.document["runs"])
    return [
        {float(value) for rank in range(3) for value in done.tensor(rank, index).flat} for index in range(-count, 0)
    ]


CALLS = [("", ""), ("intercube_allreduce", ""), ("intercube_per_pe", "auto"), ("intercube_allreduce", "ring")]
CALLS += [("ring", "a group")]


@pytest.mark.parametrize(
    ("algorithm", "how"), crossed(["", "intercube_per_pe", "intercube_allreduce", "ring"], HOWS, ordinary=CALLS)
)
def test_it_is_elementwise_in_every_layout(tmp_path, algorithm, how):
    configured = ("--algorithm", algorithm) if algorithm else ()
    done = all_reduced(tmp_path, LAYOUTS.values(), *configured, how=HOWS[how])
    assert totals(done) == [{ELEMENTWISE}] * len(LAYOUTS)
    assert {row["collective"] for row in done.document["runs"]} == {"all_reduce"}


def test_every_operator_is_elementwise(tmp_path):
    done = all_reduced(tmp_path, [LAYOUTS["a row a cube"]], how=", op=dist.ReduceOp.MAX")
    assert totals(done) == [{3.0}]


@pytest.mark.parametrize("source", [("--set", "defaults.all_reduce=intercube"), ("--variant", "adr")])
def test_the_config_makes_it_that_of_the_adr_for_a_row_a_cube(tmp_path, source, capsys):
    done = all_reduced(tmp_path, LAYOUTS.values(), *source)
    assert totals(done) == [{ALL_ROWS}, *[{ELEMENTWISE}] * (len(LAYOUTS) - 1)]
    assert capsys.readouterr().err == ""
    assert totals(all_reduced(tmp_path, LAYOUTS.values(), *source, how=HOWS["auto"])) == [{ELEMENTWISE}] * len(LAYOUTS)


def test_that_of_the_adr_has_a_name_of_its_own(tmp_path, capsys):
    done = all_reduced(tmp_path, [LAYOUTS["a row a cube"]] * 2, call="dist.intercube_all_reduce")
    assert totals(done) == [{ALL_ROWS}] * 2
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("how", [", op='max'", ", 'max'"])
def test_it_refuses_other_operators_by_its_name(tmp_path, how):
    done = all_reduced(tmp_path, [LAYOUTS["a row a cube"]], how=how, call="dist.intercube_all_reduce")
    assert done.outcome.error is not None
    assert "intercube_all_reduce takes op 'sum', not 'max'; all_reduce(" in done.outcome.error.message


def test_which_one_is_meant_is_told_once_by_rank_0_where_both_could_be(tmp_path, capsys):
    all_reduced(tmp_path, [LAYOUTS["one cube"], *[LAYOUTS["a row a cube"]] * 3])
    (line,) = capsys.readouterr().err.splitlines()
    assert "intercube_all_reduce" in line
    assert "defaults.all_reduce=intercube" in line
    all_reduced(tmp_path, [layout for name, layout in LAYOUTS.items() if name != "a row a cube"])
    assert capsys.readouterr().err == ""


def test_a_kernel_of_the_user_is_run_on_any_tensor_and_told(tmp_path, capsys):
    chosen, layouts = ccl_file(tmp_path, OWN), [LAYOUTS["a row a cube"], LAYOUTS["two rows a cube"]]
    done = all_reduced(tmp_path, layouts, *chosen)
    assert totals(done) == [{ALL_ROWS}] * 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "algorithm mine" in line
    assert totals(all_reduced(tmp_path, layouts, *chosen, how=HOWS["auto"])) == [{ELEMENTWISE}] * 2
    assert totals(all_reduced(tmp_path, layouts, *chosen, "--set", "defaults.all_reduce=intercube")) == [{ALL_ROWS}] * 2
    assert capsys.readouterr().err == ""


def test_the_digest_has_the_key_only_where_it_is_not_the_default(tmp_path):
    texts = [
        run(*FLAGS, "--set", f"defaults.all_reduce={meaning}").prepared.plan.canonical_text()
        for meaning in ("elementwise", "intercube")
    ]
    assert texts[0] == run(*FLAGS).prepared.plan.canonical_text() != texts[1]
