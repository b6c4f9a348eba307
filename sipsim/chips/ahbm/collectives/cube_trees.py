"""The trees of ``intercube``: schedules on a group whose members are the cubes of all SIPs, or all their PEs.

A member has a place on every :class:`Axis`: the PEs of a cube if each PE has a row, the columns and the rows of the
cube mesh, and one or two axes of the SIP topology. Members are numbered by place, with the first axis fastest.

A row is cut into **units**, each a separate flow with an owner on each axis. Along the first axis every member sends
its partial result towards the axis's owner, where two arms meet. Along the next axis only the owners of the first axis
take part, and so on. The owner on all axes then has the result, which is broadcast along the same edges in reverse.
Owners change from unit to unit, so that all links carry the same load.

Time is counted in **hops**: data sent in one hop are used in the next hop. An axis takes as many hops as its longest
possible arm, and partial results reach any owner in the last of these hops. A hop takes ``STRIDE`` **moments**; a
moment has two **rounds** of the schedule, one per direction.

**Order of additions** on each axis: from the end of each arm inwards, each member computes ``own + received``; the
owner ``(own + arm behind) + arm ahead``. One member computes each result, so all ranks get the same bits.
"""

from collections.abc import Iterator
from enum import Enum
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from sipsim.chips.ahbm.address import LEAD_PE
from sipsim.chips.ahbm.collectives.kernel import kernel as run_program
from sipsim.chips.ahbm.collectives.neighbours import NeighbourMap
from sipsim.chips.ahbm.collectives.programs import Program, Shards, worker_program
from sipsim.chips.ahbm.collectives.reference import schedule_results
from sipsim.chips.ahbm.collectives.settings import effective_ipcq, effective_rank_per
from sipsim.chips.ahbm.ipcq.messages import IN_PLACE
from sipsim.chips.ahbm.tl.values import Pointer
from sipsim.collectives.call import Array
from sipsim.collectives.group import Group
from sipsim.collectives.schedule import OWN_FIRST, REPLACE, Ahead, Flow, Schedule, Step, Wiring
from sipsim.collectives.semantics import COLLECTIVES, Task
from sipsim.core.dtypes import DEFAULT_DTYPE, DTYPES
from sipsim.core.errors import ConfigError
from sipsim.fabric.graph import Node, port_node

if TYPE_CHECKING:
    from sipsim.chips.ahbm.system import AhbmSystem
    from sipsim.chips.ahbm.tl.language import TL

TOPO_NAME_TO_KIND = {"ring_1d": 0, "torus_2d": 1, "mesh_2d_no_wrap": 2, "custom": 3}
PE, X, Y, SIP_X, SIP_Y = range(5)
"""Numbers of the axes, in the order of ``Grid.axes``."""
AHEAD = Ahead(sends=3, receives=16, loads=8)
"""More lookahead than other schedules, since many units are in flight, each in another phase: rows of 256 KiB per PE on
4 SIPs of 2x2 cubes take 5.4 us, but 5.9 us with the defaults of :class:`Ahead`. Loads fill half of PE_DMA's queue, so
that stores find free entries."""
STRIDE = 2
"""Moments per hop; one unit begins per moment. With a stride of 1, a member that is one hop nearer to the next unit's
owner would send for both units in one moment: on 4x4 cubes the busiest member would send 5.2 messages per moment.
With 2 it sends 4; the mean is 1.9."""


class Axis(NamedTuple):
    """Axis of ``size`` members in a line or, with ``wraps``, a ring. ``ahead``, ``back``: names of its directions."""

    size: int
    wraps: bool
    ahead: str
    back: str

    @property
    def span(self) -> int:
        """Number of hops of a reduction along the axis: the length of the longest arm of any owner."""
        return self.size // 2 if self.wraps else self.size - 1

    def step(self, moment: int, is_ahead: bool, combine: int | None = None) -> Step:
        """Return the step of a moment for a message that moves ahead or back. ``combine``: how a received message is
        combined; None for a message that is sent.

        A moment has two rounds, one per direction, so that a member sends and receives once per round.
        """
        to, source = (self.ahead, self.back) if is_ahead else (self.back, self.ahead)
        number = 2 * moment + (not is_ahead)
        return Step(number, to, (0,)) if combine is None else Step(number, recv=source, recvs=(0,), combine=combine)


class Owner(NamedTuple):
    """Owner of a unit on an axis: its place, and whether in a ring of even size the arm ahead is the longer arm."""

    axis: int
    place: int
    long_arm_ahead: bool

    def arms(self, axis: Axis) -> tuple[int, int]:
        """Return the number of members behind and ahead of the owner."""
        if not axis.wraps:
            return self.place, axis.size - 1 - self.place
        behind = (axis.size - self.long_arm_ahead) // 2
        return behind, axis.size - 1 - behind

    def offset(self, axis: Axis, place: int) -> int:
        """Return the hops from the owner to a place, negative behind the owner."""
        if not axis.wraps:
            return place - self.place
        behind, _ = self.arms(axis)
        return (place - self.place + behind) % axis.size - behind


Moves = Iterator[tuple[int, bool, int | None]]
"""(hop, whether the message moves ahead, how it is combined), as for :meth:`Axis.step`."""


def _reduction(axis: Axis, owner: Owner, place: int) -> Moves:
    """Yield moves of the reduction: at distance ``d`` from the owner a member sends ``d`` hops before the end."""
    (behind, ahead), offset = owner.arms(axis), owner.offset(axis, place)
    sent = axis.span - abs(offset)
    if -behind < offset <= 0:
        yield sent - 1, True, OWN_FIRST
    if 0 <= offset < ahead:
        yield sent - 1, False, OWN_FIRST
    if offset:
        yield sent, offset < 0, None


def _broadcast(axis: Axis, owner: Owner, place: int) -> Moves:
    """Yield a member's moves of the broadcast: a member at distance ``d`` from the owner sends in hop ``d``."""
    (behind, ahead), offset = owner.arms(axis), owner.offset(axis, place)
    sent = abs(offset)
    if offset:
        yield sent - 1, offset > 0, REPLACE
    if 0 <= offset < ahead:
        yield sent, True, None
    if -behind < offset <= 0:
        yield sent, False, None


def places_of(axes: tuple[Axis, ...], member: int) -> list[int]:
    """Return a member's places on the axes."""
    found = []
    for axis in axes:
        member, place = divmod(member, axis.size)
        found.append(place)
    return found


def steps_of(axes: tuple[Axis, ...], owners: tuple[Owner, ...], first: int, member: int) -> list[Step]:
    """Return a member's steps for a unit with the given owners. ``first``: the unit's first moment."""
    places = places_of(axes, member)
    on_axes = [(axes[owner.axis], owner, places[owner.axis]) for owner in owners]
    reached = next((number for number, owner in enumerate(owners) if places[owner.axis] != owner.place), len(owners))
    found, start = [], 0
    # A member takes part along the first axes on which it is the owner, and along the next axis, in both phases.
    for number, (axis, owner, place) in enumerate(on_axes):
        if number <= reached:
            found += [(axis, start, move) for move in _reduction(axis, owner, place)]
        start += axis.span
    for number, (axis, owner, place) in reversed([*enumerate(on_axes)]):
        if number <= reached:
            found += [(axis, start, move) for move in _broadcast(axis, owner, place)]
        start += axis.span
    return sorted(
        axis.step(first + STRIDE * (start + at), is_ahead, combine) for axis, start, (at, is_ahead, combine) in found
    )


class Grid(NamedTuple):
    """Grid of all members, as the sizes of the axes. ``pes`` is 1 if the PEs of a cube form no axis. ``wraps``: whether
    the axes of SIPs are rings.
    """

    pes: int
    cube_w: int
    cube_h: int
    sip_w: int
    sip_h: int
    wraps: bool

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes, including those of size 1."""
        return (
            Axis(self.pes, self.pes > 2, "pe_next", "pe_last"),
            Axis(self.cube_w, False, "E", "W"),
            Axis(self.cube_h, False, "S", "N"),
            Axis(self.sip_w, self.wraps, "global_E", "global_W"),
            Axis(self.sip_h, self.wraps, "global_S", "global_N"),
        )

    @property
    def size(self) -> int:
        """Number of members, each with a row."""
        return self.pes * self.cube_w * self.cube_h * self.sip_w * self.sip_h

    def neighbours(self, member: int) -> dict[str, tuple[int, str]]:
        """Return for each direction of a member the (member, direction) at the other end."""
        found, stride = {}, 1
        for axis, place in zip(self.axes, places_of(self.axes, member), strict=True):
            for direction, back, far in ((axis.ahead, axis.back, place + 1), (axis.back, axis.ahead, place - 1)):
                if axis.size > 1 and (axis.wraps or 0 <= far < axis.size):
                    found[direction] = member + (far % axis.size - place) * stride, back
            stride *= axis.size
        return found

    @property
    def wiring(self) -> Wiring:
        """The neighbours of all members."""
        return {(each, name): far for each in range(self.size) for name, far in self.neighbours(each).items()}

    @property
    def sip_owners(self) -> int:
        """Number of units that load all SIP links equally: one per owner, longer arm (of two) and order of axes."""
        orders = 2 if self.sip_w > 1 and self.sip_h > 1 else 1
        return self.sip_w * self.sip_h * (2 if self.wraps else 1) * orders


class Rows(Enum):
    """Placement of rows. ``OF_CUBES``: one row per cube, whose workers share the row's units. ``IN_PIECES``: one row
    per cube, with a piece on each PE. ``OF_PES``: one row per PE.
    """

    OF_CUBES = 0
    IN_PIECES = 1
    OF_PES = 2


class Trees(NamedTuple):
    """Reduction trees of an algorithm on a system.

    ``lanes``: number of workers per member, each with separate elements. ``root``: number of the cube that owns all
    units, or with ``rotates`` the first unit. A unit is one message of at most a slot.
    """

    grid: Grid
    rows: Rows
    rotates: bool
    lanes: int
    root: int
    slot_bytes: int
    n_slots: int

    def task(self, n_elem: int, itemsize: int, lane: int) -> tuple[Task, Schedule]:
        """Return the all-reduce of ``n_elem`` elements per member and its schedule, for one lane, or for all lanes if
        the lanes share a row.
        """
        schedule = _schedule(self, n_elem, itemsize, lane)
        workers = min(self.lanes, len(schedule)) if self.rows is Rows.OF_CUBES else 1
        # Only the size of the task's group is used here; the wiring of the members is that of the grid.
        return Task(COLLECTIVES.get("all_reduce"), cast(Group, self.grid), n_elem, itemsize, workers=workers), schedule

    def owners_of(self, lane: int, index: int) -> tuple[Owner, ...]:
        """Return the owners of a unit of a lane, in the order of the axes that the unit is reduced along.

        With ``rotates`` the owner moves over all PEs of a cube, then over all cubes, beginning at the root. Successive
        units have owners in different columns and rows, and half of the units reduce along columns first. Between SIPs,
        successive units change the owner, then the longer arm, then (on a grid of SIPs) the order of the axes.
        """
        grid, pe, columns_first = self.grid, 0, False
        y, x = divmod(self.root, grid.cube_w)
        if self.rotates:
            cube, pe = divmod(index, grid.pes)
            shift, turn = lane + pe, cube // grid.cube_w
            x = (x + cube + shift) % grid.cube_w
            y = (y + cube + turn + shift + shift // grid.cube_w) % grid.cube_h
            columns_first = (shift + turn) % 2 == 1
        turn, sip = divmod(index * self.lanes + lane, grid.sip_w * grid.sip_h)
        long_arm_ahead = turn % 2 == 1
        mesh = [Owner(X, x, False), Owner(Y, y, False)]
        sips = [Owner(SIP_X, sip % grid.sip_w, long_arm_ahead), Owner(SIP_Y, sip // grid.sip_w, long_arm_ahead)]
        if columns_first:
            mesh.reverse()
        if turn // 2 % 2:
            sips.reverse()
        return tuple(each for each in (Owner(PE, pe, long_arm_ahead), *mesh, *sips) if grid.axes[each.axis].size > 1)

    def program(self, member: int, lane: int, n_elem: int, itemsize: int) -> Program:
        """Return the program of a member's worker."""
        task, schedule = self.task(n_elem, itemsize, 0 if self.rows is Rows.OF_CUBES else lane)
        worker = lane if self.rows is Rows.OF_CUBES else 0
        if worker >= task.workers:
            return Program([])
        tile, sends = max(self.slot_bytes // itemsize, 1), AHEAD.within(self.n_slots).sends
        instructions = worker_program(task, schedule, member, worker, task.workers, Shards(0, 0), tile, sends)
        return Program(instructions, AHEAD)

    def combined(self, rows: Array, lane: int) -> Array:
        """Return the result row, equal on all members. ``rows``: shape (members, elements of a lane or of all)."""
        task, schedule = self.task(rows.shape[-1], rows.itemsize, lane)
        row = schedule_results(schedule, self.grid.wiring, task, "sum", list(rows))[0]
        assert row is not None
        return row


@lru_cache
def _schedule(trees: Trees, n_elem: int, itemsize: int, lane: int) -> Schedule:
    """Return the flows of a row, one per unit. The units of a lane begin one after the other."""
    grid, sharing = trees.grid, trees.lanes if trees.rows is Rows.OF_CUBES else 1
    n_owners = sharing * (grid.pes * grid.cube_w * grid.cube_h if trees.rotates else 1)
    lengths = unit_lengths(n_elem, itemsize, trees.slot_bytes, max(n_owners, grid.sip_owners))
    axes, found = grid.axes, []
    for number, length in enumerate(lengths):
        index, worker = divmod(number, sharing)
        owners = trees.owners_of(lane + worker, index)
        found.append(Flow(length, 1, partial(steps_of, axes, owners, index), ahead=AHEAD))
    return found


LEAST_BYTES = 1024
"""Bytes of a message whose time on a link is about the time of its commands on PE_CPU."""


def unit_lengths(n_elem: int, itemsize: int, slot_bytes: int, owners: int) -> list[int]:
    """Return the lengths in elements of a row's units, which differ by at most 1. A unit is at most a slot, and at
    least ``LEAST_BYTES`` unless the row is shorter. In long rows every owner has the same number of units.

    Raises:
        ValueError: a slot is smaller than an element.
    """
    per_slot = slot_bytes // itemsize
    if per_slot < 1:
        raise ValueError(f"a slot of {slot_bytes} B holds no element of {itemsize} B; raise slot_size")
    count = max(-(-n_elem // per_slot), min(owners, n_elem * itemsize // LEAST_BYTES), 1)
    whole = -(-count // owners) * owners
    if owners < count and whole <= n_elem:
        count = whole
    each, longer = divmod(n_elem, count)
    return [each + (index < longer) for index in range(count)]


class TreeHooks(NamedTuple):
    """Hooks for algorithm modules whose schedules are :class:`Trees` (ADR-0023 D11, ADR-0032 D7).

    A module makes an instance and exports its methods under their names, and :func:`kernel`.
    """

    rows: Rows
    rotates: bool

    def kernel_args(self, world_size: int, n_elem: int, system: "AhbmSystem") -> tuple[Trees, int]:
        """Return the trees and the elements per cube.

        Raises:
            ConfigError: ``latch`` leaves messages in their slots until they are used, which could deadlock.
            ValueError: from :func:`sips_wrap`.
        """
        name = system.resolved.ccl.defaults.algorithm
        knobs = effective_ipcq(system.resolved, name)
        if knobs.latch == IN_PLACE:
            raise ConfigError(f"algorithm {name} posts receives early and could deadlock; set latch to copy or null")
        grid, lanes = self.members(system)
        root = root_of(system, name, n_elem)
        return Trees(grid, self.rows, self.rotates, lanes, root, knobs.slot_size, knobs.n_slots), n_elem

    def members(self, system: "AhbmSystem") -> tuple[Grid, int]:
        """Return the grid of members, and the number of workers per member."""
        count = system.n_pes if _rank_per(system) == "pe" else 1
        pes = count if self.rows is Rows.OF_PES else 1
        return Grid(pes, *system.cube_mesh, *system.shape, sips_wrap(system)), count // pes

    def neighbors(self, rank: int, world_size: int, neighbor_map: NeighbourMap, system: "AhbmSystem") -> NeighbourMap:
        """Return the neighbours of a worker: the same PE of neighbouring cubes, and of the same cube on neighbouring
        SIPs; if each PE has a row, also PEs of the same cube. Ranks: (sip * n_cubes + cube) * workers + pe.

        Raises:
            ValueError: not all cubes take part, or the SIPs form no line or ring (:func:`sips_wrap`).
        """
        grid, lanes = self.members(system)
        if _rank_per(system) == "sip" or world_size != grid.size * lanes:
            raise ValueError("every cube takes part; leave world_size null, and set rank_per to null, cube or pe")
        member, lane = divmod(rank, lanes)
        return {name: other * lanes + lane for name, (other, _) in grid.neighbours(member).items()}

    def reference(self, tensors: list[Array], system: "AhbmSystem") -> list[Array]:
        """Return each rank's result row, equal for all cubes, from the (cubes, elements) inputs of all ranks, with the
        kernel's order of additions.
        """
        data = np.stack([np.reshape(each, (system.n_cubes, -1)) for each in tensors])
        trees, _ = self.kernel_args(len(tensors), data.shape[-1], system)
        pieces = np.split(data, trees.lanes if self.rows is Rows.IN_PIECES else 1, axis=-1)
        rows = [trees.combined(piece.reshape(trees.grid.size, -1), lane) for lane, piece in enumerate(pieces)]
        return [np.tile(np.concatenate(rows), trees.grid.pes)] * len(tensors)


def kernel(
    t_ptr: Pointer,
    trees: Trees,
    n_elem: int,
    sip_rank: int,
    sip_topo_kind: int,
    sip_topo_w: int,
    sip_topo_h: int,
    tl: "TL",
) -> None:
    """Combine the rows at ``t_ptr``, ``n_elem`` elements per cube, in place."""
    pe, cube, sip = (tl.program_id(axis) for axis in range(3))
    grid, index, length = trees.grid, cube, n_elem
    if trees.rows is not Rows.OF_CUBES:
        count = grid.pes * trees.lanes
        index, length = cube * count + pe, n_elem // count
    itemsize = t_ptr.dtype.itemsize
    inside, lane = (pe, 0) if grid.pes > 1 else (0, pe if trees.lanes > 1 else 0)
    member = (sip * grid.cube_w * grid.cube_h + cube) * grid.pes + inside
    program = trees.program(member, lane, length, itemsize)
    data = t_ptr + index * length * itemsize
    run_program(data, data, "sum", grid.size, {(cube, pe): program}, tl)


def _rank_per(system: "AhbmSystem") -> str:
    return effective_rank_per(system.resolved, system.resolved.ccl.defaults.algorithm)


def sips_wrap(system: "AhbmSystem") -> bool:
    """Return True if the SIPs form rings, False if they form lines.

    Raises:
        ValueError: the links of a ``custom`` topology form neither a line nor a ring of all SIPs in order.
    """
    if system.topology != "custom":
        return system.topology != "mesh_2d_no_wrap"
    n = system.n_sips
    eastwards = [(far.sip, far.port) if (far := system.far_ends.get((sip, "E"))) else None for sip in range(n)]
    line = [(sip + 1, "W") for sip in range(n - 1)]
    if n > 1 and eastwards == [*line, (0, "W")]:
        return True
    if eastwards[:-1] == line:
        return False
    raise ValueError("custom links must join port E of each SIP with port W of the next SIP, in a line or a ring")


ELEMENT_BYTES = DTYPES[DEFAULT_DTYPE].itemsize
"""Assumed bytes per element: an algorithm's arguments do not include the type (ADR-0032 D7)."""


def root_of(system: "AhbmSystem", algorithm: str, n_elem: int) -> int:
    """Return the root cube for rows of ``n_elem`` elements: the configured cube, else the last of the fastest cubes."""
    configured = system.resolved.ccl.algorithms[algorithm].root_cube
    if isinstance(configured, int):
        return configured
    return min(reversed(range(system.n_cubes)), key=lambda cube: estimate_ps(system, cube, n_elem * ELEMENT_BYTES))


def estimate_ps(system: "AhbmSystem", root: int, nbytes: int) -> int:
    """Estimate the time with root cube ``root``, without PE_CPU and PE_MATH: longest paths and the busiest PE's port.

    Paths, in both directions: rows along x, the root's column, and half the SIPs of each axis (all but one on a mesh).
    """
    (width, height), (sip_w, sip_h) = system.cube_mesh, system.shape
    x, y = root % width, root // width
    longest = 2 * (max(_along_x_ps(system, root, end) for end in (0, width - 1)))
    longest += 2 * max(_route_ps(system, root, end * width + x) for end in (0, height - 1))
    for size, ports in ((sip_w, "EW"), (sip_h, "NS")):
        hops = size - 1 if system.topology == "mesh_2d_no_wrap" else size // 2
        longest += 2 * hops * sum(_to_port_ps(system, root, port) for port in ports)
    return longest + system.graph.route(_pe(root), _hbm(root)).drain_ps(_rows_in(system, x, y) * nbytes)


def _along_x_ps(system: "AhbmSystem", root: int, end: int) -> int:
    width = system.cube_mesh[0]
    return _route_ps(system, root, root // width * width + end)


def _route_ps(system: "AhbmSystem", a: int, b: int) -> int:
    return system.graph.route(_pe(a), _pe(b)).head_ps() if a != b else 0


def _to_port_ps(system: "AhbmSystem", root: int, port: str) -> int:
    return system.graph.route(_pe(root), port_node(port)).head_ps()


def _rows_in(system: "AhbmSystem", x: int, y: int) -> int:
    """Return how many rows enter the busiest PE: its own, one per arm, and the result or those of other SIPs."""
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
