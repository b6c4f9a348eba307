"""The waits-for graph of a deadlock: PEs that wait on queues, and blocked channels in the hardware. Pure."""

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from broker.wire import BadFrame
from sipsim.records.dump import BlockedResource, Place, QueueState, SipDump, TaskState, place_name

Node = TypeVar("Node")


def find_cycle(edges: Iterable[tuple[Node, Node]]) -> list[Node]:
    """Return a cycle of nodes that wait for each other, from edges ``(waiter, target)``; empty without a cycle.

    Used for waits on queues and for waits in the hardware.

    A node with several edges waits for any of its targets, so it is blocked if all targets are. A node with a target
    without edges is not blocked. The search begins at the first node of ``edges`` that is blocked, and follows the
    first edge of each node. The cycle starts at its first node in the order of ``edges``.
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
    # All targets of each remaining node remain too, so every path ends in a cycle.
    path = [next(iter(targets))]
    index = {path[0]: 0}
    while (target := targets[path[-1]][0]) not in index:
        index[target] = len(path)
        path.append(target)
    cycle = path[index[target] :]
    first = cycle.index(min(cycle, key=place_of.__getitem__))
    return cycle[first:] + cycle[:first]


class Wait(NamedTuple):
    """A PE that waits on a queue. ``far``: the other end of the queue; None if no dump contains that end.

    ``unread``: rings of the PE with unread messages, in directions that its recv does not name.
    """

    task: TaskState
    local: QueueState
    far: QueueState | None
    unread: tuple[QueueState, ...]

    @property
    def place(self) -> Place:
        """The PE that waits."""
        return self.task.place


def waits_of(dumps: Iterable[SipDump]) -> list[Wait]:
    """Return all waits on queues, one for each direction that a PE waits in.

    Raises:
        BadFrame: for a wait on a queue that no dump contains.
    """
    queues = {(q.place, q.direction): q for d in dumps for q in d.queues}
    receivers = {(q.generation, q.rx_base_pa): q for q in queues.values()}
    senders = {(q.generation, q.tx_base_pa): q for q in queues.values() if q.tx_base_pa}
    unread: dict[Place, list[QueueState]] = {}
    for queue in queues.values():
        if queue.unread > 0:
            unread.setdefault(queue.place, []).append(queue)
    found = []
    for task in (task for dump in dumps for task in dump.tasks if task.op):
        others = unread.get(task.place, []) if task.op == "recv" else []
        elsewhere = tuple(queue for queue in others if queue.direction not in task.directions)
        for direction in task.directions:
            local = queues.get((task.place, direction))
            if local is None:
                what = f"{place_name(task.place)} waits in {direction}, a direction without a queue"
                raise BadFrame(f"not the dump of a SIP: {what}")
            number = local.generation
            far = receivers.get((number, local.tx_base_pa)) or senders.get((number, local.rx_base_pa))
            found.append(Wait(task, local, far, elsewhere))
    return found


def cycle_of(waits: Iterable[Wait]) -> list[Wait]:
    """Return a cycle of PEs that wait for each other, starting at the least place; empty without a cycle.

    A PE that waits for any of several directions is blocked only if the peers of all directions are blocked.
    """
    ordered = sorted(waits, key=lambda wait: wait.place)
    first = {wait.place: wait for wait in reversed(ordered)}
    return [first[place] for place in find_cycle((wait.place, wait.local.peer) for wait in ordered)]


class Channels(NamedTuple):
    """The blocked channels, in the order of the report.

    ``cycle``: names of channels, each waiting for the next and the last for the first; empty without a cycle.
    ``blocked``: all blocked channels, the cycle's first; without a cycle, first the channels that others wait for.
    """

    cycle: list[str]
    blocked: list[BlockedResource]


def channels_of(dumps: Iterable[SipDump]) -> Channels:
    """Return the blocked channels of all SIPs.

    Either some channels wait for each other in a cycle, or each chain of waits ends at a resource that is not blocked.
    """
    blocked = [each for dump in sorted(dumps, key=lambda dump: dump.rank) for each in dump.blocked]
    cycle = find_cycle((each.name, each.waits_for) for each in blocked)
    if cycle:
        place_of = {name: place for place, name in enumerate(cycle)}
        return Channels(cycle, sorted(blocked, key=lambda each: place_of.get(each.name, len(cycle))))
    remaining = {each.name for each in blocked}
    ordered: list[BlockedResource] = []
    while remaining:
        # At least one channel is found: otherwise all would wait for each other in a cycle.
        ends = {each.name for each in blocked if each.name in remaining and each.waits_for not in remaining}
        ordered += [each for each in blocked if each.name in ends]
        remaining -= ends
    return Channels([], ordered)
