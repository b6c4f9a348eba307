"""How many elements a schedule sends over each link between SIPs, counted message by message."""

from collections import Counter

from sipsim.chips.ahbm.collectives.programs import work_of
from sipsim.collectives.group import Port, route
from sipsim.collectives.schedule import End, Flow, Schedule, Share, Wiring, block_of, number_of
from sipsim.collectives.semantics import Task


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


def _sent_elements(task: Task, flow: Flow, part: Share) -> Counter[End]:
    collective, sent = task.collective, Counter[End]()
    for rank in range(task.size):
        for step in flow.steps_of(rank):
            for sends in step.sends:
                number = number_of(sends)
                block = block_of(collective.cut, collective.gathers, task.n_elem, task.size, part, flow.pieces, number)
                sent[rank, step.send] += block.length
    return sent
