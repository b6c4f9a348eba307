"""Network of SIPs for every chip: links and their kinds, channels between SIPs, and routes from end to end.

The network is derived from the resolved config. If frames pass through SIPs, the chip gives the graph inside a SIP.
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
    reserved_ports,
    resolve_shape,
)

Ps = int


class FarEnd(NamedTuple):
    """Far end of a port's link: the link's channel to that end, and the SIP and port there."""

    channel: int
    sip: int
    port: str


class ParallelLink(NamedTuple):
    """Link from a SIP to a neighbour, perhaps one of several: its channel, and its ports at both ends."""

    channel: int
    port: str
    far_port: str


def _port_order(port: str) -> tuple[object, ...]:
    """Return the sort key of a port: the sides of a grid precede other ports."""
    return (PORTS.index(port) if port in PORTS else len(PORTS), natural_order(port))


def _check_bound(link: SipLink, kind: AnyLinkKind, name: str, bound_ps: object) -> None:
    """Raise ``ConfigError`` if the value of a user's link kind for ``name`` is no time in ps."""
    if type(bound_ps) is not int or bound_ps < 0:
        what = f"its {name} is {bound_ps!r}; must be a whole number of ps, 0 or more"
        raise ConfigError(f"link {link.name}, of kind {type(kind).__name__}: {what}")


class SipNetwork:
    """All SIPs of a run and their links. Channel ``i`` carries the data of directed link ``i``.

    ``link_kinds``, ``outages``: one entry per directed link. ``reserved``: ports, as ``SIP.port``, of links that are
    reserved for the dispatcher.
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
        self.reserved: frozenset[str] = reserved_ports(sips, self.links)
        self.far_ends = {
            (link.src, link.src_port): FarEnd(channel, link.dst, link.dst_port)
            for channel, link in enumerate(self.links)
        }

    def data_channels(self) -> list[Channel]:
        """Return one channel per directed link, in canonical order, with its lookahead: the link kind's
        ``lookahead_ps`` of :meth:`least_path_ps`.

        Raises:
            ConfigError: for a lookahead of 0, or one that is not a time in ps.
        """
        channels = []
        for number, (link, kind) in enumerate(zip(self.links, self.link_kinds, strict=True)):
            lookahead_ps = kind.lookahead_ps(self.least_path_ps(number))
            if lookahead_ps == 0:
                what = "its lookahead is 0 ps; without delay SIPs cannot be simulated in parallel; must be more than 0"
                raise ConfigError(f"link {link.name}, of kind {type(kind).__name__}: {what}")
            _check_bound(link, kind, "lookahead_ps", lookahead_ps)
            channels.append(Channel(link.src, link.dst, lookahead_ps, link.name))
        return channels

    def transit_reaction_ps(self, sip: int) -> int:
        """Return the least time, in ps, from a packet's arrival at a SIP to its sending on the next link."""
        bounds = []
        for link, kind in self._kinds_from(sip):
            bounds.append(kind.reaction_ps(self.transit_ps(kind)))
            _check_bound(link, kind, "reaction_ps", bounds[-1])
        return min(bounds, default=0)

    def answers_ps(self, sip: int) -> list[Ps]:
        """Return for each port of a SIP that answers arrivals the least time, in ps, from an arrival to its answer."""
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
        """Whether all links on the route to a SIP (over ``first_port``, if given) are ``is_die_to_die``."""
        while src_sip != dst_sip:
            far = self.far_ends[src_sip, first_port or self.next_port(src_sip, dst_sip)]
            if not self.link_kinds[far.channel].is_die_to_die:
                return False
            src_sip, first_port = far.sip, None
        return True

    def hops(self, src_sip: int, dst_sip: int) -> int:
        """Return the number of links on the shortest route from a SIP to another."""
        return self._hops_to(dst_sip)[src_sip]

    def next_port(self, src_sip: int, dst_sip: int) -> str:
        """Return the port for packets to another SIP: fewest hops, then in the order E, W, N, S, eth2, eth10."""
        hops = self._hops_to(dst_sip)
        nearer = hops[src_sip] - 1
        return next(port for port in self._ports_of[src_sip] if hops[self.far_ends[src_sip, port].sip] == nearer)

    def links_between(self, sip_a: int, sip_b: int, with_reserved: bool = False) -> list[ParallelLink]:
        """Return the links from ``sip_a`` to ``sip_b``; the list is empty if the SIPs are no neighbours.

        The links are in the order of the ports of the SIP with the lower number, so entry ``i`` of both directions is
        the same link. Links that are reserved for the dispatcher are excluded unless ``with_reserved``.
        """
        reserved = frozenset[str]() if with_reserved else self.reserved
        ends = [(port, self.far_ends[sip_a, port]) for port in self._ports_of[sip_a]]
        links = [ParallelLink(far.channel, port, far.port) for port, far in ends if far.sip == sip_b]
        if sip_a > sip_b:
            links.sort(key=lambda link: _port_order(link.far_port))
        return [link for link in links if f"{sip_a}.{link.port}" not in reserved]

    def port_towards(self, src_sip: int, dst_sip: int, direction: str) -> str:
        """Return the port of a ``global_X`` direction if its link leads to ``dst_sip``, else :meth:`next_port`."""
        port = direction.removeprefix("global_")
        far = self.far_ends.get((src_sip, port))
        return port if far is not None and far.sip == dst_sip else self.next_port(src_sip, dst_sip)

    @property
    def shape_text(self) -> str | None:
        """The grid of SIPs, such as ``3x2``; None for a topology without a grid."""
        return grid_text(self.shape) if TOPOLOGIES.get(self.topology).dimensions > 1 else None

    @property
    def link_text(self) -> str:
        """Names of the presets in use, in the order of each one's first link; without links, the default preset."""
        sips = self.resolved.topology.system.sips
        return ", ".join(dict.fromkeys(link_presets(sips, self.links) or [sips.link]))

    def describe(self) -> str:
        """Return one line for messages: number of SIPs, topology, links, chip."""
        sips, links = f"{self.n_sips} SIP{'s' if self.n_sips > 1 else ''}", self.link_text
        joined = f"{self.topology} {self.shape_text}" if self.shape_text else self.topology
        return f"{sips}, {joined}, link{'s' if ',' in links else ''} {links}, {self.describe_sip()} each"

    def describe_sip(self) -> str:
        """Return the text for one SIP in :meth:`describe`."""
        return f"chip {self.resolved.topology.system.chip}"

    def canonical_view(self) -> dict[str, Any]:
        """Return the system for digests: configs that describe the same system have the same values.

        The shape is filled in. Only link presets in use count, without names and sources. The chip adds the values of
        the other sections that have an effect.
        """
        system = msgspec.to_builtins(self.resolved.topology.system)
        system["sips"].update(shape=self.shape, link=None)
        del system["sips"]["links"], system["sips"]["outages"]
        if system["sips"]["num_links"] is None:
            del system["sips"]["num_links"]
        for key in ("locations", "remote"):
            if not system["sips"][key]:
                del system["sips"][key]
        down = {link.name: times for link, times in zip(self.links, self.outages, strict=True) if times}
        if down:
            system["sips"]["outages"] = down
        for edge in system["sips"]["custom_links"]:
            del edge["link"]
        default = link_of_preset(self.resolved, self.resolved.topology.system.sips.link)
        kinds = zip(self.link_kind_names, self.link_kinds or [default], strict=True)
        # Users' classes of the same name may differ, so a registered name with a dot is used in full.
        links = [[name if "." in name else type(kind).__name__, kind] for name, kind in kinds]
        return {"topology": {"system": system}, "link": links[0] if all(each == links[0] for each in links) else links}

    @property
    def link_kind_names(self) -> list[str]:
        """The registered name of each directed link's kind; without links, only that of the default kind."""
        sips, presets = self.resolved.topology.system.sips, self.resolved.links.links
        return [presets[name].kind for name in link_presets(sips, self.links) or [sips.link]]

    def least_path_ps(self, link: int) -> Ps:
        """Return the least time from when a source sends a byte of a frame until the byte is on link number ``link``.

        A chip with a longer least path overrides this; its channels then have a longer lookahead.
        """
        return 0

    def transit_ps(self, kind: AnyLinkKind) -> Ps:
        """Return the least time from a frame's arrival to its sending on the next link, which is of ``kind``."""
        return 0

    def answer_ps(self, kind: AnyLinkKind) -> Ps | None:
        """Return the least time from an arrival to the answer of a port with such a link; None if it never answers."""
        return kind.answer_ps

    def _hops_to(self, dst_sip: int) -> list[int]:
        """Return each SIP's number of hops to ``dst_sip``, from a breadth-first search."""
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
        """The numbers of the directed links that leave each SIP: one list per SIP."""
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
    """Network of SIPs through which frames pass on routes.

    ``graph``: the inside of every SIP, with a node for each IO port (:func:`port_node`). ``chunk_bytes``: how many
    bytes of a transfer a shared edge serves at a time.
    """

    def __init__(self, resolved: Resolved, graph: RouteGraph, chunk_bytes: int) -> None:
        super().__init__(resolved)
        self.graph = graph
        self.chunk_bytes = chunk_bytes

    def end_to_end(self, src_sip: int, src: Node, dst_sip: int, dst: Node, first_port: str | None = None) -> Route:
        """Return the route between two nodes of any two SIPs, with the links and SIPs between them."""
        pieces = [route for _, route in self.pieces(src_sip, src, dst_sip, dst, first_port)]
        return reduce(lambda onward, route: route.then(onward), reversed(pieces))

    def pieces(
        self, src_sip: int, src: Node, dst_sip: int, dst: Node, first_port: str | None = None
    ) -> list[tuple[int, Route]]:
        """Return :meth:`end_to_end` as (SIP, route) pairs: each route leads from a node of its SIP over the link to the
        next SIP, the last one to ``dst``. The sum of the head latencies and the longest drain are those of the whole
        route. A route is the same object at every call.
        """
        routes = []
        while src_sip != dst_sip:
            port = first_port or self.next_port(src_sip, dst_sip)
            routes.append((src_sip, self.leaving(src_sip, src, port)))
            far = self.far_ends[src_sip, port]
            src_sip, src, first_port = far.sip, port_node(far.port), None
        return [*routes, (dst_sip, self.graph.route(src, dst))]

    def leaving(self, sip: int, src: Node, port: str) -> Route:
        """Return the route from a node to the far end of a port's link: one object for all SIPs with equal links."""
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
        """The least head latency, in ps, from one port of a SIP to another; 2**62 if no two ports are in use."""
        used = sorted({link.src_port for link in self.links})
        transits = (self.graph.route(port_node(a), port_node(b)).head_ps() for a in used for b in used if a != b)
        return min(transits, default=2**62)

    @cached_property
    def _leaving(self) -> dict[tuple[Node, str, AnyLinkKind], Route]:
        return {}
