"""Chooses the root cube of a reduction over the cube mesh, by its time on the configured system."""

from typing import TYPE_CHECKING

from sipsim.chips.ahbm.address import LEAD_PE
from sipsim.core.dtypes import DEFAULT_DTYPE, DTYPES
from sipsim.fabric.graph import Node, port_node

if TYPE_CHECKING:
    from sipsim.chips.ahbm.system import System


ELEMENT_BYTES = DTYPES[DEFAULT_DTYPE].itemsize
"""Of which a row is taken to be made: an algorithm's arguments tell elements and no type (ADR-0032 D7)."""


def root_of(system: "System", algorithm: str, n_elem: int) -> int:
    """The root cube for rows of ``n_elem``: the configured one, else that of the least time; of equals the last one."""
    configured = system.resolved.ccl.algorithms[algorithm].root_cube
    if isinstance(configured, int):
        return configured
    return min(reversed(range(system.n_cubes)), key=lambda cube: estimate_ps(system, cube, n_elem * ELEMENT_BYTES))


def estimate_ps(system: "System", root: int, nbytes: int) -> int:
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


def _along_x_ps(system: "System", root: int, end: int) -> int:
    width = system.cube_mesh[0]
    return _route_ps(system, root, root // width * width + end)


def _route_ps(system: "System", a: int, b: int) -> int:
    return system.graph.route(_pe(a), _pe(b)).head_ps() if a != b else 0


def _to_port_ps(system: "System", root: int, port: str) -> int:
    return system.graph.route(_pe(root), port_node(port)).head_ps()


def _rows_in(system: "System", x: int, y: int) -> int:
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
