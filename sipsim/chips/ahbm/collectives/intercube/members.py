"""The members of an intercube collective: workers on all cubes of all SIPs, their axes, units of data, the root cube.

Axes are, in this order: the PEs of a cube where each has a row of its own, the columns and the rows of the cube mesh,
and one or two of the SIP topology. Kernels get them as numbers (:func:`axis_numbers`), as ADR-0032 D7 has it.

Data are divided into units, each with owners (:mod:`.tree`), so that all links carry the same. A unit is a message, so
it is no longer than a slot; and no shorter than ``LEAST_BYTES``, which take about as long on a link as the commands of
a message do on PE_CPU. Long data have a whole number of units for each owner.
"""

from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from sipsim.chips.ahbm.address import LEAD_PE
from sipsim.chips.ahbm.collectives.intercube.schedule import Unit
from sipsim.chips.ahbm.collectives.intercube.tree import Axis, Leg
from sipsim.chips.ahbm.collectives.neighbours import NeighbourMap
from sipsim.chips.ahbm.collectives.settings import effective_rank_per
from sipsim.core.dtypes import DEFAULT_DTYPE, DTYPES
from sipsim.fabric.graph import Node, port_node

if TYPE_CHECKING:
    from sipsim.chips.ahbm.system import AhbmSystem


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


def sips_wrap(system: "AhbmSystem") -> bool:
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


def workers(system: "AhbmSystem", algorithm: str) -> int:
    """How many PEs of a cube take part."""
    return system.n_pes if effective_rank_per(system.resolved, algorithm) == "pe" else 1


def joined(system: "AhbmSystem", rank: int, world_size: int, pe_ring: bool = False) -> NeighbourMap:
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


def intercube_multisip(system: "AhbmSystem", rank: int, count: int = 1) -> NeighbourMap:
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


LEAST_BYTES = 1024
Piece = tuple[int, int]
"""First element and length."""


def pieces_of(n_elem: int, itemsize: int, slot_bytes: int, owners: int) -> list[Piece]:
    """Pieces whose lengths differ by one at most; their number is best a multiple of ``owners``.

    Raises:
        ValueError: for slots that hold no element.
    """
    most = slot_bytes // itemsize
    if most < 1:
        raise ValueError(f"slots of {slot_bytes} B hold no element of {itemsize} B")
    count = max(-(-n_elem // most), min(owners, n_elem * itemsize // LEAST_BYTES), 1)
    whole = -(-count // owners) * owners
    if owners < count and whole <= n_elem:
        count = whole
    each, longer = divmod(n_elem, count)
    lengths = [each + (index < longer) for index in range(count)]
    return list(zip(accumulate(lengths, initial=0), lengths, strict=False))


def units_of(pieces: list[Piece], grid: Grid, lane: int, lanes: int, root: int, rotates: bool) -> list[Unit]:
    """The units of one lane, a round behind each other. Other lanes have others, of the same numbers.

    With ``rotates`` owners go round all PEs of the grid and all cubes from ``root`` on: neighbours in time, in other
    columns and rows, and half of them reduce along columns first. Else cube ``root`` owns all.
    """
    found = []
    root_x, root_y = root % grid.cube_w, root // grid.cube_w
    for index, (start, length) in enumerate(pieces):
        pe, x, y, columns_first = 0, root_x, root_y, False
        if rotates:
            cube, pe = divmod(index, grid.pes)
            shift, turn = lane + pe, cube // grid.cube_w
            x = (root_x + cube + shift) % grid.cube_w
            y = (root_y + cube + turn + shift + shift // grid.cube_w) % grid.cube_h
            columns_first = (shift + turn) % 2 == 1
        legs = _legs_to(grid, (pe, x, y), index * lanes + lane, columns_first)
        found.append(Unit(start, length, legs, index))
    return found


def _legs_to(grid: Grid, places: tuple[int, int, int], number: int, columns_first: bool) -> tuple[Leg, ...]:
    """The legs of a unit whose owner in a SIP is at ``places`` (PE, x, y).

    By its number, owners go round all SIPs, then both arms, then, on a grid of SIPs, both orders of the axes.
    """
    turn, sip = divmod(number, grid.sip_w * grid.sip_h)
    longer_ahead = turn % 2 == 1
    pe, x, y = places
    mesh = [Leg(X, x, False), Leg(Y, y, False)]
    sips = [Leg(SIP_X, sip % grid.sip_w, longer_ahead), Leg(SIP_Y, sip // grid.sip_w, longer_ahead)]
    if columns_first:
        mesh.reverse()
    if turn // 2 % 2:
        sips.reverse()
    axes = grid.axes
    return tuple(leg for leg in (Leg(PE, pe, longer_ahead), *mesh, *sips) if axes[leg.axis].size > 1)


ELEMENT_BYTES = DTYPES[DEFAULT_DTYPE].itemsize
"""Of which a row is taken to be made: an algorithm's arguments tell elements and no type (ADR-0032 D7)."""


def root_of(system: "AhbmSystem", algorithm: str, n_elem: int) -> int:
    """The root cube for rows of ``n_elem``: the configured one, else that of the least time; of equals the last one."""
    configured = system.resolved.ccl.algorithms[algorithm].root_cube
    if isinstance(configured, int):
        return configured
    return min(reversed(range(system.n_cubes)), key=lambda cube: estimate_ps(system, cube, n_elem * ELEMENT_BYTES))


def estimate_ps(system: "AhbmSystem", root: int, nbytes: int) -> int:
    """The time of all phases with a root, without PE_CPU and PE_MATH: longest paths, and the busiest PE's port.

    Rows along x first, then the root's column, both ways; between SIPs a hop for every two SIPs of an axis, both ways.
    """
    (width, height), (sip_w, sip_h) = system.cube_mesh, system.shape
    x, y = root % width, root // width
    longest = 2 * (max(_along_x_ps(system, root, end) for end in (0, width - 1)))
    longest += 2 * max(_route_ps(system, root, end * width + x) for end in (0, height - 1))
    for size, ports in ((sip_w, "EW"), (sip_h, "NS")):
        hops = size - 1 if system.topology == "mesh_2d_no_wrap" else size // 2
        longest += 2 * hops * sum(_to_port_ps(system, root, port) for port in ports)
    return longest + system.graph.route(_pe(root), _hbm(root)).drain_ps(_rows_in(system, x, y) * nbytes)


def _along_x_ps(system: "AhbmSystem", root: int, end: int) -> int:
    width = system.cube_mesh[0]
    return _route_ps(system, root, root // width * width + end)


def _route_ps(system: "AhbmSystem", a: int, b: int) -> int:
    return system.graph.route(_pe(a), _pe(b)).head_ps() if a != b else 0


def _to_port_ps(system: "AhbmSystem", root: int, port: str) -> int:
    return system.graph.route(_pe(root), port_node(port)).head_ps()


def _rows_in(system: "AhbmSystem", x: int, y: int) -> int:
    """Rows that enter the busiest PE: its own from HBM, those of its arms, and the result or the exchange."""
    (width, height), n_sips = system.cube_mesh, system.n_sips
    from_rows, from_column = (x > 0) + (x < width - 1), (y > 0) + (y < height - 1)
    exchange = min(2, n_sips - 1) if n_sips > 1 else 0
    of_root = 1 + from_rows + from_column + exchange
    in_column = 1 + from_rows + (height > 2) + 1 if height > 1 else 0
    return max(of_root, in_column)


def _pe(cube: int) -> Node:
    return Node("pe", cube, LEAD_PE)


def _hbm(cube: int) -> Node:
    return Node("hbm", cube, LEAD_PE)
