"""Groups equal waits in the report of a deadlock, which stays short that way for any number of PEs. Pure."""

import re
from collections.abc import Collection, Iterable

from sipsim.record.dump import Place

FEW = 8
"""So many waits are listed one by one."""
_PLACE = re.compile(r"rank \d+ cube \d+ PE \d+")


def grouped(waits: list[tuple[Place, str]], verb: str) -> list[str]:
    """The texts of waits; of more than two that differ in places only the first, with a line on all of them.

    ``verb``: what the PEs of a group do, such as ``wait``.
    """
    groups: dict[str, list[tuple[Place, str]]] = {}
    for place, text in waits:
        groups.setdefault(_PLACE.sub("", text) if len(waits) > FEW else text, []).append((place, text))
    lines = []
    for members in groups.values():
        if len(members) <= 2:
            lines += [text for _, text in members]
            continue
        first = members[0][1]
        indent = " " * (len(first) - len(first.lstrip()) + 2)
        lines.append(f"{first}\n{indent}{describe({place for place, _ in members})} {verb} like this")
    return lines


def grouped_ranks(lines: list[tuple[int, str]]) -> list[str]:
    """A line for each rank, or for all ranks with the same text when there are many."""
    if len(lines) <= FEW:
        return [f"  rank {rank}: {text}" for rank, text in lines]
    ranks: dict[str, set[int]] = {}
    for rank, text in lines:
        ranks.setdefault(text, set()).add(rank)
    return [f"  {_numbered('rank', found)}: {text}" for text, found in ranks.items()]


def describe(places: Collection[Place]) -> str:
    """``240 PEs on SIPs 0 to 7, cubes 0 to 14, PE 0``; ``among`` where these are not all PEs that the ranges cover."""
    parts = [{place[axis] for place in places} for axis in range(3)]
    is_whole = len(parts[0]) * len(parts[1]) * len(parts[2]) == len(places)
    names = (_numbered(name, found) for name, found in zip(("SIP", "cube", "PE"), parts, strict=True))
    return f"{len(places)} PEs {'on' if is_whole else 'among'} {', '.join(names)}"


def shortened(steps: list[str]) -> str:
    """The steps of a cycle; of a long one the first and the last."""
    if len(steps) > FEW:
        steps = [*steps[:4], f"{len(steps) - 6} more", *steps[-2:]]
    return " -> ".join(steps)


def _numbered(name: str, numbers: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = (str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
    plural = "" if len(runs) == 1 and len(runs[0]) == 1 else "s"
    return f"{name}{plural} {', '.join(texts)}"
