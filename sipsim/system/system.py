"""The whole system as every process sees it: SIPs, links, channels between them, and routes from end to end.

A description, derived from the resolved config. The simulators of its SIPs and their placement are other objects.
"""

from collections import deque
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from broker.ids import Channel
from sipsim.config.model import Resolved
from sipsim.links.base import LinkKind, link_of_preset, links_in_use
from sipsim.noc.cube_mesh import CubeMeshGraph
from sipsim.noc.graph import Node, Route
from sipsim.noc.grid import PORTS
from sipsim.topology.address import LEAD_PE, TcmMap, tcm_map
from sipsim.topology.base import SipLink
from sipsim.topology.build import build_links, link_presets, resolve_shape


class FarEnd(NamedTuple):
    """The far end of a port's link: its channel, and the SIP and port that it leads to."""

    channel: int
    sip: int
    port: str


class System:
    """All SIPs of a run and how they are joined. Channel ``i`` carries the data of directed link ``i``.

    ``chunk_bytes`` is the part of a transfer that a shared edge serves at a time. ``link_kinds``: by directed link.
    """

    def __init__(self, resolved: Resolved, chunk_bytes: int) -> None:
        self.resolved = resolved
        sips = resolved.topology.system.sips
        self.n_sips = sips.count
        self.topology = sips.topology
        self.shape = resolve_shape(sips)
        self.links: list[SipLink] = build_links(sips)
        self.link_kinds: list[LinkKind] = links_in_use(resolved, self.links)
        self.chunk_bytes = chunk_bytes
        self.graph = CubeMeshGraph(resolved)
        self.n_pes = resolved.topology.cube.pes
        self.far_ends = {
            (link.src, link.src_port): FarEnd(channel, link.dst, link.dst_port)
            for channel, link in enumerate(self.links)
        }

    @property
    def cube_mesh(self) -> tuple[int, int]:
        """(width, height) of a SIP's cube mesh."""
        mesh = self.resolved.topology.sip.cube_mesh
        return mesh.w, mesh.h

    @property
    def n_cubes(self) -> int:
        """Cubes of one SIP."""
        return self.graph.n_cubes

    @cached_property
    def tcm(self) -> TcmMap:
        """Regions of every TCM."""
        return tcm_map(self.resolved.components.tcm_layout)

    @cached_property
    def capacities(self) -> dict[str, int]:
        """Bytes of each memory, by space: a TCM, one PE's slice of HBM, a cube's SRAM."""
        cube = self.resolved.topology.cube
        return {"tcm": self.tcm.size, "hbm": cube.hbm_MiB_per_pe * 2**20, "sram": cube.sram_MiB * 2**20}

    def data_channels(self) -> list[Channel]:
        """One channel a directed link, in canonical order, with its lookahead.

        The lookahead is ``LinkKind.lookahead_ps``. A packet in transit may leave as late as the path between two ports
        after its last byte arrived, and one that PE_DMA fetches from a slower memory as late as the path to a port
        after its last chunk reached the PE. Where such a path is shorter than a chunk, it bounds the lookahead.
        """
        least_path_ps = min(self.least_transit_ps, self._least_egress_ps)
        return [
            Channel(link.src, link.dst, kind.lookahead_ps(self.chunk_bytes, least_path_ps), link.name)
            for link, kind in zip(self.links, self.link_kinds, strict=True)
        ]

    def transit_reaction_ps(self, sip: int) -> int:
        """The least time from an arrival at a SIP to the sending of the same packet on its next link."""
        kinds = [kind for link, kind in zip(self.links, self.link_kinds, strict=True) if link.src == sip]
        return min((kind.reaction_ps(self.least_transit_ps, self.chunk_bytes) for kind in kinds), default=0)

    def link_of(self, sip: int, port: str) -> LinkKind:
        """The kind of the link behind a port."""
        return self.link_kinds[self.far_ends[sip, port].channel]

    def end_to_end(self, src_sip: int, src: Node, dst_sip: int, dst: Node, first_port: str | None = None) -> Route:
        """The route from a node of one SIP to a node of another (or the same), links and transit SIPs included."""
        if src_sip == dst_sip:
            return self.graph.route(src, dst)
        port = first_port or self.next_port(src_sip, dst_sip)
        far = self.far_ends[src_sip, port]
        leaving = self.leaving(src_sip, src, port)
        return leaving.then(self.end_to_end(far.sip, Node("io", -1, far.port), dst_sip, dst))

    def leaving(self, sip: int, src: Node, port: str) -> Route:
        """The route from a node of a SIP to the far end of a port's link. SIPs with links of one kind share it."""
        link = self.link_of(sip, port)
        key = (src, port, link)
        if key not in self._leaving:
            inside = self.graph.route(src, Node("io", -1, port))
            onto = self.graph.link_edge(port, link.latency_ps, link.bandwidth_bps, link)
            self._leaving[key] = Route(src, inside.start_ps, (*inside.edges, onto))
        return self._leaving[key]

    def next_port(self, src_sip: int, dst_sip: int) -> str:
        """The port by which packets for another SIP leave: fewest hops, E and W before N and S."""
        hops = self._hops_to(dst_sip)
        return next(
            port
            for port in PORTS
            if (far := self.far_ends.get((src_sip, port))) is not None and hops[far.sip] == hops[src_sip] - 1
        )

    def port_towards(self, src_sip: int, dst_sip: int, direction: str) -> str:
        """The port of a ``global_X`` direction when its link leads to that SIP, else the routed one."""
        port = direction.removeprefix("global_")
        far = self.far_ends.get((src_sip, port))
        return port if far is not None and far.sip == dst_sip else self.next_port(src_sip, dst_sip)

    def describe(self) -> str:
        """The system as one line for messages."""
        sips = f"{self.n_sips} SIP{'s' if self.n_sips > 1 else ''}"
        grid = f" {self.shape[0]}x{self.shape[1]}" if self.shape[1] > 1 else ""
        presets = list(dict.fromkeys(link_presets(self.resolved.topology.system.sips, self.links)))
        names = ", ".join(presets or [self.resolved.topology.system.sips.link])
        kinds = f"link{'s' if len(presets) > 1 else ''} {names}"
        return f"{sips}, {self.topology}{grid}, {kinds}, {self.n_cubes} cube{'s' if self.n_cubes > 1 else ''} each"

    def canonical_view(self) -> dict[str, Any]:
        """The system for digests: the same system gives the same values, however its config was written.

        Shape and port places are filled in; of the link presets only those in use count, without names and sources.
        """
        topology = msgspec.to_builtins(self.resolved.topology)
        sips = topology["system"]["sips"]
        sips.update(shape=self.shape, link=None)
        del sips["links"]
        for edge in sips["custom_links"]:
            del edge["link"]
        topology["sip"]["ports"] = {port: self.graph.port_cube(port) for port in PORTS}
        default = link_of_preset(self.resolved, self.resolved.topology.system.sips.link)
        links = [[type(kind).__name__, kind] for kind in self.link_kinds or [default]]
        of_one_kind = len(set(self.link_kinds)) <= 1
        return {
            "topology": topology,
            "components": self.resolved.components,
            "link": links[0] if of_one_kind else links,
        }

    @cached_property
    def _leaving(self) -> dict[tuple[Node, str, LinkKind], Route]:
        return {}

    @cached_property
    def _least_egress_ps(self) -> int:
        """Least time from the start of the last chunk on the wire into a PE to its end at a port, one router between.

        A message of one chunk starts then as a whole, and takes its time on the link.
        """
        paths = (
            self.graph.route(Node("pe", self.graph.port_cube(port), LEAD_PE), Node("io", -1, port)).edges
            for port in {link.src_port for link in self.links}
        )
        ends = ((edges[0], edges[-1]) for edges in paths)
        heads = ((sum(e.wire_ps + e.overhead_ps for e in pair), pair[0].drain_ps(self.chunk_bytes)) for pair in ends)
        return min((head_ps + chunk_ps for head_ps, chunk_ps in heads), default=2**62)

    @cached_property
    def least_transit_ps(self) -> int:
        used = sorted({link.src_port for link in self.links})
        transits = (
            self.graph.route(Node("io", -1, a), Node("io", -1, b)).head_ps() for a in used for b in used if a != b
        )
        return min(transits, default=2**62)

    def _hops_to(self, dst_sip: int) -> list[int]:
        hops = self._hops.get(dst_sip)
        if hops is None:
            hops = [-1] * self.n_sips
            hops[dst_sip], queue = 0, deque([dst_sip])
            while queue:
                sip = queue.popleft()
                for source in self._sources_of[sip]:
                    if hops[source] < 0:
                        hops[source] = hops[sip] + 1
                        queue.append(source)
            self._hops[dst_sip] = hops
        return hops

    @cached_property
    def _sources_of(self) -> list[list[int]]:
        sources: list[list[int]] = [[] for _ in range(self.n_sips)]
        for link in self.links:
            sources[link.dst].append(link.src)
        return sources

    @cached_property
    def _hops(self) -> dict[int, list[int]]:
        return {}
