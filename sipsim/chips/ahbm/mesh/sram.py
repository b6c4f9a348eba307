"""SRAM: one port a cube, on router 0."""

from sipsim.chips.ahbm.address import MIB
from sipsim.chips.ahbm.mesh.base import PARTS, Cost, MemoryPart, MemorySection, Site
from sipsim.fabric.graph.graph import Node


@PARTS.register("sram")
class SramPort(MemoryPart):
    """The SRAM belongs to the cube, whichever PE an address names."""

    space = "sram"
    is_of_cube = True

    def cost(self) -> Cost:
        return self.components.sram

    def memory(self) -> MemorySection:
        return MemorySection(("sram",), self.components.sram)

    def capacity_bytes(self) -> int:
        return self.topology.cube.sram_MiB * MIB

    def wire_mm(self, to: str) -> float:
        return self.topology.cube.noc.sram_distance_mm

    def site(self, node: Node) -> Site:
        return Site(node.cube, 0)

    def place_of(self, pe: int) -> int:
        return 0
