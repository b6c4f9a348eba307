"""A memory whose every access takes the configured latency, however many there are at a time."""

from collections.abc import Callable

from sipsim.chips.ahbm.memory.ports.port import FIXED_LATENCY, MEMORY_KINDS, MemoryPort
from sipsim.chips.ahbm.memory.store.store import MemoryStore
from sipsim.config.schema.components import MemoryCost, TcmCost
from sipsim.core.engine import Engine
from sipsim.core.units import ns_to_ps


@MEMORY_KINDS.register(FIXED_LATENCY)
class FixedLatency(MemoryPort):
    """``read_latency_ns`` and ``write_latency_ns`` of the memory's section; the bandwidth is that of its edges."""

    is_constant = True
    keeps_order = True

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, store: MemoryStore) -> None:
        super().__init__(cost, engine, store)
        self.least_read_ps = ns_to_ps(cost.read_latency_ns)
        self.least_write_ps = ns_to_ps(cost.write_latency_ns)

    def time_read(self, address: int, nbytes: int, done: Callable[[], None]) -> None:
        self.engine.at(self.engine.now_ps + self.least_read_ps, done)

    def time_write(self, address: int, nbytes: int, done: Callable[[], None]) -> None:
        self.engine.at(self.engine.now_ps + self.least_write_ps, done)
