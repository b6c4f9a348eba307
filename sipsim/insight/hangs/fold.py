"""Folds equal waits into one line, so that reports are short for any number of PEs. Pure."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from sipsim.records.dump import Place, place_name

FEW = 8
"""The most steps of a cycle that are listed one by one."""
MOST_LINES = 20
MOST_RUNS = 6
"""The most ranges of numbers that are listed; of more ranges, only the first are listed."""


class Entry(NamedTuple):
    """A PE (or a host script: cube and PE -1) with the text of its state. ``alone``: added if no other PE has it.

    ``roughly``: the text with less detail, used if there are too many different texts.
    """

    place: Place
    text: str
    alone: str = ""
    roughly: str = ""


def folded(entries: Iterable[Entry], most: int = MOST_LINES) -> list[str]:
    """Return one line per distinct text, in the order of ``entries``; at most ``most`` lines."""
    entries = list(entries)
    groups = _by([(each.text, each) for each in entries])
    if len(groups) > most:
        groups = _by([(each.roughly or each.text, each) for each in entries])
    lines = [_line(text, members) for text, members in groups.items()]
    if len(lines) > most:
        rest = list(groups.values())[most - 1 :]
        what = f"in {len(rest)} other states"
        lines[most - 1 :] = [f"  {describe({each.place for members in rest for each in members})}: {what}"]
    return lines


def describe(places: Collection[Place]) -> str:
    """Return ``240 PEs on SIPs 0 to 7, cubes 0 to 14, PE 0``; with ``among`` if the ranges also cover other PEs.

    Host scripts are described by their ranks.
    """
    if all(place[1] < 0 for place in places):
        return numbered("rank", {place[0] for place in places})
    if len(places) == 1:
        return place_name(next(iter(places)))
    parts = [{place[axis] for place in places} for axis in range(3)]
    is_whole = len(parts[0]) * len(parts[1]) * len(parts[2]) == len(places)
    names = (numbered(name, found) for name, found in zip(("SIP", "cube", "PE"), parts, strict=True))
    return f"{len(places)} PEs {'on' if is_whole else 'among'} {', '.join(names)}"


def shortened(steps: list[str]) -> str:
    """Return the steps of a cycle as text; of a long cycle, the first and the last steps."""
    if len(steps) > FEW:
        steps = [*steps[:3], f"{len(steps) - 5} more", *steps[-2:]]
    return " -> ".join(steps)


def numbered(name: str, numbers: Iterable[int]) -> str:
    """Return ``cubes 0 to 3, 7``; of many ranges, the first ranges and the number of further numbers."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
    if len(texts) > MOST_RUNS:
        remaining = sum(map(len, runs[MOST_RUNS - 1 :]))
        texts[MOST_RUNS - 1 :] = [f"{remaining} more up to {runs[-1][-1]}"]
    plural = "" if len(runs) == 1 and len(runs[0]) == 1 else "s"
    return f"{name}{plural} {', '.join(texts)}"


def _by(pairs: list[tuple[str, Entry]]) -> dict[str, list[Entry]]:
    groups: dict[str, list[Entry]] = {}
    for text, entry in pairs:
        groups.setdefault(text, []).append(entry)
    return groups


def _line(text: str, members: list[Entry]) -> str:
    alone = members[0].alone if len(members) == 1 else ""
    return f"  {describe({each.place for each in members})}: {text}{alone}"
