"""Transmit queue of an Ethernet core: one direction of a link, which cuts commands into packets.

A command sends ``nbytes`` of payload. A command *starts* when the first byte of the first packet is on the wire, and
*has left* when the last byte of the last packet has left; this byte arrives the link's latency later. For the effect
of an outage on packets see :mod:`sipsim.fabric.links.outages`.

* The queue takes a command while fewer than ``accept_ahead`` commands in the queue have not started; else the queue is
  busy and refuses. At its start time, a command counts as started.
* Commands and their packets are sent in the order in which the queue took the commands. The wire carries one packet at
  a time, and packets arrive in order even after a retransmission. So commands start, leave and arrive in order, and
  all times of a command are known when the queue takes the command, without a simulation event.
* Hardware has a second queue. Only routers use it, for short commands (:meth:`TransmitQueue.submit_between`).
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from sipsim.core.units import drain_ps
from sipsim.fabric.links.kind import AnyLinkKind
from sipsim.fabric.links.outages import ByteClock, Loss, Outage, OutageUse, Retransmitter

Ps = int
LONG_COMMAND = 2**16
"""Size in bytes of a command that the link cuts into full packets."""


class TransmitTimes(NamedTuple):
    """Times in ps at which a command starts, has left, and arrives with the last byte.

    If an outage of the link loses packets, the last two times are those of the packets that arrive. ``loss``: packets
    lost on a link without retransmission, where the command never completes; None if no packet is lost.
    """

    start_ps: Ps
    tail_left_ps: Ps
    arrival_ps: Ps
    loss: Loss | None = None


class TransmitQueue:
    """Transmit queue for kernels' commands, and the wire. ``taken_bytes``: bytes put on the wire, including framing,
    excluding retransmissions. ``now_ps`` must not decrease from call to call.
    """

    def __init__(self, link: AnyLinkKind, accept_ahead: int, outages: Sequence[Outage] = ()) -> None:
        self._link = link
        self._latency_ps, self._bandwidth_bps = link.latency_ps, link.bandwidth_bps
        self._outages = tuple(outages)
        self._retransmitter: Retransmitter | None = None
        if outages:
            self._retransmitter = Retransmitter(self._latency_ps, self._bandwidth_bps, outages, link.sends_again)
        self._clock = ByteClock(0)
        self._accept_ahead = accept_ahead
        self._starts: deque[Ps] = deque()
        self._carried: deque[TransmitTimes] = deque(maxlen=accept_ahead + 2)
        self._longest_ps = self._drain_ps(max(link.packets(LONG_COMMAND)))
        self.taken_bytes = 0

    def submit(self, now_ps: Ps, nbytes: int) -> TransmitTimes | None:
        """Take a command of ``nbytes``, 1 or more; return None if the queue is busy."""
        if self.is_busy(now_ps):
            return None
        times = self._carry(now_ps, nbytes)
        self._starts.append(times.start_ps)
        self._carried.append(times)
        return times

    def is_busy(self, now_ps: Ps) -> bool:
        """Whether the queue would refuse a command now."""
        starts = self._starts
        while starts and starts[0] <= now_ps:
            starts.popleft()
        return len(starts) >= self._accept_ahead

    def submit_between(self, now_ps: Ps, nbytes: int) -> TransmitTimes:
        """Take a short command on the second queue. The command waits for the packet that the wire carries, and later
        packets wait for the command. On a link with outages, the command waits for all earlier commands, since
        retransmission keeps the order.
        """
        if self._retransmitter is not None:
            return self._carry(now_ps, nbytes)
        start_ps, wire_bytes = self._packet_end_ps(now_ps), self._link.wire_bytes(nbytes)
        self._take(now_ps, wire_bytes)
        end_ps = start_ps + self._drain_ps(wire_bytes)
        return TransmitTimes(start_ps, end_ps, end_ps + self._latency_ps)

    def all_started_ps(self, now_ps: Ps) -> Ps:
        """Return the earliest time, at least ``now_ps``, at which all commands of the queue have started."""
        return max(self._starts[-1], now_ps) if self._starts else now_ps

    def free_at_ps(self, now_ps: Ps) -> Ps:
        """Return the earliest time, at least ``now_ps``, at which the queue takes a command."""
        return self._starts[-self._accept_ahead] if self.is_busy(now_ps) else now_ps

    @property
    def busy_ps(self) -> Ps:
        """The time for which the wire was busy with ``taken_bytes``, in ps."""
        return self._drain_ps(self.taken_bytes)

    def last_outage(self, time_ps: Ps) -> Outage | None:
        """Return the last outage that begins before ``time_ps``."""
        return next((each for each in reversed(self._outages) if each.down_ps < time_ps), None)

    def outages_used(self, link_name: str) -> tuple[OutageUse, ...]:
        """Return the cost of each outage so far."""
        return () if self._retransmitter is None else self._retransmitter.used(link_name)

    def _carry(self, now_ps: Ps, nbytes: int) -> TransmitTimes:
        """Return the times of a command that follows all earlier ones."""
        start_ps = self._take(now_ps, self._link.wire_bytes(nbytes))
        end_ps, loss = self._clock.free_ps, None
        if self._retransmitter is not None:
            sent = self._retransmitter.schedule(start_ps, end_ps, self._link.packets(nbytes))
            start_ps, end_ps, loss = sent.first_ps, sent.end_ps, sent.loss
        return TransmitTimes(start_ps, end_ps, end_ps + self._latency_ps, loss)

    def _take(self, now_ps: Ps, wire_bytes: int) -> Ps:
        """Put bytes on the wire once the wire is idle. Return the time of the first byte, ignoring outages."""
        if self._clock.free_ps < now_ps:
            self._clock = ByteClock(now_ps)
        start_ps = self._clock.free_ps
        self.taken_bytes += wire_bytes
        self._clock.push(wire_bytes, self._bandwidth_bps)
        return start_ps

    def _packet_end_ps(self, now_ps: Ps) -> Ps:
        """Return the time at which the packet on the wire has left."""
        carried = self._carried
        while carried and carried[0].tail_left_ps <= now_ps:
            carried.popleft()
        if not carried or carried[0].start_ps > now_ps:
            return now_ps
        times, packet_ps = carried[0], self._longest_ps
        packets = -(-(now_ps - times.start_ps) // packet_ps)
        return min(times.start_ps + packets * packet_ps, times.tail_left_ps)

    def _drain_ps(self, nbytes: int) -> Ps:
        return drain_ps(nbytes, self._bandwidth_bps)
