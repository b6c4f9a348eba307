"""What each span of a run is made of: the terms of its work, what memories and shared edges added, and what is left."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.costs.prices import Place, Prices, Ps, Term, sum_ps, terms_of
from sipsim.chips.ahbm.history import History
from sipsim.chips.ahbm.ipcq.pe_ipcq import POLL
from sipsim.chips.ahbm.memory.ports import Wait
from sipsim.fabric.delays import Delayed
from sipsim.fabric.graph import Node
from sipsim.insight.explain.work import COPY, CREDIT, MESSAGE, READS, WRITES, Call, Calls, place_of, work_of
from sipsim.records.recorder import Span


class Excess(NamedTuple):
    """``delay_ps`` of a span on an edge of SIP ``rank``, shared with ``others``."""

    rank: int
    src: Node
    dst: Node
    memory: str
    others: str
    delay_ps: Ps


class Leg(NamedTuple):
    """A transfer that a call makes on SIP ``rank``."""

    rank: int
    src: str
    dst: str


class Sharings:
    """The delayed transfers of all ranks, and which belong to a span: what it took beyond its terms, edge by edge."""

    def __init__(self, histories: list[History], prices: Prices) -> None:
        self._prices = prices
        self._issue_ps = sum_ps(prices.fixed("issue"))
        self._of_leg: dict[Leg, list[Delayed]] = defaultdict(list)
        for history in histories:
            for each in history.delayed:
                self._of_leg[Leg(history.rank, each.src, each.dst)].append(each)
        self._starts = {leg: [each.now_ps for each in some] for leg, some in self._of_leg.items()}
        self._ending: dict[tuple[Leg, Ps], list[Delayed]] = defaultdict(list)
        for leg, some in self._of_leg.items():
            for each in some:
                self._ending[leg, each.end_ps].append(each)

    def of(self, rank: int, span: Span, calls: tuple[Call, ...], excess_ps: Ps) -> list[Excess]:
        """The parts of what a span took beyond its terms that are known to come from shared edges, ``excess_ps`` at
        most in all."""
        found: list[Excess] = []
        for leg in (leg for call in calls for leg in self._legs(rank, span, call)):
            delayed = self._delayed(leg, span, excess_ps)
            for src, dst, memory, others, delay_ps in () if delayed is None else delayed.shares:
                delay_ps = min(delay_ps, excess_ps)
                if delay_ps > 0:
                    found.append(Excess(leg.rank, src, dst, memory, others, delay_ps))
                    excess_ps -= delay_ps
        return found

    def _delayed(self, leg: Leg, span: Span, excess_ps: Ps) -> Delayed | None:
        """Of the transfers of a leg within the span's time the one that explains its excess best."""
        some = self._of_leg.get(leg)
        if some is None:
            return None
        starts = self._starts[leg]
        # A send's transfer starts when its command is issued, and its bytes leave when the issue ends. An operation's
        # transfer may start earlier, since its kernel runs ahead, but it ends with the span.
        issued_ps = span.start_ps - self._issue_ps
        within = some[bisect_left(starts, issued_ps) : bisect_right(starts, span.end_ps)]
        fitting = [each for each in within if each.end_ps <= span.end_ps] or self._ending.get((leg, span.end_ps), [])

        def unlike(each: Delayed) -> tuple[bool, Ps]:
            is_at_an_end = each.now_ps in (issued_ps, span.start_ps) or each.end_ps == span.end_ps
            return not is_at_an_end, abs(excess_ps - sum(share.delay_ps for share in each.shares))

        return min(fitting, key=unlike, default=None)

    def _legs(self, rank: int, span: Span, call: Call) -> Iterator[Leg]:
        """The transfers of a call, the last first: the end of a span is known best."""
        match call.method:
            case "read" | "write" | "latch":
                place, address, *_ = call.args
                here, there = _pe(place), str(self._prices.node_of(address))
                yield Leg(rank, there, here)
                yield Leg(rank, here, there)
            case "math":
                place = place_of(rank, span)
                assert place is not None
                yield Leg(rank, _pe(place), _pe(place))
            case "message":
                src, direction, dst, space, _, read_pa = call.args
                source = rank if src[0] == dst[0] else src[0]
                slot = self._prices.system.graph.memory_node(dst[1], dst[2], space)
                yield from self._between(src, direction, dst[0], slot, rank)
                if read_pa is not None:
                    yield Leg(source, str(self._prices.node_of(read_pa)), _pe(src))
            case "control_message":
                src, dst, _ = call.args
                yield Leg(rank, str(src), str(dst))
            case "credit":
                src, direction, peer = call.args
                yield from self._between(src, direction, peer[0], Node("pe", peer[1], peer[2]), rank)

    def _between(self, src: Place, direction: str, dst_sip: int, end: Node, rank: int) -> Iterator[Leg]:
        """The transfers of a frame on its SIP, on those between, and on the last: that one first."""
        if src[0] == dst_sip:
            yield Leg(rank, _pe(src), str(end))
            return
        for sip, route in reversed(self._prices.path(src[0], Node("pe", src[1], src[2]), dst_sip, end, direction)):
            yield Leg(sip, str(route.start), str(route.edges[-1].dst))


def _pe(place: Place) -> str:
    return str(Node("pe", place[1], place[2]))


class _Access(NamedTuple):
    """An access of a span; all of its writes that end at one time at a node are alike, whatever their address."""

    rank: int
    is_read: bool
    address: int
    nbytes: int


class _Ending(NamedTuple):
    rank: int
    node: str
    nbytes: int
    end_ps: Ps


class Waits:
    """What the accesses of a span waited for in memories: rows, turns of the bus, the queue (:class:`Wait`)."""

    def __init__(self, histories: list[History], prices: Prices, calls: Calls) -> None:
        self._prices = prices
        self._calls = calls
        self._of_access: dict[_Access, list[Wait]] = defaultdict(list)
        self._ending: dict[_Ending, Wait] = {}
        for history in histories:
            for wait in history.waits:
                self._of_access[_Access(history.rank, wait.is_read, wait.address, wait.nbytes)].append(wait)
                if not wait.is_read:
                    self._ending[_Ending(history.rank, wait.node, wait.nbytes, wait.end_ps)] = wait

    def of(self, rank: int, span: Span, excess_ps: Ps) -> dict[str, Ps]:
        """What a span's accesses waited for, by its name; no more than ``excess_ps`` in all."""
        found: dict[str, Ps] = {}
        if not self._of_access:
            return found
        for wait in self._waits(rank, span, excess_ps):
            space = PhysAddr.decode(wait.address).space.upper()
            for reason, ps in wait.parts:
                ps = min(ps, excess_ps)
                if ps > 0:
                    name = f"waiting for {space}: {reason}"
                    found[name] = found.get(name, 0) + ps
                    excess_ps -= ps
        return found

    def _waits(self, rank: int, span: Span, excess_ps: Ps) -> Iterator[Wait]:
        """Of alike accesses within the span's time, such as messages of one PE that leave together, the one that fits
        its excess best."""

        def unlike(wait: Wait) -> tuple[bool, Ps]:
            is_at_an_end = wait.now_ps == span.start_ps or wait.end_ps == span.end_ps
            return not is_at_an_end, abs(excess_ps - sum(ps for _, ps in wait.parts))

        for access in self._accesses(rank, span):
            some = self._of_access.get(access, [])
            first = bisect_left(some, span.start_ps, key=lambda each: each.now_ps)
            stop = bisect_right(some, span.end_ps, key=lambda each: each.now_ps)
            fitting = [wait for wait in some[first:stop] if wait.end_ps <= span.end_ps]
            if fitting:
                yield min(fitting, key=unlike)
        if work_of(span) == MESSAGE:
            direction, _, nbytes, _, _ = self._calls.sending(span).facts
            place = place_of(span.cause[0], self._calls.sending(span))
            assert place is not None
            peer = self._calls.queue(place, direction).peer
            node = self._prices.system.graph.memory_node(peer.cube, peer.pe, peer.buffer_kind)
            slot = self._ending.get(_Ending(rank, str(node), nbytes, span.end_ps))
            if slot is not None:
                yield slot

    def _accesses(self, rank: int, span: Span) -> Iterable[_Access]:
        place, facts, work = place_of(rank, span), span.facts, work_of(span)
        if place is None or span.is_wait:
            return
        if work in READS or work in WRITES:
            fetched, address, nbytes, *_ = facts
            for each in fetched or ():
                yield _Access(rank, True, *each)
            yield _Access(rank, work in READS, address, nbytes)
            yield _Access(rank, work in WRITES, _tcm_of(place), nbytes)
        elif work == COPY:
            src, dst, nbytes = facts
            yield _Access(rank, True, src, nbytes)
            yield _Access(rank, False, dst, nbytes)
        elif work == MESSAGE:
            sending = self._calls.sending(span)
            source = place_of(span.cause[0], sending)
            _, _, nbytes, read_pa, _ = sending.facts
            if source is not None:
                yield _Access(source[0], True, _tcm_of(source), nbytes)
                if read_pa is not None:
                    yield _Access(source[0], True, read_pa, nbytes)


def _tcm_of(place: tuple[int, int, int]) -> int:
    """Where a PE's own accesses to its TCM are noted (:class:`sipsim.chips.ahbm.pe.dma.PeTcm`)."""
    return PhysAddr(*place, "tcm", 0).encode()


class Work(NamedTuple):
    """What alike spans do, and what that costs on the machine of the run: ``sum_ps`` in all."""

    calls: tuple[Call, ...]
    terms: tuple[Term, ...]
    sum_ps: Ps


class Cost(NamedTuple):
    """``waits``: what the accesses of a span waited for in memories, by name; ``excess``: what sharing edges added to
    its work; ``rest_ps``: the rest of its duration.
    """

    work: Work
    waits: tuple[tuple[str, Ps], ...]
    excess: tuple[Excess, ...]
    rest_ps: Ps


class Costs:
    """The costs of all spans of a run. Spans that are alike have the same ``Work`` object."""

    def __init__(self, prices: Prices, calls: Calls, histories: list[History]) -> None:
        self.prices = prices
        self._calls = calls
        self._sharings = Sharings(histories, prices)
        self._waits = Waits(histories, prices, calls)
        self._works: dict[tuple[Call, ...], tuple[Work, Cost]] = {}

    def of(self, rank: int, span: Span) -> Cost:
        """The cost of a span that is no wait. Its parts add up to its duration."""
        calls = tuple(self._calls.of(rank, span))
        work, alone = self._works.get(calls) or self._works.setdefault(calls, self._work(calls))
        excess_ps = span.end_ps - span.start_ps - work.sum_ps
        if not excess_ps:
            return alone
        if not work.calls or excess_ps < 0:
            return Cost(work, (), (), excess_ps)
        waits = tuple(self._waits.of(rank, span, excess_ps).items())
        excess_ps -= sum(ps for _, ps in waits)
        excess = tuple(self._sharings.of(rank, span, work.calls, excess_ps)) if excess_ps else ()
        return Cost(work, waits, excess, excess_ps - sum(each.delay_ps for each in excess))

    def _work(self, calls: tuple[Call, ...]) -> tuple[Work, Cost]:
        """The work, and its cost where nothing is added."""
        terms = tuple(each for call in calls for each in terms_of(call.price(self.prices)) if each.ps)
        work = Work(calls, terms, sum_ps(terms))
        return work, Cost(work, (), (), 0)


def rest_name(span: Span) -> str:
    """What the rest of a span is called."""
    if work_of(span) == POLL:
        return "waiting for the next poll"
    if work_of(span) == CREDIT:
        return "credits: waiting for a message that carries them"
    return f"waiting in a {span.name}" if span.component.startswith("cube") else f"{span.component}: {span.name}"
