"""Mechanisms of the simulated chips, each with the settings that switch it off: what it is good for, in rows."""

from collections.abc import Iterable
from itertools import compress
from typing import NamedTuple

from launcher.bench.machine import LINKS
from launcher.bench.published import TO_REPRODUCE, Published
from tenstorrent.compare import Runner, Settings, Verdict, effort_of, validate
from tenstorrent.rows import RULES, request_of

RISC = "system.chip_params.risc"
MOVER = "system.chip_params.data_mover"
FRAMING = ("preamble_bytes", "header_bytes", "stream_header_bytes", "fcs_bytes", "min_frame_bytes")
RAW_LINKS = ("seed_ubench", "eth_link_latency_no_edm", "eth_link_bandwidth_no_edm")
FABRIC, CCL = "system.chip_params.fabric", "system.chip_params.ccl"
COLLECTIVES, _ = RULES["ccl"]
FABRICS = (*RULES["fabric-bandwidth"][0], *RULES["fabric-latency"][0], *COLLECTIVES)
ALL_ON = "(all are on)"
CHEAP_PART = 3


class Mechanism(NamedTuple):
    """``off``: what switches it off, by chip. ``families``: those whose programs have it; all if there are none."""

    off: Settings
    families: tuple[str, ...] = ()


def on_every_chip(*settings: str) -> Settings:
    """The settings for each kind of chip; ``{link}`` stands for the parameters of its own link."""
    return {
        chip: tuple(each.replace("{link}", f"links.{link}.params") for each in settings) for chip, link in LINKS.items()
    }


MECHANISMS: dict[str, Mechanism] = {
    "messages are stored in both subsystems": Mechanism(on_every_chip("system.chip_params.ethernet.copy_GBps=null")),
    "a timer takes time to read": Mechanism(on_every_chip(f"{RISC}.timer_ns=0.001"), RAW_LINKS),
    "a look takes time": Mechanism(on_every_chip(f"{RISC}.poll_ns=0.001")),
    "visits of channels take time": Mechanism(
        on_every_chip(f"{MOVER}.sender_visit_ns=0", f"{MOVER}.receiver_visit_ns=0"), RAW_LINKS
    ),
    "an Ethernet command takes time": Mechanism(on_every_chip(f"{RISC}.eth_command_ns=0")),
    "a NoC command takes time": Mechanism(on_every_chip(f"{RISC}.noc_command_ns=0")),
    "packets have 50 B of overhead": Mechanism(on_every_chip(*(f"{{link}}.{key}=0" for key in FRAMING))),
    "a link has latency": Mechanism(on_every_chip("{link}.latency_ns=1")),
    "one processor serves all channels of a router": Mechanism(on_every_chip(f"{FABRIC}.one_server=false"), FABRICS),
    "slots of channels that stay empty near a dateline go to others": Mechanism(
        on_every_chip(f"{FABRIC}.revisions.2025-03.spare_slots=[]"), FABRICS
    ),
    "workers relay long reductions on rings (all are sent to their owners)": Mechanism(
        on_every_chip(f"{CCL}.direct_bytes={2**40}"), COLLECTIVES
    ),
    "a worker spends time on each page": Mechanism(on_every_chip(f"{CCL}.page_ns=0"), COLLECTIVES),
    "chips begin together (barrier)": Mechanism(on_every_chip(f"{CCL}.has_barrier=false"), COLLECTIVES),
}
"""By name."""


def joined(first: Settings, then: Settings) -> Settings:
    """Both; of a key that both set, ``then`` holds."""
    return {chip: (*first.get(chip, ()), *then.get(chip, ())) for chip in LINKS}


def cheap(rows: Iterable[Published]) -> list[Published]:
    """The claimed rows to be reproduced that take no more effort than a third of the rows of their bench do."""
    asked = [(row, request_of(row)) for row in rows if row.kind == TO_REPRODUCE]
    efforts: dict[str, list[float]] = {}
    found = []
    for row, request in asked:
        if request.case is not None:
            effort = effort_of(request)
            efforts.setdefault(request.bench, []).append(effort)
            found.append((row, request.bench, effort))
    most = {bench: sorted(own)[(len(own) - 1) // CHEAP_PART] for bench, own in efforts.items()}
    return [row for row, bench, effort in found if effort <= most[bench]]


def without_each(rows: Iterable[Published], settings: Settings, runner: Runner) -> dict[str, list[Verdict]]:
    """The verdicts of cheap rows with all mechanisms on, and without each, by name; nothing is fitted again."""
    rows = cheap(rows)
    found = {ALL_ON: validate(rows, settings, runner)}
    for name, (off, families) in MECHANISMS.items():
        has_it = [not families or row.family in families for row in rows]
        changed = iter(validate(compress(rows, has_it), joined(settings, off), runner))
        found[name] = [next(changed) if has else each for has, each in zip(has_it, found[ALL_ON], strict=True)]
    return found
