"""Kernels run in the namespace of their script: its arguments, modules and random states, apart for each rank."""

import sys

import numpy as np
import pytest
from launch import launched
from runs import run, script_file

FLAGS = ("--sips", 2, "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1")

SCRIPT = """
import random
import sys
import numpy as np
import early_counter

def draw(t, rank, tl):
    import late_counter
    assert sys.argv[1:] == ["--size", "3"], sys.argv
    assert late_counter.count() == early_counter.count() == 1 + tl.program_id(1)
    values = np.array([random.random(), np.random.rand()], np.float32)
    drawn[tl.program_id(1)] = values

drawn = {}

def worker(rank, world_size, torch):
    torch.distributed.init_process_group()
    tensor = torch.zeros((2, 2))
    torch.launch(draw, tensor, rank)
    import late_counter
    assert late_counter.count() == 3
    out = torch.zeros((2, 3))
    out.copy_(torch.from_numpy(np.array([[*drawn[cube], random.random()] for cube in range(2)])))
    torch.distributed.all_reduce(out)
    out.copy_(torch.from_numpy(np.array([[*drawn[cube], random.random()] for cube in range(2)])))
"""
COUNTER = "STATE = []\n\ndef count():\n    STATE.append(0)\n    return len(STATE)\n"


def script(folder):
    for name in ("early_counter.py", "late_counter.py"):
        script_file(folder, COUNTER, name)
    return script_file(folder, SCRIPT)


def test_arguments_modules_and_random_states(tmp_path):
    argv, path = sys.argv[:], sys.path[:]
    done = run(*FLAGS, script(tmp_path), "--size", 3)
    assert done.outcome.error is None, f"{done.outcome.error.message}\n{done.outcome.error.detail}"
    drawn = [done.tensor(rank)[cube, column] for rank in range(2) for cube in range(2) for column in range(3)]
    assert len(set(drawn)) == len(drawn)
    assert (sys.argv, sys.path) == (argv, path)
    assert not [name for name in sys.modules if name.endswith("_counter")]
    assert run(*FLAGS, script(tmp_path), "--size", 3).results() == done.results()


def test_random_states_of_the_caller_are_unchanged(tmp_path):
    np.random.seed(5)
    run(*FLAGS, script(tmp_path), "--size", 3)
    assert np.random.rand() == np.random.RandomState(5).rand()


def test_kernels_of_an_algorithm_see_the_arguments_of_the_script(tmp_path):
    """Several switches between the ranks: each recv waits for the other rank."""
    source = """
import sys

def exchange(t, tl):
    assert sys.argv[1:] == ["x"]
    for _ in range(4):
        tl.send("global_E", src_addr=t + 8 * tl.program_id(1), shape=4, dtype="f16")
        tl.recv("global_W", 4, "f16")
        assert sys.argv[1:] == ["x"]

def worker(rank, world_size, torch):
    torch.launch(exchange, torch.zeros((2, 4), dtype="f16"))
"""
    done = run(*FLAGS, script_file(tmp_path, source), "x")
    assert done.outcome.error is None, f"{done.outcome.error.message}\n{done.outcome.error.detail}"


@pytest.mark.processes
def test_the_digest_equals_that_of_local(tmp_path):
    digests = {
        launched(*FLAGS, "--engine", engine, script(tmp_path), "--size", 3).digest for engine in ("inproc", "local")
    }
    assert len(digests) == 1
