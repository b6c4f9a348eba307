"""Traffic of mixed sizes between cubes and SIPs: every message arrives, in order, with its own bytes."""

from pathlib import Path

import pytest
from runs import run
from sweeps import batches

KERNEL = """
import random

TOPO_NAME_TO_KIND = {"ring_1d": 0}
OFFSETS = (1, 2, 3, -1, -2, -3)
MESSAGES, AHEAD = 12, 4
LENGTHS = (8, 16, 256, 1024, 2048)


def kernel_args(world_size, n_elem):
    return (n_elem,)


def neighbors(rank, size, built_in):
    return {f"to{(rank + k) % size}": (rank + k) % size for k in OFFSETS}


def plan_of(size):
    rng = random.Random(SEED)
    pairs = [(a, (a + k) % size) for a in range(size) for k in OFFSETS]
    return {pair: [rng.choice(LENGTHS) for _ in range(MESSAGES)] for pair in pairs}


def kernel(t_ptr, n_elem, sip, kind, width, height, tl):
    cube, cubes = tl.program_id(1), tl.num_programs(1)
    size, me = cubes * tl.num_programs(2), sip * cubes + cube
    lengths, pause = plan_of(size), random.Random(SEED * 1000 + me)
    mine = t_ptr + cube * n_elem * t_ptr.dtype.itemsize
    held = {length: tl.load(mine, length) for length in LENGTHS}
    for i in range(MESSAGES + AHEAD):
        for k in OFFSETS:
            peer = (me + k) % size
            if i < MESSAGES:
                if pause.random() < 0.5:
                    tl.load(mine, pause.choice((8, 256, 2048)))
                tl.send(f"to{peer}", held[lengths[me, peer][i]])
        for k in OFFSETS:
            peer = (me + k) % size
            if i >= AHEAD:
                got = tl.recv(f"to{peer}", lengths[peer, me][i - AHEAD], "i32").array
                assert got[0] == got[-1] == peer + 1, (peer, got[0])
"""

SCRIPT = """
import numpy as np


def worker(rank, world_size, torch):
    torch.distributed.init_process_group("ahbm")
    tensor = torch.zeros((4, 2048), dtype="i32")
    rows = np.arange(4).reshape(4, 1) + rank * 4 + 1
    tensor.copy_(torch.from_numpy(np.broadcast_to(rows, (4, 2048))))
    torch.distributed.all_reduce(tensor)
"""

MACHINES = {
    "as configured": [],
    "slow DMA": ["--set", "pe_dma.bandwidth_GBps=16"],
    "slow bridges": ["--set", "ucie_port.bandwidth_GBps=8"],
    "Ethernet": ["--link", "ethernet_100g"],
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("seed", batches(3, 1))
def test_every_message_arrives_in_order(tmp_path: Path, machine: str, seed: int) -> None:
    (tmp_path / "random_kernel.py").write_text(f"SEED = {seed}\n{KERNEL}")
    (tmp_path / "script.py").write_text(SCRIPT)
    ccl = tmp_path / "ccl.yaml"
    module = tmp_path / "random_kernel.py"
    ccl.write_text(
        "defaults: {algorithm: traffic, n_slots: 8, slot_size: 8192}\n"
        f"algorithms: {{traffic: {{module: {module}, topology: none}}}}\n"
    )
    mesh = ["--set", "sip.cube_mesh={w: 2, h: 2}"]
    flags = ["--sips", "2", "--ccl", str(ccl), *mesh, *MACHINES[machine], "--no-verify-data"]
    done = run(*flags, tmp_path / "script.py")
    assert done.outcome.error is None, done.outcome.error.message + done.outcome.error.detail


OVERTAKING = """
TOPO_NAME_TO_KIND = {"ring_1d": 0}


def kernel_args(world_size, n_elem):
    return (n_elem,)


def neighbors(rank, size, built_in):
    return {0: {"E": 3}, 1: {"S": 3}, 2: {}, 3: {"W": 0, "N": 1}}[rank]


def kernel(t_ptr, n_elem, sip, kind, width, height, tl):
    cube = tl.program_id(1)
    if cube < 2:
        large, small = tl.load(t_ptr, 2048), tl.load(t_ptr, 16)
        for _ in range(3):
            tl.send("ES"[cube], small if cube == 0 else large)
            tl.send("ES"[cube], large)
    if cube == 3:
        for way, first in (("W", 16), ("N", 2048)):
            for _ in range(3):
                tl.recv(way, first, t_ptr.dtype)
                tl.recv(way, 2048, t_ptr.dtype)
"""


@pytest.mark.parametrize("gigabytes_per_s", [4, 16, 40, 64])
def test_nothing_overtakes_on_a_route(tmp_path: Path, gigabytes_per_s: int) -> None:
    """Cubes 0 and 1 send to cube 3 over one bridge, cube 0 small and large messages in turn, all fed slowly."""
    module, ccl, script = tmp_path / "overtaking.py", tmp_path / "ccl.yaml", tmp_path / "script.py"
    module.write_text(OVERTAKING)
    script.write_text(SCRIPT.replace("i32", "f16"))
    ccl.write_text(f"defaults: {{algorithm: o}}\nalgorithms: {{o: {{module: {module}, topology: none}}}}\n")
    machine = ["--set", "sip.cube_mesh={w: 4, h: 1}", "--set", f"pe_dma.bandwidth_GBps={gigabytes_per_s}"]
    done = run("--sips", "1", "--ccl", ccl, *machine, "--no-verify-data", script)
    assert done.outcome.error is None, done.outcome.error.message + done.outcome.error.detail
