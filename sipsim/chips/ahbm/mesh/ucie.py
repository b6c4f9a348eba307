"""UCIe ports between the cubes of a SIP: one in the middle of each side of a cube.

A port and the one that faces it are the two ends of a crossing (:mod:`sipsim.fabric.links.ucie.noc_ucie`). Each takes
half of ``fdi_to_fdi_ns``, rounded to ps; the wire between them is ``sip.cube_gap_mm`` long. There is no retimer in a
package.
"""

from sipsim.chips.ahbm.mesh.base import PARTS, Cost, Part, Site
from sipsim.config.schema.components import Node as NodeCost
from sipsim.core.units import ns_to_ps
from sipsim.fabric.graph.graph import Framing, Node
from sipsim.fabric.graph.grid import middle
from sipsim.fabric.links.ucie.noc_ucie import UcieCrossing


@PARTS.register("ucie")
class UciePort(Part):
    """It joins a router of its cube with the port of the next cube that faces it."""

    def cost(self) -> Cost:
        port = self.components.ucie_port
        return NodeCost(overhead_ns=port.fdi_to_fdi_ns / 2, bandwidth_GBps=port.bandwidth_GBps)

    def wire_mm(self, to: str) -> float:
        return self.topology.sip.cube_gap_mm if to == "ucie" else self.topology.cube.noc.ucie_distance_mm

    def framing(self, to: str) -> Framing | None:
        port = self.components.ucie_port
        if to != "ucie" or port.flit_bytes is None:
            return None
        wire_ps = ns_to_ps(round(self.wire_mm(to) * self.components.wire.ns_per_mm, 9))
        return UcieCrossing(2 * self.overhead_ps, wire_ps, 0, port.flit_bytes, port.flit_overhead_bytes)

    def site(self, node: Node) -> Site:
        routers = self.topology.cube.noc.routers
        return Site(node.cube, middle(str(node.place), routers.w, routers.h))
