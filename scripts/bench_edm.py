#!/usr/bin/env python3
"""What the simulator spends on packets over one link: CPU seconds, events a packet, simulated rate.

``raw`` is the link itself: commands of an Ethernet core, one event at the far end each. ``edm`` has workers and data
movers at both ends. All SIPs run in this process; what a run without packets takes is subtracted.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from launcher.api import run

SCRIPT = Path(__file__).resolve().parent / "benches" / "edm_stream.py"
FLAGS: dict[str, Any] = {"sips": 2, "topology": "mesh_2d_no_wrap", "shape": "2x1", "engine": "inproc"}


def measured(how: str, packets: int, nbytes: int, channels: int, settings: list[str]) -> dict[str, Any]:
    """One run."""
    begin_s = time.process_time()
    outcome = run(SCRIPT, script_args=[how, packets, nbytes, channels], set=settings, **FLAGS)
    cpu_s = time.process_time() - begin_s
    if outcome.error is not None:
        raise SystemExit(f"bench_edm: {outcome.error.message}")
    ranks = outcome.document["ranks"]
    end_ns = max(rank["sim_end_ps"] for rank in ranks) / 1000
    return {"cpu_s": cpu_s, "events": [rank["events"] for rank in ranks], "end_ns": end_ns}


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packets", type=int, default=100_000, help="of each run (default: %(default)s)")
    parser.add_argument("--bytes", type=int, default=4096, help="of each packet (default: %(default)s)")
    parser.add_argument("--channels", type=int, nargs="+", default=[1, 8], help="of the data mover")
    parser.add_argument("--chip", default="wormhole")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as of ahbm-launch")
    parser.add_argument("--json", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    settings = [f"system.chip={chosen.chip}", *chosen.set]
    rows = []
    for how, channels in [("raw", 1), *(("edm", channels) for channels in chosen.channels)]:
        packets = chosen.packets // channels * channels
        rows.append(row(how, packets, chosen.bytes, channels, settings))
        shown = "  ".join(f"{key} {value}" for key, value in rows[-1].items())
        print(shown, flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
