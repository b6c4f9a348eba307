"""What a span costs by the config: the terms of every built-in kind of span, in picoseconds, on one machine.

The equations are those of :mod:`sipsim.chips.ahbm.costs.probe`: an uncontended transfer is the overhead of its first
node, every wire and node on the way, and the drain of its slowest edge. A launch has terms for host,
IO_CPU, M_CPUs and the messages between them (ADR-0035, ADR-0036). Each term has the part of the machine and the config
keys of its cost. What a span took beyond its terms is waiting and sharing.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.control import LaunchPath, Stretch
from sipsim.chips.ahbm.gemm.pipeline import CYCLES, DMA_IN, DMA_OUT, EPILOGUE, FETCH, FILL, PARTS, STORE
from sipsim.chips.ahbm.ipcq.messages import IpcqEndpoint, WireFormat
from sipsim.chips.ahbm.memory.ports import MemoryPort, MemoryPorts
from sipsim.chips.ahbm.pe.commands import MathWork
from sipsim.chips.ahbm.pe.dma import PeTcm
from sipsim.chips.ahbm.pe.math import MathTimes
from sipsim.chips.ahbm.system import AhbmSystem
from sipsim.config.schema import ComponentsFile, IpcqKnobs, Resolved
from sipsim.core.engine import Engine
from sipsim.core.units import ns_to_ps
from sipsim.fabric.graph import Node, Route, bottleneck
from sipsim.fabric.links.kind import link_of_preset
from sipsim.topology.links import link_presets

Ps = int
Presets = tuple[str, ...]

MIB = 1 << 20
THROUGH = "bytes through "
BYTES, LINK_BYTES = f"{THROUGH}the slowest edge inside SIPs", f"{THROUGH}links"
STORED = "frames stored behind links"
_SECTIONS = {"pe": "pe_dma", "ucie": "ucie_port", "io": "io_port"}
"""The config sections of node kinds that are called otherwise."""
_OVERHEADS = {"ucie": "fdi_to_fdi_ns"}
"""The keys of what nodes add to a head where it is called otherwise."""
_PARTS = {
    "router": "routers",
    "ucie": "ports between cubes",
    "io": "IO ports of SIPs",
    "pe": "PE_DMA",
    "hbm": "HBM ports",
    "sram": "SRAM ports",
    "io_cpu": "IO_CPU port",
    "m_cpu": "M_CPU ports",
}


class Term(NamedTuple):
    """A summand: the part of the machine, the config keys that it comes from (the first one is its own), and time."""

    part: str
    keys: tuple[str, ...]
    ps: Ps

    @property
    def is_drain(self) -> bool:
        """Whether it is the time that bytes need, on the slowest edge or in the slower memory at its ends."""
        return self.part.startswith(THROUGH)


def sum_ps(terms: Iterable[Term]) -> Ps:
    """The time of all terms."""
    return sum(term.ps for term in terms)


def slowest(terms: Iterable[Term]) -> Term:
    """Of those that are the time of bytes."""
    return _longest([term for term in terms if term.is_drain])


def _longest(spans: Sequence[Term]) -> Term:
    return max(spans, key=lambda span: span.ps, default=Term("", (), 0))


def _link_key(preset: str, name: str) -> str:
    return f"links.{preset}.params.{name}"


_CELL_BYTES = 4
"""Of a sum."""
_START = ", start"


class Price(NamedTuple):
    """The price of a usual piece of work of PE_GEMM's part ``part``, or of a share of it: ``name``, the keys it depends
    on, and time.
    """

    part: int
    name: str
    keys: tuple[str, ...]
    ps: Ps


def prices(components: ComponentsFile, tcm: MemoryPort, coming: Term, leaving: Term) -> tuple[Price, ...]:
    """Of all parts. ``tcm``: the ports of the PE. ``coming`` and ``leaving``: what bounds the rate of PE_DMA between
    the memories of operands and outputs and the PE."""
    cost, math = components.pe_gemm, MathTimes(components.pe_math)
    cycle_ps, move_ps = ns_to_ps(1 / cost.clock_GHz), ns_to_ps(components.pe_fetch_store.overhead_ns)
    start_ps, cells_bytes = ns_to_ps(components.pe_math.overhead_ns), cost.rows * cost.columns * _CELL_BYTES
    move_key, start_key = ("pe_fetch_store.overhead_ns",), ("pe_math.overhead_ns",)
    fetched_ps, stored_ps = tcm.read_span_ps(cost.columns * cost.chunk_bytes), tcm.write_span_ps(cells_bytes)
    port_key = (f"tcm.{tcm.bandwidth_key}",)
    found = [
        _price(CYCLES, "", PARTS[CYCLES].keys, cycle_ps),
        _price(FILL, "", PARTS[FILL].keys, cycle_ps),
        _price(DMA_IN, "", _with_rates(DMA_IN, coming), coming.ps),
        _price(DMA_OUT, "", _with_rates(DMA_OUT, leaving), leaving.ps),
        _price(FETCH, _START, move_key, move_ps),
        _price(FETCH, "", port_key, fetched_ps),
        _price(EPILOGUE, _START, start_key, start_ps),
        _price(EPILOGUE, "", ("pe_math.bandwidth_GBps",), math.latency_ps(cells_bytes) - start_ps),
        _price(STORE, _START, move_key, move_ps),
        _price(STORE, "", port_key, stored_ps),
    ]
    priced = {each.part for each in found}
    return (*found, *(_price(part, "", PARTS[part].keys, 1) for part in range(len(PARTS)) if part not in priced))


def _price(part: int, what: str, keys: tuple[str, ...], ps: Ps) -> Price:
    return Price(part, f"PE_GEMM: {PARTS[part].name}{what}", keys, ps)


def _with_rates(part: int, bound: Term) -> tuple[str, ...]:
    """The keys of a part, with those of the bandwidths that bound it."""
    first, *others = PARTS[part].keys
    return tuple(dict.fromkeys((first, *bound.keys, *others)))


def scaled(way_ps: tuple[Ps, ...], here: tuple[Price, ...], run: tuple[Price, ...]) -> list[Term]:
    """The terms of a way through a command of PE_GEMM on the machine with prices ``here``.

    The times of the way (:mod:`sipsim.chips.ahbm.gemm.pipeline`) are those of stages that wait for each other, so a
    machine has no price of its own for them. Each is scaled: by what its stage costs here, against what it costs on the
    machine with prices ``run``, where the command took ``way_ps``. On that machine they add up to the way. Limit:
    another way may be the longest then, so a saving is at most the one that results; a run is the judge.
    """
    found = []
    for part, ps in enumerate(way_ps):
        pairs = [(now, was) for now, was in zip(here, run, strict=True) if now.part == part]
        left_ps, whole_ps = ps, sum(was.ps for _, was in pairs)
        for now, was in pairs[:-1]:
            share_ps = ps * was.ps // whole_ps if whole_ps else 0
            left_ps -= share_ps
            found.append(_scaled(share_ps, now, was))
        found.append(_scaled(left_ps, *pairs[-1]))
    return found


def _scaled(ps: Ps, now: Price, was: Price) -> Term:
    return Term(now.name, was.keys, ps * now.ps // was.ps if was.ps else ps)


Place = tuple[int, int, int]


SPECIAL = "PE_MATH, special functions"
"""Its bytes, ``pe_math.special_factor`` times as slow."""


def on_any_sip(place: Place) -> Place:
    """SIPs are alike inside, so SIP 0 stands for all."""
    return (0, *place[1:])


def memory_of(address: int) -> int:
    """The first byte of the memory that a physical address is in, on SIP 0."""
    return PhysAddr.decode(address)._replace(sip=0, offset=0).encode()


class Machine:
    """The costs of a system as ``resolved`` has it; ``knobs``: those of the queues, which it does not change.

    ``run``: the machine on which times were measured that have no price of their own; None where that is this one.
    """

    def __init__(self, resolved: Resolved, knobs: IpcqKnobs, run: "Machine | None" = None) -> None:
        self.system = AhbmSystem(resolved, knobs)
        self.knobs = knobs
        self._components = resolved.components
        self._edge_ps: dict[tuple[int, Node, Node, str], Ps] = {}
        self._kinds = {name: link_of_preset(resolved, name) for name in resolved.links.links}
        self._presets = dict(
            zip(
                ((link.src, link.src_port) for link in self.system.links),
                link_presets(resolved.topology.system.sips, self.system.links),
                strict=True,
            )
        )
        self._run = self if run is None else run
        self._product_prices: dict[tuple[Place, int, int], tuple[Price, ...]] = {}
        components = resolved.components
        self._wire_format = WireFormat(knobs.hw_strict)
        self._ipcq_ps = ns_to_ps(components.pe_ipcq.overhead_ns)
        self._math = MathTimes(components.pe_math)
        self._walk_ps = 0 if components.pe_mmu is None else ns_to_ps(components.pe_mmu.walk_ns)
        system = self.system
        self._memories = MemoryPorts(system.graph.memories, Engine())

    def transfer(self, route: Route, nbytes: int, presets: Presets = (), *spans: Term) -> Iterator[Term]:
        """The terms of an uncontended transfer. ``presets``: those of the links on its route, in order.

        ``spans``: what the memories at its ends need for its bytes; the slowest of them and of the edges counts.
        """
        yield from self._head(route, presets)
        if route.edges:
            yield from self._drain(route, nbytes, presets, spans)

    def drain_ps(self, sip: int, src: Node, dst: Node, memory: str = "") -> Ps:
        """Time that an edge of a SIP needs for a MiB; with ``memory`` one of the memory at a node, by its name."""
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
        """An edge of a SIP with its SIP; a link by its name."""
        if memory:
            return f"the {memory} of {self._space_of(src).upper()} at sip{sip}.{src}"
        if dst.kind != "far":
            return f"sip{sip}.{src}>{dst}"
        far = self.system.far_ends[sip, str(src.place)]
        return f"link {self.system.links[far.channel].name}"

    def rate_keys(self, sip: int, src: Node, dst: Node, memory: str = "") -> tuple[str, ...]:
        """The config keys of an edge's bandwidth."""
        if memory:
            space = self._space_of(src)
            return (f"{space}.{self._memories.at(space, src).bandwidth_key}",)
        if dst.kind != "far":
            return tuple(self._rate_keys(src.kind, dst.kind))
        return (_link_key(self._presets[sip, str(src.place)], "bandwidth_GBps"),)

    def _space_of(self, node: Node) -> str:
        """The memory space that a node serves."""
        graph = self.system.graph
        return next(space for space in graph.memories if graph.memory_node(0, 0, space).kind == node.kind)

    def _head(self, route: Route, presets: Presets = ()) -> Iterator[Term]:
        links = iter(presets)
        yield self._node(route.start, route.start_ps)
        for edge in route.edges:
            if not edge.is_link:
                yield Term("wires", ("wire.ns_per_mm",), edge.wire_ps)
                yield self._node(edge.dst, edge.overhead_ps)
            else:
                # The far port's overhead belongs to the edge, see `Route.then`.
                preset = next(links)
                for part in self._kinds[preset].latency_parts():
                    yield Term(part.part, (_link_key(preset, part.key),), part.ps)
                yield Term(_PARTS["io"], ("io_port.overhead_ns",), edge.overhead_ps)

    def _node(self, node: Node, overhead_ps: Ps) -> Term:
        section = _SECTIONS.get(node.kind, node.kind)
        name = _OVERHEADS.get(node.kind, "overhead_ns")
        key = f"{section}.{name}" if hasattr(self._components, section) else f"parts.{section}"
        return Term(_PARTS.get(node.kind, f"parts {node.kind}"), (key,), overhead_ps)

    def _drain(
        self,
        route: Route,
        nbytes: int,
        presets: Presets = (),
        sources: Sequence[Term] = (),
        ends: Sequence[Term] = (),
    ) -> list[Term]:
        """What the tail comes after the head for: frames that are stored on the way, and what is slowest of the edges
        and of the memories at their ends.
        """
        edges, source, end = route.edges, _longest(sources), _longest(ends)
        limit = bottleneck(edges, nbytes, source.ps, end.ps)
        names = dict(zip((hop for hop, edge in enumerate(edges) if edge.is_link), presets, strict=False))
        stored = [Term(STORED, (_link_key(names[hop], "bandwidth_GBps"),), ps) for hop, ps in limit.stored]
        if limit.hops[0] in (-1, len(edges)):
            return [*stored, source if limit.hops[0] < 0 else end]
        slowest = [hop for hop in limit.hops if hop < len(edges)]
        kinds = {(edges[hop].src.kind, edges[hop].dst.kind) for hop in slowest if hop not in names}
        inside = sorted({key for pair in kinds for key in self._rate_keys(*pair)})
        links = dict.fromkeys(_link_key(names[hop], "bandwidth_GBps") for hop in slowest if hop in names)
        return [*stored, Term(LINK_BYTES if links else BYTES, (*links, *inside), limit.drain_ps)]

    def _rate_keys(self, *kinds: str) -> list[str]:
        """The bandwidths that bound an edge between two kinds of nodes, which is as wide as the narrower of them."""
        sections = [_SECTIONS.get(kind, kind) for kind in kinds]
        known = {each: getattr(self._components, each, None) for each in sections}
        least = min((each.bandwidth_GBps for each in known.values() if each is not None), default=0)
        return [f"{name}.bandwidth_GBps" for name, each in known.items() if each and each.bandwidth_GBps == least]

    @cached_property
    def launch_path(self) -> LaunchPath:
        """That of a config with launches that take time."""
        return LaunchPath(self.system.resolved, self.system.graph)

    def host_latency(self) -> list[Term]:
        """From the host to IO_CPU, or back."""
        return [Term("between host and IO_CPU", ("launch.host_latency_ns",), self.launch_path.host_ps)]

    def start_skew(self, rank: int) -> list[Term]:
        """How much later the launches of a rank leave its host."""
        is_given = str(rank) in self.launch_path.launch.start_skew_ns
        key = "launch.start_skew_ns" if is_given else "launch.max_start_skew_ns"
        return [Term("start skew", (key,), self.launch_path.skew_ps(rank))]

    def io_cpu_launch(self) -> list[Term]:
        """IO_CPU's work on a launch."""
        return [Term("IO_CPU", ("io_cpu.launch_ns",), self.launch_path.launch_ps)]

    def start_margin(self, places: Sequence[tuple[int, int]]) -> list[Term]:
        """From the stamp to the start of the kernels on PEs of a SIP."""
        path = self.launch_path
        if path.launch.start_margin_ns is not None:
            return [Term("start margin", ("launch.start_margin_ns",), path.margin_ps(places))]
        return [term for stretch in path.fan_out(places) for term in self._stretch(stretch)]

    def control_message(self, src: Node, dst: Node, nbytes: int) -> list[Term]:
        """A message between IO_CPU, an M_CPU and a PE."""
        return [*self.transfer(self.system.graph.route(src, dst), nbytes)]

    def m_cpu_dispatch(self, pes: int) -> list[Term]:
        """An M_CPU's work on so many PEs."""
        return [Term("M_CPU, dispatch", ("m_cpu.dispatch_ns",), pes * self.launch_path.dispatch_ps)]

    def m_cpu_gather(self) -> list[Term]:
        """An M_CPU's work on the answer of a PE."""
        return [Term("M_CPU, gather", ("m_cpu.gather_ns",), self.launch_path.m_gather_ps)]

    def io_cpu_gather(self) -> list[Term]:
        """IO_CPU's work on the answer of a cube."""
        return [Term("IO_CPU, gather", ("io_cpu.gather_ns",), self.launch_path.io_gather_ps)]

    def launch(self, rank: int, places: Sequence[tuple[int, int]]) -> list[Term]:
        """From a host's launch to the start of its kernels."""
        return [*self.host_latency(), *self.start_skew(rank), *self.io_cpu_launch(), *self.start_margin(places)]

    def gathering(self, place: tuple[int, int]) -> list[Term]:
        """From the last end of a kernel, on a PE, to the host."""
        (of_pe, of_cube), done_bytes = self.launch_path.gather(place), self.launch_path.launch.done_bytes
        return [
            *self.transfer(of_pe, done_bytes),
            *self.m_cpu_gather(),
            *self.transfer(of_cube, done_bytes),
            *self.io_cpu_gather(),
            *self.host_latency(),
        ]

    def _stretch(self, stretch: Stretch) -> Iterator[Term]:
        route, nbytes, messages, dispatches = stretch
        yield from self._head(route)
        for drain in self._drain(route, nbytes):
            yield drain._replace(ps=messages * drain.ps)
        yield from self.m_cpu_dispatch(dispatches)

    def read(self, place: Place, address: int, nbytes: int) -> list[Term]:
        """A read by PE_DMA: a command to the memory, its access, the data back."""
        here, there, port, space = self._memory(place, address)
        if here == there:
            return [*self._reading(space, port), *self._near(space, port, port.read_span_ps(nbytes))]
        tcm = self._memories.at("tcm", here)
        return [
            *self._read_from(here, there, port, space, nbytes, *self._landing(tcm, nbytes)),
            *(self._writing("tcm", tcm) if tcm.bandwidths else ()),
        ]

    def copy_out(self, place: Place, address: int, nbytes: int) -> list[Term]:
        """A read by PE_DMA of what does not stay at the PE."""
        here, there, port, space = self._memory(place, address)
        if here == there:
            return [*self._reading(space, port), *self._near(space, port, port.read_span_ps(nbytes))]
        return self._read_from(here, there, port, space, nbytes)

    def latch(self, place: Place, address: int, nbytes: int) -> list[Term]:
        """A copy by PE_DMA to the kernel's region of the PE's TCM."""
        here, there, port, space = self._memory(place, address)
        tcm = self._memories.at("tcm", here)
        if here == there:
            copy_ps = port.copy_span_ps(address, PhysAddr(*place, "tcm", 0).encode(), nbytes)
            copying = self._near(space, port, copy_ps)
            return [*self._reading(space, port), *copying, *self._writing(space, port)]
        return [
            *self._read_from(here, there, port, space, nbytes, *self._landing(tcm, nbytes)),
            *self._writing("tcm", tcm),
        ]

    def write(self, place: Place, address: int, nbytes: int) -> list[Term]:
        """A write by PE_DMA: the data to the memory, its access, the acknowledgement."""
        tcm = self._memories.at("tcm", Node("pe", place[1], place[2]))
        near = self.node_of(address) == Node("pe", place[1], place[2])
        taking = () if near else self._taking(tcm, nbytes)
        leaving = self._reading("tcm", tcm) if taking else ()
        return [*leaving, *self._write_to(place, address, nbytes, *taking)]

    def copy_in(self, place: Place, address: int, nbytes: int) -> list[Term]:
        """A write by PE_DMA of what was not in the PE's TCM."""
        return self._write_to(place, address, nbytes)

    def math(self, work: MathWork) -> list[Term]:
        """An operation of PE_MATH: the slower of its unit and of the ports of the TCM."""
        tcm = PeTcm(0, self._memories, Node("pe", 0, 0))
        name = SPECIAL if work.is_special else "PE_MATH, bytes"
        bytes_ps = self._math.span_ps(work.nbytes, work.is_special)
        ports = self._span("tcm", tcm.port, bottleneck(tcm.operating(work).edges, work.nbytes).ps)
        return [
            Term("PE_MATH, start of an operation", ("pe_math.overhead_ns",), self._math.overhead_ps),
            _longest((Term(name, ("pe_math.bandwidth_GBps",), bytes_ps), ports)),
        ]

    def product(self, place: Place, operands: int, outputs: int, way_ps: tuple[Ps, ...]) -> list[Term]:
        """The way through a command of PE_GEMM, whose operands and outputs are in memories that begin there."""
        key = place, operands, outputs
        return scaled(way_ps, self._prices_of_product(*key), self._run._prices_of_product(*key))

    def _prices_of_product(self, place: Place, operands: int, outputs: int) -> tuple[Price, ...]:
        key = place, operands, outputs
        found = self._product_prices.get(key)
        if found is None:
            tcm = self._memories.at("tcm", Node("pe", place[1], place[2]))
            rates = slowest(self.read(place, operands, MIB)), slowest(self.write(place, outputs, MIB))
            found = self._product_prices[key] = prices(self._components, tcm, *rates)
        return found

    def delay(self, ps: Ps) -> list[Term]:
        """A delay that a kernel names."""
        return [Term("PE_CPU, delays of kernels", ("tl.delay",), ps)]

    def page_walks(self, walks: int) -> list[Term]:
        """The stall of a command that misses so many pages in its TLB."""
        return [Term("PE_MMU, page walks", ("pe_mmu.walk_ns",), walks * self._walk_ps)]

    def message(self, src: Place, direction: str, peer: IpcqEndpoint, nbytes: int, read_pa: int | None) -> list[Term]:
        """From a send to the arrival in the peer's ring; with ``read_pa`` its bytes are fetched from there first."""
        source = Node("pe", src[1], src[2])
        kind = peer.buffer_kind
        slot = self.system.graph.memory_node(peer.cube, peer.pe, kind)
        route, presets = self._route(src[0], source, peer.sip, slot, direction)
        ring = self._memories.at(kind, slot)
        rings = PhysAddr(0, 0, 0, kind, self.system.tcm.ipcq.offset if kind == "tcm" else 0).encode()
        ends = [self._span(kind, ring, ring.write_span_ps(nbytes, rings))]
        fetch = [] if read_pa is None else [*self._fetch(source, read_pa)]
        if fetch and read_pa is not None:
            memory, space = self.node_of(read_pa), PhysAddr.decode(read_pa).space
            port, back = self._memories.at(space, memory), self.system.graph.route(memory, source)
            route_and_fetch = route._replace(edges=(*back.edges, *route.edges))
            reading = [self._span(space, port, port.read_span_ps(nbytes))]
            drain = self._drain(route_and_fetch, self.message_bytes(nbytes), presets, reading, ends)
        else:
            tcm = self._memories.at("tcm", source)
            taking = self._taking(tcm, nbytes)
            fetch = [*self._reading("tcm", tcm)] if taking else []
            drain = self._drain(route, self.message_bytes(nbytes), presets, taking, ends)
        return [self.ipcq(), *fetch, *self._head(route, presets), *drain, *self._writing(kind, ring)]

    def passing(self, src: Place, direction: str, peer: IpcqEndpoint, nbytes: int, read_pa: int | None) -> list[Term]:
        """From a send until the last byte of its message has passed PE_DMA, at the rate of its way in this SIP."""
        source = Node("pe", src[1], src[2])
        slot = self.system.graph.memory_node(peer.cube, peer.pe, peer.buffer_kind)
        near, presets = self._near_piece(src[0], source, peer.sip, slot, direction)
        leaving = self._node(source, near.start_ps)
        if read_pa is not None and self.node_of(read_pa) != source:
            memory, space = self.node_of(read_pa), PhysAddr.decode(read_pa).space
            reading = [self._span(space, port := self._memories.at(space, memory), port.read_span_ps(nbytes))]
            back = near._replace(edges=(*self.system.graph.route(memory, source).edges, *near.edges))
            drain = self._drain(back, self.message_bytes(nbytes), presets, reading)
            return [self.ipcq(), *self._fetch(source, read_pa), leaving, *drain]
        tcm = self._memories.at("tcm", source)
        taking = self._taking(tcm, nbytes)
        reading = self._reading("tcm", tcm) if taking else []
        return [self.ipcq(), *reading, leaving, *self._drain(near, self.message_bytes(nbytes), presets, taking)]

    def credit(self, src: Place, direction: str, peer: Place) -> list[Term]:
        """A credit's way to the peer, on its own wire or as a message."""
        route, presets = self._back(src, direction, peer)
        return [self.ipcq(), *self.transfer(route, self.knobs.ipcq_credit_size_bytes, presets)]

    def injection(self, src: Place, direction: str, peer: Place) -> list[Term]:
        """A credit as a message until it has left the PE, at the rate of its way in this SIP."""
        ends = Node("pe", src[1], src[2]), peer[0], Node("pe", peer[1], peer[2])
        near, presets = self._near_piece(src[0], *ends, direction)
        nbytes = self.knobs.ipcq_credit_size_bytes
        return [self.ipcq(), self._node(near.start, near.start_ps), *self._drain(near, nbytes, presets)]

    def message_bytes(self, nbytes: int) -> int:
        """Bytes of a message on the wires, without a link's framing."""
        return self._wire_format.message_bytes(nbytes)

    def node_of(self, address: int) -> Node:
        """The node that serves a physical address."""
        return self.system.graph.node_of(PhysAddr.decode(address))

    def port_of(self, src_sip: int, dst_sip: int, direction: str) -> str:
        """The port by which messages of a direction leave."""
        return self.system.port_towards(src_sip, dst_sip, direction)

    def issue(self) -> list[Term]:
        """A command on PE_CPU, before it reaches its engine."""
        return [Term("PE_CPU, issue of a command", ("pe_cpu.issue_ns",), ns_to_ps(self._components.pe_cpu.issue_ns))]

    def look(self) -> list[Term]:
        """The poll on PE_CPU that sees an event."""
        return [Term("PE_CPU, poll", ("pe_cpu.poll_ns",), ns_to_ps(self._components.pe_cpu.poll_ns))]

    def wakeup(self) -> list[Term]:
        """PE_CPU wakes up by an event."""
        return [Term("PE_CPU, wake-up", ("pe_cpu.wakeup_ns",), ns_to_ps(self._components.pe_cpu.wakeup_ns))]

    def ipcq(self) -> Term:
        """PE_IPCQ's work on a send or a credit."""
        return Term("PE_IPCQ", ("pe_ipcq.overhead_ns",), self._ipcq_ps)

    def _fetch(self, source: Node, address: int) -> Iterator[Term]:
        """A read whose bytes PE_DMA passes on as they come: their drain is that of the message."""
        memory, graph = self.node_of(address), self.system.graph
        if memory == source:
            return
        space, back = PhysAddr.decode(address).space, graph.route(memory, source)
        yield from self.transfer(graph.route(source, memory), self._components.pe_dma.command_bytes)
        yield from self._reading(space, self._memories.at(space, memory))
        yield from self._head(back._replace(edges=back.edges[:-1]))
        yield Term("wires", ("wire.ns_per_mm",), back.edges[-1].wire_ps)

    def _read_from(
        self, here: Node, there: Node, port: MemoryPort, space: str, nbytes: int, *spans: Term
    ) -> list[Term]:
        command, data = self._components.pe_dma.command_bytes, self._wire_format.data_bytes(nbytes)
        reading = self._span(space, port, port.read_span_ps(nbytes))
        return [
            *self.transfer(self.system.graph.route(here, there), command),
            *self._reading(space, port),
            *self.transfer(self.system.graph.route(there, here), data, (), reading, *spans),
        ]

    def _write_to(self, place: Place, address: int, nbytes: int, *spans: Term) -> list[Term]:
        here, there, port, space = self._memory(place, address)
        writing = self._span(space, port, port.write_span_ps(nbytes))
        if here == there:
            return [*self._near(space, port, writing.ps), *self._writing(space, port)]
        data = self._wire_format.data_bytes(nbytes)
        return [
            *self.transfer(self.system.graph.route(here, there), data, (), writing, *spans),
            *self._writing(space, port),
            *self.transfer(self.system.graph.route(there, here), self._components.pe_dma.ack_bytes),
        ]

    def _reading(self, space: str, port: MemoryPort) -> list[Term]:
        return [Term(f"{space.upper()} {each.what}", (f"{space}.{each.key}",), each.ps) for each in port.read_terms()]

    def _writing(self, space: str, port: MemoryPort) -> list[Term]:
        return [Term(f"{space.upper()} {each.what}", (f"{space}.{each.key}",), each.ps) for each in port.write_terms()]

    def _span(self, space: str, port: MemoryPort, ps: Ps) -> Term:
        return Term(f"{THROUGH}{space.upper()}", (f"{space}.{port.bandwidth_key}",), ps)

    def _near(self, space: str, port: MemoryPort, ps: Ps) -> list[Term]:
        """The time of an access's bytes in a memory that is reached without the fabric."""
        return [self._span(space, port, ps)] if ps else []

    def _taking(self, tcm: MemoryPort, nbytes: int) -> list[Term]:
        """The time of bytes that leave a PE in its TCM, if that has a bandwidth."""
        return [self._span("tcm", tcm, tcm.read_span_ps(nbytes))] if tcm.bandwidths else []

    def _landing(self, tcm: MemoryPort, nbytes: int) -> list[Term]:
        return [self._span("tcm", tcm, tcm.write_span_ps(nbytes))] if tcm.bandwidths else []

    def _memory(self, place: Place, address: int) -> tuple[Node, Node, MemoryPort, str]:
        space, node = PhysAddr.decode(address).space, self.node_of(address)
        return Node("pe", place[1], place[2]), node, self._memories.at(space, node), space

    def _back(self, src: Place, direction: str, peer: Place) -> tuple[Route, Presets]:
        return self._route(src[0], Node("pe", src[1], src[2]), peer[0], Node("pe", peer[1], peer[2]), direction)

    def _near_piece(self, src_sip: int, start: Node, dst_sip: int, end: Node, direction: str) -> tuple[Route, Presets]:
        """What of a route bounds the rate at which a transfer leaves its source, and the preset of its link."""
        route, presets = self._route(src_sip, start, dst_sip, end, direction)
        if presets:
            port = self.port_of(src_sip, dst_sip, direction)
            route = self.system.pieces(src_sip, start, dst_sip, end, port)[0][1]
        return self.system.until_left(route), presets[:1]

    def _route(self, src_sip: int, start: Node, dst_sip: int, end: Node, direction: str) -> tuple[Route, Presets]:
        """The route, and the presets of the links on it."""
        port = None if src_sip == dst_sip else self.port_of(src_sip, dst_sip, direction)
        route = self.system.end_to_end(src_sip, start, dst_sip, end, port)
        if port is None:
            return route, ()
        *leaving, _ = self.system.pieces(src_sip, start, dst_sip, end, port)
        return route, tuple(self._presets[sip, str(piece.edges[-1].src.place)] for sip, piece in leaving)
