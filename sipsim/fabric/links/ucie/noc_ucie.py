"""UCIe, the one model of a die-to-die crossing: between two cubes of a SIP, and between SIPs.

A head takes

    fdi_to_fdi + reach_mm * ns_per_mm + retimers * retimer

over a crossing: both adapters and PHYs (FDI is an adapter's interface to what is behind it; UCIe 1.1 names 2 ns from
one FDI to the other), the channel between the dies, and the retimers, one at either end of what leaves a package. A
payload of ``n`` bytes fills ``ceil(n / (flit_bytes - flit_overhead_bytes))`` flits, and each is sent whole (UCIe 1.1,
section 3.3); without ``flit_bytes`` it is ``n`` bytes on the wire.

Limits: one module each way, without repair or retraining; no flit is sent again after an error (retry, section 3.8);
transfers do not share a flit; the credits of the adapters never run out.
"""

from typing import NamedTuple


class UcieCrossing(NamedTuple):
    """One crossing; all times in ps. ``flit_bytes`` is None where payloads are sent without flits."""

    fdi_to_fdi_ps: int
    channel_ps: int
    retimers_ps: int
    flit_bytes: int | None
    flit_overhead_bytes: int

    @property
    def latency_ps(self) -> int:
        """Of a head, from FDI to FDI, with everything between."""
        return self.fdi_to_fdi_ps + self.channel_ps + self.retimers_ps

    def wire_bytes(self, payload_bytes: int) -> int:
        """Bytes of the flits for a payload."""
        if self.flit_bytes is None:
            return payload_bytes
        return -(-payload_bytes // (self.flit_bytes - self.flit_overhead_bytes)) * self.flit_bytes

    def stored_ps(self, payload_bytes: int) -> int:
        """Flits go on as they come."""
        return 0
