"""A link kind of the tests: a parity byte in 64, and a port that checks each frame before it goes on."""

from typing import Annotated

from msgspec import Meta

from sipsim.core.units import ns_to_ps
from sipsim.fabric.links.frames import Frame
from sipsim.fabric.links.kind import LINK_KINDS, LinkKind, Port, PortContext


class CheckingPort(Port):
    """A frame goes on ``check_ns`` after its last byte has arrived."""

    def receive(self, frame: Frame) -> None:
        assert isinstance(self.link, ParityLink)
        self.pass_on(frame, ns_to_ps(self.link.check_ns))


@LINK_KINDS.register(__name__)
class ParityLink(LinkKind, frozen=True):
    """Every 64 bytes or part of them take a byte more."""

    check_ns: Annotated[float, Meta(ge=0)]

    def wire_bytes(self, payload_bytes: int) -> int:
        return payload_bytes + -(-payload_bytes // 64)

    def open(self, context: PortContext) -> Port:
        return CheckingPort(self, context)
