"""A search for races: runs with seeds of jitter, whose results are compared with those of the run without. Pure.

Jitter changes times and orders, so these may differ, and the digest of a run with them. What a program computes may
not, and it has to end.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from launcher.result.document import RunOutcome


class Ended(NamedTuple):
    """What a run came to. ``failure``: its kind and message; empty where it ran to its end. ``results``: the hash of
    each by rank and name. ``end_ps``: the latest end of a rank. ``exit_code``: that of ``ahbm-launch``.
    """

    failure: str
    results: Mapping[tuple[int, str], str]
    end_ps: int
    exit_code: int = 0


class Race(NamedTuple):
    """A seed with which the run is another one, and in what."""

    seed: int
    what: str


def ended(outcome: RunOutcome) -> Ended:
    """What a run came to, from its result document."""
    error = outcome.error
    failure = "" if error is None else f"{error['kind']}: {error['message']}"
    results = {(row["rank"], name): sha for row in outcome.ranks for name, sha in row["results"].items()}
    end_ps = max((row["sim_end_ps"] for row in outcome.ranks), default=0)
    return Ended(failure, results, end_ps, outcome.exit_code)


def first_race(usual: Ended, run: Callable[[int], Ended], seeds: Iterable[int]) -> Race | None:
    """The first seed with which a run fails or has other results than the ``usual`` one; None if there is none."""
    for seed in seeds:
        what = difference(usual, run(seed))
        if what:
            return Race(seed, what)
    return None


def difference(usual: Ended, other: Ended) -> str:
    """In what a run differs from the usual one; empty where it does not."""
    if other.failure:
        return other.failure
    names = sorted({*usual.results, *other.results})
    differ = [f"{name} of rank {rank}" for rank, name in names if _of(usual, rank, name) != _of(other, rank, name)]
    return f"other results: {', '.join(differ)}" if differ else ""


def _of(run: Ended, rank: int, name: str) -> str | None:
    return run.results.get((rank, name))
