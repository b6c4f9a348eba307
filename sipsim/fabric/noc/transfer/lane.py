"""An edge and those that are on it: in line while each has it to itself, with a share of it where they divide it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sipsim.core import units
from sipsim.fabric.graph.graph import Edge
from sipsim.fabric.noc.arbitration import EDGE, Want

if TYPE_CHECKING:
    from sipsim.fabric.noc.transfer.transfer import Transfer

Ps = int

BITS = 64
WHOLE = 1 << BITS
"""All of a transfer; how much of it has passed an edge is a part of that."""
FOREVER: Ps = 1 << 62
"""Later than anything happens."""
_NEAR = 1 << 32
_BACKLOG = 2 << BITS
_SHIFT = BITS - EDGE.bit_length() + 1


class Lane:
    """One edge. ``line``: (transfer, hop) of those that are here, in the order of their heads, while it is undivided;
    then ``shares``, in the same order. ``free_ps``: when those that have left were through. ``turn_ps``: when the first
    that waits in line goes. ``stamp`` is of the division in force, ``change_ps``: when that changes by itself.
    ``expected``: channel, head and least end of the last transfer that started here.
    """

    __slots__ = ("change_ps", "edge", "expected", "free_ps", "line", "shares", "stamp", "turn_ps", "weights")

    def __init__(self, edge: Edge, weights: tuple[int, ...]) -> None:
        self.edge = edge
        self.weights = weights
        self.free_ps: Ps = -FOREVER
        self.line: list[tuple[Transfer, int]] = []
        self.shares: list[Share] = []
        self.stamp = 0
        self.change_ps: Ps = FOREVER
        self.turn_ps: Ps = -1
        self.expected: tuple[int, Ps, Ps] = (-1, 0, 0)

    def forget(self, now: Ps) -> None:
        """Those that are through leave the line, in its order. One that is through behind another that is not, which
        they have come to at different rates, stays until then: it cannot contend."""
        line = self.line
        while line:
            other, at = line[0]
            tails = other.tails
            tail = tails[at] if at < len(tails) else other.tail(at)
            if tail is None or tail > now:
                return
            if tail > self.free_ps:
                self.free_ps = tail
            del line[0]

    def expect(self, head_ps: Ps, drain_ps: Ps, vc: int) -> Ps:
        """How long a transfer whose bytes are all at the start of its route waits here, at least, for those of its
        channel that have started here before it."""
        last_vc, last_head_ps, busy_ps = self.expected
        start_ps = max(head_ps, busy_ps) if vc == last_vc and head_ps >= last_head_ps else head_ps
        self.expected = vc, head_ps, start_ps + drain_ps
        return start_ps - head_ps


class Leg(NamedTuple):
    """One edge of a route for a number of bytes: ``drain_ps`` at full bandwidth, ``onward_ps`` to the next edge.

    ``cap``: the share a ps at full bandwidth. ``chunk``: the share that a chunk is. ``follows``: the lane before it if
    that is no faster, so that transfers which all come from there cannot contend. ``way_ps``: wires from here to the
    end of the route. ``rest_ps``: and the drain of the slowest edge on that way.
    """

    lane: Lane
    drain_ps: Ps
    onward_ps: Ps
    cap: int
    chunk: int
    follows: Lane | None
    way_ps: Ps
    rest_ps: Ps


def legs_over(lanes: Sequence[Lane], nbytes: int, chunk_bytes: int) -> list[Leg]:
    """A route for a number of bytes."""
    legs: list[Leg] = []
    way_ps = slowest_ps = 0
    for index in range(len(lanes) - 1, -1, -1):
        lane, before = lanes[index], lanes[index - 1] if index else None
        edge = lane.edge
        is_slower = before is not None and edge.framing is None and before.edge.bandwidth_bps <= edge.bandwidth_bps
        wire_bytes, onward_ps = edge.wire_bytes(nbytes), edge.wire_ps + edge.overhead_ps
        chunk = min(chunk_bytes * WHOLE // wire_bytes, WHOLE)
        drain_ps = units.drain_ps(wire_bytes, edge.bandwidth_bps)
        way_ps += onward_ps
        slowest_ps = max(slowest_ps, drain_ps)
        follows = before if is_slower else None
        rest_ps = way_ps + slowest_ps
        legs.append(Leg(lane, drain_ps, onward_ps, WHOLE // drain_ps, chunk, follows, way_ps, rest_ps))
    return legs[::-1]


Standing = tuple[int, int, int, bool]
"""How a transfer stands at an edge: what of it has passed, what has come, what comes a ps, and whether bytes wait, its
last ones or more than the rounding of rates leaves. No ``NamedTuple``, which takes ten times as long to make.
"""


class Share:
    """A transfer's part of an edge that it divides: ``served`` at ``since_ps``, and ``rate`` a ps since then.

    ``limit``: the most of the edge that it may use. ``start_ps``: when its head left. ``end_ps``: when it is through at
    this rate; None while it gets nothing. ``is_over``: it is through. ``slips``: its first chunk goes before earlier
    transfers of its channel, which waited for bytes when it came.
    """

    __slots__ = (
        "_before", "end_ps", "hop", "is_over", "leg", "limit", "rate", "served", "since_ps", "slips",
        "start_ps", "transfer",
    )  # fmt: skip

    def __init__(self, transfer: "Transfer", hop: int, now: Ps) -> None:
        self.transfer = transfer
        self.hop = hop
        self.leg = transfer.legs[hop]
        self.since_ps = now
        self.served = self.rate = 0
        self.start_ps = now
        if hop < len(transfer.starts):
            self.served, self.rate = transfer.served(hop, now)
            self.start_ps = transfer.start_at(hop)
        self.end_ps: Ps | None = None
        self.limit = transfer.limit_at(hop)
        self.is_over = False
        self.slips = False
        self._before = (now, self.served, self.rate)
        transfer.note_share(self)

    def leave(self) -> None:
        """Drop the reference to the transfer, which no longer shares the edge.

        The transfer still refers to this share, so together they would be a cycle.
        """
        del self.transfer

    def at(self, when: Ps) -> tuple[int, int]:
        """(served, rate) at a time, which may lie before the last change of the rate."""
        since, served, rate = self.since_ps, self.served, self.rate
        if when < since:
            since, served, rate = self._before
        served += rate * (when - since)
        if served >= WHOLE or (self.is_over and self.end_ps is not None and when >= self.end_ps):
            return WHOLE, 0
        return (served, rate) if served > 0 else (0, rate)

    def is_through(self, stands: Standing, now: Ps) -> bool:
        """Whether all of it has come and passed."""
        if self.transfer.is_fixed:
            return self.transfer.tails[self.hop] <= now
        served, arrived, _, _ = stands
        if (self.end_ps is None or self.end_ps > now) and served < WHOLE:
            return False
        return (WHOLE - arrived) * self.leg.drain_ps < 4 << BITS

    def standing(self, now: Ps) -> Standing:
        """How its transfer stands here."""
        served, _ = self.at(now)
        arrived, feed = self.transfer.inflow(self.hop, now)
        return served, arrived, feed, self._has_backlog(arrived, served)

    def want(self, stands: Standing, now: Ps) -> Want:
        """What it asks of the edge now: all while bytes wait, as much as comes if none do."""
        transfer, leg = self.transfer, self.leg
        served, _, feed, is_here = stands
        if transfer.is_fixed:
            left_ps = max(transfer.tails[self.hop] - now, 1)
            part = min(_part(-(-(WHOLE - served) // left_ps), leg.drain_ps), EDGE)
            return Want(transfer.vc, part, True, is_here)
        if self.slips and served >= leg.chunk:
            self.slips = False
        if is_here:
            return Want(transfer.vc, self.limit, False, True)
        fed = min(_part(feed, leg.drain_ps), EDGE)
        return Want(transfer.vc, min(fed, self.limit), False, fed > self.limit)

    def lets_slip(self, transfer: "Transfer", now: Ps) -> bool:
        """Whether the first chunk of a transfer that comes now may go before the rest of it: no bytes of it wait here
        and it goes another way, or it slips itself and is one chunk, which goes first, or not all here. Otherwise later
        ones of its way would pass.
        """
        if self.transfer.is_fixed:
            return False
        _, arrived, _, is_here = self.standing(now)
        if self.slips:
            return arrived < WHOLE or self.leg.chunk >= WHOLE
        return not is_here and not self.transfer.has_way_of(transfer)

    def take(self, part: int, stands: Standing, now: Ps) -> Ps | None:
        """It gets a part of the edge from now on; when that changes by itself, if nothing happens elsewhere."""
        transfer, leg = self.transfer, self.leg
        served, arrived, feed, is_here = stands
        rate, changes = max((part << _SHIFT) // leg.drain_ps, min(part, 1)), None
        if transfer.is_fixed:
            self._set(now, served, rate)
            self.end_ps = max(transfer.tails[self.hop], now + 1)
            return self.end_ps
        if served > arrived:
            served = arrived
        if not is_here:
            rate = min(rate, feed)
        elif rate > feed and arrived < WHOLE:
            changes = now + _time_ps(arrived - served, rate - feed)
        self._set(now, served, rate)
        if not rate:
            self.end_ps = None
            return None
        left = WHOLE - served
        self.end_ps = now + _time_ps(left, rate)
        if self.slips:
            chunk_ps = now + _time_ps(leg.chunk - served, rate)
            changes = chunk_ps if changes is None else min(chunk_ps, changes)
        return self.end_ps if changes is None or changes > self.end_ps else changes

    def least_end(self, now: Ps) -> Ps:
        """No later than it is through: from now on it divides the edge with those bytes alone that are here already."""
        if self.transfer.is_fixed:
            return max(self.transfer.tails[self.hop], now)
        return self._least(now, WHOLE - self.at(now)[0])

    def least_start(self, now: Ps) -> Ps:
        """No later than the edge gives it something."""
        return self._least(now, 0)

    def _least(self, now: Ps, left: int) -> Ps:
        """When the edge can have served the share ``left`` of it, after or beside what waits here before it."""
        own_ps = left * self.leg.drain_ps >> BITS
        vc, weights = self.transfer.vc, self.leg.lane.weights
        waiting_ps = [0] * len(weights)
        is_before = True
        for other in self.leg.lane.shares:
            if other is self:
                is_before = False
                continue
            other_vc = other.transfer.vc
            precedes = is_before and not self.slips if other_vc == vc else other.limit == EDGE
            if precedes:
                waiting_ps[other_vc] += other.waits_ps(now)
        end = now + own_ps + waiting_ps[vc]
        for other_vc, waits_ps in enumerate(waiting_ps):
            if other_vc == vc or not waits_ps:
                continue
            if not weights[vc]:
                end += waits_ps if not weights[other_vc] and other_vc < vc else 0
            elif not weights[other_vc]:
                end += waits_ps
            else:
                end += min(waits_ps, own_ps * weights[other_vc] // weights[vc])
        if not self.rate and now < self.leg.lane.change_ps < FOREVER:
            end = max(end, self.leg.lane.change_ps + own_ps)
        return max(end, now + self._at_limit_ps(left))

    def waits_ps(self, now: Ps) -> Ps:
        """Time that the edge needs for those bytes of it that wait here."""
        arrived, served = self.transfer.inflow(self.hop, now)[0], self.at(now)[0]
        if not self._has_backlog(arrived, served):
            return 0
        if self.transfer.is_fixed:
            return (arrived - served) * self.leg.drain_ps >> BITS
        return self._at_limit_ps(arrived - served)

    def _at_limit_ps(self, share: int) -> Ps:
        limit = self.limit
        return (share * self.leg.drain_ps * EDGE // limit) >> BITS if limit else FOREVER

    def _has_backlog(self, arrived: int, served: int) -> bool:
        """Whether bytes wait here: its last ones, or more than the rounding of rates leaves."""
        return arrived >= WHOLE or (arrived - served) * self.leg.drain_ps >= _BACKLOG

    def _set(self, now: Ps, served: int, rate: int) -> None:
        if rate != self.rate:
            if now > self.since_ps:
                self._before = (self.since_ps, self.served, self.rate)
            self.since_ps, self.served, self.rate = now, served, rate


def _time_ps(share: int, rate: int) -> Ps:
    """Time that a share needs at a rate, but for what rounding has added to it."""
    time_ps = -((_NEAR - share) // rate)
    return time_ps if time_ps > 1 else 1


def _part(rate: int, drain_ps: Ps) -> int:
    """The part of an edge that a rate is, rounded up."""
    return -(-rate * drain_ps >> _SHIFT)
