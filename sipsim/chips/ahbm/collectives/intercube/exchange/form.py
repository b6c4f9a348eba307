"""The hooks of an algorithm module that is an exchange (ADR-0023 D11, ADR-0032 D7), from what differs between them.

A module makes a :class:`Form` and exports its methods under their names.
"""

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sipsim.chips.ahbm.collectives.intercube.exchange.exchange import Array, Numbers, exchange_of, numbers_of
from sipsim.chips.ahbm.collectives.intercube.members import joined
from sipsim.chips.ahbm.collectives.neighbours.neighbours import NeighbourMap
from sipsim.chips.ahbm.tl.values import Pointer

if TYPE_CHECKING:
    from sipsim.chips.ahbm.system import System
    from sipsim.chips.ahbm.tl.language.language import TL


class Rows(Enum):
    """Where rows lie: one a cube, of which all workers take units; one a cube, a piece on each PE; one a PE."""

    OF_CUBES = 0
    IN_PIECES = 1
    OF_PES = 2


class Form(NamedTuple):
    """``rotates``: whether units have different owners, as in
    :class:`~sipsim.chips.ahbm.collectives.intercube.exchange.exchange.Exchange`.
    """

    rows: Rows
    rotates: bool

    def kernel_args(self, world_size: int, n_elem: int, system: "System") -> Numbers:
        """What an exchange is made of, for ``n_elem`` elements a cube."""
        return numbers_of(system, n_elem)

    def neighbors(self, rank: int, world_size: int, neighbor_map: NeighbourMap, system: "System") -> NeighbourMap:
        """Workers of all cubes and SIPs; those of a cube too, where each has a row."""
        return joined(system, rank, world_size, pe_ring=self.rows is Rows.OF_PES)

    def kernel(
        self,
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
        """Combine the rows at ``t_ptr``, ``n_elem`` elements a cube, in place."""
        numbers = n_elem, cube_w, cube_h, n_sips, count, root, wraps, slot_size, n_slots
        pes = count if self.rows is Rows.OF_PES else 1
        index, length = tl.program_id(1), n_elem
        if self.rows is not Rows.OF_CUBES:
            index, length = index * count + tl.program_id(0), n_elem // count
        data = t_ptr + index * length * t_ptr.dtype.itemsize
        exchange = exchange_of(numbers, sip_topo_w, sip_topo_h, self.rotates, pes)
        exchange.perform(tl, data, length, self.rows is not Rows.IN_PIECES, op)

    def reference(self, tensors: list[Array], system: "System", *, op: str = "sum") -> list[Array]:
        """What a cube of each rank ends with, one row for all of it, from all (cubes, elements) inputs, with the
        kernel's order of additions."""
        pes = system.n_pes if self.rows is Rows.OF_PES else 1
        data = np.stack([np.reshape(each, (system.n_cubes, pes, -1)) for each in tensors])
        exchange = exchange_of(numbers_of(system, data.shape[-1] * pes), *system.shape, self.rotates, pes)
        if self.rows is Rows.IN_PIECES:
            pieces = np.split(data, exchange.lanes, axis=-1)
            row = np.concatenate([exchange.combined(piece, lane, op) for lane, piece in enumerate(pieces)])
        else:
            row = np.tile(exchange.combined(data, None, op), pes)
        return [row] * len(tensors)
