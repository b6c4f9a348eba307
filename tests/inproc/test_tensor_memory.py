"""Tensors of a script return their memory when they are dropped, at the same point under every engine."""

import gc

import pytest
from launch import launched
from runs import Run, run, script_file

from sipsim.topology.address import PhysAddr

FLAGS = ("--sips", 2, *("--set", "sip.cube_mesh.w=2"), *("--set", "sip.cube_mesh.h=1"))
ONE_MIB = (*FLAGS, "--set", "cube.hbm_MiB_per_pe=1")
FILLER = "filler = torch.zeros((2, 2**18 - 256))\n"
"""In f32: all but 1 KiB of the HBM of each of two cubes."""
HALF = "(2, 128)"
"""In f32: half of what is left."""


def worker(folder, body, *flags, top=""):
    lines = ["dist = torch.distributed", "dist.init_process_group()", *body.strip().splitlines()]
    source = "\n    ".join([f"{top}\ndef worker(rank, world_size, torch):", *lines])
    return run(*(flags or ONE_MIB), "--no-verify-data", script_file(folder, source + "\n"))


def offsets(done: Run, rank: int = 0) -> list[int]:
    """By creation number: the offset of each tensor in its cube's HBM."""
    made = done.members[rank].torch.space.allocations
    return [PhysAddr.decode(each.segments[0].pa).offset for each in made]


def ok(done: Run) -> Run:
    assert done.outcome.error is None, f"{done.outcome.error.message}\n{done.outcome.error.detail}"
    return done


@pytest.mark.parametrize(
    "body",
    [
        f"for _ in range(3):\n    a = torch.zeros{HALF}\n    del a",
        f"for _ in range(3):\n    a = torch.zeros{HALF}",
        f"def scope():\n    a = torch.zeros{HALF}\n    b = a.fill_(3)\nfor _ in range(3):\n    scope()",
        f"held = [torch.zeros{HALF}]\nfor _ in range(3):\n    held[0] = None\n    held[0] = torch.zeros{HALF}",
        f"for _ in range(3):\n    dist.all_reduce(torch.zeros{HALF})",
        f"for _ in range(3):\n    work = dist.all_reduce(torch.zeros{HALF}, async_op=True)\n    work.wait()",
        f"for _ in range(3):\n    torch.launch(lambda t, tl: None, torch.zeros{HALF})",
        f"for _ in range(3):\n    a = torch.zeros{HALF}\n    torch.launch(lambda tl, a=a: None)\n    del a",
    ],
    ids=["del", "rebound", "scope", "item", "all_reduce", "kept work", "launch", "closure"],
)
def test_dropped_tensors_are_freed(tmp_path, body):
    ok(worker(tmp_path, FILLER + body))


def test_out_of_memory_lists_the_largest_tensors(tmp_path):
    body = f"{FILLER}a, b = torch.zeros{HALF}, torch.zeros((2, 7), dtype='f16')\nc = torch.zeros{HALF}"
    done = worker(tmp_path, body)
    assert (done.outcome.exit_code, done.outcome.error.kind) == (3, "OutOfMemoryError")
    assert done.outcome.error.message.startswith(
        "a tensor of 512 bytes a cube does not fit cube 0: 256 bytes of its HBM are left; use a smaller size or raise "
        "cube.hbm_MiB_per_pe; the largest tensors: tensor 0: (2, 261888) f32, 2095104 bytes; "
        "tensor 1: (2, 128) f32, 1024 bytes; tensor 2: (2, 7) f16, 28 bytes (rank 0, host script, at 0 ps)"
    )


def test_a_tensor_is_kept_while_a_kernel_uses_it(tmp_path):
    """Dropped after the launch; the next one of its size must lie elsewhere until the kernel has ended."""
    body = """
def add_one(t, tl):
    here = t + 16 * tl.program_id(1)
    tile = tl.load(here, 4)
    tl.store(here, tile + tile)
first = torch.ones((2, 4))
work = torch.launch(add_one, first, async_op=True)
del first
second = torch.ones((2, 4))
work.wait()
third = torch.ones((2, 4))
assert (second.numpy() == 1).all()
"""
    assert offsets(ok(worker(tmp_path, body))) == [0, 256, 0]


CYCLES = """
import gc

class Node:
    pass

def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group()
    for turn in range(40):
        node = Node()
        node.self, node.tensor = node, torch.full((2, 8), turn, dtype="i32")
        shared = torch.full((2, 8), turn, dtype="i32")
        node.shared = {"shared": shared}
        dist.all_reduce(shared)
        junk = [[[i] for i in range(50)] for _ in range(50)]
        del node, shared
        if turn == rank + 5:
            gc.collect()
    assert not gc.isenabled()
"""


def test_a_tensor_in_a_cycle_stays_allocated(tmp_path):
    done = ok(run(*FLAGS, script_file(tmp_path, CYCLES)))
    assert gc.isenabled()
    assert offsets(done) == [256 * number for number in range(80)]


@pytest.mark.processes
def test_the_digest_equals_that_of_local(tmp_path):
    """Memory is taken again and tensors lie in cycles."""
    source = CYCLES.replace("        if turn", "        again = torch.ones((2, 99))\n        if turn")
    path = script_file(tmp_path, source)
    assert len({launched(*FLAGS, "--engine", engine, path).digest for engine in ("inproc", "local")}) == 1
