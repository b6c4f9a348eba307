"""A memory of the tests: a scratch memory a cube with two ports, on routers 0 and 3, each of which serves in turn."""

from collections.abc import Callable
from typing import Annotated

from msgspec import Meta

from sipsim.chips.ahbm.memory.ports import MEMORY_KINDS, MemoryPort
from sipsim.chips.ahbm.memory.store import MemoryStore
from sipsim.chips.ahbm.mesh import PARTS, MemoryPart, MemorySection, Site
from sipsim.config.schema import MemoryCost, Section, TcmCost
from sipsim.core.engine import Engine
from sipsim.core.units import ns_to_ps
from sipsim.fabric.graph import Node


class Params(Section, frozen=True):
    KiB: Annotated[int, Meta(ge=1)]
    access_ns: Annotated[float, Meta(gt=0)]


@PARTS.register(__name__)
class Scratch(MemoryPart):
    """PEs 0 to 3 use the first port, the others the second; all see the same bytes."""

    space = "scratch"
    is_of_cube = True
    Params = Params

    def cost(self) -> MemoryCost:
        access_ns = self.params.access_ns
        return MemoryCost(
            overhead_ns=19, bandwidth_GBps=48, read_latency_ns=access_ns, write_latency_ns=access_ns, kind=__name__
        )

    def memory(self) -> MemorySection:
        return MemorySection(("parts", __name__), self.cost())

    def capacity_bytes(self) -> int:
        return int(self.params.KiB * 1024)

    def wire_mm(self, to: str) -> float:
        return 0.4

    def site(self, node: Node) -> Site:
        return Site(node.cube, (0, 3)[int(node.place)])

    def place_of(self, pe: int) -> int:
        return pe // 4


@MEMORY_KINDS.register(__name__)
class InTurn(MemoryPort):
    """A port serves one access after the other."""

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, store: MemoryStore) -> None:
        super().__init__(cost, engine, store)
        self.least_read_ps = self.least_write_ps = ns_to_ps(cost.read_latency_ns)
        self._free_ps = 0

    def time_read(self, address: int, nbytes: int, done: Callable[[], None]) -> None:
        self._free_ps = max(self._free_ps, self.engine.now_ps) + self.least_read_ps
        self.engine.at(self._free_ps, done)

    time_write = time_read
