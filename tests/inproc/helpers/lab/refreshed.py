"""A memory kind of the tests with a background process and without ``serve``."""

from collections.abc import Iterator

from simpy.events import Event

from sipsim.chips.ahbm.memory.ports import MEMORY_KINDS, MemoryPort
from sipsim.config.schema import MemoryCost, TcmCost
from sipsim.core.engine import Engine
from sipsim.fabric.graph import Node


@MEMORY_KINDS.register(__name__)
class Refreshed(MemoryPort):
    """Accesses take the configured latencies; a process beside them ticks every microsecond."""

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, node: Node) -> None:
        super().__init__(cost, engine, node)
        engine.env.start(self.tick(), f"memory {node}", is_background=True)

    def tick(self) -> Iterator[Event]:
        while True:
            yield self.engine.env.timeout(1_000_000)
