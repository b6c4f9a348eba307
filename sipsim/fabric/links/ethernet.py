"""Ethernet: frames of at least ``min_frame_bytes``, with preamble and gap, stored after the link or cut through."""

from typing import Annotated, Literal

from msgspec import Meta

from sipsim.core.units import drain_ps
from sipsim.fabric.links.kind import LINK_KINDS, LinkKind

Size = Annotated[int, Meta(ge=0, le=65536)]


@LINK_KINDS.register("ethernet")
class Ethernet(LinkKind, frozen=True, omit_defaults=True):
    """Ethernet link: a payload is cut into frames of ``max_payload_bytes`` and a shorter last one.

    A frame with ``p`` bytes of payload takes

        preamble + max(header + stream header + p + FCS, min_frame) + gap

    bytes on the wire (IEEE 802.3 clause 3.1.1 format, 3.2.8 pad, 4.4.2 sizes and gap). ``stream_header_bytes`` name the
    frame's message and its place there. They are not part of ``max_payload_bytes``, so a full frame is longer than a
    basic one of 1518 B: an envelope frame of clause 3.2.7.

    ``forwarding``: a node after the link forwards a frame when it has all of it (``store_and_forward``: it first checks
    the FCS at the frame's end), or byte by byte as it arrives (``cut_through``). Each of several frames is forwarded
    while the next one arrives, so a message's head is later by one frame's time on the link (:meth:`stored_ps`), and
    its tail is not. ``sipsim.fabric.graph.bottleneck`` gives the delay at the destination: a frame's time per link if
    links of one rate follow each other, as in a chain of switches.

    Limits: the source sends a frame while its bytes arrive at the port, without gathering them first. The last of
    several frames enters a faster NoC as it arrives, without a store: 23 ns too early for 1500 B at 64 GB/s. The gap
    counts as part of the frame before it. No frame is paused.

    ``go_back_n``: frames that an outage of the link has lost are sent again (:mod:`sipsim.fabric.links.outages`), which
    IEEE 802.3 does not define; else the run ends with ``LinkLoss``. Without an outage no frame is lost.
    """

    max_payload_bytes: Annotated[int, Meta(ge=1, le=65536)]
    min_frame_bytes: Size
    preamble_bytes: Size
    header_bytes: Size
    stream_header_bytes: Size
    fcs_bytes: Size
    gap_bytes: Size
    forwarding: Literal["store_and_forward", "cut_through"]
    go_back_n: bool = True

    @property
    def may_go_down(self) -> bool:
        return True

    @property
    def sends_again(self) -> bool:
        return self.go_back_n

    def packets(self, payload_bytes: int) -> list[int]:
        full, rest = divmod(payload_bytes, self.max_payload_bytes)
        return [self._frame_bytes(self.max_payload_bytes)] * full + ([self._frame_bytes(rest)] if rest else [])

    def wire_bytes(self, payload_bytes: int) -> int:
        full, rest = divmod(payload_bytes, self.max_payload_bytes)
        return full * self._frame_bytes(self.max_payload_bytes) + (self._frame_bytes(rest) if rest else 0)

    def stored_ps(self, payload_bytes: int) -> int:
        if self.forwarding == "cut_through":
            return 0
        return drain_ps(self.first_bytes(payload_bytes), self.bandwidth_bps)

    def first_bytes(self, payload_bytes: int) -> int:
        return self._frame_bytes(min(payload_bytes, self.max_payload_bytes))

    def _frame_bytes(self, payload_bytes: int) -> int:
        """Return the bytes of a frame with a payload, including the bytes before and after it on the wire."""
        frame_bytes = self.header_bytes + self.stream_header_bytes + payload_bytes + self.fcs_bytes
        return self.preamble_bytes + max(frame_bytes, self.min_frame_bytes) + self.gap_bytes
