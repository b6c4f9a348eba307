"""All-reduce in five phases over cube mesh and SIPs, on the lead PE of every cube (ADR-0032 D1).

1. Rows reduce W to E. 2. The last column reduces N to S into the root cube, in the south-east corner.
3. Root cubes exchange between SIPs: in a ring; on a torus in rings along rows, then columns; on a mesh without wrap in
a chain that reduces and broadcasts back, along rows, then columns. 4. The last column broadcasts S to N.
5. Rows broadcast E to W.

A shard larger than a slot is sent in tiles. The root cube stores its partial sums in its own shard between the
phases, so that no phase needs more tiles in the PE than a ring has slots.

**Order of additions**, which :func:`reference` repeats: a cube adds received values to its own, so the sum of a row is
``((c0 + c1) + c2) + ...``; the last column adds row sums likewise, from the north. In a ring, a rank adds the partial
sums of its predecessors to its own, the nearest first; with three or more ranks, results may differ between ranks in
the last bits of floating types. On a mesh the chain runs from W to E and from N to S, and all ranks get the same bits.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sipsim.chips.ahbm.collectives.neighbours import intercube_multisip
from sipsim.chips.ahbm.tl.values import Pointer, TensorHandle

if TYPE_CHECKING:
    from sipsim.chips.ahbm.system import AhbmSystem
    from sipsim.chips.ahbm.tl.language import TL

Array = np.ndarray[Any, Any]
BlockValues = list[TensorHandle]
Tile = tuple[Pointer, int]
"""(address, number of elements)."""

SIP_TOPO_RING = 0
SIP_TOPO_TORUS = 1
SIP_TOPO_MESH = 2
TOPO_NAME_TO_KIND = {"ring_1d": SIP_TOPO_RING, "torus_2d": SIP_TOPO_TORUS, "mesh_2d_no_wrap": SIP_TOPO_MESH}


neighbors = intercube_multisip


def kernel_args(world_size: int, n_elem: int, system: "AhbmSystem") -> tuple[int, int, int, int]:
    """Return (elements per cube, cube mesh width, height, number of SIPs)."""
    width, height = system.cube_mesh
    return n_elem, width, height, world_size


def root_cube(system: "AhbmSystem") -> int:
    """Return the south-east cube: rows reduce eastwards, the last column southwards."""
    return system.n_cubes - 1


def kernel(
    t_ptr: Pointer,
    n_elem: int,
    cube_w: int,
    cube_h: int,
    n_sips: int,
    sip_rank: int,
    sip_topo_kind: int,
    sip_topo_w: int,
    sip_topo_h: int,
    tl: "TL",
) -> None:
    """All-reduce the shards of ``n_elem`` elements at ``t_ptr``, one per cube, in place."""
    cube = tl.program_id(1)
    x, y = cube % cube_w, cube // cube_w
    is_root = (x, y) == (cube_w - 1, cube_h - 1)
    shard = t_ptr + cube * n_elem * t_ptr.dtype.itemsize
    tiles = tiles_of(shard, n_elem, tl)
    for ptr, length in tiles:
        total = reduce_to_root(ptr, length, x, y, cube_w, cube_h, tl)
        if total is not None:
            with tl.phase("reduce last column"):
                tl.store(ptr, total)
    if is_root and n_sips > 1:
        exchange = EXCHANGES[sip_topo_kind]
        with tl.phase("exchange between SIPs"):
            for block in blocks_of(tiles, tl):
                sums = [tl.load(ptr, length) for ptr, length in block]
                sums = exchange(sums, sip_rank, sip_topo_w, sip_topo_h, tl)
                for (ptr, _), total in zip(block, sums, strict=True):
                    tl.store(ptr, total)
    for ptr, length in tiles:
        _broadcast_from_root(ptr, length, x, y, cube_w, is_root, tl)


def tiles_of(shard: Pointer, n_elem: int, tl: "TL") -> list[Tile]:
    """Return the tiles of a shard, each of at most one slot; one tile if there is no neighbour."""
    itemsize = shard.dtype.itemsize
    slots = [tl.ipcq_slots(d)[1] for d in _ALL_DIRECTIONS if tl.has_direction(d)]
    tile_elems = max(min(slots) // itemsize, 1) if slots else n_elem
    return [(shard + start * itemsize, min(tile_elems, n_elem - start)) for start in range(0, n_elem, tile_elems)]


def blocks_of(tiles: list[Tile], tl: "TL") -> list[list[Tile]]:
    """Group tiles into blocks that fit into every ring between SIPs, as a block is sent before any receive."""
    depth = min(tl.ipcq_slots(d)[0] for d in _SIP_DIRECTIONS if tl.has_direction(d))
    return [tiles[start : start + depth] for start in range(0, len(tiles), depth)]


def reduce_to_root(
    ptr: Pointer, length: int, x: int, y: int, cube_w: int, cube_h: int, tl: "TL"
) -> TensorHandle | None:
    """Run phases 1 and 2 for one tile: return the sum of this SIP on the root cube, None on other cubes."""
    with tl.phase("reduce rows"):
        total = tl.load(ptr, length)
        if x > 0:
            total = total + tl.recv("W", length, total.dtype)
        if x < cube_w - 1:
            tl.send("E", total)
            return None
    with tl.phase("reduce last column"):
        if y > 0:
            total = total + tl.recv("N", length, total.dtype)
        if y < cube_h - 1:
            tl.send("S", total)
            return None
    return total


def _broadcast_from_root(ptr: Pointer, length: int, x: int, y: int, cube_w: int, is_root: bool, tl: "TL") -> None:
    """Run phases 4 and 5 for one tile."""
    in_last_column = x == cube_w - 1
    with tl.phase("broadcast last column" if in_last_column else "broadcast rows"):
        total = tl.load(ptr, length) if is_root else tl.recv("S" if in_last_column else "E", length, ptr.dtype)
        if in_last_column and y > 0:
            tl.send("N", total)
        if x > 0:
            tl.send("W", total)
        if not is_root:
            tl.store(ptr, total)


def _ring(sums: BlockValues, size: int, send_to: str, recv_from: str, tl: "TL") -> BlockValues:
    """Run ``size - 1`` rounds on a ring: in each, forward the tiles of the last round, and receive and add new ones."""
    moving = sums
    for _ in range(size - 1):
        for tile in moving:
            tl.send(send_to, tile)
        moving = [tl.recv(recv_from, tile.shape, tile.dtype) for tile in moving]
        sums = [total + tile for total, tile in zip(sums, moving, strict=True)]
    return sums


def _chain(sums: BlockValues, position: int, size: int, next_sip: str, previous_sip: str, tl: "TL") -> BlockValues:
    """Reduce along a line towards its last rank, then broadcast back."""
    if position > 0:
        sums = [total + tl.recv(previous_sip, total.shape, total.dtype) for total in sums]
    if position < size - 1:
        for tile in sums:
            tl.send(next_sip, tile)
        sums = [tl.recv(next_sip, tile.shape, tile.dtype) for tile in sums]
    if position > 0:
        for tile in sums:
            tl.send(previous_sip, tile)
    return sums


def _inter_sip_ring(sums: BlockValues, rank: int, w: int, h: int, tl: "TL") -> BlockValues:
    return _ring(sums, w, "global_E", "global_W", tl)


def _inter_sip_torus_2d(sums: BlockValues, rank: int, w: int, h: int, tl: "TL") -> BlockValues:
    return _ring(_ring(sums, w, "global_E", "global_W", tl), h, "global_S", "global_N", tl)


def _inter_sip_mesh_2d(sums: BlockValues, rank: int, w: int, h: int, tl: "TL") -> BlockValues:
    rows = _chain(sums, rank % w, w, "global_E", "global_W", tl)
    return _chain(rows, rank // w, h, "global_S", "global_N", tl)


_SIP_DIRECTIONS = ("global_E", "global_W", "global_N", "global_S")
_ALL_DIRECTIONS = ("E", "W", "N", "S", *_SIP_DIRECTIONS)
EXCHANGES: dict[int, Callable[[BlockValues, int, int, int, "TL"], BlockValues]] = {
    SIP_TOPO_RING: _inter_sip_ring,
    SIP_TOPO_TORUS: _inter_sip_torus_2d,
    SIP_TOPO_MESH: _inter_sip_mesh_2d,
}


def reference(tensors: list[Array], system: "AhbmSystem") -> list[Array]:
    """Return each rank's result row from all (cubes, elements) inputs, with the kernel's order of additions."""
    width, height = system.cube_mesh
    kind = TOPO_NAME_TO_KIND[system.topology]
    with np.errstate(over="ignore", invalid="ignore"):
        sums = [_sum_of_sip(t, width, height) for t in tensors]
        across = _line_sums if kind == SIP_TOPO_MESH else _ring_sums
        w, h = system.shape
        for row in range(h):
            sums[row * w : (row + 1) * w] = across(sums[row * w : (row + 1) * w])
        if kind != SIP_TOPO_RING:
            for column in range(w):
                sums[column::w] = across(sums[column::w])
    return sums


def _sum_of_sip(tensor: Array, width: int, height: int) -> Array:
    rows = [_running_sum(list(tensor[y * width : (y + 1) * width])) for y in range(height)]
    return _running_sum(rows)


def _running_sum(terms: list[Array]) -> Array:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _ring_sums(sums: list[Array]) -> list[Array]:
    size = len(sums)
    return [_running_sum([sums[(rank - distance) % size] for distance in range(size)]) for rank in range(size)]


def _line_sums(sums: list[Array]) -> list[Array]:
    return [_running_sum(sums)] * len(sums)
