"""Runs of ``fabric_flows.py``, all chips in this process."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runs import Run, run

from sipsim.chips.tensix.fabric.router import unsettled

SCRIPTS = Path(__file__).resolve().parents[2] / "processes"
Flow = dict[str, Any]


def flags(sips: int, columns: int = 0) -> tuple[object, ...]:
    """A ring of chips, or a mesh."""
    shape: tuple[object, ...] = ("--topology", "ring_1d")
    if columns:
        shape = ("--topology", "mesh_2d_no_wrap", "--shape", f"{columns}x{sips // columns}")
    return ("--set", "system.chip=wormhole", "--link", "ethernet_100g", "--sips", sips, *shape)


def slots_of(revision: str, slots: int) -> tuple[str, ...]:
    """So many slots of each channel; 0: as many as the config has."""
    of_each = f"system.chip_params.fabric.revisions.{revision}.slots=[{{sender: {slots}, receiver: {slots}}}]"
    return ("--set", of_each) if slots else ()


def run_flows(sips: int, flows: Sequence[Flow], *more: object, fabric: dict[str, Any], keep_oplog: bool = False,
              **asked: Any) -> Run:  # fmt: skip
    """Flows over a fabric that is opened with ``fabric``."""
    words = json.dumps({"fabric": fabric, "flows": flows, **asked})
    return run(*flags(sips, fabric.get("columns", 0)), *more, SCRIPTS / "fabric_flows.py", words, keep_oplog=keep_oplog)


def left(done: Run) -> list[str]:
    """What is missing at the end."""
    return [
        line for member in done.members for each in member.chip.fabrics for line in unsettled(each.routers, each.muxed)
    ]


def passed(done: Run) -> Run:
    """A run that is well, with nothing missing."""
    assert done.document["status"] == "ok", (done.document["error"], done.outcome.error)
    assert left(done) == []
    return done
