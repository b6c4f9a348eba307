"""What the accesses of a span waited for in memories: other accesses, rows, refresh
(:class:`sipsim.chips.ahbm.memory.ports.port.Wait`)."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.costs.prices.terms import Machine, Ps
from sipsim.chips.ahbm.history import History
from sipsim.chips.ahbm.memory.ports.port import Wait
from sipsim.insight.explain.work.calls import COPY, MESSAGE, READS, WRITES, Calls, place_of, work_of
from sipsim.records.recorder import Span


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
    """The waits of all ranks."""

    def __init__(self, histories: list[History], machine: Machine, calls: Calls) -> None:
        self._machine = machine
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
            node = self._machine.system.graph.memory_node(peer.cube, peer.pe, peer.buffer_kind)
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
