"""Outages of links: a link goes down at a simulated time, in both directions, is retrained, and resumes.

The config lists all outages, so a frame's times are computed when the frame is sent. One direction of a link is a
:class:`Retransmitter`: go-back-N over packets, with a window without limit.

Let ``L`` be the link's latency, and a packet be on the wire from ``s`` to ``e``, so that its last byte arrives at
``e + L`` and its acknowledgement, which takes no bytes, is back at ``e + 2 L``. A link is down from ``down`` to ``up``:

* A packet has arrived if ``e + L <= down``, and is acknowledged if ``e + 2 L <= down``. A packet with ``s < down``
  without acknowledgement is sent again from ``up`` on, back to back with other such packets in order, before any new
  packet. A packet that had arrived is then a duplicate: it uses the wire again, and the receiver drops it.
* A packet whose turn is while the link is down waits, and no other packet overtakes it.

So each packet passes *epochs*, the times between outages. It is sent once per epoch, unless the link goes down before
its turn, until it is acknowledged. Packets are in order within an epoch, and :meth:`Retransmitter.schedule` is called
for frames in order, so no later frame changes the times of an earlier one.

Limit: the caller has divided the wire among simultaneous senders, as :mod:`sipsim.fabric.flows` does among virtual
channels. While bytes wait, the senders' frames are sent one after the other, in the order of the calls.
"""

from bisect import bisect_right
from collections.abc import Sequence
from operator import add
from typing import Annotated, NamedTuple

import msgspec
from msgspec.structs import astuple

from sipsim.config.check import Path, Problem
from sipsim.config.schema import Sips
from sipsim.core.engine import Engine
from sipsim.core.errors import LinkLoss
from sipsim.core.fields import no_time, simulated_time
from sipsim.core.registry import unknown_name
from sipsim.core.units import drain_ps, format_exact_time_ps, us_to_ps
from sipsim.fabric.links.frames import Packet
from sipsim.topology.links import SIPS, SipLink

OUTAGES: Path = (*SIPS, "outages")


class OutageUse(msgspec.Struct, frozen=True):
    """Cost of one outage in one direction of a link, as counters. Plain data, part of a rank's outcome."""

    link: Annotated[str, no_time("The link, such as 0.E>1.W from port E of SIP 0 to port W of SIP 1.")]
    at_ps: Annotated[int, simulated_time("When the link went down, in ps.")]
    for_ps: Annotated[int, simulated_time("How long the link was down, including its retraining, in ps.")]
    resent_packets: Annotated[int, no_time("Packets that were sent again after the link had resumed.")]
    duplicate_packets: Annotated[int, no_time("Packets sent again although they had arrived; the receiver drops them.")]
    resent_bytes: Annotated[int, no_time("Bytes on the wire of the packets that were sent again.")]
    resent_ps: Annotated[int, simulated_time("How long resent_bytes keep the link busy, in ps.")]

    def plus(self, other: "OutageUse") -> "OutageUse":
        """Return the sum of two costs of the same outage."""
        ours, others = astuple(self), astuple(other)
        return OutageUse(*ours[:3], *map(add, ours[3:], others[3:]))


Ps = int
NEVER_PS = 2**62


class Outage(NamedTuple):
    """Outage of a link from ``down_ps`` until the link resumes at ``up_ps``."""

    down_ps: Ps
    up_ps: Ps


class Loss(NamedTuple):
    """Loss of the packets that were on the wire when a link went down at ``down_ps``, and are not sent again."""

    down_ps: Ps
    packets: int
    wire_bytes: int


class Crossing(NamedTuple):
    """Times of consecutive packets on a wire. ``first_ps``: the first byte of the first attempt; ``start_ps``,
    ``end_ps``: the first and last byte of the attempt that arrives. ``loss``: the lost packets, if any.
    """

    first_ps: Ps
    start_ps: Ps
    end_ps: Ps
    loss: Loss | None = None


class ByteClock:
    """Time from which a wire is free if it has sent bytes without a pause since ``base_ps``; rounded once.

    A clock counts the bytes that waited for the end of an outage. The wire is not idle until a new packet's time is
    later than ``free_ps``; from then on, packets have their times without outage.
    """

    def __init__(self, base_ps: Ps) -> None:
        self.free_ps = self._base_ps = base_ps
        self._nbytes = 0

    def push(self, nbytes: int, bytes_per_s: int) -> None:
        """Add ``nbytes`` to the bytes that the wire sends."""
        self._nbytes += nbytes
        self.free_ps = self._base_ps + drain_ps(self._nbytes, bytes_per_s)


class Retransmitter:
    """One direction of a link with outages. ``bandwidth_bps``: bytes per second. ``outages``: in order of time, without
    overlaps. ``again``: whether packets on the wire are sent again (go-back-N) or lost (:class:`Loss`).
    """

    def __init__(self, latency_ps: Ps, bandwidth_bps: int, outages: Sequence[Outage], again: bool = True) -> None:
        self._latency_ps = latency_ps
        self._bandwidth_bps = bandwidth_bps
        self._outages = tuple(outages)
        self._again = again
        self._downs = [*(outage.down_ps for outage in outages), NEVER_PS]
        self._clocks = [ByteClock(-1), *(ByteClock(outage.up_ps) for outage in outages)]
        self._packets = [0] * len(self._outages)
        self._bytes = [0] * len(self._outages)
        self._duplicates = [0] * len(self._outages)

    def schedule(self, start_ps: Ps, end_ps: Ps, packets: Sequence[int]) -> Crossing:
        """Return the times of a frame that would be on the wire from ``start_ps`` to ``end_ps``, at one rate, if there
        were no outages.

        ``packets``: the bytes on the wire of each packet of the frame. Call it for frames in their order on the wire.
        """
        epoch = bisect_right(self._downs, start_ps)
        if self._clocks[epoch].free_ps <= start_ps and end_ps + 2 * self._latency_ps <= self._downs[epoch]:
            return Crossing(start_ps, start_ps, end_ps)
        total_bytes, span_ps, passed_bytes = sum(packets), end_ps - start_ps, 0
        crossings: list[Crossing] = []
        for nbytes in packets:
            begin_ps = start_ps + span_ps * passed_bytes // total_bytes
            passed_bytes += nbytes
            crossings.append(self._packet(begin_ps, start_ps + span_ps * passed_bytes // total_bytes, nbytes))
        return _joined(crossings)

    def used(self, link: str) -> tuple[OutageUse, ...]:
        """Return the cost of each outage of ``link`` so far."""
        return tuple(
            OutageUse(
                link,
                outage.down_ps,
                outage.up_ps - outage.down_ps,
                self._packets[number],
                self._duplicates[number],
                self._bytes[number],
                drain_ps(self._bytes[number], self._bandwidth_bps),
            )
            for number, outage in enumerate(self._outages)
        )

    def _packet(self, begin_ps: Ps, end_ps: Ps, nbytes: int) -> Crossing:
        """Return the times of one packet, which is sent in each epoch until it is acknowledged."""
        first_ps = -1
        arrived: tuple[Ps, Ps] | None = None
        for epoch in range(bisect_right(self._downs, begin_ps), len(self._clocks)):
            down_ps, clock = self._downs[epoch], self._clocks[epoch]
            sent_ps, sent_end_ps = begin_ps, end_ps
            if clock.free_ps > begin_ps:
                sent_ps = clock.free_ps
                if sent_ps >= down_ps:
                    continue
                clock.push(nbytes, self._bandwidth_bps)
                sent_end_ps = max(clock.free_ps, end_ps)
            if first_ps < 0:
                first_ps = sent_ps
            else:
                self._count_resent(epoch - 1, nbytes, arrived is not None)
            if arrived is None and sent_end_ps + self._latency_ps <= down_ps:
                arrived = sent_ps, sent_end_ps
            if not self._again and arrived is None:
                return Crossing(first_ps, sent_ps, sent_end_ps, Loss(down_ps, 1, nbytes))
            if not self._again or sent_end_ps + 2 * self._latency_ps <= down_ps:
                break
        assert arrived is not None, "the last epoch has no end"
        return Crossing(first_ps, *arrived)

    def _count_resent(self, number: int, nbytes: int, is_duplicate: bool) -> None:
        self._packets[number] += 1
        self._bytes[number] += nbytes
        self._duplicates[number] += is_duplicate


def _joined(crossings: Sequence[Crossing]) -> Crossing:
    """Return the crossing of a frame from the crossings of its packets."""
    first, last = crossings[0], crossings[-1]
    loss = joined_loss([each.loss for each in crossings if each.loss is not None])
    return Crossing(first.first_ps, first.start_ps, last.end_ps, loss)


def joined_loss(losses: Sequence[Loss]) -> Loss | None:
    """Return the sum of the losses of a frame's packets; None without a loss."""
    if not losses:
        return None
    return Loss(losses[0].down_ps, sum(each.packets for each in losses), sum(each.wire_bytes for each in losses))


def link_outages(sips: Sips, links: Sequence[SipLink]) -> list[tuple[Outage, ...]]:
    """Return the outages of each directed link, in order of time: entries of ``system.sips.outages`` for either end.

    Raises:
        Problem: for a port without a link, or outages of one link that overlap.
    """
    by_port = {link.near_end: link for link in links}
    outages_at: dict[str, list[Outage]] = {}
    for number, entry in enumerate(sips.outages):
        link = by_port.get(entry.port)
        if link is None:
            what = unknown_name("port", entry.port, by_port)
            raise Problem((OUTAGES,), f"system.sips.outages[{number}].port: {what}")
        down_ps = us_to_ps(entry.at_us)
        outage = Outage(down_ps, down_ps + us_to_ps(entry.for_us))
        for other in outages_at.get(entry.port, ()):
            if outage.down_ps < other.up_ps and other.down_ps < outage.up_ps:
                what = f"link {link.name} is down {_text(other)} and {_text(outage)}; must not overlap"
                raise Problem((OUTAGES,), f"system.sips.outages[{number}]: {what}")
        for end in (link.near_end, link.far_end):
            outages_at.setdefault(end, []).append(outage)
    return [tuple(sorted(outages_at.get(link.near_end, ()))) for link in links]


def _text(outage: Outage) -> str:
    return f"from {format_exact_time_ps(outage.down_ps)} to {format_exact_time_ps(outage.up_ps)}"


class Losses:
    """Frames that were lost in one direction of a link at an outage, as the link does not send them again.

    A loss ends the run, and the error names all losses. The run ends when the link goes down, or when the loss is found
    if that is later, as a frame reaches the port when its last chunk starts.
    """

    def __init__(self, link: str, engine: Engine) -> None:
        self._link = link
        self._engine = engine
        self._packets = 0
        self._frames: dict[str, int] = {}

    def add(self, loss: Loss, nbytes: int, packet: Packet) -> None:
        """Add a loss of link packets that belong to ``packet``, a frame or credit of ``nbytes``."""
        if not self._packets:
            self._engine.at(max(loss.down_ps, self._engine.now_ps), lambda: self._end(loss.down_ps))
        self._packets += loss.packets
        kind = f"{type(packet).__name__} of {nbytes} B"
        self._frames[kind] = self._frames.get(kind, 0) + 1

    def _end(self, down_ps: int) -> None:
        """End the run.

        Raises:
            LinkLoss: always.
        """
        packets = "1 packet" if self._packets == 1 else f"{self._packets} packets"
        frames = ", ".join(f"{count} {kind}" for kind, count in self._frames.items())
        raise LinkLoss(
            f"link {self._link} went down at {format_exact_time_ps(down_ps)} and lost {packets}, parts of {frames}; "
            "set go_back_n: true in the link's preset, so that the link sends lost packets again"
        )
