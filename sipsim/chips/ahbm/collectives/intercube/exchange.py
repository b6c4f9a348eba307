"""The intercube exchange: from the config to the kernel, its reference, and the hooks of an algorithm's module."""

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sipsim.chips.ahbm.collectives.intercube.members import (
    Grid,
    joined,
    pieces_of,
    root_of,
    sips_wrap,
    units_of,
    workers,
)
from sipsim.chips.ahbm.collectives.intercube.schedule import Unit, combined, schedule
from sipsim.chips.ahbm.collectives.intercube.worker import Worker
from sipsim.chips.ahbm.collectives.neighbours import NeighbourMap
from sipsim.chips.ahbm.collectives.settings import effective_ipcq
from sipsim.chips.ahbm.ipcq.messages import IN_PLACE
from sipsim.chips.ahbm.tl.values import Pointer
from sipsim.core.errors import ConfigError

if TYPE_CHECKING:
    from sipsim.chips.ahbm.system import AhbmSystem
    from sipsim.chips.ahbm.tl.language import TL

Array = np.ndarray[Any, Any]
Numbers = tuple[int, int, int, int, int, int, int, int, int]
"""What a kernel gets: ADR-0032's own numbers (elements a cube, width and height of the cube mesh, SIPs); then workers a
cube, root cube, whether SIPs are in rings, slot size, slots.
"""


class Exchange(NamedTuple):
    """An exchange as its algorithms have it in common: the members of ``grid``, and how they share the elements.

    ``lanes``: groups of members, each with elements of its own. ``rotates``: whether units have different owners.
    """

    grid: Grid
    lanes: int
    root: int
    slot_size: int
    n_slots: int
    rotates: bool

    def units(self, n_elem: int, itemsize: int, lane: int, is_shared: bool) -> list[Unit]:
        """The units of a lane; with ``is_shared`` all lanes divide ``n_elem`` elements, else each has as many."""
        grid, sharing = self.grid, self.lanes if is_shared else 1
        owners = sharing * (grid.pes * grid.cube_w * grid.cube_h if self.rotates else 1)
        owners = max(owners, grid.sip_owners)
        pieces = pieces_of(n_elem, itemsize, self.slot_size, owners)
        if is_shared:
            pieces = pieces[lane :: self.lanes]
        return units_of(pieces, grid, lane, self.lanes, self.root, self.rotates)

    def perform(self, tl: "TL", data: Pointer, n_elem: int, is_shared: bool, op: str) -> None:
        """This PE's part, on ``n_elem`` elements at ``data``."""
        pe, cube, sip = (tl.program_id(axis) for axis in range(3))
        units = self.units(n_elem, data.dtype.itemsize, pe if self.lanes > 1 else 0, is_shared)
        steps = schedule(self.grid.axes, self.grid.places(pe, cube, sip), units, self.n_slots)
        Worker(tl, data, units, self.grid.members, op).run(steps)

    def combined(self, rows: Array, lane: int | None, op: str) -> Array:
        """What all members end with. ``rows``: shape (SIPs, cubes, PEs of the grid, elements); ``lane``: whose they
        are, None where all lanes share them."""
        grid, n_elem = self.grid, rows.shape[-1]
        shape = (grid.sip_h, grid.sip_w, grid.cube_h, grid.cube_w, grid.pes, n_elem)
        by_axis = rows.reshape(shape).transpose(4, 3, 2, 1, 0, 5)
        lanes = range(self.lanes) if lane is None else (lane,)
        units = [unit for each in lanes for unit in self.units(n_elem, rows.itemsize, each, lane is None)]
        return combined(by_axis, grid.axes, units, op)


def exchange_of(numbers: Sequence[int], sip_w: int, sip_h: int, rotates: bool, pes: int = 1) -> Exchange:
    """The exchange, made again from the numbers that a kernel gets; ``pes``: rows in a cube."""
    _, cube_w, cube_h, _, count, root, wraps, slot_size, n_slots = numbers
    grid = Grid(pes, cube_w, cube_h, sip_w, sip_h, bool(wraps))
    return Exchange(grid, 1 if pes > 1 else count, root, slot_size, n_slots, rotates)


def numbers_of(system: "AhbmSystem", n_elem: int) -> Numbers:
    """What a kernel gets for ``n_elem`` elements a cube.

    Raises:
        ConfigError: with slots in use until their messages are used, which could deadlock
                (:mod:`sipsim.chips.ahbm.collectives.intercube.schedule`).
        ValueError: as :func:`sips_wrap`.
    """
    name = system.resolved.ccl.defaults.algorithm
    knobs = effective_ipcq(system.resolved, name)
    if knobs.latch == IN_PLACE:
        raise ConfigError(f"algorithm {name} posts its receives ahead; set latch to copy or null")
    width, height = system.cube_mesh
    count, root = workers(system, name), root_of(system, name, n_elem)
    wraps = int(sips_wrap(system))
    return n_elem, width, height, system.n_sips, count, root, wraps, knobs.slot_size, knobs.n_slots


class Rows(Enum):
    """Where rows lie: one a cube, of which all workers take units; one a cube, a piece on each PE; one a PE."""

    OF_CUBES = 0
    IN_PIECES = 1
    OF_PES = 2


class Form(NamedTuple):
    """The hooks of an algorithm module that is an exchange (ADR-0023 D11, ADR-0032 D7).

    A module makes a form of its own and exports the form's methods under their names. ``rotates``: as of
    :class:`Exchange`.
    """

    rows: Rows
    rotates: bool

    def kernel_args(self, world_size: int, n_elem: int, system: "AhbmSystem") -> Numbers:
        """What an exchange is made of, for ``n_elem`` elements a cube."""
        return numbers_of(system, n_elem)

    def neighbors(self, rank: int, world_size: int, neighbor_map: NeighbourMap, system: "AhbmSystem") -> NeighbourMap:
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

    def reference(self, tensors: list[Array], system: "AhbmSystem", *, op: str = "sum") -> list[Array]:
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
