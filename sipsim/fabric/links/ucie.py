"""UCIe, the model of every die-to-die crossing: between two cubes of a SIP, and between SIPs.

A head takes ``fdi_to_fdi + reach_mm * ns_per_mm + retimers * retimer`` over a crossing: both adapters and PHYs (FDI is
an adapter's interface to its die; UCIe 1.1 gives 2 ns from one FDI to the other), the channel between the dies, and the
retimers, one at each end of a link that leaves a package. A payload of ``n`` bytes fills ``ceil(n / (flit_bytes -
flit_overhead_bytes))`` flits, and every flit is sent whole (UCIe 1.1, section 3.3). Without ``flit_bytes``, a payload
is ``n`` bytes on the wire.

Limits: one module per direction, without repair or retraining; no flit is sent again after an error (retry, section
3.8); transfers do not share a flit; the adapters always have credits.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from msgspec import Meta

from sipsim.config.schema import FlitBytes, FlitOverhead, NonNegative
from sipsim.core.units import ns_to_ps
from sipsim.fabric.graph import Framing
from sipsim.fabric.links.kind import LINK_KINDS, AnyLinkKind, LatencyPart


@dataclass(frozen=True)
class UcieCrossing(Framing):
    """Die-to-die crossing. Payloads are sent in flits of ``flit_bytes``, or without flits if that is None."""

    fdi_to_fdi_ps: int
    channel_ps: int
    retimers_ps: int
    flit_bytes: int | None
    flit_overhead_bytes: int

    @property
    def latency_ps(self) -> int:
        """The latency of a head from FDI to FDI, with channel and retimers."""
        return self.fdi_to_fdi_ps + self.channel_ps + self.retimers_ps

    def wire_bytes(self, payload_bytes: int) -> int:
        """Return the bytes on the wire for a payload: all its flits."""
        if self.flit_bytes is None:
            return payload_bytes
        return -(-payload_bytes // (self.flit_bytes - self.flit_overhead_bytes)) * self.flit_bytes


@LINK_KINDS.register("ucie")
class Ucie(AnyLinkKind, frozen=True, dict=True):
    """Crossing from port to port of two SIPs, with its reach and its retimers as parameters.

    For SIPs side by side in one package, ``retimers`` is 0; a link that leaves the package has one at each end.
    ``retimer_ns`` is all latency that a retimer adds: inside it, and half of the second crossing that it needs. The
    link counts as die to die in both cases; a separate wire for credits is assumed to pass the retimers.
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
        """Times and flits of this link, from its parameters."""
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

    def first_bytes(self, payload_bytes: int) -> int:
        return self.flit_bytes or super().first_bytes(payload_bytes)
