"""Fabric of a SIP: transfers are flows whose bytes wait at their source.

The transfers of one source on one channel are a :class:`Train`; they follow each other. When its turn comes, a transfer
is a flow: it uses all edges of its route at one rate (:mod:`sipsim.fabric.sharing`) until its last byte leaves the
source, and ends one head latency later. The network itself stores no bytes.

A flow that shares no edge needs one event, at its end; a later flow on the same edges compares times to see whether the
earlier flow has left. A flow that shares an edge, or is followed in its train, has a second event when its last byte
leaves. Bandwidth is divided after all other events of a picosecond.
"""

from collections import deque
from collections.abc import Hashable
from functools import partial
from itertools import count, islice, repeat

from sipsim.core.engine import AFTER, Callback, Engine
from sipsim.core.units import PS_PER_S, drain_ps
from sipsim.fabric.channels import COMPUTE, Arbitration
from sipsim.fabric.delays import Past
from sipsim.fabric.graph import Done, Edge, Route, bottleneck
from sipsim.fabric.sharing import (
    RATE_BITS,
    EdgeLoad,
    Shared,
    check_division,
    divide,
    joined,
    level_of,
    put_on,
    take_off,
)
from sipsim.fabric.transport import NEVER, EdgeUse, First, edge_use

Ps = int
BUSY = 0.7
"""Utilisation of an edge from which on effects matter that flows do not model (``UNSHOWN``). The mean slowdown of
random traffic typically differs from that of packets, with queues of eight per input, by 6 % at 30 % load of the
busiest edge, and by 22 % at 70 %. Packet networks that differ only in buffers differ as much (docs/decisions.md).
"""
UNSHOWN = (
    "head-of-line blocking in a router's input, the smaller share of far PEs on a chain, bursts that buffers take up, "
    "and tree saturation"
)
_MAX_PATHS = 4096
_FEW = 4
"""While divisions have fewer flows than this on average, each includes all flows: to select some would cost more."""
_BYTE = PS_PER_S << RATE_BITS
"""A byte in units of rate times ps: a flow with a rate of 1 moves one unit per picosecond."""


class _Path:
    """Path of transfers of one size: a route and its times. ``drain_ps``: over the slowest edge, at the rate ``limit``.
    ``is_mailed``: the route ends with a link; ``first_ps``: the time of the first of several packets on that link.
    ``starts``: transfers started so far. ``wires``: the edges outside of memories; all edges, if none is outside.
    """

    __slots__ = (
        "drain_ps", "first_ps", "head_ps", "is_mailed", "limit", "loads", "nbytes", "rest", "route", "starts", "wires",
    )  # fmt: skip

    def __init__(self, route: Route, nbytes: int, lines: list[EdgeLoad]) -> None:
        self.route = route
        self.nbytes = nbytes
        self.head_ps = route.head_ps()
        if lines and all(edge.framing is None for edge in route.edges):
            self.loads = tuple(zip(lines, repeat(nbytes)))
            self.drain_ps = drain_ps(nbytes, min([line.capacity for line in lines]) >> RATE_BITS)
        else:
            self.loads = tuple([(line, edge.wire_bytes(nbytes)) for line, edge in zip(lines, route.edges, strict=True)])
            self.drain_ps = bottleneck(route.edges, nbytes).ps
        self.rest = nbytes * _BYTE
        self.limit = self.rest // self.drain_ps if self.drain_ps else NEVER
        self.is_mailed = bool(lines) and route.edges[-1].is_link
        self.first_ps = route.edges[-1].first_ps(nbytes) if self.is_mailed else 0
        self.starts = 0
        self.wires = [line for line in lines if not line.edge.memory] or lines


class Train:
    """Transfers of one source on one channel, in the order of their starts: at most ``in_flight`` are ``flowing`` at a
    time, never two over the same wires. ``free_ps``: the earliest begin of the next transfer; ``wake_ps``: when the
    train checks whether that transfer can begin. ``gone``: the last transfer that left without an event.
    """

    __slots__ = ("flowing", "free_ps", "gone", "in_flight", "vc", "waiting", "wake_ps")

    def __init__(self, vc: int, in_flight: int) -> None:
        self.vc = vc
        self.in_flight = in_flight
        self.flowing: list[Flow] = []
        self.gone: Flow | None = None
        self.waiting: deque[Flow] = deque()
        self.free_ps: Ps = 0
        self.wake_ps: Ps = -1

    def least_mail_ps(self, now: Ps) -> Ps:
        """Return a time before which no transfer of the train is mailed; all transfers must end with a link."""
        least = [min(flow.least_first_ps(now), flow.least_leave_ps(now)) for flow in self.flowing]
        if self.waiting and len(least) < self.in_flight:
            beside = [each.path for each in islice(self.waiting, self.in_flight - len(least))]
            first_ps = min(path.first_ps or path.drain_ps for path in beside)
            least.append(max(self.waiting[0].least_head_ps, now) + first_ps)
        return min(least, default=NEVER)


class Flow(Shared):
    """Transfer, from its start to its end.

    ``head_ps``, ``tail_ps``: when its first and last byte are at its source, ``NEVER`` while unknown;
    ``least_head_ps``, ``least_tail_ps``: lower bounds. ``begin_ps``: when its first byte left, -1 before; ``own_ps``:
    the time from then to its last byte, if no flow delays it; ``leave_ps``: when its last byte leaves at its present
    rate. ``rest``: what is not sent at ``since_ps``. ``is_slow``: other flows have delayed it; ``is_on``: it is on its
    edges. ``event``: its end if ``is_alone``, else the leaving of its last byte. ``feeds``: the transfer that forwards
    its bytes. ``first``: the callback for its first packet, due at ``mail_ps`` (``mail``), without event at rate 0.
    """

    __slots__ = (
        "begin_ps", "done", "event", "feeds", "first", "head_ps", "is_alone", "is_on", "is_slow", "least_head_ps",
        "least_tail_ps", "leave_ps", "left", "mail", "mail_ps", "own_ps", "past", "path", "rest", "since_ps", "tail_ps",
        "train",
    )  # fmt: skip

    def __init__(
        self, train: Train, path: _Path, done: Done | None, left: Done | None, head_ps: Ps, tail_ps: Ps, least_ps: Ps
    ) -> None:
        self.train = train
        self.vc = train.vc
        self.path = path
        self.loads = path.loads
        self.nbytes = path.nbytes
        self.done = done
        self.left = left
        self.head_ps = head_ps
        self.tail_ps = tail_ps
        self.least_head_ps = least_ps
        self.least_tail_ps: Ps = 0 if tail_ps == NEVER else tail_ps
        self.begin_ps = -1
        self.leave_ps = NEVER
        self.rest = path.rest
        self.rate = self.since_ps = 0
        self.neck: EdgeLoad | None = None
        self.tight: list[tuple[EdgeLoad, int]] = []
        self.is_alone = self.is_on = self.is_slow = self.is_sure = False
        self.event: Callback | None = None
        self.feeds: Flow | None = None
        self.first: First | None = None
        self.mail: Callback | None = None
        self.mail_ps = NEVER
        self.past: Past | None = None
        self.own_ps = path.drain_ps
        self.limit = path.limit

    def begin(self, begin_ps: Ps, now: Ps) -> None:
        """Begin to send. The slowest edge limits the flow, or the transfer that brings its bytes."""
        self.begin_ps, self.since_ps = begin_ps, now
        if self.least_tail_ps - begin_ps > self.own_ps:
            self.own_ps = self.least_tail_ps - begin_ps
            self.limit = self.path.rest // self.own_ps
        if self.past is not None:
            alone_ps = max(self.head_ps + self.path.drain_ps, self.least_tail_ps)
            self.past.note_begin(begin_ps, self.own_ps, begin_ps + self.own_ps - alone_ps)

    def hand_on(self, following: "Flow") -> None:
        """Replace this flow by ``following``, of the same path, train and limit, on all edges."""
        self.is_on, following.is_on, following.bit = False, True, self.bit
        for line, _ in self.loads:
            line.flows[following] = line.flows.pop(self)

    def rest_at(self, now: Ps) -> int:
        """Return what the source has not sent yet, in the unit of :data:`_BYTE`."""
        rest = self.rest - self.rate * (now - self.since_ps)
        return rest if rest > 0 else 0

    def carried_ps(self) -> Ps:
        """Return the time that the bytes which had left by ``since_ps`` need at the flow's own limit."""
        return -(-self.own_ps * (self.path.rest - self.rest) // self.path.rest)

    def least_first_ps(self, now: Ps) -> Ps:
        """Return a time before which the first packet is not mailed, unless the last byte leaves before that."""
        if self.rate or self.first is None:
            return self.mail_ps
        return now + max(self.path.first_ps - self.carried_ps(), 0)

    def least_leave_ps(self, now: Ps) -> Ps:
        """Return a time before which the last byte does not leave, whichever other flows leave earlier."""
        least = now + self.rest_at(now) // self.limit if self.is_slow else self.begin_ps + self.own_ps
        return max(least, now if self.tail_ps == NEVER else self.tail_ps)


class FlowFabric:
    """Fabric of one SIP: all edges and the flows on them.

    ``history``: the transfers, for ``--explain``, or None if it is off. ``is_watched``: whether each division is
    checked. ``divisions``, ``touched``: the number of divisions of bandwidth, and of flows in all of them.
    """

    far_buffers: None = None

    def __init__(self, engine: Engine, arbitration: Arbitration) -> None:
        arbitration.check()
        self._engine = engine
        self._arbitration = arbitration
        self._lines: dict[Edge, EdgeLoad] = {}
        self._paths: dict[tuple[int, int], _Path] = {}
        self._trains: dict[Hashable, Train] = {}
        self._past_use: dict[Edge, EdgeUse] = {}
        self._changed: dict[EdgeLoad, bool] = {}
        self._level = NEVER
        self._bits = count()
        self._free_bits: list[int] = []
        self._is_due = False
        self.is_watched = False
        self.history: list[Past] | None = None
        self.divisions = self.touched = 0

    def train(self, source: Hashable, vc: int = COMPUTE, in_flight: int = 1, is_reply: bool = False) -> Train:
        """Return the train of ``source`` on a channel, the same at each call. ``is_reply`` has no effect here.

        Raises:
            ValueError: for a channel without a weight in the arbitration.
        """
        train = self._trains.get((source, vc))
        if train is None:
            channel = self._arbitration.weighted_channel(vc)
            train = self._trains[source, vc] = self._trains.setdefault((source, channel), Train(channel, in_flight))
        return train

    def start(
        self,
        train: Train,
        route: Route,
        nbytes: int,
        done: Done | None,
        left: Done | None = None,
        delay_ps: Ps = 0,
        span_ps: Ps = 0,
        feeds: Flow | None = None,
        is_fed: bool = False,
        first: First | None = None,
    ) -> Flow:
        """Send ``nbytes`` over ``route`` after the earlier transfers of ``train``.

        The last byte is at the source in ``delay_ps``, the first byte ``span_ps`` earlier. ``left(head_ps, tail_ps)``
        is called when the last byte leaves the source, with the arrival times at the end of the route. ``done`` is
        called with the same times at ``tail_ps``; if the route ends with a link, when the last byte leaves. ``first``
        is called for a transfer of several link packets, when the first one would have left at the link's rate.
        ``is_fed``: another transfer, started with this one as ``feeds``, brings the bytes (:meth:`feed`), the first
        byte no sooner than ``delay_ps`` and ``span_ps`` say. The node between both transfers counts once.

        Raises:
            ValueError: if ``nbytes`` is less than 1.
        """
        path = self._paths.get((id(route), nbytes)) or self._path(route, nbytes)
        path.starts += 1
        now = self._engine.now_ps
        tail_ps = now + delay_ps
        if is_fed:
            flow = Flow(train, path, done, left, NEVER, NEVER, tail_ps - span_ps)
        else:
            flow = Flow(train, path, done, left, tail_ps - span_ps, tail_ps, tail_ps - span_ps)
        flow.feeds, flow.first = feeds, first if path.first_ps else None
        if self.history is not None:
            flow.past = Past(route, nbytes, now)
            self.history.append(flow.past)
        train.waiting.append(flow)
        self._let_go(train)
        return flow

    def feed(self, fed: Flow, head_ps: Ps, least_tail_ps: Ps, tail_ps: Ps = NEVER) -> None:
        """Set the times at which a fed transfer's bytes are at its source: the first byte at ``head_ps``, the last at
        ``tail_ps`` (while that is ``NEVER``: no sooner than ``least_tail_ps``). If ``head_ps`` is earlier than the
        transfer's start allowed, all three times are postponed by the difference.
        """
        is_known, late_ps = fed.head_ps < NEVER, max(fed.least_head_ps - head_ps, 0)
        fed.head_ps, fed.least_tail_ps = head_ps + late_ps, least_tail_ps + late_ps
        fed.tail_ps = tail_ps = min(tail_ps + late_ps, NEVER)
        if not is_known:
            self._let_go(fed.train)
        elif fed.begin_ps >= 0 and not fed.is_on and fed.event is None:
            fed.leave_ps = tail_ps
            self._await(fed, tail_ps)

    def use(self) -> dict[Edge, EdgeUse]:
        """Return the use of every edge so far, summed over the counts of all paths: a start costs one addition."""
        return edge_use(((path.route, path.nbytes, path.starts) for path in self._paths.values()), self._past_use)

    def _path(self, route: Route, nbytes: int) -> _Path:
        if nbytes < 1:
            raise ValueError(f"a transfer of {nbytes} bytes cannot be sent; nbytes must be at least 1")
        if len(self._paths) >= _MAX_PATHS:
            self._past_use = self.use()
            self._paths.clear()  # transfers under way hold their paths
        channels = len(self._arbitration.weights)
        edges = [edge.shared for edge in route.edges]
        lines = [self._lines.get(edge) or self._lines.setdefault(edge, EdgeLoad(edge, channels)) for edge in edges]
        path = self._paths[id(route), nbytes] = _Path(route, nbytes, lines)
        return path

    # --- trains ---------------------------------------------------------------------------------------------------

    def _let_go(self, train: Train) -> None:
        """Begin the transfers that may begin now, and schedule the next one."""
        now, waiting = self._engine.now_ps, train.waiting
        while waiting:
            first = waiting[0]
            if train.flowing and self._must_wait(first, train, now):
                return
            if first.head_ps > now:
                if first.head_ps < NEVER and train.wake_ps != first.head_ps:
                    train.wake_ps = first.head_ps
                    self._engine.at(first.head_ps, partial(self._let_go, train))
                return
            waiting.popleft()
            train.flowing.append(first)
            self._begin(first, now)

    def _must_wait(self, first: Flow, train: Train, now: Ps) -> bool:
        before = train.flowing
        for flow in before[:]:
            if flow.is_alone and flow.leave_ps <= now:
                before.remove(flow)
                train.gone, train.free_ps = flow, max(train.free_ps, flow.leave_ps)
        if not before:
            return False
        if len(before) < train.in_flight and all(flow.path.wires != first.path.wires for flow in before):
            return False
        for flow in before:
            if flow.is_alone:
                self._await(flow, flow.leave_ps)
        return True

    def _begin(self, flow: Flow, now: Ps) -> None:
        """Begin a transfer, in the past if its head was at the source earlier, as for one that arrives over a link."""
        train = flow.train
        begin_ps = train.free_ps = flow.head_ps if flow.head_ps > train.free_ps else train.free_ps
        flow.begin(begin_ps, now)
        own_ps, fed = flow.own_ps, flow.feeds
        flow.leave_ps, flow.rate = begin_ps + own_ps, flow.limit
        if fed is not None:
            head_ps = begin_ps + flow.path.head_ps - fed.path.route.start_ps
            self.feed(fed, head_ps, head_ps + own_ps)
        if begin_ps < now and own_ps:
            flow.rest -= flow.rest * min(now - begin_ps, own_ps) // own_ps
        if flow.first is not None:
            self._plan_first(flow, now)
        if flow.leave_ps <= now:
            self._leave(flow)
            return
        gone, train.gone = train.gone, None
        if gone is not None and gone.is_on and gone.path is flow.path and gone.limit == flow.limit:
            gone.hand_on(flow)  # no flow is delayed on these edges
            self._plan(flow)
            return
        flow.bit = self._free_bits.pop() if self._free_bits else 1 << next(self._bits)
        flow.is_on = True
        for line, _ in flow.loads:
            for other in line.flows:
                if other.is_alone and other.leave_ps <= now:
                    self._drop_gone(line, now)
                    break
        full = put_on(flow)
        if full:
            self._changed |= dict.fromkeys(full, True)
            flow.leave_ps, self._level = NEVER, min(self._level, flow.limit)
            self._call_division()
        else:
            self._plan(flow)

    def _plan_first(self, flow: Flow, now: Ps) -> None:
        """Schedule the event of the first packet, unless the last byte could leave earlier. The last byte leaves no
        sooner than at the flow's own limit, so the event always precedes it.
        """
        mail_ps = max(flow.begin_ps + flow.path.first_ps, now)
        if mail_ps < flow.begin_ps + flow.own_ps:
            flow.mail_ps = mail_ps
            flow.mail = self._engine.at(mail_ps, partial(self._mail_first, flow))

    def _replan_first(self, flow: Flow, now: Ps) -> None:
        """Cancel the first packet's event if the rate is 0, else schedule it as if the transfer had begun later."""
        if flow.mail is not None:
            flow.mail.cancel()
        flow.mail, flow.mail_ps = None, NEVER
        if flow.rate:
            flow.begin_ps = now - flow.carried_ps()
            self._plan_first(flow, now)

    def _mail_first(self, flow: Flow) -> None:
        now, head_ps, first = self._engine.now_ps, flow.path.head_ps, flow.first
        if self._is_due:
            # The division of this picosecond may still delay the first packet.
            flow.mail = self._engine.at(now, partial(self._mail_first, flow), AFTER)
            return
        assert first is not None
        flow.first, flow.mail, flow.mail_ps = None, None, NEVER
        first(flow.begin_ps + head_ps, now + head_ps, flow.begin_ps + flow.own_ps + head_ps)

    def _drop_gone(self, line: EdgeLoad, now: Ps) -> None:
        for flow in [each for each in line.flows if each.is_alone and each.leave_ps <= now]:
            self._take_off(flow)

    def _plan(self, flow: Flow) -> None:
        """Schedule the event of a flow with a known rate: its last byte's leaving if that matters, else its end."""
        is_followed = flow.left or flow.feeds or flow.train.waiting or flow.path.is_mailed
        if flow.tight or is_followed or flow.tail_ps > flow.leave_ps:
            self._await(flow, flow.leave_ps)
            return
        flow.is_alone = True
        if flow.past is not None:
            flow.past.leave_ps = flow.leave_ps
        if flow.event is not None:
            flow.event.cancel()
        end_ps = flow.leave_ps + flow.path.head_ps
        flow.event = self._engine.at(end_ps, partial(self._end, flow, end_ps))

    def _await(self, flow: Flow, leave_ps: Ps) -> None:
        flow.is_alone = False
        if flow.event is not None:
            flow.event.cancel()
        flow.event = None if leave_ps == NEVER else self._engine.at(leave_ps, partial(self._leave, flow))

    def _leave(self, flow: Flow) -> None:
        """Handle that all bytes at the source have left; the transfer has left if the last byte was among them."""
        now, train, flow.event = self._engine.now_ps, flow.train, None
        if flow.tail_ps > now:
            self._take_off(flow)
            flow.leave_ps = flow.tail_ps
            if flow.past is not None:
                flow.past.drained_ps = now
            self._await(flow, flow.tail_ps)
            return
        flow.leave_ps = train.free_ps = now
        if flow.past is not None:
            flow.past.leave_ps = now
        if not self._hand_on(flow, now):
            self._take_off(flow)
            train.flowing.remove(flow)
        head_ps = flow.path.head_ps
        times = flow.begin_ps + head_ps, now + head_ps
        if flow.left is not None:
            flow.left(*times)
        if flow.feeds is not None:
            start_ps = flow.feeds.path.route.start_ps
            self.feed(flow.feeds, times[0] - start_ps, times[1] - start_ps, times[1] - start_ps)
        if flow.path.is_mailed:
            self._end(flow, times[1])
        elif flow.done is not None:
            self._engine.at(times[1], partial(self._end, flow, times[1]))
        if train.waiting:
            self._let_go(train)

    def _end(self, flow: Flow, tail_ps: Ps) -> None:
        """End a transfer: its tail is at the end of the route."""
        done, flow.done, flow.event = flow.done, None, None
        if done is not None:
            done(flow.begin_ps + flow.path.head_ps, tail_ps)

    def _hand_on(self, flow: Flow, now: Ps) -> bool:
        """Replace a flow on all edges by its train's next transfer if both are alike; return whether they were."""
        train = flow.train
        following = train.waiting[0] if train.waiting and flow.is_on else None
        if following is None or following.path is not flow.path or following.feeds is not None:
            return False
        drain_ps = flow.path.drain_ps
        if flow.own_ps > drain_ps or following.head_ps > now or following.least_tail_ps > now + drain_ps:
            return False
        train.waiting.popleft()
        train.flowing[train.flowing.index(flow)] = following
        flow.hand_on(following)
        following.begin(now, now)
        if following.first is not None:
            self._plan_first(following, now)
        following.rate, following.neck = flow.rate, flow.neck
        following.tight, following.is_sure = flow.tight, flow.is_sure
        self._replan(following, now)
        return True

    def _take_off(self, flow: Flow) -> None:
        """Remove a flow from its edges; the flows that it has delayed get new rates."""
        if not flow.is_on:
            return
        flow.is_on = False
        self._free_bits.append(flow.bit)
        for line in take_off(flow):
            self._changed.setdefault(line, False)
        if self._changed:
            self._level = min(self._level, flow.rate if flow.is_sure else 0)
            self._call_division()

    # --- dividing bandwidth ---------------------------------------------------------------------------------------

    def _call_division(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._engine.at(self._engine.now_ps, self._divide, AFTER)

    def _divide(self) -> None:
        """Divide bandwidth anew after flows have begun or left, among the flows whose rates may change. With a history,
        or if divisions are small (``_FEW``), divide it among all flows that tight edges connect.
        """
        now, weights = self._engine.now_ps, self._arbitration.weights
        is_whole = self.history is not None or self.touched < _FEW * self.divisions
        level = 0 if is_whole else level_of(self._changed, self._level, weights)
        flows, lines = joined(self._changed, level)
        self._is_due, self._changed, self._level = False, {}, NEVER
        self.divisions += 1
        self.touched += len(flows)
        if not flows:
            return
        rates = [flow.rate for flow in flows]
        divide(flows, lines, weights)
        if self.is_watched:
            check_division(flows)
        for flow, rate in zip(flows, rates, strict=True):
            if flow.rate != rate or flow.event is None or flow.is_alone or flow.past is not None:
                new, flow.rate = flow.rate, rate
                flow.rest, flow.since_ps, flow.rate = flow.rest_at(now), now, new
                if flow.first is not None and bool(rate) is not bool(new):
                    self._replan_first(flow, now)
                self._replan(flow, now)

    def _replan(self, flow: Flow, now: Ps) -> None:
        """Schedule the event of a flow after a division, unless its event is scheduled at the same time already."""
        flow.is_slow = flow.is_slow or flow.rate < flow.limit
        if not flow.is_slow:
            leave_ps = flow.begin_ps + flow.own_ps
        else:
            leave_ps = now + (flow.rest + flow.rate // 2) // flow.rate if flow.rate else NEVER
        if flow.past is not None:
            others = (each.past.path_text for each in flow.neck.flows if each is not flow) if flow.neck else ()
            flow.past.note_rate(now, flow.rate, flow.limit, flow.neck.edge if flow.neck else None, others)
        if leave_ps != flow.leave_ps or flow.event is None or (flow.is_alone and flow.tight):
            flow.leave_ps = leave_ps
            self._plan(flow)
