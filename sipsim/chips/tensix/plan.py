"""Plan of a run with Tensix chips, which every process makes before the simulation: parameters, Ethernet links."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from sipsim.chips.api.run_plan import RunPlan
from sipsim.chips.tensix.noc import FloorPlan, NocGraph
from sipsim.chips.tensix.params import ChipParams
from sipsim.config.schema import Resolved
from sipsim.fabric.sips import SipNetwork

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
