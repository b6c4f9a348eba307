"""Patterns of traffic on a fabric: the flows of each chip's workers, as host script ``fabric_traffic`` takes them.

Pure.
A flow is a mapping: ``way``, ``start``, ``number`` and ``link`` on a line or ring, ``ways`` and ``writes`` on a mesh.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

Flow = dict[str, Any]
Workers = list[list[Flow]]


class Line(NamedTuple):
    """How chips in a line or ring of ``chips`` send. ``is_multicast``: to all chips up to the last, else to that alone.
    ``ends_only``: interior chips send nothing. ``forward_only``: the first chip's way alone. ``halves``: the first half
    of the chips send forward, the other backward. ``links``: side by side, each with a worker that serves both ways by
    turns.
    """

    chips: int
    is_multicast: bool
    ends_only: bool = False
    forward_only: bool = False
    halves: bool = False
    links: int = 1


def on_line(line: Line) -> list[Workers]:
    """Every chip to all chips before it and behind it."""
    last = line.chips - 1

    def reach(position: int) -> tuple[int, int]:
        may = not line.ends_only or position in ((0,) if line.forward_only else (0, last))
        is_first = position < line.chips // 2
        forward = may and (is_first or not line.halves)
        backward = may and not line.forward_only and not (is_first and line.halves)
        return (last - position if forward else 0), (position if backward else 0)

    return _each_chip(line, reach)


def on_ring(line: Line, forward: int, backward: int, by_turns: bool = False) -> list[Workers]:
    """Every chip to so many chips each way. ``by_turns``: of chips with an even position the other way round."""
    return _each_chip(
        line, lambda position: (backward, forward) if by_turns and position % 2 == 0 else (forward, backward)
    )


def through_one_link(line: Line) -> list[Workers]:
    """On a ring of 4: the link between chips 1 and 2 has, each way, packets of chips 1, 2 and 3 hops before its end, so
    that all sender channels of its routers are in use.
    """

    def reach(position: int) -> tuple[int, int]:
        last = line.chips - 1
        forward = line.chips if position == last else max(last - position, 0)
        backward = line.chips if position == 0 else position
        return (forward if forward > 1 else 0), (backward if backward > 1 else 0)

    return _each_chip(line, reach)


def from_one(chips: int, at: int = 0) -> list[Workers]:
    """One worker of one chip to every other chip by turns."""
    flows = [_flow("E" if to > at else "W", abs(to - at), 1, 0) for to in range(chips) if to != at]
    return [[flows] if position == at else [] for position in range(chips)]


def from_one_on_mesh(rows: int, columns: int) -> list[Workers]:
    """One worker of the first chip to every other chip by turns."""
    flows = [_over(column, row) for row in range(rows) for column in range(columns) if row or column]
    return [[flows], *([] for _ in range(rows * columns - 1))]


def all_on_mesh(rows: int, columns: int) -> list[Workers]:
    """A worker of every chip to all others by multicast: along its own row, and over its column along each other row.

    Routers fork straight on and here alone, so a packet goes each way of each row.
    """
    found: list[Workers] = []
    for row in range(rows):
        for column in range(columns):
            flows: list[Flow] = []
            for to in range(rows):
                down = ("S" if to > row else "N") * abs(to - row)
                if down:
                    flows.append({"ways": down, "writes": "0" * (len(down) - 1) + "1"})
                flows += [
                    {"ways": down + along, "writes": "0" * len(down) + "1" * len(along)}
                    for along in ("E" * (columns - 1 - column), "W" * column)
                    if along
                ]
            found.append([flows])
    return found


def busiest(traffic: list[Workers], columns: int = 0) -> int:
    """Flows over the link that has most, one way."""
    size = len(traffic)
    counted: Counter[tuple[object, ...]] = Counter()
    for position, workers in enumerate(traffic):
        for flow in (flow for flows in workers for flow in flows):
            counted.update(_links_of(flow, position, size, columns or size))
    return max(counted.values())


def _links_of(flow: Flow, position: int, size: int, columns: int) -> list[tuple[object, ...]]:
    if "way" in flow:
        sign = 1 if flow["way"] == "E" else -1
        last = flow["start"] + flow["number"] - 1
        return [((position + sign * hop) % size, flow["way"], flow.get("link", 0)) for hop in range(last)]
    row, column = divmod(position, columns)
    found: list[tuple[object, ...]] = []
    for way in flow["ways"]:
        found.append((row, column, way))
        row, column = row + {"S": 1, "N": -1}.get(way, 0), column + {"E": 1, "W": -1}.get(way, 0)
    return found


def _each_chip(line: Line, reach: Callable[[int], tuple[int, int]]) -> list[Workers]:
    found: list[Workers] = []
    for position in range(line.chips):
        workers: Workers = []
        for link in range(line.links):
            flows = []
            for way, hops in zip("EW", reach(position), strict=True):
                if hops:
                    start, number = (1, hops) if line.is_multicast else (hops, 1)
                    flows.append(_flow(way, start, number, link))
            workers += [flows] if flows else []
        found.append(workers)
    return found


def _flow(way: str, start: int, number: int, link: int) -> Flow:
    return {"way": way, "start": start, "number": number, "link": link}


def _over(east: int, south: int) -> Flow:
    ways = ("E" if east > 0 else "W") * abs(east) + ("S" if south > 0 else "N") * abs(south)
    return {"ways": ways, "writes": "0" * (len(ways) - 1) + "1"}
