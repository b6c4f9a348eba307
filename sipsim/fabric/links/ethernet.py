"""Ethernet: frames of a least size, with preamble and gap; the next node stores and forwards, or cuts through."""

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

    bytes on the wire (IEEE 802.3 clause 3.1.1 format, 3.2.8 pad, 4.4.2 sizes and gap). The stream header identifies the
    frame's message and the position in the message. It is not part of ``max_payload_bytes``, so a full frame is longer
    than a basic frame of 1518 B: it is an envelope frame of clause 3.2.7.

    ``forwarding``: the node after the link forwards a frame when all of the frame has arrived
    (``store_and_forward``, as the FCS at the frame's end is checked first), or byte by byte (``cut_through``). A node
    forwards one frame of a message while the next one arrives, so a store delays the message's head by one frame's time
    on the link (:meth:`stored_ps`), but not the tail. ``sipsim.fabric.graph.bottleneck`` computes the delay at the
    destination: one frame's time per link if links of one rate follow each other, as in a chain of switches.

    Limits: the source sends a frame while the bytes arrive at the port, without collecting these first. The last of
    several frames enters a faster NoC while it arrives, without a store: 23 ns too early for 1500 B at 64 GB/s. The gap
    counts as part of the frame before it. There are no pause frames.

    ``go_back_n``: frames that an outage of the link has lost are sent again (:mod:`sipsim.fabric.links.outages`), which
    IEEE 802.3 does not define; if false, the run ends with ``LinkLoss``. Without an outage no frame is lost.
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
        """Return the bytes on the wire of a frame with ``payload_bytes``, including preamble and gap."""
        frame_bytes = self.header_bytes + self.stream_header_bytes + payload_bytes + self.fcs_bytes
        return self.preamble_bytes + max(frame_bytes, self.min_frame_bytes) + self.gap_bytes
