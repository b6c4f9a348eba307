"""Lower bounds of the time of ``intercube``: every row, one a cube, becomes the sum of all rows of all ranks.

Each is the time that one kind of resource needs at its full bandwidth for what no algorithm can do without; framing is
counted, latency, commands and launch are not. The largest is the bound, and its name the bottleneck.

To combine an element of ``m`` members and give all the result, at least ``m - 1`` messages bring its parts together and
``m - 1`` spread it (a tree's edges, twice). So all links between ``m`` members carry ``2(m-1) S``, and where a cut
parts them, ``S`` crosses it each way. A member that is part of a cut is a corner: it sends and takes ``S`` at least.
"""

from typing import TYPE_CHECKING, NamedTuple

from sipsim.chips.ahbm.address import LEAD_PE
from sipsim.chips.ahbm.collectives.cube_trees import sips_wrap
from sipsim.chips.ahbm.memory.presets import BURST_BYTES, PSEUDO_CHANNELS, presets
from sipsim.core.units import drain_ps
from sipsim.fabric.graph import FACING, Node

if TYPE_CHECKING:
    from sipsim.chips.ahbm.system import AhbmSystem

Bounds = dict[str, int]
"""Time in ps by resource."""


class Lines(NamedTuple):
    """A grid of members: sizes of its two axes, and whether they wrap."""

    w: int
    h: int
    wraps: bool

    @property
    def members(self) -> int:
        return self.w * self.h

    @property
    def links(self) -> int:
        """Directed ones. A ring of two has two links."""
        along = [(size if self.wraps and size > 1 else size - 1) * other for size, other in self._axes]
        return 2 * sum(along)

    @property
    def at_corner(self) -> int:
        """Links out of the member with the fewest."""
        return sum(2 if self.wraps else 1 for size, _ in self._axes if size > 1)

    @property
    def _axes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (self.w, self.h), (self.h, self.w)

    def busiest_bytes(self, nbytes: int) -> int:
        """What some link carries at least when all members combine ``nbytes``: the mean of all, or that of a cut."""
        if self.members == 1:
            return 0
        cuts = [self.at_corner]
        for size, other in self._axes:
            if size > 1:
                cuts.append(other * (2 if self.wraps else 1))
        mean = -(-2 * (self.members - 1) * nbytes // self.links)
        return max(mean, *(-(-nbytes // links) for links in cuts))


def bounds(system: "AhbmSystem", row_bytes: int, workers: int = 1) -> Bounds:
    """The bounds for rows of ``row_bytes`` in the HBM of PE 0 of each cube, with ``workers`` PEs a cube.

    ``links between SIPs``: what the topology must carry of a row a SIP. ``cube mesh``: what the mesh must of its rows.
    ``PE ports``: a row is loaded, and a part comes in for each hop between cubes and SIPs, mean of all cubes. ``HBM of
    PE 0``: a row is read and written at its port's bandwidth, and both share the DRAM's bus, less refresh; how often it
    turns from writes to reads is the algorithm's choice, so that is not counted. ``TCM ports``: what enters PEs is
    written there.
    """
    mesh = Lines(*system.cube_mesh, False)
    sips = Lines(*system.shape, sips_wrap(system))
    pe, hbm = Node("pe", 0, LEAD_PE), Node("hbm", 0, LEAD_PE)
    moved = _through_ports(mesh.members, sips.members, row_bytes) // workers
    port_ps = system.graph.route(pe, hbm).edges[0].drain_ps(max(moved, 1))
    tcm = system.resolved.components.tcm
    tcm_GBps = tcm.params.get("bandwidth_GBps")
    return {
        "links between SIPs": _sip_links_ps(system, sips.busiest_bytes(row_bytes)),
        "cube mesh": _mesh_link_ps(system, mesh.busiest_bytes(row_bytes)),
        "PE ports": port_ps,
        "HBM of PE 0": max(system.graph.route(pe, hbm).edges[-1].drain_ps(row_bytes), _dram_ps(system, 2 * row_bytes)),
        "TCM ports": 0 if tcm_GBps is None else drain_ps(moved, round(tcm_GBps * 10**9)),
    }


def bottleneck_of(found: Bounds) -> tuple[str, int]:
    """The resource with the largest bound, and that bound in ps."""
    return max(found.items(), key=lambda item: item[1])


def _through_ports(cubes: int, sips: int, row_bytes: int) -> int:
    """Bytes into the ports of a cube's PEs, mean of all cubes: its row, and each hop of the mesh and between SIPs."""
    hops = 2 * (cubes - 1) + 2 * (sips - 1) / sips
    return round(row_bytes * (1 + hops / cubes))


def _sip_links_ps(system: "AhbmSystem", nbytes: int) -> int:
    """On the slowest link."""
    kinds = system.link_kinds if nbytes else []
    return max((drain_ps(kind.wire_bytes(nbytes), kind.bandwidth_bps) for kind in kinds), default=0)


def _mesh_link_ps(system: "AhbmSystem", nbytes: int) -> int:
    width, _ = system.cube_mesh
    if not nbytes:
        return 0
    port, other = ("E", 1) if width > 1 else ("S", width)
    edge = system.graph.edge(Node("ucie", 0, port), Node("ucie", other, FACING[port]))
    return edge.drain_ps(nbytes)


def _dram_ps(system: "AhbmSystem", nbytes: int) -> int:
    """The time of the data bus of a PE's channels, which reads and writes share; 0 for a memory without one."""
    cost = system.resolved.components.hbm
    if cost.kind != "hbm_controller":
        return 0
    params = cost.params
    timings = presets()[params["preset"]].timings
    bytes_at_a_time = BURST_BYTES * PSEUDO_CHANNELS * int(params["channels"])
    busy_ps = -(-nbytes // bytes_at_a_time) * timings.burst
    is_refreshed = params.get("refresh", "none") != "none"
    return busy_ps * timings.refi // (timings.refi - timings.rfc) if is_refreshed else busy_ps
