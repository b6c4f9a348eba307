"""The launches of a run as lines below the table: equal ones of all ranks are one line."""

from collections.abc import Iterator, Sequence
from typing import Any

MOST_LAUNCH_LINES = 10
Launch = dict[str, Any]


def launch_lines(launches: Sequence[Launch], ended: int, with_collectives: bool) -> Iterator[str]:
    """A line for each kind of launch; of those of collectives, which have rows, only where that is asked for.

    ``ended``: how many launches there were, with those that are not listed.
    """
    kinds: dict[tuple[str, str], list[Launch]] = {}
    for each in launches:
        if each["run"] is None or with_collectives:
            kinds.setdefault((each["name"], each["pes"]), []).append(each)
    for (name, pes), some in list(kinds.items())[:MOST_LAUNCH_LINES]:
        yield _line(name, pes, some)
    if len(kinds) > MOST_LAUNCH_LINES:
        yield f"{len(kinds) - MOST_LAUNCH_LINES} more kinds of launches (--json)"
    if ended > len(launches):
        yield f"{ended - len(launches)} more launches, which are not listed"


def _line(name: str, pes: str, some: Sequence[Launch]) -> str:
    """Name, PEs, how often on how many ranks, how long each, and what its kernels did."""
    times_ns = [each["end_ns"] - each["start_ns"] for each in some]
    ranks = sorted({each["rank"] for each in some})
    on = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"
    often = "" if len(some) == len(ranks) else f", {len(some)} times"
    when = _between(min(times_ns), max(times_ns))
    if len(some) == 1:
        when = f"{when} from {some[0]['start_ns'] / 1000:.3f} us on"
    return f"launch {name} on {on}{often} ({pes}): {when}{_around(some, times_ns)}{_busy(some, times_ns)}"


def _around(some: Sequence[Launch], times_ns: Sequence[float]) -> str:
    """The part in which no kernel of a launch runs: its way to the PEs, and that of the answers."""
    kernels_ns = sum((each["kernels_end_ns"] or 0) - (each["kernels_start_ns"] or 0) for each in some)
    around_ns = sum(times_ns) - kernels_ns
    return (
        f", {around_ns / 1000 / len(some):.3f} us of it before and after all its kernels" if around_ns > 0.0005 else ""
    )


def _between(least_ns: float, most_ns: float) -> str:
    least, most = f"{least_ns / 1000:.3f}", f"{most_ns / 1000:.3f}"
    return f"{least} us" if least == most else f"{least} to {most} us"


def _busy(some: Sequence[Launch], times_ns: Sequence[float]) -> str:
    whole_ns = sum(each["kernels"] * ns for each, ns in zip(some, times_ns, strict=True))
    busy_ns: dict[str, float] = {}
    for name, ns in (item for each in some for item in each["busy_ns"].items()):
        busy_ns[name] = busy_ns.get(name, 0) + ns
    largest = sorted(((name, ns) for name, ns in busy_ns.items() if ns), key=lambda item: (-item[1], item[0]))
    return "".join(f", {100 * ns / whole_ns:.1f} % {name}" for name, ns in largest) if whole_ns else ""
