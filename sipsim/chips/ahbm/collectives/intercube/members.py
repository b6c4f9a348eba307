"""Who takes part in an intercube collective: workers on all cubes of all SIPs, how they are joined, and their axes.

Axes are, in this order: the PEs of a cube where each has a row of its own, the columns and the rows of the cube mesh,
and one or two of the SIP topology. Kernels get them as numbers (:func:`axis_numbers`), as ADR-0032 D7 has it.
"""

from typing import TYPE_CHECKING, NamedTuple

from sipsim.chips.ahbm.collectives.intercube.tree import Axis
from sipsim.chips.ahbm.collectives.neighbours import NeighbourMap
from sipsim.chips.ahbm.collectives.settings import effective_rank_per

if TYPE_CHECKING:
    from sipsim.chips.ahbm.system import System

SIP_TOPO_RING, SIP_TOPO_TORUS, SIP_TOPO_MESH, SIP_TOPO_CUSTOM = range(4)
TOPO_NAME_TO_KIND = {
    "ring_1d": SIP_TOPO_RING,
    "torus_2d": SIP_TOPO_TORUS,
    "mesh_2d_no_wrap": SIP_TOPO_MESH,
    "custom": SIP_TOPO_CUSTOM,
}
PE, X, Y, SIP_X, SIP_Y = range(5)
"""The numbers of the axes."""
NEXT_PE, LAST_PE = "pe_next", "pe_last"


class Grid(NamedTuple):
    """Sizes of all axes; ``pes`` is 1 where the PEs of a cube have no axis. ``wraps``: of the SIP topology."""

    pes: int
    cube_w: int
    cube_h: int
    sip_w: int
    sip_h: int
    wraps: bool

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes, those of size 1 too; their order is that of :meth:`places`."""
        return (
            Axis(self.pes, self.pes > 2, NEXT_PE, LAST_PE),
            Axis(self.cube_w, False, "E", "W"),
            Axis(self.cube_h, False, "S", "N"),
            Axis(self.sip_w, self.wraps, "global_E", "global_W"),
            Axis(self.sip_h, self.wraps, "global_S", "global_N"),
        )

    def places(self, pe: int, cube: int, sip: int) -> tuple[int, ...]:
        """A member's places on the axes."""
        return (
            pe if self.pes > 1 else 0,
            cube % self.cube_w,
            cube // self.cube_w,
            sip % self.sip_w,
            sip // self.sip_w,
        )

    @property
    def members(self) -> int:
        """How many rows are combined."""
        return self.pes * self.cube_w * self.cube_h * self.sip_w * self.sip_h

    @property
    def sip_owners(self) -> int:
        """After how many units the exchange between SIPs has used all links alike: owners, arms, orders of axes."""
        orders = 2 if self.sip_w > 1 and self.sip_h > 1 else 1
        return self.sip_w * self.sip_h * (2 if self.wraps else 1) * orders


def sips_wrap(system: "System") -> bool:
    """Whether the SIPs are in rings, and not in lines.

    Raises:
        ValueError: for links of ``custom`` that make no line and no ring of all SIPs in their order.
    """
    if system.topology != "custom":
        return system.topology != "mesh_2d_no_wrap"
    n = system.n_sips
    eastwards = [(far.sip, far.port) if (far := system.far_ends.get((sip, "E"))) else None for sip in range(n)]
    line = [(sip + 1, "W") for sip in range(n - 1)]
    if n > 1 and eastwards == [*line, (0, "W")]:
        return True
    if eastwards[:-1] == line:
        return False
    raise ValueError("custom links must join port E of each SIP with port W of the next one, in a line or a ring")


def workers(system: "System", algorithm: str) -> int:
    """How many PEs of a cube take part."""
    return system.n_pes if effective_rank_per(system.resolved, algorithm) == "pe" else 1


def joined(system: "System", rank: int, world_size: int, pe_ring: bool = False) -> NeighbourMap:
    """A worker's neighbours: the same PE of the cubes around it, and of the same cube on the SIPs around.

    Rank = (sip * n_cubes + cube) * workers + pe, all of them. ``pe_ring``: and the PEs before and after it in its cube.

    Raises:
        ValueError: when not all cubes take part, or the SIPs cannot be joined (:func:`sips_wrap`).
    """
    algorithm = system.resolved.ccl.defaults.algorithm
    count = workers(system, algorithm)
    per = effective_rank_per(system.resolved, algorithm)
    if per == "sip" or world_size != system.n_sips * system.n_cubes * count:
        raise ValueError("every cube takes part; leave world_size null, and rank_per null, cube or pe")
    sips_wrap(system)
    found = intercube_multisip(system, rank, count)
    pe = rank % count
    if pe_ring and count > 1:
        if count > 2 or pe == 0:
            found[NEXT_PE] = rank - pe + (pe + 1) % count
        if count > 2 or pe == 1:
            found[LAST_PE] = rank - pe + (pe - 1) % count
    return found


def intercube_multisip(system: "System", rank: int, count: int = 1) -> NeighbourMap:
    """ADR-0032 D3: a worker's mesh neighbours, the same PE of the cubes around it, and its twins on the SIPs around.

    Rank = (sip * n_cubes + cube) * ``count`` + pe, with ``count`` workers a cube. The cube mesh does not wrap;
    ``global_X`` is the twin behind the SIP's port X.
    """
    (sip, cube), pe = divmod(rank // count, system.n_cubes), rank % count
    width, height = system.cube_mesh
    x, y = cube % width, cube // width
    steps = {"N": (0, -1), "S": (0, 1), "E": (1, 0), "W": (-1, 0)}
    found = {
        direction: rank + (dy * width + dx) * count
        for direction, (dx, dy) in steps.items()
        if 0 <= x + dx < width and 0 <= y + dy < height
    }
    for port in steps:
        far = system.far_ends.get((sip, port))
        if far is not None:
            found[f"global_{port}"] = (far.sip * system.n_cubes + cube) * count + pe
    return found
