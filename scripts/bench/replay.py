"""What the second pass costs: runs of many records with and without it, in one process.

Two neighbouring cubes of one SIP send to each other, add, store and load: six records a round on each. CPU time of
this process, each the least of ``--repeat`` runs by turns; that of the second pass is the difference. It should take at
most as long as the first (``ratio`` at most 1).
"""

import argparse
from functools import partial
from typing import Any

from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.tl.language import TL

from ._pair import finish, plan, start
from .kit import Flag, Table, cpu_s

FLAGS = {
    "records": Flag(10**6, 20_000, "records of a run"),
    "repeat": Flag(1, 1, "runs of each kind"),
}
RECORDS_A_ROUND = 6
PLACES = 64
SIZES = {"small messages": 32, "messages of 2 KiB": 1024}
"""Elements of f16."""


def rounds(tl: TL, cube: int, count: int, elements: int) -> None:
    """Swap a value with the neighbour, add, store and load."""
    own = PhysAddr(0, cube, 0, "hbm", 2**20).encode()
    value = tl.load(own, elements, "f16")
    there = "W" if cube else "E"
    for turn in range(count):
        tl.send(there, value)
        got = tl.recv(there, elements, "f16") + value
        place = own + 2 * elements * (turn % PLACES)
        tl.store(place, got)
        value = tl.load(place, elements, "f16") + got


def measured(records: int, elements: int, replays: bool) -> tuple[float, int]:
    """CPU time of a run, in s, and its records."""
    count = records // RECORDS_A_ROUND // 2
    kernels = (partial(rounds, cube=cube, count=count, elements=elements) for cube in (0, 1))
    sip = start(plan({}), *kernels, replays=replays)

    def run() -> Any:
        finish(sip)
        return sip.verdict()

    taken_s, verdict = cpu_s(run)
    if verdict is not None and (verdict.difference or verdict.races or verdict.records != sip.oplog.total):
        raise SystemExit(f"bench replay: the passes differ: {verdict}")
    return taken_s, sip.oplog.total


def measure(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each size. ``first_s`` and ``both_s``: CPU time without and with the second pass."""
    table, rows = Table("name:<24", "records:9", "first s:9.2f", "both s:9.2f", "us a record:12.2f", "ratio:6.2f"), []
    for name, elements in SIZES.items():
        taken: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(chosen.repeat):
            for replays in (False, True):
                taken_s, records = measured(chosen.records, elements, replays)
                taken[replays].append(taken_s)
        first_s, both_s = min(taken[False]), min(taken[True])
        row = {"name": name, "records": records, "first_s": first_s, "both_s": both_s}
        rows.append({**row, "ratio": (both_s - first_s) / first_s})
        table.row(*row.values(), (both_s - first_s) / records * 1e6, rows[-1]["ratio"])
    return rows


def holds(document: list[dict[str, Any]]) -> bool:
    """The second pass takes no longer than the first."""
    return all(row["ratio"] <= 1 for row in document)
