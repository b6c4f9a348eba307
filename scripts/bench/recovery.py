"""What it costs to be able to come back, and to come back.

``logging``: a run without faults, with packet logs (--max-restarts 3) and without, in alternating pairs; the ratio of
each pair's wall times, and the median of those. ``recovery``: SIP 0 dies at half of the simulated time and is started
again; next to it the same run without the death, and what SIP 0 may cost at most: that run, its compute so far (taken
as half of what it computes in all), and a second. Times are the
simulation's, from the first grant to the end, as the runs report them.
"""

import argparse
import statistics
from typing import Any

from .kit import Flag, Table, launch

MOST_S = 1.0
FLAGS = {
    "pairs": Flag(9, 1, "pairs of runs, with and without logs"),
    "deaths": Flag(5, 1, "runs with a death at half"),
    "bytes": Flag("4M", "256K", "size of the all-reduce"),
    "sips": Flag(4, 2, "how many SIPs"),
}


class Runs:
    """Runs of one size. Every digest must be the same."""

    def __init__(self, *flags: object) -> None:
        self._flags = flags
        self.digests: set[str] = set()

    def run(self, *flags: str) -> dict[str, Any]:
        """The document of a run."""
        document = launch(*self._flags, *flags)
        self.digests.add(document["digest"])
        return document


def simulate_s(document: dict[str, Any]) -> float:
    """Wall seconds from the first grant to the end."""
    found: float = document["wall_s"]["simulate"]
    return found


def logging_pairs(runs: Runs, pairs: int) -> list[dict[str, float]]:
    """Alternating, and which comes first alternates too: what changes slowly on this machine hits both alike."""
    found = []
    for number in range(pairs):
        sides: list[tuple[str, list[str]]] = [("without_s", []), ("with_s", ["--max-restarts", "3"])]
        took = {name: simulate_s(runs.run(*flags)) for name, flags in (sides if number % 2 else sides[::-1])}
        found.append({**took, "ratio": took["with_s"] / took["without_s"]})
    return found


def recoveries(runs: Runs, count: int) -> list[dict[str, float]]:
    """Each next to a run without the death."""
    found = []
    for _ in range(count):
        fair = runs.run("--max-restarts", "3")
        half_ps = max(rank["sim_end_ps"] for rank in fair["ranks"]) // 2
        hurt = runs.run("--max-restarts", "3", "--fault", f"kill:0@{half_ps}ps")
        assert hurt["ranks"][0]["restarts"] == 1, "the fault was not injected"
        compute_s = fair["ranks"][0]["run_s"] / 2
        row = {"fair_s": simulate_s(fair), "hurt_s": simulate_s(hurt), "compute_s": compute_s}
        found.append({**row, "allowed_s": row["fair_s"] + compute_s + MOST_S})
    return found


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Both tables."""
    runs = Runs("--bytes", chosen.bytes, "--sips", chosen.sips, "--engine", "local")
    runs.run()  # makes the environment where there is none
    pairs = logging_pairs(runs, chosen.pairs)
    deaths = recoveries(runs, chosen.deaths)
    assert len(runs.digests) == 1, runs.digests
    title = f"# --bytes {chosen.bytes} --sips {chosen.sips}, digest {runs.digests.pop()} in every run"
    table = Table("logging:<10", "without s:9.2f", "with s:9.2f", "ratio:7.3f", title=title)
    for number, pair in enumerate(pairs):
        table.row(str(number), pair["without_s"], pair["with_s"], pair["ratio"])
    table.row("median", None, None, statistics.median(pair["ratio"] for pair in pairs))
    table = Table("recovery:<10", "no death s:10.2f", "death s:9.2f", "compute s:9.2f", "allowed s:9.2f")
    for number, death in enumerate(deaths):
        table.row(str(number), *(death[key] for key in ("fair_s", "hurt_s", "compute_s", "allowed_s")))
    return {"logging": pairs, "recovery": deaths}
