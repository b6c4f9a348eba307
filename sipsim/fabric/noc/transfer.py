"""Transfers on their way over edges: where their bytes are, when they are through, and which of them an edge carries.

How much of a transfer has passed an edge is a *share*, ``WHOLE`` for all of it. On an edge that it has to itself a
transfer keeps one number, the time at which its head left: it sends at full bandwidth from then on, and waits for bytes
only as they come. Where it divides an edge with others it has a :class:`Share` there, with a rate that changes. What
comes to an edge is what has left the one before, a wire's delay ago.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sipsim.core import units
from sipsim.fabric.graph import Edge
from sipsim.fabric.noc.arbitration import EDGE, Want

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
    """One edge and those that are on it. ``line``: (transfer, hop) of those that are here, in the order of their heads,
    while it is undivided; then ``shares``, in the same order. ``free_ps``: when those that have left were through.
    ``turn_ps``: when the first that waits in line goes. ``stamp`` is of the division in force, ``change_ps``: when that
    changes by itself. ``expected``: channel, head and least end of the last transfer that started here.
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


Done = Callable[[Ps, Ps], None]

_NO_SHARES: dict[int, Share] = {}
_NO_PAST: dict[int, tuple[Ps, Share]] = {}
"""Of a transfer that has met no other."""


class Transfer:
    """Bytes on their way. ``starts``: when the head left each edge that it has passed; of one that it has to itself
    again, when it would have left at full bandwidth. ``past``: until when it divided such an edge, and how. ``tails``:
    when the tail is through, as far as that is known.

    ``lead_ps``: its end is told that much before its tail is through. ``is_fixed``: its end is known,
    and nothing that comes from now on changes it.
    """

    __slots__ = (
        "chunk_ps", "done", "due_ps", "head_ps", "is_fixed", "lead_ps", "legs", "limits", "past", "seq", "shares",
        "slack_ps", "source_head_ps", "source_tail_ps", "starts", "tails", "vc", "was_looked_at",
    )  # fmt: skip

    def __init__(
        self, seq: int, legs: list[Leg], vc: int, lead_ps: Ps, chunk_ps: Ps, done: Done, head_ps: Ps, tail_ps: Ps
    ) -> None:
        self.seq = seq
        self.legs = legs
        self.vc = vc
        self.lead_ps = lead_ps
        self.chunk_ps = chunk_ps
        self.slack_ps = max(lead_ps, legs[-1].onward_ps if legs else 0) + chunk_ps
        self.done: Done | None = done
        self.head_ps = self.source_head_ps = head_ps
        self.source_tail_ps = tail_ps
        self.starts: list[Ps] = []
        self.tails: list[Ps] = []
        self.shares = _NO_SHARES
        self.past = _NO_PAST
        self.limits: dict[int, int] | None = None
        self.is_fixed = False
        self.was_looked_at = False
        self.due_ps: Ps = 0

    @property
    def fix_before_ps(self) -> Ps:
        """How long before its least end the end is fixed: alone, when it is told; else when the last chunk starts."""
        return self.slack_ps if self.shares else self.lead_ps

    def has_way_of(self, other: "Transfer") -> bool:
        """Whether both go from one edge to one edge, and so must end in the order of their starts."""
        return self.legs[0].lane is other.legs[0].lane and self.legs[-1].lane is other.legs[-1].lane

    def note_share(self, share: Share) -> None:
        """It divides an edge from now on: when its tail is through there, and further on, is open."""
        if self.shares is _NO_SHARES:
            self.shares, self.past = {}, {}
        self.shares[share.hop] = share
        if not self.is_fixed:
            del self.tails[share.hop :]

    def tail(self, hop: int) -> Ps | None:
        """When the tail is through an edge; None while that may still change upstream, or its head has not come."""
        tails = self.tails
        if len(tails) <= hop < len(self.starts):
            self._add_tails(tails)
        return tails[hop] if hop < len(tails) else None

    def _add_tails(self, tails: list[Ps], at_present_rates: bool = False) -> None:
        """Add the tail at each edge that the head has passed, as far as it is known, or as the present rates give it
        one."""
        starts, legs, shares = self.starts, self.legs, self.shares
        known = len(tails)
        came = tails[-1] + legs[known - 1].onward_ps if known else self.source_tail_ps
        for index in range(known, len(starts)):
            leg = legs[index]
            if index in shares:
                share = shares[index]
                if share.end_ps is None or not (share.is_over or at_present_rates):
                    return
                end = share.end_ps
            else:
                end = starts[index] + leg.drain_ps
            if end < came:
                end = came
            tails.append(end)
            came = end + leg.onward_ps

    def start_at(self, hop: int) -> Ps:
        """When the head left an edge."""
        return self.past[hop][1].start_ps if hop in self.past else self.starts[hop]

    def came(self, hop: int) -> Ps:
        """When the tail came to an edge; the tail before it is known."""
        return self.tails[hop - 1] + self.legs[hop - 1].onward_ps if hop else self.source_tail_ps

    def is_through(self, hop: int, now: Ps) -> bool:
        """Whether all of it has passed an edge."""
        tail = self.tail(hop)
        return tail is not None and tail <= now

    def limit_at(self, hop: int) -> int:
        """The most of an edge that it may use (``Fabric.limit``)."""
        return EDGE if self.limits is None else self.limits.get(hop, EDGE)

    def is_dense(self, hop: int) -> bool:
        """Whether it uses an edge that it has to itself fully to its end, waiting for no byte."""
        return hop < len(self.starts) and self.tail(hop) == self.starts[hop] + self.legs[hop].drain_ps

    def came_straight(self, hop: int, follows: Lane) -> bool:
        """Whether it came to an edge from ``follows``, which is no faster, and met no other: its bytes never wait."""
        return (
            self.legs[hop].follows is follows
            and hop < len(self.starts)
            and self.starts[hop] == self.starts[hop - 1] + self.legs[hop - 1].onward_ps
        )

    def catches_up_ps(self, hop: int, now: Ps) -> Ps | None:
        """When an edge that it has to itself has sent the bytes that wait there, and sends them as they come from then
        on; None if none wait, FOREVER if it sends at full bandwidth as far as is known."""
        leg = self.legs[hop]
        arrived, feed = self.inflow(hop, now)
        waiting = arrived - (now - self.starts[hop]) * leg.cap
        if waiting <= 0:
            return None
        return FOREVER if arrived >= WHOLE or feed >= leg.cap else now - (-waiting // (leg.cap - feed))

    def served(self, hop: int, now: Ps) -> tuple[int, int]:
        """(share that has passed an edge which it has to itself, share a ps that passes)."""
        arrived, feed = self.inflow(hop, now)
        leg = self.legs[hop]
        full = ((now - self.starts[hop]) << BITS) // leg.drain_ps
        return (max(full, 0), leg.cap) if full < arrived else (arrived, min(feed, leg.cap))

    def inflow(self, hop: int, now: Ps) -> tuple[int, int]:
        """(share that has come to an edge, share a ps that comes), from the next edge upstream that it divides."""
        tails, legs, starts, shares, past = self.tails, self.legs, self.starts, self.shares, self.past
        if len(tails) >= hop and (tails[hop - 1] + legs[hop - 1].onward_ps if hop else self.source_tail_ps) <= now:
            return WHOLE, 0
        when, most, slowest = now, WHOLE, WHOLE
        most_rate = 0
        for index in range(hop - 1, -1, -1):
            leg = legs[index]
            when -= leg.onward_ps
            if index in shares:
                if index == hop - 1:
                    return shares[index].at(when)
                come, rate = shares[index].at(when)
                break
            if index in past and when < past[index][0]:
                come, rate = past[index][1].at(when)
                break
            cap = leg.cap
            if cap < slowest:
                slowest = cap
            full = (when - starts[index]) * cap
            if full < most or (full == most and cap < most_rate):
                most, most_rate = full if full > 0 else 0, cap
        else:
            come, rate = (WHOLE, 0) if when >= self.source_tail_ps else self._from_source(when)
        # Less than two ps is what rounding of rates leaves, but nothing may stay behind at the end.
        if most + 2 * most_rate < come or most < come == WHOLE:
            return most, most_rate
        return min(come, most), min(rate, slowest)

    def changes_on_the_way(self, hop: int, now: Ps) -> list[Ps]:
        """When rates that have changed upstream will reach an edge."""
        found, delay = [], 0
        for index in range(hop - 1, -1, -1):
            delay += self.legs[index].onward_ps
            share = self.shares.get(index)
            if share is not None:
                found.append((share.end_ps if share.is_over and share.end_ps is not None else share.since_ps) + delay)
            if index in self.past:
                found.append(self.past[index][0] + delay)
        return [when for when in found if when > now]

    def end_ps(self) -> Ps | None:
        """When the tail is at the end of the route; None while that may still change upstream."""
        legs = self.legs
        if not legs:
            return self.source_tail_ps
        tail = self.tail(len(legs) - 1)
        return None if tail is None else tail + legs[-1].onward_ps

    def fix_end(self, latest_ps: Ps) -> Ps | None:
        """The end, fixed at the present rates, whatever comes from now on; None where some edge gives it no rate, or so
        little that it would end after ``latest_ps``."""
        tails = list(self.tails)
        self._add_tails(tails, at_present_rates=True)
        if len(tails) < len(self.legs) or tails[-1] + self.legs[-1].onward_ps > latest_ps:
            return None
        self.tails, self.is_fixed = tails, True
        return self.end_ps()

    def next_change_ps(self, now: Ps) -> Ps:
        """When an edge that it divides is divided anew, if nothing else happens; FOREVER if none is."""
        changes = [share.leg.lane.change_ps for share in self.shares.values() if not share.is_over]
        return min((when for when in changes if when > now), default=FOREVER)

    def least_end(self, now: Ps) -> Ps:
        """No later than its end: from now on it goes on at full bandwidth."""
        legs, known, started = self.legs, len(self.tails), len(self.starts)
        came = self.came(known)
        for hop in range(known, started):
            leg, share = legs[hop], self.shares.get(hop)
            if share is None:
                tail = max(came, self.starts[hop] + leg.drain_ps)
            elif share.is_over and share.end_ps is not None:
                tail = share.end_ps
            else:
                tail = max(came, share.least_end(now))
            came = tail + leg.onward_ps
        if started == len(legs):
            return came
        following = legs[started]
        return max(came + following.way_ps, max(self.head_ps, self.release_ps(now)) + following.rest_ps)

    def release_ps(self, now: Ps) -> Ps:
        """No later than its head leaves the edge that it has come to."""
        hop = len(self.starts)
        if hop == len(self.legs):
            return now
        lane, release = self.legs[hop].lane, now
        share = self.shares.get(hop)
        if share is not None:
            return share.least_start(now)
        if (self, hop) not in lane.line:
            return now
        for other, at in lane.line:
            if other is self:
                break
            if at < len(other.starts):
                release = max(release, other.tail(at) or now)
            else:
                release += other.legs[at].drain_ps
        return release

    def _from_source(self, when: Ps) -> tuple[int, int]:
        head, tail = self.source_head_ps, self.source_tail_ps
        rate = WHOLE // (tail - head) if tail > head else 0
        return max((when - head) * rate, 0), rate
