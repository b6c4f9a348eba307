"""Costs of each span of a run: the terms of the span's work, delays in memories and on shared edges, and the rest."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.costs.prices import Place, Prices, Ps, Term, sum_ps, terms_of
from sipsim.chips.ahbm.history import History
from sipsim.chips.ahbm.ipcq.pe_ipcq import POLL
from sipsim.chips.ahbm.memory.ports import Wait
from sipsim.chips.ahbm.mesh import HOST_NODE
from sipsim.fabric.delays import Delayed
from sipsim.fabric.graph import Node
from sipsim.insight.explain.work import COPY, CREDIT, MESSAGE, READS, WRITES, Call, Calls, name_of, place_of
from sipsim.records.recorder import Span

Edge = tuple[int, Node, Node, str]
"""An edge of a SIP, or of a memory on the SIP, as the arguments of :meth:`Prices.edge_ps`."""
LateKey = tuple[Any, ...]
"""Key of a delay: (rank, is read, address, bytes) of an access; (rank, from, to) of a transfer; (rank, node, bytes) of
a message's write to a node. Keys of transfers and of message writes may have the end time as a last element."""


class SpanWork(NamedTuple):
    """The price of all spans with equal work: ``calls`` of ``Prices``, and ``terms`` on the machine of the run."""

    calls: tuple[Call, ...]
    terms: tuple[Term, ...]
    sum_ps: Ps


class Delay(NamedTuple):
    """A delay of a span beyond its work. ``edge``: the edge that the span shared with ``what``; None if ``what`` is a
    wait in a memory.
    """

    what: str
    edge: Edge | None
    ps: Ps


class Cost(NamedTuple):
    """The duration of a span, divided into work, delays and the rest."""

    work: SpanWork
    delays: tuple[Delay, ...]
    rest_ps: Ps


class Costs:
    """The costs of all spans of a run. Spans with equal work share one ``SpanWork`` object."""

    def __init__(self, prices: Prices, calls: Calls, histories: list[History]) -> None:
        self.prices = prices
        self._calls = calls
        self._issue_ps = sum_ps(prices.fixed("issue"))
        self._works: dict[tuple[Call, ...], tuple[SpanWork, Cost]] = {}
        self._late: dict[LateKey, list[Delayed | Wait]] = defaultdict(list)
        """Delays by key. Transfers have a second entry, by key and end. Writes have a second entry by rank, node, bytes
        and end, without the address, since messages that end at one node at one time are equivalent."""
        for history in histories:
            rank = history.rank
            for each in history.delayed:
                self._late[rank, each.src, each.dst].append(each)
                self._late[rank, each.src, each.dst, each.end_ps].append(each)
            for wait in history.waits:
                self._late[rank, wait.is_read, wait.address, wait.nbytes].append(wait)
                if not wait.is_read:
                    self._late[rank, wait.node, wait.nbytes, wait.end_ps].append(wait)

    def of(self, rank: int, span: Span) -> Cost:
        """Return the cost of a span that is not a wait. The parts of the cost add up to the span's duration."""
        calls = tuple(self._calls.of(rank, span))
        work, alone = self._works.get(calls) or self._works.setdefault(calls, _work(calls, self.prices))
        left_ps = span.end_ps - span.start_ps - work.sum_ps
        if not left_ps:
            return alone
        delays = []
        for key in self._keys(rank, span, calls) if calls and left_ps > 0 and self._late else ():
            for what, edge, delay_ps in self._delays(key, span, left_ps):
                ps = min(delay_ps, left_ps)
                if ps > 0:
                    delays.append(Delay(what, edge, ps))
                    left_ps -= ps
        return Cost(work, tuple(delays), left_ps)

    def _delays(self, key: LateKey, span: Span, left_ps: Ps) -> Iterator[Delay]:
        """Yield the delays of a key within a span's time. If several accesses or transfers fit, such as messages that
        a PE sends together, the access or transfer with delays closest to ``left_ps`` is used.
        """
        candidates = self._late.get(key, [])
        # A send's transfer starts when its command is issued, and its bytes leave when the issue ends. An operation's
        # transfer may start before its span, as its kernel runs ahead, but ends with it. An access starts in its span.
        is_access = bool(candidates) and isinstance(candidates[0], Wait)
        issued_ps = span.start_ps - (0 if is_access else self._issue_ps)
        first = bisect_left(candidates, issued_ps, key=lambda each: each.now_ps)
        stop = bisect_right(candidates, span.end_ps, key=lambda each: each.now_ps)
        fitting = [each for each in candidates[first:stop] if each.end_ps <= span.end_ps]

        def misfit(each: Delayed | Wait) -> tuple[bool, Ps]:
            is_at_an_end = each.now_ps in (issued_ps, span.start_ps) or each.end_ps == span.end_ps
            return not is_at_an_end, abs(left_ps - sum([part[-1] for part in each[-1]]))

        best = min(fitting or self._late.get((*key, span.end_ps), []), key=misfit, default=None)
        if isinstance(best, Wait):
            space = PhysAddr.decode(best.address).space.upper()
            yield from (Delay(f"waiting for {space}: {reason}", None, ps) for reason, ps in best.parts)
        elif best is not None:
            for src, dst, memory, others, ps in best.shares:
                yield Delay(others, (key[0], src, dst, memory), ps)

    def _keys(self, rank: int, span: Span, calls: tuple[Call, ...]) -> Iterator[LateKey]:
        """Yield the keys under which a span's delays may be found: accesses of the span, then transfers."""
        yield from self._accesses(rank, span)
        for call in calls:
            yield from self._transfers(rank, span, call)

    def _accesses(self, rank: int, span: Span) -> Iterator[LateKey]:
        place, facts, work = place_of(rank, span), span.facts, name_of(span)
        if place is None:
            return
        if work in READS or work in WRITES:
            fetched, address, nbytes, *_ = facts
            for each in fetched or ():
                yield rank, True, *each
            yield rank, work in READS, address, nbytes
            yield rank, work in WRITES, _tcm_of(place), nbytes
        elif work == COPY:
            src, dst, nbytes = facts
            yield rank, True, src, nbytes
            yield rank, False, dst, nbytes
        elif work == MESSAGE:
            source, queue, nbytes, read_pa = self._calls.message(span)
            peer = queue.peer
            yield source[0], True, _tcm_of(source), nbytes
            if read_pa is not None:
                yield source[0], True, read_pa, nbytes
            slot = self.prices.system.graph.memory_node(peer.cube, peer.pe, peer.buffer_kind)
            yield rank, str(slot), nbytes

    def _transfers(self, rank: int, span: Span, call: Call) -> Iterator[LateKey]:
        """Yield the keys of a call's transfers, the last transfer first, since the end of a span is known exactly."""
        match call.method:
            case "read" | "write" | "latch":
                place, address, *_ = call.args
                here, there = _pe(place), str(self.prices.node_of(address))
                yield rank, there, here
                yield rank, here, there
            case "math":
                place = place_of(rank, span)
                assert place is not None
                yield rank, _pe(place), _pe(place)
            case "message":
                src, direction, dst, space, _, read_pa, *back = call.args
                source = rank if src[0] == dst[0] else src[0]
                slot, pe = self.prices.system.graph.memory_node(dst[1], dst[2], space), Node("pe", src[1], src[2])
                if self.prices.has_doorbells:
                    yield from self._between(src[0], pe, dst[0], Node("pe", dst[1], dst[2]), direction, rank)
                    yield from self._between(dst[0], slot, src[0], pe, "".join(back), rank)
                yield from self._between(src[0], pe, dst[0], slot, direction, rank)
                if read_pa is not None:
                    yield source, str(self.prices.node_of(read_pa)), _pe(src)
            case "host_write":
                yield rank, str(HOST_NODE), str(self.prices.node_of(call.args[1]))
            case "host_read":
                yield rank, str(self.prices.node_of(call.args[1])), str(HOST_NODE)
            case "control_message":
                yield rank, *map(str, call.args[:2])
            case "credit":
                src, direction, peer = call.args
                start, end = (Node("pe", place[1], place[2]) for place in (src, peer))
                yield from self._between(src[0], start, peer[0], end, direction, rank)

    def _between(
        self, src_sip: int, start: Node, dst_sip: int, end: Node, direction: str, rank: int
    ) -> Iterator[LateKey]:
        """Yield the keys of a frame's transfers on each SIP of the route, the last SIP first."""
        if src_sip == dst_sip:
            yield rank, str(start), str(end)
            return
        for sip, route in reversed(self.prices.path(src_sip, start, dst_sip, end, direction)):
            yield sip, str(route.start), str(route.edges[-1].dst)


def _work(calls: tuple[Call, ...], prices: Prices) -> tuple[SpanWork, Cost]:
    """Return the work of calls, and the cost of a span without delays."""
    terms = tuple(each for call in calls for each in terms_of(call.price(prices)) if each.ps)
    work = SpanWork(calls, terms, sum_ps(terms))
    return work, Cost(work, (), 0)


def _pe(place: Place) -> str:
    return str(Node("pe", place[1], place[2]))


def _tcm_of(place: Place) -> int:
    """Return the address that records use for a PE's accesses to its TCM (:class:`sipsim.chips.ahbm.pe.dma.PeTcm`)."""
    return PhysAddr(*place, "tcm", 0).encode()


def rest_name(span: Span) -> str:
    """Return the name of the rest of a span in reports."""
    if name_of(span) == POLL:
        return "waiting for the next poll"
    if name_of(span) == CREDIT:
        return "credits: waiting for a message that carries them"
    return f"waiting in a {span.name}" if span.component.startswith("cube") else f"{span.component}: {span.name}"
