"""Memory of a script's tensors: what it drops returns, alike on every engine; an error lists the largest holders."""

import pytest
from launch import launched
from runs import run, script_file

FLAGS = ("--sips", 2, *("--set", "sip.cube_mesh.w=2"), *("--set", "sip.cube_mesh.h=1"))
ONE_MIB = (*FLAGS, "--set", "cube.hbm_MiB_per_pe=1")
FILLER = "filler = torch.zeros((2, 2**18 - 256), dtype='f32')\n"
"""In f32: all but 1 KiB of the HBM of each of two cubes."""
HALF = "((2, 128), dtype='f32')"
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
        "a tensor of 512 bytes per PE does not fit HBM of cube 0, PE 0: 256 bytes are free; use a smaller size or "
        "raise cube.hbm_MiB_per_pe; the largest tensors: tensor 0: (2, 261888) f32, 2095104 bytes; "
        "tensor 1: (2, 128) f32, 1024 bytes; tensor 2: (2, 7) f16, 28 bytes (rank 0, host script, at "
    )


SCRIPTS = {
    "cycles": """
        node = Node()
        node.tensor = tensor
        alive = [*alive[-3:], tensor]
        junk = [cycle() for _ in range(200 * (rank + 1))]""",
    "collections": """
        node = Node()
        node.tensor = tensor
        alive = [*alive[-3:], tensor]
        if turn == rank + 5:
            gc.collect()
        if turn == 30:
            gc.disable() if rank else gc.set_threshold(1)""",
    "weak keys": """
        layer = Node()
        cache[layer] = tensor
        if turn % 5 == 0:
            cache.clear()
        junk = [cycle() for _ in range(200 * (rank + 1))]""",
    "a thread of cycles": """
        if turn == 0:
            stop = threading.Event()
            thread = threading.Thread(target=lambda: [cycle() for _ in iter(stop.is_set, True)])
            thread.start()
        alive = [tensor]
        if turn == 39:
            stop.set()
            thread.join()""",
}
"""What a script does with each of 40 tensors: together they need eight times the memory that there is."""
WHOLE_SCRIPT = """
import gc
import threading
import weakref


class Node:
    def __init__(self):
        self.self = self


def cycle():
    made = []
    made.append(made)


def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group()
    cache, alive = weakref.WeakKeyDictionary(), []
    for turn in range(40):
        tensor = torch.full((2, 50_000), turn, dtype="i32")
        work = dist.all_reduce(torch.ones((2, 4)), async_op=True)
        work.wait()
        torch.launch(lambda t, tl: tl.load(t, 4), tensor)
        {body}
    gc.enable()
    gc.set_threshold(700)
"""


@pytest.mark.processes
@pytest.mark.parametrize("name", [*list(SCRIPTS)[:-1], pytest.param([*SCRIPTS][-1], marks=pytest.mark.slow)])
def test_the_digest_does_not_depend_on_garbage_collection(tmp_path, name):
    """Collections come at other times when one process runs all SIPs."""
    path = script_file(tmp_path, WHOLE_SCRIPT.replace("{body}", SCRIPTS[name].strip()))
    flags = (*ONE_MIB, "--no-verify-data", "--engine")
    runs = [launched(*flags, engine, path) for engine in ("inproc", "local")]
    assert [done.exit_code for done in runs] == [0, 0]
    assert len({done.digest for done in runs}) == 1


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
    "refused": """
for _ in range(9):
    try:
        dist.all_reduce(torch.ones((2, 256)), op="max")
    except ValueError:
        continue""",
    "cycle": """
for _ in range(9):
    a = [torch.ones((2, 256))]
    a.append(a)
    del a""",
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
work = torch.launch(lambda t, tl: tl.load(t, 4), torch.ones((2, 256), dtype='f32'), async_op=True)
torch.ones((2, 1))""",
}


@pytest.mark.parametrize("name", STAYS)
def test_a_tensor_of_a_queued_launch_stays(tmp_path, name):
    # With timed maps and copies the launches would end meanwhile.
    done = worker(tmp_path, FILLER + STAYS[name], *ONE_MIB, "--set", "host_copies=free")
    assert done.outcome.error.kind == "OutOfMemoryError"
