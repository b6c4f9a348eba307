"""What travels between SIPs inside a broker ``Packet``: IPCQ messages and credits, as bytes. Opaque to the broker."""

from typing import NamedTuple

import msgpack

from sipsim.pe.ipcq import IpcqCreditMetadata, IpcqDmaToken


class DataPacket(NamedTuple):
    """A message whose tail arrives ``span_ps`` after its head, for a PE of SIP ``dst_sip``."""

    dst_sip: int
    dst_cube: int
    dst_pe: int
    span_ps: int
    token: IpcqDmaToken


class CreditPacket(NamedTuple):
    """A credit for a PE of the SIP that receives it."""

    dst_cube: int
    dst_pe: int
    credit: IpcqCreditMetadata


_DATA, _CREDIT = 0, 1


def encode(packet: DataPacket | CreditPacket) -> bytes:
    """A packet's body as bytes."""
    kind = _DATA if isinstance(packet, DataPacket) else _CREDIT
    body: bytes = msgpack.packb((kind, *packet[:-1], *packet[-1]))
    return body


def decode(body: bytes) -> DataPacket | CreditPacket:
    """The packet in a body that :func:`encode` made."""
    kind, *fields = msgpack.unpackb(body, use_list=False)
    if kind == _DATA:
        dst_sip, dst_cube, dst_pe, span_ps, *token = fields
        return DataPacket(dst_sip, dst_cube, dst_pe, span_ps, IpcqDmaToken(*token))
    dst_cube, dst_pe, *credit = fields
    return CreditPacket(dst_cube, dst_pe, IpcqCreditMetadata(*credit))
