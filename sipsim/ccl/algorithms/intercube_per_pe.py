"""Rows that the PEs of their cube divide by columns: each PE combines its piece with the same PE of all other cubes.

For tensors with ``DPPolicy(cube="row_wise", pe="column_wise", num_pes=...)`` on all PEs, which ADR-0032 leaves out.
Every row, one a cube, becomes the sum of all rows of all ranks. Each PE is a lane of its own, with its piece in its own
HBM; within a cube nothing is exchanged. What a lane does is :mod:`.intercube_hierarchical`'s, with its bytes over all
links together; each HBM reads and writes a part of the row only.
"""

from typing import TYPE_CHECKING

import numpy as np

from sipsim.ccl.intercube.exchange import Array, Numbers, exchange_of, numbers_of, rows_of
from sipsim.ccl.intercube.members import SIP_TOPO_MESH, SIP_TOPO_RING, SIP_TOPO_TORUS, TOPO_NAME_TO_KIND, joined
from sipsim.ccl.neighbours import NeighbourMap
from sipsim.tl.values import Pointer

if TYPE_CHECKING:
    from sipsim.system.system import System
    from sipsim.tl.language import TL

__all__ = ["SIP_TOPO_MESH", "SIP_TOPO_RING", "SIP_TOPO_TORUS", "TOPO_NAME_TO_KIND"]

RANK_IDENTICAL = True
LAYOUT = ("row_wise", "column_wise")


def kernel_args(world_size: int, n_elem: int, system: "System") -> Numbers:
    """What an exchange is made of."""
    return numbers_of(system, n_elem)


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
    """Combine the rows of ``n_elem`` elements at ``t_ptr``, one a cube, a piece a PE, in place."""
    numbers = n_elem, cube_w, cube_h, n_sips, count, root, wraps, slot_size, n_slots
    piece = n_elem // count
    block = t_ptr + (tl.program_id(1) * count + tl.program_id(0)) * piece * t_ptr.dtype.itemsize
    exchange_of(numbers, sip_topo_w, sip_topo_h, rotates=True).perform(tl, block, piece, False, op)


def reference(tensors: list[Array], system: "System", *, op: str = "sum") -> list[Array]:
    """The row of all cubes of each rank from all (cubes, elements) inputs, with the kernel's order of additions."""
    rows = rows_of(tensors, system)
    exchange = exchange_of(numbers_of(system, rows.shape[-1]), *system.shape, rotates=True)
    pieces = np.split(rows, exchange.lanes, axis=-1)
    row = np.concatenate([exchange.combined(piece, lane, op) for lane, piece in enumerate(pieces)])
    return [row] * len(tensors)
