"""Parallel speed-up, measured: the same all-reduce in one process (``inproc``) and with a process a SIP (``local``).

Every row is the median of ``--repeat`` runs of ``ahbm-launch``, the engines taking turns. ``wall_s`` is the whole
command, ``simulate_s`` the part between the last join and the end, ``cpu_s`` all processes together,
``cpu_us_per_event`` that of the SIPs over their SimPy events. ``speedup`` is ``inproc``'s ``simulate_s`` over the
row's, in the same call. The digests of all runs of a size must be equal, or the bench fails.
"""

import argparse
import statistics
from typing import Any

from .kit import Flag, Table, command

ENGINES = {"inproc": ("inproc", "zmq"), "local-zmq": ("local", "zmq"), "local-unix": ("local", "unix")}
FLAGS = {
    "sips": Flag((2, 4, 8, 16), (2, 4), "numbers of SIPs"),
    "engines": Flag(tuple(ENGINES), tuple(ENGINES), "engines, with their mail", tuple(ENGINES)),
    "topology": Flag("ring_1d", "ring_1d", "topology"),
    "bytes": Flag("4M", "64K", "size of a rank's tensor"),
    "link": Flag("ethernet_400g", "ethernet_400g", "link between SIPs"),
    "repeat": Flag(3, 1, "runs a row"),
}


def launched(sips: int, name: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """One run, as a user would start it."""
    engine, mail = ENGINES[name]
    system = ("--sips", sips, "--topology", chosen.topology, "--bytes", chosen.bytes, "--link", chosen.link)
    done = command("ahbm-launch", *system, "--no-verify-data", "--quiet", "--engine", engine, "--mail", mail)
    document = done.document
    ranks, events = document["ranks"], sum(rank["events"] for rank in document["ranks"])
    # In one process every rank reports the CPU time and the memory of that one process.
    processes = ranks if engine == "local" else ranks[:1]
    return {
        "wall_s": done.wall_s,
        "cpu_s": done.cpu_s,
        "startup_s": document["wall_s"]["startup"],
        "simulate_s": document["wall_s"]["simulate"],
        "pss_mib_per_sip": sum(rank["peak_pss_mib"] for rank in processes) / sips,
        "cpu_us_per_event": 1e6 * sum(rank["cpu_s"] for rank in processes) / events,
        "events": events,
        "grants": document["sync"]["grants"],
        "digest": document["digest"],
    }


def rows_for(sips: int, chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """All engines at one number of SIPs."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen.engines}
    for _ in range(chosen.repeat):
        for name, found in runs.items():
            found.append(launched(sips, name, chosen))
    digests = {run["digest"] for found in runs.values() for run in found}
    if len(digests) != 1:
        raise SystemExit(f"bench speedup: {sips} SIPs have different digests: {sorted(digests)}")
    rows = []
    for name, found in runs.items():
        engine, mail = ENGINES[name]
        middle = {key: statistics.median(run[key] for run in found) for key in found[0] if key != "digest"}
        rows.append({"sips": sips, "engine": engine, "mail": mail if engine == "local" else None, **middle})
    one_process = next((row["simulate_s"] for row in rows if row["engine"] == "inproc"), None)
    for row in rows:
        row["speedup"] = one_process and one_process / row["simulate_s"]
        row["digest"] = next(iter(digests))
    return rows


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """All engines at each number of SIPs."""
    columns = {
        "sips": "SIPs:4",
        "name": "engine:<12",
        "wall_s": "wall s:8.2f",
        "startup_s": "start-up:9.2f",
        "simulate_s": "simulate:9.2f",
        "speedup": "speed-up:9.2f",
        "cpu_s": "CPU s:8.2f",
        "cpu_us_per_event": "CPU us/event:13.2f",
        "grants": "grants:8.0f",
        "pss_mib_per_sip": "PSS MiB/SIP:12.1f",
    }
    table, rows = Table(*columns.values()), []
    for sips in chosen.sips:
        for row in rows_for(sips, chosen):
            name = row["engine"] + (f"-{row['mail']}" if row["mail"] else "")
            table.row(*({**row, "name": name}[key] for key in columns))
            rows.append(row)
    return {"rows": rows}
