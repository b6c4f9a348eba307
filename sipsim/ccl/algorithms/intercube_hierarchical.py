"""All cubes reduce a part each: reduce-scatter over the cube mesh, exchange between SIPs on every cube, gather back.

A row moves in units whose owners go round all cubes, SIPs and, with ``rank_per: pe``, PEs: each of the PEs of a cube
is a worker then, which takes its share of the row from PE 0's HBM and combines it with the same PE of all other cubes
and SIPs. Half of the units go along rows of the mesh first, half along columns, so that all links of the mesh carry
the same; on a ring or torus of SIPs both directions of all links do (:mod:`sipsim.ccl.intercube.units`).

**Bytes.** Payload ``S`` a row, ``N`` cubes of a ``W x H`` mesh, ``n`` SIPs: a unit takes ``n - 1`` hops between SIPs
and as many back, so a link of a ring carries ``(n-1)/n * S`` in each direction, and one of a ``w x h`` torus
``((w-1)/w * (1 + 1/h)) * S / 2`` along x, if all owners have as many units: for rows of ``LEAST_BYTES`` and more for
each of the ``N * workers`` owners. Between cubes of a mesh it carries ``(1 + 1/H) * S / 2`` along x, beside
what is on its way to and from the ports.

It suits all SIP topologies that :mod:`.intercube_pipelined` does.
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
    exchange_of(numbers, sip_topo_w, sip_topo_h, rotates=True).perform(tl, row, n_elem, True, op)


def reference(tensors: list[Array], system: "System", *, op: str = "sum") -> list[Array]:
    """The row of all cubes of each rank from all (cubes, elements) inputs, with the kernel's order of additions."""
    rows = rows_of(tensors, system)
    exchange = exchange_of(numbers_of(system, rows.shape[-1]), *system.shape, rotates=True)
    return [exchange.combined(rows, None, op)] * len(tensors)
