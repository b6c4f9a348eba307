"""The data of the built-in job over a group: sources of all ranks, known by their place alone, and exact results."""

from functools import reduce

import numpy as np

from sipsim.collectives.call.base import Array
from sipsim.collectives.reduction.operators import combine_all, final
from sipsim.collectives.semantics.group import GroupCollective
from sipsim.collectives.testdata import PIECE, seeded_values
from sipsim.core.dtypes import DType

MOST_FACTORS = 16
"""Ranks with a factor of 2 or 1/2: the products of any of them are exact in every floating type."""


class GroupData:
    """The sources of the ranks of a group, the SIPs ``sips``, with units of ``n_elem`` elements.

    Sums are of small integers, every partial sum exact. Factors of a product are 2 and 1/2, or odd integers in integer
    types, of either sign, so that a lost one shows in every element; beyond ``MOST_FACTORS`` ranks 1, in every second.
    """

    def __init__(
        self, collective: GroupCollective, n_elem: int, sips: tuple[int, ...], dtype: DType, op: str, seed: int
    ) -> None:
        self._collective = collective
        self._n_elem = n_elem
        self._sips = sips
        self._size = len(sips)
        self._dtype = dtype
        self._op = op
        self._seed = seed

    def source(self, rank: int) -> Array:
        """The whole source of a rank of the group."""
        return self._combined([rank], 0, self._collective.elements(self._n_elem, self._size)[0])

    def result(self, rank: int, root: int) -> Array | None:
        """A rank's result, exactly; None if it needs none."""
        return self._collective.result_from(self._total, self._size, root, rank)

    def _total(self, ranks: list[int], unit: int) -> Array:
        start = self._collective.start_of(unit, self._n_elem, self._size)
        return final(self._op, self._combined(ranks, start, self._n_elem), len(ranks))

    def _combined(self, ranks: list[int], start: int, count: int) -> Array:
        """``count`` elements from ``start`` on of the sources of ranks, combined; ``avg`` adds. Made piece by piece."""
        found = np.empty(count, self._dtype.numpy)
        for first in range(0, count, PIECE):
            piece = found[first : first + PIECE]
            terms = (self._integers(rank, start + first, len(piece)) for rank in ranks)
            if self._op in ("sum", "avg"):
                # The sum in the type is that of the integers: exact in a floating type, wrapped in an integer one.
                piece[:] = reduce(np.add, terms)
            else:
                typed = [self._typed(rank, term) for rank, term in zip(ranks, terms, strict=True)]
                piece[:] = combine_all(self._op, typed)
        return found

    def _integers(self, rank: int, start: int, count: int) -> Array:
        source = self._collective.elements(self._n_elem, self._size)[0]
        return seeded_values(self._sips[rank] * source + start, count, self._dtype, self._seed, self._size)

    def _typed(self, rank: int, values: Array) -> Array:
        """The elements that a rank has for these integers, with an operator that does not add."""
        if self._op != "prod":
            return values.astype(self._dtype.numpy)
        if not self._dtype.is_float:
            return (values * 2 + 1).astype(self._dtype.numpy)
        factor = 1.0 if rank >= MOST_FACTORS else 2.0 if rank % 2 else 0.5
        return np.where(values < 0, -factor, factor).astype(self._dtype.numpy)
