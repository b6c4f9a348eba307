"""Prices of spans: the time in ps of each kind of span on an idle machine, computed from the config as stages.

An uncontended transfer takes the overhead of its first node, of every wire and node on its path, and the drain of its
slowest edge. A launch has stages for host, IO_CPU, M_CPUs and the messages between them (ADR-0035, ADR-0036). A stage
is a sum; its terms are computed only on demand. The time of a span beyond its price is waiting and sharing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.control.path import LaunchPath, Stretch, m_cpu
from sipsim.chips.ahbm.gemm.pipeline import CYCLES, DMA_IN, DMA_OUT, EPILOGUE, FETCH, FILL, PARTS, STORE
from sipsim.chips.ahbm.ipcq.messages import COPY, HEADER_BYTES, WireFormat
from sipsim.chips.ahbm.memory.ports import MemoryPort, MemoryPorts
from sipsim.chips.ahbm.mesh import HOST_NODE
from sipsim.chips.ahbm.pe.commands import MathWork
from sipsim.chips.ahbm.pe.dma import PeTcm
from sipsim.chips.ahbm.pe.math import MathTimes
from sipsim.chips.ahbm.system import AhbmSystem
from sipsim.config.schema import IpcqKnobs
from sipsim.core.engine import Engine
from sipsim.core.units import ns_to_ps
from sipsim.fabric.graph import Bottleneck, Edge, Node, Route, bottleneck
from sipsim.topology.links import link_presets

Ps = int
Place = tuple[int, int, int]
Path = list[tuple[int, Route]]
"""A route as one piece per SIP, as ``RoutedSips.pieces`` returns it."""

MIB = 1 << 20
THROUGH = "bytes through "
BYTES, LINK_BYTES = f"{THROUGH}the slowest edge inside SIPs", f"{THROUGH}links"
STORED = "frames stored behind links"
SPECIAL = "PE_MATH, special functions"
"""Part of the bytes of special functions, which take ``pe_math.special_factor`` times as long."""
WIRES, LINKS, DRAIN, MEMORY, PE_IPCQ, PE_CPU = "wires", "links", "drain", "memory", "PE_IPCQ", "PE_CPU"
"""Kinds of terms that are not nodes."""
SEND, DATA, ACKNOWLEDGEMENT, DOORBELL, CREDIT = "send", "data", "acknowledgement", "doorbell", "credit"
"""Steps of a transfer, in addition to ``COPY``."""
_KIND_OF_NODE = {"router": "routers", "ucie": "ports", "io": "ports", "pe": "PE_DMA"}
"""Kinds of the terms of nodes. The kind of memories is ``MEMORY``; that of other parts is the name of the part."""
_SECTIONS = {"pe": "pe_dma", "ucie": "ucie_port", "io": "io_port", "host": "launch"}
"""Config sections of node kinds whose section has another name."""
_OVERHEADS = {"ucie": "fdi_to_fdi_ns", "host": "host_latency_ns"}
"""Keys of a node's overhead, where the key is not ``overhead_ns``."""
_PARTS = {
    "router": "routers",
    "ucie": "ports between cubes",
    "io": "IO ports of SIPs",
    "pe": "PE_DMA",
    "hbm": "HBM ports",
    "sram": "SRAM ports",
    "host": "between host and IO_CPU",
    "io_cpu": "IO_CPU port",
    "m_cpu": "M_CPU ports",
}
_FIXED = {
    "issue": ("PE_CPU, issue of a command", "pe_cpu.issue_ns", PE_CPU, "issue"),
    "poll": ("PE_CPU, poll", "pe_cpu.poll_ns", PE_CPU, "next poll"),
    "wakeup": ("PE_CPU, wake-up", "pe_cpu.wakeup_ns", PE_CPU, "wake-up"),
    "ipcq": (PE_IPCQ, "pe_ipcq.overhead_ns", PE_IPCQ, PE_IPCQ),
    "math": ("PE_MATH, start of an operation", "pe_math.overhead_ns", "", ""),
    "page_walks": ("PE_MMU, page walks", "pe_mmu.walk_ns", "", ""),
    "host_latency": ("between host and IO_CPU", "launch.host_latency_ns", "", ""),
    "io_cpu_launch": ("IO_CPU", "io_cpu.launch_ns", "", ""),
    "io_cpu_gather": ("IO_CPU, gather", "io_cpu.gather_ns", "", ""),
    "m_cpu_dispatch": ("M_CPU, dispatch", "m_cpu.dispatch_ns", "", ""),
    "m_cpu_gather": ("M_CPU, gather", "m_cpu.gather_ns", "", ""),
}
"""Work whose time is the value of one key: part, key, kind and what."""
_CELL_BYTES = 4
"""Bytes of one sum that a cell of PE_GEMM accumulates."""


class Term(NamedTuple):
    """Summand ``ps`` of a price: the machine part that takes this time, and the keys that set it, the main key first.

    A term of a transfer also has the ``step`` of the transfer, the ``kind`` of the resource, and its name in ``what``.
    """

    part: str
    keys: tuple[str, ...]
    ps: Ps
    step: str = ""
    kind: str = ""
    what: str = ""


class Stage(NamedTuple):
    """Part of a price: a time, and a function that returns the terms of this time. ``of_bytes``: whether the stage is
    the time of the payload's bytes on the slowest edge, or in the slower of the two memories at the ends.
    """

    ps: Ps
    terms: Callable[[], list[Term]]
    of_bytes: bool = False


Price = list[Stage]


def sum_ps(price: Iterable[Stage | Term]) -> Ps:
    """Return the time of all stages, or of all terms."""
    return sum([each.ps for each in price])


def bytes_ps(price: Price) -> Ps:
    """Return the time of the payload's bytes, without the head."""
    return sum([stage.ps for stage in price if stage.of_bytes])


def terms_of(price: Price) -> list[Term]:
    """Return the terms of all stages."""
    return [term for stage in price for term in stage.terms()]


def by_place(price: Price) -> list[Term]:
    """Return the terms; consecutive terms with equal ``step``, ``kind`` and ``what`` are added up to one term."""
    named = groupby(terms_of(price), key=lambda term: term[3:])
    return [Term("", (), sum_ps(terms), *names) for names, terms in named]


def slowest(price: Price) -> Term:
    """Return the longest of the terms in stages of the payload's bytes."""
    return max((term for stage in price if stage.of_bytes for term in stage.terms()), key=lambda term: term.ps)


def on_any_sip(place: Place) -> Place:
    """Return the same PE of SIP 0: SIPs are equal inside, so prices are those of SIP 0."""
    return (0, *place[1:])


def memory_of(address: int) -> int:
    """Return the first address of the memory that contains a physical address, on SIP 0."""
    return PhysAddr.decode(address)._replace(sip=0, offset=0).encode()


class GemmStage(NamedTuple):
    """Time ``ps`` of a typical piece of work of PE_GEMM's part number ``part``, or of a share of this work, with the
    name of the work and the config keys on which the time depends.
    """

    part: int
    name: str
    keys: tuple[str, ...]
    ps: Ps


class Prices:
    """Prices in a system whose queues have settings ``knobs``. Places are (SIP, cube, PE), addresses physical."""

    def __init__(self, system: AhbmSystem, knobs: IpcqKnobs) -> None:
        resolved = system.resolved
        self.system = system
        self._knobs = knobs
        self._components = resolved.components
        self._edge_ps: dict[tuple[int, Node, Node, str], Ps] = {}
        self._gemm_stages: dict[tuple[Place, int, int], tuple[GemmStage, ...]] = {}
        self._wire_format = WireFormat(knobs)
        self._ack_bytes = resolved.components.pe_dma.ack_bytes
        self.has_doorbells = knobs.has_doorbells
        self._math = MathTimes(resolved.components.pe_math)
        self._memories = MemoryPorts(system.graph.memories, Engine())

    def fixed(self, name: str, times: int = 1, step: str = "") -> Price:
        """Price work ``name`` whose time is the value of one config key, such as a page walk, done ``times`` times."""
        part, key, kind, what = _FIXED[name]
        section, _, knob = key.partition(".")
        cost = getattr(self._components, section)
        ps = 0 if cost is None else times * ns_to_ps(getattr(cost, knob))
        return [_stage(Term(part, (key,), ps, step, kind, what))]

    def delay(self, ps: Ps) -> Price:
        """Price a ``tl.delay`` of a kernel."""
        return [_stage(Term("PE_CPU, delays of kernels", ("tl.delay",), ps))]

    def math(self, work: MathWork) -> Price:
        """Price an operation of PE_MATH: the slower of the unit and the ports of the TCM."""
        tcm = PeTcm(0, self._memories, Node("pe", 0, 0))
        name = SPECIAL if work.is_special else "PE_MATH, bytes"
        bytes_ps = self._math.span_ps(work.nbytes, work.is_special)
        unit = _stage(Term(name, ("pe_math.bandwidth_GBps",), bytes_ps))
        ports = self._span("", "tcm", tcm.port, bottleneck(tcm.operating(work).edges, work.nbytes).ps, work.nbytes)
        return [*self.fixed("math"), _longest((unit, ports))]

    def read(self, place: Place, address: int, nbytes: int, stays: bool = True) -> Price:
        """Price a read by PE_DMA: command, memory access, data back. ``stays``: whether the TCM stores the data."""
        here, there, port, space = self._memory(place, address)
        if here == there:
            return [self._reading(DATA, space, port), *self._near(space, port, port.read_span_ps(nbytes), nbytes)]
        tcm = self._memories.at("tcm", here)
        lands = stays and bool(tcm.bandwidths)
        written = [self._writing(DATA, "tcm", tcm)] if lands else []
        return [*self._read_from(DATA, place, address, nbytes, lands), *written]

    def latch(self, place: Place, address: int, nbytes: int) -> Price:
        """Price a copy by PE_DMA to the kernel region of the PE's TCM."""
        here, there, port, space = self._memory(place, address)
        if here != there:
            tcm = self._memories.at("tcm", here)
            read = self._read_from(COPY, place, address, nbytes, bool(tcm.bandwidths))
            return [*read, self._writing(COPY, "tcm", tcm)]
        copy_ps = port.copy_span_ps(address, PhysAddr(*place, "tcm", 0).encode(), nbytes)
        copying = self._near(space, port, copy_ps, nbytes, COPY)
        return [self._reading(COPY, space, port), *copying, self._writing(COPY, space, port)]

    def write(self, place: Place, address: int, nbytes: int, leaves: bool = True) -> Price:
        """Price a write by PE_DMA: data, memory access, acknowledgement. ``leaves``: whether the TCM is read."""
        here, there, port, space = self._memory(place, address)
        writing = self._span(DATA, space, port, port.write_span_ps(nbytes), nbytes)
        if here == there:
            return [*([writing] if writing.ps else []), self._writing(DATA, space, port)]
        reading, taking = self._leaving(here, nbytes) if leaves else ([], [])
        path, return_path = self._inside(place, here, there), self._inside(place, there, here)
        return [
            *reading,
            self._head(DATA, path),
            self._drain(DATA, path, self._wire_format.data_bytes(nbytes), [writing, *taking]),
            self._writing(DATA, space, port),
            *self._transfer(ACKNOWLEDGEMENT, return_path, self._ack_bytes),
        ]

    def post(self, src: Place, direction: str, dst: Place, space: str, nbytes: int, back: str) -> Price:
        """Price a write by PE_DMA to the memory of another PE's ring; the acknowledgement uses direction ``back``."""
        data = self._sent(src, direction, dst, space, nbytes, self._wire_format.data_bytes(nbytes), None)
        return [*data, *self._transfer(ACKNOWLEDGEMENT, self.answer(src, dst, space, back), self._ack_bytes)]

    def message(
        self,
        src: Place,
        direction: str,
        dst: Place,
        space: str,
        nbytes: int,
        read_pa: int | None = None,
        back: str = "",
    ) -> Price:
        """Price a message from the send until ``peer_head_cache`` of ``dst`` moves: until its arrival in the ring or,
        with doorbells, until that of its doorbell.

        ``read_pa``: address from which PE_DMA first fetches the bytes; None if the TCM holds the bytes. ``back``: the
        direction of the acknowledgement, for doorbells between SIPs.
        """
        wire_bytes = self._wire_format.message_bytes(nbytes)
        sent = [
            *self.fixed("ipcq", step=SEND),
            *self._sent(src, direction, dst, space, nbytes, wire_bytes, read_pa),
        ]
        if not self.has_doorbells:
            return sent
        return [
            *sent,
            *self._transfer(ACKNOWLEDGEMENT, self.answer(src, dst, space, back), self._ack_bytes),
            *self.fixed("ipcq", step=DOORBELL),
            *self._transfer(DOORBELL, self._between(src, direction, dst), HEADER_BYTES),
        ]

    def answer(self, src: Place, dst: Place, space: str, back: str) -> Path:
        """Return the path of an acknowledgement to ``src``, from the memory of the ring of ``dst``."""
        slot, here = self.system.graph.memory_node(dst[1], dst[2], space), Node("pe", src[1], src[2])
        return self.path(dst[0], slot, src[0], here, back)

    def passing(
        self, src: Place, direction: str, dst: Place, space: str, nbytes: int, read_pa: int | None = None
    ) -> Price:
        """Price a send until the last byte has passed PE_DMA, at the rate of the path within the source SIP."""
        slot = self.system.graph.memory_node(dst[1], dst[2], space)
        path = self._until_left(self.path(src[0], Node("pe", src[1], src[2]), dst[0], slot, direction))
        before, rate_path, taking = self._source(src, path, nbytes, read_pa)
        drain = self._drain(DATA, rate_path, self._wire_format.message_bytes(nbytes), taking)
        return [*self.fixed("ipcq", step=SEND), *before, self._start(DATA, path), drain]

    def credit(self, src: Place, direction: str, dst: Place) -> Price:
        """Price a credit to the peer, on a dedicated wire or over the fabric."""
        path = self._between(src, direction, dst)
        return [*self.fixed("ipcq", step=CREDIT), *self._transfer(CREDIT, path, self._knobs.ipcq_credit_size_bytes)]

    def injection(self, src: Place, direction: str, dst: Place) -> Price:
        """Price a credit over the fabric until it has left the PE, at the rate of the path within the source SIP."""
        path = self._until_left(self._between(src, direction, dst))
        drain = self._drain(CREDIT, path, self._knobs.ipcq_credit_size_bytes)
        return [*self.fixed("ipcq", step=CREDIT), self._start(CREDIT, path), drain]

    def control_message(self, src: Node, dst: Node, nbytes: int) -> Price:
        """Price a message between IO_CPU, an M_CPU and a PE."""
        return self._transfer("", [(0, self.system.graph.route(src, dst))], nbytes)

    def host_write(self, cube: int, address: int, nbytes: int) -> Price:
        """Price a block of a copy to the device, from the host's bytes on to the end of the write."""
        node, port, space = self._memory_at(address)
        path = [(0, self.system.graph.route_through(HOST_NODE, m_cpu(cube), node))]
        ends = [self._span("", space, port, port.write_span_ps(nbytes, address), nbytes)]
        drain = self._drain("", path, self._wire_format.data_bytes(nbytes), (), ends)
        return [self._head("", path), drain, self._writing("", space, port)]

    def host_read(self, cube: int, address: int, nbytes: int) -> Price:
        """Price a block of a copy to the host, from the command to the memory until its last byte has passed M_CPU."""
        node, port, space = self._memory_at(address)
        graph, here = self.system.graph, m_cpu(cube)
        path = [(0, graph.route_through(node, here, HOST_NODE))]
        spans = [self._span("", space, port, port.read_span_ps(nbytes), nbytes)]
        return [
            *self._transfer("", [(0, graph.route(here, node))], self._components.pe_dma.command_bytes),
            self._reading("", space, port),
            self._head("", [(0, graph.route(node, here))]),
            self._drain("", path, self._wire_format.data_bytes(nbytes), spans),
        ]

    def start_skew(self, rank: int) -> Price:
        """Price the delay of a rank's launches at its host."""
        is_given = str(rank) in self.launch_path.launch.start_skew_ns
        key = "launch.start_skew_ns" if is_given else "launch.max_start_skew_ns"
        return [_stage(Term("start skew", (key,), self.launch_path.skew_ps(rank)))]

    def start_margin(self, places: Sequence[tuple[int, int]]) -> Price:
        """Price the time from IO_CPU's stamp to the start of the kernels on these PEs."""
        path = self.launch_path
        if path.launch.start_margin_ns is not None:
            return [_stage(Term("start margin", ("launch.start_margin_ns",), path.margin_ps(places)))]
        return [stage for stretch in path.fan_out(places) for stage in self._stretch(stretch)]

    def launch(self, rank: int, places: Sequence[tuple[int, int]]) -> Price:
        """Price a launch, from the host's call to the start of its kernels."""
        to_io_cpu = [*self.fixed("host_latency"), *self.start_skew(rank), *self.fixed("io_cpu_launch")]
        return [*to_io_cpu, *self.start_margin(places)]

    def product(
        self, place: Place, operands: int, outputs: int, path_ps: tuple[Ps, ...], measured: tuple[GemmStage, ...]
    ) -> Price:
        """Price the critical path of a PE_GEMM command that took ``path_ps`` in a run whose stages cost ``measured``.

        Stages on the path (:mod:`sipsim.chips.ahbm.gemm.pipeline`) wait for each other, so their times cannot be priced
        separately. Each time is scaled by the stage's cost in this config, divided by the stage's cost in ``measured``.
        Limit: another path may become critical, so the scaled path is only an estimate; a run of the changed config
        gives the exact time.
        """
        found = []
        here = self.gemm_stages(place, operands, outputs)
        for part, ps in enumerate(path_ps):
            pairs = [(now, was) for now, was in zip(here, measured, strict=True) if now.part == part]
            remaining_ps, whole_ps = ps, sum(was.ps for _, was in pairs)
            for now, was in pairs:
                share_ps = remaining_ps if now is pairs[-1][0] else ps * was.ps // whole_ps if whole_ps else 0
                remaining_ps -= share_ps
                found.append(_stage(Term(now.name, was.keys, share_ps * now.ps // was.ps if was.ps else share_ps)))
        return found

    def gemm_stages(self, place: Place, operands: int, outputs: int) -> tuple[GemmStage, ...]:
        """Return the stages of PE_GEMM; ``operands``, ``outputs``: first addresses of the memories that hold these."""
        key = place, operands, outputs
        if key not in self._gemm_stages:
            rates = slowest(self.read(place, operands, MIB)), slowest(self.write(place, outputs, MIB))
            self._gemm_stages[key] = self._stages(self._memories.at("tcm", Node("pe", place[1], place[2])), *rates)
        return self._gemm_stages[key]

    def path(self, src_sip: int, start: Node, dst_sip: int, end: Node, direction: str) -> Path:
        """Return the route from a node to another, which leaves the source SIP in a direction."""
        port = None if src_sip == dst_sip else self.system.port_towards(src_sip, dst_sip, direction)
        return self.system.pieces(src_sip, start, dst_sip, end, port)

    def node_of(self, address: int) -> Node:
        """Return the node that serves a physical address."""
        return self.system.graph.node_of(PhysAddr.decode(address))

    def edge_ps(self, sip: int, src: Node, dst: Node, memory: str = "") -> Ps:
        """Return the drain time of 1 MiB on an edge of a SIP, or on the edge ``memory`` of the memory at ``src``."""
        edge = (sip if dst.kind == "far" else 0, src, dst, memory)
        if edge not in self._edge_ps:
            if dst.kind == "far":
                self._edge_ps[edge] = self.system.link_of(sip, str(src.place)).drain_ps(MIB)
            elif memory:
                self._edge_ps[edge] = self._memories.at(self._space_of(src), src).edge(memory).drain_ps(MIB)
            else:
                self._edge_ps[edge] = self.system.graph.edge(src, dst).drain_ps(MIB)
        return self._edge_ps[edge]

    def edge_name(self, sip: int, src: Node, dst: Node, memory: str = "") -> str:
        """Return the name of an edge, including its SIP, or the name of a link."""
        if memory:
            return f"the {memory} of {self._space_of(src).upper()} at sip{sip}.{src}"
        if dst.kind != "far":
            return f"sip{sip}.{src}>{dst}"
        far = self.system.far_ends[sip, str(src.place)]
        return f"link {self.system.links[far.channel].name}"

    def edge_keys(self, sip: int, src: Node, dst: Node, memory: str = "") -> tuple[str, ...]:
        """Return the config keys that set an edge's bandwidth."""
        if memory:
            space = self._space_of(src)
            return (f"{space}.{self._memories.at(space, src).bandwidth_key}",)
        if dst.kind != "far":
            return tuple(self._rate_keys(src.kind, dst.kind))
        return (self._link_key(sip, src, "bandwidth_GBps"),)

    @cached_property
    def launch_path(self) -> LaunchPath:
        """Launch path of a config whose launches take time."""
        return LaunchPath(self.system.resolved, self.system.graph)

    def _space_of(self, node: Node) -> str:
        """Return the memory space that a node serves."""
        graph = self.system.graph
        return next(space for space in graph.memories if graph.memory_node(0, 0, space).kind == node.kind)

    @cached_property
    def _presets(self) -> dict[tuple[int, str], str]:
        """Preset of each link, by SIP and port."""
        system = self.system
        names = link_presets(system.resolved.topology.system.sips, system.links)
        return dict(zip(((link.src, link.src_port) for link in system.links), names, strict=True))

    def _link_key(self, sip: int, port: Node, name: str) -> str:
        return f"links.{self._presets[sip, str(port.place)]}.params.{name}"

    def _rate_keys(self, *kinds: str) -> list[str]:
        """Return the bandwidth keys that limit an edge between two node kinds: the keys of the slower kind."""
        sections = [_SECTIONS.get(kind, kind) for kind in kinds]
        costs = {each: getattr(self._components, each, None) for each in sections}
        least = min((each.bandwidth_GBps for each in costs.values() if each is not None), default=0)
        return [f"{name}.bandwidth_GBps" for name, each in costs.items() if each and each.bandwidth_GBps == least]

    def _memory(self, place: Place, address: int) -> tuple[Node, Node, MemoryPort, str]:
        return Node("pe", place[1], place[2]), *self._memory_at(address)

    def _memory_at(self, address: int) -> tuple[Node, MemoryPort, str]:
        space, node = PhysAddr.decode(address).space, self.node_of(address)
        return node, self._memories.at(space, node), space

    def _inside(self, place: Place, start: Node, end: Node) -> Path:
        return [(place[0], self.system.graph.route(start, end))]

    def _between(self, src: Place, direction: str, dst: Place) -> Path:
        return self.path(src[0], Node("pe", src[1], src[2]), dst[0], Node("pe", dst[1], dst[2]), direction)

    def _until_left(self, path: Path) -> Path:
        """Return the part of a path that limits the rate at which a transfer leaves its source."""
        sip, route = path[0]
        return [(sip, self.system.until_left(route))]

    def _read_from(self, step: str, place: Place, address: int, nbytes: int, lands: bool) -> Price:
        """Price a read over the fabric. ``lands``: whether the data are written to a TCM with a bandwidth."""
        here, there, port, space = self._memory(place, address)
        tcm, path = self._memories.at("tcm", here), self._inside(place, there, here)
        spans = [self._span(step, space, port, port.read_span_ps(nbytes), nbytes)]
        if lands:
            spans.append(self._span(step, "tcm", tcm, tcm.write_span_ps(nbytes), nbytes))
        return [
            *self._transfer(step, self._inside(place, here, there), self._components.pe_dma.command_bytes),
            self._reading(step, space, port),
            self._head(step, path),
            self._drain(step, path, self._wire_format.data_bytes(nbytes), spans),
        ]

    def _sent(
        self, src: Place, direction: str, dst: Place, space: str, nbytes: int, wire_bytes: int, read_pa: int | None
    ) -> Price:
        """Price the transfer of bytes to the memory of a ring."""
        slot = self.system.graph.memory_node(dst[1], dst[2], space)
        path = self.path(src[0], Node("pe", src[1], src[2]), dst[0], slot, direction)
        ring = self._memories.at(space, slot)
        start = PhysAddr(0, 0, 0, space, self.system.tcm.ipcq.offset if space == "tcm" else 0).encode()
        ends = [self._span(DATA, space, ring, ring.write_span_ps(nbytes, start), nbytes)]
        before, rate_path, taking = self._source(src, path, nbytes, read_pa)
        drain = self._drain(DATA, rate_path, wire_bytes, taking, ends)
        return [*before, self._head(DATA, path), drain, self._writing(DATA, space, ring)]

    def _source(self, src: Place, path: Path, nbytes: int, read_pa: int | None) -> tuple[Price, Path, Price]:
        """Price PE_DMA's read of a message's bytes: the stages before the head leaves, the path that limits the rate,
        and the time of the bytes in their memory. Bytes from outside the TCM are forwarded as they arrive.
        """
        here = Node("pe", src[1], src[2])
        if read_pa is None or self.node_of(read_pa) == here:
            reading, taking = self._leaving(here, nbytes)
            return reading, path, taking
        _, memory, port, space = self._memory(src, read_pa)
        back = self.system.graph.route(memory, here)
        last = back.edges[-1]
        fetch = [
            *self._transfer(DATA, self._inside(src, here, memory), self._components.pe_dma.command_bytes),
            self._reading(DATA, space, port),
            self._head(DATA, [(src[0], back._replace(edges=back.edges[:-1]))]),
            _stage(Term("wires", ("wire.ns_per_mm",), last.wire_ps, DATA, WIRES, f"wire from sip{src[0]}.{last.src}")),
        ]
        return fetch, [(src[0], back), *path], [self._span(DATA, space, port, port.read_span_ps(nbytes), nbytes)]

    def _leaving(self, here: Node, nbytes: int) -> tuple[Price, Price]:
        """Price a read of a PE's TCM: the access, and the bytes' time; both are empty if the TCM has no bandwidth."""
        tcm = self._memories.at("tcm", here)
        if not tcm.bandwidths:
            return [], []
        return [self._reading(DATA, "tcm", tcm)], [self._span(DATA, "tcm", tcm, tcm.read_span_ps(nbytes), nbytes)]

    def _near(self, space: str, port: MemoryPort, ps: Ps, nbytes: int, step: str = DATA) -> Price:
        """Price the bytes of an access to a memory that is reached without the fabric."""
        return [self._span(step, space, port, ps, nbytes)] if ps else []

    def _span(self, step: str, space: str, port: MemoryPort, ps: Ps, nbytes: int) -> Stage:
        """Return the stage of the bytes' time in a memory."""
        part, keys = f"{THROUGH}{space.upper()}", (f"{space}.{port.bandwidth_key}",)
        return _stage(Term(part, keys, ps, step, DRAIN, f"{nbytes} B through {space}"), True)

    def _reading(self, step: str, space: str, port: MemoryPort) -> Stage:
        def terms() -> list[Term]:
            names = step, MEMORY, f"{space} read latency"
            return [_access(space, each.what, each.key, each.ps, names) for each in port.read_terms()]

        return Stage(port.least_read_ps, terms)

    def _writing(self, step: str, space: str, port: MemoryPort) -> Stage:
        def terms() -> list[Term]:
            names = step, MEMORY, f"{space} write latency" + ("" if port.is_constant else ", the least")
            return [_access(space, each.what, each.key, each.ps, names) for each in port.write_terms()]

        return Stage(port.least_write_ps, terms)

    def _stretch(self, stretch: Stretch) -> Price:
        path, times = [(0, stretch.route)], stretch.messages
        drain = self._drain("", path, stretch.nbytes)
        drains = Stage(times * drain.ps, lambda: [each._replace(ps=times * each.ps) for each in drain.terms()])
        return [self._head("", path), drains, *self.fixed("m_cpu_dispatch", stretch.dispatches)]

    def _transfer(self, step: str, path: Path, nbytes: int) -> Price:
        """Price a transfer without a payload."""
        return [self._head(step, path), self._drain(step, path, nbytes)._replace(of_bytes=False)]

    def _start(self, step: str, path: Path) -> Stage:
        """Return the stage of the overhead of a path's first node."""
        sip, route = path[0]
        return _stage(self._node(step, sip, route.start, route.start_ps))

    def _head(self, step: str, path: Path) -> Stage:
        """Return the stage of all wires and nodes of a path."""
        return Stage(sum([route.head_ps() for _, route in path]), lambda: [*self._head_terms(step, path)])

    def _head_terms(self, step: str, path: Path) -> Iterator[Term]:
        for sip, route in path:
            yield self._node(step, sip, route.start, route.start_ps)
            for edge in route.edges:
                if edge.is_link:
                    yield from self._link(step, sip, edge)
                else:
                    wire = f"wire from sip{sip}.{edge.src}"
                    yield Term("wires", ("wire.ns_per_mm",), edge.wire_ps, step, WIRES, wire)
                    yield self._node(step, sip, edge.dst, edge.overhead_ps)

    def _link(self, step: str, sip: int, edge: Edge) -> Iterator[Term]:
        name, port = self.edge_name(sip, edge.src, edge.dst), edge.src
        for each in self.system.link_of(sip, str(port.place)).latency_parts():
            if each.ps:
                what = f"{name}, {each.what}" if each.what else name
                yield Term(each.part, (self._link_key(sip, port, each.key),), each.ps, step, LINKS, what)

    def _node(self, step: str, sip: int, node: Node, ps: Ps) -> Term:
        section = _SECTIONS.get(node.kind, node.kind)
        name = _OVERHEADS.get(node.kind, "overhead_ns")
        key = f"{section}.{name}" if hasattr(self._components, section) else f"parts.{section}"
        kind = MEMORY if node.kind in self._kinds_of_memories else _KIND_OF_NODE.get(node.kind, node.kind)
        return Term(_PARTS.get(node.kind, f"parts {node.kind}"), (key,), ps, step, kind, f"sip{sip}.{node}")

    @cached_property
    def _kinds_of_memories(self) -> set[str]:
        """Kinds of nodes that serve only a memory."""
        graph = self.system.graph
        return {graph.memory_node(0, 0, space).kind for space in graph.memories} - _KIND_OF_NODE.keys()

    def _drain(
        self, step: str, path: Path, nbytes: int, sources: Sequence[Stage] = (), ends: Sequence[Stage] = ()
    ) -> Stage:
        """Return the stage of the time between head and tail: the time of stored frames, plus the time of the bytes on
        the slowest edge or in the slowest memory at the ends.
        """
        edges = [(sip, edge) for sip, route in path for edge in route.edges]
        source, end = _longest(sources), _longest(ends)
        limit = bottleneck([edge for _, edge in edges], nbytes, source.ps, end.ps)
        return Stage(limit.ps, lambda: self._drain_terms(step, edges, nbytes, limit, source, end), True)

    def _drain_terms(
        self, step: str, edges: list[tuple[int, Edge]], nbytes: int, limit: Bottleneck, source: Stage, end: Stage
    ) -> list[Term]:
        found = []
        for hop, ps in limit.stored:
            sip, edge = edges[hop]
            what = f"a frame stored behind {self.edge_name(sip, edge.src, edge.dst)}"
            found.append(Term(STORED, (self._link_key(sip, edge.src, "bandwidth_GBps"),), ps, step, DRAIN, what))
        if limit.hops[0] in (-1, len(edges)):
            return [*found, *(source if limit.hops[0] < 0 else end).terms()]
        slow = [edges[hop] for hop in limit.hops if hop < len(edges)]
        kinds = {(edge.src.kind, edge.dst.kind) for _, edge in slow if not edge.is_link}
        inside = sorted({key for pair in kinds for key in self._rate_keys(*pair)})
        links = dict.fromkeys(self._link_key(sip, edge.src, "bandwidth_GBps") for sip, edge in slow if edge.is_link)
        sip, edge = slow[0]
        place = self.edge_name(sip, edge.src, edge.dst) if edge.is_link else f"from sip{sip}.{edge.src}"
        what = f"drain of {edge.wire_bytes(nbytes)} B at {gbytes_per_s(edge):g} GB/s, {place}"
        part = LINK_BYTES if links else BYTES
        return [*found, Term(part, (*links, *inside), limit.drain_ps, step, DRAIN, what)]

    def _stages(self, tcm: MemoryPort, coming: Term, leaving: Term) -> tuple[GemmStage, ...]:
        """Return the stages of PE_GEMM, whose tiles are in ``tcm``. ``coming``: the term that limits PE_DMA's rate when
        it reads operands from their memory; ``leaving``: the term that limits its rate when it writes outputs.
        """
        cost, start_ps = self._components.pe_gemm, self._math.overhead_ps
        cycle_ps = ns_to_ps(1 / cost.clock_GHz)
        move_ps, move_key = ns_to_ps(self._components.pe_fetch_store.overhead_ns), ("pe_fetch_store.overhead_ns",)
        cells_bytes, port_key = cost.rows * cost.columns * _CELL_BYTES, (f"tcm.{tcm.bandwidth_key}",)
        fetched_ps, stored_ps = tcm.read_span_ps(cost.columns * cost.chunk_bytes), tcm.write_span_ps(cells_bytes)
        found = [
            _gemm_stage(CYCLES, "", PARTS[CYCLES].keys, cycle_ps),
            _gemm_stage(FILL, "", PARTS[FILL].keys, cycle_ps),
            _gemm_stage(DMA_IN, "", _with_rates(DMA_IN, coming), coming.ps),
            _gemm_stage(DMA_OUT, "", _with_rates(DMA_OUT, leaving), leaving.ps),
            _gemm_stage(FETCH, ", start", move_key, move_ps),
            _gemm_stage(FETCH, "", port_key, fetched_ps),
            _gemm_stage(EPILOGUE, ", start", ("pe_math.overhead_ns",), start_ps),
            _gemm_stage(EPILOGUE, "", ("pe_math.bandwidth_GBps",), self._math.span_ps(cells_bytes)),
            _gemm_stage(STORE, ", start", move_key, move_ps),
            _gemm_stage(STORE, "", port_key, stored_ps),
        ]
        priced = {each.part for each in found}
        others = (part for part in range(len(PARTS)) if part not in priced)
        return (*found, *(_gemm_stage(part, "", PARTS[part].keys, 1) for part in others))


def gbytes_per_s(edge: Edge) -> float:
    """Return the bandwidth of an edge, in GB/s."""
    return edge.bandwidth_bps / 10**9


def _stage(term: Term, of_bytes: bool = False) -> Stage:
    return Stage(term.ps, lambda: [term], of_bytes)


def _longest(stages: Sequence[Stage]) -> Stage:
    return max(stages, key=lambda stage: stage.ps, default=Stage(0, list))


def _access(space: str, what: str, key: str, ps: Ps, names: tuple[str, str, str]) -> Term:
    return Term(f"{space.upper()} {what}", (f"{space}.{key}",), ps, *names)


def _gemm_stage(part: int, what: str, keys: tuple[str, ...], ps: Ps) -> GemmStage:
    return GemmStage(part, f"PE_GEMM: {PARTS[part].name}{what}", keys, ps)


def _with_rates(part: int, bound: Term) -> tuple[str, ...]:
    """Return the config keys of PE_GEMM's part, and the keys of term ``bound``, whose bandwidths limit the part."""
    first, *others = PARTS[part].keys
    return tuple(dict.fromkeys((first, *bound.keys, *others)))
