"""The all-reduce of ADR-0032 with its phases fused: partial sums stay in the PE, and no store delays a send.

Phases, wiring and order of additions are those of :mod:`.intercube_allreduce`, so results are bit-identical. Two
differences between the phases:

* The root cube holds its partial sums in its TCM from the reduction to the broadcast; :mod:`.intercube_allreduce`
  stores them in the root's shard after phase 2, and loads and stores them again around phase 3.
* A cube forwards a tile before it stores the tile, and does not wait for the store (``tl.store_async``).

A shard is processed in blocks of ``BLOCK_BYTES``, which limits the memory of the root: a block passes all phases
before the next block begins. Limitation: the exchange begins after the reduction of the whole block, without overlap.
"""

from typing import TYPE_CHECKING

from sipsim.chips.ahbm.collectives.algorithms.intercube_allreduce import (
    EXCHANGES,
    SIP_TOPO_MESH,
    SIP_TOPO_RING,
    SIP_TOPO_TORUS,
    TOPO_NAME_TO_KIND,
    BlockValues,
    Tile,
    blocks_of,
    neighbors,
    reduce_to_root,
    reference,
    root_cube,
    tiles_of,
)
from sipsim.chips.ahbm.collectives.algorithms.intercube_allreduce import kernel_args as args_of_phases
from sipsim.chips.ahbm.tl.values import Pointer, TensorHandle

if TYPE_CHECKING:
    from sipsim.chips.ahbm.system import AhbmSystem
    from sipsim.chips.ahbm.tl.language import TL

__all__ = [
    "SIP_TOPO_MESH",
    "SIP_TOPO_RING",
    "SIP_TOPO_TORUS",
    "TOPO_NAME_TO_KIND",
    "kernel",
    "kernel_args",
    "neighbors",
    "reference",
    "root_cube",
]

BLOCK_BYTES = 4 * 2**20
"""The exchange holds the sums of a block, the tiles of a round and their new sums: less than a kernel's 14 MiB. With
less TCM for kernels, blocks are smaller in proportion."""


def kernel_args(world_size: int, n_elem: int, system: "AhbmSystem") -> tuple[int, ...]:
    """Return the arguments of :mod:`.intercube_allreduce` and the bytes of a block."""
    kernel_bytes = system.tcm.kernel.size
    return *args_of_phases(world_size, n_elem, system), min(BLOCK_BYTES, kernel_bytes * 2 // 7)


def kernel(
    t_ptr: Pointer,
    n_elem: int,
    cube_w: int,
    cube_h: int,
    n_sips: int,
    block_bytes: int,
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
    tiles = tiles_of(t_ptr + cube * n_elem * t_ptr.dtype.itemsize, n_elem, tl)
    per_block = max(block_bytes // (tiles[0][1] * t_ptr.dtype.itemsize), 1)
    for start in range(0, len(tiles), per_block):
        block = tiles[start : start + per_block]
        totals = [reduce_to_root(*tile, x, y, cube_w, cube_h, tl) for tile in block]
        sums = [total for total in totals if total is not None]
        if is_root and n_sips > 1:
            sums = _exchange(block, sums, sip_topo_kind, sip_rank, sip_topo_w, sip_topo_h, tl)
        _broadcast(block, sums, x, y, cube_w, tl)


def _exchange(block: list[Tile], sums: BlockValues, kind: int, rank: int, w: int, h: int, tl: "TL") -> BlockValues:
    """Run phase 3 on as many tiles at a time as the rings between SIPs have slots."""
    with tl.phase("exchange between SIPs"):
        depth = len(blocks_of(block, tl)[0])
        parts = [sums[start : start + depth] for start in range(0, len(sums), depth)]
        return [total for part in parts for total in EXCHANGES[kind](part, rank, w, h, tl)]


def _broadcast(block: list[Tile], sums: BlockValues, x: int, y: int, cube_w: int, tl: "TL") -> None:
    """Run phases 4 and 5. ``sums``: the sums on the root cube; empty on other cubes."""
    in_last_column = x == cube_w - 1
    with tl.phase("broadcast last column" if in_last_column else "broadcast rows"):
        for index, (ptr, length) in enumerate(block):
            total: TensorHandle = sums[index] if sums else tl.recv("S" if in_last_column else "E", length, ptr.dtype)
            if in_last_column and y > 0:
                tl.send("N", total)
            if x > 0:
                tl.send("W", total)
            tl.store_async(ptr, total)
