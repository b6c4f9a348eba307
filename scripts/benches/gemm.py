"""A matrix product over the PEs of a SIP: A and C row by row on cubes and PEs, a copy of B on each PE.

    ahbm-launch --sips 1 scripts/benches/gemm.py M K N [dtype [cubes [pes]]]

M rows in all, which all PEs share equally. It prints the time from the first kernel's start to the last one's end,
what part of the arrays' peak that is, and what it could be: the longest of the array's stall-free cycles (as SCALE-Sim
counts them), of the time in which PE_DMA moves each element of A, B and C once, and of that in which the TCM's read
port gives the tokens their operands. Where more than A and B is loaded, since they do not stay in the room, it says
how much. The time of commands that is neither cycles nor fill and drain is the gap, by what the array waited for.
Elements are small integers, so that sums are exact.
"""

import sys
from typing import Any, NamedTuple

import numpy as np

from sipsim.arithmetic.operations import cast
from sipsim.dtypes import DTYPES
from sipsim.host.dp_policy import DPPolicy
from sipsim.pe.gemm.array import Product
from sipsim.pe.gemm.composite import GemmTimes
from sipsim.pe.gemm.tiling import tiling
from sipsim.units import drain_ps, gbytes_per_s_to_bps

LARGEST = 2
MOST_LOADED = 1.1
PARTS_OF_THE_ARRAY = ("cycles", "fill and drain")


class Bound(NamedTuple):
    """Least times of a PE's part of the product, in ps: at the peak, of the array, of PE_DMA, of the TCM's read port.

    ``loaded``: bytes that are loaded, against those of A and B.
    """

    peak_ps: int
    array_ps: int
    memory_ps: int
    port_ps: int
    loaded: float

    @property
    def least_ps(self) -> int:
        """What bounds it."""
        return max(self.array_ps, self.memory_ps, self.port_ps)

    @property
    def what(self) -> str:
        """Its name."""
        times = {"the array": self.array_ps, "memory": self.memory_ps, "TCM port": self.port_ps}
        return max(times, key=times.__getitem__)


def bound(components: Any, product: Product, dtype: str, out: str) -> Bound:
    """The bound of a product on one PE; ``components`` as in ``components.yaml``."""
    size, out_size = DTYPES[dtype].itemsize, DTYPES[out].itemsize
    times = GemmTimes(components)
    cut = tiling(times.array, product, times.limits(DTYPES[dtype], DTYPES[out]))
    port_GBps = components.tcm.params.get("bandwidth_GBps")
    fetched = sum(token.fetch_bytes for token in cut.tokens)
    port_ps = drain_ps(fetched, gbytes_per_s_to_bps(port_GBps)) if port_GBps else 0
    m, k, n = product
    nbytes = (m * k + k * n) * size + m * n * out_size
    bps = gbytes_per_s_to_bps(min(components.pe_dma.bandwidth_GBps, components.hbm.bandwidth_GBps))
    array_ps, loaded = times.array.cycles(product) * times.cycle_ps, cut.load_bytes / ((m * k + k * n) * size)
    return Bound(times.peak_ps(product), array_ps, drain_ps(nbytes, bps), port_ps, loaded)


def product_kernel(a: int, b: int, c: int, rows: int, k: int, n: int, sizes: tuple[int, int], tl: Any) -> None:
    """The rows of one PE."""
    at = tl.program_id(1) * sizes[1] + tl.program_id(0)
    size = a.dtype.itemsize
    tl.gemm(a + at * rows * k * size, b, c + at * rows * n * size, (rows, k, n))


def worker(rank: int, world_size: int, torch: Any) -> None:
    """The whole bench, on rank 0."""
    if rank:
        return
    m, k, n = map(int, sys.argv[1:4])
    dtype, cubes, pes = [*sys.argv[4:], *("f16", "16", "8")[len(sys.argv) - 4 :]]
    sip, sizes = torch._sip, (int(cubes), int(pes))
    split = DPPolicy(cube="row_wise", pe="row_wise", num_cubes=sizes[0], num_pes=sizes[1])
    copies = DPPolicy(cube="replicate", pe="replicate", num_cubes=sizes[0], num_pes=sizes[1])
    rng = np.random.default_rng(1)
    given = [rng.integers(-LARGEST, LARGEST + 1, shape).astype(np.int8) for shape in ((m, k), (k, n))]
    a, b = torch.zeros((m, k), dtype=dtype, dp=split), torch.zeros((k, n), dtype=dtype, dp=copies)
    for tensor, array in zip((a, b), given, strict=True):
        tensor.copy_(torch.from_numpy(array))
    c = torch.zeros((m, n), dtype=dtype, dp=split)
    rows = m // (sizes[0] * sizes[1])
    places = {"cubes": range(sizes[0]), "pes": range(sizes[1])}
    work = torch.launch(product_kernel, a, b, c, rows, k, n, sizes, **places, async_op=True)
    work.wait()
    sums = given[0].astype(np.float64) @ given[1].astype(np.float64)
    wrong = int((c.numpy() != cast(sums.astype(DTYPES[dtype].accumulator.numpy), DTYPES[dtype])).sum())
    start_ps, end_ps = work.kernels_ps
    report(sip, Product(rows, k, n), dtype, sizes[0] * sizes[1], end_ps - start_ps, wrong)


def report(sip: Any, product: Product, dtype: str, pes: int, ps: int, wrong: int) -> None:
    """Print what it reached."""
    least = bound(sip.plan.resolved.components, product, dtype, dtype)
    tflops = 2 * product.macs * pes / ps
    rows, k, n = product
    print(f"{rows * pes} x {k} x {n} {dtype} on {pes} PEs, {rows} rows each: {ps / 1e6:.3f} us, {tflops:.3f} TFLOP/s")
    print(f"  {least.peak_ps / ps:.1%} of the peak; bound by {least.what}: {least.peak_ps / least.least_ps:.1%}")
    print(f"  {least.least_ps / ps:.1%} of the bound; wrong: {wrong}")
    if least.loaded > MOST_LOADED:
        print(f"  {least.loaded:.2f} times the bytes of A and B are loaded: not all of them stay in pe_gemm.buffer_KiB")
    spent = {name: each for name, each in sip.recorder.composite_ps.items() if name != "peak"}
    gap = {name: each for name, each in spent.items() if name not in PARTS_OF_THE_ARRAY and each}
    whole = sum(spent.values()) or 1
    first = sorted(gap.items(), key=lambda each: -each[1])
    print("  the array waits for:", ", ".join(f"{name} {each / whole:.1%}" for name, each in first))
