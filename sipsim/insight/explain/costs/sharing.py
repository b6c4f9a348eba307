"""Which of the delayed transfers of a run belong to a span: what it took beyond its terms, edge by edge."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from sipsim.chips.ahbm.costs.prices.terms import Machine, Place, Ps, sum_ps
from sipsim.chips.ahbm.history import History
from sipsim.fabric.graph.graph import Node
from sipsim.fabric.noc.delays import Delayed
from sipsim.insight.explain.work.calls import Call
from sipsim.records.recorder import Span


class Excess(NamedTuple):
    """``delay_ps`` of a span on an edge of SIP ``rank``, shared with ``others``."""

    rank: int
    src: Node
    dst: Node
    others: str
    delay_ps: Ps


class Leg(NamedTuple):
    """A transfer that a call makes on SIP ``rank``."""

    rank: int
    src: str
    dst: str


class Sharings:
    """The delayed transfers of all ranks."""

    def __init__(self, histories: list[History], machine: Machine) -> None:
        self._machine = machine
        self._issue_ps = sum_ps(machine.issue())
        self._of_leg: dict[Leg, list[Delayed]] = defaultdict(list)
        for history in histories:
            for each in history.delayed:
                self._of_leg[Leg(history.rank, each.src, each.dst)].append(each)
        self._starts = {leg: [each.now_ps for each in some] for leg, some in self._of_leg.items()}

    def of(self, rank: int, span: Span, calls: tuple[Call, ...], excess_ps: Ps) -> list[Excess]:
        """The parts of what a span took beyond its terms that are known to come from shared edges, ``excess_ps`` at
        most in all."""
        found: list[Excess] = []
        for leg in (leg for call in calls for leg in self._legs(rank, call)):
            delayed = self._delayed(leg, span, excess_ps)
            for src, dst, others, delay_ps in () if delayed is None else delayed.shares:
                delay_ps = min(delay_ps, excess_ps)
                if delay_ps > 0:
                    found.append(Excess(leg.rank, src, dst, others, delay_ps))
                    excess_ps -= delay_ps
        return found

    def _delayed(self, leg: Leg, span: Span, excess_ps: Ps) -> Delayed | None:
        """Of the transfers of a leg within the span's time the one that explains its excess best."""
        some = self._of_leg.get(leg)
        if some is None:
            return None
        starts = self._starts[leg]
        # The transfer of a send is started when its command is issued, and its bytes leave at the end of that.
        issued_ps = span.start_ps - self._issue_ps
        within = some[bisect_left(starts, issued_ps) : bisect_right(starts, span.end_ps)]
        fitting = (each for each in within if each.end_ps <= span.end_ps)

        def unlike(each: Delayed) -> tuple[bool, Ps]:
            is_at_an_end = each.now_ps in (issued_ps, span.start_ps) or each.end_ps == span.end_ps
            return not is_at_an_end, abs(excess_ps - sum(share.delay_ps for share in each.shares))

        return min(fitting, key=unlike, default=None)

    def _legs(self, rank: int, call: Call) -> Iterator[Leg]:
        """The transfers of a call, the last first: the end of a span is known best."""
        match call.method:
            case "read" | "write" | "copy_out" | "copy_in":
                place, address, _ = call.args
                here, there = _pe(place), str(self._machine.node_of(address))
                yield Leg(rank, there, here)
                yield Leg(rank, here, there)
            case "message":
                src, direction, peer, _, read_pa = call.args
                source = rank if src[0] == peer.sip else src[0]
                slot = self._machine.system.graph.memory_node(peer.cube, peer.pe, peer.buffer_kind)
                yield from self._between(src, direction, peer.sip, slot, rank)
                if read_pa is not None:
                    yield Leg(source, str(self._machine.node_of(read_pa)), _pe(src))
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
        start, port = Node("pe", src[1], src[2]), self._machine.port_of(src[0], dst_sip, direction)
        pieces = self._machine.system.pieces(src[0], start, dst_sip, end, port)
        for sip, route in reversed(pieces):
            yield Leg(sip, str(route.start), str(route.edges[-1].dst))


def _pe(place: Place) -> str:
    return str(Node("pe", place[1], place[2]))
