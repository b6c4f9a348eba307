"""Flows over the rows and columns of a grid, and one along a closed path in its direction, for the collectives.

Over a grid: reduce-scatter, all-gather, all-reduce, broadcast and reduction. Along a closed path: every collective.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from math import lcm

from sipsim.collectives.patterns import lines
from sipsim.collectives.patterns.lines import (
    Blocks,
    Path,
    line_all_gather,
    line_reduce_scatter,
    ring_all_gather,
    ring_reduce_scatter,
)
from sipsim.collectives.patterns.trees import Edge, Tree, path_edges
from sipsim.collectives.schedule import VECTOR, Flow, Sends, Wiring, flow_of, joined, pieces_of, staggered
from sipsim.collectives.semantics import Task

Axis = list[Path]
"""The rows of a grid, or its columns: one path for each."""


def reversed_axis(axis: Axis) -> Axis:
    """Each path from its other end."""
    return [path.reversed for path in axis]


def grid_flow(task: Task, axes: Sequence[Axis], weight: int, wiring: Wiring) -> Flow:
    """A reduce-scatter along the axes in their order, an all-gather in the reverse order, or both for an all-reduce."""
    phases = []
    if task.collective.combines:
        phases += [(index, True) for index in range(len(axes))]
    if task.collective.name != "reduce_scatter":
        phases += [(index, False) for index in reversed(range(len(axes)))]
    sends: list[Sends] = []
    first = 0
    for index, combines in phases:
        sends.append(_along(axes[index], axes[index + 1 :], combines, first))
        first += rounds_of(axes[index][0])
    pieces, closed = task.size if task.collective.cut == VECTOR else 1, all(axis[0].closed for axis in axes)
    return flow_of(weight, pieces, joined(*sends), wiring, closed)


def rounds_of(path: Path) -> int:
    """Of a reduce-scatter or of an all-gather along a path."""
    return (len(path.ranks) - 1) * (1 if path.closed else 2)


def _blocks(path: Path, later: Sequence[Axis]) -> list[Blocks]:
    """What the ranks of a path get of a reduce-scatter: the blocks of all ranks that they share a later path with."""
    owned = []
    for rank in path.ranks:
        own: Blocks = (rank,)
        for axis in later:
            own = next(other.ranks for other in axis if rank in other.ranks)
        owned.append(tuple(sorted(own)))
    return owned


def _along(axis: Axis, later: Sequence[Axis], combines: bool, first: int) -> Sends:
    """A reduce-scatter or an all-gather along all paths of an axis."""
    places = {rank: place for place, path in enumerate(axis) for rank in path.ranks}

    @cache
    def along(place: int) -> Sends:
        path = axis[place]
        if path.closed:
            return (ring_reduce_scatter if combines else ring_all_gather)(path, _blocks(path, later), first)
        return (line_reduce_scatter if combines else line_all_gather)(path, _blocks(path, later), first)

    return lambda rank: along(places[rank])(rank)


def link_share(task: Task, axis: Axis) -> Fraction:
    """Of all elements that an axis is to move, the share over its busiest link.

    On a ring, with both directions in use, ``(n - 1) / n / 2`` for a reduce-scatter and as much for an all-gather. On a
    line a link towards an end has ``(n - 1) / n`` in one of them and ``1 / n`` in the other.
    """
    size = len(axis[0].ranks)
    if task.collective.name == "all_reduce":
        return Fraction(size - 1, size) if axis[0].closed else Fraction(1)
    return Fraction(size - 1, size) / (2 if axis[0].closed else 1)


def balanced_weights(task: Task, x: Axis, y: Axis) -> tuple[int, int]:
    """Weights of the flows that begin with ``x`` and with ``y`` such that the links of both axes carry the same.

    Of the elements of a flow that begins with ``x`` its links carry the share ``f_x``, and those of ``y`` the share
    ``f_y`` of what is left, ``1 / W``; so ``a f_x + b f_x / H = b f_y + a f_y / W``.
    """
    share_x, share_y = link_share(task, x), link_share(task, y)
    a, b = share_y - share_x / len(y[0].ranks), share_x - share_y / len(x[0].ranks)
    whole = lcm(a.denominator, b.denominator)
    return int(a * whole), int(b * whole)


def disjoint_trees(axes: Sequence[Axis], root: int) -> list[Tree]:
    """Trees from one root over the links of a grid, no two of which use a link in the same direction.

    Two if an axis is open: along the root's row both ways, from there along all other columns both ways, and into the
    root's column from the column beside it; and the same with rows and columns exchanged. The first uses links along
    columns outwards, and links along rows in the root's row outwards, in others inwards; the second the opposite. Four
    if both are closed, one for each way along each axis: the first goes along its axis ahead from the root, without the
    last link that would close the path, then across ahead in the same way, and into the root's column by the links that
    close the other rows. With one axis: both ways round, or the path.
    """
    closed = all(axis[0].closed for axis in axes)
    ways = [axes, axes[::-1]] if len(axes) > 1 else [axes]
    if closed:
        ways += [[reversed_axis(axis) for axis in way] for way in ways]
    return [Tree(root, (_closed_edges if closed else _open_edges)(way, root)) for way in ways]


def _path_of(axis: Axis, rank: int) -> Path:
    return next(path for path in axis if rank in path.ranks)


def _closed_edges(axes: Sequence[Axis], root: int) -> list[Edge]:
    main = _path_of(axes[0], root).starting_at(root)
    edges = path_edges(main)
    for axis in axes[1:]:
        for rank in main.ranks[1:]:
            edges += path_edges(_path_of(axis, rank).starting_at(rank))
        for rank in _path_of(axis, root).ranks:
            if rank != root:
                beside = _path_of(axes[0], rank).starting_at(rank)
                edges.append(((beside.ranks[-1], beside.ahead), (rank, beside.back)))
    return edges


def _open_edges(axes: Sequence[Axis], root: int) -> list[Edge]:
    main = _path_of(axes[0], root)
    edges = path_edges(main)
    for axis in axes[1:]:
        for rank in main.ranks:
            if rank != root:
                edges += path_edges(_path_of(axis, rank))
        for rank in _path_of(axis, root).ranks:
            if rank != root:
                beside = path_edges(_path_of(axes[0], rank))
                edges.append(next(edge for edge in reversed(beside) if rank in (edge[0][0], edge[1][0])))
    return edges


def ring_flow(task: Task, ring: Path, wiring: Wiring) -> Flow:
    """Of weight 1."""
    if task.collective.cut == VECTOR and task.collective.has_root:
        return _chain(task, ring, wiring)
    pieces = task.size if task.collective.cut == VECTOR else 1
    return flow_of(1, pieces, _transfers(task, ring), wiring, not task.collective.has_root)


def busiest_ring_link(task: Task) -> Fraction:
    """Elements over the busiest link of a flow that has all of them."""
    size, n_elem, name = task.size, task.n_elem, task.collective.name
    if size == 1:
        return Fraction(0)
    if name in ("broadcast", "reduce"):
        return Fraction(n_elem)
    if name == "all_reduce":
        return Fraction(2 * (size - 1) * n_elem, size)
    return Fraction(size * (size - 1) * n_elem, 2) if name == "all_to_all" else Fraction((size - 1) * n_elem)


def _chain(task: Task, ring: Path, wiring: Wiring) -> Flow:
    """A broadcast from the root or a reduction to it, in pieces."""
    if task.collective.combines:
        transfers = lines.reduce(_ending_at(ring, task.root), (0,))
    else:
        transfers = lines.broadcast(ring.starting_at(task.root), (0,))
    copies = pieces_of(task.n_elem * task.itemsize, task.size - 1, workers=task.workers)
    return staggered(flow_of(1, 1, transfers, wiring), copies, 1)


def _transfers(task: Task, ring: Path) -> Sends:
    name, blocks = task.collective.name, [(rank,) for rank in ring.ranks]
    if name == "gather":
        path = _ending_at(ring, task.root)
        return lines.gather(path, [(rank,) for rank in path.ranks])
    if name == "scatter":
        path = ring.starting_at(task.root)
        return lines.scatter(path, [(rank,) for rank in path.ranks])
    if name == "all_to_all":
        return lines.ring_all_to_all(ring)
    phases = [lines.ring_reduce_scatter(ring, blocks)] if task.collective.combines else []
    if name != "reduce_scatter":
        phases.append(lines.ring_all_gather(ring, blocks, task.size - 1 if phases else 0))
    return joined(*phases)


def _ending_at(ring: Path, root: int) -> Path:
    return ring.reversed.starting_at(root).reversed
