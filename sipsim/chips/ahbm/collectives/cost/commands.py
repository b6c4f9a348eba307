"""Times of a worker's commands and of its messages' ways where nothing else is under way, by the config alone.

The equations are those of :mod:`sipsim.chips.ahbm.costs.prices.terms`, which lies above and knows each place; here
places stand for others that are alike.
"""

from functools import cache

from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.collectives.launch.workers import Place
from sipsim.chips.ahbm.ipcq.backpressure import backpressure_of
from sipsim.chips.ahbm.ipcq.credits import FABRIC, FAST_PATH, credit_mode_of
from sipsim.chips.ahbm.ipcq.messages.flits import WireFormat
from sipsim.chips.ahbm.ipcq.messages.latch import COPY, IN_PLACE
from sipsim.chips.ahbm.memory.ports.port import MemoryPorts
from sipsim.chips.ahbm.memory.store.store import MemoryStore
from sipsim.chips.ahbm.pe.math.math import PeMath
from sipsim.chips.ahbm.system import System
from sipsim.collectives.group.traffic import Port
from sipsim.config.schema.model import IpcqKnobs
from sipsim.core.engine import Engine
from sipsim.core.units import ns_to_ps
from sipsim.fabric.graph.graph import Edge, Node, Route, bottleneck, port_node

Ps = int
Ways = tuple[Port, ...]
"""The ports by which a message leaves one SIP after the other."""


class Times:
    """Of a system, with the queue settings ``knobs`` of an algorithm."""

    def __init__(self, system: System, knobs: IpcqKnobs) -> None:
        self._system = system
        self._knobs = knobs
        parts = system.resolved.components
        store = MemoryStore(0, system.capacities, system.spaces_of_cubes)
        self._memories = MemoryPorts(system.graph.memories, Engine(), store)
        self._wire_format = WireFormat(knobs.hw_strict)
        self.math = PeMath(parts.pe_math)
        self._wakes = backpressure_of(knobs, parts.pe_cpu)
        self._ack_bytes, self._command_bytes = parts.pe_dma.ack_bytes, parts.pe_dma.command_bytes
        self._ipcq_ps = ns_to_ps(parts.pe_ipcq.overhead_ns)
        self.issue_ps = ns_to_ps(parts.pe_cpu.issue_ns)

    @property
    def wake_ps(self) -> Ps:
        """From an event to the PE that waits for it: a wake-up, or half an interval of polls and a look."""
        wakes = self._wakes
        return wakes.look_ps + wakes.most_ps // 2 if wakes.polls else wakes.wake_ps

    def load_ps(self, nbytes: int) -> tuple[Ps, Ps]:
        """Of a load from the HBM beside a PE: from its command to its first bytes, and the time of its bytes."""
        graph, here = self._system.graph, Node("pe", 0, 0)
        there = graph.memory_node(0, 0, "hbm")
        port = self._memories.at("hbm", there)
        ask, back = graph.route(here, there), graph.route(there, here)
        taken_ps = bottleneck(back.edges, self._wire_format.data_bytes(nbytes), port.read_span_ps(nbytes)).ps
        return ask.latency_ps(self._command_bytes) + port.least_read_ps + back.head_ps(), taken_ps

    def store_ps(self, nbytes: int) -> Ps:
        """Of a store to the HBM beside a PE."""
        graph, here = self._system.graph, Node("pe", 0, 0)
        there = graph.memory_node(0, 0, "hbm")
        port = self._memories.at("hbm", there)
        way = graph.route(here, there)
        taken_ps = bottleneck(way.edges, self._wire_format.data_bytes(nbytes), 0, port.write_span_ps(nbytes)).ps
        return way.head_ps() + taken_ps + port.least_write_ps + graph.route(there, here).latency_ps(self._ack_bytes)

    def latch_ps(self, nbytes: int) -> Ps:
        """Of the copy of a message out of its slot."""
        if self._knobs.latch != COPY:
            return self.issue_ps if self._knobs.latch == IN_PLACE else 0
        tcm = self._memories.at("tcm", Node("pe", 0, 0))
        here = PhysAddr(0, 0, 0, "tcm", 0).encode()
        return tcm.least_read_ps + tcm.copy_span_ps(here, here, nbytes) + tcm.least_write_ps

    def credit_ps(self, place: Place, ways: Ways) -> Ps:
        """For how long a receive is blocked by its credit, which goes back to where the message came from."""
        if self._knobs.latch == IN_PLACE:
            return 0
        nbytes = self._knobs.ipcq_credit_size_bytes
        is_die_to_die = all(self._system.link_of(*way).is_die_to_die for way in ways)
        mode = credit_mode_of(self._knobs.credit_return_mode, is_die_to_die)
        if mode == FAST_PATH:
            # Links are alike both ways.
            return self._ipcq_ps + self.head_ps(place, ways) + self.drain_ps(place, ways, nbytes)
        if mode != FABRIC:
            return 0
        out = self._system.graph.route(Node("pe", *place), port_node(ways[0][1]))
        return self._ipcq_ps + out.start_ps + out.edges[0].drain_ps(nbytes)

    def head_ps(self, place: Place, ways: Ways) -> Ps:
        """Of a message: from its PE until its head is in the TCM of the PE at the same place at the end."""
        tcm = self._memories.at("tcm", Node("pe", *place))
        pieces = self._pieces(place, ways)
        return self._ipcq_ps + tcm.least_read_ps + sum(piece.head_ps() for piece in pieces) + tcm.least_write_ps

    def drain_ps(self, place: Place, ways: Ways, nbytes: int) -> Ps:
        """The time of a message's bytes behind its head."""
        tcm = self._memories.at("tcm", Node("pe", *place))
        edges = [edge for piece in self._pieces(place, ways) for edge in piece.edges]
        wire_bytes = self._wire_format.message_bytes(nbytes)
        return bottleneck(edges, wire_bytes, tcm.read_span_ps(nbytes), tcm.write_span_ps(nbytes)).ps

    def link_ps(self, way: Port, nbytes: int) -> Ps:
        """For how long a message takes the link behind a port."""
        edge = self._system.leaving(way[0], port_node(way[1]), way[1]).edges[-1]
        return edge.drain_ps(self._wire_format.message_bytes(nbytes))

    def edge_ps(self, edge: Edge, nbytes: int) -> Ps:
        """The same of an edge inside a SIP."""
        return edge.drain_ps(self._wire_format.message_bytes(nbytes))

    def inside(self, place: Place, port: str) -> tuple[tuple[Edge, ...], tuple[Edge, ...]]:
        """The edges between a PE and a port, to it and from it."""
        node, end = Node("pe", *place), port_node(port)
        return self._system.graph.route(node, end).edges, self._system.graph.route(end, node).edges

    def _pieces(self, place: Place, ways: Ways) -> list[Route]:
        system, node = self._system, Node("pe", *place)
        found, start = [], node
        for sip, port in ways:
            found.append(system.leaving(sip, start, port))
            start = port_node(system.far_ends[sip, port].port)
        return [*found, system.graph.route(start, node)]


class Commands:
    """The prices of :class:`Times`, each kept once it was asked for. None refers to this object, so no cycle arises."""

    def __init__(self, system: System, knobs: IpcqKnobs) -> None:
        times = Times(system, knobs)
        self.issue_ps, self.wake_ps = times.issue_ps, times.wake_ps
        self.store_ps, self.edge_ps, self.inside = times.store_ps, times.edge_ps, times.inside
        self.math_ps = cache(times.math.latency_ps)
        self.load_ps, self.latch_ps = cache(times.load_ps), cache(times.latch_ps)
        self.head_ps, self.drain_ps = cache(times.head_ps), cache(times.drain_ps)
        self.credit_ps, self.link_ps = cache(times.credit_ps), cache(times.link_ps)
