"""The data of the built-in job over a group: sources of all ranks, known by their place alone, and exact results."""

import numpy as np

from sipsim.ccl.collectives.base import Array
from sipsim.ccl.collectives.group import GroupCollective
from sipsim.ccl.operators import combine_all
from sipsim.ccl.seeded import seeded_values
from sipsim.dtypes import DType

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
        return self._values(rank, 0, self._collective.elements(self._n_elem, self._size)[0])

    def result(self, rank: int, root: int) -> Array | None:
        """A rank's result, exactly; None if it needs none."""
        return self._collective.result_from(self._total, self._size, root, rank)

    def _total(self, ranks: list[int], unit: int) -> Array:
        start = self._collective.start_of(unit, self._n_elem, self._size)
        return combine_all(self._op, (self._values(rank, start, self._n_elem) for rank in ranks))

    def _values(self, rank: int, start: int, count: int) -> Array:
        source = self._collective.elements(self._n_elem, self._size)[0]
        values = seeded_values(self._sips[rank] * source + start, count, self._dtype, self._seed, self._size)
        if self._op != "prod":
            return values.astype(self._dtype.numpy)
        if not self._dtype.is_float:
            return (values * 2 + 1).astype(self._dtype.numpy)
        factor = 1.0 if rank >= MOST_FACTORS else 2.0 if rank % 2 else 0.5
        return np.where(values < 0, -factor, factor).astype(self._dtype.numpy)
