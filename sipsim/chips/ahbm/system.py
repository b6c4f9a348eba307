"""System of SIPs that are meshes of cubes: sizes, memories, and bounds that follow from the graph of a SIP."""

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
    """Capacities by space, each computed at its first use."""

    def __init__(self, memories: Mapping[str, Memory]) -> None:
        super().__init__()
        self._memories = memories

    def __missing__(self, space: str) -> int:
        capacity = self[space] = int(self._memories[space].capacity_bytes())
        return capacity


CHUNK_BYTES = 256
"""Bytes of a packet (ADR-0023 D19). Flows have no packets; there it bounds the barrier's control packets on a link."""

_OF_COPIES = (("host_copies",), ("launch", "bandwidth_GBps"), ("launch", "entry_bytes"), ("m_cpu", "dma_engines"))
"""Keys of ``components.yaml`` that act only on the times of the host's copies and maps."""


class AhbmSystem(RoutedSips):
    """SIPs of chip ``ahbm``. ``has_buffers``: the fabric models packets in finite buffers, not flows.

    ``knobs``: queue settings; their chunk size is the packet size of finite buffers and the unit that has a header.
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
        """Cubes per SIP."""
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
        """Spaces with one memory per cube, whichever PE an address contains."""
        return frozenset(space for space, memory in self.graph.memories.items() if memory.is_of_cube)

    def describe_sip(self) -> str:
        return f"{self.n_cubes} cube{'s' if self.n_cubes > 1 else ''}"

    def canonical_view(self) -> dict[str, Any]:
        """Return the view of the base class with this chip's sections: port places and memory kinds are filled in."""
        view, config = super().canonical_view(), msgspec.to_builtins(self.resolved.topology)
        system, sip = view["topology"]["system"], config["sip"]
        del system["chip"], system["chip_params"]
        sip["ports"] = {port: self.graph.port_cube(port) for port in PORTS}
        topology = {**config, "sip": sip, "system": system}
        return {**view, "topology": topology, "components": self._canonical_components()}

    def _canonical_components(self) -> dict[str, Any]:
        """Return ``components.yaml`` without default memory kinds, and without the keys of the host's copies and maps.

        These keys act on times only, so a run without copies has the same digest whatever their values.
        """
        components: dict[str, Any] = msgspec.to_builtins(self.resolved.components)
        for *section, key in _OF_COPIES:
            self._section(components, section).pop(key, None)
        for each in components.values():
            if each.get("kind") == FIXED_LATENCY:
                del each["kind"]
        return components

    def copy_settings(self) -> list[Any]:
        """Return the values of the keys of the host's copies and maps; None for a key that the config does not have."""
        components = msgspec.to_builtins(self.resolved.components)
        return [self._section(components, section).get(key) for *section, key in _OF_COPIES]

    @staticmethod
    def _section(components: dict[str, Any], path: list[str]) -> dict[str, Any]:
        return components.get(path[0], {}) if path else components

    def least_out_ps(self, port: str) -> int:
        """Return a lower bound, in ps, of a head's time from any PE of a SIP to a port."""
        return self._least_path_ps(port, out=True)

    def least_in_ps(self, port: str) -> int:
        """Return a lower bound, in ps, of a head's time from a port of a SIP to any PE."""
        return self._least_path_ps(port, out=False)

    def _least_path_ps(self, port: str, out: bool) -> int:
        """Return the least time for the PEs of the port's cube, or for other cubes the port's edge plus a crossing."""
        cached_ps = self._least_ways_ps.get((port, out))
        if cached_ps is not None:
            return cached_ps
        cube, ends = self.graph.port_cube(port), [port_node(port)]
        pes = [Node("pe", cube, pe) for pe in range(self.n_pes)]
        routes = [self.graph.route(*(pair if out else pair[::-1])) for pair in product(pes, ends)]
        paths_ps = [route.head_ps() for route in routes]
        if self.n_cubes > 1:
            route = routes[0]
            ends_ps = sum(edge.wire_ps + edge.overhead_ps for edge in (route.edges[0], route.edges[-1]))
            paths_ps.append(route.start_ps + ends_ps + self._crossing_ps)
        return self._least_ways_ps.setdefault((port, out), min(paths_ps))

    @cached_property
    def _crossing_ps(self) -> int:
        """Least time of a crossing from cube to cube."""
        w, _ = self.cube_mesh
        route = self.graph.route(Node("pe", 0, LEAD_PE), Node("pe", 1 if w > 1 else w, LEAD_PE))
        return sum(e.wire_ps + e.overhead_ps for e in route.edges if "ucie" in (e.src.kind, e.dst.kind))

    @cached_property
    def _least_ways_ps(self) -> dict[tuple[str, bool], int]:
        return {}

    def least_path_ps(self, link: int) -> int:
        """Return the least time from a PE or another port to the link, since frames are sent at their source; 0 for a
        port that sends frames itself.
        """
        kind = self.link_kinds[link]
        if self.has_buffers:
            return self.least_last_ps(link)
        return (
            0
            if kind.answer_ps is not None
            else min(self.least_transit_ps, self.least_out_ps(self.links[link].src_port))
        )

    def until_left(self, route: Route) -> Route:
        """Return the part of ``route``, a route within a SIP and over its link, that limits the rate of a transfer's
        departure from its source: the whole route, or with finite buffers only the first edge.
        """
        return route._replace(edges=route.edges[:1]) if self.has_buffers else route

    def least_last_ps(self, link: int) -> int:
        """Return the least time in ps from the start to the end of a frame's last chunk on a link. When the chunk
        starts on the link, it may still be arriving from another memory or link.
        """
        return min(
            self.link_kinds[link].least_chunk_ps(self.chunk_bytes), self.least_transit_ps, self._least_passing_ps
        )

    def least_mail_ps(self, link: int) -> int:
        """Return the least time from an event at a PE to a frame that it causes, without the time of PE_IPCQ."""
        return self.least_out_ps(self.links[link].src_port) if self.has_buffers else self.link_kinds[link].drain_ps(1)

    def transit_ps(self, kind: AnyLinkKind) -> int:
        return super().transit_ps(kind) if self.has_buffers else 0

    def answer_ps(self, kind: AnyLinkKind) -> int | None:
        """Return the least time from an arrival to a port's answer; a link's receive buffer returns credits at once."""
        return 0 if self._has_link_buffers else super().answer_ps(kind)

    @cached_property
    def _least_passing_ps(self) -> int:
        """Least time from the start of the last chunk on the wire into a PE to its end at a port, past one router.

        This uses the drain of one byte, not of a chunk: the head of a short message from a slow memory is on the link
        before the message's last chunk is known here.
        """
        paths = (
            self.graph.route(Node("pe", self.graph.port_cube(port), LEAD_PE), port_node(port)).edges
            for port in {link.src_port for link in self.links}
        )
        ends = ((edges[0], edges[-1]) for edges in paths)
        heads = ((sum(e.wire_ps + e.overhead_ps for e in pair), pair[0].drain_ps(1)) for pair in ends)
        return min((head_ps + byte_ps for head_ps, byte_ps in heads), default=2**62)
