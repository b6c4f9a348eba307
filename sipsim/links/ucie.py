"""UCIe: die-to-die link that carries fixed-size flits (UCIe 1.1, section 3.3)."""

from typing import Annotated

from msgspec import Meta

from sipsim.links.base import LINK_KINDS, LinkKind


@LINK_KINDS.register("ucie")
class Ucie(LinkKind, frozen=True):
    """A payload fills flits of ``flit_bytes``, each with ``flit_overhead_bytes`` of header, CRC and reserved bytes."""

    flit_bytes: Annotated[int, Meta(ge=2, le=4096)]
    flit_overhead_bytes: Annotated[int, Meta(ge=0, le=4095)]

    def __post_init__(self) -> None:
        if self.flit_overhead_bytes >= self.flit_bytes:
            raise ValueError(f"flit_overhead_bytes must be less than flit_bytes ({self.flit_bytes})")

    @property
    def is_die_to_die(self) -> bool:
        return True

    def wire_bytes(self, payload_bytes: int) -> int:
        return -(-payload_bytes // (self.flit_bytes - self.flit_overhead_bytes)) * self.flit_bytes
