"""What one transfer costs, term by term: a raw DMA write, and the send/recv pair that moves the same bytes.

The sums of the timing contract (DESIGN section 5) over the configured numbers; nothing is simulated here. A raw DMA is
the non-posted write, acknowledgement included; a pair runs from ``tl.send`` to the return of ``tl.recv``, with a
receiver that waits (ADR-0023 D13, T5).
"""

from collections.abc import Iterator
from typing import NamedTuple

from sipsim.ccl.install import PePlace
from sipsim.noc.graph import Edge, Node, Route
from sipsim.pe.flits import WireFormat
from sipsim.plan import Plan
from sipsim.units import ns_to_ps

Ps = int


class Term(NamedTuple):
    """One summand. ``part`` groups those of one transfer."""

    part: str
    what: str
    ps: Ps


class Probe:
    """One transfer of ``nbytes`` from PE ``src`` to memory ``space`` of PE ``dst``, by default the one of the rings."""

    def __init__(self, plan: Plan, src: PePlace, dst: PePlace, nbytes: int, space: str | None = None) -> None:
        self.plan, self.src, self.dst, self.nbytes = plan, src, dst, nbytes
        self.space = space or plan.ipcq.buffer_kind
        self._parts = plan.resolved.components
        self._wire_format = WireFormat(plan.ipcq.hw_strict)
        graph = plan.system.graph
        self._src_node, self._dst_node = Node("pe", src.cube, src.pe), Node("pe", dst.cube, dst.pe)
        self._memory = graph.memory_node(dst.cube, dst.pe, self.space)

    def raw(self) -> list[Term]:
        """The non-posted write: data, the memory's write latency, and an acknowledgement over the way back."""
        there, back = self._route(self._src_node, self._memory), self._route_back(self._memory)
        return [
            *_transfer("data", there, self._wire_format.data_bytes(self.nbytes)),
            self._write_latency(),
            *_transfer("acknowledgement", back, self._parts.pe_dma.ack_bytes),
        ]

    def pair(self) -> list[Term]:
        """The send, the message and the credit that ``recv`` blocks for, by ``credit_return_mode``."""
        there = self._route(self._src_node, self._memory)
        overhead = self.plan.ipcq_overhead_ps
        return [
            Term("send", "PE_IPCQ", overhead),
            *_transfer("data", there, self._wire_format.message_bytes(self.nbytes)),
            self._write_latency(),
            *self._credit(overhead),
        ]

    def _credit(self, overhead: Ps) -> Iterator[Term]:
        mode, nbytes = self.plan.ipcq.credit_return_mode, self.plan.ipcq.ipcq_credit_size_bytes
        if mode == "piggyback":
            return
        back = self._route_back(self._dst_node)
        yield Term("credit", "PE_IPCQ", overhead)
        if mode == "fabric":
            back = back._replace(edges=back.edges[:1])
        yield from _transfer("credit", back, nbytes)

    def _write_latency(self) -> Term:
        cost = getattr(self._parts, self.space)
        return Term("data", f"{self.space} write latency", ns_to_ps(cost.write_latency_ns))

    def _route(self, start: Node, end: Node) -> Route:
        return self.plan.system.end_to_end(self.src.sip, start, self.dst.sip, end)

    def _route_back(self, start: Node) -> Route:
        return self.plan.system.end_to_end(self.dst.sip, start, self.src.sip, self._src_node)


def _transfer(part: str, route: Route, nbytes: int) -> Iterator[Term]:
    yield Term(part, f"{route.start}", route.start_ps)
    for edge in route.edges:
        yield Term(part, f"{edge.src} > {_end(edge)}, wire", edge.wire_ps)
        yield Term(part, _end(edge), edge.overhead_ps)
    slowest = max(route.edges, key=lambda edge: edge.drain_ps(nbytes))
    rate = f"{slowest.bandwidth_bps / 10**9:g} GB/s"
    on_wire = slowest.wire_bytes(nbytes)
    yield Term(part, f"drain of {on_wire} B at {rate} ({slowest.name})", slowest.drain_ps(nbytes))


def _end(edge: Edge) -> str:
    return "the far port" if edge.link else str(edge.dst)
