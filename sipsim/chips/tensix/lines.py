"""Search for a ring or a line through all chips of a system among its links. Pure.

A ring or line is a sequence of ranks in which each has a link to the next; a ring also has one from the last to the
first. The result depends only on the links and the mesh: the search counts steps, not time.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

Rows = Sequence[Sequence[int]]
"""Ranks of a mesh, row by row."""
MOST_STEPS = 200_000
"""The most links that one search looks at: half a second of CPython, so that ring and line take about a second."""
STEPS_OF_TRY = 30
"""Links per chip that the first tries of a search look at; every four tries of all starts this doubles."""
TIES = 0x9E5
"""Odd factor that gives each try another order of ties."""
Near = Sequence[Sequence[int]]
Linked = Sequence[frozenset[int]]


class Line(NamedTuple):
    """Chips in order along a line, or around a ring if ``topology`` is ``ring``."""

    topology: str
    chips: tuple[int, ...]

    @property
    def text(self) -> str:
        """The chips in order, as text for people."""
        return f"{self.topology} {' '.join(map(str, self.chips))}"


class Graph:
    """Graph of chips and links. ``near``: the neighbours of each rank, ascending; ``rows``: the ranks of the mesh, row
    by row, or empty if the chips form no mesh.
    """

    def __init__(self, near: Sequence[Sequence[int]], rows: Rows) -> None:
        self._near = near
        self._linked = [frozenset(each) for each in near]
        self._rows = rows

    def holds(self, line: Line) -> bool:
        """Whether each chip has a link to the next one, and the last to the first of a ring of three or more."""
        chips = line.chips
        is_closed = line.topology != "ring" or (len(chips) > 2 and chips[0] in self._linked[chips[-1]])
        return is_closed and all(onward in self._linked[chip] for chip, onward in pairwise(chips))

    def find(self, topology: str) -> Line | None:
        """Return a ring or line through all chips, None if the search finds neither.

        The first that the links hold, of: ranks in order; the cycle around the mesh; a cycle from a search; for a line,
        the rows of the mesh there and back, and a path from a search. A line has the order of a ring if there is one. A
        ring that the search does not find becomes a line.
        """
        ranks = tuple(range(len(self._near)))
        if self.holds(Line(topology, ranks)):
            return Line(topology, ranks)
        for cycle in self._cycles():
            if len(cycle) == len(ranks) and self.holds(Line("ring", cycle)):
                return Line(topology, cycle)
        for path in chain([ranks], self._paths()):
            if len(path) == len(ranks) and self.holds(Line("line", path)):
                return Line("line", path)
        return None

    def _cycles(self) -> Iterator[tuple[int, ...]]:
        if self._rows:
            yield tuple(around(self._rows))
        if len(self._near) > 2:
            yield tuple(_search(self._near, self._linked, [0], is_closed=True))

    def _paths(self) -> Iterator[tuple[int, ...]]:
        yield tuple(chip for y, row in enumerate(self._rows) for chip in (row[::-1] if y % 2 else row))
        starts = sorted(range(len(self._near)), key=lambda chip: len(self._near[chip]))
        yield tuple(_search(self._near, self._linked, starts, is_closed=False))


def around(rows: Rows) -> list[int]:
    """Return the cycle through all chips of a mesh, from the lowest rank on, counterclockwise: down the first column,
    and row by row back to its top; with an odd number of rows along columns. Empty if there is no such cycle.
    """
    height, width = len(rows), len(rows[0])
    if min(height, width) < 2 or (height % 2 and width % 2):
        return []
    if height % 2:
        # Mirrored at the diagonal, the cycle turns the other way.
        cycle = around([list(column) for column in zip(*rows, strict=True)])
        cycle = [cycle[0], *reversed(cycle[1:])]
    else:
        cycle = [row[0] for row in rows]
        for number, row in enumerate(reversed(rows)):
            cycle += row[:0:-1] if number % 2 else row[1:]
    first = cycle.index(min(cycle))
    return [*cycle[first:], *cycle[:first]]


def _search(near: Near, linked: Linked, starts: Sequence[int], is_closed: bool) -> list[int]:
    """Return a path through all chips, empty if none is found within ``MOST_STEPS`` links. ``is_closed``: the path must
    be a cycle. Short tries, of which each breaks ties in another order, find more than a long one.
    """
    steps, number = MOST_STEPS, 0
    while steps > 0:
        budget = min(steps, STEPS_OF_TRY * len(near) << (number // (4 * len(starts))))
        search = _Try(near, linked, starts[number % len(starts)], number, budget, is_closed)
        if search.run() or search.is_exhausted:
            return search.path
        steps -= budget
        number += 1
    return []


class _Try:
    """Depth-first search of one path: chips with few free neighbours first, and back where a chip that was left behind
    can no longer be passed. ``is_exhausted``: the search has ended with no path from anywhere.
    """

    def __init__(self, near: Near, linked: Linked, start: int, number: int, budget: int, is_closed: bool) -> None:
        self.path = [start]
        self.is_exhausted = False
        self._near, self._linked = near, linked
        self._number, self._budget, self._is_closed = number, budget, is_closed
        self._is_free = [True] * len(near)
        self._degree = [len(each) for each in near]
        self._take(start, 1)

    def run(self) -> bool:
        """Search; return whether the path is found."""
        path, near, start = self.path, self._near, self.path[0]
        choices = [self._onward(start)]
        while path and self._budget > 0:
            self._budget -= 1 + len(near[path[-1]])
            if len(path) == len(near) and (not self._is_closed or start in self._linked[path[-1]]):
                return True
            if not choices[-1]:
                choices.pop()
                self._take(path.pop(), -1)
                continue
            before, chip = path[-1], choices[-1].pop()
            path.append(chip)
            self._take(chip, 1)
            choices.append(self._onward(chip) if self._may_pass_all(before, chip) else [])
        self.is_exhausted = self._is_closed and not path
        path.clear()
        return False

    def _take(self, chip: int, sign: int) -> None:
        self._is_free[chip] = sign < 0
        for each in self._near[chip]:
            self._degree[each] -= sign

    def _onward(self, chip: int) -> list[int]:
        """Return the free neighbours of a chip, the first to take at the end."""
        return sorted((each for each in self._near[chip] if self._is_free[each]), key=self._last_first)

    def _last_first(self, chip: int) -> tuple[int, int]:
        return -self._degree[chip], -(chip ^ self._number * TIES & 0xFFF)

    def _may_pass_all(self, before: int, chip: int) -> bool:
        """Whether each free neighbour of ``before``, which the path has left for ``chip``, still has two ways: free
        chips, this chip, and the start of a cycle. One free chip may be the end of a path that is no cycle.
        """
        start = self._linked[self.path[0]] if self._is_closed else frozenset[int]()
        dead = 0
        for each in self._near[before]:
            if self._is_free[each] and self._degree[each] + (each in self._linked[chip]) + (each in start) < 2:
                dead += 1
        return dead <= (not self._is_closed)
