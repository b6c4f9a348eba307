"""HBM: the controller port of PE ``n``'s slice on router ``n``."""

from sipsim.noc.parts.base import PARTS, Cost, Part


@PARTS.register("hbm")
class HbmPort(Part):
    """One port for each PE's slice; access times are the memory's (:mod:`sipsim.memory`)."""

    space = "hbm"

    def cost(self) -> Cost:
        return self.components.hbm

    def wire_mm(self, to: str) -> float:
        return self.topology.cube.noc.hbm_distance_mm
