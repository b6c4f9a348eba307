"""UCIe ports between the cubes of a SIP: one in the middle of each side of a cube."""

from sipsim.noc.graph import Node
from sipsim.noc.grid import middle
from sipsim.noc.parts.base import PARTS, Cost, Part, Site


@PARTS.register("ucie")
class UciePort(Part):
    """It joins a router of its cube with the port of the next cube that faces it."""

    def cost(self) -> Cost:
        return self.components.ucie_port

    def wire_mm(self, to: str) -> float:
        return self.topology.sip.cube_gap_mm if to == "ucie" else self.topology.cube.noc.ucie_distance_mm

    def site(self, node: Node) -> Site:
        routers = self.topology.cube.noc.routers
        return Site(node.cube, middle(str(node.place), routers.w, routers.h))
