"""How many elements a schedule sends over each link between SIPs, counted message by message. Pure."""

from collections import Counter
from collections.abc import Iterator

from sipsim.ccl.collectives.group import Task
from sipsim.ccl.group import Group
from sipsim.ccl.schedule.blocks import Part, block_of
from sipsim.ccl.schedule.program import work_of
from sipsim.ccl.schedule.steps import End, Flow, Schedule, Wiring, number_of

Port = tuple[int, str]
"""A SIP, and the port by which a link leaves it."""


def link_elements(task: Task, schedule: Schedule, wiring: Wiring) -> Counter[Port]:
    """Elements by the port that they leave a SIP by, those that only pass through a SIP too."""
    sent: Counter[End] = Counter()
    for worker in range(task.workers):
        for flow, parts in work_of(task, schedule, worker, task.workers):
            for part in parts:
                sent.update(_sent_elements(task, flow, part))
    found = Counter[Port]()
    for (rank, direction), elements in sent.items():
        for port in route(task.group, rank, wiring[rank, direction][0], direction):
            found[port] += elements
    return found


def _sent_elements(task: Task, flow: Flow, part: Part) -> Counter[End]:
    collective, sent = task.collective, Counter[End]()
    for rank in range(task.size):
        for step in flow.steps_of(rank):
            for sends in step.sends:
                number = number_of(sends)
                block = block_of(collective.cut, collective.gathers, task.n_elem, task.size, part, flow.pieces, number)
                sent[rank, step.send] += block.length
    return sent


def route(group: Group, src: int, dst: int, direction: str) -> Iterator[Port]:
    """The ports by which a message between two ranks leaves a SIP: that of its direction, then the routed ones."""
    sip, goal, system = group.sips[src], group.sips[dst], group.system
    port = system.port_towards(sip, goal, direction)
    while sip != goal:
        yield sip, port
        sip = system.far_ends[sip, port].sip
        if sip != goal:
            port = system.next_port(sip, goal)
