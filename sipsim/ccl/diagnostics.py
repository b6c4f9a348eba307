"""The queue state of a SIP: a dump for the deadlock report, and the same as text (ADR-0023 D14)."""

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from sipsim.engine import Engine
from sipsim.ipcq.messages import Waiting
from sipsim.ipcq.pe_ipcq import PeIpcq
from sipsim.ipcq.queue_pair import QueuePair
from sipsim.record.dump import Place, QueueState, SipDump, TaskState
from sipsim.task import Task
from sipsim.units import format_time_ps


class PeView(Protocol):
    """A PE: its PE_IPCQ, and the kernel that runs on it."""

    ipcq: PeIpcq
    task: Task | None


class SipView(Protocol):
    """What a dump reads of a SIP."""

    sip: int
    engine: Engine
    tasks: list[Task]

    def pes_in_use(self) -> Sequence[PeView]: ...


def dump(sip: SipView) -> bytes:
    """A SIP's state for the deadlock report."""
    by_task = {id(pe.task): pe.ipcq.place for pe in sip.pes_in_use() if pe.task is not None}
    tasks = []
    for task in sip.tasks:
        if not (task.ended or task.is_server):
            reason = task.waits_for
            place = by_task.get(id(task), (sip.sip, -1, -1))
            if isinstance(reason, Waiting):
                tasks.append(TaskState(place, task.name, str(reason), reason.op, reason.directions))
            else:
                tasks.append(TaskState(place, task.name, str(reason), "", ()))
    return msgspec.json.encode(SipDump(sip.sip, sip.engine.now_ps, tuple(queue_states(sip)), tuple(tasks)))


def pointer_dump(sip: SipView) -> str:
    """Every queue pair of a SIP as text: its four pointers, and the address range of its receive ring."""
    lines = [f"rank {sip.sip} at {format_time_ps(sip.engine.now_ps)}"]
    for queue in queue_states(sip):
        _, cube, pe = queue.place
        stop = queue.rx_base_pa + queue.rx_bytes
        lines.append(f"  cube {cube} PE {pe} {queue.direction}: {pointers(queue)}")
        lines.append(f"    receives in {queue.rx_base_pa:#x} to {stop:#x}, peer {place_name(queue.peer)}")
    return "\n".join(lines)


def queue_states(sip: SipView) -> Iterable[QueueState]:
    """The queue pairs of all PEs in use, in order of cube and PE."""
    for pe in sip.pes_in_use():
        for queue in pe.ipcq.queues.values():
            yield _queue_state(pe.ipcq.place, queue)


def place_name(place: Place) -> str:
    """A PE as text."""
    return f"rank {place[0]} cube {place[1]} PE {place[2]}"


def pointers(queue: QueueState) -> str:
    """The four pointers by their names in ADR-0023 D2."""
    return (
        f"my_head={queue.my_head} my_tail={queue.my_tail} "
        f"peer_head_cache={queue.peer_head_cache} peer_tail_cache={queue.peer_tail_cache}"
    )


def _queue_state(place: Place, queue: QueuePair) -> QueueState:
    return QueueState(
        place,
        queue.direction,
        queue.peer.place,
        queue.my_head,
        queue.my_tail,
        queue.peer_head_cache,
        queue.peer_tail_cache,
        queue.my_rx_base_pa,
        queue.n_slots * queue.slot_size,
        queue.peer.rx_base_pa if queue.can_send else 0,
        queue.n_slots,
    )
