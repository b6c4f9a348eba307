"""Intercube: every row, one a cube, of every rank becomes the sum of all rows of all ranks (ADR-0032)."""

from fractions import Fraction
from typing import Any

import numpy as np

from sipsim.collectives.call.base import Array, Call, Collective, DeviceTensor, Distributed, collective
from sipsim.collectives.reduction.operators import REDUCTIONS
from sipsim.collectives.testdata import PIECE, Seeded, seeded_values
from sipsim.core.dtypes import DType


def intercube_all_reduce(dist: Distributed, tensor: DeviceTensor, op: str = "sum", async_op: bool = False) -> Any:
    """Every row (one a cube) of every rank becomes the sum of all rows of all ranks (ADR-0032).

    Raises:
        RuntimeError: before ``init_process_group``.
        ValueError: another ``op``, or a tensor that does not lie on every cube.
    """
    return dist.run_collective(Intercube.name, Call(tensor, tensor, op), async_op)


@collective
class Intercube(Collective):
    """The sum over cubes and SIPs, in place."""

    name = "intercube"
    about = "every row, one a cube, ends as the sum of all rows of all ranks (ADR-0032)"
    ops = ("sum",)
    in_place = True
    is_default = True
    method = staticmethod(intercube_all_reduce)

    def check(self, call: Call, size: int, n_cubes: int, layout: tuple[str, str] | None = None) -> None:
        if call.op in REDUCTIONS and call.op not in self.ops:
            other = f"all_reduce(tensor, op={call.op!r}, algorithm='auto') combines elementwise over ranks"
            raise ValueError(f"intercube_all_reduce takes op 'sum', not {call.op!r}; {other}")
        super().check(call, size, n_cubes, layout)

    def busbw_factor(self, size: int) -> Fraction:
        return Fraction(2 * (size - 1), size)

    def contributions(self, size: int, n_cubes: int) -> int:
        return size * n_cubes

    def expected(self, data: Seeded, rank: int, values: tuple[int, ...]) -> Array:
        return expected_row(data.ranks, data.shape, data.dtype, data.seed)


def expected_row(ranks: int, shape: tuple[int, int], dtype: DType, seed: int) -> Array:
    """Each row after it of seeded data, exactly, in ``dtype``; shape (elements,)."""
    cubes, n_elem = shape
    total = np.zeros(n_elem, dtype=np.int64)
    for start in range(0, n_elem, PIECE):
        piece = total[start : start + PIECE]
        for row in range(ranks * cubes):
            piece += seeded_values(row * n_elem + start, len(piece), dtype, seed, ranks * cubes)
    return total.astype(dtype.numpy)
