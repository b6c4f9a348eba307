"""Programs of many messages, and how much more is alive at the end of one than at its first point. Not a test.

    PYTHONPATH=tests/inproc/helpers python -m lives NAME MESSAGES [POINTS] [FLAGS]

prints the samples of one. Checks of invariants are off unless the program asks for them.
"""

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from runs import FreedTensors, run

from sipsim.chips.ahbm.host import process_groups
from sipsim.core import session
from sipsim.fabric import flows
from sipsim.node import client
from sipsim.records import oplog, replay

FOLDER = Path(__file__).parent / "alive"
DEFAULTS = "defaults."


class Program(NamedTuple):
    """``name`` of a script of :data:`FOLDER`. ``kept``: objects that a message leaves by purpose, such as a row."""

    script: str
    name: str
    flags: tuple[object, ...] = ("--sips", 1)
    kept: int = 0


class Growth(NamedTuple):
    """``samples``: (messages, objects, blocks, resident KiB). ``kinds``: of what is there more, by type."""

    samples: list[tuple[int, int, int, int]]
    kinds: dict[str, int]

    def of(self, column: int) -> int:
        """From the first sample to the last."""
        return self.samples[-1][column] - self.samples[0][column]


def _set(**settings: object) -> tuple[object, ...]:
    return tuple(word for key, value in settings.items() for word in ("--set", f"{key.replace('__', '.')}={value}"))


LIMITS: tuple[tuple[Any, str, Any], ...] = (
    (oplog, "FLUSH_EVERY", 1),
    (replay, "MOST_RECORDS", 1),
    (client, "PROGRESS_NS", 0),
    (session, "EVENTS_BETWEEN_POLLS", 64),
    (flows, "_MAX_PATHS", 64),
    (process_groups, "PROGRAM_CACHE_SIZE", 4),
    (FreedTensors, "keep", lambda *_: None),
)
"""So few records wait to be hashed and to be performed again; progress is told often; what is kept for the next one of
its like is kept of few; nothing that is freed is kept."""
PAIR = ("--sips", 2)
ETHERNET = (*PAIR, "--link", "ethernet_100g")
TILES = ("--set", "system.chip=wormhole", "--link", "ethernet_100g", "--sips")
IN_PLACE = _set(defaults__buffer_kind="hbm", defaults__latch="in_place")
BUFFERS = _set(router__buffer_packets=4, io_port__buffer_packets=64)
FABRIC = _set(defaults__credit_return_mode="fabric")
PIGGYBACK = _set(defaults__credit_return_mode="piggyback")
PROGRAMS: dict[str, Program] = {
    **{
        name: Program("ahbm", name) for name in ("pingpong", "exchange", "loads", "stores", "math", "products", "crowd")
    },
    "views in place": Program("ahbm", "views", ("--sips", 1, *IN_PLACE)),
    "polls, fabric credits, in place in HBM": Program(
        "ahbm", "exchange", ("--sips", 1, *IN_PLACE, *FABRIC, *_set(defaults__backpressure="poll"))
    ),
    "piggyback, SRAM, one channel": Program(
        "ahbm",
        "exchange",
        (
            *("--sips", 1, *PIGGYBACK),
            *_set(defaults__buffer_kind="sram", defaults__latch="null", defaults__virtual_channels="false"),
        ),
    ),
    "buffers, credit channel": Program(
        "ahbm", "exchange", ("--sips", 1, *BUFFERS[:2], *FABRIC, *_set(defaults__credit_virtual_channel="true"))
    ),
    "without queues and room": Program(
        "ahbm",
        "exchange",
        ("--sips", 1, *_set(pe_scheduler__queue_depth="null", tcm_layout__handles_take_room="false")),
    ),
    "checked": Program("ahbm", "exchange", ("--sips", 1, "--check-invariants")),
    "second pass": Program("ahbm", "exchange", (*PAIR, "--verify-data")),
    "over ucie": Program("ahbm", "exchange", PAIR),
    "over ethernet": Program("ahbm", "exchange", (*ETHERNET, *BUFFERS, *FABRIC)),
    "in place over ethernet": Program("ahbm", "exchange", (*ETHERNET, *IN_PLACE)),
    "outages": Program(
        "ahbm",
        "pingpong",
        (
            *ETHERNET,
            *_set(system__sips__outages="[{port: 0.E, at_us: 20, for_us: 5}, {port: 0.E, at_us: 60, for_us: 5}]"),
        ),
    ),
    "launches": Program("ahbm", "launches", kept=6),
    "tensors": Program("ahbm", "tensors"),
    "tensor_math": Program("ahbm", "tensor_math", kept=26),
    "collectives": Program("ahbm", "collectives", PAIR, kept=160),
    "point_to_point": Program("ahbm", "point_to_point", PAIR, kept=110),
    "through a SIP": Program("ahbm", "point_to_point", ("--sips", 4, "--topology", "ring_1d"), kept=110),
    "groups": Program("ahbm", "groups", PAIR, kept=56),
    # Their small tensors too, whose memory returns when there is much of it; and routes by size, 256 for each memory.
    "sizes": Program("ahbm", "sizes", PAIR, kept=140),
    "iterations": Program("rows", "iterations", PAIR, kept=10),
    **{name: Program("tensix", name, (*TILES, 1)) for name in ("noc", "programs")},
    **{name: Program("tensix", name, (*TILES, 2, "--topology", "ring_1d")) for name in ("link", "mover", "movers")},
    **{name: Program("tensix", name, (*TILES, 4, "--topology", "ring_1d")) for name in ("fabric", "ring", "mux")},
    # Each operation leaves a row, and opens a fabric; an ended one is a cycle of routers, which the collector frees.
    "operations": Program("tensix", "operations", (*TILES, 4, "--topology", "ring_1d"), kept=10),
}


def growth(program: Program, messages: int, points: int = 4) -> Growth:
    """Run a program; what it has more in the end."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for of, key, value in LIMITS:
            stack.enter_context(patch.object(of, key, value))
        file = Path(folder, "alive.json")
        words: tuple[Any, ...] = (program.name, messages, points, file)
        script: tuple[object, ...] = (FOLDER / f"{program.script}.py", *words)
        stack.enter_context(patch.dict(os.environ, {"AHBM_ALIVE": " ".join(map(str, words))}))
        stack.enter_context(patch.object(sys, "path", [str(FOLDER), *sys.path]))
        if program.script == "rows":
            entry = f"algorithms: {{rows: {{module: {FOLDER / 'rows.py'}, topology: none, rank_per: cube}}}}"
            Path(folder, "rows.yaml").write_text(entry)
            script = ("--ccl", Path(folder, "rows.yaml"), "--algorithm", "rows", "-n", messages, "--n-elem", 16)
        verify = () if "--verify-data" in program.flags else ("--no-verify-data",)
        done = run(*verify, *program.flags, *script)
        assert done.outcome.error is None, done.outcome.error
        told = json.loads(file.read_text())
    return Growth([tuple(each) for each in told["samples"]], told["kinds"])


def main() -> None:
    """The command line."""
    name, messages, points, *flags = [*sys.argv[1:], *["10"] * (len(sys.argv) == 3)]
    program = PROGRAMS[name]
    found = growth(program._replace(flags=(*program.flags, *flags)), int(messages), int(points))
    for sample in found.samples:
        print("{} messages: {} objects, {} blocks, {} KiB".format(*sample))
    print(found.kinds)


if __name__ == "__main__":
    main()
