"""A transfer on its way over edges: where its bytes are, and when they are through.

How much of a transfer has passed an edge is a *share*, ``WHOLE`` for all of it. On an edge that it has to itself a
transfer keeps one number, the time at which its head left: it sends at full bandwidth from then on, and waits for bytes
only as they come. Where it divides an edge with others it has a :class:`Share` there, with a rate that changes. What
comes to an edge is what has left the one before, a wire's delay ago.
"""

from collections.abc import Callable

from sipsim.fabric.noc.arbitration import EDGE
from sipsim.fabric.noc.transfer.lane import BITS, FOREVER, WHOLE, Lane, Leg, Ps, Share

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
