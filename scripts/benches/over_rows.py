"""What benches of kernels over the rows of a matrix share: sizes from the command line, layout, times, errors.

A bench is a host script: ``ahbm-launch --sips 1 scripts/benches/softmax.py --rows 1024 --columns 512 --dtype bf16``.
"""

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sipsim.chips.ahbm.host.layout import DPPolicy

BOUNDS = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 5e-6}
"""Of the error, relative to the exact value or to 1 if that is larger: a rounding or two of the type."""
NS_PER_MS = 1e6


class Sizes(NamedTuple):
    """``rows`` are split over ``pes`` PEs of each of ``cubes`` cubes; a program works on ``tile`` rows at a time."""

    rows: int
    columns: int
    dtype: str
    cubes: int
    pes: int
    tile: int

    @property
    def programs(self) -> int:
        """PEs that have rows."""
        return self.cubes * self.pes

    @property
    def split(self) -> DPPolicy:
        """Rows over all PEs."""
        return DPPolicy("row_wise", "row_wise", self.cubes, self.pes)

    @property
    def everywhere(self) -> DPPolicy:
        """A copy on each PE."""
        return DPPolicy("replicate", "replicate", self.cubes, self.pes)


def sizes(description: str) -> Sizes:
    """The sizes that the command line names.

    Raises:
        ValueError: for rows that the PEs cannot share equally.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--columns", type=int, default=512)
    parser.add_argument("--dtype", choices=BOUNDS, default="bf16")
    parser.add_argument("--cubes", type=int, default=16)
    parser.add_argument("--pes", type=int, default=8, help="of each cube")
    parser.add_argument("--tile", type=int, default=4, help="rows that a program works on at a time")
    found = Sizes(**vars(parser.parse_args()))
    if found.rows % found.programs:
        raise ValueError(f"{found.rows} rows cannot be shared equally by {found.programs} PEs")
    return found


def tiles(ptr: Any, size: Sizes, tl: Any) -> Any:
    """The tiles of this program's rows: the place of each in bytes from the first row of all, and its values in f32.

    The next one is loaded while the kernel works on this one.
    """
    rows, columns, tile = size.rows // size.programs, size.columns, size.tile
    row_bytes = columns * ptr.dtype.itemsize
    first = (tl.program_id(1) * size.pes + tl.program_id(0)) * rows * row_bytes
    ahead = tl.load_async(ptr + first, (min(tile, rows), columns))
    for at in range(0, rows, tile):
        x = tl.wait(ahead)
        following = at + tile
        if following < rows:
            ahead = tl.load_async(ptr + first + following * row_bytes, (min(tile, rows - following), columns))
        yield first + at * row_bytes, x.to("f32")


def measured_ns(torch: Any, kernel: Callable[..., None], size: Sizes, *args: object) -> float:
    """Simulated time of a launch on all PEs of ``size``, as the host sees it."""
    start, end = (torch.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.launch(kernel, *args, cubes=range(size.cubes), pes=range(size.pes))
    end.record()
    torch.synchronize()
    return float(start.elapsed_time(end)) * NS_PER_MS


def report(name: str, size: Sizes, ns: float, nbytes: int, found: Any, exact: Any) -> None:
    """Print time, bandwidth of ``nbytes`` and the error of ``found``.

    Raises:
        AssertionError: for an error above the bound of the type.
    """
    wide = found.astype(np.float64)
    error = float((np.abs(wide - exact) / np.maximum(np.abs(exact), 1)).max())
    bound = BOUNDS[size.dtype]
    print(
        f"{name} {size.rows} x {size.columns} {size.dtype} on {size.programs} PEs: {ns / 1000:.3f} us, "
        f"{nbytes / ns:.1f} GB/s, largest error {error:.1e} of {bound:.1e}"
    )
    if not error <= bound:
        raise AssertionError(f"{name}: error {error:.1e} is above {bound:.1e}")
