"""Packets that decode, and that no SIP of this system can have sent, raise named errors and have no other effect."""

import contextlib
from functools import partial
from typing import Any

import msgpack
import pytest
from hardware import config
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from wire_packets import credit, message_from

from broker.wire import BadFrame
from sipsim.chips.ahbm.ipcq.messages import MOST_CALL_CHARS, Credit, CreditFrame, Message, WireCredit
from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.ahbm.sip import Sip
from sipsim.core.errors import InvariantViolation, SimulationError
from sipsim.core.session import Session
from sipsim.fabric.links.frames import _KINDS, OWN_TAGS, Frame, Number, Packet, Tail, decode, encode, packet_kind
from sipsim.node.failure import describe

PLAN = Plan(config({"system.sips.count": 3, "system.sips.topology": "ring_1d", "sip.cube_mesh": {"w": 2, "h": 1}}))
MOST = 2**63 - 1
NOW_PS = 1000
IN = next(channel for channel, link in enumerate(PLAN.system.links) if link.dst == 0)
OUT = next(channel for channel, link in enumerate(PLAN.system.links) if link.src == 0)
PLACE, ENTRY = next(
    (place, entry)
    for place, entries in PLAN.entries.items()
    for entry in entries
    if place.sip == 0 and entry.peer.sip and entry.can_receive
)
RING = ENTRY.my_rx_base_pa
RING_END = RING + ENTRY.n_slots * ENTRY.slot_size
CREDIT = credit(1, ENTRY.peer.rx_base_pa, ENTRY.peer.place, "W")
MESSAGE = message_from(
    *(ENTRY.peer.place, RING, 0, bytes(64)),
    **{"nbytes": 64, "span_ps": 100, "cube": PLACE.cube, "pe": PLACE.pe, "shape": (32,), "sent_ps": 5},
)
CREDIT_BYTES = PLAN.ipcq.ipcq_credit_size_bytes
LATE_CREDIT = CreditFrame(0, CREDIT_BYTES, 100, 0, 0, PLACE.cube, PLACE.pe, CREDIT)


def of(**fields: Any) -> Message:
    """The message with other fields."""
    return replace(MESSAGE, **fields)


def late(**fields: Any) -> CreditFrame:
    """The credit sent as a message, with other fields."""
    return replace(LATE_CREDIT, **fields)


def received(channel: int, body: bytes) -> Sip:
    """SIP 0 after a packet has come and all that follows from it has happened."""
    sip = Sip(0, PLAN, lambda _to, _parcel: None)
    sip.engine.at(NOW_PS, lambda: sip.receive(channel, body))
    while not sip.engine.run_before(None, 1000):
        pass
    return sip


def refused(channel: int, packet: Packet | bytes) -> str:
    with pytest.raises(InvariantViolation) as caught:
        received(channel, packet if isinstance(packet, bytes) else encode(packet))
    told = describe(caught.value, 0, NOW_PS)
    assert told.kind == "InvariantViolation"
    if packet == b"":
        assert told.blames == PLAN.channels[channel].src != 0, "the SIP that sent it"
    return told.message


def test_the_valid_packets_are_accepted() -> None:
    sip = received(IN, encode(MESSAGE))
    assert sip.ipcqs[PLACE.cube, PLACE.pe].queues[ENTRY.direction].peer_head_cache == 1
    for packet in (LATE_CREDIT, WireCredit(PLACE.cube, PLACE.pe, CREDIT)):
        queues = received(IN, encode(packet)).ipcqs[PLACE.cube, PLACE.pe].queues
        assert queues[ENTRY.direction].peer_tail_cache == 1


@pytest.mark.parametrize(
    ("packet", "why"),
    [
        (of(cube=2), "is for cube 2 PE 0, which has no queues"),
        (of(pe=2**31 - 1), "is for cube 0 PE 2147483647, which has no queues"),
        (of(dst_sip=3), "is for SIP 3, to which no route leads from here"),
        (of(dst_sip=2**31 - 1), "is for SIP 2147483647, to which no route leads from here"),
        (of(nbytes=0), "claims 0 bytes and a span of 100 ps, which is impossible"),
        (of(nbytes=0, data=b""), "claims 0 bytes"),
        (of(nbytes=MOST), "which is impossible"),
        (of(span_ps=NOW_PS + 1), "claims 64 bytes and a span of 1001 ps"),
        (of(span_ps=MOST), "which is impossible"),
        (of(frame_rest_ps=1), "claims that its tail arrives 1 ps later, which is impossible"),
        (of(dst_addr=0), "a message for address 0x0 arrived at"),
        (of(dst_addr=2**64 - 1), "which has no ring there"),
        (
            of(dst_addr=RING_END - 63),
            "does not end within its ring",
        ),
        (of(sender_seq=7), "I2: message 7 arrived"),
        (of(credits=(replace(CREDIT, dst_rx_base_pa=1),)), "a credit for ring 0x1 arrived at"),
        (late(credit=replace(CREDIT, dst_rx_base_pa=2**64 - 1)), "arrived at"),
        (late(pe=99), "PE 99, which has no queues"),
    ],
)
def test_invalid_places_and_sizes_raise(packet: Packet, why: str) -> None:
    assert why in refused(IN, packet)


@pytest.mark.parametrize(
    ("channel", "packet", "why"),
    [
        *((channel, MESSAGE, "no link to SIP 0 has that channel") for channel in (OUT, len(PLAN.system.links), 2**20)),
        *((IN, body, "is not the body of a packet: ") for body in (b"", b"\xc1", b"\x93\x00\x01\x02", b"\x91" * 500)),
        (IN, WireCredit(9, 9, CREDIT), "cube 9 PE 9, which has no queues"),
        *((channel, Tail(3), "ends frame 3, which has not begun") for channel in (IN, OUT, 2**20)),
    ],
)
def test_a_foreign_channel_or_body_raises(channel: int, packet: Packet | bytes, why: str) -> None:
    assert why in refused(channel, packet)


@pytest.mark.parametrize("packet", [MESSAGE, LATE_CREDIT, WireCredit(PLACE.cube, PLACE.pe, CREDIT)])
@pytest.mark.parametrize("value", [-1, 2**64 - 1, True, None, 0.5, "1" * (MOST_CALL_CHARS + 1), b"", [[1]], {}])
def test_an_invalid_field_raises(packet: Packet, value: object) -> None:
    fields = msgpack.unpackb(encode(packet))
    allowed = {int: (2**64 - 1,), bytes: (b"",)}
    for at, field in enumerate(fields):
        body = msgpack.packb([*fields[:at], value, *fields[at + 1 :]])
        if value in allowed.get(type(field), ()) and not isinstance(value, bool):
            is_address = isinstance(field, bytes) or field in (RING, ENTRY.peer.rx_base_pa)
            assert is_address is _decodes(body)
        else:
            assert not _decodes(body), f"field {at}"


def _decodes(body: bytes) -> bool:
    with contextlib.suppress(BadFrame):
        decode(body)
        return True
    return False


near = st.sampled_from([0, 1, 2, 3, 99, 2**31 - 1])
size = st.sampled_from([0, 1, CREDIT_BYTES, 64, 4096, MOST])
address = st.sampled_from([0, RING, RING + 1, RING_END - 1, ENTRY.peer.rx_base_pa, 2**64 - 1])
word = st.text(max_size=3)
credits_ = st.builds(Credit, size, address, near, near, near, word, size, size, near)
shape, riders = st.lists(size, max_size=3).map(tuple), st.lists(credits_, max_size=2).map(tuple)
data = st.sampled_from([b"", b"a", bytes(64), bytes(4096)])
sent = address, near, near, near, near, word, data, word, shape, size, riders, size, near, word, size
header = near, size, size, size, size
frames = st.builds(Message, *header, near, near, *sent) | st.builds(CreditFrame, *header, near, near, credits_)
controls = st.builds(WireCredit, near, near, credits_) | st.builds(Tail, size)


@settings(derandomize=True, database=None, max_examples=300)
@given(st.sampled_from([IN, OUT, 0, 1, 5, 2**20]), frames | controls)
@example(IN, of(dst_sip=2))
@example(IN, of(nbytes=0, data=b""))
def test_any_packet_is_accepted_or_raises_a_named_error(channel: int, packet: Packet) -> None:
    with contextlib.suppress(SimulationError):
        received(channel, encode(packet))


def test_a_frame_has_no_field_twice() -> None:
    class Named(Frame, tag=2**20):
        frame_number: Number

    with pytest.raises(ValueError, match=r"^frame_number of Named is a field of every frame; "):
        packet_kind(Named)


def test_a_packet_has_no_default() -> None:
    class Short(Packet, tag=2**20):
        number: Number
        more: Number = 0

    with pytest.raises(ValueError, match=r"^more of Short has a default; "):
        packet_kind(Short)


FIRST, ENDS = of(frame_number=3, frame_rest_ps=50), Tail(3)


@pytest.mark.parametrize("held_ps", [0, 1000])
@pytest.mark.parametrize(
    ("packets", "why"),
    [
        ([FIRST, ENDS], ""),
        ([FIRST, FIRST], "begins frame 3, which has begun and not ended"),
        ([FIRST, ENDS, ENDS], "ends frame 3, which has not begun, or has ended"),
        ([FIRST, replace(FIRST, frame_number=4), Tail(4), Tail(4)], "ends frame 4, which has not begun, or has ended"),
    ],
)
def test_a_frame_begins_and_ends_once(packets: list[Frame | Tail], why: str, held_ps: int) -> None:
    """Also if its port holds it back."""
    sip = Sip(0, PLAN, lambda _to, _parcel: None)
    port = sip.network.by_arrival[IN]
    if held_ps:
        port.receive = lambda frame: port.pass_on(frame, held_ps)  # type: ignore[method-assign]
    for at, packet in enumerate(packets):
        sip.engine.at(NOW_PS + 50 * at, partial(sip.receive, IN, encode(packet)))
    with pytest.raises(InvariantViolation, match=why) if why else contextlib.nullcontext():
        sip.engine.run_before(None, 1000)
    if not why:
        assert sip.ipcqs[PLACE.cube, PLACE.pe].queues[ENTRY.direction].peer_head_cache == 1
        assert not port.is_arriving(3)


def test_a_frame_goes_on_with_a_header_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has come in parts is one packet on the next link: the far SIP is to wait for no tail."""
    sent: list[Packet] = []
    monkeypatch.setattr(Session, "emit", lambda _self, _channel, _arrival_ps, body: sent.append(decode(body)))
    sip = Sip(0, PLAN, lambda _to, _parcel: None)
    through = replace(FIRST, dst_sip=2)
    for at, packet in enumerate((through, ENDS)):
        sip.engine.at(NOW_PS + 50 * at, partial(sip.receive, IN, encode(packet)))
    sip.engine.run_before(None, 1000)
    assert [replace(packet, span_ps=100) for packet in sent] == [of(dst_sip=2)]


def test_what_ports_send_each_other_comes_whole() -> None:
    sip = Sip(0, PLAN, lambda _to, _parcel: None)
    sip.network.by_arrival[IN].port_frames = (Message,)  # type: ignore[misc]
    with pytest.raises(InvariantViolation, match="is a Message in parts"):
        sip.receive(IN, encode(FIRST))


def test_a_frame_says_how_much_data_it_carries() -> None:
    class Silent(Frame, tag=2**20):
        number: Number

    with pytest.raises(TypeError, match=r"^Silent has no data_bytes; "):
        packet_kind(Silent)


@pytest.mark.parametrize(
    ("tag", "line"),
    [
        (OWN_TAGS - 1, "tag 63 of Users is reserved for the simulator; give 64 or more"),
        (None, "packet Users has no tag; "),
    ],
)
def test_the_tag_of_a_users_packet_is_checked(tag: int | None, line: str) -> None:
    class Users(Packet, tag=tag):
        number: Number

    with pytest.raises(ValueError, match=line):
        packet_kind(Users)


def test_a_tag_is_of_one_kind() -> None:
    class First(Packet, tag=2**20):
        number: Number

    class Second(Packet, tag=2**20):
        number: Number

    packet_kind(First)
    try:
        with pytest.raises(ValueError, match=r"^tag 1048576 of Second is also the tag of First; "):
            packet_kind(Second)
    finally:
        del _KINDS[2**20]
