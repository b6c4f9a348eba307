"""What blocks in the hardware of chips when nothing can happen any more, from the dumps of all SIPs. Pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from sipsim.insight.hangs.facts import BlockedFacts
from sipsim.insight.hangs.fold import MOST_LINES, shortened
from sipsim.records.dump import BlockedResource, SipDump

Node = TypeVar("Node")


def find_cycle(edges: Iterable[tuple[Node, Node]]) -> list[Node]:
    """Nodes that wait for each other in a cycle, of edges ``(who waits, for whom)``; empty when there is none.

    It is the same for waits on queues and for what blocks in the hardware.

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


class BlockedChannels(NamedTuple):
    """``reason``: a line. ``cycle``: names, from the first on, each waiting for the next and the last for the first.
    ``channels``: all that is blocked, in the order of the cycle; without one those first that the others wait for.
    """

    reason: str
    cycle: list[str]
    channels: list[BlockedResource]

    @property
    def lines(self) -> list[str]:
        """Every channel and what it waits for, a line each."""
        return [f"  {_wait_text(each)}" for each in self.channels]

    @property
    def short_lines(self) -> list[str]:
        """The same for a terminal."""
        lines = self.lines
        if len(lines) > MOST_LINES:
            lines[MOST_LINES - 1 :] = [f"  {len(lines) - MOST_LINES + 1} more channels wait"]
        return lines

    @property
    def facts(self) -> list[BlockedFacts]:
        """The channels as plain values."""
        return [{"name": each.name, "waits_for": each.waits_for, "text": each.text} for each in self.channels]


def explain_blocked(dumps: Iterable[SipDump]) -> BlockedChannels | None:
    """What is blocked, of all SIPs; None where nothing is.

    Either channels wait for each other in a cycle, or all of them wait behind some whose peer waits for no channel.
    """
    resources = [each for dump in sorted(dumps, key=lambda dump: dump.rank) for each in dump.blocked]
    if not resources:
        return None
    cycle = find_cycle((each.name, each.waits_for) for each in resources)
    if not cycle:
        ordered = _ends_first(resources)
        return BlockedChannels(_end_text(ordered), [], ordered)
    place_of = {name: place for place, name in enumerate(cycle)}
    ordered = sorted(resources, key=lambda each: place_of.get(each.name, len(cycle)))
    return BlockedChannels(_cycle_text(cycle), cycle, ordered)


def _ends_first(resources: Sequence[BlockedResource]) -> list[BlockedResource]:
    """Those that wait for what is not blocked, then those that wait for these, and so on."""
    left = {each.name for each in resources}
    ordered: list[BlockedResource] = []
    while left:
        # Without a cycle there are some: else all would wait for each other.
        ends = {each.name for each in resources if each.name in left and each.waits_for not in left}
        ordered += [each for each in resources if each.name in ends]
        left -= ends
    return ordered


def _cycle_text(cycle: Sequence[str]) -> str:
    what = "a cycle of 1 channel" if len(cycle) == 1 else f"a cycle of {len(cycle)} channels"
    return f"{what}: {shortened([*cycle, cycle[0]])}"


def _end_text(ordered: Sequence[BlockedResource]) -> str:
    rest = len({each.name for each in ordered}) - 1
    more = f"; {rest} more {'channel is' if rest == 1 else 'channels are'} blocked" if rest else ""
    return f"{_wait_text(ordered[0])}, and that waits for no channel{more}"


def _wait_text(resource: BlockedResource) -> str:
    text = f" ({resource.text})" if resource.text else ""
    return f"{resource.name}{text} waits for {resource.waits_for}"
