"""The trees of ``intercube``: schedules on a group whose members are the cubes of all SIPs, or all their PEs.

A member has a place on every :class:`Axis`: the PEs of a cube where each has a row of its own, the columns and the rows
of the cube mesh, and one or two of the SIP topology. Its number counts the places, those of the first axis fastest.

A row is cut into **units**, each a flow of its own, with an owner on each axis. Along the first axis every member sends
its partial result towards the owner, where two arms meet; along the next axis only the owners of the first one go on;
and so on. The owner on all axes then holds the result, which goes back the same way. Owners change from unit to unit,
so that all links carry the same.

A tree counts **hops**: what is sent in one hop is used in the next one. An axis takes as many hops as its longest
possible arm, and partial results reach the owner in the last of them, whoever it is. A hop takes ``STRIDE``
**moments**; a moment has two **rounds** of the schedule, one for each way.

**Order of additions** on each axis: from the end of each arm inwards, each member ``own + received``; the owner
``(own + arm behind) + arm ahead``. One member computes each result, so all ranks agree.
"""

from collections.abc import Iterator
from enum import Enum
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from sipsim.chips.ahbm.address import LEAD_PE
from sipsim.chips.ahbm.collectives.kernel import kernel as carry_out
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
"""The numbers of the axes."""
AHEAD = Ahead(sends=3, receives=16, loads=8)
"""Further ahead than other schedules, since many units are under way at the same time, each in another phase: rows of
256 KiB a PE of 4 SIPs of 2x2 cubes take 5.4 us, and 5.9 us with the defaults of :class:`Ahead`. Loads fill half of the
places in PE_DMA's queue, so that stores find free ones."""
STRIDE = 2
"""Moments of a hop; units begin one moment after the other. With a stride of 1, a member that is a hop nearer to the
next unit's owner would send for both units in one moment: on 4x4 cubes the busiest member would send 5.2 messages in a
moment. With 2 it sends 4; the mean is 1.9."""


class Axis(NamedTuple):
    """An axis: ``size`` members in a line or, with ``wraps``, in a ring. ``ahead``, ``back``: directions along it."""

    size: int
    wraps: bool
    ahead: str
    back: str

    @property
    def span(self) -> int:
        """Hops of a reduction along the axis: those of the longest arm of any owner."""
        return self.size // 2 if self.wraps else self.size - 1

    def step(self, moment: int, is_ahead: bool, combine: int | None = None) -> Step:
        """The step of a moment with a message that moves ahead or back. ``combine``: how a received message is
        combined; None for a message that is sent.

        A moment has two rounds, one for each way, so that a member sends and receives once in a round.
        """
        to, source = (self.ahead, self.back) if is_ahead else (self.back, self.ahead)
        number = 2 * moment + (not is_ahead)
        return Step(number, to, (0,)) if combine is None else Step(number, recv=source, recvs=(0,), combine=combine)


class Leg(NamedTuple):
    """A unit's way along an axis: the owner's place, and which arm of a ring of even size is the longer one."""

    axis: int
    owner: int
    longer_ahead: bool

    def arms(self, axis: Axis) -> tuple[int, int]:
        """Members behind and ahead of the owner."""
        if not axis.wraps:
            return self.owner, axis.size - 1 - self.owner
        behind = (axis.size - self.longer_ahead) // 2
        return behind, axis.size - 1 - behind

    def offset(self, axis: Axis, place: int) -> int:
        """Hops from the owner to a place, negative behind it."""
        if not axis.wraps:
            return place - self.owner
        behind, _ = self.arms(axis)
        return (place - self.owner + behind) % axis.size - behind


Moves = Iterator[tuple[int, bool, int | None]]
"""Hop, whether the message moves ahead, and how it is combined, as for :meth:`Axis.step`."""


def _inwards(axis: Axis, leg: Leg, place: int) -> Moves:
    """The reduction: the member at distance ``d`` from the owner sends ``d`` hops before the axis' end."""
    (behind, ahead), offset = leg.arms(axis), leg.offset(axis, place)
    sent = axis.span - abs(offset)
    if -behind < offset <= 0:
        yield sent - 1, True, OWN_FIRST
    if 0 <= offset < ahead:
        yield sent - 1, False, OWN_FIRST
    if offset:
        yield sent, offset < 0, None


def _outwards(axis: Axis, leg: Leg, place: int) -> Moves:
    """The broadcast: the member at distance ``d`` from the owner sends in the axis' hop ``d``."""
    (behind, ahead), offset = leg.arms(axis), leg.offset(axis, place)
    sent = abs(offset)
    if offset:
        yield sent - 1, offset > 0, REPLACE
    if 0 <= offset < ahead:
        yield sent, True, None
    if -behind < offset <= 0:
        yield sent, False, None


def places_of(axes: tuple[Axis, ...], member: int) -> list[int]:
    """A member's places on the axes."""
    found = []
    for axis in axes:
        member, place = divmod(member, axis.size)
        found.append(place)
    return found


def steps_of(axes: tuple[Axis, ...], legs: tuple[Leg, ...], first: int, member: int) -> list[Step]:
    """The steps of a member for a unit with these legs. ``first``: the unit's first moment."""
    places = places_of(axes, member)
    on_legs = [(axes[leg.axis], leg, places[leg.axis]) for leg in legs]
    reached = next((number for number, leg in enumerate(legs) if places[leg.axis] != leg.owner), len(legs))
    found, start = [], 0
    # A member takes part along the axes on which it is the owner, and along the next one, inwards and outwards.
    for number, (axis, leg, place) in enumerate(on_legs):
        if number <= reached:
            found += [(axis, start, move) for move in _inwards(axis, leg, place)]
        start += axis.span
    for number, (axis, leg, place) in reversed([*enumerate(on_legs)]):
        if number <= reached:
            found += [(axis, start, move) for move in _outwards(axis, leg, place)]
        start += axis.span
    return sorted(
        axis.step(first + STRIDE * (start + at), is_ahead, combine) for axis, start, (at, is_ahead, combine) in found
    )


class Grid(NamedTuple):
    """The grid of all members: the sizes of its axes; ``pes`` is 1 where the PEs of a cube have no axis. ``wraps``:
    whether the axes of SIPs are rings.
    """

    pes: int
    cube_w: int
    cube_h: int
    sip_w: int
    sip_h: int
    wraps: bool

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes, those of size 1 too."""
        return (
            Axis(self.pes, self.pes > 2, "pe_next", "pe_last"),
            Axis(self.cube_w, False, "E", "W"),
            Axis(self.cube_h, False, "S", "N"),
            Axis(self.sip_w, self.wraps, "global_E", "global_W"),
            Axis(self.sip_h, self.wraps, "global_S", "global_N"),
        )

    @property
    def size(self) -> int:
        """The number of members, each with a row."""
        return self.pes * self.cube_w * self.cube_h * self.sip_w * self.sip_h

    def neighbours(self, member: int) -> dict[str, tuple[int, str]]:
        """The member to which each direction leads, and its direction back."""
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
        return {(one, way): far for one in range(self.size) for way, far in self.neighbours(one).items()}

    @property
    def sip_owners(self) -> int:
        """Units after which the exchange between SIPs has used all links alike: each owner, arm and order of axes."""
        orders = 2 if self.sip_w > 1 and self.sip_h > 1 else 1
        return self.sip_w * self.sip_h * (2 if self.wraps else 1) * orders


class Rows(Enum):
    """Where rows lie. ``OF_CUBES``: one a cube, whose units all workers share. ``IN_PIECES``: one a cube, a piece on
    each PE. ``OF_PES``: one a PE.
    """

    OF_CUBES = 0
    IN_PIECES = 1
    OF_PES = 2


class Trees(NamedTuple):
    """The trees of an algorithm on a system.

    ``lanes``: workers of a member, each with elements of its own. ``root``: the cube that owns all units; with
    ``rotates`` the first owner. A unit is one message, so it fills a slot at most.
    """

    grid: Grid
    rows: Rows
    rotates: bool
    lanes: int
    root: int
    slot_bytes: int
    n_slots: int

    def task(self, n_elem: int, itemsize: int, lane: int) -> tuple[Task, Schedule]:
        """The combination of ``n_elem`` elements of every member, and its schedule; of one lane alone, or of all where
        they share a row.
        """
        schedule = _schedule(self, n_elem, itemsize, lane)
        workers = min(self.lanes, len(schedule)) if self.rows is Rows.OF_CUBES else 1
        # A task uses only the size of its group here: the members' wiring is the grid's.
        return Task(COLLECTIVES.get("all_reduce"), cast(Group, self.grid), n_elem, itemsize, workers=workers), schedule

    def legs(self, lane: int, index: int) -> tuple[Leg, ...]:
        """The legs of a unit of a lane.

        With ``rotates`` the owner goes round all PEs of a cube and then all cubes, from the root on. Successive units
        have owners in different columns and rows, and half of the units reduce along columns first. From unit to unit
        the owner goes round all SIPs, then the longer arm changes, then, on a grid of SIPs, the order of the axes.
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
        longer_ahead = turn % 2 == 1
        mesh = [Leg(X, x, False), Leg(Y, y, False)]
        sips = [Leg(SIP_X, sip % grid.sip_w, longer_ahead), Leg(SIP_Y, sip // grid.sip_w, longer_ahead)]
        if columns_first:
            mesh.reverse()
        if turn // 2 % 2:
            sips.reverse()
        return tuple(leg for leg in (Leg(PE, pe, longer_ahead), *mesh, *sips) if grid.axes[leg.axis].size > 1)

    def program(self, member: int, lane: int, n_elem: int, itemsize: int) -> Program:
        """The program of a member's worker."""
        task, schedule = self.task(n_elem, itemsize, 0 if self.rows is Rows.OF_CUBES else lane)
        worker = lane if self.rows is Rows.OF_CUBES else 0
        if worker >= task.workers:
            return Program([])
        tile, sends = max(self.slot_bytes // itemsize, 1), AHEAD.within(self.n_slots).sends
        made = worker_program(task, schedule, member, worker, task.workers, Shards(0, 0), tile, sends)
        return Program(made, AHEAD)

    def combined(self, rows: Array, lane: int) -> Array:
        """The row with which all members end. ``rows``: shape (members, elements of a lane, or of all)."""
        task, schedule = self.task(rows.shape[-1], rows.itemsize, lane)
        row = schedule_results(schedule, self.grid.wiring, task, "sum", list(rows))[0]
        assert row is not None
        return row


@lru_cache
def _schedule(trees: Trees, n_elem: int, itemsize: int, lane: int) -> Schedule:
    """The flows of a row, one a unit. The units of each lane begin one after the other."""
    grid, sharing = trees.grid, trees.lanes if trees.rows is Rows.OF_CUBES else 1
    owners = sharing * (grid.pes * grid.cube_w * grid.cube_h if trees.rotates else 1)
    lengths = unit_lengths(n_elem, itemsize, trees.slot_bytes, max(owners, grid.sip_owners))
    axes, found = grid.axes, []
    for number, length in enumerate(lengths):
        index, own = divmod(number, sharing)
        legs = trees.legs(lane + own, index)
        found.append(Flow(length, 1, partial(steps_of, axes, legs, index), ahead=AHEAD))
    return found


LEAST_BYTES = 1024
"""A message of this many bytes takes about as long on a link as its commands take on PE_CPU."""


def unit_lengths(n_elem: int, itemsize: int, slot_bytes: int, owners: int) -> list[int]:
    """The lengths of the units of a row, which differ by one at most: no longer than a slot, no shorter than
    ``LEAST_BYTES`` unless the row is. Long rows have a whole number of units for each owner.

    Raises:
        ValueError: for slots that hold no element.
    """
    most = slot_bytes // itemsize
    if most < 1:
        raise ValueError(f"slots of {slot_bytes} B hold no element of {itemsize} B")
    count = max(-(-n_elem // most), min(owners, n_elem * itemsize // LEAST_BYTES), 1)
    whole = -(-count // owners) * owners
    if owners < count and whole <= n_elem:
        count = whole
    each, longer = divmod(n_elem, count)
    return [each + (index < longer) for index in range(count)]


class Form(NamedTuple):
    """The hooks of an algorithm module whose schedules are :class:`Trees` (ADR-0023 D11, ADR-0032 D7).

    A module makes a form of its own and exports the form's methods under their names, and :func:`kernel`.
    """

    rows: Rows
    rotates: bool

    def kernel_args(self, world_size: int, n_elem: int, system: "AhbmSystem") -> tuple[Trees, int]:
        """The trees, and elements a cube.

        Raises:
            ConfigError: when ``latch`` leaves messages in their slots until they are used, which could deadlock.
            ValueError: as :func:`sips_wrap`.
        """
        name = system.resolved.ccl.defaults.algorithm
        knobs = effective_ipcq(system.resolved, name)
        if knobs.latch == IN_PLACE:
            raise ConfigError(f"algorithm {name} posts its receives ahead; set latch to copy or null")
        grid, lanes = self.members(system)
        root = root_of(system, name, n_elem)
        return Trees(grid, self.rows, self.rotates, lanes, root, knobs.slot_size, knobs.n_slots), n_elem

    def members(self, system: "AhbmSystem") -> tuple[Grid, int]:
        """The members, and the workers of each."""
        count = system.n_pes if _rank_per(system) == "pe" else 1
        pes = count if self.rows is Rows.OF_PES else 1
        return Grid(pes, *system.cube_mesh, *system.shape, sips_wrap(system)), count // pes

    def neighbors(self, rank: int, world_size: int, neighbor_map: NeighbourMap, system: "AhbmSystem") -> NeighbourMap:
        """The neighbours of a worker: the same PE of neighbouring cubes, and of the same cube on neighbouring SIPs; PEs
        of its own cube too, where each PE has a row. Always rank = (sip * n_cubes + cube) * workers + pe.

        Raises:
            ValueError: when not all cubes take part, or the SIPs cannot be joined (:func:`sips_wrap`).
        """
        grid, lanes = self.members(system)
        if _rank_per(system) == "sip" or world_size != grid.size * lanes:
            raise ValueError("every cube takes part; leave world_size null, and rank_per null, cube or pe")
        member, lane = divmod(rank, lanes)
        return {way: other * lanes + lane for way, (other, _) in grid.neighbours(member).items()}

    def reference(self, tensors: list[Array], system: "AhbmSystem") -> list[Array]:
        """The result of a cube on each rank, the same row for all cubes, from the (cubes, elements) inputs of all
        ranks, with the kernel's order of additions.
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
    """Combine the rows at ``t_ptr``, ``n_elem`` elements a cube, in place."""
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
    carry_out(data, data, "sum", grid.size, {(cube, pe): program}, tl)


def _rank_per(system: "AhbmSystem") -> str:
    return effective_rank_per(system.resolved, system.resolved.ccl.defaults.algorithm)


def sips_wrap(system: "AhbmSystem") -> bool:
    """Whether the SIPs are in rings, and not in lines.

    Raises:
        ValueError: for links of ``custom`` that make no line and no ring of all SIPs in their order.
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
    raise ValueError("custom links must join port E of each SIP with port W of the next one, in a line or a ring")


ELEMENT_BYTES = DTYPES[DEFAULT_DTYPE].itemsize
"""The bytes that an element of a row is taken to have: an algorithm's arguments name no type (ADR-0032 D7)."""


def root_of(system: "AhbmSystem", algorithm: str, n_elem: int) -> int:
    """The root cube for rows of ``n_elem``: the configured one, else the fastest, the last one among equals."""
    configured = system.resolved.ccl.algorithms[algorithm].root_cube
    if isinstance(configured, int):
        return configured
    return min(reversed(range(system.n_cubes)), key=lambda cube: estimate_ps(system, cube, n_elem * ELEMENT_BYTES))


def estimate_ps(system: "AhbmSystem", root: int, nbytes: int) -> int:
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


def _along_x_ps(system: "AhbmSystem", root: int, end: int) -> int:
    width = system.cube_mesh[0]
    return _route_ps(system, root, root // width * width + end)


def _route_ps(system: "AhbmSystem", a: int, b: int) -> int:
    return system.graph.route(_pe(a), _pe(b)).head_ps() if a != b else 0


def _to_port_ps(system: "AhbmSystem", root: int, port: str) -> int:
    return system.graph.route(_pe(root), port_node(port)).head_ps()


def _rows_in(system: "AhbmSystem", x: int, y: int) -> int:
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
