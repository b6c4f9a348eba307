"""Flows over the rows and columns of a grid, and flows along a closed path in one direction.

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
"""One path per row of a grid, or one path per column."""


def reversed_axis(axis: Axis) -> Axis:
    """Return the axis with each path reversed."""
    return [path.reversed for path in axis]


def grid_flow(task: Task, axes: Sequence[Axis], weight: int, wiring: Wiring) -> Flow:
    """Return the flow of a reduce-scatter along the axes in order, an all-gather in reverse, or both (all-reduce)."""
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
    """Return the number of rounds of a reduce-scatter, or of an all-gather, along a path."""
    return (len(path.ranks) - 1) * (1 if path.closed else 2)


def _blocks(path: Path, later: Sequence[Axis]) -> list[Blocks]:
    """Return each rank's blocks after a reduce-scatter: those of all ranks on its path of the last ``later`` axis."""
    blocks = []
    for rank in path.ranks:
        ranks: Blocks = (rank,)
        for axis in later:
            ranks = next(other.ranks for other in axis if rank in other.ranks)
        blocks.append(tuple(sorted(ranks)))
    return blocks


def _along(axis: Axis, later: Sequence[Axis], combines: bool, first: int) -> Sends:
    """Return a reduce-scatter (``combines``) or an all-gather along all paths of an axis, from round ``first`` on."""
    places = {rank: place for place, path in enumerate(axis) for rank in path.ranks}

    @cache
    def along(place: int) -> Sends:
        path = axis[place]
        if path.closed:
            return (ring_reduce_scatter if combines else ring_all_gather)(path, _blocks(path, later), first)
        return (line_reduce_scatter if combines else line_all_gather)(path, _blocks(path, later), first)

    return lambda rank: along(places[rank])(rank)


def link_share(task: Task, axis: Axis) -> Fraction:
    """Return the load of an axis's busiest link as a share of all elements that the axis processes.

    On a ring of n ranks with both directions in use, each link carries ``(n - 1) / n / 2`` per phase (a reduce-scatter
    or an all-gather). On a line, a link to an end carries ``(n - 1) / n`` in one phase and ``1 / n`` in the other.
    """
    size = len(axis[0].ranks)
    if task.collective.name == "all_reduce":
        return Fraction(size - 1, size) if axis[0].closed else Fraction(1)
    return Fraction(size - 1, size) / (2 if axis[0].closed else 1)


def balanced_weights(task: Task, x: Axis, y: Axis) -> tuple[int, int]:
    """Return the weights ``a``, ``b`` of the flows that begin with ``x`` and ``y``, for equal loads on all links.

    In the flow that begins with ``x``, links of ``x`` carry the share ``f_x`` of all elements, and links of ``y`` the
    share ``f_y`` of the remaining ``1 / W`` (grid W x H). Equal loads: ``a f_x + b f_x / H = b f_y + a f_y / W``.
    """
    share_x, share_y = link_share(task, x), link_share(task, y)
    a, b = share_y - share_x / len(y[0].ranks), share_x - share_y / len(x[0].ranks)
    whole = lcm(a.denominator, b.denominator)
    return int(a * whole), int(b * whole)


def disjoint_trees(axes: Sequence[Axis], root: int) -> list[Tree]:
    """Return trees with one root over the links of a grid; no two trees use a link in the same direction.

    An open axis: two trees. The first covers the root's row outwards, then every other column outwards; row links
    reach the ranks of the root's column from a neighbour column. The first tree uses column links outwards, and row
    links outwards only in the root's row, inwards elsewhere. The second tree has rows and columns exchanged. With two
    closed axes: four trees, one per first axis and direction. Each tree follows the root's path of the first axis
    without the closing link, then the other axis from each of these ranks; closing links of the first axis reach the
    ranks on the root's path of the second axis. With one axis: the path, or both directions of the ring.
    """
    closed = all(axis[0].closed for axis in axes)
    orders = [axes, axes[::-1]] if len(axes) > 1 else [axes]
    if closed:
        orders += [[reversed_axis(axis) for axis in order] for order in orders]
    return [Tree(root, (_closed_edges if closed else _open_edges)(order, root)) for order in orders]


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
    """Return a flow of weight 1 that runs any collective along a closed path."""
    if task.collective.cut == VECTOR and task.collective.has_root:
        return _chain(task, ring, wiring)
    pieces = task.size if task.collective.cut == VECTOR else 1
    return flow_of(1, pieces, _transfers(task, ring), wiring, not task.collective.has_root)


def busiest_ring_link(task: Task) -> Fraction:
    """Return the number of elements that :func:`ring_flow` sends over its busiest link for all elements of a task."""
    size, n_elem, name = task.size, task.n_elem, task.collective.name
    if size == 1:
        return Fraction(0)
    if name in ("broadcast", "reduce"):
        return Fraction(n_elem)
    if name == "all_reduce":
        return Fraction(2 * (size - 1) * n_elem, size)
    return Fraction(size * (size - 1) * n_elem, 2) if name == "all_to_all" else Fraction((size - 1) * n_elem)


def _chain(task: Task, ring: Path, wiring: Wiring) -> Flow:
    """Return a broadcast from the root, or a reduction to the root, pipelined in pieces."""
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
