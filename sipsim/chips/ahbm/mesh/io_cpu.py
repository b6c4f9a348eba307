"""IO_CPU: takes the host's launches, at the edge of the SIP (ADR-0036)."""

from sipsim.chips.ahbm.mesh.base import PARTS, Cost, Part, Site
from sipsim.config.schema.components import Node as NodeCost
from sipsim.fabric.graph.graph import Node

NO_CPU = NodeCost(overhead_ns=0, bandwidth_GBps=1)
"""Of a CPU that the config does not have, and no message passes."""


@PARTS.register("io_cpu")
class IoCpuPort(Part):
    """On the first router of its cube, and as far from it as an IO port."""

    def cost(self) -> Cost:
        return self.components.io_cpu or NO_CPU

    def wire_mm(self, to: str) -> float:
        return self.topology.sip.port_distance_mm

    def site(self, node: Node) -> Site:
        section = self.components.io_cpu
        return Site(section.cube if section else 0, 0)
