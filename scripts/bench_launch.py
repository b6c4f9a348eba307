"""What the default command costs from the shell: wall time, start-up, memory. A table, and ``--json FILE``.

Every row is the median and the worst of several runs of ``ahbm-launch`` as a user starts it, next to the floor of
this machine in the same call: starting Python, and importing what a SIP needs. Nothing is asserted here.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
IMPORTS = "import numpy, simpy, zmq, msgpack, msgspec, yaml, greenlet"


def timed(command: list[str]) -> float:
    """Wall seconds of one command that must succeed."""
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def launch(sips: int, topology: str, engine: str, folder: str) -> dict[str, Any]:
    """One run: what the shell saw, and what the run says of itself."""
    out = Path(folder) / "out.json"
    command = [str(ROOT / "scripts" / "ahbm-launch"), "--sips", str(sips), "--topology", topology]
    wall_s = timed([*command, "--engine", engine, "--json", str(out)])
    document = json.loads(out.read_text())
    return {
        "wall_s": wall_s,
        "startup_s": document["wall_s"]["startup"],
        "simulate_s": document["wall_s"]["simulate"],
        "pss_mib": max(rank["peak_pss_mib"] for rank in document["ranks"]),
    }


def row(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of some runs, and the worst wall time."""
    medians = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    return {"what": name, **medians, "worst_wall_s": max(run["wall_s"] for run in runs)}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=9, help="runs a row (9)")
    parser.add_argument("--json", type=Path, help="write the rows")
    chosen = parser.parse_args()
    rows = []
    for name, code in (("python", "pass"), ("python + imports", IMPORTS)):
        floor = [{"wall_s": timed([sys.executable, "-c", code])} for _ in range(chosen.repeat)]
        rows.append(row(name, floor))
    with tempfile.TemporaryDirectory() as folder:
        launch(2, "ring_1d", "local", folder)  # makes the environment where there is none
        for sips, topology, engine in ((4, "torus_2d", "local"), (4, "torus_2d", "inproc"), (16, "torus_2d", "local")):
            runs = [launch(sips, topology, engine, folder) for _ in range(chosen.repeat)]
            rows.append(row(f"{sips} SIPs {topology} {engine}", runs))
    print(f"{'':<28}{'wall s':>9}{'worst':>9}{'start-up':>10}{'simulate':>10}{'PSS MiB':>9}")
    for measured in rows:
        cells = (measured.get(key) for key in ("wall_s", "worst_wall_s", "startup_s", "simulate_s", "pss_mib"))
        text = ("-" if cell is None else f"{cell:.3f}" for cell in cells)
        print(f"{measured['what']:<28}" + "".join(f"{t:>{w}}" for t, w in zip(text, (9, 9, 10, 10, 9), strict=True)))
    if chosen.json:
        chosen.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
