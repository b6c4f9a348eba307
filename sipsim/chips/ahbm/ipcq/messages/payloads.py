"""What frames carry for PE_IPCQ, and their codecs: messages, credits sent as messages, credits on their own wire."""

from typing import Annotated, NamedTuple

from msgspec import Meta

from sipsim.chips.ahbm.ipcq.messages.messages import IpcqCreditMetadata, IpcqDmaToken
from sipsim.fabric.links.frames import Address, Body, Data, FrameBody, Name, Number, Small, codec

MOST_CALL_CHARS = 256
"""Of the text of a call (:meth:`sipsim.chips.ahbm.ipcq.pe_ipcq.pe_ipcq.PeIpcq.use`)."""
_Call = Annotated[str, Meta(max_length=MOST_CALL_CHARS)]
_Shape = Annotated[tuple[Number, ...], Meta(max_length=64)]
_CreditFields = tuple[Number, Address, Small, Small, Small, Name, Number, Number, Number]
_Credits = Annotated[tuple[_CreditFields, ...], Meta(max_length=2**16)]


class PeMessage(NamedTuple):
    """A message for a PE of the frame's SIP."""

    cube: int
    pe: int
    token: IpcqDmaToken

    @property
    def data_bytes(self) -> int:
        """Bytes of the message."""
        return len(self.token.data)


class PeCredit(NamedTuple):
    """A credit for a PE of the frame's SIP, sent as a message."""

    cube: int
    pe: int
    credit: IpcqCreditMetadata

    @property
    def data_bytes(self) -> int:
        """A credit carries no data."""
        return 0


class CreditPacket(NamedTuple):
    """A credit on its own wire, for a PE of the SIP that receives it."""

    cube: int
    pe: int
    credit: IpcqCreditMetadata


@codec(PeMessage, lambda message: (message[0], message[1], *message[2]))
class _MessageBody(FrameBody, tag=0):
    cube: Small
    pe: Small
    dst_addr: Address
    sender_seq: Number
    src_sip: Small
    src_cube: Small
    src_pe: Small
    src_direction: Name
    data: Data
    dtype: Name
    shape: _Shape
    sent_ps: Number
    credits: _Credits
    span: Number
    generation: Number
    call: _Call

    def payload(self) -> PeMessage:
        carried = tuple([IpcqCreditMetadata(*fields) for fields in self.credits]) if self.credits else ()
        token = IpcqDmaToken(
            self.dst_addr,
            self.sender_seq,
            self.src_sip,
            self.src_cube,
            self.src_pe,
            self.src_direction,
            self.data,
            self.dtype,
            self.shape,
            self.sent_ps,
            carried,
            self.span,
            self.generation,
            self.call,
        )
        return PeMessage(self.cube, self.pe, token)


@codec(PeCredit)
class _PeCreditBody(FrameBody, tag=1):
    cube: Small
    pe: Small
    credit: _CreditFields

    def payload(self) -> PeCredit:
        return PeCredit(self.cube, self.pe, IpcqCreditMetadata(*self.credit))


@codec(CreditPacket)
class _CreditBody(Body, tag=2):
    cube: Small
    pe: Small
    credit: _CreditFields

    def payload(self) -> CreditPacket:
        return CreditPacket(self.cube, self.pe, IpcqCreditMetadata(*self.credit))
