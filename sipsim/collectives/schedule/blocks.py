"""The blocks that schedules move: which elements they are, who has them before a collective and who needs them after.

Three ways to cut tensors, by the meaning of the collective (``cut`` of its definition), for G ranks:

* ``vector``: every rank's tensor is the same N elements. A unit is the vector; block ``p`` is its piece ``p``.
* ``ranks``: a tensor of N elements for each rank, in a tensor of G * N. Unit ``r`` is rank ``r``'s; its pieces are the
  blocks ``r * pieces + p``.
* ``pairs``: N elements from each rank for each rank. Unit ``i * G + j`` goes from ``i`` to ``j``; pieces as above.

A worker has a part of each unit: the elements between two cuts that are the same on all ranks.
"""

from typing import NamedTuple

VECTOR, RANKS, PAIRS = "vector", "ranks", "pairs"


class Part(NamedTuple):
    """A share of every unit: from ``start`` to ``stop`` of ``whole``, in exact proportions."""

    start: int
    stop: int
    whole: int

    def of(self, n_elem: int) -> tuple[int, int]:
        """The first element of a unit of ``n_elem``, and the first that is not in the part."""
        return n_elem * self.start // self.whole, n_elem * self.stop // self.whole


class Block(NamedTuple):
    """``length`` elements; ``source`` and ``result`` are offsets in the tensors of the ranks that have or need it."""

    length: int
    source: int
    result: int


def units(cut: str, size: int) -> int:
    """How many units a collective of a cut has in a group of ``size`` ranks."""
    return {VECTOR: 1, RANKS: size, PAIRS: size * size}[cut]


def block_of(cut: str, gathers: bool, n_elem: int, size: int, part: Part, pieces: int, number: int) -> Block:
    """Block ``number`` of a part of units of ``n_elem`` elements.

    ``gathers``: with cut ``ranks``, whether the small tensor is the source (of a gather) or the result (of a scatter).
    """
    unit, piece = divmod(number, pieces)
    first, stop = part.of(n_elem)
    start = first + (stop - first) * piece // pieces
    end = first + (stop - first) * (piece + 1) // pieces
    if cut == PAIRS:
        src, dst = divmod(unit, size)
        return Block(end - start, dst * n_elem + start, src * n_elem + start)
    large = unit * n_elem + start
    source, result = (start, large) if gathers else (large, start)
    return Block(end - start, source, result)
