"""A part of the tests: a generator of traffic in each cube, in the background, as SimPy processes."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta
from simpy.events import Event

from sipsim.chips.ahbm.mesh import Part, part
from sipsim.chips.ahbm.processes import PartDoor
from sipsim.config.schema import Node as Cost
from sipsim.config.schema import Resolved, Section
from sipsim.core.units import ns_to_ps
from sipsim.fabric.graph import Node


class Params(Section, frozen=True):
    period_ns: Annotated[float, Meta(gt=0)]
    nbytes: Annotated[int, Meta(ge=1)] = 4096


@part(__name__, Params)
def traffic(_resolved: Resolved, params: Params) -> Part:
    """A node on router 0 of each cube writes to the HBM of the last PE, ``period_ns`` after each write's end."""
    period_ps = ns_to_ps(params.period_ns)

    def load(door: PartDoor, cube: int) -> Iterator[Event]:
        while True:
            yield door.env.timeout(period_ps)
            yield door.transfer(door.node(cube), Node("hbm", cube, door.sizes[0] - 1), params.nbytes)

    def processes(door: PartDoor) -> None:
        for cube in range(door.sizes[1]):
            door.start(load(door, cube), f"load{cube}", background=True)

    return Part(lambda: Cost(overhead_ns=1, bandwidth_GBps=64), lambda _to: 0.4, processes=processes)
