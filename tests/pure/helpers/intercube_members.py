"""All members of an intercube exchange without a machine: rings of some slots, and any order of who runs.

A member is a generator that yields while it is blocked. Posted receives take their messages, and so free the slots,
whatever the member does; that is what ``latch: copy`` does (:mod:`sipsim.ccl.intercube.schedule`).
"""

import random
from collections import defaultdict, deque
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from sipsim.ccl.intercube.members import LAST_PE, NEXT_PE, Grid
from sipsim.ccl.intercube.schedule import STRIDE, Step, Unit, schedule
from sipsim.ccl.intercube.tree import Act
from sipsim.ccl.neighbours import OPPOSITE
from sipsim.ccl.operators import combine

Array = np.ndarray[Any, Any]
Places = tuple[int, ...]
FACING = {**OPPOSITE, NEXT_PE: LAST_PE, LAST_PE: NEXT_PE}


class StuckError(Exception):
    """No member can go on."""


class Exchanged:
    """The members of ``grid`` combine ``rows``, shape (\\*sizes of axes, elements), in place."""

    def __init__(self, grid: Grid, rows: Array, units: list[Unit], n_slots: int, op: str, seed: int) -> None:
        self.rows = rows
        self.bytes_sent: dict[tuple[Places, str], int] = defaultdict(int)
        self._grid = grid
        self._units = units
        self._n_slots = n_slots
        self._combine = partial(combine, op)
        self._in_ring: dict[tuple[Places, str], deque[Any]] = defaultdict(deque)
        self._posted: dict[tuple[Places, str], deque[list[Any]]] = defaultdict(deque)
        self._random = random.Random(seed)
        self._moves = 0

    def run(self) -> None:
        members = {}
        for places in product(*(range(axis.size) for axis in self._grid.axes)):
            steps = schedule(self._grid.axes, places, self._units, self._n_slots)
            members[places] = self._member(places, steps)
        while members:
            before = self._moves
            for places in self._random.sample(sorted(members), len(members)):
                if next(members[places], None) is None:
                    del members[places]
            if members and self._moves == before:
                raise StuckError(sorted(members))
        assert not any(self._in_ring.values()), "messages that nobody received"

    def _member(self, places: Places, steps: list[Step]) -> Iterator[str]:
        values: dict[int, Array] = {}
        posted: list[tuple[int, Any, list[Any]]] = []
        for step in steps:
            posted += [(step.round, message, self._post(places, message.direction)) for message in step.receives]
            due = [each for each in posted if each[0] <= step.round - STRIDE]
            posted = posted[len(due) :]
            yield from self._wait(places, values, due)
            for message in step.sends:
                ring = self._peer(places, message.direction)
                while len(self._in_ring[ring]) >= self._n_slots:
                    yield "slot"
                value = values.pop(message.unit, None)
                if value is None:
                    value = self._own(places, message.unit)
                if not message.is_last_use:
                    values[message.unit] = value
                self._moves += 1
                self.bytes_sent[places, message.direction] += value.nbytes
                self._in_ring[ring].append((message.unit, value))
                self._latch(ring)
        yield from self._wait(places, values, posted)
        self._moves += 1
        assert not values, f"{places} keeps {sorted(values)}"

    def _wait(
        self, places: Places, values: dict[int, Array], posted: list[tuple[int, Any, list[Any]]]
    ) -> Iterator[str]:
        for _, message, box in sorted(posted, key=lambda each: (each[0], *each[1][:2])):
            while not box:
                yield "message"
            self._take(places, values, message, box[0])

    def _post(self, places: Places, direction: str) -> list[Any]:
        box: list[Any] = []
        self._posted[places, direction].append(box)
        self._moves += 1
        self._latch((places, direction))
        return box

    def _latch(self, ring: tuple[Places, str]) -> None:
        while self._in_ring[ring] and self._posted[ring]:
            self._posted[ring].popleft().append(self._in_ring[ring].popleft())
            self._moves += 1

    def _take(self, places: Places, values: dict[int, Array], message: Any, received: Any) -> None:
        unit, value = received
        self._moves += 1
        assert unit == message.unit, f"{places} takes unit {unit} for {message}"
        if message.act is Act.COMBINE:
            own = values.get(unit)
            value = self._combine(self._own(places, unit) if own is None else own, value)
        if message.is_result:
            start, length = self._units[unit][:2]
            self.rows[places][start : start + length] = value
        values[unit] = value
        if message.is_last_use:
            del values[unit]

    def _own(self, places: Places, unit: int) -> Array:
        start, length = self._units[unit][:2]
        part: Array = self.rows[places][start : start + length].copy()
        return part

    def _peer(self, places: Places, direction: str) -> tuple[Places, str]:
        for index, axis in enumerate(self._grid.axes):
            if direction in (axis.ahead, axis.back):
                to = places[index] + (1 if direction == axis.ahead else -1)
                assert axis.wraps or 0 <= to < axis.size, f"{places} has no neighbour {direction}"
                return (*places[:index], to % axis.size, *places[index + 1 :]), FACING[direction]
        raise AssertionError(direction)
