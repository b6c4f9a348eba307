"""What travels between SIPs inside a broker ``Packet``: IPCQ messages and credits, as bytes. Opaque to the broker."""

from typing import NamedTuple

import msgpack

from sipsim.pe.ipcq_messages import IpcqCreditMetadata, IpcqDmaToken


class Freight(NamedTuple):
    """A message, or a credit that goes like one, for a PE of SIP ``dst_sip``: ``nbytes`` on the wires within a SIP.

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


_MESSAGE, _CREDIT_AS_MESSAGE, _CREDIT = 0, 1, 2


def encode(packet: Freight | CreditPacket) -> bytes:
    """A packet's body as bytes."""
    if isinstance(packet, CreditPacket):
        kind = _CREDIT
    else:
        kind = _MESSAGE if isinstance(packet.load, IpcqDmaToken) else _CREDIT_AS_MESSAGE
    body: bytes = msgpack.packb((kind, *packet[:-1], *packet[-1]))
    return body


def decode(body: bytes) -> Freight | CreditPacket:
    """The packet in a body that :func:`encode` made."""
    kind, *fields = msgpack.unpackb(body, use_list=False)
    if kind == _CREDIT:
        dst_cube, dst_pe, *credit = fields
        return CreditPacket(dst_cube, dst_pe, IpcqCreditMetadata(*credit))
    dst_sip, dst_cube, dst_pe, nbytes, span_ps, *load = fields
    if kind == _CREDIT_AS_MESSAGE:
        return Freight(dst_sip, dst_cube, dst_pe, nbytes, span_ps, IpcqCreditMetadata(*load))
    load[-1] = tuple(IpcqCreditMetadata(*rider) for rider in load[-1])
    return Freight(dst_sip, dst_cube, dst_pe, nbytes, span_ps, IpcqDmaToken(*load))
