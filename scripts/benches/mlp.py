"""An MLP in tensor parallel over all cubes of all SIPs: two products with GELU between them, and an all-reduce.

    ahbm-launch --sips 4 --topology torus_2d -q scripts/benches/mlp.py --tokens 64 --hidden 256 --ffn 4096

Each cube has its own columns of the first matrix and its own rows of the second one, so its product is a part of the
sum over all cubes and SIPs: a row of the tensor that the all-reduce sums (ADR-0032). Its PEs share the tokens. It
prints the times of products and all-reduce, and the error of the second product and the sum against float64.
"""

import argparse
from typing import Any, NamedTuple

import numpy as np

from sipsim.chips.ahbm.host.layout import DPPolicy
from sipsim.core.arithmetic.matmul import matmul
from sipsim.core.arithmetic.operations import cast, elementwise
from sipsim.core.dtypes import DTYPES

US_PER_MS = 1e3
BOUND = 1e-5
"""Of the error, relative to the largest value: sums in f32, in an order of their own."""


class Sizes(NamedTuple):
    """``ffn`` is of all SIPs together; ``cubes``: of each SIP, all of them; ``pes``: of each cube."""

    tokens: int
    hidden: int
    ffn: int
    dtype: str
    cubes: int
    pes: int


def mlp(x: Any, w1: Any, between: Any, w2: Any, y: Any, shape: tuple[int, int, int], pes: int, tl: Any) -> None:
    """``gelu(x w1) w2`` of the tokens of a PE, and the columns of w1 and rows of w2 of its cube.

    ``shape``: tokens of a PE, hidden size, columns of a cube.
    """
    (rows, hidden, mine), size = shape, x.dtype.itemsize
    cube, pe = tl.program_id(1), tl.program_id(0)
    h = between + (cube * pes + pe) * rows * mine * size
    tl.gemm(x + pe * rows * hidden * size, w1 + cube * hidden * mine * size, h, (rows, hidden, mine), epilogue="gelu")
    out = y + (cube * pes + pe) * rows * hidden * y.dtype.itemsize
    tl.gemm(h, w2 + cube * mine * hidden * size, out, (rows, mine, hidden))


def sizes(world_size: int) -> Sizes:
    """Those of the command line.

    Raises:
        ValueError: for tokens or columns that cannot be shared equally.
    """
    parser = argparse.ArgumentParser(description=mlp.__doc__)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--ffn", type=int, default=4096)
    parser.add_argument("--dtype", choices=("f16", "bf16", "f32"), default="bf16")
    parser.add_argument("--cubes", type=int, default=16)
    parser.add_argument("--pes", type=int, default=8)
    found = Sizes(**vars(parser.parse_args()))
    for what, count, parts in (("tokens", found.tokens, found.pes), ("ffn", found.ffn, world_size * found.cubes)):
        if count % parts:
            raise ValueError(f"--{what} {count} cannot be divided by {parts}")
    return found


def expected(size: Sizes, x: Any, layers: list[tuple[Any, Any]]) -> Any:
    """Values between the products as the PEs compute and round them, bit for bit; the second product in float64."""
    total, dtype = np.zeros((size.tokens, size.hidden)), DTYPES[size.dtype]
    for w1, w2 in layers:
        between = elementwise("gelu", (matmul(x, w1, dtype),), DTYPES["f32"])
        total += cast(between, dtype).astype(np.float64) @ w2.astype(np.float64)
    return total


def worker(rank: int, world_size: int, torch: Any) -> None:
    """One layer on random values, of which all ranks know all."""
    size = sizes(world_size)
    torch.distributed.init_process_group(backend="ahbm")
    cubes, pes, columns = size.cubes, size.pes, size.ffn // world_size
    random, dtype = np.random.default_rng(0), DTYPES[size.dtype]
    tokens = cast(random.normal(size=(size.tokens, size.hidden)), dtype)
    layers = [
        (
            cast(random.normal(size=(size.hidden, columns)) / np.sqrt(size.hidden), dtype),
            cast(random.normal(size=(columns, size.hidden)) / np.sqrt(size.ffn), dtype),
        )
        for _ in range(world_size)
    ]

    def made(shape: tuple[int, int], layout: tuple[str, str], values: Any = None, dtype: str = size.dtype) -> Any:
        tensor = torch.zeros(shape, dtype=dtype, dp=DPPolicy(*layout, cubes, pes))
        return tensor if values is None else tensor.copy_(torch.from_numpy(values))

    x = made(tokens.shape, ("replicate", "row_wise"), tokens)
    w1 = made(layers[rank][0].shape, ("column_wise", "replicate"), layers[rank][0])
    w2 = made(layers[rank][1].shape, ("row_wise", "replicate"), layers[rank][1])
    between = made((cubes * size.tokens, columns // cubes), ("row_wise", "row_wise"))
    y = torch.zeros((cubes, size.tokens * size.hidden), dtype="f32", dp=DPPolicy(num_cubes=cubes))
    begin, middle, end = (torch.Event(enable_timing=True) for _ in range(3))
    begin.record()
    shape = size.tokens // pes, size.hidden, columns // cubes
    torch.launch(mlp, x, w1, between, w2, y, shape, pes, cubes=range(cubes), pes=range(pes))
    middle.record()
    torch.distributed.intercube_all_reduce(y)
    end.record()
    torch.synchronize()
    exact = expected(size, tokens, layers)
    error = np.abs(y.numpy().reshape(cubes, *exact.shape) - exact).max() / np.abs(exact).max()
    products_us, sum_us = begin.elapsed_time(middle) * US_PER_MS, middle.elapsed_time(end) * US_PER_MS
    if rank == 0:
        print(
            f"MLP of {size.tokens} tokens, {size.hidden} x {size.ffn} {size.dtype}, on {world_size} SIPs: products "
            f"{products_us:.3f} us, all-reduce {sum_us:.3f} us, largest error {error:.1e} of {BOUND:.1e}"
        )
    if not error <= BOUND:
        raise AssertionError(f"MLP: error {error:.1e} is above {BOUND:.1e}")
