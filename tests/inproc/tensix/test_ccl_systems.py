"""Operations on whole systems without a fabric of the script: random programs beside NumPy, and what is refused."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from runs import Run, run, script_file
from sweeps import some

EXAMPLES = Path(__file__).resolve().parents[3] / "docs/examples"
SCRIPT = """
import json
import sys

import numpy as np
from sipsim.core.dtypes import DTYPES

SEED, CHIPS, CASES = json.loads(sys.argv[1])

def elements(number, rank, shape, dtype):
    return np.random.default_rng((SEED, number, rank)).integers(0, 4, size=shape).astype(DTYPES[dtype].numpy)

def expected(op, at, each, dim):
    if op == "all_gather":
        return np.concatenate(each, dim)
    if op == "all_to_all":
        return np.concatenate([np.split(one, len(each), dim)[at] for one in each], dim)
    total = sum(one.astype(np.int64) for one in each).astype(each[0].dtype)
    return total if op == "all_reduce" else np.split(total, len(each), dim)[at]

def worker(rank, world_size, tt):
    for number, (op, dtype, shape, dim, memory, options) in enumerate(CASES):
        line = next(each for each in CHIPS[str(options.get("cluster_axis"))] if rank in each)
        each = [elements(number, chip, shape, dtype) for chip in line]
        at = line.index(rank)
        if options.get("cluster_axis") is not None and number % 2 and op != "all_to_all":
            tensor = tt.mesh_tensor(each[at], (None, None), memory)
        else:
            tensor = tt.tensor(each[at], memory)
        found = tt.to_numpy(getattr(tt, op)(tensor, dim, **options))
        right = expected(op, at, each, dim)
        assert found.shape == right.shape, (op, found.shape)
        assert np.array_equal(found, right), f"{op} of {dtype} {shape} along {dim} {options}: wrong on chip {rank}"
"""
OPS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
RING_OF_T3000 = [0, 4, 5, 1, 2, 6, 7, 3]
ROWS_OF_T3000 = [[4, 0, 3, 7], [5, 1, 2, 6]]
ROWS_OF_GALAXY = [list(range(8 * y, 8 * y + 8)) for y in range(4)]


def columns(rows: list[list[int]]) -> list[list[int]]:
    return [list(column) for column in zip(*rows, strict=True)]


SYSTEMS: dict[str, tuple[list[object], dict[str, list[list[int]]], list[int]]] = {
    "n300": (["--topology", "n300"], {"None": [[0, 1]]}, [1]),
    "t3000": (
        ["--topology", "t3000"],
        {"None": [RING_OF_T3000], "0": columns(ROWS_OF_T3000), "1": ROWS_OF_T3000},
        [1],
    ),
    "galaxy": (["--topology", "galaxy"], {"0": columns(ROWS_OF_GALAXY), "1": ROWS_OF_GALAXY}, [1, 2, 4]),
    "t3000 by descriptor": (
        ["--cluster", EXAMPLES / "t3000.yaml"],
        {"None": [RING_OF_T3000], "0": columns(ROWS_OF_T3000), "1": ROWS_OF_T3000},
        [1],
    ),
}
"""Flags, lines by ``cluster_axis``, numbers of links. Lines are in the order in which operations concatenate."""


def program(seed: int, system: str) -> list[Any]:
    """A random program: the lines and operations. It keeps to one fabric of all chips, or one along each axis."""
    _, lines, links = SYSTEMS[system]
    draw = random.Random(f"{system} {seed}")
    is_whole = "None" in lines and (len(lines) == 1 or draw.random() < 0.5)
    options = {"topology": draw.choice(("line", "ring")), "num_links": draw.choice(links)}
    cases = []
    for _ in range(draw.randint(1, 3)):
        axis = None if is_whole else draw.choice((0, 1))
        size, op = len(lines[str(axis)][0]), draw.choice(OPS)
        is_tiled, dim = draw.random() < 0.5, draw.choice((0, 1))
        shape = [32, 32] if is_tiled else [2, 3, 8 * draw.randint(1, 5)]
        shape[dim] *= size if op != "all_gather" else draw.randint(1, 2)
        dtype, memory = draw.choice(("bf16", "f32", "i32")), draw.choice(("dram", "l1"))
        chosen = options | ({} if axis is None else {"cluster_axis": axis})
        cases.append((op, dtype, shape, dim, memory, chosen))
    return [seed, lines, cases]


def error_of(done: Run) -> str:
    error = done.document["error"]
    return "" if error is None else f"{error['kind']}: {error['message']}"


PROGRAMS = [(name, seed) for name in SYSTEMS for seed in range(32)]


@pytest.mark.parametrize(("system", "seed"), some(PROGRAMS, *((name, 0) for name in SYSTEMS), ("galaxy", 5), names=2))
def test_random_programs(tmp_path: Path, system: str, seed: int) -> None:
    told = json.dumps(program(seed, system))
    assert error_of(run(*SYSTEMS[system][0], script_file(tmp_path, SCRIPT), told)) == ""
