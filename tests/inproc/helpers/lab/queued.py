"""A memory kind of the tests: a controller with places, each of which takes a service time, as a SimPy resource."""

from collections.abc import Iterator
from typing import Annotated

import simpy
from msgspec import Meta
from simpy.events import Event

from sipsim.chips.ahbm.address import Block
from sipsim.chips.ahbm.memory.ports import MEMORY_KINDS, MemoryPort
from sipsim.config.schema import MemoryCost, Section, TcmCost
from sipsim.core.engine import Engine
from sipsim.core.units import ns_to_ps
from sipsim.fabric.graph import Node


class Params(Section, frozen=True):
    places: Annotated[int, Meta(ge=1)] = 1
    service_ns: Annotated[float, Meta(ge=0)] = 20
    odd_ns: Annotated[float, Meta(ge=0)] = 0
    refresh_ns: Annotated[float, Meta(ge=0)] = 0


@MEMORY_KINDS.register(__name__)
class Queued(MemoryPort):
    """An access takes one of ``places`` for ``service_ns``, and ``odd_ns`` more on odd pages of 4 KiB.

    A refresh takes one of them for as long, ``refresh_ns`` after the last one; 0 for no refresh.
    """

    Params = Params

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, node: Node) -> None:
        super().__init__(cost, engine, node)
        self.places = simpy.Resource(engine.env, self.params.places)
        if self.params.refresh_ns:
            engine.env.start(self.refresh(), f"memory {node}", is_background=True)

    def refresh(self) -> Iterator[Event]:
        while True:
            yield self.engine.env.timeout(ns_to_ps(self.params.refresh_ns))
            with self.places.request() as place:
                yield place
                yield self.engine.env.timeout(ns_to_ps(self.params.service_ns))

    def serve(self, block: Block, is_read: bool) -> Iterator[Event]:  # type: ignore[override]
        with self.places.request() as place:
            yield place
            odd_ns = self.params.odd_ns * (block.address >> 12 & 1)
            yield self.engine.env.timeout(ns_to_ps(self.params.service_ns + odd_ns))
