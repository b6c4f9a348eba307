"""UCIe between SIPs: the crossing of :mod:`sipsim.fabric.links.ucie.noc_ucie`, with its reach and its retimers as
parameters.
"""

from functools import cached_property
from typing import Annotated

from msgspec import Meta

from sipsim.config.schema.components import FlitBytes, FlitOverhead
from sipsim.config.schema.section import NonNegative
from sipsim.core.units import ns_to_ps
from sipsim.fabric.links.kind.base import LINK_KINDS, AnyLinkKind, LatencyPart
from sipsim.fabric.links.ucie.noc_ucie import UcieCrossing


@LINK_KINDS.register("ucie")
class Ucie(AnyLinkKind, frozen=True, dict=True):
    """A crossing from port to port of two SIPs.

    Side by side in one package, ``retimers`` is 0; a link that leaves the package has one at either end. ``retimer_ns``
    is all that one adds: itself, and its half of the second crossing that it makes. It counts as die to
    die either way; that a wire for credits goes through retimers is assumed.
    """

    fdi_to_fdi_ns: NonNegative
    reach_mm: NonNegative
    ns_per_mm: NonNegative
    retimers: Annotated[int, Meta(ge=0, le=64)]
    retimer_ns: NonNegative
    flit_bytes: FlitBytes | None
    flit_overhead_bytes: FlitOverhead

    def __post_init__(self) -> None:
        if self.flit_bytes is not None and self.flit_overhead_bytes >= self.flit_bytes:
            raise ValueError(f"flit_overhead_bytes must be less than flit_bytes ({self.flit_bytes})")
        if self.latency_ps <= 0:
            what = "a link between SIPs without delay cannot be simulated in parallel; must be more than 0"
            raise ValueError(f"fdi_to_fdi_ns + reach_mm x ns_per_mm + retimers x retimer_ns = 0: {what}")

    @cached_property
    def crossing(self) -> UcieCrossing:
        """The crossing that this link is."""
        return UcieCrossing(
            ns_to_ps(self.fdi_to_fdi_ns),
            ns_to_ps(round(self.reach_mm * self.ns_per_mm, 9)),
            ns_to_ps(self.retimers * self.retimer_ns),
            self.flit_bytes,
            self.flit_overhead_bytes,
        )

    @property
    def is_die_to_die(self) -> bool:
        return True

    def latency_parts(self) -> tuple[LatencyPart, ...]:
        crossing = self.crossing
        return (
            LatencyPart("adapters and PHYs of links", "FDI to FDI", "fdi_to_fdi_ns", crossing.fdi_to_fdi_ps),
            LatencyPart("wires of links", "wire", "ns_per_mm", crossing.channel_ps),
            LatencyPart("retimers of links", f"{self.retimers} retimers", "retimer_ns", crossing.retimers_ps),
        )

    def wire_bytes(self, payload_bytes: int) -> int:
        return self.crossing.wire_bytes(payload_bytes)
