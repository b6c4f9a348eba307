"""Who uses which edge when: exact for a transfer by itself, a division of bandwidth where transfers meet.

A transfer is a train of bytes with a head and a tail. Each edge serves heads in the order in which they reach it. What
happens is a simulation of its own, in the order of (time, start of the transfer), carried out up to now when a transfer
starts or its end is looked for; nothing is planned ahead and nothing undone.

* On an edge that nobody else uses, a transfer passes at full bandwidth or as its bytes come: no event, two numbers.
* A transfer behind others of its channel waits for the tail of the last, if they use the edge fully.
* Any others that meet divide the edge (:func:`sipsim.noc.arbitration.divide`): a transfer whose bytes wait asks for all
  of it, one that waits for bytes for as much as comes. The edge is divided anew when a transfer comes or is through,
  when its backlog is used up, and when the rate changes at which its bytes come. Such a change travels on with the
  bytes: it reaches the next edge that the transfer divides after the wires' delay.
* Transfers that all come from one edge, no faster than this one, cannot contend here.

The engine has one event for a transfer, no later than its end can be told; it looks again if the end is later. An end
is fixed once what is left could pass within the last chunk's time at full bandwidth, as hardware does not interrupt a
chunk: its rates stay as they are from then on, others divide the rest, and so it can be told before it comes to pass.
"""

from collections.abc import Mapping
from functools import partial

from sipsim.engine import Engine
from sipsim.errors import InvariantViolation
from sipsim.noc.agenda import Agenda
from sipsim.noc.arbitration import COMPUTE, EDGE, Arbitration, divide
from sipsim.noc.graph import Edge, Route
from sipsim.noc.lane import WHOLE, Lane, Leg, Ps, Share
from sipsim.noc.transfer import Done, Transfer
from sipsim.noc.witness import FabricWitness

ONE_QUEUE = Arbitration(256, (1,))


class Fabric(Agenda):
    """All edges of one SIP and the transfers on them. ``arbitration`` None: all channels are one queue."""

    def __init__(self, engine: Engine, arbitration: Arbitration | None = None) -> None:
        super().__init__()
        self._engine = engine
        self._is_one_queue = arbitration is None
        self._arbitration = arbitration or ONE_QUEUE
        self._arbitration.check()
        self._lanes: dict[Edge, Lane] = {}
        self._ways: dict[tuple[int, int], tuple[Route, list[Leg], Ps, Ps, Ps]] = {}
        self._started = 0
        self.witness: FabricWitness | None = None

    @property
    def lanes(self) -> Mapping[Edge, Lane]:
        """The edges that were used so far."""
        return self._lanes

    def start(
        self,
        route: Route,
        nbytes: int,
        done: Done,
        vc: int = COMPUTE,
        lead_ps: Ps = 0,
        delay_ps: Ps = 0,
        span_ps: Ps = 0,
    ) -> Transfer:
        """Send ``nbytes`` over ``route``, now; call ``done(head_ps, tail_ps)`` when they are through.

        ``delay_ps`` comes before the head leaves the first node. ``span_ps``: the tail is here now and the
        head was here that much earlier (a train that arrives over a link). ``lead_ps``: see ``Transfer``.
        """
        if self._is_one_queue:
            vc = 0
        elif not 0 <= vc < len(self._arbitration.weights):
            raise ValueError(f"channel {vc} has no weight among {self._arbitration.weights}")
        now = self._engine.now_ps
        self._advance(now)
        self._started += 1
        _, legs, onward_ps, drain_ps, chunk_ps = self._ways.get((id(route), nbytes)) or self._way(route, nbytes)
        tail = now + delay_ps + route.start_ps
        transfer = Transfer(self._started, legs, vc, lead_ps, chunk_ps, done, tail - span_ps, tail)
        self._walk(transfer)
        wait_ps = legs[0].lane.expect(tail, legs[0].drain_ps, vc) if legs and not span_ps else 0
        self._schedule(transfer, tail + wait_ps + max(drain_ps - span_ps, 0) + onward_ps - lead_ps)
        return transfer

    def limit(self, transfer: Transfer, edge: Edge, bandwidth_bps: int | None) -> None:
        """Let a transfer use no more than ``bandwidth_bps`` of an edge of its route from now on; None for no limit.

        For what holds it back downstream, such as a buffer that fills. An end that is told stays.
        """
        now = self._engine.now_ps
        self._advance(now)
        hop = next(index for index, each in enumerate(transfer.legs) if each.lane.edge == edge)
        lane = transfer.legs[hop].lane
        limits = {**(transfer.limits or {}), hop: EDGE * (bandwidth_bps or edge.bandwidth_bps) // edge.bandwidth_bps}
        transfer.limits = {at: part for at, part in limits.items() if part < EDGE} or None
        if lane.shares:
            self._divide(lane, now)
        elif (transfer, hop) in lane.line and not transfer.is_through(hop, now):
            self._share(lane, now)

    def _way(self, route: Route, nbytes: int) -> tuple[Route, list[Leg], Ps, Ps, Ps]:
        legs: list[Leg] = []
        for edge in route.edges:
            lane = self._lanes.get(edge)
            if lane is None:
                lane = self._lanes[edge] = Lane(edge, self._arbitration.weights)
            legs.append(Leg.over(lane, nbytes, self._arbitration.chunk_bytes, legs[-1] if legs else None))
        onward_ps, drain_ps = sum(each.onward_ps for each in legs), max((each.drain_ps for each in legs), default=0)
        chunk_ps = route.edges[-1].drain_ps(min(nbytes, self._arbitration.chunk_bytes)) if legs else 0
        way = self._ways[id(route), nbytes] = (route, legs, onward_ps, drain_ps, chunk_ps)
        return way

    # --- telling ends ---------------------------------------------------------------------------------------------

    def _schedule(self, transfer: Transfer, due_ps: Ps) -> None:
        now = self._engine.now_ps
        transfer.due_ps = due_ps if due_ps > now else now
        self._engine.at(transfer.due_ps, partial(self._look, transfer))

    def _look(self, transfer: Transfer) -> None:
        """Tell the end of a transfer if it is time, else look again when it can be told at the earliest."""
        now = self._engine.now_ps
        self._advance(now)
        if transfer.done is None or transfer.due_ps != now:
            return  # it was scheduled anew since
        end_ps = transfer.end_ps()
        if end_ps is None:
            due_ps = self._fix_end(transfer, now)
            end_ps = transfer.end_ps() or 0
        else:
            due_ps = end_ps - transfer.lead_ps
        if due_ps > now:
            transfer.was_looked_at = True
            self._schedule(transfer, due_ps)
            return
        if due_ps < now and transfer.was_looked_at:
            end_ps = transfer.put_off(now + transfer.lead_ps)
        transfer.is_told = True
        if self.witness is not None:
            self.witness.told(transfer)
        done, transfer.done = transfer.done, None
        done(transfer.head_ps, end_ps)

    def _fix_end(self, transfer: Transfer, now: Ps) -> Ps:
        """Fix the end if what is left may pass within the slack; else when to look again."""
        slack_ps = transfer.slack_ps if transfer.shares else transfer.lead_ps
        least_ps = transfer.least_end(now)
        due_ps = least_ps - slack_ps
        if due_ps > now:
            return max(due_ps, now + transfer.chunk_ps // 2) if transfer.shares else due_ps
        end_ps = transfer.fix_end()
        if end_ps is not None:
            return end_ps - transfer.lead_ps
        if least_ps - transfer.lead_ps > now:
            return least_ps - transfer.lead_ps
        # Some edge gives it nothing yet: that changes with the next thing that happens anywhere, at the earliest.
        if not self._agenda:
            raise InvariantViolation(f"transfer {transfer.seq} stands on its way, and nothing will happen to it")
        return max(transfer.release_ps(now), self._agenda[0][0], now + 1)

    # --- what happens on edges ------------------------------------------------------------------------------------

    def _walk(self, transfer: Transfer) -> None:
        """Its head goes on from edge to edge, as long as nothing else happens before."""
        agenda, until, clock = self._agenda, self._until_ps, self._clock_ps
        legs, starts, head = transfer.legs, transfer.starts, transfer.head_ps
        hop, last, limits = len(starts), len(legs), transfer.limits
        while hop < last:
            when = head if head > clock else clock
            if when > until or (agenda and agenda[0] < (when, transfer.seq)):
                transfer.head_ps = head
                self._push(when, transfer.seq, self._walk, transfer)
                return
            self._clock_ps = clock = when
            lane = legs[hop].lane
            line = lane.line
            if (line or lane.shares or limits) and not self._passes(lane, transfer, hop, when):
                transfer.head_ps = head
                self._meet(lane, transfer, hop, when)
                return
            if not line and head < lane.free_ps:
                head = lane.free_ps
            line.append((transfer, hop))
            starts.append(head)
            head += legs[hop].onward_ps
            hop += 1
        transfer.head_ps = head

    def _passes(self, lane: Lane, transfer: Transfer, hop: int, now: Ps) -> bool:
        """Whether a head finds nobody at an edge with whom it could contend."""
        if lane.shares or (transfer.limits and hop in transfer.limits):
            return False
        line = lane.line
        if len(line) == 1:
            other, at = line[0]
            tail = other.tail(at)
            if tail is not None and tail <= now:
                lane.free_ps = tail
                del line[0]
                return True
        else:
            lane.forget(now)
        follows = transfer.legs[hop].follows
        return not line or (follows is not None and all(other.came_straight(at, follows) for other, at in line))

    def _meet(self, lane: Lane, transfer: Transfer, hop: int, now: Ps) -> None:
        """A head finds others at an edge: it waits in line, or they divide the edge."""
        if lane.shares:
            self._join(lane, Share(transfer, hop, now), now)
            return
        line = lane.line
        waits = bool(line) and all(o.vc == transfer.vc and (at >= len(o.starts) or o.is_dense(at)) for o, at in line)
        line.append((transfer, hop))
        if waits:
            if len(line) == 2 and line[0][1] < len(line[0][0].starts):
                self._call_turn(lane)
        else:
            self._share(lane, now)

    def _join(self, lane: Lane, share: Share, now: Ps, is_new: bool = False) -> None:
        """One more divides an edge, which is divided from now on if ``is_new``."""
        earlier = [other for other in lane.shares if other.transfer.vc == share.transfer.vc]
        share.slips = bool(earlier) and all(other.waits_for_bytes(now) for other in earlier)
        lane.shares.append(share)
        for each in lane.shares if is_new else (share,):
            for when in each.transfer.changes_on_the_way(each.hop, now):
                self._push(when, each.transfer.seq, self._touch, lane)
        self._divide(lane, now)

    def _call_turn(self, lane: Lane) -> None:
        """The first that waits in line goes when the one before it is through."""
        (first, at), (following, _) = lane.line[:2]
        tail = first.tail(at)
        assert tail is not None
        lane.turn_ps = tail
        self._push(tail, following.seq, self._turn, lane)

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
        transfer.head_ps = now + transfer.legs[hop].onward_ps
        self._walk(transfer)

    def _share(self, lane: Lane, now: Ps) -> None:
        """Those in line divide the edge from now on."""
        *shares, newest = [Share(other, at, now) for other, at in lane.line if not other.is_through(at, now)]
        lane.line.clear()
        lane.turn_ps = -1
        lane.shares = shares
        if len(shares) == 1 and shares[0].transfer.limits is None:
            shares[0].is_last_chunk = shares[0].has_last_chunk_here(now)
        self._join(lane, newest, now, is_new=True)

    def _divide(self, lane: Lane, now: Ps) -> None:
        """Divide an edge anew among those that are not through."""
        lane.stamp += 1
        over, live = [], []
        for share in lane.shares:
            if share.is_through(now):
                share.is_over, share.end_ps = True, now
                over.append(share)
            else:
                live.append(share)
        lane.shares = live
        for share in over:
            lane.free_ps = now
            self._pass_on(share.transfer, share.hop, now)
        if not live or self._returns_to_line(lane, now):
            return
        asking = []
        for share in live:
            stands = share.standing(now)
            asking.append((share, stands, share.want(stands, now)))
        asking.sort(key=lambda asks: not asks[0].slips)
        wants = [want for _, _, want in asking]
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
            if share.rate != rate:
                self._pass_on(share.transfer, share.hop, now)
        if changes:
            self._push(*min(changes), self._divide_again, (lane, lane.stamp))

    def _divide_again(self, of: tuple[Lane, int]) -> None:
        lane, stamp = of
        if lane.stamp == stamp:
            self._divide(lane, self._clock_ps)

    def _leave(self, share: Share, now: Ps) -> None:
        """A head leaves an edge that its transfer divides with others."""
        transfer = share.transfer
        share.start_ps = now
        transfer.starts.append(now)
        transfer.head_ps = now + share.leg.onward_ps
        if len(transfer.starts) < len(transfer.legs):
            self._push(transfer.head_ps, transfer.seq, self._walk, transfer)
        # It may go before others for which its next look would wait.
        due_ps = transfer.least_end(now) - transfer.slack_ps
        if due_ps < transfer.due_ps:
            self._schedule(transfer, due_ps)

    def _returns_to_line(self, lane: Lane, now: Ps) -> bool:
        """Whether one transfer has the edge to itself again, and those behind it wait for its tail."""
        first, *others = lane.shares
        transfer, hop = first.transfer, first.hop
        if first.limit != EDGE or any(o.transfer.vc != transfer.vc or o.hop < len(o.transfer.starts) for o in others):
            return False
        is_new = hop == len(transfer.starts)
        begun_ps = now if is_new else now - (first.at(now)[0] * first.leg.drain_ps + WHOLE // 2) // WHOLE
        if others:
            if transfer.is_told or (hop and transfer.tail(hop - 1) is None):
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
        self._expect_to_catch_up(transfer, hop, now)
        if others:
            self._call_turn(lane)
        return True

    def _pass_on(self, transfer: Transfer, hop: int, now: Ps) -> None:
        """A transfer leaves an edge at another rate, and so comes to the next edge that it divides, a wire later."""
        if transfer.is_told:
            return
        when = now
        for index in range(hop + 1, len(transfer.starts)):
            when += transfer.legs[index - 1].onward_ps
            lane = transfer.legs[index].lane
            share = transfer.shares.get(index)
            if share is not None and not share.is_over:
                self._push(when, transfer.seq, self._touch, lane)
                return
            if share is None and len(lane.line) > 1:
                self._push(when, transfer.seq, self._touch, lane)

    def _expect_to_catch_up(self, transfer: Transfer, hop: int, now: Ps) -> None:
        """Bytes of it have waited at an edge that it now has to itself: its rate falls when they have gone."""
        if not transfer.is_told:
            when = transfer.catches_up_ps(hop, now)
            if when is not None:
                self._push(when, transfer.seq, self._catch_up, (transfer, hop))

    def _catch_up(self, of: tuple[Transfer, int]) -> None:
        self._pass_on(*of, self._clock_ps)

    def _touch(self, lane: Lane) -> None:
        """Bytes come to an edge at another rate."""
        now = self._clock_ps
        if lane.shares:
            self._divide(lane, now)
            return
        lane.forget(now)
        if len(lane.line) < 2 or all(at < len(other.starts) for other, at in lane.line):
            return
        first, at = lane.line[0]
        if at < len(first.starts) and not first.is_dense(at):
            self._share(lane, now)
        elif at < len(first.starts) and first.tail(at) != lane.turn_ps:
            self._call_turn(lane)
