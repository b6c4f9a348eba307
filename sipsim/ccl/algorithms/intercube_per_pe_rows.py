"""A row a PE: every row of all PEs, cubes and ranks becomes the sum of all of them.

For tensors with ``DPPolicy(cube="row_wise", pe="row_wise", num_pes=...)`` on all PEs, which ADR-0032 leaves out. The
PEs of a cube are joined in a ring over its NoC, the first axis of each unit; cube mesh and SIPs follow as in
:mod:`.intercube_hierarchical`. Units have owners among all PEs of all cubes.

**Bytes.** Payload ``S`` a row, ``P`` PEs: in a cube ``(P-1)/P * S`` in each direction between neighbours of the ring.
What a cube exchanges with others is one row, as in :mod:`.intercube_hierarchical`.
"""

from typing import TYPE_CHECKING

import numpy as np

from sipsim.ccl.intercube.exchange import Array, Numbers, exchange_of, numbers_of
from sipsim.ccl.intercube.members import SIP_TOPO_MESH, SIP_TOPO_RING, SIP_TOPO_TORUS, TOPO_NAME_TO_KIND, joined
from sipsim.ccl.neighbours import NeighbourMap
from sipsim.tl.values import Pointer

if TYPE_CHECKING:
    from sipsim.system.system import System
    from sipsim.tl.language import TL

__all__ = ["SIP_TOPO_MESH", "SIP_TOPO_RING", "SIP_TOPO_TORUS", "TOPO_NAME_TO_KIND"]

RANK_IDENTICAL = True
LAYOUT = ("row_wise", "row_wise")


def kernel_args(world_size: int, n_elem: int, system: "System") -> Numbers:
    """What an exchange is made of."""
    return numbers_of(system, n_elem)


def neighbors(rank: int, world_size: int, neighbor_map: NeighbourMap, system: "System") -> NeighbourMap:
    """Workers of all cubes and SIPs."""
    return joined(system, rank, world_size, pe_ring=True)


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
    """Combine the rows at ``t_ptr``, one a PE, ``n_elem`` elements a cube, in place."""
    numbers = n_elem, cube_w, cube_h, n_sips, count, root, wraps, slot_size, n_slots
    length = n_elem // count
    row = t_ptr + (tl.program_id(1) * count + tl.program_id(0)) * length * t_ptr.dtype.itemsize
    exchange_of(numbers, sip_topo_w, sip_topo_h, rotates=True, pes=count).perform(tl, row, length, True, op)


def reference(tensors: list[Array], system: "System", *, op: str = "sum") -> list[Array]:
    """The rows of a cube, the same for all, of each rank from all (cubes, PEs * elements) inputs, bit for bit."""
    rows = np.stack([np.reshape(each, (system.n_cubes, system.n_pes, -1)) for each in tensors])
    numbers = numbers_of(system, rows.shape[-1] * system.n_pes)
    exchange = exchange_of(numbers, *system.shape, rotates=True, pes=system.n_pes)
    return [np.tile(exchange.combined(rows, None, op), system.n_pes)] * len(tensors)
