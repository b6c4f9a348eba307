"""What happens on the edges of a SIP: heads come, wait, divide edges, and leave.

It is a simulation of its own beside the engine's, in the order of (time, start of the transfer), carried out up to now
when the fabric looks; nothing is planned ahead and nothing undone.

* On an edge that no other uses, a transfer passes at full bandwidth or as its bytes come: no event, two numbers.
* A transfer behind others of its channel waits for the tail of the last, if they use the edge fully.
* Any others that meet divide the edge (:func:`sipsim.fabric.noc.arbitration.divide`): a transfer whose bytes wait asks
for all
  of it, one that waits for bytes for as much as comes. The edge is divided anew when a transfer comes or is through,
  when its backlog is used up, and when the rate changes at which its bytes come. Such a change travels on with the
  bytes: it reaches the next edge that the transfer divides after the wires' delay, and after what waits in between.
* Transfers that all come from one edge, no faster than this one, cannot contend here.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from sipsim.fabric.noc.arbitration import EDGE, Want, divide
from sipsim.fabric.noc.transfer import FOREVER, WHOLE, Lane, Leg, Ps, Share, Standing, Transfer
from sipsim.fabric.noc.witness import FabricWitness

Event = tuple[Ps, int, int, Callable[..., None], Any]
"""(time, start number, count, action, its argument)."""


class Edges(ABC):
    """Heads on their way and edges that are divided, up to ``_until_ps``. ``_clock_ps``: the time of what happens.

    ``witness``: sees each division, if there is one.
    """

    def __init__(self) -> None:
        self._agenda: list[Event] = []
        self._pushed = 0
        self._until_ps: Ps = 0
        self._clock_ps: Ps = 0
        self.witness: FabricWitness | None = None

    @abstractmethod
    def _look_sooner(self, transfer: Transfer, now: Ps) -> None:
        """Its next look may be too late, because it goes before others of which the look assumes that they go first."""

    def _push(self, time_ps: Ps, seq: int, action: Callable[..., None], argument: Any) -> None:
        self._pushed += 1
        heappush(self._agenda, (time_ps, seq, self._pushed, action, argument))

    def _advance(self, until_ps: Ps) -> None:
        """Carry out what happens up to a time."""
        agenda = self._agenda
        self._until_ps = until_ps
        while agenda and agenda[0][0] <= until_ps:
            self._clock_ps, _, _, action, argument = heappop(agenda)
            action(argument)
        self._clock_ps = until_ps

    def _walk(self, transfer: Transfer) -> None:
        """Its head goes on from edge to edge, as long as nothing else happens before."""
        agenda, when, legs = self._agenda, self._clock_ps, transfer.legs
        starts, head, limits = transfer.starts, transfer.head_ps, transfer.limits
        for hop in range(len(starts), len(legs)):
            if head > when:
                if head > self._until_ps or (agenda and agenda[0][0] <= head and agenda[0] < (head, transfer.seq)):
                    transfer.head_ps = head
                    self._push(head, transfer.seq, self._walk, transfer)
                    return
                self._clock_ps = when = head
            leg = legs[hop]
            lane = leg.lane
            line = lane.line
            if line or lane.shares or limits:
                lane.forget(when)
                if lane.shares or (limits and hop in limits) or (line and not follows_straight(line, leg)):
                    transfer.head_ps = head
                    self._meet(lane, transfer, hop, when)
                    return
            if not line and head < lane.free_ps:
                head = lane.free_ps
            line.append((transfer, hop))
            starts.append(head)
            head += leg.onward_ps
        transfer.head_ps = head

    def _meet(self, lane: Lane, transfer: Transfer, hop: int, now: Ps) -> None:
        """A head finds others at an edge, or has a limit there: it waits in line, or the edge is divided."""
        if lane.shares:
            self._join(lane, Share(transfer, hop, now), now)
            return
        line = lane.line
        if not line or (transfer.limits and hop in transfer.limits):
            waits = False
        elif lane.turn_ps >= 0:  # all that wait are of one channel: others would have divided the edge
            waits = line[-1][0].vc == transfer.vc and line[0][0].is_dense(line[0][1])
        else:
            waits = all(o.vc == transfer.vc and (at >= len(o.starts) or o.is_dense(at)) for o, at in line)
        line.append((transfer, hop))
        if waits and lane.turn_ps < 0:
            self._call_turn(lane)
        elif not waits:
            self._share(lane, now)

    def _join(self, lane: Lane, share: Share, now: Ps, is_new: bool = False) -> None:
        """One more divides an edge, which is divided from now on if ``is_new``."""
        transfer = share.transfer
        earlier = [other for other in lane.shares if other.transfer.vc == transfer.vc]
        if share.limit == EDGE:
            share.slips = bool(earlier) and all(other.lets_slip(transfer, now) for other in earlier)
        lane.shares.append(share)
        for each in lane.shares if is_new else (share,):
            for when in each.transfer.changes_on_the_way(each.hop, now):
                self._push(when, each.transfer.seq, self._touch, lane)
        self._divide(lane, now)

    def _call_turn(self, lane: Lane) -> None:
        """The first that waits in line goes when those before it are through: one, or several that came straight, of
        which a later one may be through before an earlier one."""
        turn_ps = -1
        for transfer, hop in lane.line:
            if hop >= len(transfer.starts):
                break
            tail = transfer.tail(hop)
            assert tail is not None
            turn_ps = max(turn_ps, tail)
        assert turn_ps >= 0
        lane.turn_ps = turn_ps
        self._push(turn_ps, transfer.seq, self._turn, lane)

    def _turn(self, lane: Lane) -> None:
        now = self._clock_ps
        if lane.shares or lane.turn_ps != now:
            return
        lane.turn_ps = -1
        lane.forget(now)
        transfer, hop = lane.line[0]
        if hop < len(transfer.starts):
            if len(lane.line) > 1:
                self._share(lane, now)  # it was slowed since
            return
        transfer.starts.append(now)
        self._expect_to_catch_up(transfer, hop, now)
        if len(lane.line) > 1:
            if transfer.is_dense(hop):
                self._call_turn(lane)
            else:
                self._share(lane, now)
        self._head_leaves(transfer, transfer.legs[hop], now)
        self._walk(transfer)

    def _share(self, lane: Lane, now: Ps) -> None:
        """Those in line divide the edge from now on."""
        *shares, newest = [Share(other, at, now) for other, at in lane.line if not other.is_through(at, now)]
        lane.line.clear()
        lane.turn_ps = -1
        lane.shares = shares
        self._join(lane, newest, now, is_new=True)

    def _divide(self, lane: Lane, now: Ps) -> None:
        """Divide an edge anew among those that are not through."""
        lane.stamp += 1
        standing = []
        for share in lane.shares:
            stands = share.standing(now)
            if share.is_through(stands, now):
                share.is_over, share.end_ps = True, now
                lane.free_ps = now
                if share.transfer.due_ps > now + share.leg.way_ps - share.transfer.lead_ps:
                    self._look_sooner(share.transfer, now)
                self._pass_on(share.transfer, share.hop, now)
                share.leave()
            else:
                standing.append((share, stands))
        if len(standing) < len(lane.shares):
            lane.shares = [share for share, _ in standing]
        if not standing or self._returns_to_line(lane, now):
            return
        asking = [(share, stands, share.want(stands, now)) for share, stands in standing]
        asking.sort(key=_slips, reverse=True)
        wants = tuple([want for _, _, want in asking])
        parts = divide(wants, lane.weights)
        if self.witness is not None:
            self.witness.divided(lane, wants, parts)
        changes = []
        for (share, stands, _), part in zip(asking, parts, strict=True):
            rate = share.rate
            change = share.take(part, stands, now)
            if change is not None:
                changes.append((change, share.transfer.seq))
            if share.rate and share.hop == len(share.transfer.starts):
                self._leave(share, now)
            elif share.rate and not rate:
                self._look_sooner(share.transfer, now)
            if share.rate != rate:
                self._pass_on(share.transfer, share.hop, now)
        lane.change_ps = FOREVER
        if changes:
            lane.change_ps, seq = min(changes)
            self._push(lane.change_ps, seq, self._divide_again, (lane, lane.stamp))

    def _divide_again(self, of: tuple[Lane, int]) -> None:
        lane, stamp = of
        if lane.stamp == stamp:
            self._divide(lane, self._clock_ps)

    def _leave(self, share: Share, now: Ps) -> None:
        """A head leaves an edge that its transfer divides with others."""
        transfer = share.transfer
        share.start_ps = now
        transfer.starts.append(now)
        self._head_leaves(transfer, share.leg, now)
        if len(transfer.starts) < len(transfer.legs):
            self._push(transfer.head_ps, transfer.seq, self._walk, transfer)

    def _head_leaves(self, transfer: Transfer, leg: Leg, now: Ps) -> None:
        """Its head leaves an edge for which it has waited, perhaps sooner than its next look assumes."""
        transfer.head_ps = now + leg.onward_ps
        if now + leg.rest_ps - transfer.fix_before_ps < transfer.due_ps:
            self._look_sooner(transfer, now)

    def _set_limit(self, lane: Lane, transfer: Transfer, hop: int, now: Ps) -> None:
        """Divide an edge on which a transfer has a new limit, if it is there."""
        share = transfer.shares.get(hop)
        if share is not None:
            share.slips, share.limit = False, transfer.limit_at(hop)
        if lane.shares:
            self._divide(lane, now)
        elif (transfer, hop) in lane.line and not transfer.is_through(hop, now):
            self._share(lane, now)

    def _returns_to_line(self, lane: Lane, now: Ps) -> bool:
        """Whether one transfer has the edge to itself again, and those behind it wait for its tail."""
        first, *others = lane.shares
        transfer, hop = first.transfer, first.hop
        if first.limit != EDGE:
            return False
        for other in others:
            behind = other.transfer
            if behind.vc != transfer.vc or other.hop < len(behind.starts) or other.limit != EDGE:
                return False
        is_new = hop == len(transfer.starts)
        begun_ps = now if is_new else now - (first.at(now)[0] * first.leg.drain_ps + WHOLE // 2) // WHOLE
        if others:
            if transfer.is_fixed or (hop and transfer.tail(hop - 1) is None):
                return False
            if transfer.came(hop) > begun_ps + first.leg.drain_ps:
                return False
        lane.shares = []
        lane.line = [(share.transfer, share.hop) for share in (first, *others)]
        for share in (first, *others):
            del share.transfer.shares[share.hop]
        if is_new:
            self._leave(first, now)
        else:
            transfer.starts[hop] = begun_ps
            transfer.past[hop] = now, first
            self._pass_on(transfer, hop, now)
            if not first.rate:
                self._look_sooner(transfer, now)
        self._expect_to_catch_up(transfer, hop, now)
        if others:
            self._call_turn(lane)
        first.leave()
        return True

    def _pass_on(self, transfer: Transfer, hop: int, now: Ps) -> None:
        """A transfer leaves an edge at another rate, and so comes to the next edge that it divides, a wire later; but
        where bytes wait on an edge that it has to itself, when those have gone."""
        if transfer.is_fixed:
            return
        when, legs, starts = now, transfer.legs, transfer.starts
        for index in range(hop + 1, len(starts)):
            onward_ps = legs[index - 1].onward_ps
            when += onward_ps
            leg = legs[index]
            share = transfer.shares.get(index)
            if (share is not None and not share.is_over) or len(leg.lane.line) > 1:
                self._push(when, transfer.seq, self._touch, leg.lane)
            if share is not None:
                return
            is_straight = leg.follows is not None and starts[index] == starts[index - 1] + onward_ps
            if not (is_straight and index not in transfer.past) and self._expect_to_catch_up(transfer, index, when):
                return
        share = transfer.shares.get(len(starts))
        if share is not None:  # its head waits there
            self._push(when + legs[len(starts) - 1].onward_ps, transfer.seq, self._touch, share.leg.lane)

    def _expect_to_catch_up(self, transfer: Transfer, hop: int, now: Ps) -> bool:
        """Whether bytes of it wait at an edge that it has to itself: its rate falls when they have gone."""
        when = None if transfer.is_fixed else transfer.catches_up_ps(hop, now)
        if when is None:
            return False
        if when < FOREVER:
            self._push(when, transfer.seq, self._catch_up, (transfer, hop))
        return True

    def _catch_up(self, of: tuple[Transfer, int]) -> None:
        self._pass_on(*of, self._clock_ps)

    def _touch(self, lane: Lane) -> None:
        """Bytes come to an edge at another rate."""
        now, agenda = self._clock_ps, self._agenda
        if lane.shares:
            self._divide(lane, now)
            # Other rates that change here now: nothing has happened since, and to divide again would change nothing.
            while agenda and agenda[0][4] is lane and agenda[0][0] == now and agenda[0][3] == self._touch:
                heappop(agenda)
            return
        lane.forget(now)
        if len(lane.line) < 2 or all(at < len(other.starts) for other, at in lane.line):
            return
        first, at = lane.line[0]
        if at < len(first.starts) and not first.is_dense(at):
            self._share(lane, now)
        elif at < len(first.starts) and first.tail(at) != lane.turn_ps:
            self._call_turn(lane)


def _slips(asks: tuple[Share, Standing, Want]) -> bool:
    return asks[0].slips


def follows_straight(line: list[tuple[Transfer, int]], leg: Leg) -> bool:
    """Whether all in line came straight from the edge from which one more comes, so that it cannot contend."""
    follows = leg.follows
    return follows is not None and all(other.came_straight(at, follows) for other, at in line)
