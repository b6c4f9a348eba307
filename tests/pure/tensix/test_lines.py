"""Rings and lines through all chips: on meshes by rule, on other graphs by search, beside a search of all orders."""

import random
from itertools import pairwise, permutations

import pytest

from sipsim.chips.tensix import lines
from sipsim.chips.tensix.lines import Graph, Line, around

T3000 = [[4, 0, 3, 7], [5, 1, 2, 6]]
Edge = tuple[int, int]


def near_of(count: int, edges: list[Edge]) -> list[list[int]]:
    near: list[set[int]] = [set() for _ in range(count)]
    for a, b in edges:
        near[a].add(b)
        near[b].add(a)
    return [sorted(each) for each in near]


def grid(width: int, height: int, numbers: list[int]) -> list[Edge]:
    across = [(y * width + x, y * width + x + 1) for y in range(height) for x in range(width - 1)]
    down = [(y * width + x, (y + 1) * width + x) for y in range(height - 1) for x in range(width)]
    return [(numbers[a], numbers[b]) for a, b in across + down]


def is_right(line: Line, near: list[list[int]]) -> bool:
    """Whether each chip is there once, and neighbours have links."""
    chips = [*line.chips, line.chips[0]] if line.topology == "ring" else line.chips
    return sorted(line.chips) == list(range(len(near))) and all(b in near[a] for a, b in pairwise(chips))


def exists(near: list[list[int]], topology: str) -> bool:
    return any(is_right(Line(topology, chips), near) for chips in permutations(range(len(near))))


def test_the_ring_of_a_t3000_is_the_guides() -> None:
    assert around(T3000) == [0, 4, 5, 1, 2, 6, 7, 3]


@pytest.mark.parametrize("width", range(1, 9))
@pytest.mark.parametrize("height", range(1, 7))
def test_a_mesh_has_a_cycle_unless_it_is_odd_or_a_row(width: int, height: int) -> None:
    count = width * height
    near = near_of(count, grid(width, height, list(range(count))))
    cycle = around([list(range(y * width, (y + 1) * width)) for y in range(height)])
    if min(width, height) < 2 or count % 2:
        assert cycle == []
    else:
        assert is_right(Line("ring", tuple(cycle)), near)
        assert cycle[:2] == [0, width]


@pytest.mark.parametrize(("width", "height"), [(3, 3), (5, 3), (4, 1), (4, 2)])
def test_a_mesh_without_a_cycle_has_a_line(width: int, height: int) -> None:
    rows = [list(range(y * width, (y + 1) * width)) for y in range(height)]
    near = near_of(width * height, grid(width, height, list(range(width * height))))
    for topology in ("line", "ring"):
        found = Graph(near, rows).find(topology)
        assert found is not None
        assert is_right(found, near)
        assert found.topology == (topology if (width, height) == (4, 2) else "line")


def test_ranks_in_order_come_first() -> None:
    near = near_of(6, [(a, (a + 1) % 6) for a in range(6)] + [(0, 3), (2, 5)])
    for topology in ("line", "ring"):
        assert Graph(near, ()).find(topology) == Line(topology, tuple(range(6)))


@pytest.mark.parametrize("seed", range(60))
def test_a_small_graph_has_what_all_orders_have(seed: int) -> None:
    """A ring if there is one, else a line if there is one, else nothing."""
    draw = random.Random(seed)
    count = draw.randint(3, 7)
    pairs = [(a, b) for a in range(count) for b in range(a)]
    near = near_of(count, draw.sample(pairs, draw.randint(count - 1, min(2 * count, len(pairs)))))
    ring, line = (Graph(near, ()).find(topology) for topology in ("ring", "line"))
    kinds = [kind for kind in ("ring", "line") if exists(near, kind)]
    assert (ring and ring.topology) == (kinds[0] if kinds else None)
    assert (line and line.topology) == ("line" if kinds else None)
    assert all(is_right(each, near) for each in (ring, line) if each is not None)


@pytest.mark.parametrize("seed", range(8))
def test_graphs_of_64_chips_with_shuffled_numbers(seed: int) -> None:
    """A mesh whose locations nobody states, and a ring with chords."""
    draw = random.Random(seed)
    numbers = draw.sample(range(64), 64)
    ring = [(numbers[i - 1], numbers[i]) for i in range(64)]
    chords = [(a, b) for a, b in (draw.sample(range(64), 2) for _ in range(32))]
    for edges in (grid(8, 8, numbers), ring + chords):
        near = near_of(64, edges)
        found = Graph(near, ()).find("ring")
        assert found is not None
        assert found.topology == "ring"
        assert is_right(found, near)


def test_a_search_ends_after_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """24 chips that only 40 others join: no line, and no end of orders."""
    draw = random.Random(3)
    near = near_of(64, [(a, 40 + b) for a in range(40) for b in range(24) if draw.random() < 0.2])
    looks = 0

    class Counted(list[int]):
        def __iter__(self):  # type: ignore[no-untyped-def]
            nonlocal looks
            looks += 1
            return super().__iter__()

    assert Graph([Counted(each) for each in near], ()).find("ring") is None
    assert looks < 2 * lines.MOST_STEPS
