"""Patterns along ranks in a row: what passes along them in one direction.

All functions return what each rank sends of one element range. Blocks are given by place along the path, and rounds
start at ``first``. Each takes ``len(path.ranks) - 1`` rounds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from sipsim.collectives.schedule import OWN_FIRST, Sends, Transfer, joined

EVERY = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter", "all_to_all")
"""The names of the collectives over groups that patterns know the meaning of."""


Blocks = tuple[int, ...]
PORT_PREFIX = "global_"
"""Of the directions that leave a SIP by a port (ADR-0032 D3)."""


class Path(NamedTuple):
    """``ranks``, each joined to the next in direction ``ahead`` and to the one before in direction ``back``.

    ``closed``: the last is joined to the first, too.
    """

    ranks: tuple[int, ...]
    ahead: str
    back: str
    closed: bool

    @property
    def has_links(self) -> bool:
        """Whether its directions are those of ports, so that links join its ranks."""
        return self.ahead.startswith(PORT_PREFIX)

    @property
    def reversed(self) -> "Path":
        """The same from its other end."""
        return Path(self.ranks[::-1], self.back, self.ahead, self.closed)

    def starting_at(self, rank: int) -> "Path":
        """A closed path from one of its ranks on."""
        place = self.ranks.index(rank)
        return self._replace(ranks=self.ranks[place:] + self.ranks[:place])


def broadcast(path: Path, blocks: Blocks, first: int = 0) -> Sends:
    """From the first rank to all, one after the other."""
    return _open(path, lambda place, rank: [Transfer(first + place, rank, path.ahead, blocks)])


def reduce(path: Path, blocks: Blocks, first: int = 0) -> Sends:
    """To the last rank, combined at each."""
    return _open(path, lambda place, rank: [Transfer(first + place, rank, path.ahead, blocks, OWN_FIRST)])


def gather(path: Path, blocks: Sequence[Blocks], first: int = 0) -> Sends:
    """Each place's blocks to the last rank, the nearest first."""
    return _open(
        path,
        lambda place, rank: [
            Transfer(first + later, rank, path.ahead, blocks[place - later]) for later in range(place + 1)
        ],
    )


def scatter(path: Path, blocks: Sequence[Blocks], first: int = 0) -> Sends:
    """Each place's blocks from the first rank, for the farthest first."""
    size = len(path.ranks)
    return _open(
        path,
        lambda place, rank: [
            Transfer(first + size - 1 - goal + place, rank, path.ahead, blocks[goal]) for goal in range(place + 1, size)
        ],
    )


def ring_reduce_scatter(path: Path, blocks: Sequence[Blocks], first: int = 0) -> Sends:
    """On a closed path: each place's blocks, combined over all ranks, to that place."""
    size = len(path.ranks)
    return _by_place(
        path,
        lambda place, rank: [
            Transfer(first + later, rank, path.ahead, blocks[(place - 1 - later) % size], OWN_FIRST)
            for later in range(size - 1)
        ],
    )


def ring_all_gather(path: Path, blocks: Sequence[Blocks], first: int = 0) -> Sends:
    """On a closed path: each place's blocks to all others."""
    size = len(path.ranks)
    return _by_place(
        path,
        lambda place, rank: [
            Transfer(first + later, rank, path.ahead, blocks[(place - later) % size]) for later in range(size - 1)
        ],
    )


def ring_all_to_all(path: Path, first: int = 0) -> Sends:
    """On a closed path: block ``src * size + dst`` to ``dst``, passed on by all between. Units of one piece."""
    size = len(path.ranks)

    def sends(place: int, rank: int) -> Iterator[Transfer]:
        for later in range(size - 1):
            src = path.ranks[(place - later) % size]
            goals = [path.ranks[(place + ahead) % size] for ahead in range(1, size - later)]
            yield Transfer(first + later, rank, path.ahead, tuple(src * size + dst for dst in goals))

    return _by_place(path, sends)


def shortest_all_to_all(path: Path) -> Sends:
    """On a closed path, each block the shorter way; units of two pieces, which part where both ways are as long.

    Even rounds go ahead, odd ones back. What a rank sends is what its neighbour has of it still to go, farthest first.
    """
    return joined(*(_half_of_all_to_all(along, way) for way, along in enumerate((path, path.reversed))))


def _half_of_all_to_all(along: Path, way: int) -> Sends:
    size = len(along.ranks)

    def sends(place: int, rank: int) -> Iterator[Transfer]:
        for later in range(size // 2):
            src = along.ranks[(place - later) % size]
            blocks = []
            for distance in range(later + 1, size // 2 + 1):
                unit = src * size + along.ranks[(place - later + distance) % size]
                blocks += [2 * unit + way] if 2 * distance == size else [2 * unit, 2 * unit + 1]
            yield Transfer(2 * later + way, rank, along.ahead, tuple(blocks))

    return _by_place(along, sends)


def line_reduce_scatter(path: Path, blocks: Sequence[Blocks], first: int = 0) -> Sends:
    """On an open path, in both directions: as :func:`ring_reduce_scatter`. Twice as many rounds, in turn a direction.

    What a rank adds to a block for a place farther on goes with what came from behind it, the farthest first.
    """
    size = len(path.ranks)

    def one_way(along: Path, own: Sequence[Blocks], first: int) -> Sends:
        return _open(
            along,
            lambda place, rank: [
                Transfer(first + 2 * (size - 1 - goal + place), rank, along.ahead, own[goal], OWN_FIRST)
                for goal in range(place + 1, size)
            ],
        )

    return joined(one_way(path, blocks, first), one_way(path.reversed, blocks[::-1], first + 1))


def line_all_gather(path: Path, blocks: Sequence[Blocks], first: int = 0) -> Sends:
    """On an open path, in both directions: as :func:`ring_all_gather`. Twice as many rounds, in turn a direction."""

    def one_way(along: Path, own: Sequence[Blocks], first: int) -> Sends:
        return _open(
            along,
            lambda place, rank: [
                Transfer(first + 2 * (place - source), rank, along.ahead, own[source]) for source in range(place + 1)
            ],
        )

    return joined(one_way(path, blocks, first), one_way(path.reversed, blocks[::-1], first + 1))


def _by_place(path: Path, sends: Callable[[int, int], Iterable[Transfer]]) -> Sends:
    """The sends of each rank on a path, from a function of (place on the path, rank)."""
    places = {rank: place for place, rank in enumerate(path.ranks)}
    return lambda rank: sends(places[rank], rank) if rank in places else ()


def _open(path: Path, sends: Callable[[int, int], Iterable[Transfer]]) -> Sends:
    """The same, of all ranks but the last, which has none before it."""
    return _by_place(path._replace(ranks=path.ranks[:-1]), sends)
