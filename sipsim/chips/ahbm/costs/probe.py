"""The cost of one transfer, term by term: a raw DMA write, and the send/recv pair that moves the same bytes.

The sums of an uncontended transfer (wires and nodes, then the drain of the slowest edge) over the configured numbers,
without simulation. A raw DMA is the non-posted write, acknowledgement included; a pair lasts from
``tl.send`` to the return of ``tl.recv``, or of ``tl.release`` where the handle stands for the slot, with a receiver
that waits already (ADR-0023 D13, T5).
"""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace

from sipsim.chips.ahbm.address import LEAD_PE, PePlace, PhysAddr
from sipsim.chips.ahbm.collectives.neighbours import OPPOSITE, NeighbourTable
from sipsim.chips.ahbm.ipcq.credits import FABRIC, FAST_PATH, PIGGYBACK
from sipsim.chips.ahbm.ipcq.messages import COPY, IN_PLACE, WireFormat
from sipsim.chips.ahbm.memory.ports import MemoryPort, MemoryPorts
from sipsim.chips.ahbm.plan import Plan
from sipsim.config.schema import Resolved
from sipsim.core.engine import Engine
from sipsim.core.errors import ConfigError
from sipsim.core.units import BYTES_PER_KIB, ns_to_ps
from sipsim.fabric.graph import Edge, Node, Route, bottleneck

Ps = int
Pieces = list[tuple[int, Route]]
"""A route SIP by SIP, as ``RoutedSips.pieces`` has it."""

WIRES, LINKS, DRAIN, MEMORY, PE_IPCQ, PE_CPU = "wires", "links", "drain", "memory", "PE_IPCQ", "PE_CPU"
"""Kinds of terms that are no nodes."""
KIND_OF_NODE = {"router": "routers", "ucie": "ports", "io": "ports", "pe": "PE_DMA"}
"""Kinds of the terms of nodes; those of memories are ``MEMORY``, and those of other parts are called as the part."""


class Term(NamedTuple):
    """One summand. ``part`` groups those of one transfer, ``kind`` those of alike things."""

    part: str
    kind: str
    what: str
    ps: Ps


class Way(NamedTuple):
    """Two PEs, and the directions by which each has the other as its neighbour."""

    src: PePlace
    dst: PePlace
    direction: str
    reverse: str


class Drain(NamedTuple):
    """The edge that needs most time for the bytes of a transfer, and the SIP that it is in."""

    sip: int
    edge: Edge


class ProbePlan(Plan):
    """A system in which only two PEs are neighbours. Between SIPs the message leaves by the routed port.

    ``way``: theirs; the costs of others are the same whoever is wired. Kernels start at once on all SIPs: what is
    measured is a transfer, and no launch.
    """

    def __init__(self, resolved: Resolved, src: PePlace, dst: PePlace) -> None:
        self.src, self.dst = src, dst
        super().__init__(replace(resolved, components=replace(resolved.components, launch=None)))

    def way_between(self, src: PePlace, dst: PePlace) -> Way:
        """The way that a message between two PEs takes if they are neighbours."""
        near = src.sip == dst.sip
        direction = "E" if near else f"global_{self.system.next_port(src.sip, dst.sip)}"
        return Way(src, dst, direction, OPPOSITE[direction])

    @cached_property
    def way(self) -> Way:
        """From ``src`` to ``dst``."""
        return self.way_between(self.src, self.dst)

    @cached_property
    def memory_port(self) -> MemoryPort:
        """A port of the memory that rings are in; all of them cost the same."""
        return self._port(self.ipcq.buffer_kind, self.dst)

    def port_of(self, kind: str) -> MemoryPort:
        """A port of a memory of the receiver."""
        return self._port(kind, self.dst)

    @cached_property
    def first_slot(self) -> int:
        """The address of the receiver's first slot."""
        return next(e.peer.rx_base_pa for e in self.entries_of(self.src) if e.direction == self.way.direction)

    @cached_property
    def tcm(self) -> MemoryPort | None:
        """The TCM that the bytes come from, if its ports have a bandwidth."""
        port = self._port("tcm", self.src)
        return port if port.bandwidths else None

    def _port(self, space: str, place: PePlace) -> MemoryPort:
        system = self.system
        node = system.graph.memory_node(place.cube, place.pe, space)
        return MemoryPorts(system.graph.memories, Engine()).at(space, node)

    @cached_property
    def kind_of_node(self) -> dict[str, str]:
        """The kind of the term of a node, by the kind of the node."""
        graph = self.system.graph
        memories = {graph.memory_node(0, 0, space).kind: MEMORY for space in graph.memories}
        return {**memories, **KIND_OF_NODE}

    def _places(self) -> list[PePlace]:
        system = self.system
        for name, place in (("--from", self.src), ("--to", self.dst)):
            most = PePlace(system.n_sips - 1, system.n_cubes - 1, system.n_pes - 1)
            if any(number > last for number, last in zip(place, most, strict=True)):
                what = f"there is no such PE; the last SIP, cube and PE are {_name(most)}"
                raise ConfigError(f"{name} {_name(place)}: {what}")
        if self.src == self.dst:
            raise ConfigError(f"--to {_name(self.dst)}: the same PE as --from; name another")
        return sorted((self.src, self.dst))

    def _neighbour_table(self) -> NeighbourTable:
        src, dst = self.pe_of_rank.index(self.src), self.pe_of_rank.index(self.dst)
        return {src: {self.way.direction: dst}, dst: {self.way.reverse: src}}


class Probe:
    """One transfer of ``nbytes``, from a PE to the memory of another that the rings are in: ``way``, or the plan's.

    ``credit_mode``: how its credit returns.
    """

    def __init__(self, plan: ProbePlan, nbytes: int, way: Way | None = None) -> None:
        if nbytes > plan.ipcq.slot_size:
            raise ConfigError(
                f"--bytes {nbytes}: a message must fit a slot of {plan.ipcq.slot_size}; raise defaults.slot_size"
            )
        self.plan = plan
        self.nbytes = nbytes
        self.way = way = way or plan.way
        self._parts = plan.resolved.components
        self._wire_format = WireFormat(plan.ipcq.hw_strict)
        self._src_node, self._dst_node = (Node("pe", place.cube, place.pe) for place in (way.src, way.dst))
        self._memory = plan.system.graph.memory_node(way.dst.cube, way.dst.pe, plan.ipcq.buffer_kind)
        self.credit_mode = plan.credit_mode(way.dst.sip, way.src.sip, way.reverse)

    def raw(self) -> list[Term]:
        """The non-posted write: data, the memory's write latency, and an acknowledgement over the reverse route."""
        return [
            *self._issue("data"),
            *self._leaving(),
            *self._transfer("data", self.forward, self._wire_format.data_bytes(self.nbytes), *self._spans()),
            self._write_latency(),
            *self._transfer("acknowledgement", self._reverse(self._memory), self._parts.pe_dma.ack_bytes),
        ]

    def pair(self) -> list[Term]:
        """The send, the message, and the credit that ``recv`` blocks for under ``credit_return_mode``."""
        return [
            *self._issue("send"),
            Term("send", PE_IPCQ, PE_IPCQ, self.plan.ipcq_overhead_ps),
            *self._leaving(),
            *self._transfer("data", self.forward, self._wire_format.message_bytes(self.nbytes), *self._spans()),
            self._write_latency(),
            *self._seeing(),
            *self._latch(),
            *self._credit(),
        ]

    def walk_ps(self) -> Ps | None:
        """What a TLB miss adds to a command, and to no sum here; None where PEs have no MMU."""
        cost = self._parts.pe_mmu
        return None if cost is None else ns_to_ps(cost.walk_ns)

    def first_walks(self) -> int:
        """Pages of the first slot, for which the first send misses where rings have virtual addresses."""
        cost, way = self._parts.pe_mmu, self.plan.way
        va = next(e.peer.rx_base_va for e in self.plan.entries_of(way.src) if e.direction == way.direction)
        if cost is None or not va:
            return 0
        page_bytes = cost.page_KiB * BYTES_PER_KIB
        return (va + self.nbytes - 1) // page_bytes - va // page_bytes + 1

    def pair_ps(self) -> Ps:
        """The sum of :meth:`pair`."""
        return self.arrival_ps() + self.receive_ps()

    def arrival_ps(self) -> Ps:
        """From the send until the message is in its slot."""
        message_bytes = self._wire_format.message_bytes(self.nbytes)
        source, end = self._spans()
        access_ps = self.plan.memory_port.least_write_ps + sum(term.ps for term in self._leaving())
        start_ps = self.plan.issue_ps + self.plan.ipcq_overhead_ps
        return start_ps + _latency_ps(self.forward, message_bytes, source.ps, end.ps) + access_ps

    def receive_ps(self) -> Ps:
        """From then until ``recv`` returns: what it waits for the credit."""
        knobs, overhead_ps = self.plan.ipcq, self.plan.ipcq_overhead_ps
        free_ps = self._seeing_ps() + sum(term.ps for term in self._latch())
        if self.credit_mode == PIGGYBACK:
            return free_ps
        if self.credit_mode == FAST_PATH:
            return free_ps + self.credit_ps()
        first = self._leaving_credit()[0][1]
        return free_ps + overhead_ps + first.start_ps + first.drain_ps(knobs.ipcq_credit_size_bytes)

    def _leaving_credit(self) -> Pieces:
        """What bounds the rate at which a credit leaves the PE as a message."""
        (sip, first), *_ = self._reverse(self._dst_node)
        return [(sip, self.plan.system.until_left(first))]

    def next_receive_ps(self) -> Ps:
        """From a receive to the next one where messages wait: its issue, and what it does once it sees its message."""
        return self.plan.issue_ps + self.receive_ps() - self._seeing_ps()

    def credit_ps(self) -> Ps:
        """From then until the credit is back at the sender, if it leaves at once."""
        back = self._reverse(self._dst_node)
        return self.plan.ipcq_overhead_ps + _latency_ps(back, self.plan.ipcq.ipcq_credit_size_bytes)

    def drain(self, nbytes: int) -> Drain:
        """The slowest edge for a message of ``nbytes``, the first one of those that are alike."""
        return _slowest(self.forward, self._wire_format.message_bytes(nbytes))

    def drain_ps(self, nbytes: int) -> Ps:
        """What the slowest edge needs for a message of ``nbytes``."""
        return self.drain(nbytes).edge.drain_ps(self._wire_format.message_bytes(nbytes))

    @cached_property
    def forward(self) -> Pieces:
        """The route of the data."""
        way = self.way
        return self._pieces(way.src.sip, self._src_node, way.dst.sip, self._memory, way.direction)

    def _reverse(self, start: Node) -> Pieces:
        way = self.way
        return self._pieces(way.dst.sip, start, way.src.sip, self._src_node, way.reverse)

    def _pieces(self, src_sip: int, start: Node, dst_sip: int, end: Node, direction: str) -> Pieces:
        system = self.plan.system
        port = None if src_sip == dst_sip else system.port_towards(src_sip, dst_sip, direction)
        return system.pieces(src_sip, start, dst_sip, end, port)

    def _issue(self, part: str) -> Iterator[Term]:
        """The command on PE_CPU, where that takes time."""
        if self.plan.issue_ps:
            yield Term(part, PE_CPU, "issue", self.plan.issue_ps)

    def _seeing_ps(self) -> Ps:
        """From the arrival until the receiver's PE_CPU, which has waited since the send was given, sees it."""
        arrival_ps = self.arrival_ps()
        return self.plan.backpressure.seen_ps(0, arrival_ps) - arrival_ps

    def _seeing(self) -> Iterator[Term]:
        seeing_ps = self._seeing_ps()
        if seeing_ps:
            yield Term("receive", PE_CPU, "next poll" if self.plan.backpressure.polls else "wake-up", seeing_ps)

    def _latch(self) -> Iterator[Term]:
        """What the receiver does until the slot is free: a copy to its TCM, or ``tl.release``."""
        latch, kind, sip = self.plan.ipcq.latch, self.plan.ipcq.buffer_kind, self.way.dst.sip
        if latch == IN_PLACE:
            yield from self._issue("release")
        if latch != COPY:
            return
        memory, graph, nbytes = self._memory, self.plan.system.graph, self.nbytes
        ring, tcm = self.plan.port_of(kind), self.plan.port_of("tcm")
        if memory == self._dst_node:
            yield Term(COPY, MEMORY, f"{kind} read latency", ring.least_read_ps)
            dst = PhysAddr(*self.way.dst, "tcm", 0).encode()
            copying = _span(COPY, nbytes, kind, ring.copy_span_ps(self.plan.first_slot, dst, nbytes))
            yield from [copying] if copying.ps else []
        else:
            spans = (
                _span(COPY, nbytes, kind, ring.read_span_ps(nbytes)),
                _span(COPY, nbytes, "tcm", tcm.write_span_ps(nbytes)),
            )
            there, back = graph.route(self._dst_node, memory), graph.route(memory, self._dst_node)
            yield from self._transfer(COPY, [(sip, there)], self._parts.pe_dma.command_bytes)
            yield Term(COPY, MEMORY, f"{kind} read latency", ring.least_read_ps)
            yield from self._transfer(COPY, [(sip, back)], self._wire_format.data_bytes(nbytes), *spans)
        yield Term(COPY, MEMORY, "tcm write latency", tcm.least_write_ps)

    def _credit(self) -> Iterator[Term]:
        mode, nbytes = self.credit_mode, self.plan.ipcq.ipcq_credit_size_bytes
        if mode == PIGGYBACK:
            return
        reverse = self._reverse(self._dst_node)
        yield Term("credit", PE_IPCQ, PE_IPCQ, self.plan.ipcq_overhead_ps)
        if mode == FABRIC:
            sip, route = reverse[0]
            yield self._node("credit", sip, route.start, route.start_ps)
            yield self._drain("credit", _slowest(self._leaving_credit(), nbytes), nbytes)
        else:
            yield from self._transfer("credit", reverse, nbytes)

    def _write_latency(self) -> Term:
        port, kind = self.plan.memory_port, self.plan.ipcq.buffer_kind
        what = "write latency" if port.is_constant else "write latency, the least"
        return Term("data", MEMORY, f"{kind} {what}", port.least_write_ps)

    def _leaving(self) -> list[Term]:
        """The bytes' read from their TCM."""
        tcm = self.plan.tcm
        return [] if tcm is None else [Term("data", MEMORY, "tcm read latency", tcm.least_read_ps)]

    def _spans(self) -> tuple[Term, Term]:
        """What the memories at both ends need for the bytes."""
        kind, tcm, nbytes = self.plan.ipcq.buffer_kind, self.plan.tcm, self.nbytes
        taken_ps = 0 if tcm is None else tcm.read_span_ps(nbytes)
        return _span("data", nbytes, "tcm", taken_ps), _span(
            "data", nbytes, kind, self.plan.memory_port.write_span_ps(nbytes)
        )

    def _transfer(
        self, part: str, pieces: Pieces, nbytes: int, source: Term | None = None, end: Term | None = None
    ) -> Iterator[Term]:
        for sip, route in pieces:
            yield self._node(part, sip, route.start, route.start_ps)
            for edge in route.edges:
                if edge.is_link:
                    yield from self._latency(part, sip, edge)
                else:
                    yield Term(part, WIRES, f"wire from sip{sip}.{edge.src}", edge.wire_ps)
                    yield self._node(part, sip, edge.dst, edge.overhead_ps)
        edges = _edges(pieces)
        limit = bottleneck([edge for _, edge in edges], nbytes, source.ps if source else 0, end.ps if end else 0)
        for hop, ps in limit.stored:
            yield Term(part, DRAIN, f"a frame stored behind {self.edge_name(*edges[hop])}", ps)
        slowest = limit.hops[0]
        if source is not None and slowest < 0:
            yield source
        elif end is not None and slowest == len(edges):
            yield end
        else:
            yield self._drain(part, edges[slowest], nbytes)

    def _latency(self, part: str, sip: int, edge: Edge) -> Iterator[Term]:
        name = self.edge_name(sip, edge)
        for each in self.plan.system.link_of(sip, str(edge.src.place)).latency_parts():
            if each.ps:
                yield Term(part, LINKS, f"{name}, {each.what}" if each.what else name, each.ps)

    def _node(self, part: str, sip: int, node: Node, ps: Ps) -> Term:
        return Term(part, self.plan.kind_of_node.get(node.kind, node.kind), f"sip{sip}.{node}", ps)

    def _drain(self, part: str, drain: Drain, nbytes: int) -> Term:
        sip, edge = drain
        what = f"drain of {edge.wire_bytes(nbytes)} B at {gbytes_per_s(edge):g} GB/s"
        place = self.edge_name(sip, edge) if edge.is_link else f"from sip{sip}.{edge.src}"
        return Term(part, DRAIN, f"{what}, {place}", edge.drain_ps(nbytes))

    def edge_name(self, sip: int, edge: Edge) -> str:
        """An edge of a SIP, or the link out of it, in words."""
        if not edge.is_link:
            return f"sip{sip}.{edge.src}>sip{sip}.{edge.dst}"
        channel = self.plan.system.far_ends[sip, str(edge.src.place)].channel
        return f"link {self.plan.system.links[channel].name}"


def gbytes_per_s(edge: Edge) -> float:
    """The bandwidth of an edge, in GB/s."""
    return edge.bandwidth_bps / 10**9


def _latency_ps(pieces: Pieces, nbytes: int, source_ps: Ps = 0, end_ps: Ps = 0) -> Ps:
    head_ps = sum(route.head_ps() for _, route in pieces)
    return head_ps + bottleneck([edge for _, edge in _edges(pieces)], nbytes, source_ps, end_ps).ps


def _span(part: str, nbytes: int, space: str, ps: Ps) -> Term:
    """What a memory needs for the bytes."""
    return Term(part, DRAIN, f"{nbytes} B through {space}", ps)


def _slowest(pieces: Pieces, nbytes: int) -> Drain:
    return max(_edges(pieces), key=lambda drain: drain.edge.drain_ps(nbytes))


def _edges(pieces: Pieces) -> list[Drain]:
    return [Drain(sip, edge) for sip, route in pieces for edge in route.edges]


def _name(place: PePlace) -> str:
    return ".".join(map(str, place))


class Matrix(NamedTuple):
    """The times of the send/recv pair: ``ps[row][column]`` from the PE of the row to that of the column.

    None where they are the same.
    """

    title: str
    rows: list[PePlace]
    columns: list[PePlace]
    ps: list[list[Ps | None]]

    def pairs(self) -> list[tuple[Ps, PePlace, PePlace]]:
        """Each pair with its time, in order of its PEs."""
        return [
            (ps, src, dst)
            for src, row in zip(self.rows, self.ps, strict=True)
            for dst, ps in zip(self.columns, row, strict=True)
            if ps is not None
        ]


def sip_matrix(plan: ProbePlan, nbytes: int) -> Matrix:
    """The lead PEs of the cubes 0 of all SIPs."""
    leads = [PePlace(sip, 0, LEAD_PE) for sip in range(plan.system.n_sips)]
    return _matrix(plan, nbytes, "from each SIP (row) to each SIP (column)", leads, leads)


def cube_matrix(plan: ProbePlan, nbytes: int, src_sip: int, dst_sip: int) -> Matrix:
    """The lead PEs of all cubes of one SIP, and of another or the same."""
    rows, columns = ([PePlace(sip, cube, LEAD_PE) for cube in range(plan.system.n_cubes)] for sip in (src_sip, dst_sip))
    title = f"from each cube of SIP {src_sip} (row) to each cube of SIP {dst_sip} (column)"
    return _matrix(plan, nbytes, title, rows, columns)


def _matrix(plan: ProbePlan, nbytes: int, title: str, rows: list[PePlace], columns: list[PePlace]) -> Matrix:
    def pair_ps(src: PePlace, dst: PePlace) -> Ps | None:
        return None if src == dst else Probe(plan, nbytes, plan.way_between(src, dst)).pair_ps()

    return Matrix(title, rows, columns, [[pair_ps(src, dst) for dst in columns] for src in rows])
