"""Operations on tensors of chips of tiles, beside NumPy's. Arguments: fabric, type, operations."""

import sys

import numpy as np

from sipsim.core.dtypes import DTYPES

FABRIC, DTYPE, OPS = sys.argv[1], sys.argv[2], sys.argv[3].split(",")


def expected(op, rank, each):
    if op == "all_gather":
        return np.concatenate(each, 0)
    if op == "all_to_all":
        return np.concatenate([np.split(one, len(each), 0)[rank] for one in each], 0)
    total = sum(one.astype(np.int64) for one in each).astype(each[0].dtype)
    return total if op == "all_reduce" else np.split(total, len(each), 0)[rank]


def worker(rank, world_size, tt):
    shape = (world_size * 32, 64)
    each = [np.random.default_rng(chip).integers(0, 4, size=shape) for chip in range(world_size)]
    each = [values.astype(DTYPES[DTYPE].numpy) for values in each]
    tensor = tt.tensor(each[rank], "dram")
    for op in OPS:
        result = tt.to_numpy(getattr(tt, op)(tensor, topology=FABRIC))
        assert np.array_equal(result, expected(op, rank, each)), op
        print(f"rank {rank}: {op} by {tt.now_ns()} ns")
