"""The ports of the PEs: PE ``n`` on router ``n``, with its DMA's costs. Its TCM is reached there."""

from sipsim.noc.parts.base import PARTS, Cost, Part


@PARTS.register("pe")
class PePort(Part):
    """A transfer to or from a PE passes its PE_DMA."""

    space = "tcm"

    def cost(self) -> Cost:
        return self.components.pe_dma

    def wire_mm(self, to: str) -> float:
        return self.topology.cube.noc.pe_distance_mm
