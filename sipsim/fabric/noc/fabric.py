"""The transfers of one SIP: exact for one by itself, a division of bandwidth where they meet.

A transfer is a train of bytes with a head and a tail. Each edge serves heads in the order in which they reach it
(:mod:`sipsim.fabric.noc.edges`); here transfers start, and their ends are told.

The engine has an event for a transfer at a time that is no later than its end can be told; if the end turns out to be
later, the transfer is looked at again. An end is fixed once what is left could pass within the last chunk's time at
full bandwidth, as hardware does not interrupt a chunk: its rates stay as they are from then on and others divide the
rest, so it can be told before it comes to pass.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from sipsim.core.engine import Engine
from sipsim.core.errors import InvariantViolation
from sipsim.fabric.buffered.ports import FarBuffers
from sipsim.fabric.graph import Edge, Route
from sipsim.fabric.noc.arbitration import COMPUTE, EDGE, Arbitration
from sipsim.fabric.noc.edges import Edges
from sipsim.fabric.noc.transfer import FOREVER, Done, Lane, Leg, Ps, Transfer, legs_over
from sipsim.fabric.transport import EdgeUse, edge_use

_WAYS_KEPT = 4096


class _Way:
    """A route for a number of bytes; it is found by the route's id, so it keeps the route. ``chunk_ps``: a chunk's time
    on the last edge. ``most_lead_ps``: that and the last wire. ``transfers``: how many have started."""

    __slots__ = ("chunk_ps", "legs", "most_lead_ps", "nbytes", "route", "transfers")

    def __init__(self, route: Route, nbytes: int, legs: list[Leg], chunk_ps: Ps) -> None:
        self.route = route
        self.nbytes = nbytes
        self.legs = legs
        self.chunk_ps = chunk_ps
        self.most_lead_ps = legs[-1].onward_ps + chunk_ps if legs else 0
        self.transfers = 0


class Started(NamedTuple):
    """A transfer of ``nbytes`` that started at ``now_ps``, for :mod:`sipsim.fabric.noc.delays`."""

    transfer: Transfer
    route: Route
    nbytes: int
    now_ps: Ps


class Fabric(Edges):
    """All edges of one SIP and the transfers on them. ``history``: those that have started, if it is a list."""

    def __init__(self, engine: Engine, arbitration: Arbitration) -> None:
        super().__init__()
        arbitration.check()
        self._engine = engine
        self._arbitration = arbitration
        self._lanes: dict[Edge, Lane] = {}
        self._ways: dict[tuple[int, int], _Way] = {}
        self._past_use: dict[Edge, EdgeUse] = {}
        self._started = 0
        self._stopped: dict[int, Transfer] = {}
        self._late: list[Transfer] = []
        self._put_off_ps: dict[tuple[Lane | None, int], Ps] = {}
        self.history: list[Started] | None = None

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
        is_reply: bool = False,
    ) -> Transfer:
        """Send ``nbytes`` over ``route``, now; call ``done(head_ps, tail_ps)`` when they are through.

        ``delay_ps`` comes before the head leaves the first node. ``span_ps``: the tail is here now and the
        head was here that much earlier (a train that arrives over a link). ``lead_ps``: see ``Transfer``.
        ``is_reply`` changes nothing: no transfer waits for buffers here.

        Raises:
            ValueError: no byte, a channel without weight, a negative lead, or one of more than the last chunk's time on
                the last edge and its wire: an end is not fixed before that chunk starts.
        """
        vc = self._arbitration.queue_of(vc)
        way = self._ways.get((id(route), nbytes)) or self._way(route, nbytes)
        if not 0 <= lead_ps <= way.most_lead_ps:
            most = f"{way.most_lead_ps} ps, the last chunk's time on the last edge and its wire"
            raise ValueError(f"lead_ps is {lead_ps}; give 0 to {most}")
        way.transfers += 1
        legs, now = way.legs, self._engine.now_ps
        if span_ps and span_ps <= delay_ps and legs and span_ps <= legs[0].drain_ps:
            # The source is no slower than the first edge, which so never waits for its bytes.
            delay_ps -= span_ps
            span_ps = 0
        self._started = seq = self._started + 1
        tail = now + delay_ps + route.start_ps
        head = tail - span_ps
        transfer = Transfer(seq, legs, vc, lead_ps, way.chunk_ps, done, head, tail)
        self._push(head if head > now else now, seq, self._walk, transfer)
        end = tail
        if legs:
            first = legs[0]
            end += max(first.rest_ps - span_ps, first.way_ps)
            if not span_ps:
                end += first.lane.expect(tail, first.drain_ps, vc)
        self._schedule(transfer, end - lead_ps, now)
        if self.history is not None:
            self.history.append(Started(transfer, route, nbytes, now))
        return transfer

    far_buffers: FarBuffers | None = None

    def use(self) -> dict[Edge, EdgeUse]:
        """How much every edge was used so far. Counted by route, and summed up here: a transfer pays one addition."""
        return edge_use(((way.route, way.nbytes, way.transfers) for way in self._ways.values()), self._past_use)

    def limit(self, transfer: Transfer, edge: Edge, bandwidth_bps: int | None) -> None:
        """Let a transfer use no more than ``bandwidth_bps`` of an edge of its route from now on; None for no limit.

        For what holds it back downstream: a buffer that fills, a link without credits (0: it stops). Its bytes that
        wait there hold later transfers of its channel back. An end that is fixed stays.

        Raises:
            ValueError: an edge that the transfer does not use, or a negative bandwidth.
        """
        hop = next((index for index, each in enumerate(transfer.legs) if each.lane.edge == edge), None)
        if hop is None:
            raise ValueError(f"transfer {transfer.seq} does not pass edge {edge.name}")
        if bandwidth_bps is not None and bandwidth_bps < 0:
            raise ValueError(f"a limit is a bandwidth of 0 or more, not {bandwidth_bps}")
        now = self._engine.now_ps
        self._advance(now)
        if transfer.is_fixed:
            return
        most_bps = edge.bandwidth_bps if bandwidth_bps is None else bandwidth_bps
        part = min(-(-EDGE * most_bps // edge.bandwidth_bps), EDGE)
        limits = {**(transfer.limits or {}), hop: part}
        transfer.limits = {at: each for at, each in limits.items() if each < EDGE} or None
        lane = transfer.legs[hop].lane
        present = [transfer, *(each for each, _ in lane.line), *(share.transfer for share in lane.shares)]
        self._set_limit(lane, transfer, hop, now)
        stopped, self._stopped = self._stopped, {}
        for each in (*present, *stopped.values()):
            if each.done is not None and each.due_ps > now:
                self._schedule(each, now, now)

    def _way(self, route: Route, nbytes: int) -> _Way:
        if nbytes < 1:
            raise ValueError(f"a transfer has at least a byte, not {nbytes}")
        if len(self._ways) >= _WAYS_KEPT:
            self._past_use = self.use()
            self._ways.clear()  # transfers on their way keep their legs
        chunk_bytes = self._arbitration.chunk_bytes
        legs = legs_over([self._lanes.get(edge) or self._new_lane(edge) for edge in route.edges], nbytes, chunk_bytes)
        chunk_ps = route.edges[-1].drain_ps(min(nbytes, chunk_bytes)) if legs else 0
        way = self._ways[id(route), nbytes] = _Way(route, nbytes, legs, chunk_ps)
        return way

    def _new_lane(self, edge: Edge) -> Lane:
        lane = self._lanes[edge] = Lane(edge, self._arbitration.weights)
        return lane

    # --- telling ends ---------------------------------------------------------------------------------------------

    def _schedule(self, transfer: Transfer, due_ps: Ps, now: Ps) -> None:
        transfer.due_ps = due_ps if due_ps > now else now
        self._engine.at(transfer.due_ps, partial(self._look, transfer))

    def _look(self, transfer: Transfer) -> None:
        """Tell the end of a transfer if it is time, else look again when it can be told at the earliest."""
        now = self._engine.now_ps
        self._advance(now)
        if self._late:
            self._look_at_late()
        if transfer.done is None or transfer.due_ps != now:
            return  # it was scheduled anew since
        end_ps = transfer.end_ps()
        if end_ps is None:
            least_ps = transfer.least_end(now)
            if least_ps - transfer.fix_before_ps <= now:
                end_ps = transfer.fix_end(least_ps + transfer.chunk_ps + (least_ps - now >> 10))
            if end_ps is None:
                self._look_again(transfer, least_ps, now)
                return
        if self._put_off_ps:
            end_ps = max(end_ps, self._put_off_ps.get(_last_edge(transfer), 0) + 1)
        due_ps = end_ps - transfer.lead_ps
        if due_ps > now:
            transfer.was_looked_at = True
            self._schedule(transfer, due_ps, now)
            return
        if due_ps < now and transfer.was_looked_at:
            end_ps = self._put_off(transfer, now)
        transfer.is_fixed = True
        self._stopped.pop(transfer.seq, None)
        if self.witness is not None:
            self.witness.told(transfer, end_ps)
        done, transfer.done = transfer.done, None
        done(transfer.head_ps, end_ps)

    def _put_off(self, transfer: Transfer, now: Ps) -> Ps:
        """The end of a transfer that is found too late to tell it ``lead_ps`` before: as soon as that is possible, and
        before the ends of later transfers of its channel."""
        end_ps = self._put_off_ps[_last_edge(transfer)] = now + transfer.lead_ps
        return end_ps

    def _look_again(self, transfer: Transfer, least_ps: Ps, now: Ps) -> None:
        """Look when its end, no sooner than ``least_ps``, can be fixed; if it is stopped, when a limit changes."""
        transfer.was_looked_at = True
        if least_ps >= FOREVER:
            transfer.due_ps = FOREVER
            self._stopped[transfer.seq] = transfer
            return
        due_ps = least_ps - transfer.fix_before_ps
        if due_ps > now:
            due_ps = max(due_ps, now + transfer.chunk_ps // 2) if transfer.shares else due_ps
        else:  # some edge gives it nothing, or little, until it is divided anew
            change_ps = transfer.next_change_ps(now)
            if change_ps >= FOREVER and not self._agenda:
                raise InvariantViolation(f"transfer {transfer.seq} does not move, and nothing will happen to it")
            if change_ps >= FOREVER:
                change_ps = max(self._agenda[0][0], now + 1)
            due_ps = max(change_ps, least_ps - transfer.lead_ps)
        self._schedule(transfer, due_ps, now)

    def _look_sooner(self, transfer: Transfer, now: Ps) -> None:
        least_ps, at_ps = transfer.least_end(now), self._engine.now_ps
        due_ps = least_ps - transfer.fix_before_ps
        if least_ps < FOREVER and due_ps < transfer.due_ps:
            self._schedule(transfer, due_ps, at_ps)
            if due_ps < at_ps:
                self._late.append(transfer)

    def _look_at_late(self) -> None:
        """Tell those first that were due before now, in the order of their ends: what comes behind one of them is not
        told before it."""
        late, self._late = self._late, []
        for each in sorted(late, key=_known_end):
            self._look(each)


def _last_edge(transfer: Transfer) -> tuple[Lane | None, int]:
    """The last edge and the channel of a transfer, which keep its order."""
    return transfer.legs[-1].lane if transfer.legs else None, transfer.vc


def _known_end(transfer: Transfer) -> Ps:
    """When a transfer ends, as far as that is known."""
    end_ps = transfer.end_ps()
    return FOREVER if end_ps is None else end_ps
