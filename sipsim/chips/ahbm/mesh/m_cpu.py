"""M_CPU: the management CPU of a cube (ADR-0035)."""

from sipsim.chips.ahbm.mesh.base import PARTS, Cost, Part, Site
from sipsim.chips.ahbm.mesh.io_cpu import NO_CPU
from sipsim.fabric.graph.graph import Node


@PARTS.register("m_cpu")
class MCpuPort(Part):
    """One a cube, on its first router, and as far from it as a PE."""

    def cost(self) -> Cost:
        return self.components.m_cpu or NO_CPU

    def wire_mm(self, to: str) -> float:
        return self.topology.cube.noc.pe_distance_mm

    def site(self, node: Node) -> Site:
        return Site(node.cube, 0)
