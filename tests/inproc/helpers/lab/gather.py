"""A collective of a user: the root gets the rows of all ranks, side by side; the others' results may be anything."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from sipsim.collectives.call import Array, Call, Collective, DeviceTensor, Distributed, collective


def gather(
    dist: Distributed, result: DeviceTensor, source: DeviceTensor, dst: int = 0, *, async_op: bool = False
) -> Any:
    """Columns r * n to (r + 1) * n of each row of ``result`` of rank ``dst`` become ``source`` of rank r."""
    return dist.run_collective(Gather.name, Call(source, result, values=(dst,)), async_op)


@collective
class Gather(Collective):
    name = "lab.gather"
    about = "the root ends with all ranks' rows"
    kernel_takes = ("the source's address", "the result's address", "the root")
    default_values = (0,)
    method = staticmethod(gather)

    def busbw_factor(self, size: int) -> Fraction:
        return Fraction(size - 1, size)

    def elements(self, n_elem: int, size: int) -> tuple[int, int]:
        return n_elem, n_elem * size

    def results(self, inputs: Sequence[Array], values: tuple[int, ...]) -> list[Array | None]:
        whole = np.concatenate(inputs, axis=1)
        return [whole if rank == values[0] else None for rank in range(len(inputs))]
