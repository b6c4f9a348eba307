"""Which memory two tensors of a call share: a kernel reads the source while it writes the result. Pure."""

from collections.abc import Sequence

Range = tuple[int, int]
"""The address of the first byte, and of the first one behind."""


def overlap(one: Sequence[Range], other: Sequence[Range]) -> bool:
    """Whether some byte lies in both."""
    stops = [0, 0]
    for start, stop, which in sorted([(*each, 0) for each in one] + [(*each, 1) for each in other]):
        if start < stops[1 - which]:
            return True
        stops[which] = max(stops[which], stop)
    return False


def split(ranges: Sequence[Range], first: int, nbytes: int) -> tuple[list[Range], list[Range]]:
    """The bytes from number ``first`` on, ``nbytes`` of them in the order of the ranges; and all others."""
    inside: list[Range] = []
    outside: list[Range] = []
    number = 0
    for start, stop in ranges:
        cuts = [min(max(start + at - number, start), stop) for at in (first, first + nbytes)]
        inside.append((cuts[0], cuts[1]))
        outside += [(start, cuts[0]), (cuts[1], stop)]
        number += stop - start
    return joined(inside), joined(outside)


def joined(ranges: Sequence[Range]) -> list[Range]:
    """The same bytes in the same order, ranges that continue each other as one, and none without bytes."""
    found: list[Range] = []
    for start, stop in ranges:
        if start == stop:
            continue
        if found and found[-1][1] == start:
            start = found.pop()[0]
        found.append((start, stop))
    return found
