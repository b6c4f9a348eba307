"""Probe of two PEs as the only neighbours: price of a raw DMA write, and of a send/recv pair with the same bytes.

A raw DMA is the non-posted write with its acknowledgement. A pair lasts from ``tl.send`` to the return of ``tl.recv``
(or of ``tl.release`` if the handle refers to the slot); the receiver already waits at the send (ADR-0023 D13, T5).
"""

from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace

from sipsim.chips.ahbm.address import LEAD_PE, PePlace, PhysAddr
from sipsim.chips.ahbm.collectives.neighbours import OPPOSITE, NeighbourTable
from sipsim.chips.ahbm.costs.prices import PE_CPU, Path, Price, Prices, Stage, Term, sum_ps
from sipsim.chips.ahbm.ipcq.credits import FABRIC, FAST_PATH
from sipsim.chips.ahbm.ipcq.messages import COPY, IN_PLACE, WireFormat
from sipsim.chips.ahbm.plan import Plan
from sipsim.config.schema import Resolved
from sipsim.core.errors import ConfigError
from sipsim.core.units import BYTES_PER_KIB, ns_to_ps
from sipsim.fabric.graph import Edge, Node

Ps = int


class NeighbourPair(NamedTuple):
    """Pair of neighbours: PE ``src`` reaches ``dst`` by ``direction``, and ``dst`` reaches ``src`` by ``reverse``."""

    src: PePlace
    dst: PePlace
    direction: str
    reverse: str


class Drain(NamedTuple):
    """Slowest edge of a transfer, and the SIP that contains the edge."""

    sip: int
    edge: Edge


class ProbePlan(Plan):
    """Plan of a system in which only two PEs are neighbours. Between SIPs the message leaves by the routed port.

    ``neighbours``: the two PEs; costs between other PEs do not depend on the wiring. Kernels start at once on all
    SIPs, since the probe measures transfers and not launches.
    """

    def __init__(self, resolved: Resolved, src: PePlace, dst: PePlace) -> None:
        self.src, self.dst = src, dst
        super().__init__(replace(resolved, components=replace(resolved.components, launch=None)))

    def pair_between(self, src: PePlace, dst: PePlace) -> NeighbourPair:
        """Return the directions between two PEs, which must be neighbours."""
        near = src.sip == dst.sip
        direction = "E" if near else f"global_{self.system.next_port(src.sip, dst.sip)}"
        return NeighbourPair(src, dst, direction, OPPOSITE[direction])

    @cached_property
    def neighbours(self) -> NeighbourPair:
        """The directions between ``src`` and ``dst``."""
        return self.pair_between(self.src, self.dst)

    @cached_property
    def prices(self) -> Prices:
        """Prices of the system."""
        return Prices(self.system, self.ipcq)

    def _places(self) -> list[PePlace]:
        system = self.system
        for name, place in (("--from", self.src), ("--to", self.dst)):
            last = PePlace(system.n_sips - 1, system.n_cubes - 1, system.n_pes - 1)
            if any(number > limit for number, limit in zip(place, last, strict=True)):
                what = f"there is no such PE; the last SIP, cube and PE are {_name(last)}"
                raise ConfigError(f"{name} {_name(place)}: {what}")
        if self.src == self.dst:
            raise ConfigError(f"--to {_name(self.dst)}: the same PE as --from; name another PE")
        return sorted((self.src, self.dst))

    def _neighbour_table(self) -> NeighbourTable:
        src, dst = self.pe_of_rank.index(self.src), self.pe_of_rank.index(self.dst)
        return {src: {self.neighbours.direction: dst}, dst: {self.neighbours.reverse: src}}


class Probe:
    """Probe of a transfer of ``nbytes`` from a PE to a ring of another; ``pair``: the PEs (default: those of the plan).

    ``forward``: route of the data. ``credit_mode``: return mode of the credit for the transfer.
    """

    def __init__(self, plan: ProbePlan, nbytes: int, pair: NeighbourPair | None = None) -> None:
        if nbytes > plan.ipcq.slot_size:
            raise ConfigError(
                f"--bytes {nbytes}: a message must fit a slot of {plan.ipcq.slot_size} B; raise defaults.slot_size"
            )
        self._plan = plan
        self._nbytes = nbytes
        self._pair = pair = pair or plan.neighbours
        self._wire_format = WireFormat(plan.ipcq)
        self._ring = plan.ipcq.buffer_kind
        self._sent = pair.src, pair.direction, pair.dst, self._ring, nbytes
        slot = plan.system.graph.memory_node(pair.dst.cube, pair.dst.pe, self._ring)
        start = Node("pe", pair.src.cube, pair.src.pe)
        self.forward: Path = plan.prices.path(pair.src.sip, start, pair.dst.sip, slot, pair.direction)
        self.credit_mode = plan.credit_mode(pair.dst.sip, pair.src.sip, pair.reverse)

    def raw(self) -> Price:
        """Price the non-posted write: data, the memory's write latency, and an acknowledgement on the return route."""
        return [*self._issue("data"), *self._plan.prices.post(*self._sent, self._pair.reverse)]

    def pair(self) -> Price:
        """Price a send/recv pair: send, message, and the credit that ``recv`` blocks for (``credit_return_mode``)."""
        return [*self.arrival(), *self._seeing(), *self._taking()]

    def walk_ps(self) -> Ps | None:
        """Return the time that a TLB miss adds to a command, or None without an MMU. Prices exclude this time."""
        cost = self._plan.resolved.components.pe_mmu
        return None if cost is None else ns_to_ps(cost.walk_ns)

    def first_walks(self) -> int:
        """Return the number of TLB misses of the first send, one per page of its slot; 0 without virtual addresses."""
        cost, pair = self._plan.resolved.components.pe_mmu, self._plan.neighbours
        va = next(e.peer.rx_base_va for e in self._plan.entries_of(pair.src) if e.direction == pair.direction)
        if cost is None or not va:
            return 0
        page_bytes = cost.page_KiB * BYTES_PER_KIB
        return (va + self._nbytes - 1) // page_bytes - va // page_bytes + 1

    def arrival(self) -> Price:
        """Price a message from the send until the receiver's pointer moves (``Prices.message``)."""
        return [*self._issue("send"), *self._plan.prices.message(*self._sent, back=self._pair.reverse)]

    def next_receive(self) -> Price:
        """Price a receive of a message that waits already, until the next receive begins: issue, latch and credit."""
        return [*self._issue("receive"), *self._taking()]

    def credit(self) -> Price:
        """Price a credit that leaves at once, from the end of the latch to the credit's arrival at the sender."""
        return self._plan.prices.credit(self._pair.dst, self._pair.reverse, self._pair.src)

    def drain(self, nbytes: int) -> Drain:
        """Return the slowest edge for a message of ``nbytes``; the first of equal edges."""
        wire_bytes = self._wire_format.message_bytes(nbytes)
        edges = (Drain(sip, edge) for sip, route in self.forward for edge in route.edges)
        return max(edges, key=lambda drain: drain.edge.drain_ps(wire_bytes))

    def drain_ps(self, nbytes: int) -> Ps:
        """Return the time of the slowest edge for a message of ``nbytes``."""
        return self.drain(nbytes).edge.drain_ps(self._wire_format.message_bytes(nbytes))

    def edge_name(self, sip: int, edge: Edge) -> str:
        """Return the name of an edge of a SIP, or the name of a link."""
        if edge.is_link:
            return self._plan.prices.edge_name(sip, edge.src, edge.dst)
        return f"sip{sip}.{edge.src}>sip{sip}.{edge.dst}"

    def _issue(self, step: str) -> Price:
        """Price the issue of a command on PE_CPU; empty if the issue takes no time."""
        return self._plan.prices.fixed("issue", step=step) if self._plan.issue_ps else []

    def _seeing(self) -> Price:
        """Price the time from the arrival until the receiver's PE_CPU, which waits since the send, sees the message."""
        arrival_ps, wakes = sum_ps(self.arrival()), self._plan.backpressure
        seeing_ps = wakes.seen_ps(0, arrival_ps) - arrival_ps
        names = "receive", PE_CPU, "next poll" if wakes.polls else "wake-up"
        return [Stage(seeing_ps, lambda: [Term("", (), seeing_ps, *names)])] if seeing_ps else []

    def _taking(self) -> Price:
        """Price the time from the poll that sees a message until ``recv`` returns."""
        return [*self._latch(), *self._credit()]

    def _latch(self) -> Price:
        """Price the receiver's work until the slot is free: a copy to its TCM, or ``tl.release``."""
        latch, ring = self._plan.ipcq.latch, self._ring
        if latch == IN_PLACE:
            return self._issue("release")
        if latch != COPY:
            return []
        offset = self._plan.system.tcm.ipcq.offset if ring == "tcm" else 0
        return self._plan.prices.latch(self._pair.dst, PhysAddr(*self._pair.dst, ring, offset).encode(), self._nbytes)

    def _credit(self) -> Price:
        """Price the wait of ``recv`` for the credit."""
        if self.credit_mode == FABRIC:
            return self._plan.prices.injection(self._pair.dst, self._pair.reverse, self._pair.src)
        return self.credit() if self.credit_mode == FAST_PATH else []


def _name(place: PePlace) -> str:
    return ".".join(map(str, place))


class Matrix(NamedTuple):
    """Times of a send/recv pair: ``ps[row][column]`` from the row's PE to the column's PE; None if both are equal."""

    title: str
    rows: list[PePlace]
    columns: list[PePlace]
    ps: list[list[Ps | None]]

    def pairs(self) -> list[tuple[Ps, PePlace, PePlace]]:
        """Return (time, source PE, destination PE) of each pair, ordered by PEs."""
        return [
            (ps, src, dst)
            for src, row in zip(self.rows, self.ps, strict=True)
            for dst, ps in zip(self.columns, row, strict=True)
            if ps is not None
        ]


def sip_matrix(plan: ProbePlan, nbytes: int) -> Matrix:
    """Return the times between the lead PEs of cube 0 of all SIPs."""
    leads = [PePlace(sip, 0, LEAD_PE) for sip in range(plan.system.n_sips)]
    return _matrix(plan, nbytes, "from each SIP (row) to each SIP (column)", leads, leads)


def cube_matrix(plan: ProbePlan, nbytes: int, src_sip: int, dst_sip: int) -> Matrix:
    """Return the times from the lead PEs of SIP ``src_sip`` to the lead PEs of SIP ``dst_sip``, which may be equal."""
    rows, columns = ([PePlace(sip, cube, LEAD_PE) for cube in range(plan.system.n_cubes)] for sip in (src_sip, dst_sip))
    title = f"from each cube of SIP {src_sip} (row) to each cube of SIP {dst_sip} (column)"
    return _matrix(plan, nbytes, title, rows, columns)


def _matrix(plan: ProbePlan, nbytes: int, title: str, rows: list[PePlace], columns: list[PePlace]) -> Matrix:
    def pair_ps(src: PePlace, dst: PePlace) -> Ps | None:
        return None if src == dst else sum_ps(Probe(plan, nbytes, plan.pair_between(src, dst)).pair())

    return Matrix(title, rows, columns, [[pair_ps(src, dst) for dst in columns] for src in rows])
