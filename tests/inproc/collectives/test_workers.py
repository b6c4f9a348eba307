"""Workers of a collective: a schedule that depends on their number, and the room of the TCM that each has."""

import pytest
from group_runs import rows, run_groups
from sweeps import some

SETUP = """
    one = dict(dp=DPPolicy("row_wise", "row_wise", 1, 1))
    def noise(n):
        return device(torch, np.random.default_rng(rank).standard_normal(n).astype("f4"), **one)
"""
BY_WORKERS = """
from sipsim.collectives.algorithms import direct, one_shot
from sipsim.collectives.algorithms.direct import wiring
COLLECTIVES = ("all_reduce",)
RANK_IDENTICAL = False
def schedule(task):
    return direct.schedule(task) if task.workers > 1 else one_shot.schedule(task)
"""


@pytest.mark.parametrize("pes", [[0], [0, 1]])
def test_the_check_uses_the_schedule_of_the_workers_that_ran(tmp_path, pes):
    """The two schedules add in different orders."""
    (tmp_path / "by_workers.py").write_text(BY_WORKERS)
    entry = f"algorithms.mine={{module: {tmp_path}/by_workers.py, topology: none}}"
    body = f"{SETUP}    dist.all_reduce(noise(60000), algorithm='mine', pes={pes})\n"
    assert [each[2:] for each in rows(run_groups(tmp_path, body, "--set", entry))] == [(0, True)]


ALGORITHMS = ("multidim_ring", "recursive_doubling", "double_tree", "direct", "halving_doubling")
ROOM = ("--set", "tcm_layout={kernel_MiB: 1, ipcq_MiB: 1, scratch_MiB: 1, handles_take_room: true}")


@pytest.mark.parametrize("algorithm", some(ALGORITHMS, "halving_doubling"))
def test_one_worker_has_room_for_all_its_flows(tmp_path, algorithm):
    """1.2 MiB in a TCM of 1 MiB for the kernel."""
    body = f"{SETUP}    dist.all_reduce(noise(300_000), algorithm='{algorithm}', pes=[0])\n"
    layout = ("--topology", "torus_2d", "--set", "defaults.workers=1", *ROOM)
    assert [each[2:] for each in rows(run_groups(tmp_path, body, *layout))] == [(0, True)]
