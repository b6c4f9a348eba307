"""Host script ``ccl``: collective operations on the fabric, with checked data.

For each size, all chips start ``calls`` back-to-back calls; chip 0 starts ``skew_ns`` before the others. If
``is_split``, the reduce-scatter and the all-gather of an all-reduce start separately, as the published time is the sum
of both times. Sizes are bytes of the undivided tensor of bf16 tiles: the result of an all-gather, or the source of each
chip for other operations.
"""

from typing import Any

import numpy as np

from launcher.bench.programs.common import report, settings
from sipsim.chips.tensix.ccl.tensors import TILE
from sipsim.chips.tensix.dataflow import Dataflow
from sipsim.core.dtypes import DTYPES
from sipsim.core.errors import SimulationError

BF16 = DTYPES["bf16"]
ROW_BYTES = TILE * BF16.itemsize
PARTS = {"all_reduce": ("reduce_scatter", "all_gather")}
"""The operations that make up a composite operation."""
FIRST_NS, SLOWEST_NS_PER_BYTE, LEAST_NS = 20_000, 8, 200_000
"""Start of the first operation in ns; each next start is ``LEAST_NS`` + bytes * ``SLOWEST_NS_PER_BYTE`` later."""


def late(until_ns: float, df: Dataflow) -> None:
    """Run a kernel that does nothing until simulated time ``until_ns``."""
    df.spend_until(until_ns)


def elements(rank: int, rows: int) -> "np.ndarray[Any, Any]":
    """Return the source tensor of a chip: small whole numbers, of which sums are exact in bf16."""
    return np.random.default_rng(rank).integers(0, 4, size=(rows, TILE)).astype(BF16.numpy)


def expected(op: str, rank: int, world_size: int, rows: int) -> "np.ndarray[Any, Any]":
    """Return the expected result of operation ``op`` on chip ``rank``."""
    each = [elements(chip, rows) for chip in range(world_size)]
    if op == "all_gather":
        return np.concatenate(each)
    if op == "all_to_all":
        return np.concatenate([np.split(one, world_size)[rank] for one in each])
    total = np.sum([one.astype(np.float32) for one in each], axis=0).astype(BF16.numpy)
    return total if op == "all_reduce" else np.split(total, world_size)[rank]


def worker(rank: int, world_size: int, tt: Any) -> None:
    """Run on each chip; report ``kernels_ns`` of each size, with one time per separately started operation."""
    chosen = settings()
    op, begin_ns = chosen["op"], FIRST_NS + (tt.params.ccl.skew_ns if rank else 0)
    fabric = tt.open_fabric(chosen["topology"], num_links=chosen["links"], payload_bytes=chosen["packet_bytes"])
    steps = PARTS.get(op, (op,)) if chosen["is_split"] else (op,)
    for nbytes in chosen["sizes"]:
        rows = nbytes // ROW_BYTES // (world_size if op == "all_gather" else 1)
        result = tt.tensor(elements(rank, rows), slices=1 if op == "all_gather" else world_size)
        kernels_ns = []
        for step in steps:
            begin_at(begin_ns, f"{op} of {nbytes} B", tt)
            result = called(step, result, chosen, fabric, tt)
            tt.finish()
            kernels_ns.append(tt.now_ns() - begin_ns)
            begin_ns += LEAST_NS + SLOWEST_NS_PER_BYTE * chosen["calls"] * nbytes
        report(nbytes=nbytes, rank=rank, kernels_ns=kernels_ns)
        if not np.array_equal(tt.to_numpy(result), expected(op, rank, world_size, rows)):
            raise SimulationError(f"{op} of {nbytes} B: chip {rank} of {world_size} has wrong elements")


def begin_at(begin_ns: float, what: str, tt: Any) -> None:
    """Wait until simulated time ``begin_ns``."""
    program = tt.create_program()
    tt.create_kernel(program, late, tt.workers[-1], args=(begin_ns,))
    tt.enqueue_program(program)
    tt.finish()
    if tt.now_ns() != begin_ns:
        raise SimulationError(f"{what}: the previous operation had not ended at {begin_ns} ns of simulated time")


def called(op: str, tensor: Any, chosen: dict[str, Any], fabric: Any, tt: Any) -> Any:
    """Enqueue the calls, and return the result tensor of the last call."""
    for _ in range(chosen["calls"]):
        result = getattr(tt, op)(tensor, 0, fabric=fabric, **chosen["options"])
    return result
