"""The bytes of packets: those in ``golden_packets.jsonl`` have the fields that are named here, and keep their bytes.

A line of the file is the body of a packet in parts: hexadecimal text, and for long data the number of its bytes, which
are :data:`PATTERN`'s first ones.
"""

import json
from pathlib import Path
from typing import Any

import msgpack
import pytest

import sipsim.chips.ahbm.sip
import sipsim.chips.tensix.chip  # noqa: F401  (both chips' packets)
from broker.wire import BadFrame
from sipsim.fabric.links.frames import decode, encode

PATTERN = bytes(range(256)) * 256
HEADER = "dst_sip", "nbytes", "span_ps", "frame_number", "frame_rest_ps"
CREDIT = (
    *("consumer_seq", "dst_rx_base_pa", "src_sip", "src_cube", "src_pe"),
    *("src_direction", "sent_ps", "span", "generation"),
)
MESSAGE = (
    *("cube", "pe", "dst_addr", "sender_seq", "src_sip", "src_cube", "src_pe", "src_direction", "data", "dtype"),
    *("shape", "sent_ps", "credits", "span", "generation", "call", "crc"),
)
FIELDS: dict[int, tuple[str, ...]] = {
    0: HEADER + MESSAGE,
    1: (*HEADER, "cube", "pe", "credit"),
    2: ("cube", "pe", "credit"),
    3: ("kind", "is_row", "time_ps", "counts", "sent_ps", "span"),
    9: ("vc", "places"),
    10: ("number",),
    20: ("address", "data", "is_word", "follows", "down_ps", "up_ps", "seq", "crc"),
    21: ("address", "data", "is_word", "follows", "down_ps", "up_ps", "seq", "crc", "origin"),
}
"""By tag, the names of what follows it."""
NESTED = {"credit": CREDIT, "counts": ("sent", "arrived")}


def body_of(parts: list[str | int]) -> bytes:
    return b"".join(PATTERN[:part] if isinstance(part, int) else bytes.fromhex(part) for part in parts)


BODIES = [
    body_of(json.loads(line)) for line in Path(__file__).with_name("golden_packets.jsonl").read_text().splitlines()
]


def plain(name: str, value: Any) -> Any:
    """A field as MessagePack gives it, by the names of what is in it."""
    if name in NESTED:
        return [getattr(value, each) for each in NESTED[name]]
    if name == "credits":
        return [plain("credit", each) for each in value]
    return list(value) if isinstance(value, tuple) else value


def test_every_kind_is_there() -> None:
    kinds = [msgpack.unpackb(body)[0] for body in BODIES]
    assert set(kinds) == set(FIELDS)
    assert len(kinds) >= 40


@pytest.mark.parametrize("body", BODIES, ids=[f"{number}" for number in range(len(BODIES))])
def test_a_packet_keeps_its_bytes(body: bytes) -> None:
    packet = decode(body)
    assert encode(packet) == body
    tag, *values = msgpack.unpackb(body)
    assert {name: plain(name, getattr(packet, name)) for name in FIELDS[tag]} == dict(
        zip(FIELDS[tag], values, strict=True)
    )


@pytest.mark.parametrize("tag", FIELDS)
def test_a_packet_has_all_its_fields_and_no_more(tag: int) -> None:
    """Nor has what is in it, such as its credits."""
    values = next(values for values in map(msgpack.unpackb, BODIES[2:]) if values[0] == tag)
    changes = [[*values, 0], *(values[:stop] for stop in range(len(values)))]
    for at, name in enumerate(FIELDS[tag], 1):
        if name in (*NESTED, "credits"):
            inner = values[at][0] if name == "credits" else values[at]
            odd = [[*inner, 0], inner[:-1]]
            changes += [[*values[:at], [each] if name == "credits" else each, *values[at + 1 :]] for each in odd]
    for changed in changes:
        with pytest.raises(BadFrame):
            decode(msgpack.packb(changed))
