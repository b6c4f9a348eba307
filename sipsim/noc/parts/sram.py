"""SRAM: one port a cube, on router 0."""

from sipsim.noc.graph import Node
from sipsim.noc.parts.base import PARTS, Cost, Part, Site


@PARTS.register("sram")
class SramPort(Part):
    """The SRAM belongs to the cube, whichever PE an address names."""

    space = "sram"

    def cost(self) -> Cost:
        return self.components.sram

    def wire_mm(self, to: str) -> float:
        return self.topology.cube.noc.sram_distance_mm

    def site(self, node: Node) -> Site:
        return Site(node.cube, 0)

    def place_of(self, pe: int) -> int:
        return 0
