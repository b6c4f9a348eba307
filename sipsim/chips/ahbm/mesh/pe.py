"""The ports of the PEs: PE ``n`` on router ``n``, with its DMA's costs. Its TCM is reached there."""

from sipsim.chips.ahbm.address import tcm_map
from sipsim.chips.ahbm.mesh.base import PARTS, Cost, MemoryPart, MemorySection


@PARTS.register("pe")
class PePort(MemoryPart):
    """A transfer to or from a PE passes its PE_DMA."""

    space = "tcm"

    def cost(self) -> Cost:
        return self.components.pe_dma

    def memory(self) -> MemorySection:
        return MemorySection(("tcm",), self.components.tcm)

    def capacity_bytes(self) -> int:
        return tcm_map(self.components.tcm_layout).size

    def wire_mm(self, to: str) -> float:
        return self.topology.cube.noc.pe_distance_mm
