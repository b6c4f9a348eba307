"""The routers of a cube, a mesh row by row."""

from sipsim.chips.ahbm.mesh.base import PARTS, Cost, Part


@PARTS.register("router")
class Router(Part):
    """Routers are a pitch apart."""

    def cost(self) -> Cost:
        return self.components.router

    def wire_mm(self, to: str) -> float:
        return self.topology.cube.noc.router_pitch_mm
