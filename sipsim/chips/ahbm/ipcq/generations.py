"""Generations: sets of queue pairs of one PE, installed together by the plan (number 0) or during the simulation.

A kernel runs with one generation and uses the short names of its queue pairs, such as ``E``. Everywhere else a queue
pair of a later generation has its full name, such as ``E#3``. A generation may reuse the ring addresses of a closed
one, so messages and credits carry the number of their generation and are matched within it.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from sipsim.chips.ahbm.ipcq.messages import Credit, IpcqInitEntry, Message
from sipsim.chips.ahbm.ipcq.queue_pair import QueuePair
from sipsim.core.errors import InvariantViolation, IpcqInUse, IpcqInvalidDirection
from sipsim.records.dump import Place
from sipsim.records.report import Unread


class Generation:
    """Queue pairs of one generation on one PE. ``rank``: the PE's rank in its wiring, None if the PE takes no part.
    ``algorithm``: the entry of ``ccl.yaml`` that wires the PEs, for error messages; empty for a group's generation.

    ``queues``: queue pairs by short name. ``by_peer_rx``: sending queue pairs by base address of the peer's ring.
    ``receive_directions``: short names of the receiving pairs. ``last_polled_dir``: the direction that served the last
    receive without a direction. ``is_closed``: only credits for messages that this PE has sent may still arrive.
    """

    __slots__ = (
        "_algorithm",
        "_rx_bases",
        "_rx_queues",
        "by_peer_rx",
        "is_closed",
        "last_polled_dir",
        "number",
        "queues",
        "rank",
        "receive_directions",
        "world_size",
    )

    def __init__(
        self, number: int, entries: Iterable[IpcqInitEntry], rank: int | None, world_size: int, algorithm: str = ""
    ) -> None:
        self.number = number
        self._algorithm = algorithm
        self.rank = rank
        self.world_size = world_size
        self.queues = {entry.direction: QueuePair(entry, number) for entry in entries}
        by_base = sorted((queue.my_rx_base_pa, name) for name, queue in self.queues.items())
        self._rx_bases = [base for base, _ in by_base]
        self._rx_queues = [self.queues[name] for _, name in by_base]
        self.by_peer_rx = {queue.peer.rx_base_pa: queue for queue in self.queues.values() if queue.can_send}
        self.receive_directions = tuple(name for name, queue in self.queues.items() if queue.can_receive)
        self.last_polled_dir: str | None = None
        self.is_closed = False

    def queue(self, direction: str, sending: bool) -> QueuePair:
        """Return the queue pair of a direction by its short name.

        Raises:
            IpcqInvalidDirection: if the direction is not installed for sending, or for receiving (F1 of ADR-0023).
        """
        queue = self.queues.get(direction) if isinstance(direction, str) else None
        if queue is None or not (queue.can_send if sending else queue.can_receive):
            usable = (d for d, q in self.queues.items() if (q.can_send if sending else q.can_receive))
            installed = ", ".join(sorted(usable))
            where = f" in generation {self.number}" if self.number else ""
            by = f"; algorithms.{self._algorithm} sets directions by topology or neighbors()" if self._algorithm else ""
            what = "" if queue is None else " for sending" if sending else " for receiving"
            raise IpcqInvalidDirection(
                f"direction {direction!r} is not installed{what}; installed{where}: {installed or 'none'}{by}",
                direction=str(direction),
            )
        return queue

    def queue_of(self, place: Place, address: int, nbytes: int) -> QueuePair:
        """Return the queue pair whose receive ring contains a message to the PE at ``place``.

        Raises:
            InvariantViolation: if the address is in no ring, or the message extends past the end of its ring.
        """
        index = bisect_right(self._rx_bases, address) - 1
        if index >= 0 and address < (stop_pa := self._rx_queues[index].rx_stop_pa):
            queue = self._rx_queues[index]
            if address + nbytes > stop_pa:
                what = f"a message of {nbytes} bytes at {address:#x} does not end within its ring in {place}"
                raise violation(place, what, queue.direction)
            return queue
        number = f" of generation {self.number}" if self.number else ""
        raise violation(
            place, f"a message for address {address:#x} arrived at {place}, which has no ring{number} there"
        )

    def check_idle(self, place: Place, any_receive_waits: bool) -> None:
        """Check that the generation may be closed. ``any_receive_waits``: whether a receive without a direction waits.

        Raises:
            IpcqInUse: as :meth:`sipsim.chips.ahbm.ipcq.pe_ipcq.PeIpcq.check_idle`.
        """
        for queue in self.queues.values():
            unreleased = len(queue.landed) + len(queue.messages) + len(queue.in_use)
            if unreleased:
                what = f"its ring holds {unreleased} message{'s' * (unreleased > 1)} that the kernel has not released"
            elif queue.posted or (any_receive_waits and queue.can_receive):
                what = "a receive is posted"
            elif queue.sends:
                what = "a send waits"
            else:
                continue
            sip, cube, pe = place
            where = f"queue pair {queue.direction} of rank {sip} cube {cube} PE {pe}"
            text = f"{where} is closed while {what}; first receive all messages and wait for all sends"
            raise IpcqInUse(text, cube=cube, pe=pe, direction=queue.direction)

    def awaits_credits(self) -> bool:
        """Return whether credits for sent messages are still to arrive."""
        return any(queue.my_head != queue.peer_tail_cache for queue in self.queues.values())


class ClosedGenerations:
    """Numbers of the generations that a SIP has closed, stored as ranges of consecutive numbers."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._stops: list[int] = []

    def __len__(self) -> int:
        """Return the number of ranges, not of generations."""
        return len(self._firsts)

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._firsts, number) - 1
        return index >= 0 and number < self._stops[index]

    def add(self, number: int) -> None:
        """Add a number that is not in the set."""
        index = bisect_left(self._firsts, number)
        joins_before = index > 0 and self._stops[index - 1] == number
        joins_after = index < len(self._firsts) and self._firsts[index] == number + 1
        if joins_before and joins_after:
            self._stops[index - 1] = self._stops.pop(index)
            del self._firsts[index]
        elif joins_before:
            self._stops[index - 1] = number + 1
        elif joins_after:
            self._firsts[index] = number
        else:
            self._firsts.insert(index, number)
            self._stops.insert(index, number + 1)


class Generations:
    """Generations of the PE at ``place``. ``live``: generations by number, also closed generations that await credits.

    ``queues``: queue pairs of all live generations by full name. ``closed``: generations that the PE's SIP has closed.
    """

    def __init__(self, place: Place, planned: Generation, closed: ClosedGenerations) -> None:
        self._place = place
        self._closed = closed
        self._early: dict[int, list[Message]] = {}
        self.live = {planned.number: planned}
        self.queues = dict(planned.queues)

    def get(self, number: int, what: str) -> Generation:
        """Return an installed, open generation. ``what``: the refused operation, with which the error begins.

        Raises:
            InvariantViolation: if the generation is closed or not installed.
        """
        generation = self.live.get(number)
        if generation is None or generation.is_closed:
            state = "is closed" if generation is not None or number in self._closed else "is not installed"
            raise violation(self._place, f"{what} generation {number}, which {state} at {self._place}")
        return generation

    def install(self, generation: Generation) -> list[Message]:
        """Add a generation. Return the messages that have arrived for it early, in order.

        Raises:
            InvariantViolation: if the generation's number is or was in use.
        """
        if generation.number < 1 or generation.number in self.live or generation.number in self._closed:
            what = f"generation {generation.number} is or was in use at {self._place}, and cannot be installed"
            raise violation(self._place, what)
        self.live[generation.number] = generation
        self.queues.update((queue.direction, queue) for queue in generation.queues.values())
        return self._early.pop(generation.number, [])

    def hold(self, message: Message) -> None:
        """Hold a message for a generation that is not installed yet, without its credits, which the caller delivers.

        Raises:
            InvariantViolation: for a closed generation.
        """
        if message.generation in self.live or message.generation in self._closed:
            text = f"a message for address {message.dst_addr:#x}{origin_of(message)} arrived at {self._place}"
            raise violation(self._place, f"{text}, which has closed this generation", message.src_direction)
        self._early.setdefault(message.generation, []).append(msgspec.structs.replace(message, credits=()))

    def forget(self, generation: Generation) -> None:
        """Drop a closed generation, whose last credit has arrived."""
        del self.live[generation.number]
        for queue in generation.queues.values():
            del self.queues[queue.direction]

    def check_received(self) -> None:
        """Check at a row start that all messages to and from the PE were received.

        Raises:
            IpcqInUse: if a message was not received.
        """
        received = ((self._place, each.sender, each.sender_direction, each.messages) for each in self.unread())
        queues = self.queues.values()
        sent = ((each.peer.place, self._place, each.direction, each.my_head - each.peer_tail_cache) for each in queues)
        for receiver, sender, direction, messages in (*received, *sent):
            if messages:
                reader, writer = (f"rank {sip} cube {cube} PE {pe}" for sip, cube, pe in (receiver, sender))
                many = "a message" if messages == 1 else f"{messages} messages"
                text = f"a row starts while {reader} has not received {many} that {writer} has sent {direction}"
                _, cube, pe = self._place
                raise IpcqInUse(f"{text}; receive all messages before", cube=cube, pe=pe, direction=direction)

    def continue_from(self, previous: "Generations") -> Iterator[tuple[QueuePair, QueuePair]]:
        """Take over the pointers of the previous row's queue pairs; yield each queue pair with its predecessor.

        Raises:
            InvariantViolation: for a predecessor that is not idle, or that the plan does not contain.
        """
        for name, before in previous.queues.items():
            queue = self.queues.get(name)
            if queue is None or not before.is_idle:
                raise violation(self._place, f"queue pair {name} is in use at a row start", name)
            queue.continue_from(before)
            yield queue, before

    def unread(self) -> Iterator[Unread]:
        """Yield counts of unreceived messages: per ring, then per sender for generations that are not installed."""
        for queue in self.queues.values():
            for message in islice(queue.messages.values(), 1):
                yield Unread(message.sender, message.src_direction, self._place, queue.direction, len(queue.messages))
        for number, messages in sorted(self._early.items()):
            senders = Counter((each.sender, each.src_direction) for each in messages)
            for (sender, direction), count in senders.items():
                yield Unread(sender, direction, self._place, f"generation {number}, not installed", count)


def violation(place: Place, what: str, direction: str = "") -> InvariantViolation:
    """Return an invariant violation at the PE at ``place``."""
    return InvariantViolation(what, cube=place[1], pe=place[2], direction=direction)


def origin_of(carried: Message | Credit) -> str:
    """Return the generation and the sender of a message or credit as text; empty for generation 0."""
    if not carried.generation:
        return ""
    sender = f"rank {carried.src_sip} cube {carried.src_cube} PE {carried.src_pe}"
    return f" of generation {carried.generation} from {carried.src_direction} of {sender}"
