"""Two neighbouring cubes of one SIP with kernels on PE 0 of each: the parts themselves, without launch and broker."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.ahbm.sip import Sip
from sipsim.chips.ahbm.tl.language import TL, run_kernel
from sipsim.chips.config import load
from sipsim.config.load import Override

SETTINGS = {
    "system.sips.count": 1,
    "sip.cube_mesh": {"w": 2, "h": 1},
    "algorithms.pair": {"module": str(Path(__file__).with_name("_neighbours.py")), "topology": "none"},
    "defaults.algorithm": "pair",
}
EVENTS = 10**9
Kernel = Callable[[TL], object]


def plan(settings: dict[str, Any]) -> Plan:
    """The plan of both cubes, without the costs of a default config: the figures are those of the queues alone."""
    everything = {**SETTINGS, **settings}
    return Plan(load(overrides=[Override(path, value, path) for path, value in everything.items()], variant="adr"))


def start(made: Plan, *kernels: Kernel, **options: bool) -> Sip:
    """A SIP whose kernels, one a cube, have been started and have not run."""
    sip = Sip(0, made, lambda _dst, _batch: None, **options)
    for cube, kernel in enumerate(kernels):
        pe = sip.pe(cube, 0)
        tl = TL(pe, lambda address, _nbytes: address)
        sip.spawn(pe, partial(run_kernel, kernel, (), tl))
    return sip


def finish(sip: Sip) -> None:
    """Run the kernels to their end."""
    sip.engine.run_before(None, EVENTS)
    assert not sip.waiting(), "the kernels have not ended"
