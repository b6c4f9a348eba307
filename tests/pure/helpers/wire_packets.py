"""Packets with their usual fields, for tests."""

from typing import Any

from msgspec.structs import replace

from sipsim.chips.ahbm.barrier import NO_COUNTS, BarrierPacket, Counts
from sipsim.chips.ahbm.ipcq.messages import Credit, Message
from sipsim.fabric.links.frames import UNSENT
from sipsim.records.dump import Place

_EMPTY = Message(*UNSENT, 0, 0, 0, 0, 0, 0, 0, "E", b"", "f16", (), 0, (), 0, 0, "", 0)


def message(**fields: Any) -> Message:
    """An empty message of PE 0 to itself, but for these fields."""
    return replace(_EMPTY, **fields)


def message_from(sender: Place, dst_addr: int, sender_seq: int, data: bytes, **fields: Any) -> Message:
    """A message of a PE, with its other fields as in :func:`message`."""
    src_sip, src_cube, src_pe = sender
    places = {"src_sip": src_sip, "src_cube": src_cube, "src_pe": src_pe}
    return message(dst_addr=dst_addr, sender_seq=sender_seq, data=data, **places, **fields)


def credit(consumer_seq: int, dst_rx_base_pa: int, sender: Place, direction: str, *more: int) -> Credit:
    """A credit; ``more``: its last fields, 0 without them."""
    return Credit(consumer_seq, dst_rx_base_pa, *sender, direction, *more, *(0,) * (3 - len(more)))


def barrier_packet(kind: int, is_row: bool, time_ps: int, counts: Counts = NO_COUNTS, span: int = 0) -> BarrierPacket:
    """A packet of the barrier, sent at 0."""
    return BarrierPacket(kind, is_row, time_ps, counts, 0, span)
