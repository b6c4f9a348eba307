"""The interface of a link kind: bytes on the wire for a payload, bandwidth, latency.

A kind is a frozen struct of parameters (so that ``links.yaml`` is checked against it) with one
method, ``wire_bytes``. A new kind is one new module in this package.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from sipsim.config.model import Resolved, Section
from sipsim.registry import Registry
from sipsim.units import drain_ps, gbytes_per_s_to_bps, ns_to_ps


class LinkKind(Section, frozen=True):
    """Parameters every link has. Subclasses add their framing.

    ``latency_ns`` must be positive: it is the lookahead that lets SIPs run in parallel (DESIGN section 3).
    """

    bandwidth_GBps: Annotated[float, Meta(gt=0, le=1e6)]
    latency_ns: Annotated[float, Meta(ge=0.001, le=1e9)]

    def wire_bytes(self, payload_bytes: int) -> int:
        """Bytes on the wire for a payload of ``payload_bytes`` (at least 1)."""
        raise NotImplementedError

    @property
    def latency_ps(self) -> int:
        return ns_to_ps(self.latency_ns)

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
        """The least that :meth:`last_chunk_ps` can be: the part of the lookahead beyond the latency."""
        return self.last_chunk_ps(1, chunk_bytes)


LINK_KINDS: Registry[type[LinkKind]] = Registry("link kind", "sipsim.links")


def link_in_use(resolved: Resolved) -> LinkKind:
    """The link between SIPs that ``system.sips.link`` names."""
    preset = resolved.links.links[resolved.topology.system.sips.link]
    return msgspec.convert(preset.params, LINK_KINDS.get(preset.kind))
