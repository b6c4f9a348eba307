"""Communication patterns between pairs of ranks: all pairs, over shortest routes, and pairs a power of two apart."""

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
"""Bytes whose serialization time on a link is about the link's latency."""


def pairs_wiring(group: Group) -> Wiring:
    """Connect all ranks with each other."""
    return pairwise_wiring({(a, b) for b in range(group.size) for a in range(b)})


def all_pairs(task: Task, blocks_of: Callable[[int, int], Blocks], first: int, combine: int = REPLACE) -> Sends:
    """Send blocks between all pairs: in a round all ranks send by the same shift, first to the neighbours of a ring, so
    that data of the farthest rank arrive last. ``blocks_of(source, destination)`` returns the blocks of a message.

    Up to ``FEW_BYTES`` per unit, all messages of a round pass the same number of links, which grows by round. Larger
    messages would then collide on the links; so their rounds mix distances, which loads the links evenly.
    """
    size = task.size
    shifts = sorted(range(1, size), key=lambda shift: (min(shift, size - shift), shift))
    few = task.n_elem * task.itemsize <= FEW_BYTES

    @cache
    def numbers() -> dict[tuple[int, int], int]:
        keys = {(links(src, shift), turn) for turn, shift in enumerate(shifts, 1) for src in range(size)}
        return {key: number for number, key in enumerate(sorted(keys), 1)}

    def links(src: int, shift: int) -> int:
        return task.group.distances[src][(src + shift) % size]

    def sends(src: int) -> Iterator[Transfer]:
        for turn, shift in enumerate(shifts, 1):
            number, dst = numbers()[links(src, shift), turn] if few else turn, (src + shift) % size
            yield Transfer(first + number, src, towards(dst), blocks_of(src, dst), combine)

    return sends


def rounds_of_all_pairs(task: Task) -> int:
    """Return an upper bound of the round numbers of :func:`all_pairs` with ``first=0``."""
    return task.size * task.size


def nearest_first(group: Group, root: int) -> list[int]:
    """Return the other ranks by number of links to ``root``; ranks with equal numbers in ring order after ``root``."""
    others = [(root + shift) % group.size for shift in range(1, group.size)]
    return sorted(others, key=lambda rank: group.distances[rank][root])


def busiest_ring_load(group: Group) -> Fraction | None:
    """Return the messages over a ring's busiest link if each rank sends one to each other rank; None if no ring.

    A message to a rank at distance ``d`` passes ``d`` links, at most half the ring; at exactly half it uses port E.
    """
    if not group.is_ring or group.grid[1] != 1:
        return None
    half = group.size // 2
    return Fraction(half * (half + 1), 2)


def powers_wiring(group: Group) -> Wiring:
    """Connect all ranks that are a power of two apart, modulo the number of ranks."""
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
    """Connect all ranks that exchange data, and each folded rank with its representative (:class:`Fold`)."""
    fold = Fold.of(group.size)
    places = [(place, place ^ (1 << level)) for level in range(fold.levels) for place in range(fold.members)]
    pairs = {(fold.rank(place), fold.rank(other)) for place, other in places if place < other}
    return pairwise_wiring(pairs | set(fold.pairs))


def edges_of(pairs: list[Pair]) -> list[Edge]:
    """Return pairs of ranks as edges of a tree, with directions ``towards`` each other."""
    return [((a, towards(b)), (b, towards(a))) for a, b in pairs]


class Fold(NamedTuple):
    """Reduction of any number of ranks to a power of two, for exchanges between halves.

    ``members`` ranks, the largest power of two up to ``size``, take part and are numbered by place. Each other (folded)
    rank sends its data to a neighbour, its representative, and at the end gets a result from this neighbour (Thakur,
    Rabenseifner and Gropp 2005, section 4.4). The first ``2 * (size - members)`` ranks form such pairs.
    """

    size: int
    members: int

    @classmethod
    def of(cls, size: int) -> "Fold":
        """Make the fold of ``size`` ranks."""
        return cls(size, 1 << (size.bit_length() - 1))

    @property
    def levels(self) -> int:
        """Number of exchanges, log2 of ``members``."""
        return self.members.bit_length() - 1

    def rank(self, place: int) -> int:
        """Return the rank at a place."""
        folded = self.size - self.members
        return 2 * place + 1 if place < folded else place + folded

    def ranks(self, place: int) -> Blocks:
        """Return the ranks that a place represents: its own rank, and the folded rank if there is one."""
        rank = self.rank(place)
        return (rank - 1, rank) if place < self.size - self.members else (rank,)

    def share(self, place: int, level: int) -> list[int]:
        """Return the places that equal ``place`` in the lowest ``level`` bits."""
        mask = (1 << level) - 1
        return [other for other in range(self.members) if other & mask == place & mask]

    def ranks_of(self, places: list[int]) -> Blocks:
        """Return the ranks that several places represent."""
        return tuple(rank for place in places for rank in self.ranks(place))

    def fold_in(self, blocks: Blocks) -> list[Transfer]:
        """Send, in round 0, blocks of each folded rank to its representative, which combines them."""
        return [Transfer(0, out, towards(into), blocks, OWN_FIRST) for out, into in self.pairs]

    def fold_out(self, blocks_of: dict[int, Blocks], number: int) -> list[Transfer]:
        """Send, in round ``number``, the blocks ``blocks_of[rank]`` of each folded rank from its representative."""
        return [Transfer(number, into, towards(out), blocks_of[out]) for out, into in self.pairs]

    @property
    def pairs(self) -> list[Pair]:
        """(folded rank, representative) pairs."""
        return [(2 * place, 2 * place + 1) for place in range(self.size - self.members)]

    def exchange(self, level: int, blocks_of: dict[int, Blocks], number: int, combine: int = REPLACE) -> list[Transfer]:
        """Send each place's blocks to the place whose number differs in bit ``level``, in round ``number``."""
        return [
            Transfer(number, self.rank(place), towards(self.rank(place ^ (1 << level))), blocks, combine)
            for place, blocks in blocks_of.items()
        ]


def halving(fold: Fold, blocks_of: Callable[[list[int]], Blocks], first: int) -> list[Transfer]:
    """Recursive halving (reduce-scatter): in each exchange a place sends half of its blocks, the nearest place first.

    ``blocks_of(places)`` returns the blocks that these places hold at the end.
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
    """Recursive doubling (all-gather): in each exchange a place sends all its blocks, to the nearest place last."""
    return [
        transfer
        for turn, level in enumerate(reversed(range(fold.levels)))
        for transfer in fold.exchange(
            level, {place: blocks_of(fold.share(place, level + 1)) for place in range(fold.members)}, first + turn
        )
    ]


def all_gather(size: int) -> list[Transfer]:
    """Return the all-gather of one block per rank by recursive doubling: ``log2 G`` rounds or ``floor(log2 G) + 2``."""
    fold = Fold.of(size)
    transfers = [Transfer(0, out, towards(into), (out,)) for out, into in fold.pairs]
    transfers += doubling(fold, fold.ranks_of, 1)
    others = {out: tuple(rank for rank in range(size) if rank != out) for out, _ in fold.pairs}
    return transfers + fold.fold_out(others, 1 + fold.levels)


def exchange_load(size: int, weights: list[Fraction]) -> Fraction:
    """Return the elements over the busiest link of a ring of ``size`` ranks, a power of two, if all ranks exchange
    messages of ``weights[k]`` elements with the ranks 2^k places away.

    In an exchange at distance ``d`` within ``2 d`` ranks, link ``o`` of ``2 d - 1`` carries ``min(o + 1, 2 d - 1 - o)``
    messages per direction. At half the ring, all messages take the same direction, ``size / 2`` over each link.
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
    """Return whether :func:`exchange_load` applies: the ranks, a power of two, form a ring in the order of links."""
    return group.is_ring and group.grid[1] == 1 and group.size & (group.size - 1) == 0
