"""The system of SIPs that are meshes of cubes: sizes, memories, and what follows from the graph of a SIP."""

from collections.abc import Mapping
from functools import cached_property
from itertools import product
from typing import Any

import msgspec

from sipsim.chips.ahbm.address import LEAD_PE, TcmMap, tcm_map
from sipsim.chips.ahbm.memory.ports import FIXED_LATENCY
from sipsim.chips.ahbm.mesh import CubeMeshGraph, Memory
from sipsim.config.schema import IpcqKnobs, Resolved
from sipsim.fabric.channels import ChunkFraming
from sipsim.fabric.graph import PORTS, Node, Route, port_node
from sipsim.fabric.links.kind import AnyLinkKind
from sipsim.fabric.sips import RoutedSips


class _Capacities(dict[str, int]):
    """Each is asked for when it is first needed."""

    def __init__(self, memories: Mapping[str, Memory]) -> None:
        super().__init__()
        self._memories = memories

    def __missing__(self, space: str) -> int:
        capacity = self[space] = int(self._memories[space].capacity_bytes())
        return capacity


CHUNK_BYTES = 256
"""ADR-0023 D19: a packet. Flows have none; it is what control packets of the barrier take on a link at most."""


class AhbmSystem(RoutedSips):
    """SIPs of chip ``ahbm``. ``has_buffers``: the fabric is that of packets in finite buffers, not that of flows.

    ``knobs``: of the queues, whose chunk is the packet of finite buffers, and what has a header on every edge.
    """

    graph: CubeMeshGraph

    def __init__(self, resolved: Resolved, knobs: IpcqKnobs) -> None:
        with resolved.reads.apart():
            self.has_buffers = resolved.components.router.buffer_packets is not None
            self._has_link_buffers = resolved.components.io_port.buffer_packets is not None
        header_bytes = knobs.vc_chunk_header_bytes
        chunks = ChunkFraming(knobs.vc_chunk_size, header_bytes) if header_bytes else None
        graph = CubeMeshGraph(resolved, chunks)
        super().__init__(resolved, graph, knobs.vc_chunk_size if self.has_buffers else CHUNK_BYTES)
        self.n_pes = resolved.topology.cube.pes

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
        return _Capacities(self.graph.memories)

    @cached_property
    def spaces_of_cubes(self) -> frozenset[str]:
        """The spaces of which a cube has one memory, whichever PE an address names."""
        return frozenset(space for space, memory in self.graph.memories.items() if memory.is_of_cube)

    def describe_sip(self) -> str:
        return f"{self.n_cubes} cube{'s' if self.n_cubes > 1 else ''}"

    def canonical_view(self) -> dict[str, Any]:
        """The chip is this one, and its sections are added: port places and the kinds of memories are filled in."""
        view, config = super().canonical_view(), msgspec.to_builtins(self.resolved.topology)
        system, sip = view["topology"]["system"], config["sip"]
        del system["chip"], system["chip_params"]
        sip["ports"] = {port: self.graph.port_cube(port) for port in PORTS}
        topology = {**config, "sip": sip, "system": system}
        return {**view, "topology": topology, "components": self._canonical_components()}

    def _canonical_components(self) -> dict[str, Any]:
        """``components.yaml``, without the kind that a memory has when none is named."""
        components: dict[str, Any] = msgspec.to_builtins(self.resolved.components)
        for section in components.values():
            if section.get("kind") == FIXED_LATENCY:
                del section["kind"]
        return components

    def least_out_ps(self, port: str) -> int:
        """No more than the least time of a head from any PE of a SIP to a port."""
        return self._least_way_ps(port, out=True)

    def least_in_ps(self, port: str) -> int:
        """No more than the least time of a head from a port of a SIP to any PE."""
        return self._least_way_ps(port, out=False)

    def _least_way_ps(self, port: str, out: bool) -> int:
        """Of the PEs of the port's cube; those of other cubes pass the port's last edge and a crossing at least."""
        known = self._least_ways_ps.get((port, out))
        if known is not None:
            return known
        cube, ends = self.graph.port_cube(port), [port_node(port)]
        pes = [Node("pe", cube, pe) for pe in range(self.n_pes)]
        routes = [self.graph.route(*(pair if out else pair[::-1])) for pair in product(pes, ends)]
        ways_ps = [route.head_ps() for route in routes]
        if self.n_cubes > 1:
            route = routes[0]
            ends_ps = sum(edge.wire_ps + edge.overhead_ps for edge in (route.edges[0], route.edges[-1]))
            ways_ps.append(route.start_ps + ends_ps + self._crossing_ps)
        return self._least_ways_ps.setdefault((port, out), min(ways_ps))

    @cached_property
    def _crossing_ps(self) -> int:
        """What every crossing from cube to cube takes at least."""
        w, _ = self.cube_mesh
        route = self.graph.route(Node("pe", 0, LEAD_PE), Node("pe", 1 if w > 1 else w, LEAD_PE))
        return sum(e.wire_ps + e.overhead_ps for e in route.edges if "ucie" in (e.src.kind, e.dst.kind))

    @cached_property
    def _least_ways_ps(self) -> dict[tuple[str, bool], int]:
        return {}

    def least_way_ps(self, link: int) -> int:
        """The least way from a PE, or from another port, to the link, as frames are sent at their source. A port that
        sends of itself has no way to go."""
        kind = self.link_kinds[link]
        if self.has_buffers:
            return self.least_last_ps(link)
        return (
            0
            if kind.answer_ps is not None
            else min(self.least_transit_ps, self.least_out_ps(self.links[link].src_port))
        )

    def until_left(self, route: Route) -> Route:
        """What of a route inside a SIP, its link included, bounds the rate at which a transfer leaves its source: all
        of it, but with finite buffers the first edge alone."""
        return route._replace(edges=route.edges[:1]) if self.has_buffers else route

    def least_last_ps(self, link: int) -> int:
        """The least time of a frame's last chunk on a link. One that another memory, or another link, brings may come
        to the link later than that chunk begins."""
        return min(
            self.link_kinds[link].least_chunk_ps(self.chunk_bytes), self.least_transit_ps, self._least_passing_ps
        )

    def least_mail_ps(self, link: int) -> int:
        """The least time from an event at a PE to the sending of a frame that it causes, besides PE_IPCQ's."""
        return self.least_out_ps(self.links[link].src_port) if self.has_buffers else self.link_kinds[link].drain_ps(1)

    def transit_ps(self, kind: AnyLinkKind) -> int:
        return super().transit_ps(kind) if self.has_buffers else 0

    def answer_ps(self, kind: AnyLinkKind) -> int | None:
        """A buffer behind a link returns room at once."""
        return 0 if self._has_link_buffers else super().answer_ps(kind)

    @cached_property
    def _least_passing_ps(self) -> int:
        """Least time from the start of the last chunk on the wire into a PE to its end at a port, one router between.

        It counts the drain of one byte, not of a chunk: a short message from a slow memory has its head on the link
        before its last chunk is known here.
        """
        paths = (
            self.graph.route(Node("pe", self.graph.port_cube(port), LEAD_PE), port_node(port)).edges
            for port in {link.src_port for link in self.links}
        )
        ends = ((edges[0], edges[-1]) for edges in paths)
        heads = ((sum(e.wire_ps + e.overhead_ps for e in pair), pair[0].drain_ps(1)) for pair in ends)
        return min((head_ps + byte_ps for head_ps, byte_ps in heads), default=2**62)
