"""Plan of a run with Tensix chips, which every process makes before the simulation: parameters, Ethernet links."""

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import msgspec

from sipsim.chips.api.run_plan import RunPlan
from sipsim.chips.tensix.lines import Graph, Line
from sipsim.chips.tensix.noc import FloorPlan, NocGraph
from sipsim.chips.tensix.params import ChipParams
from sipsim.config.schema import Resolved
from sipsim.fabric.sips import SipNetwork
from sipsim.topology.links import Location, locations, remote_sips
from sipsim.topology.tenstorrent import port_of

SIDES = ("E", "W", "N", "S")
"""Ports that all chips have: the names of Ethernet channels 0 to 3, in this order."""


class Link(NamedTuple):
    """Link of an Ethernet channel. ``number``: unique in the run. ``far_sip``, ``far_channel``: the link's far end."""

    number: int
    far_sip: int
    far_channel: int


class TensixPlan(RunPlan):
    """Plan of a run. ``links``: by SIP and Ethernet channel, the link that the channel sends on. ``arrivals``: by SIP
    and link number, the Ethernet channel that receives from the link.
    """

    def __init__(self, resolved: Resolved, params: ChipParams) -> None:
        self.resolved = resolved
        self.params = params
        self.floor_plan = FloorPlan(params)
        self.graph = NocGraph(params)
        self.system = SipNetwork(resolved)
        self.links: list[dict[int, Link]] = [{} for _ in range(self.system.n_sips)]
        for number, link in enumerate(self.system.links):
            near, far = channel_of(link.src_port), channel_of(link.dst_port)
            self.links[link.src][near] = Link(number, link.dst, far)
        self.arrivals: list[dict[int, int]] = [{} for _ in range(self.system.n_sips)]
        for number, link in enumerate(self.system.links):
            self.arrivals[link.dst][number] = channel_of(link.dst_port)
        self._lines: dict[tuple[str, int], Line | None] = {}

    @property
    def egress_ps(self) -> list[int]:
        return [0] * self.system.n_sips

    def has_transit(self) -> bool:
        return False

    def digest_lines(self) -> list[str]:
        return [msgspec.json.encode(self.params, order="sorted").decode()]

    def links_to(self, sip: int, far_sip: int, with_reserved: bool = False) -> list[int]:
        """Return a SIP's Ethernet channels to another SIP, in the same order of links as for the reverse direction."""
        links = self.system.links_between(sip, far_sip, with_reserved)
        return [channel_of(link.port) for link in links]

    def is_reserved(self, sip: int, channel: int) -> bool:
        """Whether a SIP's Ethernet channel has a link that is reserved for the dispatcher."""
        ports = port_of(channel), *(side for side in SIDES if channel_of(side) == channel)
        return any(f"{sip}.{port}" in self.system.reserved for port in ports)

    @cached_property
    def locations(self) -> tuple[Location, ...]:
        """The location of each SIP; empty if unknown."""
        return locations(self.resolved.topology.system.sips)

    @cached_property
    def remote(self) -> frozenset[int]:
        """The SIPs that no host reaches over PCIe."""
        return remote_sips(self.resolved.topology.system.sips)

    @cached_property
    def rows(self) -> tuple[tuple[int, ...], ...]:
        """The SIPs of the mesh, row by row; empty if locations are unknown or fill no single mesh."""
        places = {place: sip for sip, place in enumerate(self.locations)}
        width, height = (1 + max((place[axis] for place in places), default=-1) for axis in (0, 1))
        if len(places) != width * height or len({place[2:] for place in places}) != 1:
            return ()
        shelf = next(iter(places))[2:]
        return tuple(tuple(places[Location(x, y, *shelf)] for x in range(width)) for y in range(height))

    def line(self, topology: str, num_links: int) -> Line | None:
        """Return a line or ring through all SIPs in which neighbours have ``num_links`` links, None if none is found.

        For a ring that is not found this is a line. A SIP's links to itself or to one neighbour make no ring.
        """
        key = topology, num_links
        if key not in self._lines:
            self._lines[key] = self.graph_of(num_links).find(topology)
        return self._lines[key]

    def graph_of(self, num_links: int) -> Graph:
        """Return the graph of SIPs; neighbours are SIPs with ``num_links`` links or more for programs."""
        near = []
        for sip, links in enumerate(self.links):
            fars = sorted({link.far_sip for link in links.values()})
            near.append([far for far in fars if len(self.links_to(sip, far)) >= num_links])
        return Graph(near, self.rows)


def channel_of(port: str) -> int:
    """Return the Ethernet channel of a port: ``E``, ``W``, ``N``, ``S`` or ``ethCHANNEL``."""
    return SIDES.index(port) if port in SIDES else int(port.removeprefix("eth"))


def merged(defaults: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
    """Return ``defaults`` with the values in ``given`` replaced, recursively for nested mappings."""
    values = dict(defaults)
    for key, value in given.items():
        old = values.get(key)
        values[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return values
