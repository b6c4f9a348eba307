"""Tensor slicer (scheduler) of the CCL developer guide: slices of a tensor for the workers of an operation. Pure."""

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import prod
from typing import NamedTuple

import numpy as np


class TensorSlice(NamedTuple):
    """Slice of a fracture: a box of pages, from ``start`` in the fracture's grid of pages on."""

    start: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def n_pages(self) -> int:
        """The number of pages."""
        return prod(self.shape)


class TensorSlicer:
    """Slicer of a tensor that ``cluster_size`` chips fracture along dimension ``dim``. ``grid``: the tensor's shape in
    pages. ``slices``: the slices of one fracture, in order; all fractures have the same ones.

    A slice has at most ``most_pages``, and at most a worker's share of a fracture, so that all workers get slices.
    """

    def __init__(self, n_workers: int, grid: Sequence[int], dim: int, cluster_size: int, most_pages: int) -> None:
        self._dim = dim
        self._n_workers = n_workers
        fracture = tuple(each // cluster_size if axis == dim else each for axis, each in enumerate(grid))
        self._pages, self._of_fracture = (np.arange(prod(each)).reshape(each) for each in (grid, fracture))
        share = -(-prod(fracture) // n_workers)
        self.slices = list(_boxes(fracture, max(min(most_pages, share), 1)))

    def of_worker(self, worker: int) -> list[TensorSlice]:
        """Return the slices of a worker, which takes one out of each group of as many slices as there are workers."""
        return self.slices[worker :: self._n_workers]

    def pages(self, part: TensorSlice, fracture: int | None) -> list[int]:
        """Return the numbers of the pages of a slice, in order: in a fracture of the tensor, or, with None, in a tensor
        of one fracture.
        """
        pages = self._of_fracture if fracture is None else self._pages
        first = list(part.start)
        first[self._dim] += (fracture or 0) * self._of_fracture.shape[self._dim]
        box = tuple(slice(start, start + size) for start, size in zip(first, part.shape, strict=True))
        numbers: list[int] = pages[box].ravel().tolist()
        return numbers


def _boxes(grid: tuple[int, ...], most: int) -> Iterator[TensorSlice]:
    """Yield boxes of at most ``most`` pages that partition a grid, in order: whole in the last dimensions, cut into
    nearly equal parts in one dimension, and of size 1 in the dimensions before.
    """
    axis, inner = len(grid) - 1, 1
    while axis > 0 and inner * grid[axis] <= most:
        inner *= grid[axis]
        axis -= 1
    count = -(-grid[axis] // (most // inner))
    cuts = [grid[axis] * number // count for number in range(count + 1)]
    for outer in product(*map(range, grid[:axis])):
        for start, end in pairwise(cuts):
            rest = grid[axis + 1 :]
            yield TensorSlice((*outer, start, *(0 for _ in rest)), (*(1 for _ in outer), end - start, *rest))
