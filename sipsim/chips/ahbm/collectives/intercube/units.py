"""Divides data into units and gives each its owners (:mod:`.tree`), so that all links carry the same.

A unit is a message, so it is no longer than a slot; and no shorter than ``LEAST_BYTES``, which take about as long on a
link as the commands of a message do on PE_CPU. Long data have a whole number of units for each owner.
"""

from itertools import accumulate

from sipsim.chips.ahbm.collectives.intercube.members import PE, SIP_X, SIP_Y, Grid, X, Y
from sipsim.chips.ahbm.collectives.intercube.schedule import Unit
from sipsim.chips.ahbm.collectives.intercube.tree import Leg

LEAST_BYTES = 1024
Piece = tuple[int, int]
"""First element and length."""


def pieces_of(n_elem: int, itemsize: int, slot_bytes: int, owners: int) -> list[Piece]:
    """Pieces whose lengths differ by one at most; their number is best a multiple of ``owners``.

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
    lengths = [each + (index < longer) for index in range(count)]
    return list(zip(accumulate(lengths, initial=0), lengths, strict=False))


def units_of(pieces: list[Piece], grid: Grid, lane: int, lanes: int, root: int, rotates: bool) -> list[Unit]:
    """The units of one lane, a round behind each other. Other lanes have others, of the same numbers.

    With ``rotates`` owners go round all PEs of the grid and all cubes from ``root`` on: neighbours in time, in other
    columns and rows, and half of them reduce along columns first. Else cube ``root`` owns all.
    """
    found = []
    root_x, root_y = root % grid.cube_w, root // grid.cube_w
    for index, (start, length) in enumerate(pieces):
        pe, x, y, columns_first = 0, root_x, root_y, False
        if rotates:
            cube, pe = divmod(index, grid.pes)
            shift, turn = lane + pe, cube // grid.cube_w
            x = (root_x + cube + shift) % grid.cube_w
            y = (root_y + cube + turn + shift + shift // grid.cube_w) % grid.cube_h
            columns_first = (shift + turn) % 2 == 1
        legs = _legs_to(grid, (pe, x, y), index * lanes + lane, columns_first)
        found.append(Unit(start, length, legs, index))
    return found


def _legs_to(grid: Grid, places: tuple[int, int, int], number: int, columns_first: bool) -> tuple[Leg, ...]:
    """The legs of a unit whose owner in a SIP is at ``places`` (PE, x, y).

    By its number, owners go round all SIPs, then both arms, then, on a grid of SIPs, both orders of the axes.
    """
    turn, sip = divmod(number, grid.sip_w * grid.sip_h)
    longer_ahead = turn % 2 == 1
    pe, x, y = places
    mesh = [Leg(X, x, False), Leg(Y, y, False)]
    sips = [Leg(SIP_X, sip % grid.sip_w, longer_ahead), Leg(SIP_Y, sip // grid.sip_w, longer_ahead)]
    if columns_first:
        mesh.reverse()
    if turn // 2 % 2:
        sips.reverse()
    axes = grid.axes
    return tuple(leg for leg in (Leg(PE, pe, longer_ahead), *mesh, *sips) if axes[leg.axis].size > 1)
