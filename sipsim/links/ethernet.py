"""Ethernet: packets of at most ``max_payload_bytes``, each with a fixed overhead (headers, CRC, preamble, gap)."""

from typing import Annotated

from msgspec import Meta

from sipsim.links.base import LINK_KINDS, LinkKind


@LINK_KINDS.register("ethernet")
class Ethernet(LinkKind, frozen=True):
    """A payload is cut into packets; each adds ``packet_overhead_bytes`` on the wire."""

    max_payload_bytes: Annotated[int, Meta(ge=1, le=65536)]
    packet_overhead_bytes: Annotated[int, Meta(ge=0, le=65536)]

    def wire_bytes(self, payload_bytes: int) -> int:
        return payload_bytes + -(-payload_bytes // self.max_payload_bytes) * self.packet_overhead_bytes
