"""Groups with a process for each rank: the same results as in one process, and a killed rank comes back with them."""

import json

import pytest
from group_runs import MESH, script
from launch import launched

pytestmark = pytest.mark.processes

BODY = """
    one = dict(dp=DPPolicy("row_wise", "row_wise", 1, 1))
    tensor = torch.zeros((3000,), dtype="f32", **one).fill_(rank + 1)
    got = torch.zeros((3000,), dtype="f32", **one)
    pairs = [dist.new_group([0, 2]), dist.new_group([3, 1])]
    for turn in range(4):
        group = dist.new_group([2, 0, 3])
        works = [dist.all_reduce(tensor, op="max", group=pairs[rank % 2], async_op=True)]
        works.append(dist.isend(tensor, (rank + 1) % 4))
        works.append(dist.irecv(got, (rank - 1) % 4))
        for work in works:
            work.wait()
        if rank != 1:
            dist.all_reduce(got, group=group, algorithm="direct")
        dist.destroy_process_group(group)
        dist.all_reduce(tensor, op="avg", algorithm="ring")
"""


def test_a_killed_rank_comes_back_with_its_groups(tmp_path):
    flags = ("--sips", 4, *MESH, "--json", tmp_path / "out.json")
    path = script(tmp_path, BODY)
    whole = launched(*flags, "--engine", "inproc", path)
    assert whole.exit_code == 0, whole.stderr
    rows = json.loads((tmp_path / "out.json").read_text())["runs"]
    middle_ns = max(row["time_ns"] for row in rows) * 6
    killed = launched(*flags, "--engine", "local", "--fault", f"kill:2@{int(middle_ns)}ns", "--max-restarts", 1, path)
    assert killed.exit_code == 0, killed.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    assert [rank["restarts"] for rank in document["ranks"]] == [0, 0, 1, 0]
    assert killed.digest == whole.digest
    assert [(row["group"], row["wrong"], row["checked"]) for row in document["runs"]] == [
        (row["group"], 0, True) for row in rows
    ]
    assert len(rows) == 4 * 8


STAR = """
import os

from sipsim.ccl.group import pairwise_wiring, towards
from sipsim.ccl.schedule.kernel import kernel, kernel_args
from sipsim.ccl.schedule.steps import OWN_FIRST, Transfer, flow_of

COLLECTIVES = ("all_reduce",)
CENTRE = int(os.environ["AHBM_RANK"]) == 2


def wiring(group):
    return pairwise_wiring({tuple(sorted((CENTRE, rank))) for rank in range(group.size) if rank != CENTRE})


def schedule(task):
    others = [rank for rank in range(task.size) if rank != CENTRE]
    there = [Transfer(number, rank, towards(CENTRE), (0,), OWN_FIRST) for number, rank in enumerate(others)]
    back = [Transfer(task.size + rank, CENTRE, towards(rank), (0,)) for rank in others]
    return [flow_of(1, 1, there + back, wiring(task.group))]
"""


def test_a_schedule_that_is_not_alike_on_all_ranks_is_told_as_such(tmp_path):
    """Its messages find no rings, which would look like a bug of the simulator."""
    (tmp_path / "star.py").write_text(STAR)
    (tmp_path / "star.yaml").write_text("algorithms: {star: {module: star.py, topology: none}}")
    path = script(tmp_path, "dist.all_reduce(torch.ones((64,), dp=DPPolicy(num_cubes=1)), algorithm='star')\n")
    done = launched("--sips", 4, *MESH, "--ccl", "star.yaml", "--json", tmp_path / "out.json", path, cwd=tmp_path)
    error = done.document["error"]
    assert (done.exit_code, error["kind"], error["rank"]) == (3, "CollectiveMismatch", 2)
    assert "InvariantViolation" not in done.stderr
