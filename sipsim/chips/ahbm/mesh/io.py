"""IO ports: the ends of the links to other SIPs, one on each side of a SIP."""

from sipsim.chips.ahbm.mesh.base import PARTS, Cost, Part, Site
from sipsim.fabric.graph.graph import Node
from sipsim.fabric.graph.grid import middle


@PARTS.register("io")
class IoPort(Part):
    """On the configured cube, or the middle of its side of the cube mesh; there, in the middle of the same side."""

    def cost(self) -> Cost:
        return self.components.io_port

    def wire_mm(self, to: str) -> float:
        return self.topology.sip.port_distance_mm

    def site(self, node: Node) -> Site:
        port, sip, routers = str(node.place), self.topology.sip, self.topology.cube.noc.routers
        configured: int | None = getattr(sip.ports, port)
        cube = middle(port, sip.cube_mesh.w, sip.cube_mesh.h) if configured is None else configured
        return Site(cube, middle(port, routers.w, routers.h))
