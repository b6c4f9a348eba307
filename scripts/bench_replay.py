"""What the second pass costs: runs of many records with and without it, in one process. ``--json FILE``.

Two neighbouring cubes of one SIP send to each other, add, store and load: six records a round on each. CPU time of
this process, each the least of ``--repeat`` runs by turns; that of the second pass is the difference. It should take at
most as long as the first (``ratio`` at most 1).
"""

import argparse
import gc
import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench_ipcq import plan

from sipsim.sip.sip import Sip
from sipsim.tl.language import TL, run_kernel
from sipsim.topology.address import PhysAddr

RECORDS_A_ROUND = 6
MOST_EVENTS = 10**9
PLACES = 64
SIZES = {"small messages": 32, "messages of 2 KiB": 1024}
"""Elements of f16."""


class Row(NamedTuple):
    """``first_s`` and ``both_s``: CPU time without and with the second pass."""

    name: str
    records: int
    first_s: float
    both_s: float

    @property
    def ratio(self) -> float:
        """Of the second pass to the first."""
        return (self.both_s - self.first_s) / self.first_s


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


def measure(folder: str, records: int, elements: int, replays: bool) -> tuple[float, int]:
    """CPU time of a run, in s, and its records."""
    sip = Sip(0, plan(folder, {}), lambda _dst, _batch: None, replays=replays)
    for cube in (0, 1):
        pe = sip.pe(cube, 0)
        tl = TL(sip, pe, lambda address, _nbytes: address)
        count = records // RECORDS_A_ROUND // 2
        sip.spawn(pe, partial(run_kernel, partial(rounds, cube=cube, count=count, elements=elements), (), tl))
    gc.collect()
    start_s = time.process_time()
    assert sip.engine.run_before(None, MOST_EVENTS)
    verdict = sip.verdict()
    taken_s = time.process_time() - start_s
    if verdict is not None and (verdict.difference or verdict.races or verdict.records != sip.oplog.total):
        sys.exit(f"the passes differ: {verdict}")
    return taken_s, sip.oplog.total


def main() -> None:
    """Measure and print; exits with 1 where the second pass takes longer than the first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10**6, help="records of a run (1000000)")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each kind (1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows")
    options = parser.parse_args()
    rows = []
    print(f"{'':24} {'records':>9} {'first (s)':>10} {'both (s)':>9} {'us a record':>12} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for name, elements in SIZES.items():
            taken: dict[bool, list[float]] = {False: [], True: []}
            for _ in range(options.repeat):
                for replays in (False, True):
                    taken_s, records = measure(folder, options.records, elements, replays)
                    taken[replays].append(taken_s)
            row = Row(name, records, min(taken[False]), min(taken[True]))
            rows.append(row)
            a_record_us = (row.both_s - row.first_s) / row.records * 1e6
            print(
                f"{name:24} {row.records:9} {row.first_s:10.2f} {row.both_s:9.2f} {a_record_us:12.2f} {row.ratio:6.2f}"
            )
    if options.json is not None:
        document: list[dict[str, Any]] = [{**row._asdict(), "ratio": row.ratio} for row in rows]
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    sys.exit(any(row.ratio > 1 for row in rows))


if __name__ == "__main__":
    main()
