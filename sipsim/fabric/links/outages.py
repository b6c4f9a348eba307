"""Outages of links: a link goes down at a simulated time, in both directions, is retrained, and resumes.

All outages are in the config, so a frame's times are computed when it is sent. A direction of a link is a
:class:`Retransmitter`: go-back-N over its packets, with a window without limit.

Let ``L`` be the link's latency, and a packet be on the wire from ``s`` to ``e``, so that its last byte arrives at
``e + L`` and its acknowledgement, which takes no bytes, is back at ``e + 2 L``. A link is down from ``down`` to ``up``:

* A packet has arrived if ``e + L <= down``, and is acknowledged if ``e + 2 L <= down``. A packet with ``s < down``
  without acknowledgement is sent again from ``up`` on, back to back with the others in order, before any new packet.
  If it had arrived, it is then a duplicate: the receiver drops it, and it has taken the wire again.
* A packet whose turn is while the link is down waits, and no other overtakes it.

So a packet passes *epochs*, the times between outages. It is sent once per epoch, unless the link goes down before its
turn; after its acknowledgement it is not sent again. Within an epoch packets are in order, and frames are handed over
in order, so no later frame changes an earlier decision.

Limit: the caller has divided the wire among simultaneous senders, as :mod:`sipsim.fabric.flows` does among virtual
channels. While bytes wait, the shares are sent one after the other, in the order in which they are handed over.
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
    """Cost of one outage in one direction of a link, by counters alone. Plain data, part of a rank's outcome."""

    link: Annotated[str, no_time("The link, such as 0.E>1.W from port E of SIP 0 to port W of SIP 1.")]
    at_ps: Annotated[int, simulated_time("When it went down, in ps.")]
    for_ps: Annotated[int, simulated_time("How long it was down and retrained, in ps.")]
    resent_packets: Annotated[int, no_time("Packets that were sent again when it had resumed.")]
    duplicate_packets: Annotated[int, no_time("How many of them had arrived already, and were dropped.")]
    resent_bytes: Annotated[int, no_time("Bytes on the wire of the packets that were sent again.")]
    resent_ps: Annotated[int, simulated_time("How long these bytes keep the link busy, in ps.")]

    def plus(self, other: "OutageUse") -> "OutageUse":
        """Return the sum of both, of the same outage."""
        mine, its = astuple(self), astuple(other)
        return OutageUse(*mine[:3], *map(add, mine[3:], its[3:]))


Ps = int
NEVER_PS = 2**62


class Outage(NamedTuple):
    """Outage of a link that is down from ``down_ps`` on and resumes at ``up_ps``."""

    down_ps: Ps
    up_ps: Ps


class Loss(NamedTuple):
    """Packets that were on the wire when a link went down at ``down_ps``, and are not sent again."""

    down_ps: Ps
    packets: int
    wire_bytes: int


class Crossing(NamedTuple):
    """Times of some packets on the wire. ``first_ps``: their first byte, for the first time; ``start_ps``, ``end_ps``:
    the first and the last byte of the packets that arrive. ``loss``: the packets that do not.
    """

    first_ps: Ps
    start_ps: Ps
    end_ps: Ps
    loss: Loss | None = None


class ByteClock:
    """Time from which a wire is free that has carried bytes without a pause since ``base_ps``; rounded once.

    After an outage it counts the waiting bytes: until the clock is behind the times of new packets, the wire is never
    idle. From then on these times are used unchanged.
    """

    def __init__(self, base_ps: Ps) -> None:
        self.free_ps = self._base_ps = base_ps
        self._nbytes = 0

    def push(self, nbytes: int, bytes_per_s: int) -> None:
        self._nbytes += nbytes
        self.free_ps = self._base_ps + drain_ps(self._nbytes, bytes_per_s)


class Retransmitter:
    """Direction of a link of ``latency_ps`` and ``bandwidth_bps`` bytes per second, with its ``outages`` in order of
    time, none of which overlap.

    ``again``: packets are sent again (go-back-N); else those on the wire are lost (:class:`Loss`).
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
        """Return the times of a frame that without outages is on the wire from ``start_ps`` to ``end_ps``, its bytes at
        one rate.

        ``packets``: the bytes on the wire of each of its packets. Frames are handed over in their order on the wire.
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
        """Send one packet through all epochs, until it is acknowledged or no outage is left."""
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
                self._note_again(epoch - 1, nbytes, arrived is not None)
            if arrived is None and sent_end_ps + self._latency_ps <= down_ps:
                arrived = sent_ps, sent_end_ps
            if not self._again and arrived is None:
                return Crossing(first_ps, sent_ps, sent_end_ps, Loss(down_ps, 1, nbytes))
            if not self._again or sent_end_ps + 2 * self._latency_ps <= down_ps:
                break
        assert arrived is not None, "the last epoch has no end"
        return Crossing(first_ps, *arrived)

    def _note_again(self, number: int, nbytes: int, is_duplicate: bool) -> None:
        self._packets[number] += 1
        self._bytes[number] += nbytes
        self._duplicates[number] += is_duplicate


def _joined(crossings: Sequence[Crossing]) -> Crossing:
    """Return the crossing of a frame from those of its packets."""
    first, last = crossings[0], crossings[-1]
    loss = joined_loss([each.loss for each in crossings if each.loss is not None])
    return Crossing(first.first_ps, first.start_ps, last.end_ps, loss)


def joined_loss(losses: Sequence[Loss]) -> Loss | None:
    """Return the sum of the losses of a frame's packets; None without a loss."""
    if not losses:
        return None
    return Loss(losses[0].down_ps, sum(each.packets for each in losses), sum(each.wire_bytes for each in losses))


def link_outages(sips: Sips, links: Sequence[SipLink]) -> list[tuple[Outage, ...]]:
    """Return the outages of each directed link, in order of time: those of ``system.sips.outages`` at either end.

    Raises:
        Problem: for a port without a link, or outages of one link that overlap.
    """
    by_port = {link.near_end: link for link in links}
    found: dict[str, list[Outage]] = {}
    for number, entry in enumerate(sips.outages):
        link = by_port.get(entry.port)
        if link is None:
            what = unknown_name("port", entry.port, by_port)
            raise Problem((OUTAGES,), f"system.sips.outages[{number}].port: {what}")
        down_ps = us_to_ps(entry.at_us)
        outage = Outage(down_ps, down_ps + us_to_ps(entry.for_us))
        for other in found.get(entry.port, ()):
            if outage.down_ps < other.up_ps and other.down_ps < outage.up_ps:
                what = f"link {link.name} is down {_text(other)} and {_text(outage)}; must not overlap"
                raise Problem((OUTAGES,), f"system.sips.outages[{number}]: {what}")
        for end in (link.near_end, link.far_end):
            found.setdefault(end, []).append(outage)
    return [tuple(sorted(found.get(link.near_end, ()))) for link in links]


def _text(outage: Outage) -> str:
    return f"from {format_exact_time_ps(outage.down_ps)} to {format_exact_time_ps(outage.up_ps)}"


class Losses:
    """Frames that were lost on one direction of link ``link`` when it went down, without retransmission.

    A loss ends the run, and the error names all losses. The run ends when the link goes down, or when the loss is found
    if that is later: a frame is handed over when its last chunk starts.
    """

    def __init__(self, link: str, engine: Engine) -> None:
        self._link = link
        self._engine = engine
        self._packets = 0
        self._frames: dict[str, int] = {}

    def add(self, loss: Loss, nbytes: int, packet: Packet) -> None:
        """Add a loss: link packets of ``packet``, a frame or a credit of ``nbytes``, were lost."""
        if not self._packets:
            self._engine.at(max(loss.down_ps, self._engine.now_ps), lambda: self._end(loss.down_ps))
        self._packets += loss.packets
        carried = f"{type(packet).__name__} of {nbytes} B"
        self._frames[carried] = self._frames.get(carried, 0) + 1

    def _end(self, down_ps: int) -> None:
        """End the run.

        Raises:
            LinkLoss: always.
        """
        packets = "1 packet was" if self._packets == 1 else f"{self._packets} packets were"
        frames = ", ".join(f"{count} {what}" for what, count in self._frames.items())
        raise LinkLoss(
            f"link {self._link} went down at {format_exact_time_ps(down_ps)}: {packets} on it and lost, parts of "
            f"{frames}; set go_back_n: true in the link's preset, and they are sent again"
        )
