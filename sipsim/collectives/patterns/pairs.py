"""Patterns between pairs of ranks: all pairs by the route of fewest links, and pairs a power of two apart."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from sipsim.collectives.group import Group, pairwise_wiring, towards
from sipsim.collectives.patterns.lines import Blocks
from sipsim.collectives.patterns.trees import Edge, Pair
from sipsim.collectives.schedule import OWN_FIRST, REPLACE, Sends, Transfer, Wiring
from sipsim.collectives.semantics import Task

FEW_BYTES = 2048
"""A link carries them in as long as its latency."""


def pairs_wiring(group: Group) -> Wiring:
    """A queue pair between all ranks."""
    return pairwise_wiring({(a, b) for b in range(group.size) for a in range(b)})


def all_pairs(task: Task, blocks_of: Callable[[int, int], Blocks], first: int, combine: int = REPLACE) -> Sends:
    """In a round a rank sends to the rank so many behind it as all do: to neighbours in a ring first, so that what
    comes from the farthest is taken last. ``blocks_of``: source and destination.

    With few bytes those of a round send as many links far, too, and fewer in earlier rounds. More bytes would meet on
    the links, which are in use all the time when ranks send to all distances at once.
    """
    size = task.size
    shifts = sorted(range(1, size), key=lambda shift: (min(shift, size - shift), shift))
    few = task.n_elem * task.itemsize <= FEW_BYTES

    @cache
    def numbers() -> dict[tuple[int, int], int]:
        far = {(links(src, shift), turn) for turn, shift in enumerate(shifts, 1) for src in range(size)}
        return {key: number for number, key in enumerate(sorted(far), 1)}

    def links(src: int, shift: int) -> int:
        return task.group.distances[src][(src + shift) % size]

    def sends(src: int) -> Iterator[Transfer]:
        for turn, shift in enumerate(shifts, 1):
            number, dst = numbers()[links(src, shift), turn] if few else turn, (src + shift) % size
            yield Transfer(first + number, src, towards(dst), blocks_of(src, dst), combine)

    return sends


def rounds_of_all_pairs(task: Task) -> int:
    """No round of :func:`all_pairs` that starts from 0 is behind this one."""
    return task.size * task.size


def nearest_first(group: Group, root: int) -> list[int]:
    """The other ranks, that of the fewest links to ``root`` first, and of these the next one."""
    others = [(root + shift) % group.size for shift in range(1, group.size)]
    return sorted(others, key=lambda rank: group.distances[rank][root])


def busiest_ring_load(group: Group) -> Fraction | None:
    """Messages over the busiest link of a ring of neighbours when each rank sends one to each other; None elsewhere.

    Those for a rank ``d`` links on pass ``d`` links, up to half way round; exactly half way they go by port E.
    """
    if not group.is_ring or group.grid[1] != 1:
        return None
    half = group.size // 2
    return Fraction(half * (half + 1), 2)


def powers_wiring(group: Group) -> Wiring:
    """A queue pair between all ranks that are a power of two apart, round the end too."""
    size = group.size
    return pairwise_wiring(
        {
            (min(rank, other), max(rank, other))
            for rank in range(size)
            for bit in range((size - 1).bit_length())
            if (other := (rank + (1 << bit)) % size) != rank
        }
    )


def exchange_wiring(group: Group) -> Wiring:
    """A queue pair between all ranks that exchange, and of each that takes no part to the one that stands for it."""
    fold = Fold.of(group.size)
    places = [(place, place ^ (1 << level)) for level in range(fold.levels) for place in range(fold.members)]
    pairs = {(fold.rank(place), fold.rank(other)) for place, other in places if place < other}
    return pairwise_wiring(pairs | set(fold.pairs))


def edges_of(pairs: list[Pair]) -> list[Edge]:
    """Pairs of ranks as edges of a tree in a wiring of pairs."""
    return [((a, towards(b)), (b, towards(a))) for a, b in pairs]


class Fold(NamedTuple):
    """Which ranks take part in exchanges between halves, and for whom, for any number of ranks.

    The largest power of two up to ``size`` takes part. Each further rank first hands its data to a neighbour, and gets
    its result from it in the end (Thakur, Rabenseifner and Gropp 2005, section 4.4): the first ``2 * (size - members)``
    ranks are in such pairs, others stand for themselves.
    """

    size: int
    members: int

    @classmethod
    def of(cls, size: int) -> "Fold":
        """``members``: the largest power of two that is not above ``size``."""
        return cls(size, 1 << (size.bit_length() - 1))

    @property
    def levels(self) -> int:
        """Exchanges between all that take part."""
        return self.members.bit_length() - 1

    def rank(self, place: int) -> int:
        """The rank that takes part as number ``place``."""
        folded = self.size - self.members
        return 2 * place + 1 if place < folded else place + folded

    def ranks(self, place: int) -> Blocks:
        """The ranks that it stands for."""
        rank = self.rank(place)
        return (rank - 1, rank) if place < self.size - self.members else (rank,)

    def share(self, place: int, level: int) -> list[int]:
        """The places that are equal to one in the lowest ``level`` bits."""
        mask = (1 << level) - 1
        return [other for other in range(self.members) if other & mask == place & mask]

    def ranks_of(self, places: list[int]) -> Blocks:
        """The ranks that places stand for."""
        return tuple(rank for place in places for rank in self.ranks(place))

    def hand_over(self, blocks: Blocks) -> list[Transfer]:
        """From ranks that take no part to those that stand for them, to be combined. Round 0."""
        return [Transfer(0, out, towards(into), blocks, OWN_FIRST) for out, into in self.pairs]

    def hand_back(self, blocks_of: dict[int, Blocks], number: int) -> list[Transfer]:
        """The blocks of each rank that takes no part, from the one that stands for it."""
        return [Transfer(number, into, towards(out), blocks_of[out]) for out, into in self.pairs]

    @property
    def pairs(self) -> list[Pair]:
        """Each rank that takes no part, with the one that stands for it."""
        return [(2 * place, 2 * place + 1) for place in range(self.size - self.members)]

    def exchange(self, level: int, blocks_of: dict[int, Blocks], number: int, combine: int = REPLACE) -> list[Transfer]:
        """Each place sends its blocks to the place whose number differs in bit ``level``, in round ``number``."""
        return [
            Transfer(number, self.rank(place), towards(self.rank(place ^ (1 << level))), blocks, combine)
            for place, blocks in blocks_of.items()
        ]


def halving(fold: Fold, blocks_of: Callable[[list[int]], Blocks], first: int) -> list[Transfer]:
    """A reduce-scatter: in each exchange a place sends the half of its blocks that the other one keeps, nearest first.

    ``blocks_of`` places: what they end with.
    """
    return [
        transfer
        for level in range(fold.levels)
        for transfer in fold.exchange(
            level,
            {place: blocks_of(fold.share(place ^ (1 << level), level + 1)) for place in range(fold.members)},
            first + level,
            OWN_FIRST,
        )
    ]


def doubling(fold: Fold, blocks_of: Callable[[list[int]], Blocks], first: int) -> list[Transfer]:
    """An all-gather: in each exchange a place sends all that it has, to the nearest place last."""
    return [
        transfer
        for turn, level in enumerate(reversed(range(fold.levels)))
        for transfer in fold.exchange(
            level, {place: blocks_of(fold.share(place, level + 1)) for place in range(fold.members)}, first + turn
        )
    ]


def all_gather(size: int) -> list[Transfer]:
    """Of a block a rank: recursive doubling, in ``log2 G`` rounds, two more if that is no whole number."""
    fold = Fold.of(size)
    transfers = [Transfer(0, out, towards(into), (out,)) for out, into in fold.pairs]
    transfers += doubling(fold, fold.ranks_of, 1)
    others = {out: tuple(rank for rank in range(size) if rank != out) for out, _ in fold.pairs}
    return transfers + fold.hand_back(others, 1 + fold.levels)


def exchange_load(size: int, weights: list[Fraction]) -> Fraction:
    """Elements over the busiest link of a ring of a power of two of ranks, where all exchange messages with those
    2^k places away, of ``weights[k]`` elements.

    Between two halves of ``2 d`` ranks, ``d`` apart, link ``o`` of the ``2 d - 1`` has ``min(o + 1, 2 d - 1 - o)``
    messages each way. Half way round the ring all go the same way, ``size / 2`` over each link.
    """
    if size == 1:
        return Fraction(0)

    def over(link: int) -> Fraction:
        total = weights[-1] * (size // 2)
        for level, weight in enumerate(weights[:-1]):
            offset, width = link % (2 << level), 2 << level
            total += weight * min(offset + 1, width - 1 - offset)
        return total

    return max(over(link) for link in range(size))


def has_load(group: Group) -> bool:
    """Whether :func:`exchange_load` holds of a group: a ring of neighbours, a power of two, in the order of links."""
    return group.is_ring and group.grid[1] == 1 and group.size & (group.size - 1) == 0
