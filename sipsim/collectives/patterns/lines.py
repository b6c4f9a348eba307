"""Communication patterns along a path of ranks.

Functions return the transfers of each rank for one element range. A place is an index on the path; ``Sequence[Blocks]``
has one entry per place. Rounds start at ``first``; by default a pattern takes ``len(path.ranks) - 1`` rounds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from sipsim.collectives.schedule import OWN_FIRST, Sends, Transfer, joined

EVERY = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter", "all_to_all")
"""The collectives over groups that the patterns can implement."""


Blocks = tuple[int, ...]
PORT_PREFIX = "global_"
"""Prefix of the directions that leave a SIP by a port (ADR-0032 D3)."""


class Path(NamedTuple):
    """Sequence of ranks, each connected to the next in direction ``ahead`` and to the previous in direction ``back``.

    ``closed``: the last rank is also connected to the first.
    """

    ranks: tuple[int, ...]
    ahead: str
    back: str
    closed: bool

    @property
    def has_links(self) -> bool:
        """True if links join the ranks, so that the directions leave a SIP by a port."""
        return self.ahead.startswith(PORT_PREFIX)

    @property
    def reversed(self) -> "Path":
        """The path from its other end."""
        return Path(self.ranks[::-1], self.back, self.ahead, self.closed)

    def starting_at(self, rank: int) -> "Path":
        """Return a closed path rotated so that it starts at ``rank``."""
        place = self.ranks.index(rank)
        return self._replace(ranks=self.ranks[place:] + self.ranks[:place])


def broadcast(path: Path, blocks: Blocks, first: int = 0) -> Sends:
    """Send blocks from the first rank to all other ranks, rank by rank."""
    return _open(path, lambda place, rank: [Transfer(first + place, rank, path.ahead, blocks)])


def reduce(path: Path, blocks: Blocks, first: int = 0) -> Sends:
    """Send blocks rank by rank to the last rank; each rank combines them with its blocks."""
    return _open(path, lambda place, rank: [Transfer(first + place, rank, path.ahead, blocks, OWN_FIRST)])


def gather(path: Path, blocks: Sequence[Blocks], first: int = 0) -> Sends:
    """Send each place's blocks to the last rank, the nearest place's blocks first."""
    return _open(
        path,
        lambda place, rank: [Transfer(first + hop, rank, path.ahead, blocks[place - hop]) for hop in range(place + 1)],
    )


def scatter(path: Path, blocks: Sequence[Blocks], first: int = 0) -> Sends:
    """Send each place's blocks from the first rank, the farthest place's blocks first."""
    size = len(path.ranks)
    return _open(
        path,
        lambda place, rank: [
            Transfer(first + size - 1 - goal + place, rank, path.ahead, blocks[goal]) for goal in range(place + 1, size)
        ],
    )


def ring_reduce_scatter(path: Path, blocks: Sequence[Blocks], first: int = 0) -> Sends:
    """Reduce-scatter on a closed path: each place gets its blocks, combined over all ranks."""
    size = len(path.ranks)
    return _by_place(
        path,
        lambda place, rank: [
            Transfer(first + hop, rank, path.ahead, blocks[(place - 1 - hop) % size], OWN_FIRST)
            for hop in range(size - 1)
        ],
    )


def ring_all_gather(path: Path, blocks: Sequence[Blocks], first: int = 0) -> Sends:
    """All-gather on a closed path: send each place's blocks to all other places."""
    size = len(path.ranks)
    return _by_place(
        path,
        lambda place, rank: [
            Transfer(first + hop, rank, path.ahead, blocks[(place - hop) % size]) for hop in range(size - 1)
        ],
    )


def ring_all_to_all(path: Path, first: int = 0) -> Sends:
    """Send block ``src * size + dst`` from ``src`` to ``dst`` along a closed path, hop by hop. Units have one piece."""
    size = len(path.ranks)

    def sends(place: int, rank: int) -> Iterator[Transfer]:
        for hop in range(size - 1):
            src = path.ranks[(place - hop) % size]
            receivers = [path.ranks[(place + ahead) % size] for ahead in range(1, size - hop)]
            yield Transfer(first + hop, rank, path.ahead, tuple(src * size + dst for dst in receivers))

    return _by_place(path, sends)


def shortest_all_to_all(path: Path) -> Sends:
    """Send each block of an all-to-all in the shorter direction of a closed path.

    Units have two pieces, one per direction if both directions are equally long. Even rounds send ahead, odd back.
    """
    return joined(*(_half_of_all_to_all(along, parity) for parity, along in enumerate((path, path.reversed))))


def _half_of_all_to_all(along: Path, parity: int) -> Sends:
    size = len(along.ranks)

    def sends(place: int, rank: int) -> Iterator[Transfer]:
        for hop in range(size // 2):
            src = along.ranks[(place - hop) % size]
            blocks = []
            for distance in range(hop + 1, size // 2 + 1):
                unit = src * size + along.ranks[(place - hop + distance) % size]
                blocks += [2 * unit + parity] if 2 * distance == size else [2 * unit, 2 * unit + 1]
            yield Transfer(2 * hop + parity, rank, along.ahead, tuple(blocks))

    return _by_place(along, sends)


def line_reduce_scatter(path: Path, blocks: Sequence[Blocks], first: int = 0) -> Sends:
    """Reduce-scatter on an open path: each place's blocks are combined towards this place from both ends.

    Takes ``2 * (len(path.ranks) - 1)`` rounds that alternate between the directions, the farthest place's blocks first.
    """
    size = len(path.ranks)

    def one_direction(along: Path, held: Sequence[Blocks], first: int) -> Sends:
        return _open(
            along,
            lambda place, rank: [
                Transfer(first + 2 * (size - 1 - goal + place), rank, along.ahead, held[goal], OWN_FIRST)
                for goal in range(place + 1, size)
            ],
        )

    return joined(one_direction(path, blocks, first), one_direction(path.reversed, blocks[::-1], first + 1))


def line_all_gather(path: Path, blocks: Sequence[Blocks], first: int = 0) -> Sends:
    """All-gather on an open path, in ``2 * (len(path.ranks) - 1)`` rounds that alternate between the directions."""

    def one_direction(along: Path, held: Sequence[Blocks], first: int) -> Sends:
        return _open(
            along,
            lambda place, rank: [
                Transfer(first + 2 * (place - source), rank, along.ahead, held[source]) for source in range(place + 1)
            ],
        )

    return joined(one_direction(path, blocks, first), one_direction(path.reversed, blocks[::-1], first + 1))


def _by_place(path: Path, sends: Callable[[int, int], Iterable[Transfer]]) -> Sends:
    """Return the transfers of each rank on a path, given by a function of (place on the path, rank)."""
    places = {rank: place for place, rank in enumerate(path.ranks)}
    return lambda rank: sends(places[rank], rank) if rank in places else ()


def _open(path: Path, sends: Callable[[int, int], Iterable[Transfer]]) -> Sends:
    """Return the transfers of each rank on an open path, on which the last rank sends nothing."""
    return _by_place(path._replace(ranks=path.ranks[:-1]), sends)
