"""ADR-0032's five phases as a pipeline: reduce to a root cube, exchange between SIPs, broadcast back, all at once.

Rows of the cube mesh are reduced towards the root's column from both sides, that column towards the root, the roots
exchange, and the results go back the same way. A row moves in units of at most a slot, each a round behind the one
before, so that all phases are at work. Between SIPs a unit is combined towards one of them, from both sides on a ring,
and sent back; that SIP, the arms and, on a grid of SIPs, the order of its axes go round by units.

``root_cube`` is any cube; with ``auto`` and null the one of the least time (:mod:`sipsim.ccl.intercube.root`).
The five phases pass through the ports of one PE a cube, and the root's takes ``2 + arms + 2(n-1)/n`` rows of each
direction; with ``rank_per: pe`` all PEs of a cube divide its row.

**Bytes.** Payload ``S`` a row, ``n`` SIPs: a unit takes ``n - 1`` hops to its SIP and as many back. So a link of a ring
carries ``(n-1)/n * S`` in each direction, and one of a ``w x h`` torus ``(w-1)/w * (1 + 1/h) * S / 2`` along x, if
units are a multiple of ``2n``, or ``4n`` on a torus. On a mesh, and a line, half of the links' directions carry less.

It suits SIPs in rings, tori and meshes, and ``custom`` lines and rings along ports E and W.
"""

from typing import TYPE_CHECKING

from sipsim.ccl.intercube.exchange import Array, Numbers, exchange_of, numbers_of, rows_of
from sipsim.ccl.intercube.members import SIP_TOPO_MESH, SIP_TOPO_RING, SIP_TOPO_TORUS, TOPO_NAME_TO_KIND, joined
from sipsim.ccl.neighbours import NeighbourMap
from sipsim.tl.values import Pointer

if TYPE_CHECKING:
    from sipsim.system.system import System
    from sipsim.tl.language import TL

__all__ = ["SIP_TOPO_MESH", "SIP_TOPO_RING", "SIP_TOPO_TORUS", "TOPO_NAME_TO_KIND"]

RANK_IDENTICAL = True
LAYOUT = ("row_wise", "replicate")


def kernel_args(world_size: int, n_elem: int, system: "System") -> Numbers:
    """What an exchange is made of."""
    return numbers_of(system, n_elem)


def root_cube(system: "System") -> None:
    """Any cube may be configured."""


def neighbors(rank: int, world_size: int, neighbor_map: NeighbourMap, system: "System") -> NeighbourMap:
    """Workers of all cubes and SIPs."""
    return joined(system, rank, world_size)


def kernel(
    t_ptr: Pointer,
    n_elem: int,
    cube_w: int,
    cube_h: int,
    n_sips: int,
    count: int,
    root: int,
    wraps: int,
    slot_size: int,
    n_slots: int,
    sip_rank: int,
    sip_topo_kind: int,
    sip_topo_w: int,
    sip_topo_h: int,
    tl: "TL",
    *,
    op: str = "sum",
) -> None:
    """Combine the rows of ``n_elem`` elements at ``t_ptr``, one a cube, in place."""
    numbers = n_elem, cube_w, cube_h, n_sips, count, root, wraps, slot_size, n_slots
    row = t_ptr + tl.program_id(1) * n_elem * t_ptr.dtype.itemsize
    exchange_of(numbers, sip_topo_w, sip_topo_h, rotates=False).perform(tl, row, n_elem, True, op)


def reference(tensors: list[Array], system: "System", *, op: str = "sum") -> list[Array]:
    """The row of all cubes of each rank from all (cubes, elements) inputs, with the kernel's order of additions."""
    rows = rows_of(tensors, system)
    exchange = exchange_of(numbers_of(system, rows.shape[-1]), *system.shape, rotates=False)
    return [exchange.combined(rows, None, op)] * len(tensors)
