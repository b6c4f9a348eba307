"""CPU time a transfer: the all-reduce of the default config, as a user runs it, beside as many messages in SimGrid.

A transfer is what a SIP's fabric carries at once: data of a message, a command, an acknowledgement. ``CPU s`` is the
median of ``--repeat`` runs of ``ahbm-launch --bytes N``, start and check of the data included, all processes
together; transfers are counted in a run beside them. ``--instructions`` runs ``--engine inproc`` under Valgrind.

``--vs simgrid`` has SimGrid send as many messages of the same sizes, around a ring in which no two share a link. It
moves no data, and times nothing but these messages; here data are moved, reduced and checked, and all parts of the
machine are timed.

``--record`` adds a row a size to ``docs/performance.md``.
"""

import argparse
import datetime
import os
import re
import shutil
import statistics
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from launcher.api import run
from sipsim.fabric.flows import FlowFabric

from .kit import SCRIPTS, Flag, Table, command, refuse
from .simgrid import MISSING, SYSTEM_PYTHON, has_simgrid, simgrid

ROOT = SCRIPTS.parent
PAGE = ROOT / "docs" / "performance.md"
MEASURED = ("ahbm_sim", "broker", "sipsim", "launcher", "configs")
RATE_BYTES_PER_NS, LATENCY_NS = 256.0, 20.0
"""A link of SimGrid's ring. Its CPU time does not depend on them."""
MIB = 2**20
FLAGS = {
    "sizes": Flag((1, 4, 16, 64), (1,), "MiB of a rank's tensor"),
    "repeat": Flag(3, 1, "runs a size"),
    "vs": Flag("nothing", "nothing", "send as many messages with SimGrid", ("nothing", "simgrid")),
    "python": Flag(SYSTEM_PYTHON, SYSTEM_PYTHON, "the interpreter with SimGrid"),
    "instructions": Flag(False, False, "count them with Valgrind, in some twenty times the time"),
    "record": Flag(False, False, "add a row a size to docs/performance.md"),
}


def transfers_of(nbytes: int) -> Counter[int]:
    """How many transfers the run starts, by their bytes."""
    found: Counter[int] = Counter()
    start = FlowFabric.start

    def counted(fabric: FlowFabric, train: Any, route: Any, size: int, *more: Any, **named: Any) -> Any:
        found[size] += 1
        return start(fabric, train, route, size, *more, **named)

    FlowFabric.start = counted  # type: ignore[method-assign]
    try:
        run(bytes=nbytes, engine="inproc", verify_data=False)
    finally:
        FlowFabric.start = start  # type: ignore[method-assign]
    return found


def instructions_of(nbytes: int) -> int:
    """Instructions of the run in one process, from its start to its end."""
    with tempfile.TemporaryDirectory() as folder:
        tool = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
        under = (*tool, "--trace-children=yes", f"--log-file={folder}/%p")
        command("ahbm-launch", "--bytes", nbytes, "--engine", "inproc", "--no-timeouts", under=under)
        logs = "".join(log.read_text() for log in Path(folder).iterdir())
    return sum(int(count.replace(",", "")) for count in re.findall(r"I +refs: +([\d,]+)", logs))


def check(chosen: argparse.Namespace) -> None:
    """Refuse what cannot be measured, before anything is."""
    if any(size < 1 for size in chosen.sizes) or chosen.repeat < 1:
        refuse("allreduce", "--sizes and --repeat must be 1 or more")
    if chosen.vs == "simgrid" and not has_simgrid(chosen.python):
        refuse("allreduce", MISSING)
    if chosen.instructions and shutil.which("valgrind") is None:
        refuse("allreduce", "Valgrind is not here: install Debian's valgrind, or leave out --instructions")
    if chosen.record and (changed := _git("status", "--porcelain", "--", *MEASURED)):
        refuse("allreduce", f"--record names the commit that it measures: commit {changed.split()[-1]} first")
    if chosen.record and not PAGE.read_text().endswith("|\n"):
        refuse("allreduce", f"--record appends to the table at the end of {PAGE}: move what is below it")


def row_of(mib: int, chosen: argparse.Namespace) -> dict[str, Any]:
    """The figures of a size."""
    nbytes = mib * MIB
    sizes = transfers_of(nbytes)
    runs = [command("ahbm-launch", "--bytes", nbytes) for _ in range(chosen.repeat)]
    run_of, cpu_s = runs[0].document["runs"][0], statistics.median(each.cpu_s for each in runs)
    row = {"mib": mib, "transfers": sizes.total(), "sizes": dict(sorted(sizes.items())), "cpu_s": cpu_s}
    row |= {"cpu_us_a_transfer": cpu_s * 1e6 / sizes.total(), "simulated_us": run_of["time_ns"] / 1000}
    if chosen.instructions:
        row["instructions"] = instructions_of(nbytes)
    if chosen.vs == "simgrid":
        row["simgrid"] = simgrid(chosen.python, run_of["kernels"], sizes, RATE_BYTES_PER_NS, LATENCY_NS)
        row["ratio"] = cpu_s / row["simgrid"]["cpu_s"]
    return row


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """A row for each size."""
    check(chosen)
    columns = {
        "mib": "MiB:4",
        "transfers": "transfers:9",
        "cpu_s": "CPU s:8.2f",
        "cpu_us_a_transfer": "CPU us a transfer:17.1f",
        "simulated_us": "simulated us:12.3f",
    }
    if chosen.instructions:
        columns["instructions"] = "instructions:15,"
    if chosen.vs == "simgrid":
        columns["ratio"] = "SimGrid:>8.1f"
    table, rows = Table(*columns.values()), []
    for mib in chosen.sizes:
        row = row_of(mib, chosen)
        table.row(*(row[key] for key in columns))
        if chosen.record:
            record(row)
        rows.append(row)
    if not chosen.instructions:
        print("Instructions are not counted: --instructions does, with Valgrind.")
    if chosen.vs == "simgrid":
        print(
            "SimGrid: its messages a CPU second for one of ours. It moves no data; this program moves and checks them."
        )
    return {"rows": rows}


def record(row: dict[str, Any], page: Path = PAGE) -> None:
    """Append a row to the table at the end of the page."""
    cells = (datetime.date.today(), _git("rev-parse", "--short=8", "HEAD"), _machine(), row["mib"], row["transfers"])
    figures = (f"{row['cpu_s']:.2f}", f"{row['cpu_us_a_transfer']:.1f}", f"{row['simulated_us']:.3f}")
    with page.open("a") as file:
        file.write(f"| {' | '.join(map(str, (*cells, *figures)))} |\n")


def _machine() -> str:
    found = re.search(r"^model name\s*: *(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{found[1] if found else os.uname().machine}, {os.cpu_count()} cores"


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
    if done.returncode:
        refuse("allreduce", f"--record needs git and a clone: {done.stderr.strip()}")
    return done.stdout.strip()
