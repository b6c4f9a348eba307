"""A memory of the tests: a scratch memory a cube with two ports, on routers 0 and 3, each of which serves in turn."""

from typing import Annotated

from msgspec import Meta

from sipsim.chips.ahbm.address import Block
from sipsim.chips.ahbm.memory.ports import MEMORY_KINDS, MemoryPort, Reading
from sipsim.chips.ahbm.mesh import Memory, Part, Site, part
from sipsim.config.schema import MemoryCost, Resolved, Section, TcmCost
from sipsim.core.engine import Engine
from sipsim.fabric.graph import Node, Route


class Params(Section, frozen=True):
    KiB: Annotated[int, Meta(ge=1)]
    access_ns: Annotated[float, Meta(gt=0)]


@part(__name__, Params)
def scratch(_resolved: Resolved, params: Params) -> Part:
    """PEs 0 to 3 use the first port, the others the second; all see the same bytes."""
    access_ns = params.access_ns
    cost = MemoryCost(
        overhead_ns=19, bandwidth_GBps=48, read_latency_ns=access_ns, write_latency_ns=access_ns, kind=__name__
    )
    memory = Memory("scratch", ("parts", __name__), cost, lambda: params.KiB * 1024, True, lambda pe: pe // 4)
    return Part(lambda: cost, lambda _to: 0.4, lambda node: Site(node.cube, (0, 3)[int(node.place)]), memory)


@MEMORY_KINDS.register(__name__)
class InTurn(MemoryPort):
    """A port serves one access after the other."""

    is_constant = False

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, node: Node) -> None:
        super().__init__(cost, engine, node)
        self._free_ps = 0

    def _turn_ps(self) -> int:
        now_ps = self.engine.now_ps
        self._free_ps = max(self._free_ps, now_ps) + self.least_read_ps
        return self._free_ps - now_ps

    def reading(self, block: Block, route: Route | None = None) -> Reading:
        return super().reading(block, route)._replace(first_ps=self._turn_ps())

    def written_ps(self, block: Block) -> int:
        return self._turn_ps()
