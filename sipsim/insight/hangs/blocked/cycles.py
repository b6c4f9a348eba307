"""A cycle in a graph of waits. Pure, and the same for waits on queues and for what blocks in the hardware."""

from collections.abc import Iterable
from typing import TypeVar

Node = TypeVar("Node")


def find_cycle(edges: Iterable[tuple[Node, Node]]) -> list[Node]:
    """Nodes that wait for each other in a cycle, of edges ``(who waits, for whom)``; empty when there is none.

    A node with several edges waits for any of them: it is blocked only if all that it waits for are. One that waits for
    a node without edges is not. The order of the edges decides: the walk begins at the first node that is blocked and
    follows first edges, and the cycle is told from that node of it on which comes first.
    """
    targets: dict[Node, list[Node]] = {}
    waiters: dict[Node, list[Node]] = {}
    for node, target in edges:
        targets.setdefault(node, []).append(target)
        waiters.setdefault(target, []).append(node)
    place_of = {node: place for place, node in enumerate(targets)}
    free = [node for node, its in targets.items() if any(target not in targets for target in its)]
    while free:
        node = free.pop()
        if targets.pop(node, None) is not None:
            free += waiters.get(node, [])
    if not targets:
        return []
    # Each node left waits for nodes that are left, so every path closes.
    path = [next(iter(targets))]
    index = {path[0]: 0}
    while (target := targets[path[-1]][0]) not in index:
        index[target] = len(path)
        path.append(target)
    cycle = path[index[target] :]
    first = cycle.index(min(cycle, key=place_of.__getitem__))
    return cycle[first:] + cycle[:first]
