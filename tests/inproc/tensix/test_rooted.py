"""Operations that name a chip (broadcast, gather, scatter, reduce, send/receive), beside NumPy on lines and rings."""

import json
from pathlib import Path

import pytest
from runs import Run, run, script_file

from sipsim.records.report import SEND_RECV

SCRIPT = """
import json
import sys

import numpy as np

ROOTS, LAST, OPTIONS = json.loads(sys.argv[1])

def elements(rank, world_size):
    return np.random.default_rng(rank).integers(-4, 4, (32 * world_size, 64)).astype(np.float32)

def worker(rank, world_size, tt):
    each = [elements(chip, world_size) for chip in range(world_size)]
    tensor = tt.tensor(each[rank], tt.MemoryConfig("block_sharded"))
    for root in ROOTS:
        far = (root + LAST) % world_size
        slices = np.split(each[root], world_size)
        right = {
            "broadcast": (each[root], True),
            "gather": (np.concatenate(each, 1), rank == root),
            "scatter": (slices[rank], True),
            "reduce": (sum(each), rank == root),
            "send_receive": (each[root], rank == far),
        }
        given = {"gather": (1,), "send_receive": (far,)}
        for name, (values, is_here) in right.items():
            found = getattr(tt, name)(tensor, root, *given.get(name, ()), memory_config="dram", **OPTIONS)
            assert (found is not None) == is_here, f"{name} at {root}: a result is at chip {rank}, or none"
            if is_here:
                assert np.array_equal(tt.to_numpy(found), values), f"{name} at {root}: wrong on chip {rank}"
"""
SYSTEMS = [["tt_line", 3], ["tt_ring", 4], ["tt_ring", 5]]
"""Topologies and sizes: on an even ring one chip is equally far in both directions."""


def done(tmp_path: Path, topology: str, count: int, script: str, *arguments: str) -> Run:
    words = ("--chip", "wormhole", "--sips", str(count), "--topology", topology)
    return run(*words, script_file(tmp_path, script), *arguments)


@pytest.mark.parametrize(("topology", "count"), SYSTEMS)
def test_results_are_those_of_numpy(tmp_path: Path, topology: str, count: int) -> None:
    options = {"topology": "ring" if topology == "tt_ring" else "line"}
    told = json.dumps([[0, count - 1, count // 2], count - 1, options])
    document = done(tmp_path, topology, count, SCRIPT, told).document
    assert document["error"] is None
    assert {(run["collective"], run["op"]) for run in document["runs"]} == {
        ("broadcast", "none"), ("gather", "none"), ("scatter", "none"), ("reduce", "sum"), (SEND_RECV, "none")
    }  # fmt: skip


def test_a_broadcast_crosses_each_link_once(tmp_path: Path) -> None:
    """A ring of 4: of the three links that a broadcast needs, each carries the tensor once, and no other link does."""
    script = """
import numpy as np
def worker(rank, world_size, tt):
    tt.broadcast(tt.tensor(np.ones((256, 256), np.float32)), 0, topology="ring")
"""
    (row,) = done(tmp_path, "tt_ring", 4, script).document["runs"]
    full = [link for link in row["links"] if link["payload_bytes"] >= 256 * 256 * 4]
    assert len(full) == 3
    assert sum(link["payload_bytes"] for link in row["links"]) < 3.2 * 256 * 256 * 4


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("tt.broadcast(t, 4)", "src=4"),
        ("tt.gather(t, 0, 9)", "dim=9"),
        ("tt.send_receive(t, 1, 1)", "dst=1"),
        ("tt.reduce(t, 0, chips=[1, 2])", "SIP 0"),
        ("tt.scatter(tt.mesh_tensor(np.ones((96, 64), np.float32), chips=[0, 1, 2]), 0)", "tensor="),
    ],
)
def test_arguments_that_do_not_fit_are_named(tmp_path: Path, call: str, words: str) -> None:
    script = """
import numpy as np
def worker(rank, world_size, tt):
    t = tt.tensor(np.ones((96, 64), np.int32))
    CALL
"""
    error = done(tmp_path, "tt_line", 3, script.replace("CALL", call)).document["error"]
    assert error["kind"] == "KernelMisuse"
    assert words in error["message"]
