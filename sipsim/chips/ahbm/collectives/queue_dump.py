"""The queue state of a SIP: a dump for the deadlock report, and a text dump (ADR-0023 D14)."""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from sipsim.chips.ahbm.ipcq.queue_pair import QueuePair
from sipsim.chips.ahbm.sip import Sip
from sipsim.core.units import format_time_ps
from sipsim.records.dump import Place, QueueState, SipDump, place_name


def dump(tasks: SipDump, sip: Sip) -> bytes:
    """Return a SIP's state for the deadlock report as JSON: the dump ``tasks``, with the SIP's queues added."""
    return msgspec.json.encode(replace(tasks, queues=tuple(queue_states(sip)), has_ipcq=True))


def pointer_dump(sip: Sip) -> str:
    """Return every queue pair of a SIP as text: its four pointers, and the address range of its receive ring."""
    lines = [f"rank {sip.sip} at {format_time_ps(sip.engine.now_ps)}"]
    for queue in queue_states(sip):
        _, cube, pe = queue.place
        stop = queue.rx_base_pa + queue.rx_bytes
        lines.append(f"  cube {cube} PE {pe} {queue.direction}: {pointers(queue)}")
        lines.append(f"    receives in {queue.rx_base_pa:#x} to {stop:#x}, peer {place_name(queue.peer)}")
    return "\n".join(lines)


def queue_states(sip: Sip) -> Iterable[QueueState]:
    """Yield the queue pairs of PEs in use by cube and PE: first pairs of the plan, then later pairs by name."""
    for pe in sip.pes_in_use():
        for queue in pe.ipcq.every.values():
            yield _queue_state(pe.ipcq.place, queue)


def pointers(queue: QueueState) -> str:
    """Return the four pointers of a queue pair as text, named as in ADR-0023 D2."""
    return (
        f"my_head={queue.my_head} my_tail={queue.my_tail} "
        f"peer_head_cache={queue.peer_head_cache} peer_tail_cache={queue.peer_tail_cache}"
    )


def _queue_state(place: Place, queue: QueuePair) -> QueueState:
    return QueueState(
        *place,
        queue.direction,
        queue.my_head,
        queue.my_tail,
        queue.peer_head_cache,
        queue.peer_tail_cache,
        queue.my_rx_base_pa,
        queue.n_slots * queue.slot_size,
        queue.peer.place,
        queue.peer.rx_base_pa if queue.can_send else 0,
        queue.n_slots,
        tuple(taken.handle for taken in queue.in_use),
        queue.generation,
    )
