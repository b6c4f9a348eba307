"""The transmit queues of an Ethernet core: one direction of a link, which cuts commands into packets.

A command sends ``nbytes`` of payload. It *starts* when the first byte of its first packet is on the wire, and *has
left* with the last byte of its last packet; that arrives the link's latency later. What an outage does to packets,
:mod:`sipsim.fabric.links.outages` says.

* A queue takes a command while fewer than ``accept_ahead`` of its commands have not started; else it is busy, and
  refuses. A command is not started at the times before its start, and is at it.
* The packets of a command go in order, and a queue's commands go in the order in which it took them: only the oldest
  command of a queue that has packets left sends one. The wire carries one packet at a time, and what it carries arrives
  in order, also what is sent again. So a queue's commands start, leave and arrive in order, whatever the other does.
* Across queues there is no order. A wire that is free takes a packet of the queue that it did not take the last one
  from, if that has any, and else of the same (round robin by packets). What is submitted when a packet starts comes
  after that packet.

With one queue in use, all is known when a command is taken (:class:`TransmitQueue`). With two, what is submitted later
to one queue delays what the other has taken, so times are told when they are certain (:class:`TransmitQueues`): when
the last packet of a command starts, which is early enough, as it arrives a latency later. This costs an event a
command, and one more each time that a command on the other queue has put it off. Times given to both may not decrease.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from sipsim.core.errors import InvariantViolation
from sipsim.core.units import drain_ps
from sipsim.fabric.links.kind import AnyLinkKind
from sipsim.fabric.links.outages import (
    NEVER_PS,
    ByteClock,
    Crossing,
    Loss,
    Outage,
    OutageUse,
    Retransmitter,
    joined_loss,
)

Ps = int
QUEUES = 2
LONG_COMMAND = 2**16
"""Of which the link cuts packets of full size."""


class TransmitTimes(NamedTuple):
    """When a command starts, when it has left, and when its last byte arrives.

    Where packets are sent again after an outage, the last two are of those that arrive. ``loss``: of those that never
    do, as the link sends nothing again; then it does not arrive as a whole.
    """

    start_ps: Ps
    tail_left_ps: Ps
    arrival_ps: Ps
    loss: Loss | None = None


class WireUse(NamedTuple):
    """What a wire took, framing included, and how long it carried that; what was sent again is not counted."""

    nbytes: int
    busy_ps: Ps


class _Wire:
    """The wire of one direction. ``free_ps``: when it could take the next packet, outages aside."""

    def __init__(self, link: AnyLinkKind, outages: Sequence[Outage]) -> None:
        self.link = link
        self.latency_ps = link.latency_ps
        self._bandwidth_bps = link.bandwidth_bps
        self.retransmitter: Retransmitter | None = None
        if outages:
            self.retransmitter = Retransmitter(self.latency_ps, self._bandwidth_bps, outages, link.sends_again)
        self._clock = ByteClock(0)
        self.taken_bytes = 0

    @property
    def free_ps(self) -> Ps:
        return self._clock.free_ps

    def take(self, now_ps: Ps, nbytes: int) -> Ps:
        """Let ``nbytes`` follow, from now on if it is idle; the time of the first one."""
        if self._clock.free_ps < now_ps:
            self._clock = ByteClock(now_ps)
        start_ps = self._clock.free_ps
        self.taken_bytes += nbytes
        self._clock.push(nbytes, self._bandwidth_bps)
        return start_ps

    def drain_ps(self, nbytes: int) -> Ps:
        return drain_ps(nbytes, self._bandwidth_bps)

    def next_start_ps(self, ready_ps: Ps) -> Ps:
        """When a packet that is ready then would start."""
        start_ps = max(ready_ps, self.free_ps)
        return start_ps if self.retransmitter is None else self.retransmitter.next_start_ps(start_ps)

    def use(self) -> WireUse:
        return WireUse(self.taken_bytes, self.drain_ps(self.taken_bytes))

    def used(self, link_name: str) -> tuple[OutageUse, ...]:
        return () if self.retransmitter is None else self.retransmitter.used(link_name)


class TransmitQueue:
    """The queues with one of them in use, any: the times of a command are known when it is taken, without an event."""

    def __init__(self, link: AnyLinkKind, accept_ahead: int, outages: Sequence[Outage] = ()) -> None:
        self._wire = _Wire(link, outages)
        self._accept_ahead = accept_ahead
        self._queue: int | None = None
        self._starts: deque[Ps] = deque()
        self._carried: deque[TransmitTimes] = deque(maxlen=accept_ahead + 2)
        self._longest_ps = self._wire.drain_ps(max(link.packets(LONG_COMMAND)))

    def submit(self, queue: int, now_ps: Ps, nbytes: int) -> TransmitTimes | None:
        """Take a command of ``nbytes``, 1 or more; None where the queue refuses it, because it is busy.

        Raises:
            InvariantViolation: for a second queue.
        """
        if self._queue is None:
            self._queue = queue
        elif queue != self._queue:
            raise InvariantViolation(f"transmit queue {queue} is used beside {self._queue}; their times are not known")
        if self.is_busy(queue, now_ps):
            return None
        wire = self._wire
        start_ps = wire.take(now_ps, wire.link.wire_bytes(nbytes))
        if wire.retransmitter is None:
            times = TransmitTimes(start_ps, wire.free_ps, wire.free_ps + wire.latency_ps)
        else:
            found = wire.retransmitter.schedule(start_ps, wire.free_ps, wire.link.packets(nbytes))
            times = TransmitTimes(found.first_ps, found.end_ps, found.end_ps + wire.latency_ps, found.loss)
        self._starts.append(times.start_ps)
        self._carried.append(times)
        return times

    def is_busy(self, queue: int, now_ps: Ps) -> bool:
        """Whether it would refuse a command now."""
        starts = self._starts
        while starts and starts[0] <= now_ps:
            starts.popleft()
        return queue == self._queue and len(starts) >= self._accept_ahead

    def submit_between(self, now_ps: Ps, nbytes: int) -> TransmitTimes:
        """Take a short command on the queue that is not in use, which takes turns with the packets of the other: it
        waits for the packet that the wire carries, and what is taken later waits for it. Where the link has outages it
        waits for all that was taken before, as what is sent again keeps its order.
        """
        wire = self._wire
        if wire.retransmitter is not None:
            start_ps = wire.take(now_ps, wire.link.wire_bytes(nbytes))
            found = wire.retransmitter.schedule(start_ps, wire.free_ps, wire.link.packets(nbytes))
            return TransmitTimes(found.first_ps, found.end_ps, found.end_ps + wire.latency_ps, found.loss)
        start_ps = self._packet_end_ps(now_ps)
        wire.take(now_ps, wire.link.wire_bytes(nbytes))
        end_ps = start_ps + wire.drain_ps(wire.link.wire_bytes(nbytes))
        return TransmitTimes(start_ps, end_ps, end_ps + wire.latency_ps)

    def _packet_end_ps(self, now_ps: Ps) -> Ps:
        """When the packet that the wire carries has left."""
        carried = self._carried
        while carried and carried[0].tail_left_ps <= now_ps:
            carried.popleft()
        if not carried or carried[0].start_ps > now_ps:
            return now_ps
        times, packet_ps = carried[0], self._longest_ps
        packets = -(-(now_ps - times.start_ps) // packet_ps)
        return min(times.start_ps + packets * packet_ps, times.tail_left_ps)

    def all_started_ps(self, now_ps: Ps) -> Ps:
        """The earliest time from ``now_ps`` on at which all its commands have started."""
        return max(self._starts[-1], now_ps) if self._starts else now_ps

    def free_at_ps(self, queue: int, now_ps: Ps) -> Ps:
        """The earliest time from now on at which it takes a command."""
        return self._starts[-self._accept_ahead] if self.is_busy(queue, now_ps) else now_ps

    def use(self) -> WireUse:
        """What the wire has been used for so far."""
        return self._wire.use()

    def outages_used(self, link_name: str) -> tuple[OutageUse, ...]:
        """What each outage has cost so far."""
        return self._wire.used(link_name)


Told = Callable[[TransmitTimes], None]


class _Command:
    """A command of which ``sent`` packets have started."""

    def __init__(self, packets: list[int], told: Told) -> None:
        self.packets = packets
        self.told = told
        self.sent = 0
        self.start_ps = -1
        self.losses: list[Loss] = []

    def times(self, last: Crossing, latency_ps: Ps) -> TransmitTimes:
        return TransmitTimes(self.start_ps, last.end_ps, last.end_ps + latency_ps, joined_loss(self.losses))


class _Packet(NamedTuple):
    """A packet that starts if nothing more is submitted."""

    queue: int
    is_first: bool
    is_last: bool
    start_ps: Ps


class TransmitQueues:
    """Both queues. ``at(time_ps, fn)`` calls a function at a time, the simulator's ``Engine.at``."""

    def __init__(
        self,
        link: AnyLinkKind,
        accept_ahead: int,
        at: Callable[[Ps, Callable[[], None]], object],
        outages: Sequence[Outage] = (),
    ) -> None:
        self._wire = _Wire(link, outages)
        self._accept_ahead = accept_ahead
        self._at = at
        self._queues: tuple[deque[_Command], ...] = tuple(deque() for _ in range(QUEUES))
        self._turn = 0
        self._ready_ps = 0
        self._look_ps = NEVER_PS

    def submit(self, queue: int, now_ps: Ps, nbytes: int, told: Told) -> bool:
        """Take a command of ``nbytes``, 1 or more; False where the queue refuses it, because it is busy.

        ``told`` is called when its last packet starts, which may be before this returns; it may submit more.
        """
        if self.is_busy(queue, now_ps):
            return False
        if not any(self._queues):
            self._ready_ps = now_ps
        self._queues[queue].append(_Command(self._wire.link.packets(nbytes), told))
        self._advance(now_ps)
        self._look_again()
        return True

    def is_busy(self, queue: int, now_ps: Ps) -> bool:
        """Whether it would refuse a command now."""
        self._advance(now_ps)
        return self._not_started(queue) >= self._accept_ahead

    def free_at_ps(self, queue: int, now_ps: Ps) -> Ps:
        """The earliest time from now on at which it takes a command, if the other queue gets none: then ask again."""
        if not self.is_busy(queue, now_ps):
            return now_ps
        return next(each.start_ps for each in self._forecast() if each.queue == queue and each.is_first)

    def use(self) -> WireUse:
        """What the wire has been used for so far."""
        return self._wire.use()

    def outages_used(self, link_name: str) -> tuple[OutageUse, ...]:
        """What each outage has cost so far."""
        return self._wire.used(link_name)

    def _not_started(self, queue: int) -> int:
        commands = self._queues[queue]
        return len(commands) - (1 if commands and commands[0].sent else 0)

    def _next_queue(self) -> int | None:
        for queue in (self._turn, 1 - self._turn):
            if self._queues[queue]:
                return queue
        return None

    def _advance(self, now_ps: Ps) -> None:
        """Start all packets that start by now."""
        while (queue := self._next_queue()) is not None:
            start_ps = self._wire.next_start_ps(self._ready_ps)
            if start_ps > now_ps:
                return
            self._start(queue, start_ps)

    def _start(self, queue: int, start_ps: Ps) -> None:
        command, wire = self._queues[queue][0], self._wire
        nbytes = command.packets[command.sent]
        wire.take(start_ps, nbytes)
        crossing = Crossing(start_ps, start_ps, wire.free_ps)
        if wire.retransmitter is not None:
            crossing = wire.retransmitter.schedule(start_ps, wire.free_ps, [nbytes])
            if crossing.loss is not None:
                command.losses.append(crossing.loss)
        self._turn = 1 - queue
        if not command.sent:
            command.start_ps = start_ps
        command.sent += 1
        if command.sent == len(command.packets):
            self._queues[queue].popleft()
            command.told(command.times(crossing, wire.latency_ps))

    def _look_again(self) -> None:
        """Look when the next command's last packet starts, if nothing more is submitted."""
        look_ps = next((each.start_ps for each in self._forecast() if each.is_last), NEVER_PS)
        if look_ps < self._look_ps:
            self._look_ps = look_ps
            self._at(look_ps, lambda: self._look(look_ps))

    def _look(self, now_ps: Ps) -> None:
        if now_ps == self._look_ps:
            self._look_ps = NEVER_PS
        self._advance(now_ps)
        self._look_again()

    def _forecast(self) -> Iterator[_Packet]:
        """The packets to come, in order, if nothing more is submitted. Outages but the present one may put them off."""
        waiting = [
            ((each, number) for each in commands for number in range(each.sent, len(each.packets)))
            for commands in self._queues
        ]
        heads = [next(each, None) for each in waiting]
        turn, start_ps, nbytes = self._turn, self._wire.next_start_ps(self._ready_ps), 0
        while any(heads):
            turn = turn if heads[turn] is not None else 1 - turn
            head = heads[turn]
            assert head is not None
            command, number = head
            is_last = number + 1 == len(command.packets)
            yield _Packet(turn, number == 0, is_last, start_ps + self._wire.drain_ps(nbytes))
            nbytes += command.packets[number]
            heads[turn] = next(waiting[turn], None)
            turn = 1 - turn
