"""Operations on several fabrics of a chip, and chips that are late: sums stay those of the fabric's chips."""

import json
from pathlib import Path

import pytest
from runs import run, script_file

SCRIPT = """
import json
import sys

import numpy as np

OP, LATE, FABRICS, OPTIONS = json.loads(sys.argv[1])
ROUNDS = 2

def late(ns, df):
    df.instructions(ns)

def worker(rank, world_size, tt):
    mine = [each for each in FABRICS if rank in each[1]]
    opened = [tt.open_fabric(topology, chips=chips, payload_bytes=6144) for topology, chips in mine]
    if str(rank) in LATE:
        program = tt.create_program()
        tt.create_kernel(program, late, tt.workers[0], args=(LATE[str(rank)],))
        tt.enqueue_program(program)
    found = []
    for number in range(ROUNDS):
        for fabric, (_, chips) in zip(opened, mine):
            elements = np.full((len(chips) * 64, 32), 10**rank + number, np.int32)
            found.append((chips, number, getattr(tt, OP)(tt.tensor(elements), fabric=fabric, **OPTIONS)))
    for chips, number, result in found:
        each = [10**chip + number for chip in chips]
        right = np.repeat(each, len(chips) * 64) if OP == "all_gather" else [sum(each)]
        elements = tt.to_numpy(result)
        assert (elements == np.reshape(right, (-1, 1))).all(), f"{OP} on {chips}: wrong on chip {rank}"
"""
ROWS = [["line", [0, 1]], ["line", [2, 3]]]
COLUMNS = [["line", [0, 2]], ["line", [1, 3]]]
GRID = ("mesh_2d_no_wrap", 4)
LATE = [{}, {"0": 100_000}, {"3": 100_000}, {"1": 50_000, "2": 100_000}]
MACHINES = {"rows and columns": (GRID, ROWS + COLUMNS)}
"""All chips make the same tensors in the same order, as they have to."""


def error_of(tmp_path: Path, machine: tuple[str, int], told: object, *flags: str) -> str:
    """What went wrong in a run; empty if nothing did."""
    topology, chips = machine
    flags = ("--chip", "wormhole", "--sips", str(chips), "--topology", topology, *flags)
    error = run(*flags, script_file(tmp_path, SCRIPT), json.dumps(told)).document["error"]
    return "" if error is None else f"{error['kind']}: {error['message']}"


@pytest.mark.parametrize("late", LATE, ids=str)
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("op", ["reduce_scatter", "all_reduce"])
def test_fabrics_of_a_chip_share_nothing(tmp_path: Path, name: str, op: str, late: dict[str, int]) -> None:
    machine, fabrics = MACHINES[name]
    assert error_of(tmp_path, machine, (op, late, fabrics, {})) == ""
