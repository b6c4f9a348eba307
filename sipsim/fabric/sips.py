"""SIPs and their links: link kinds, channels between SIPs, and routes from end to end, for every chip.

A description derived from the resolved config. The chip knows the inside of a SIP: a graph, if frames pass through.
"""

from collections import deque
from functools import cached_property, reduce
from typing import Any, NamedTuple

import msgspec

from broker.ids import Channel
from sipsim.config.schema import Resolved
from sipsim.core.errors import ConfigError
from sipsim.fabric.graph import PORTS, Node, Route, RouteGraph, link_edge, port_node
from sipsim.fabric.links.kind import AnyLinkKind, link_of_preset, links_in_use
from sipsim.fabric.links.outages import Outage, link_outages
from sipsim.topology.links import (
    TOPOLOGIES,
    SipLink,
    build_links,
    grid_text,
    link_presets,
    natural_order,
    resolve_shape,
)

Ps = int


class FarEnd(NamedTuple):
    """Far end of a port's link: its channel, and the SIP and port there."""

    channel: int
    sip: int
    port: str


class ParallelLink(NamedTuple):
    """One of the links from a SIP to a neighbour: its channel, and its ports at both ends."""

    channel: int
    port: str
    far_port: str


def _port_order(port: str) -> tuple[object, ...]:
    """Return a sort key: the sides of a grid are before other ports."""
    return (PORTS.index(port) if port in PORTS else len(PORTS), natural_order(port))


def _check_bound(link: SipLink, kind: AnyLinkKind, name: str, bound_ps: object) -> None:
    """Check that a time that a user's link kind returns is one."""
    if type(bound_ps) is not int or bound_ps < 0:
        what = f"its {name} is {bound_ps!r}; must be a whole number of ps, 0 or more"
        raise ConfigError(f"link {link.name}, of kind {type(kind).__name__}: {what}")


class SipNetwork:
    """All SIPs of a run and their links. Channel ``i`` carries the data of directed link ``i``.

    ``link_kinds``, ``outages``: by directed link.
    """

    def __init__(self, resolved: Resolved) -> None:
        self.resolved = resolved
        sips = resolved.topology.system.sips
        self.n_sips = sips.count
        self.topology = sips.topology
        self.shape = resolve_shape(sips)
        self.links: list[SipLink] = build_links(sips)
        self.link_kinds: list[AnyLinkKind] = links_in_use(resolved, self.links)
        self.outages: list[tuple[Outage, ...]] = link_outages(sips, self.links)
        self.far_ends = {
            (link.src, link.src_port): FarEnd(channel, link.dst, link.dst_port)
            for channel, link in enumerate(self.links)
        }

    def data_channels(self) -> list[Channel]:
        """Return one channel per directed link, in canonical order, with its lookahead.

        The lookahead is ``LinkKind.lookahead_ps`` of :meth:`least_path_ps`.

        Raises:
            ConfigError: for a link kind without lookahead.
        """
        channels = []
        for number, (link, kind) in enumerate(zip(self.links, self.link_kinds, strict=True)):
            lookahead_ps = kind.lookahead_ps(self.least_path_ps(number))
            if lookahead_ps == 0:
                what = "its lookahead is 0 ps; without delay SIPs cannot be simulated in parallel"
                raise ConfigError(f"link {link.name}, of kind {type(kind).__name__}: {what}")
            _check_bound(link, kind, "lookahead_ps", lookahead_ps)
            channels.append(Channel(link.src, link.dst, lookahead_ps, link.name))
        return channels

    def transit_reaction_ps(self, sip: int) -> int:
        """Return the least time from an arrival at a SIP to the sending of the same packet on its next link."""
        bounds = []
        for link, kind in self._kinds_from(sip):
            bounds.append(kind.reaction_ps(self.transit_ps(kind)))
            _check_bound(link, kind, "reaction_ps", bounds[-1])
        return min(bounds, default=0)

    def answers_ps(self, sip: int) -> list[Ps]:
        """Return the least times from an arrival at a port of a SIP to the port's own answer."""
        bounds = []
        for link, kind in self._kinds_from(sip):
            answer_ps = self.answer_ps(kind)
            if answer_ps is not None:
                _check_bound(link, kind, "answer_ps", answer_ps)
                bounds.append(answer_ps)
        return bounds

    def _kinds_from(self, sip: int) -> list[tuple[SipLink, AnyLinkKind]]:
        return [(self.links[number], self.link_kinds[number]) for number in self.links_from[sip]]

    def link_of(self, sip: int, port: str) -> AnyLinkKind:
        """Return the kind of the link at a port."""
        return self.link_kinds[self.far_ends[sip, port].channel]

    def is_die_to_die(self, src_sip: int, dst_sip: int, first_port: str | None = None) -> bool:
        """Whether the route to a SIP, by ``first_port`` if given, has only ``is_die_to_die`` links, or none."""
        while src_sip != dst_sip:
            far = self.far_ends[src_sip, first_port or self.next_port(src_sip, dst_sip)]
            if not self.link_kinds[far.channel].is_die_to_die:
                return False
            src_sip, first_port = far.sip, None
        return True

    def hops(self, src_sip: int, dst_sip: int) -> int:
        """Return the number of links on the shortest route to another SIP."""
        return self._hops_to(dst_sip)[src_sip]

    def next_port(self, src_sip: int, dst_sip: int) -> str:
        """Return the port for packets to another SIP: fewest hops; then E, W, N, S, eth2, eth10."""
        hops = self._hops_to(dst_sip)
        nearer = hops[src_sip] - 1
        return next(port for port in self._ports_of[src_sip] if hops[self.far_ends[src_sip, port].sip] == nearer)

    def links_between(self, sip_a: int, sip_b: int, with_reserved: bool = False) -> list[ParallelLink]:
        """Return the links from ``sip_a`` to ``sip_b``; none if they are no neighbours.

        The links are in the order of the ports of the SIP with the lower number: entry ``i`` of both directions is one
        link. Links that the topology reserves are excluded unless ``with_reserved``.
        """
        reserved = frozenset[str]() if with_reserved else TOPOLOGIES.get(self.topology).reserved
        ends = [(port, self.far_ends[sip_a, port]) for port in self._ports_of[sip_a]]
        found = [ParallelLink(far.channel, port, far.port) for port, far in ends if far.sip == sip_b]
        if sip_a > sip_b:
            found.sort(key=lambda link: _port_order(link.far_port))
        return [link for link in found if f"{sip_a}.{link.port}" not in reserved]

    def port_towards(self, src_sip: int, dst_sip: int, direction: str) -> str:
        """Return the port of a ``global_X`` direction if its link leads to that SIP, else the routed port."""
        port = direction.removeprefix("global_")
        far = self.far_ends.get((src_sip, port))
        return port if far is not None and far.sip == dst_sip else self.next_port(src_sip, dst_sip)

    @property
    def shape_text(self) -> str | None:
        """The grid of SIPs, such as ``3x2``; None for a topology without one."""
        return grid_text(self.shape) if TOPOLOGIES.get(self.topology).dimensions > 1 else None

    @property
    def link_text(self) -> str:
        """The presets of the links, in the order of their first link; without links, the preset of the config."""
        sips = self.resolved.topology.system.sips
        return ", ".join(dict.fromkeys(link_presets(sips, self.links) or [sips.link]))

    def describe(self) -> str:
        """Return the system as one line for messages."""
        sips, links = f"{self.n_sips} SIP{'s' if self.n_sips > 1 else ''}", self.link_text
        joined = f"{self.topology} {self.shape_text}" if self.shape_text else self.topology
        return f"{sips}, {joined}, link{'s' if ',' in links else ''} {links}, {self.describe_sip()} each"

    def describe_sip(self) -> str:
        """Return one SIP in a few words."""
        return f"chip {self.resolved.topology.system.chip}"

    def canonical_view(self) -> dict[str, Any]:
        """Return the system for digests: the same system gives the same values, however its config was written.

        The shape is filled in; only link presets in use count, without names and sources. The chip adds the values of
        the other sections that count.
        """
        system = msgspec.to_builtins(self.resolved.topology.system)
        system["sips"].update(shape=self.shape, link=None)
        del system["sips"]["links"], system["sips"]["outages"]
        if system["sips"]["num_links"] is None:
            del system["sips"]["num_links"]
        down = {link.name: times for link, times in zip(self.links, self.outages, strict=True) if times}
        if down:
            system["sips"]["outages"] = down
        for edge in system["sips"]["custom_links"]:
            del edge["link"]
        default = link_of_preset(self.resolved, self.resolved.topology.system.sips.link)
        kinds = zip(self.link_kind_names, self.link_kinds or [default], strict=True)
        # Classes of two users may have the same name.
        links = [[name if "." in name else type(kind).__name__, kind] for name, kind in kinds]
        return {"topology": {"system": system}, "link": links[0] if all(each == links[0] for each in links) else links}

    @property
    def link_kind_names(self) -> list[str]:
        """The registered name of each directed link's kind; without links, of the default kind."""
        sips, presets = self.resolved.topology.system.sips, self.resolved.links.links
        return [presets[name].kind for name in link_presets(sips, self.links) or [sips.link]]

    def least_path_ps(self, link: int) -> Ps:
        """Return the least time from the sending of a byte of a frame, at its source, until it is on link number
        ``link``.

        A chip that knows its sources may return more than 0; then links have a longer lookahead.
        """
        return 0

    def transit_ps(self, kind: AnyLinkKind) -> Ps:
        """Return the least time from an arrival to the sending of the same frame on its next link, of a kind."""
        return 0

    def answer_ps(self, kind: AnyLinkKind) -> Ps | None:
        """Return the least time from an arrival at a port of a SIP to the answer of a port with a link of a kind, or
        None.
        """
        return kind.answer_ps

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
    def links_from(self) -> list[list[int]]:
        """The numbers of the directed links that leave each SIP, by SIP."""
        numbers: list[list[int]] = [[] for _ in range(self.n_sips)]
        for number, link in enumerate(self.links):
            numbers[link.src].append(number)
        return numbers

    @cached_property
    def _ports_of(self) -> list[list[str]]:
        ports: list[list[str]] = [[] for _ in range(self.n_sips)]
        for sip, port in self.far_ends:
            ports[sip].append(port)
        return [sorted(each, key=_port_order) for each in ports]

    @cached_property
    def _sources_of(self) -> list[list[int]]:
        sources: list[list[int]] = [[] for _ in range(self.n_sips)]
        for link in self.links:
            sources[link.dst].append(link.src)
        return sources

    @cached_property
    def _hops(self) -> dict[int, list[int]]:
        return {}


class RoutedSips(SipNetwork):
    """SIPs through which frames pass on routes.

    ``graph``: the inside of every SIP, with a node for each IO port (:func:`port_node`). ``chunk_bytes``: the part of a
    transfer that a shared edge serves at a time.
    """

    def __init__(self, resolved: Resolved, graph: RouteGraph, chunk_bytes: int) -> None:
        super().__init__(resolved)
        self.graph = graph
        self.chunk_bytes = chunk_bytes

    def end_to_end(self, src_sip: int, src: Node, dst_sip: int, dst: Node, first_port: str | None = None) -> Route:
        """Return the route from a node of one SIP to a node of another (or the same), with links and transit SIPs."""
        pieces = [route for _, route in self.pieces(src_sip, src, dst_sip, dst, first_port)]
        return reduce(lambda onward, route: route.then(onward), reversed(pieces))

    def pieces(
        self, src_sip: int, src: Node, dst_sip: int, dst: Node, first_port: str | None = None
    ) -> list[tuple[int, Route]]:
        """Return :meth:`end_to_end` SIP by SIP: each route leads from a node of that SIP over the link out of it, the
        last one to the destination. Head latencies add up, and the drain is the longest; the objects are always the
        same.
        """
        found = []
        while src_sip != dst_sip:
            port = first_port or self.next_port(src_sip, dst_sip)
            found.append((src_sip, self.leaving(src_sip, src, port)))
            far = self.far_ends[src_sip, port]
            src_sip, src, first_port = far.sip, port_node(far.port), None
        return [*found, (dst_sip, self.graph.route(src, dst))]

    def leaving(self, sip: int, src: Node, port: str) -> Route:
        """Return the route from a node of a SIP to the far end of a port's link. SIPs with equal links share it."""
        link = self.link_of(sip, port)
        key = (src, port, link)
        if key not in self._leaving:
            inside = self.graph.route(src, port_node(port))
            onto = link_edge(port, link.latency_ps, link.bandwidth_bps, link)
            self._leaving[key] = Route(src, inside.start_ps, (*inside.edges, onto))
        return self._leaving[key]

    def transit_ps(self, kind: AnyLinkKind) -> Ps:
        return max(self.least_transit_ps - kind.least_chunk_ps(self.chunk_bytes), 0)

    @cached_property
    def least_transit_ps(self) -> int:
        used = sorted({link.src_port for link in self.links})
        transits = (self.graph.route(port_node(a), port_node(b)).head_ps() for a in used for b in used if a != b)
        return min(transits, default=2**62)

    @cached_property
    def _leaving(self) -> dict[tuple[Node, str, AnyLinkKind], Route]:
        return {}
