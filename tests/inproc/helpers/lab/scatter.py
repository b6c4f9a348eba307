"""A collective of a user: the rows of the root are cut into a piece for each rank. Not a test."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from sipsim.collectives.call import Array, Call, Collective, DeviceTensor, Distributed, collective


def scatter(
    dist: Distributed, result: DeviceTensor, source: DeviceTensor, src: int = 0, *, async_op: bool = False
) -> Any:
    """Rank r gets columns r * n to (r + 1) * n of each row of ``source`` of rank ``src`` into ``result``."""
    return dist.run_collective(Scatter.name, Call(source, result, values=(src,)), async_op)


@collective
class Scatter(Collective):
    name = "lab.scatter"
    about = "every rank ends with its piece of the root's rows"
    kernel_takes = ("the source's address", "the result's address", "the root")
    default_values = (0,)
    method = staticmethod(scatter)

    def busbw_factor(self, size: int) -> Fraction:
        return Fraction(size - 1, size)

    def elements(self, n_elem: int, size: int) -> tuple[int, int]:
        return n_elem * size, n_elem

    def check(self, call: Call, size: int, n_cubes: int) -> None:
        super().check(call, size, n_cubes)
        if not 0 <= call.values[0] < size:
            raise ValueError(f"src {call.values[0]} is no rank; ranks are 0 to {size - 1}")

    def results(self, inputs: Sequence[Array], values: tuple[int, ...]) -> list[Array]:
        return np.split(inputs[values[0]], len(inputs), axis=1)
