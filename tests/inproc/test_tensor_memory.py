"""Memory of a script's tensors: what it drops returns, alike on every engine; an error lists the largest holders."""

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


def worker(folder, body, *flags):
    lines = ["dist = torch.distributed", "dist.init_process_group()", *body.strip().splitlines()]
    source = "\n    ".join(["def worker(rank, world_size, torch):", *lines])
    return run(*(flags or ONE_MIB), "--no-verify-data", script_file(folder, source + "\n"))


def test_out_of_memory_lists_the_largest_tensors(tmp_path):
    body = f"{FILLER}a, b = torch.zeros{HALF}, torch.zeros((2, 7), dtype='f16')\nc = torch.zeros{HALF}"
    done = worker(tmp_path, body)
    assert (done.outcome.exit_code, done.outcome.error.kind) == (3, "OutOfMemoryError")
    assert done.outcome.error.message.startswith(
        "a tensor of 512 bytes a cube does not fit cube 0: 256 bytes of its HBM are left; use a smaller size or raise "
        "cube.hbm_MiB_per_pe; the largest tensors: tensor 0: (2, 261888) f32, 2095104 bytes; "
        "tensor 1: (2, 128) f32, 1024 bytes; tensor 2: (2, 7) f16, 28 bytes (rank 0, host script, at 0 ps)"
    )


DROPPED = """
import gc


class Node:
    pass


def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group()
    for turn in range(20):
        node = Node()
        node.tensor, node.self = torch.ones((2, 64)), node
        torch.launch(lambda t, tl: tl.load(t, 4), torch.ones((2, 64)))
        dist.all_reduce(torch.ones((2, 64)))
        if turn == rank + 5:
            gc.collect()
"""
"""Each turn makes three tensors: one in a reference cycle, two that are dropped after a launch."""


def offsets(done: Run, rank: int) -> list[int]:
    """By creation number: the offset of each tensor in its cube's HBM."""
    return [PhysAddr.decode(each.segments[0].pa).offset for each in done.allocations(rank)]


def test_dropped_tensors_return_and_tensors_in_cycles_stay(tmp_path):
    done = run(*FLAGS, script_file(tmp_path, DROPPED))
    assert done.outcome.error is None
    expected = [256 * offset for turn in range(20) for offset in (turn, turn + 1, turn + 1)]
    assert [offsets(done, rank) for rank in range(2)] == [expected] * 2


@pytest.mark.processes
def test_the_digest_equals_that_of_local(tmp_path):
    path = script_file(tmp_path, DROPPED)
    assert len({launched(*FLAGS, "--engine", engine, path).digest for engine in ("inproc", "local")}) == 1


RETURNS = {
    "del": f"a = torch.zeros{HALF}\ndel a\nb = torch.zeros((2, 256))",
    "rebound": f"for _ in range(9):\n    a = torch.zeros{HALF}",
    "temporary": f"for _ in range(9):\n    torch.ones{HALF}.cpu()",
    "scope": "def inner():\n    torch.ones((2, 256))\ninner()\ninner()",
    "launched": "for _ in range(9):\n    torch.launch(lambda t, tl: tl.load(t, 4), torch.ones((2, 256)))",
    "collective": "for _ in range(9):\n    dist.all_reduce(torch.ones((2, 256)))",
    "work kept": f"""
works = []
for _ in range(9):
    works.append(dist.all_reduce(torch.ones{HALF}, async_op=True))
    works[-1].wait()""",
    "caught": """
for _ in range(9):
    try:
        a = torch.ones((2, 256))
        raise ValueError
    except ValueError:
        del a""",
}


@pytest.mark.parametrize("name", RETURNS)
def test_memory_returns_when_the_script_drops_a_tensor(tmp_path, name):
    done = worker(tmp_path, FILLER + RETURNS[name])
    assert done.outcome.error is None


STAYS = {
    "queued": f"works = [dist.all_reduce(torch.ones{HALF}, async_op=True) for _ in range(2)]\ntorch.ones((2, 1))",
    "running": """
work = torch.launch(lambda t, tl: tl.load(t, 4), torch.ones((2, 256)), async_op=True)
torch.ones((2, 1))""",
}


@pytest.mark.parametrize("name", STAYS)
def test_a_tensor_of_a_queued_launch_stays(tmp_path, name):
    done = worker(tmp_path, FILLER + STAYS[name])
    assert done.outcome.error.kind == "OutOfMemoryError"
