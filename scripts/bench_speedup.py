"""Parallel speed-up, measured: the same all-reduce in one process (``inproc``) and with a process a SIP (``local``).

Every row is the median of ``--repeat`` runs of ``ahbm-launch``, the engines taking turns. ``wall_s`` is the whole
command, ``simulate_s`` the part between the last join and the end, ``cpu_s`` all processes together,
``cpu_us_per_event`` that of the SIPs over their SimPy events. ``speedup`` is ``inproc``'s ``simulate_s`` over the
row's, in the same call. The digests of all runs of a size must be equal, or the bench fails.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ENGINES = {"inproc": ("inproc", "zmq"), "local-zmq": ("local", "zmq"), "local-unix": ("local", "unix")}


def launch(sips: int, name: str, chosen: argparse.Namespace, folder: str) -> dict[str, Any]:
    """One run, as a user would start it."""
    out = Path(folder) / "out.json"
    engine, mail = ENGINES[name]
    command = [str(ROOT / "scripts" / "ahbm-launch"), "--sips", str(sips), "--topology", chosen.topology]
    command += ["--bytes", chosen.bytes, "--link", chosen.link, "--no-verify-data", "--quiet", "--json", str(out)]
    began_s = time.perf_counter()
    process = subprocess.Popen([*command, "--engine", engine, "--mail", mail], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began_s
    process.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise SystemExit(f"bench_speedup: {' '.join(command)} ended with {process.returncode}")
    document = json.loads(out.read_text())
    ranks, events = document["ranks"], sum(rank["events"] for rank in document["ranks"])
    # In one process every rank tells the CPU time and the memory of that one process.
    processes = ranks if engine == "local" else ranks[:1]
    return {
        "wall_s": wall_s,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "startup_s": document["wall_s"]["startup"],
        "simulate_s": document["wall_s"]["simulate"],
        "pss_mib_per_sip": sum(rank["peak_pss_mib"] for rank in processes) / sips,
        "cpu_us_per_event": 1e6 * sum(rank["cpu_s"] for rank in processes) / events,
        "events": events,
        "grants": document["sync"]["grants"],
        "digest": document["digest"],
    }


def rows_for(sips: int, chosen: argparse.Namespace, folder: str) -> list[dict[str, Any]]:
    """All engines at one number of SIPs."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen.engines}
    for _ in range(chosen.repeat):
        for name, told in runs.items():
            told.append(launch(sips, name, chosen, folder))
    digests = {run["digest"] for told in runs.values() for run in told}
    if len(digests) != 1:
        raise SystemExit(f"bench_speedup: {sips} SIPs have different digests: {sorted(digests)}")
    rows = []
    for name, told in runs.items():
        engine, mail = ENGINES[name]
        middle = {key: statistics.median(run[key] for run in told) for key in told[0] if key != "digest"}
        rows.append({"sips": sips, "engine": engine, "mail": mail if engine == "local" else None, **middle})
    one_process = next((row["simulate_s"] for row in rows if row["engine"] == "inproc"), None)
    for row in rows:
        row["speedup"] = one_process and one_process / row["simulate_s"]
        row["digest"] = next(iter(digests))
    return rows


def words(text: str) -> list[str]:
    """A list with commas."""
    return text.split(",")


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sips", type=lambda t: [int(n) for n in words(t)], default=[2, 4, 8, 16], help="2,4,8,16")
    parser.add_argument("--engines", type=words, default=list(ENGINES), help=",".join(ENGINES))
    parser.add_argument("--topology", default="ring_1d", help="(ring_1d)")
    parser.add_argument("--bytes", default="4M", help="size of a rank's tensor (4M)")
    parser.add_argument("--link", default="ethernet_400g", help="(ethernet_400g)")
    parser.add_argument("--repeat", type=int, default=3, help="runs a row (3)")
    parser.add_argument("--json", type=Path, help="write the rows")
    chosen = parser.parse_args()
    head = f"{'SIPs':>4}  {'engine':<12}{'wall s':>8}{'start-up':>10}{'simulate':>10}{'speed-up':>10}{'CPU s':>8}"
    print(f"{head}{'CPU us/event':>14}{'grants':>8}{'PSS MiB/SIP':>13}")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for sips in chosen.sips:
            for row in rows_for(sips, chosen, folder):
                rows.append(row)
                name = row["engine"] + (f"-{row['mail']}" if row["mail"] else "")
                times = f"{row['wall_s']:>8.2f}{row['startup_s']:>10.2f}{row['simulate_s']:>10.2f}"
                speedup = "-" if row["speedup"] is None else f"{row['speedup']:.2f}"
                costs = f"{row['cpu_s']:>8.2f}{row['cpu_us_per_event']:>14.2f}{row['grants']:>8.0f}"
                print(f"{sips:>4}  {name:<12}{times}{speedup:>10}{costs}{row['pss_mib_per_sip']:>13.1f}", flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
