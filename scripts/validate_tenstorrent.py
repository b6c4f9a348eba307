#!/usr/bin/env python3
"""Published figures of Tenstorrent hardware beside simulated ones: every row, its error, and what mechanisms add.

``--csv FILE`` takes any file with the columns of ``configs/published``; rows that no bench claims have no figure and
count as misses, and so do rows of a case that fails. ``--page FILE`` puts the tables into a page, between the lines
that name them. The exit code is 0 if no case has failed, 2 for a mistake, and 3 else.
"""

import argparse
import importlib
import importlib.util
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from tenstorrent import report as tables
from tenstorrent.compare import Runner, Settings, Verdict, summary, validate
from tenstorrent.mechanisms import without_each
from tenstorrent.rows import add_cases

from launcher import flag_types
from launcher.bench.machine import LINKS, Machine
from launcher.bench.published import Published, default_files, read_published
from sipsim.config.load import default_dir
from sipsim.core.errors import ConfigError

FAILED_EXIT = 3
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
    "round_ns": "a router's loop, each time round",
    "look_ns": "a router's look at a channel, before each visit too",
    "send_ns": "of a sender channel, before the Ethernet command of a packet",
    "sent_ns": "behind that command",
    "credit_ns": "notify an upstream that slots are free",
    "forward_ns": "of a receiver channel, before the first NoC command of a packet",
    "further_ns": "before each further one",
    "completion_ns": "notify the far end that slots are free",
    "ack_ns": "a first-level acknowledgement",
    "fabric.copy_bytes": "of a packet of the fabric, that each Ethernet subsystem stores",
    "mux_visit_ns": "a mux's own work for a packet",
    "ccl.launch_ns": "from a call until its kernels begin",
    "ccl.skew_ns": "how much later than chip 0 the others start, in single calls",
    "page_ns": "a worker's own work for each page of a packet",
    "add_GBps": "at which a worker adds pages",
}
"""Keys of the chips' files; behind a point, of that section."""


def parameters() -> str:
    """The parameters that these rows depend on, with where each comes from, in Markdown."""
    lines = ["| parameter | Wormhole | Blackhole | unit | meaning | source (Wormhole; Blackhole) |"]
    lines.append("|---|---:|---:|---|---|---|")
    texts = [(default_dir() / "chips" / f"{chip}.yaml").read_text() for chip in LINKS]
    links = (default_dir() / "links.yaml").read_text()
    # The link first: DRAM has a latency, too.
    texts = [links[links.index(f"  {name}:") :] + text for text, name in zip(texts, LINKS.values(), strict=True)]
    for key, meaning in PARAMETERS.items():
        section, _, name = key.rpartition(".")
        own = [text[text.index(f"\n{section}:") :] if section else text for text in texts]
        first, second = (
            re.search(rf"^ *{name}: (\S+)  # \[([^\]]*)\] source: (.*)$", text, re.MULTILINE) for text in own
        )
        assert first, key
        assert second, key
        source = first[3] if first[3] == second[3] else f"{first[3]}; {second[3]}"
        lines.append(f"| `{key}` | {first[1]} | {second[1]} | {first[2]} | {meaning} | {source} |")
    return "\n".join(lines)


def put(page: str, name: str, text: str) -> str:
    """The page with a table between the lines that name it."""
    first, last = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if first not in page or last not in page:
        raise ConfigError(f"--page: the lines {first} and {last} are missing")
    before, _, rest = page.partition(first)
    _, _, behind = rest.partition(last)
    return f"{before}{first}\n{text}\n{last}{behind}"


def chosen_rows(chosen: argparse.Namespace) -> list[Published]:
    """The rows of the files, or those that the flags name.

    Raises:
        ConfigError: for a file that is no table of figures, and names that no row has.
    """
    rows = [row for path in ([chosen.csv] if chosen.csv else default_files()) for row in read_published(path)]
    for flag, names, of in (("--family", chosen.family, "family"), ("--rows", chosen.rows, "id")):
        missing = [name for name in names if name not in {getattr(row, of) for row in rows}]
        if missing:
            raise ConfigError(f"{flag}: no row has the {of} {missing[0]!r}")
        rows = [row for row in rows if not names or getattr(row, of) in names]
    return rows


def chosen_settings(words: list[str]) -> Settings:
    """What ``--set`` asks for, by chip.

    Raises:
        ConfigError: for a chip, a key or a value that cannot be.
    """
    settings: dict[str, tuple[str, ...]] = {}
    for word in words:
        chip, _, setting = word.partition(":")
        if chip not in LINKS:
            raise ConfigError(f"--set {word}: must be CHIP:KEY=VALUE, with a chip of {', '.join(LINKS)}")
        settings[chip] = (*settings.get(chip, ()), setting)
    for chip, own in settings.items():
        Machine(chip=chip, settings=own).check()
    return settings


def plotting(path: Path | None) -> Any:
    """``matplotlib.pyplot``, if a picture is asked for.

    Raises:
        ConfigError: where it is not installed.
    """
    if path is None:
        return None
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("--plot: matplotlib is not installed")
    importlib.import_module("matplotlib").use("Agg")
    return importlib.import_module("matplotlib.pyplot")


def write(chosen: argparse.Namespace, verdicts: list[Verdict], texts: dict[str, str], pyplot: Any) -> None:
    """All files that the flags ask for."""
    if chosen.json:
        chosen.json.write_text(json.dumps(tables.document(verdicts), indent=1) + "\n")
    if chosen.plot:
        tables.scatter(verdicts, pyplot).savefig(chosen.plot)
    if chosen.page:
        page = chosen.page.read_text()
        for name, text in texts.items():
            page = put(page, name, text)
        chosen.page.write_text(page)


def flags() -> argparse.ArgumentParser:
    """The command line."""
    names = {"type": lambda text: text.split(","), "default": [], "metavar": "NAME[,NAME...]"}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csv", type=Path, metavar="FILE", help="published figures, in place of the project's")
    parser.add_argument("--add-cases", action="store_true", help="only write the column case of the file or files anew")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write rows as id, kind, measured, simulated, error")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw simulated over measured, as PNG or SVG")
    parser.add_argument("--page", type=Path, metavar="FILE", help="put the tables into this page")
    parser.add_argument("--family", **names, help="these families alone")
    parser.add_argument("--rows", **names, help="these rows alone")
    parser.add_argument(
        "--set", action="append", default=[], dest="settings", metavar="CHIP:KEY=VALUE", help="as of ahbm-launch"
    )
    parser.add_argument("--mechanisms", action="store_true", help="simulate without each mechanism, too")
    parser.add_argument(
        "--jobs", type=flag_types.IntRange(1, 1024), metavar="N", help="processes; one a core, if not given"
    )
    return parser


def main() -> int:
    chosen, started_s = flags().parse_args(), time.monotonic()
    try:
        if chosen.add_cases:
            for path in [chosen.csv] if chosen.csv else default_files():
                add_cases(path)
            return 0
        rows, settings, pyplot = chosen_rows(chosen), chosen_settings(chosen.settings), plotting(chosen.plot)
        with Runner(chosen.jobs) as runner:
            verdicts = validate(rows, settings, runner)
            texts = {
                "rows": tables.rows(verdicts),
                "families": tables.families(verdicts),
                "unclaimed": tables.unclaimed(verdicts),
                "parameters": parameters(),
            }
            if chosen.mechanisms:
                texts["mechanisms"] = tables.without(without_each(rows, settings, runner))
        write(chosen, verdicts, texts, pyplot)
    except ConfigError as error:
        print(f"validate_tenstorrent.py: {error}", file=sys.stderr)
        return error.exit_code
    for text in texts.values():
        print(text, end="\n\n")
    print(tables.line_of(summary(verdicts)))
    print(f"{time.monotonic() - started_s:.1f} s")
    failed = tables.failures(verdicts)
    if failed:
        print(f"failed:\n{failed}", file=sys.stderr)
    return FAILED_EXIT if failed else 0


if __name__ == "__main__":
    sys.exit(main())
