"""Bodies of packets between SIPs: IPCQ messages, credits and control packets as bytes, opaque to the broker.

A body is a flat MessagePack array that starts with its kind. It is decoded against its schema: any bytes are a packet
or a ``BadFrame``. The receiving SIP checks whether the places in it exist.
"""

from typing import Annotated, NamedTuple

import msgpack
import msgspec
from msgspec import Meta

from broker.ids import MAX_FRAME_BYTES, MAX_PS
from broker.wire import checked
from sipsim.ipcq.messages import IpcqCreditMetadata, IpcqDmaToken


class Freight(NamedTuple):
    """A message, or a credit sent as one, for a PE of SIP ``dst_sip``; ``nbytes`` on the wires within a SIP.

    Its tail arrives ``span_ps`` after its head.
    """

    dst_sip: int
    dst_cube: int
    dst_pe: int
    nbytes: int
    span_ps: int
    load: IpcqDmaToken | IpcqCreditMetadata


class CreditPacket(NamedTuple):
    """A credit on its own wire, for a PE of the SIP that receives it."""

    dst_cube: int
    dst_pe: int
    credit: IpcqCreditMetadata


class BarrierPacket(NamedTuple):
    """A control packet of ``sipsim.io.barrier``: the latest end in a subtree, or the common start that follows."""

    is_start: bool
    time_ps: int


_MESSAGE, _CREDIT_AS_MESSAGE, _CREDIT, _BARRIER = 0, 1, 2, 3


def encode(packet: Freight | CreditPacket | BarrierPacket) -> bytes:
    """A packet's body as bytes."""
    if isinstance(packet, BarrierPacket):
        return msgpack.packb((_BARRIER, *packet))  # type: ignore[no-any-return]
    if isinstance(packet, CreditPacket):
        kind = _CREDIT
    else:
        kind = _MESSAGE if isinstance(packet.load, IpcqDmaToken) else _CREDIT_AS_MESSAGE
    body: bytes = msgpack.packb((kind, *packet[:-1], *packet[-1]))
    return body


def decode(body: bytes) -> Freight | CreditPacket | BarrierPacket:
    """The packet in a body that :func:`encode` made.

    Raises:
        BadFrame: for any other bytes.
    """
    return checked(_DECODER.decode, body, "the body of a packet").packet()


# --- bodies ---------------------------------------------------------------------------------------------------

_Address = Annotated[int, Meta(ge=0)]
"""Below 2**64, as every number of MessagePack is."""
_Number = Annotated[int, Meta(ge=0, le=MAX_PS)]
_Small = Annotated[int, Meta(ge=0, lt=2**31)]
_Name = Annotated[str, Meta(max_length=64)]
_Data = Annotated[bytes, Meta(max_length=MAX_FRAME_BYTES)]
_Shape = Annotated[tuple[_Number, ...], Meta(max_length=64)]
_CreditFields = tuple[_Number, _Address, _Small, _Small, _Small, _Name]
_Credits = Annotated[tuple[_CreditFields, ...], Meta(max_length=2**16)]


class _Body(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Base of all kinds."""


class _MessageBody(_Body, tag=_MESSAGE):
    dst_sip: _Small
    dst_cube: _Small
    dst_pe: _Small
    nbytes: _Number
    span_ps: _Number
    dst_addr: _Address
    sender_seq: _Number
    src_sip: _Small
    src_cube: _Small
    src_pe: _Small
    src_direction: _Name
    data: _Data
    dtype: _Name
    shape: _Shape
    sent_ps: _Number
    credits: _Credits

    def packet(self) -> Freight:
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
        )
        return Freight(self.dst_sip, self.dst_cube, self.dst_pe, self.nbytes, self.span_ps, token)


class _CreditAsMessageBody(_Body, tag=_CREDIT_AS_MESSAGE):
    dst_sip: _Small
    dst_cube: _Small
    dst_pe: _Small
    nbytes: _Number
    span_ps: _Number
    consumer_seq: _Number
    dst_rx_base_pa: _Address
    src_sip: _Small
    src_cube: _Small
    src_pe: _Small
    src_direction: _Name

    def packet(self) -> Freight:
        load = IpcqCreditMetadata(
            self.consumer_seq, self.dst_rx_base_pa, self.src_sip, self.src_cube, self.src_pe, self.src_direction
        )
        return Freight(self.dst_sip, self.dst_cube, self.dst_pe, self.nbytes, self.span_ps, load)


class _CreditBody(_Body, tag=_CREDIT):
    dst_cube: _Small
    dst_pe: _Small
    consumer_seq: _Number
    dst_rx_base_pa: _Address
    src_sip: _Small
    src_cube: _Small
    src_pe: _Small
    src_direction: _Name

    def packet(self) -> CreditPacket:
        credit = IpcqCreditMetadata(
            self.consumer_seq, self.dst_rx_base_pa, self.src_sip, self.src_cube, self.src_pe, self.src_direction
        )
        return CreditPacket(self.dst_cube, self.dst_pe, credit)


class _BarrierBody(_Body, tag=_BARRIER):
    is_start: bool
    time_ps: _Number

    def packet(self) -> BarrierPacket:
        return BarrierPacket(self.is_start, self.time_ps)


_Bodies = _MessageBody | _CreditAsMessageBody | _CreditBody | _BarrierBody
_DECODER: "msgspec.msgpack.Decoder[_Bodies]" = msgspec.msgpack.Decoder(_Bodies)
