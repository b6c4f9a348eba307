"""A matrix product over the PEs of a SIP: A and C row by row on cubes and PEs, a copy of B on each PE.

    ahbm-launch --sips 1 scripts/benches/gemm.py --m 32768 --k 2048 --n 256 --dtype bf16

M rows in all, which all PEs share equally. It prints the time from the first kernel's start to the last one's end,
what part of the arrays' peak that is, and what it could be: the longest of the array's stall-free cycles (as SCALE-Sim
counts them), of the time in which PE_DMA, or HBM if that is slower, moves each element of A, B and C once, and of that
in which the TCM's read port gives the tokens their operands. Where more than A and B is loaded, since they do not stay
in the room, it says how much. The run prints the time of the commands below its table: time that is neither
cycles nor fill and drain is time in which the array waited. Elements are small integers, so that sums are exact.
"""

import argparse
from typing import Any, NamedTuple

import numpy as np

from sipsim.chips.ahbm.gemm.engine import GemmTimes
from sipsim.chips.ahbm.gemm.tiling import Product, tiling
from sipsim.chips.ahbm.host.layout import DPPolicy
from sipsim.chips.ahbm.memory.hbm import HBM_CONTROLLER
from sipsim.chips.ahbm.memory.presets import BURST_BYTES, PSEUDO_CHANNELS, presets
from sipsim.core.arithmetic.operations import cast
from sipsim.core.dtypes import DTYPES
from sipsim.core.units import drain_ps, gbytes_per_s_to_bps

LARGEST = 2
MOST_LOADED = 1.1


class Sizes(NamedTuple):
    """A product of ``m`` x ``k`` and ``k`` x ``n`` on ``pes`` PEs of each of ``cubes`` cubes, which share its rows."""

    m: int
    k: int
    n: int
    dtype: str
    cubes: int
    pes: int

    @property
    def programs(self) -> int:
        """PEs that have rows."""
        return self.cubes * self.pes

    @property
    def part(self) -> Product:
        """Of a PE."""
        return Product(self.m // self.programs, self.k, self.n)


def sizes() -> Sizes:
    """Those of the command line.

    Raises:
        ValueError: for rows that the PEs cannot share equally.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--m", type=int, default=4096, help="rows of A and C, of all PEs together")
    parser.add_argument("--k", type=int, default=512, help="columns of A, rows of B")
    parser.add_argument("--n", type=int, default=256, help="columns of B and C")
    parser.add_argument("--dtype", choices=("f16", "bf16", "f32", "i32", "i8"), default="f16")
    parser.add_argument("--cubes", type=int, default=16)
    parser.add_argument("--pes", type=int, default=8, help="of each cube")
    found = Sizes(**vars(parser.parse_args()))
    if found.m % found.programs:
        raise ValueError(f"{found.m} rows cannot be shared equally by {found.programs} PEs")
    return found


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
    memory_ps = max(drain_ps(nbytes, bps), channels_ps(components.hbm, nbytes))
    array_ps, loaded = times.array.cycles(product) * times.cycle_ps, cut.load_bytes / ((m * k + k * n) * size)
    return Bound(times.peak_ps(product), array_ps, memory_ps, port_ps, loaded)


def channels_ps(hbm: Any, nbytes: int) -> int:
    """What the channels of a PE's slice need for so many bytes; 0 of a memory without channels."""
    if hbm.kind != HBM_CONTROLLER:
        return 0
    at_a_time = BURST_BYTES * PSEUDO_CHANNELS * int(hbm.params["channels"])
    return -(-nbytes // at_a_time) * presets()[hbm.params["preset"]].timings.burst


def product_kernel(a: int, b: int, c: int, part: Product, pes: int, tl: Any) -> None:
    """The rows of one PE; ``pes``: of each cube."""
    at = tl.program_id(1) * pes + tl.program_id(0)
    size = a.dtype.itemsize
    tl.gemm(a + at * part.m * part.k * size, b, c + at * part.m * part.n * size, tuple(part))


def worker(rank: int, world_size: int, torch: Any) -> None:
    """The whole bench, on rank 0."""
    size = sizes()
    if rank:
        return
    split = DPPolicy(cube="row_wise", pe="row_wise", num_cubes=size.cubes, num_pes=size.pes)
    copies = DPPolicy(cube="replicate", pe="replicate", num_cubes=size.cubes, num_pes=size.pes)
    rng = np.random.default_rng(1)
    shapes = (size.m, size.k), (size.k, size.n)
    given = [rng.integers(-LARGEST, LARGEST + 1, shape).astype(np.int8) for shape in shapes]
    a, b = (torch.zeros(shape, dtype=size.dtype, dp=dp) for shape, dp in zip(shapes, (split, copies), strict=True))
    for tensor, array in zip((a, b), given, strict=True):
        tensor.copy_(torch.from_numpy(array))
    c = torch.zeros((size.m, size.n), dtype=size.dtype, dp=split)
    places = {"cubes": range(size.cubes), "pes": range(size.pes)}
    work = torch.launch(product_kernel, a, b, c, size.part, size.pes, **places, async_op=True)
    work.wait()
    sums = given[0].astype(np.float64) @ given[1].astype(np.float64)
    kind = DTYPES[size.dtype]
    wrong = int((c.numpy() != cast(sums.astype(kind.accumulator.numpy), kind)).sum())
    start_ps, end_ps = work.kernels_ps
    report(size, bound(torch.components, size.part, size.dtype, size.dtype), end_ps - start_ps, wrong)


def report(size: Sizes, least: Bound, ps: int, wrong: int) -> None:
    """Print what it reached."""
    tflops = 2 * size.part.macs * size.programs / ps
    what = f"{size.m} x {size.k} x {size.n} {size.dtype} on {size.programs} PEs, {size.part.m} rows each"
    print(f"{what}: {ps / 1e6:.3f} us, {tflops:.3f} TFLOP/s")
    print(f"  {least.peak_ps / ps:.1%} of the peak; bound by {least.what}: {least.peak_ps / least.least_ps:.1%}")
    print(f"  {least.least_ps / ps:.1%} of the bound; wrong: {wrong}")
    if least.loaded > MOST_LOADED:
        print(f"  {least.loaded:.2f} times the bytes of A and B are loaded: not all of them stay in pe_gemm.buffer_KiB")
