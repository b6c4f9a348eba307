"""Whole runs with the variant ``doorbell``: data, order and digests, and the estimates of ``auto``."""

from pathlib import Path
from typing import Any

import pytest
from group_runs import MESH, rows, run_groups
from runs import run

from launcher.options import parse
from launcher.run.prepare import prepare
from sipsim.chips.ahbm.collectives.cost import CommandTimes
from sipsim.chips.ahbm.plan import Plan

DOORBELL = ("--variant", "doorbell")
SCHEDULES = ("bidirectional_ring", "direct", "double_tree", "halving_doubling", "line", "multidim_ring", "one_shot")
SCHEDULES += ("recursive_doubling", "ring", "tree")
WIRED = ("intercube_allreduce", "intercube_pipelined", "intercube_hierarchical", "intercube_per_pe")


def plan_of(*flags: str) -> Plan:
    plan = prepare(parse([*flags, "--sips", "4"])).plan
    assert isinstance(plan, Plan)
    return plan


@pytest.mark.parametrize("algorithm", SCHEDULES)
def test_schedules_of_groups_are_right(tmp_path: Path, algorithm: str) -> None:
    """In a new group too, whose rings the ranks install at times of their own."""
    body = f"""
    some = dist.new_group([1, 2, 3])
    for group in (None, some):
        if group is None or rank in (1, 2, 3):
            x = device(torch, np.arange(600, dtype="f4") + rank, dp=DPPolicy(num_cubes=1))
            dist.all_reduce(x, group=group, algorithm={algorithm!r})
    """
    done = run_groups(tmp_path, body, *DOORBELL, "--check-invariants")
    assert rows(done) == [("all_reduce", [0, 1, 2, 3], 0, True), ("all_reduce", [1, 2, 3], 0, True)]


@pytest.mark.parametrize("algorithm", WIRED)
def test_wired_algorithms_are_right(algorithm: str) -> None:
    flags = ("--sips", 3, *MESH, "--bytes", "8K", *DOORBELL, "--check-invariants")
    done = run(*flags, "--set", f"defaults.algorithm={algorithm}", "--set", "defaults.all_reduce=intercube")
    assert done.outcome.error is None
    assert [row["wrong"] for row in done.document["runs"]] == [0]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param((), id="ucie"),
        pytest.param(("--link", "ethernet_100g"), id="ethernet"),
        pytest.param(("--set", "router.buffer_packets=4"), id="finite buffers"),
        pytest.param(("--set", "defaults.buffer_kind=hbm", "--set", "pe_ipcq.overhead_ns=400"), id="slow controller"),
        pytest.param(("--set", "defaults.n_slots=1", "--set", "defaults.backpressure=poll"), id="one slot"),
    ],
)
def test_results_do_not_depend_on_the_mail(more: tuple[str, ...]) -> None:
    """No packet comes sooner than its channel promises, an acknowledgement of a slow controller's message included."""
    flags = ("--sips", 4, "--topology", "torus_2d", *MESH, "--bytes", "8K", *DOORBELL, "--check-invariants", *more)
    first, *others = (run(*flags, mail_seed=seed) for seed in range(3))
    assert first.outcome.error is None
    assert [row["wrong"] for row in first.document["runs"]] == [0]
    assert all(each.results() == first.results() for each in others)


def test_data_are_those_of_heads_in_messages() -> None:
    flags = ("--sips", 2, *MESH, "--bytes", "8K")
    modes: list[Any] = [run(*flags, *more).document for more in ((), DOORBELL)]
    tensors = [[rank["tensor_sha256"] for rank in each["ranks"]] for each in modes]
    assert tensors[0] == tensors[1]
    assert modes[0]["runs"][0]["time_ns"] < modes[1]["runs"][0]["time_ns"]
    assert modes[0]["digest"] != modes[1]["digest"]


def test_auto_adds_a_round_trip_to_each_message() -> None:
    """16 B take 70,368 ps to the next SIP and as long back, and the doorbell 1,000 in PE_IPCQ. Both delay the message,
    and take no time of a link for its bytes.
    """
    (head_ps, bytes_ps), (rung_ps, rung_bytes_ps) = (
        CommandTimes(plan.system, plan.ipcq).message_ps(((0, 0, 0), "global_E", (1, 0, 0)), 4096)
        for plan in (plan_of(), plan_of(*DOORBELL))
    )
    assert rung_bytes_ps == bytes_ps
    assert rung_ps == head_ps + 2 * 70_368 + 1_000
