"""Bytes of a transfer on the wires of a SIP: its payload, or under ``hw_strict`` the flits that it fills.

Source: ADR-0023 D19. A flit is 64 B with 60 B of payload; the first of an IPCQ message carries its metadata too and
has room for 52 B. Credits, read commands and acknowledgements are single headers of their configured size.
"""

FLIT_BYTES = 64
FLIT_PAYLOAD_BYTES = 60
FIRST_IPCQ_PAYLOAD_BYTES = 52
HEADER_BYTES = 16


class WireFormat:
    """Bytes on the wire for payload bytes (at least 1)."""

    def __init__(self, in_flits: bool) -> None:
        self._in_flits = in_flits

    def data_bytes(self, payload_bytes: int) -> int:
        """A plain DMA transfer."""
        return FLIT_BYTES * -(-payload_bytes // FLIT_PAYLOAD_BYTES) if self._in_flits else payload_bytes

    def message_bytes(self, payload_bytes: int) -> int:
        """An IPCQ message."""
        if not self._in_flits:
            return payload_bytes
        rest = max(payload_bytes - FIRST_IPCQ_PAYLOAD_BYTES, 0)
        return FLIT_BYTES * (1 + -(-rest // FLIT_PAYLOAD_BYTES))
