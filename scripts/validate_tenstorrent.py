#!/usr/bin/env python3
"""Published figures of Tenstorrent hardware beside simulated ones: every row, its error, and what mechanisms add.

``--csv FILE`` takes any file with the columns of ``configs/published``; rows that no bench knows have no figure and
count as misses. ``--page FILE`` puts the tables into a page, between the lines that name them.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from launcher.bench.published import TO_REPRODUCE, Published, default_files, read_published
from launcher.bench.validation import NEAR, Summary, Verdict, summary, validate
from sipsim.config.load import default_dir
from sipsim.errors import AhbmError, ConfigError

CHIPS = ("wormhole", "blackhole")
LINK = "links.tenstorrent_100g.params"
RISC = "system.chip_params.risc"
MOVER = "system.chip_params.data_mover"
MECHANISMS = {
    "messages are stored in both subsystems": ("system.chip_params.ethernet.copy_GBps=null",),
    "a timer takes time to read": (f"{RISC}.timer_ns=0.001",),
    "a look takes time": (f"{RISC}.poll_ns=0.001",),
    "visits of channels take time": (f"{MOVER}.sender_visit_ns=0", f"{MOVER}.receiver_visit_ns=0"),
    "an Ethernet command takes time": (f"{RISC}.eth_command_ns=0",),
    "a NoC command takes time": (f"{RISC}.noc_command_ns=0",),
    "packets have 50 B of overhead": tuple(
        f"{LINK}.{key}=0"
        for key in ("preamble_bytes", "header_bytes", "stream_header_bytes", "fcs_bytes", "min_frame_bytes")
    ),
    "a link has latency": (f"{LINK}.latency_ns=1",),
}
"""Each with the settings that switch it off."""
PARAMETERS = {
    "latency_ns": "both Ethernet subsystems and the wire, from the first bit sent to the first seen",
    "copy_GBps": "each subsystem moves a message between L1 and the wire; it is on its way when all of it is there",
    "eth_command_ns": "put a command into a transmit queue",
    "noc_command_ns": "put a command into the NoC's interface",
    "poll_ns": "one look of a loop that waits",
    "l1_access_ns": "one load or store of L1 elsewhere",
    "timer_ns": "read the timer",
    "sender_visit_ns": "a data mover's own books, when a visit has sent a message",
    "receiver_visit_ns": "the same, when a visit has freed a buffer",
    "bandwidth_GBps": "a link's line rate, framing included",
    "max_payload_bytes": "the hardware cuts longer messages",
    "hop_cycles": "from a NoC's router to the next",
    "niu_cycles": "between a tile and its router",
    "flit_bytes": "what a NoC moves a cycle",
}


def table(verdicts: list[Verdict]) -> str:
    """A line a row, in Markdown."""
    lines = ["| row | test | bytes | unit | measured | simulated | error |", "|---|---|---:|---|---:|---:|---:|"]
    for verdict in verdicts:
        row, simulated, error = verdict.row, verdict.simulated, verdict.error
        if row.kind == TO_REPRODUCE:
            ends = ["-", "-"] if simulated is None or error is None else [f"{simulated:.4g}", f"{100 * error:+.1f} %"]
            size = "" if row.nbytes is None else row.nbytes
            lines.append(f"| {row.id} | `{row.test}` | {size} | {row.metric} | {row.value:g} | {ends[0]} | {ends[1]} |")
    return "\n".join(lines)


def line_of(found: Summary) -> str:
    """A summary in words."""
    median = "no figure" if found.median is None else f"median error {100 * found.median:.1f} %"
    return f"{found.near} of {found.rows} rows within {100 * NEAR:.0f} %, {median}"


def families(verdicts: list[Verdict]) -> str:
    """A line a family and architecture, in Markdown."""
    keys = dict.fromkeys((verdict.row.architecture, verdict.row.family) for verdict in verdicts)
    lines = ["| architecture | family | rows | within 15 % | median error |", "|---|---|---:|---:|---:|"]
    for key in keys:
        found = summary([each for each in verdicts if (each.row.architecture, each.row.family) == key])
        if found.rows:
            median = "-" if found.median is None else f"{100 * found.median:.1f} %"
            lines.append(f"| {key[0]} | `{key[1]}` | {found.rows} | {found.near} | {median} |")
    return "\n".join(lines)


def mechanisms(rows: list[Published]) -> str:
    """What is lost without each mechanism, in Markdown."""
    lines = ["| without | rows within 15 % | median error |", "|---|---:|---:|"]
    for name, settings in {"(all are on)": (), **MECHANISMS}.items():
        found = summary(validate(rows, {"wormhole": settings}))
        lines.append(f"| {name} | {found.near} of {found.rows} | {100 * (found.median or 0):.1f} % |")
    return "\n".join(lines)


def parameters() -> str:
    """The parameters that these rows depend on, with where each comes from, in Markdown."""
    lines = ["| parameter | Wormhole | Blackhole | unit | meaning | source (Wormhole; Blackhole) |"]
    lines.append("|---|---:|---:|---|---|---|")
    texts = [(default_dir() / "chips" / f"{chip}.yaml").read_text() for chip in CHIPS]
    links = (default_dir() / "links.yaml").read_text()
    # The link first: DRAM has a latency, too.
    texts = [links[links.index(f"  {name}:") :] + text for text, name in zip(texts, LINK_NAMES, strict=True)]
    for key, meaning in PARAMETERS.items():
        found = [re.search(rf"^ *{key}: (\S+)  # \[([^\]]*)\] source: (.*)$", text, re.MULTILINE) for text in texts]
        first, second = found
        assert first, key
        assert second, key
        source = first[3] if first[3] == second[3] else f"{first[3]}; {second[3]}"
        lines.append(f"| `{key}` | {first[1]} | {second[1]} | {first[2]} | {meaning} | {source} |")
    return "\n".join(lines)


LINK_NAMES = ("tenstorrent_100g", "tenstorrent_400g")


def put(page: str, name: str, text: str) -> str:
    """The page with a table between the lines that name it."""
    first, last = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = page.partition(first)
    _, _, behind = rest.partition(last)
    return f"{before}{first}\n{text}\n{last}{behind}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csv", type=Path, help="published figures, in place of the project's")
    parser.add_argument("--json", type=Path, help="write rows as id, kind, measured, simulated, error")
    parser.add_argument("--mechanisms", action="store_true", help="simulate without each mechanism, too")
    parser.add_argument("--page", type=Path, help="put all tables into this page")
    chosen = parser.parse_args()
    try:
        rows = [row for path in ([chosen.csv] if chosen.csv else default_files()) for row in read_published(path)]
        verdicts = validate(rows)
    except AhbmError as error:
        print(f"validate_tenstorrent.py: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, ConfigError) else 3
    if chosen.json:
        told = [
            {"id": v.row.id, "kind": v.row.kind, "measured": v.row.value, "simulated": v.simulated, "error": v.error}
            for v in verdicts
        ]
        chosen.json.write_text(json.dumps({"rows": told}, indent=1) + "\n")
    texts = {"rows": table(verdicts), "families": families(verdicts), "parameters": parameters()}
    if chosen.mechanisms or chosen.page:
        texts["mechanisms"] = mechanisms(rows)
    for text in texts.values():
        print(text, end="\n\n")
    print(line_of(summary(verdicts)))
    if chosen.page:
        page = chosen.page.read_text()
        for name, text in texts.items():
            page = put(page, name, text)
        chosen.page.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
