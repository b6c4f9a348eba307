"""A ring all-reduce here and in SimGrid: simulated times, and wall time a message.

Here: ``--algorithm ring`` with ``--variant ideal``, which has the costs of commands off by name. There: the same
2 (N - 1) steps of S / N bytes by actors of SimGrid's Python binding (Debian's ``python3-simgrid``, under the
system's Python), raw model ``CM02`` without corrections. Both are set against 2 (N - 1) (L + S / (N B)), with L from
``ahbm-probe`` between two PEs, and B the link's bandwidth after framing, as counted in the run.
"""

import argparse
import contextlib
import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .kit import Flag, Table, command, launch

SYSTEM_PYTHON = "/usr/bin/python3"
MISSING = "SimGrid is not here: apt-get install python3-simgrid, or name its interpreter with --python"
NEAR = 0.05
FLAGS = {
    "sips": Flag((4, 8, 16), (4,), "numbers of SIPs"),
    "bytes": Flag(2**20, 2**16, "bytes of a rank's tensor"),
    "python": Flag(SYSTEM_PYTHON, SYSTEM_PYTHON, "the interpreter with SimGrid"),
}
RING = """
import json, sys, time
from simgrid import Actor, Engine, Mailbox
n, sizes = int(sys.argv[-2]), json.loads(sys.argv[-1])
def rank(index):
    own, to = Mailbox.by_name(str(index)), Mailbox.by_name(str((index + 1) % n))
    for nbytes, count in sizes:
        for first in range(0, count, n):
            sent = to.put_async(index, nbytes) if first + index < count else None
            if first + (index - 1) % n < count:
                own.get()
            if sent is not None:
                sent.wait()
engine = Engine(sys.argv)
engine.load_platform(sys.argv[1])
for index in range(n):
    Actor.create(str(index), engine.host_by_name("h%d" % index), rank, index)
start = time.perf_counter()
engine.run()
wall_s = time.perf_counter() - start
print(json.dumps({"time_ns": Engine.clock * 1e9, "wall_s": wall_s, "cpu_s": time.process_time()}))
"""
RAW = (
    "network/model:CM02",
    "network/bandwidth-factor:1",
    "network/latency-factor:1",
    "network/weight-S:0",
    "network/crosstraffic:0",
    "network/TCP-gamma:0",
    "surf/precision:1e-12",
)


def latency_ns() -> float:
    """From PE to PE of neighbouring SIPs: the data's terms but for the drain."""
    flags = "--sips 4 --variant ideal --from 0.8.0 --to 1.8.0 --bytes 4096"
    terms = command("ahbm-probe", *flags.split()).document["pair"]["terms"]
    return float(sum(term["ps"] for term in terms if term["part"] == "data" and term["kind"] != "drain") / 1000)


def has_simgrid(python: str) -> bool:
    """Whether an interpreter is there and has SimGrid."""
    with contextlib.suppress(OSError):
        return subprocess.run([python, "-c", "import simgrid"], capture_output=True).returncode == 0
    return False


def simgrid(python: str, n: int, sizes: Mapping[int, int], bytes_per_ns: float, latency: float) -> dict[str, float]:
    """Messages around a ring of ``n`` there: simulated ns, wall s of the simulation, CPU s of the whole process.

    ``sizes``: by the bytes of a message, how many all ranks together send.
    """
    with tempfile.TemporaryDirectory() as folder:
        platform, program = Path(folder, "ring.xml"), Path(folder, "ring.py")
        hosts = "".join(f'<host id="h{i}" speed="1Gf"/>' for i in range(n))
        rate = f'bandwidth="{bytes_per_ns * 1e9:.6f}Bps" latency="{latency}ns"'
        links = "".join(f'<link id="l{i}" {rate}/>' for i in range(n))
        routes = "".join(
            f'<route src="h{i}" dst="h{(i + 1) % n}" symmetrical="NO"><link_ctn id="l{i}"/></route>' for i in range(n)
        )
        zone = f'<zone id="ring" routing="Full">{hosts}{links}{routes}</zone>'
        head = '<?xml version="1.0"?><!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">'
        platform.write_text(f'{head}<platform version="4.1">{zone}</platform>')
        program.write_text(RING)
        words = [
            python,
            str(program),
            str(platform),
            *(f"--cfg={each}" for each in RAW),
            str(n),
            json.dumps([*sizes.items()]),
        ]
        done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"bench simgrid: {done.stderr.strip()}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """A row for each number of SIPs: times here and there, each beside the formula."""
    latency, rows, is_here = latency_ns(), [], has_simgrid(chosen.python)
    title = f"L = {latency:.3f} ns from PE to PE; flags: --variant ideal --algorithm ring --engine inproc"
    here, there_heads = ("formula us:11.3f", "here us:9.3f", "off:7.2%"), ("SimGrid us:11.3f", "off:7.2%")
    table = Table("SIPs:5", *here, *there_heads, "wall a message:>14", title=title)
    for n in chosen.sips:
        flags = ("--sips", n, "--algorithm", "ring", "--variant", "ideal", "--bytes", chosen.bytes)
        document = launch(*flags, "--engine", "inproc", "--no-verify-data")
        run = document["runs"][0]
        link = max(run["links"], key=lambda each: each["payload_bytes"])
        bytes_per_ns = link["payload_bytes"] * 1000 / link["busy_ps"]
        formula = 2 * (n - 1) * (latency + chosen.bytes / (n * bytes_per_ns))
        off = run["time_ns"] / formula - 1
        sizes = {round(chosen.bytes / n): 2 * n * (n - 1)}
        there = simgrid(chosen.python, n, sizes, bytes_per_ns, latency) if is_here else None
        messages = sum(rank["packets_sent"] for rank in document["ranks"]) / 2
        row = {"sips": n, "formula_ns": formula, "time_ns": run["time_ns"], "off": off, "simgrid": there}
        row["wall_us_a_message"] = document["wall_s"]["simulate"] * 1e6 / messages
        cells: tuple[Any, ...] = (None, None, None)
        if there is not None:
            of_simgrid = there["wall_s"] * 1e6 / (2 * n * (n - 1))
            ratio = f"{row['wall_us_a_message'] / of_simgrid:.1f}x"
            cells = (there["time_ns"] / 1000, there["time_ns"] / formula - 1, ratio)
        table.row(n, formula / 1000, run["time_ns"] / 1000, off, *cells)
        rows.append(row)
    if not is_here:
        print(f"{MISSING}; left out")
    return {"latency_ns": latency, "rows": rows}


def holds(document: dict[str, Any]) -> bool:
    """Each time is near the formula."""
    return all(abs(row["off"]) <= NEAR for row in document["rows"])
