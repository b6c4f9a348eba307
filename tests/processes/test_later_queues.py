"""Queue pairs that a host script makes while time runs, in processes, one of which is killed and comes back."""

from pathlib import Path

import pytest
from launch import launched

SCRIPT = """
import numpy as np
from msgspec.structs import replace
from sipsim.ccl.install import install
from sipsim.host.kernel_queue import Work
from sipsim.topology.address import PePlace

ABOVE = 2**18


def made(plan, places, table):
    entries = install(plan.system, replace(plan.ipcq, buffer_kind="tcm"), places, table)
    return {place: [moved(entry) for entry in each] for place, each in entries.items()}


def moved(entry):
    peer = entry.peer._replace(rx_base_pa=entry.peer.rx_base_pa + ABOVE)
    return entry._replace(peer=peer, my_rx_base_pa=entry.my_rx_base_pa + ABOVE)


def kernel(ptr, turn, tl):
    own = tl.load(ptr, 64, "i32")
    for way in ("next", "before"):
        tl.send(way, own)
    total = own + tl.recv("before", 64, "i32") + tl.recv("next", 64, "i32")
    tl.store(ptr, total)


def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group()
    sip, queue = dist._sip, torch.kernels
    places = [PePlace(member * 2 % world_size, 0, 1) for member in range(world_size)]
    size = len(places)
    table = {r: {"next": (r + 1) % size, "before": (r - 1) % size} for r in range(size)}
    x = torch.zeros((1, 64), dtype="i32", dp=torch.DPPolicy(num_cubes=1))
    x.copy_(torch.full((1, 64), rank + 1, dtype=torch.int32))
    here = [place for place in places if place.sip == rank]
    for generation in range(1, 6):
        sip.install(generation, made(sip.plan, places, table), places)
        work = Work(queue, "exchange")
        work.generation, work.call = generation, f"exchange #{generation}"
        queue.launch(work, kernel, (x, generation), here)
        work.wait()
        sip.close(generation)
    print("sum", rank, int(x.numpy().sum()))
"""
FLAGS = ("--sips", 5, "--topology", "ring_1d", "--check-invariants")


@pytest.mark.processes
@pytest.mark.parametrize("flags", [(), ("--max-restarts", 2, "--fault", "kill:2@1us")], ids=["as is", "killed"])
def test_a_rank_that_is_killed_comes_back_with_its_generations(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Every second SIP is a neighbour, so no link leads to one; five generations at the same addresses."""
    script = tmp_path / "later.py"
    script.write_text(SCRIPT)
    once = launched("--engine", "inproc", *FLAGS, script)
    assert once.exit_code == 0, once.stderr
    done = launched("--engine", "local", *FLAGS, *flags, "--json", tmp_path / "out.json", script)
    assert done.exit_code == 0, done.stderr
    assert done.digest == once.digest
    if flags:
        assert [rank["restarts"] for rank in done.document["ranks"]] == [0, 0, 1, 0, 0]
    sums = sorted(line for line in done.stdout.splitlines() if "sum " in line)
    assert len({line.split("sum ")[1] for line in sums}) == 5
