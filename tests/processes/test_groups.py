"""A schedule that differs between ranks, with a process for each rank."""

import pytest
from group_runs import MESH, script
from launch import launched

pytestmark = pytest.mark.processes

STAR = """
import os

from sipsim.collectives.group import pairwise_wiring, towards
from sipsim.collectives.schedule import OWN_FIRST, Transfer, flow_of

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
