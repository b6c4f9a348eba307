"""A part of the tests without a memory: its processes are those of the function of ``ACTS`` that the config names."""

from collections.abc import Callable

from sipsim.chips.ahbm.mesh import Part, part
from sipsim.chips.ahbm.processes import PartDoor
from sipsim.config.schema import Node as Cost
from sipsim.config.schema import Resolved, Section

ACTS: dict[str, Callable[[PartDoor], None]] = {}


class Params(Section, frozen=True):
    act: str


@part(__name__, Params)
def actor(_resolved: Resolved, params: Params) -> Part:
    """A node on router 0 of each cube."""
    cost = Cost(overhead_ns=1, bandwidth_GBps=64)
    return Part(lambda: cost, lambda _to: 0.4, processes=lambda door: ACTS[params.act](door))
