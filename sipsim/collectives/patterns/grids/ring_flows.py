"""One flow along a closed path, in its direction, for every collective."""

from fractions import Fraction

from sipsim.collectives.patterns.lines import paths
from sipsim.collectives.patterns.lines.paths import Path
from sipsim.collectives.schedule.blocks import VECTOR
from sipsim.collectives.schedule.pipeline import pieces_of, staggered
from sipsim.collectives.schedule.steps import Flow, Sends, Wiring, flow_of, joined
from sipsim.collectives.semantics.group import Task


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
        transfers = paths.reduce(_ending_at(ring, task.root), (0,))
    else:
        transfers = paths.broadcast(ring.starting_at(task.root), (0,))
    copies = pieces_of(task.n_elem * task.itemsize, task.size - 1, workers=task.workers)
    return staggered(flow_of(1, 1, transfers, wiring), copies, 1)


def _transfers(task: Task, ring: Path) -> Sends:
    name, blocks = task.collective.name, [(rank,) for rank in ring.ranks]
    if name == "gather":
        path = _ending_at(ring, task.root)
        return paths.gather(path, [(rank,) for rank in path.ranks])
    if name == "scatter":
        path = ring.starting_at(task.root)
        return paths.scatter(path, [(rank,) for rank in path.ranks])
    if name == "all_to_all":
        return paths.ring_all_to_all(ring)
    phases = [paths.ring_reduce_scatter(ring, blocks)] if task.collective.combines else []
    if name != "reduce_scatter":
        phases.append(paths.ring_all_gather(ring, blocks, task.size - 1 if phases else 0))
    return joined(*phases)


def _ending_at(ring: Path, root: int) -> Path:
    return ring.reversed.starting_at(root).reversed
