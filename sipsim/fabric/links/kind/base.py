"""The interface of a link kind: bytes on the wire for a payload, bandwidth, latency.

A kind is a frozen struct of parameters (so that ``links.yaml`` is checked against it) with one
method, ``wire_bytes``, and a port of its own if it needs one (:meth:`LinkKind.open`). What the broker is told before
any port exists is the kind's: ``lookahead_ps``, ``reaction_ps``, ``answer_ps``. A new kind is one new module in this
package.
"""

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from sipsim.config.schema.model import Resolved
from sipsim.config.schema.section import Section
from sipsim.core.registry.registry import Registry
from sipsim.core.units import drain_ps, gbytes_per_s_to_bps, ns_to_ps
from sipsim.fabric.links.kind.port import Port, PortContext
from sipsim.topology.links.base import SipLink
from sipsim.topology.links.build import link_presets


class LatencyPart(NamedTuple):
    """A part of a link's latency: its name in sums over all links and within one link (empty: all of it), the parameter
    that it comes from, and its time.
    """

    part: str
    what: str
    key: str
    ps: int


class AnyLinkKind(Section, frozen=True):
    """Parameters every link has. Subclasses add their framing and the parts of their latency.

    The latency must be positive: a link's lookahead, without which SIPs cannot run in parallel, is the latency and
    the least chunk (:meth:`lookahead_ps`; DESIGN section 5).
    """

    bandwidth_GBps: Annotated[float, Meta(ge=1e-9, le=1e6)]

    def latency_parts(self) -> tuple[LatencyPart, ...]:
        """What the latency is the sum of: for ``--explain`` and ``ahbm-probe``."""
        raise NotImplementedError

    def wire_bytes(self, payload_bytes: int) -> int:
        """Bytes on the wire for a payload of ``payload_bytes`` (at least 1): a whole number, not less than these, and
        never less for more payload.
        """
        raise NotImplementedError

    def stored_ps(self, payload_bytes: int) -> int:
        """For how long the port behind the link holds the head of a frame back, in ps: until it has what it stores.

        Its tail is not held back, so a frame shorter than that is there at once when its tail is.
        """
        return 0

    @property
    def is_die_to_die(self) -> bool:
        """Whether it joins dies, at once or through retimers, so that wires of their own may run beside it, such as a
        credit's. Ethernet has no wires but those of its frames.
        """
        return False

    @property
    def may_go_down(self) -> bool:
        """Whether its links may have outages (:mod:`sipsim.fabric.links.outages.links_outages`)."""
        return False

    @property
    def sends_again(self) -> bool:
        """Whether what an outage has lost is sent again (go-back-N); else the run ends with ``LinkLoss``."""
        return True

    def packets(self, payload_bytes: int) -> list[int]:
        """The bytes on the wire of each packet of a payload, in order; together :meth:`wire_bytes`."""
        return [self.wire_bytes(payload_bytes)]

    @property
    def answer_ps(self) -> int | None:
        """The least time, in ps, from an arrival at its port to a packet that the port itself sends because of it.

        None: it sends none.
        """
        return None

    def open(self, context: PortContext) -> Port:
        """The port of a SIP at the near end of such a link."""
        return Port(self, context)

    @property
    def latency_ps(self) -> int:
        return sum(part.ps for part in self.latency_parts())

    @property
    def bandwidth_bps(self) -> int:
        """Bytes a second, each direction."""
        return gbytes_per_s_to_bps(self.bandwidth_GBps)

    def drain_ps(self, payload_bytes: int) -> int:
        """Time the wire is busy with a payload of ``payload_bytes``, framing included."""
        return drain_ps(self.wire_bytes(payload_bytes), self.bandwidth_bps)

    def last_chunk_ps(self, payload_bytes: int, chunk_bytes: int) -> int:
        """Time of the last chunk on the wire. A short remainder is sent first, so only a lone chunk can be short."""
        return drain_ps(min(self.wire_bytes(payload_bytes), chunk_bytes), self.bandwidth_bps)

    def least_chunk_ps(self, chunk_bytes: int) -> int:
        """The least that :meth:`last_chunk_ps` can be."""
        return self.last_chunk_ps(1, chunk_bytes)

    def lookahead_ps(self, chunk_bytes: int, least_path_ps: int) -> int:
        """The least time from sending on the link to arrival, in ps.

        A packet leaves when its last chunk starts on the link, so it arrives the latency and a least chunk later, or
        ``least_path_ps`` in place of the chunk if that is shorter: the least time that a packet may leave later, see
        ``System.data_channels``.
        """
        return self.latency_ps + min(self.least_chunk_ps(chunk_bytes), least_path_ps)

    def reaction_ps(self, path_ps: int, chunk_bytes: int) -> int:
        """The least time from an arrival at another port, ``path_ps`` away, to a sending on this link that it causes.

        What the lookahead counts already, up to a chunk, is left out.
        """
        return max(path_ps - self.least_chunk_ps(chunk_bytes), 0)


class LinkKind(AnyLinkKind, frozen=True):
    """A link with one latency. Subclasses add their framing."""

    latency_ns: Annotated[float, Meta(ge=0.001, le=1e9)]

    def latency_parts(self) -> tuple[LatencyPart, ...]:
        return (LatencyPart("latency of links", "", "latency_ns", ns_to_ps(self.latency_ns)),)


LINK_KINDS: Registry[type[AnyLinkKind]] = Registry(
    "link kind",
    {
        "sipsim.fabric.links.ethernet": ("ethernet",),
        "sipsim.fabric.links.ucie.links_ucie": ("ucie",),
    },
)


def link_of_preset(resolved: Resolved, name: str) -> AnyLinkKind:
    """The link kind of a preset of ``links.yaml``, with its parameters."""
    with resolved.reads.apart():
        params = resolved.links.links[name].params
    made = msgspec.convert(params, LINK_KINDS.get(resolved.links.links[name].kind))
    return resolved.reads.watched(made, ("links", name, "params"))


def links_in_use(resolved: Resolved, links: list[SipLink]) -> list[AnyLinkKind]:
    """The link kind of each directed link."""
    presets = link_presets(resolved.topology.system.sips, links)
    kinds = {name: link_of_preset(resolved, name) for name in presets}
    return [kinds[name] for name in presets]
