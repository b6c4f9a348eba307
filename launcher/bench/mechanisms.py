"""Mechanisms of the simulated chips, each with the settings that switch it off: what it is good for, in rows."""

from launcher.bench.machine import LINKS
from launcher.bench.published import Published
from launcher.bench.runner import Runner
from launcher.bench.validation import Settings, Verdict, validate

RISC = "system.chip_params.risc"
MOVER = "system.chip_params.data_mover"
FRAMING = ("preamble_bytes", "header_bytes", "stream_header_bytes", "fcs_bytes", "min_frame_bytes")
ALL_ON = "(all are on)"


def on_every_chip(*settings: str) -> Settings:
    """The settings for each kind of chip; ``{link}`` stands for the parameters of its own link."""
    return {
        chip: tuple(each.replace("{link}", f"links.{link}.params") for each in settings) for chip, link in LINKS.items()
    }


MECHANISMS: dict[str, Settings] = {
    "messages are stored in both subsystems": on_every_chip("system.chip_params.ethernet.copy_GBps=null"),
    "a timer takes time to read": on_every_chip(f"{RISC}.timer_ns=0.001"),
    "a look takes time": on_every_chip(f"{RISC}.poll_ns=0.001"),
    "visits of channels take time": on_every_chip(f"{MOVER}.sender_visit_ns=0", f"{MOVER}.receiver_visit_ns=0"),
    "an Ethernet command takes time": on_every_chip(f"{RISC}.eth_command_ns=0"),
    "a NoC command takes time": on_every_chip(f"{RISC}.noc_command_ns=0"),
    "packets have 50 B of overhead": on_every_chip(*(f"{{link}}.{key}=0" for key in FRAMING)),
    "a link has latency": on_every_chip("{link}.latency_ns=1"),
}
"""By name, with what switches it off by chip; a line each."""


def joined(first: Settings, then: Settings) -> Settings:
    """Both; of a key that both set, ``then`` holds."""
    return {chip: (*first.get(chip, ()), *then.get(chip, ())) for chip in LINKS}


def without_each(
    rows: list[Published], settings: Settings, runner: Runner, names: list[str] | None = None
) -> dict[str, list[Verdict]]:
    """The verdicts with all mechanisms on, and without each (or each of ``names``); nothing is fitted again."""
    chosen = MECHANISMS if names is None else {name: MECHANISMS[name] for name in names}
    return {name: validate(rows, joined(settings, off), runner) for name, off in {ALL_ON: {}, **chosen}.items()}
