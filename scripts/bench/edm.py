"""What the simulator spends on packets over one link: CPU seconds, events a packet, simulated rate.

``raw`` is the link itself: commands of an Ethernet core, one event at the far end each. ``edm`` has workers and data
movers at both ends. All SIPs run in this process; what a run without packets takes is subtracted.
"""

import argparse
from typing import Any

from launcher.api import run

from .kit import SCRIPTS, Flag, Table, cpu_s

FLAGS = {
    "packets": Flag(100_000, 2_000, "packets of each run"),
    "bytes": Flag(4096, 4096, "bytes of each packet"),
    "channels": Flag((1, 8), (1, 8), "channels of the data mover"),
    "chip": Flag("wormhole", "wormhole", "which chip"),
    "set": Flag("", "", "a setting of the config, as of ahbm-launch"),
}
SCRIPT = SCRIPTS / "benches" / "edm_stream.py"
SYSTEM: dict[str, Any] = {"sips": 2, "topology": "mesh_2d_no_wrap", "shape": "2x1", "engine": "inproc"}


def measured(how: str, packets: int, nbytes: int, channels: int, settings: list[str]) -> dict[str, Any]:
    """One run."""
    args = [how, packets, nbytes, channels]
    took_s, outcome = cpu_s(lambda: run(SCRIPT, script_args=args, set=settings, **SYSTEM))
    if outcome.error is not None:
        raise SystemExit(f"bench edm: {outcome.error.message}")
    ranks = outcome.document["ranks"]
    end_ns = max(rank["sim_end_ps"] for rank in ranks) / 1000
    return {"cpu_s": took_s, "events": [rank["events"] for rank in ranks], "end_ns": end_ns}


def row(how: str, packets: int, nbytes: int, channels: int, settings: list[str]) -> dict[str, Any]:
    """What packets take beyond a few."""
    few = measured(how, 2 * channels, nbytes, channels, settings)
    many = measured(how, packets, nbytes, channels, settings)
    more = packets - 2 * channels
    return {
        "how": how,
        "packets": packets,
        "bytes": nbytes,
        "channels": channels,
        "cpu_s": round(many["cpu_s"] - few["cpu_s"], 3),
        "cpu_us_a_packet": round((many["cpu_s"] - few["cpu_s"]) / more * 1e6, 1),
        "events_a_packet": [round((a - b) / more, 3) for a, b in zip(many["events"], few["events"], strict=True)],
        "GBps": round(more * nbytes / (many["end_ns"] - few["end_ns"]), 3),
    }


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """A row for the link itself, and one for each number of channels."""
    settings = [f"system.chip={chosen.chip}", *filter(None, [chosen.set])]
    costs = "CPU s:8.3f", "us a packet:12.1f", "events a packet:>18", "GB/s:8.3f"
    table = Table("how:<4", "packets:8", "bytes:7", "channels:9", *costs)
    rows = []
    measured("raw", 2, chosen.bytes, 1, settings)  # The first run of a process pays the imports.
    for how, channels in [("raw", 1), *(("edm", channels) for channels in chosen.channels)]:
        rows.append(row(how, chosen.packets // channels * channels, chosen.bytes, channels, settings))
        table.row(*({**rows[-1], "events_a_packet": " ".join(map(str, rows[-1]["events_a_packet"]))}.values()))
    return {"rows": rows}
