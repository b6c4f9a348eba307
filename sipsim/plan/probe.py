"""The cost of one transfer, term by term: a raw DMA write, and the send/recv pair that moves the same bytes.

The sums of the timing contract (DESIGN section 5) over the configured numbers, without simulation. A raw DMA is the
non-posted write, acknowledgement included; a pair lasts from ``tl.send`` to the return of ``tl.recv``, with a receiver
that waits already (ADR-0023 D13, T5).
"""

from collections.abc import Iterator
from typing import NamedTuple

from sipsim.ccl.neighbours import OPPOSITE, NeighbourTable
from sipsim.config.model import Resolved
from sipsim.engine import Engine
from sipsim.errors import ConfigError
from sipsim.ipcq.flits import WireFormat
from sipsim.memory.port import MemoryPorts
from sipsim.memory.store import MemoryStore
from sipsim.noc.graph import Edge, Node, Route
from sipsim.plan.plan import Plan
from sipsim.topology.address import PePlace

Ps = int


class Term(NamedTuple):
    """One summand. ``part`` groups those of one transfer."""

    part: str
    what: str
    ps: Ps


class ProbePlan(Plan):
    """A system in which only two PEs are neighbours. Between SIPs the message leaves by the routed port."""

    def __init__(self, resolved: Resolved, src: PePlace, dst: PePlace) -> None:
        self.src, self.dst = src, dst
        super().__init__(resolved)
        self.reverse = OPPOSITE[self.direction]

    def _places(self) -> list[PePlace]:
        system = self.system
        for name, place in (("--from", self.src), ("--to", self.dst)):
            most = PePlace(system.n_sips - 1, system.n_cubes - 1, system.n_pes - 1)
            if any(number > last for number, last in zip(place, most, strict=True)):
                what = f"there is no such PE; the last SIP, cube and PE are {_name(most)}"
                raise ConfigError(f"{name} {_name(place)}: {what}")
        if self.src == self.dst:
            raise ConfigError(f"--to {_name(self.dst)}: the same PE as --from; name another")
        near = self.src.sip == self.dst.sip
        self.direction = "E" if near else f"global_{system.next_port(self.src.sip, self.dst.sip)}"
        return sorted((self.src, self.dst))

    def _neighbour_table(self) -> NeighbourTable:
        src, dst = self.pe_of_rank.index(self.src), self.pe_of_rank.index(self.dst)
        return {src: {self.direction: dst}, dst: {OPPOSITE[self.direction]: src}}


class Probe:
    """One transfer of ``nbytes``, from the plan's ``src`` to the memory of ``dst`` that the rings are in."""

    def __init__(self, plan: ProbePlan, nbytes: int) -> None:
        if nbytes > plan.ipcq.slot_size:
            raise ConfigError(
                f"--bytes {nbytes}: a message must fit a slot of {plan.ipcq.slot_size}; raise defaults.slot_size"
            )
        self.plan = plan
        self.nbytes = nbytes
        self._parts = plan.resolved.components
        self._wire_format = WireFormat(plan.ipcq.hw_strict)
        src, dst = plan.src, plan.dst
        self._kind = plan.ipcq.buffer_kind
        self._src_node, self._dst_node = Node("pe", src.cube, src.pe), Node("pe", dst.cube, dst.pe)
        self._memory = plan.system.graph.memory_node(dst.cube, dst.pe, self._kind)

    def raw(self) -> list[Term]:
        """The non-posted write: data, the memory's write latency, and an acknowledgement over the reverse route."""
        return [
            *_transfer("data", self._forward(), self._wire_format.data_bytes(self.nbytes)),
            self._write_latency(),
            *_transfer("acknowledgement", self._reverse(self._memory), self._parts.pe_dma.ack_bytes),
        ]

    def pair(self) -> list[Term]:
        """The send, the message, and the credit that ``recv`` blocks for under ``credit_return_mode``."""
        return [
            Term("send", "PE_IPCQ", self.plan.ipcq_overhead_ps),
            *_transfer("data", self._forward(), self._wire_format.message_bytes(self.nbytes)),
            self._write_latency(),
            *self._credit(),
        ]

    def _credit(self) -> Iterator[Term]:
        mode, nbytes = self.plan.ipcq.credit_return_mode, self.plan.ipcq.ipcq_credit_size_bytes
        if mode == "piggyback":
            return
        reverse = self._reverse(self._dst_node)
        yield Term("credit", "PE_IPCQ", self.plan.ipcq_overhead_ps)
        if mode == "fabric":
            yield Term("credit", str(reverse.start), reverse.start_ps)
            yield _drain("credit", reverse.edges[0], nbytes)
        else:
            yield from _transfer("credit", reverse, nbytes)

    def _write_latency(self) -> Term:
        system, sip = self.plan.system, self.plan.dst.sip
        store = MemoryStore(sip, system.capacities, system.spaces_of_cubes)
        port = MemoryPorts(system.graph.memories, Engine(), store).at(self._kind, self._memory)
        what = "write latency" if port.is_constant else "write latency, the least"
        return Term("data", f"{self._kind} {what}", port.least_write_ps)

    def _forward(self) -> Route:
        plan = self.plan
        return self._route(plan.src.sip, self._src_node, plan.dst.sip, self._memory, plan.direction)

    def _reverse(self, start: Node) -> Route:
        plan = self.plan
        return self._route(plan.dst.sip, start, plan.src.sip, self._src_node, plan.reverse)

    def _route(self, src_sip: int, start: Node, dst_sip: int, end: Node, direction: str) -> Route:
        system = self.plan.system
        port = None if src_sip == dst_sip else system.port_towards(src_sip, dst_sip, direction)
        return system.end_to_end(src_sip, start, dst_sip, end, port)


def _transfer(part: str, route: Route, nbytes: int) -> Iterator[Term]:
    yield Term(part, str(route.start), route.start_ps)
    for edge in route.edges:
        yield Term(part, f"wire from {edge.src}", edge.wire_ps)
        yield Term(part, _end(edge), edge.overhead_ps)
    yield _drain(part, max(route.edges, key=lambda edge: edge.drain_ps(nbytes)), nbytes)


def _drain(part: str, edge: Edge, nbytes: int) -> Term:
    rate = f"{edge.bandwidth_bps / 10**9:g} GB/s"
    return Term(part, f"drain of {edge.wire_bytes(nbytes)} B at {rate}, from {edge.src}", edge.drain_ps(nbytes))


def _end(edge: Edge) -> str:
    return "the port at the link's far end" if edge.framing is not None else str(edge.dst)


def _name(place: PePlace) -> str:
    return ".".join(map(str, place))
