"""HBM: the controller port of PE ``n``'s slice on router ``n``."""

from sipsim.chips.ahbm.address import MIB
from sipsim.chips.ahbm.mesh.base import PARTS, Cost, MemoryPart, MemorySection


@PARTS.register("hbm")
class HbmPort(MemoryPart):
    """One port for each PE's slice; access times are the memory's (:mod:`sipsim.chips.ahbm.memory`)."""

    space = "hbm"

    def cost(self) -> Cost:
        return self.components.hbm

    def memory(self) -> MemorySection:
        return MemorySection(("hbm",), self.components.hbm)

    def capacity_bytes(self) -> int:
        return self.topology.cube.hbm_MiB_per_pe * MIB

    def wire_mm(self, to: str) -> float:
        return self.topology.cube.noc.hbm_distance_mm
