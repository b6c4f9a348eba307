"""What a transfer costs by the config: its terms, each with the part of the machine and the config keys of its cost."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sipsim.chips.ahbm.system import System
from sipsim.config.schema.model import IpcqKnobs, Resolved
from sipsim.fabric.graph.graph import Node, Route, bottleneck
from sipsim.fabric.links.kind.base import link_of_preset
from sipsim.topology.links.build import link_presets

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


class TransferTerms:
    """Routes of a system as ``resolved`` has it, and what their nodes, wires and edges cost."""

    def __init__(self, resolved: Resolved, knobs: IpcqKnobs) -> None:
        self.system = System(resolved, knobs.vc_chunk_size)
        self.knobs = knobs
        self._components = resolved.components
        self._edge_ps: dict[tuple[int, Node, Node], Ps] = {}
        self._kinds = {name: link_of_preset(resolved, name) for name in resolved.links.links}
        self._presets = dict(
            zip(
                ((link.src, link.src_port) for link in self.system.links),
                link_presets(resolved.topology.system.sips, self.system.links),
                strict=True,
            )
        )

    def transfer(self, route: Route, nbytes: int, presets: Presets = (), *spans: Term) -> Iterator[Term]:
        """The terms of an uncontended transfer. ``presets``: those of the links on its route, in order.

        ``spans``: what the memories at its ends need for its bytes; the slowest of them and of the edges counts.
        """
        yield from self._head(route, presets)
        if route.edges:
            yield from self._drain(route, nbytes, presets, spans)

    def drain_ps(self, sip: int, src: Node, dst: Node) -> Ps:
        """Time that an edge of a SIP needs for a MiB."""
        edge = (sip, src, dst) if dst.kind == "far" else (0, src, dst)
        if edge not in self._edge_ps:
            if dst.kind == "far":
                self._edge_ps[edge] = self.system.link_of(sip, str(src.place)).drain_ps(MIB)
            else:
                self._edge_ps[edge] = self.system.graph.edge(src, dst).drain_ps(MIB)
        return self._edge_ps[edge]

    def edge_name(self, sip: int, src: Node, dst: Node) -> str:
        """An edge of a SIP with its SIP; a link by its name."""
        if dst.kind != "far":
            return f"sip{sip}.{src}>{dst}"
        far = self.system.far_ends[sip, str(src.place)]
        return f"link {self.system.links[far.channel].name}"

    def rate_keys(self, sip: int, src: Node, dst: Node) -> tuple[str, ...]:
        """The config keys of an edge's bandwidth."""
        if dst.kind != "far":
            return tuple(self._rate_keys(src.kind, dst.kind))
        return (_link_key(self._presets[sip, str(src.place)], "bandwidth_GBps"),)

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


def _longest(spans: Sequence[Term]) -> Term:
    return max(spans, key=lambda span: span.ps, default=Term("", (), 0))


def _link_key(preset: str, name: str) -> str:
    return f"links.{preset}.params.{name}"
