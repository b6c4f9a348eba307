"""What the default command costs from the shell: wall time, start-up, memory.

Every row is the median and the worst of several runs of ``ahbm-launch`` as a user starts it, next to the floor of
this machine in the same call: starting Python, and importing what a SIP needs. Nothing is asserted here.
"""

import argparse
import statistics
import subprocess
import sys
import time
from typing import Any

from .kit import Flag, Table, command, launch

IMPORTS = "import numpy, simpy, zmq, msgspec, yaml, greenlet"
FLOORS = {"python": "pass", "python + imports": IMPORTS}
ROWS = ((4, "torus_2d", "local"), (4, "torus_2d", "inproc"), (16, "torus_2d", "local"))
FLAGS = {"repeat": Flag(9, 1, "runs a row")}


def floor(code: str) -> dict[str, Any]:
    """Wall seconds of a Python that runs some code."""
    began_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return {"wall_s": time.perf_counter() - began_s}


def run(sips: int, topology: str, engine: str) -> dict[str, Any]:
    """One run: what the shell saw, and what its document says."""
    done = command("ahbm-launch", "--sips", sips, "--topology", topology, "--engine", engine)
    document = done.document
    return {
        "wall_s": done.wall_s,
        "startup_s": document["wall_s"]["startup"],
        "simulate_s": document["wall_s"]["simulate"],
        "pss_mib": max(rank["peak_pss_mib"] for rank in document["ranks"]),
    }


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Medians of each row's runs, and the worst wall time."""
    launch("--sips", 2)  # makes the environment where there is none
    table = Table("what:<28", "wall s:8.3f", "worst:8.3f", "start-up:9.3f", "simulate:9.3f", "PSS MiB:9.3f")
    runs = {name: (lambda code=code: floor(code)) for name, code in FLOORS.items()}
    runs.update({f"{row[0]} SIPs {row[1]} {row[2]}": (lambda row=row: run(*row)) for row in ROWS})
    rows = []
    for name, each in runs.items():
        found = [each() for _ in range(chosen.repeat)]
        medians = {key: statistics.median(run[key] for run in found) for key in found[0]}
        row = {"what": name, **medians, "worst_wall_s": max(run["wall_s"] for run in found)}
        table.row(*map(row.get, ("what", "wall_s", "worst_wall_s", "startup_s", "simulate_s", "pss_mib")))
        rows.append(row)
    return {"rows": rows}
