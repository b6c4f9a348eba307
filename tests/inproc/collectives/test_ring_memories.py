"""Rings of groups and of messages in TCM, HBM and SRAM (ADR-0023 D6): addresses, data and times."""

from pathlib import Path

import pytest
from hardware import config
from runs import run, script_file

from sipsim.chips.ahbm.address import PePlace, PhysAddr
from sipsim.chips.ahbm.costs.prices import sum_ps
from sipsim.chips.ahbm.costs.probe import Probe, ProbePlan
from sipsim.chips.ahbm.plan import Plan
from sipsim.core.errors import ConfigError

KINDS = ["tcm", "hbm", "sram"]
MESSAGES = 3
MESSAGE = f"""
import numpy as np


def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group(backend="ahbm")
    tensor = torch.zeros((1, 2048), dtype="f16", dp=DPPolicy(num_cubes=1, num_pes=1))
    for number in range({MESSAGES}):
        if rank == 0:
            tensor.copy_(torch.from_numpy(np.full((1, 2048), number + 1, dtype=np.float16)))
            dist.send(tensor, 1)
        else:
            dist.recv(tensor, 0)
            assert (tensor.numpy() == number + 1).all()
"""
GROUPS = """
def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group(backend="ahbm")
    for ranks in ([0, 1], [1, 0], [0, 1]):
        group = dist.new_group(ranks)
        for algorithm in ("ring", "direct"):
            tensor = torch.ones((16, 500), dtype="f32")
            dist.all_reduce(tensor, group=group, algorithm=algorithm)
            assert (tensor.numpy() == 2).all()
        dist.destroy_process_group(group)
"""


def receive_ps(folder: Path, kind: str) -> int:
    """The time of the first message: the receiver waits for it."""
    words = ["--sips", 2, "--set", f"defaults.buffer_kind={kind}", "--set", "hbm.kind=null", "--set", "tcm.kind=null"]
    done = run(*words, script_file(folder, MESSAGE))
    assert done.outcome.error is None, done.outcome.error
    ((start_ps, end_ps),) = done.outcome.finished_runs()[0].records[1].spans_ps
    return end_ps - start_ps


def probe_ps(kind: str) -> int:
    """Of a message to PE 1, which receives from PE 0 of another SIP."""
    resolved = config({"system.sips.count": 2, "defaults.buffer_kind": kind, "hbm.kind": None, "tcm.kind": None})
    return sum_ps(Probe(ProbePlan(resolved, PePlace(0, 0, 0), PePlace(1, 0, 1)), 4096).pair())


@pytest.mark.parametrize("kind", ["hbm", "sram"])
def test_a_message_takes_as_much_longer_as_its_memory_costs(tmp_path: Path, kind: str) -> None:
    """A message between ranks is one message of a wired queue pair: the same write, and the same copy to the TCM."""
    found = receive_ps(tmp_path, kind) - receive_ps(tmp_path, "tcm")
    assert found == probe_ps(kind) - probe_ps("tcm") > 0


@pytest.mark.parametrize("kind", KINDS)
def test_every_schedule_is_right(kind: str) -> None:
    words = ["--sips", 4, "--topology", "torus_2d", "--collective", "all_reduce", "--algorithm", "all", "--bytes", "8K"]
    done = run(*words, "--set", f"defaults.buffer_kind={kind}", "--check-invariants")
    assert len(done.document["runs"]) > 2
    assert all((row["wrong"], row["checked"]) == (0, True) for row in done.document["runs"])


@pytest.mark.parametrize("kind", KINDS)
def test_groups_give_their_rings_back(tmp_path: Path, kind: str) -> None:
    """Room for two groups: that of all ranks, and one more at a time."""
    room = "--set", "defaults.group_KiB=384" if kind != "sram" else "defaults.group_KiB=1600"
    done = run("--sips", 2, "--set", f"defaults.buffer_kind={kind}", *room, script_file(tmp_path, GROUPS))
    assert done.outcome.error is None, done.outcome.error


@pytest.mark.parametrize("kind", KINDS)
def test_pools_lie_beside_the_rings_of_the_plan(kind: str) -> None:
    """Also beside each other: entries of two kinds share no byte. Tensors end below rings in HBM."""
    plan = Plan(config({"defaults.buffer_kind": kind, "algorithms.ring.buffer_kind": "hbm"}))
    assert set(plan.ring_pools) == {kind, "hbm"}
    rings = [PhysAddr.decode(each.my_rx_base_pa) for entries in plan.entries.values() for each in entries]
    assert {each.space for each in rings} == {kind}
    pool = plan.ring_pools[kind]
    share = plan.system.capacities["sram"] // plan.system.n_pes if kind == "sram" else 0
    nbytes = plan.ipcq.n_slots * plan.ipcq.slot_size
    assert all(each.offset + nbytes <= pool.offset or pool.offset + pool.size <= each.offset for each in rings)
    assert all(each.offset < share for each in rings if share)
    assert plan.hbm_room_bytes == plan.ring_pools["hbm"].offset
    assert plan.hbm_room_bytes + plan.ring_pools["hbm"].size <= plan.system.capacities["hbm"]


def test_only_schedules_and_messages_need_pools() -> None:
    wired = Plan(config({"algorithms.intercube_allreduce_fused.buffer_kind": "hbm"}))
    assert [*wired.ring_pools] == ["tcm"]
    assert [*Plan(config({"defaults.buffer_kind": "sram"})).ring_pools] == ["sram"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_pool_that_does_not_suffice_is_refused_before_the_run(kind: str) -> None:
    words = ["--sips", 2, "--collective", "all_reduce", "--algorithm", "ring", "--set", "defaults.group_KiB=8192"]
    with pytest.raises(ConfigError, match="no room for rings of groups"):
        run(*words, "--set", f"algorithms.ring.buffer_kind={kind}")
