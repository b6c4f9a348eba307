"""Every message is encoded and decoded, and all other bytes raise ``BadFrame``."""

import tracemalloc
from typing import Any, get_args

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import ids, wire
from broker.wire import BadFrame, Message, decode_for_broker, decode_for_launcher, decode_for_sip, encode

MOST = 2**63 - 1
WAITING = wire.SipSync(3, "waiting", 1, 2, 9, 4, 0, 5, 6, ("0.E>3.W",), ((0, 2),), 7, 8, 9, 10)
IDLE = wire.SipSync(4095, "idle", MOST, None, None, MOST, None, 0, 0, (), (), 0, 0, 0, MOST)
SAMPLES: dict[type[Message], list[Message]] = {
    wire.Join: [
        wire.Join(1, 4095, 4095, "1.0", "d" * 64, 4194304, "häuschen", "tcp://127.0.0.1:1"),
        wire.Join(1, 0, 2, "1", "d", 4, "h", "e", 1023, MOST, ((1, 2, 3), (4095, MOST, MOST))),
    ],
    wire.Progress: [wire.Progress(0, 0), wire.Progress(MOST, MOST)],
    wire.Record: [wire.Record(0, b""), wire.Record(MOST, b"{}")],
    wire.ConnectionLost: [wire.ConnectionLost(4095, "tcp://a:1", "no answer")],
    wire.Restart: [wire.Restart(4095, 1023)],
    wire.Rejoined: [wire.Rejoined(1, "tcp://b:2", 3)],
    wire.Leave: [wire.Leave()],
    wire.Ping: [wire.Ping()],
    wire.RevokeGrant: [wire.RevokeGrant()],
    wire.PeerLost: [wire.PeerLost(1, 2, "no answer")],
    wire.Report: [
        wire.Report(0, None, None, (), (), 0),
        wire.Report(MOST, MOST, MOST, ((0, 1, 2), (4095, MOST, MOST)), ((1, 2), (3, 4)), MOST, MOST, MOST, MOST),
        wire.Report(1, 2, None, ((1, 1, 9),), (), 3, 0),
        wire.Report(1, 2, None, (), ((1, 1),), 3, None, 5, 4),
    ],
    wire.Dump: [wire.Dump(b""), wire.Dump(bytes(range(256)))],
    wire.Failed: [wire.Failed("exception", "it said: 'no'", "line one\nline two", 5)],
    wire.Result: [wire.Result(b"blob", True), wire.Result(b"", False)],
    wire.Lost: [wire.Lost(3, "signal 9")],
    wire.Stop: [wire.Stop("timeout")],
    wire.StatusRequest: [wire.StatusRequest()],
    wire.SyncRequest: [wire.SyncRequest()],
    wire.Start: [wire.Start(()), wire.Start(("ipc://a", "ipc://b"))],
    wire.Grant: [
        wire.Grant(None, ()),
        wire.Grant(0, ((0, 0),)),
        wire.Grant(MOST, ((4095, MOST), (0, 1))),
        wire.Grant(1, (), True),
    ],
    wire.End: [wire.End()],
    wire.DumpRequest: [wire.DumpRequest()],
    wire.Abort: [wire.Abort("")],
    wire.Refused: [wire.Refused("why")],
    wire.PacketBatch: [
        wire.PacketBatch(0, 0, ()),
        wire.PacketBatch(1, 3, ((2, 4, b"\x00\xff"),)),
        wire.PacketBatch(4095, MOST, ((2**20, MOST, b""), (0, 0, bytes(300)))),
    ],
    wire.Status: [wire.Status(4, 10**15, 9), wire.Status(4, 0, 9, MOST, MOST)],
    wire.Sync: [wire.Sync(False, "joining", 0, 0, (), ()), wire.Sync(True, "x", 1, MOST, (WAITING, IDLE), (("a", 5),))],
    wire.RunStarted: [wire.RunStarted()],
    wire.RankFailed: [wire.RankFailed(0, "k", "m", "d", 1)],
    wire.RankRecord: [wire.RankRecord(4095, MOST, b"{}")],
    wire.SimTimeReached: [wire.SimTimeReached(MOST, (b"a", b""))],
    wire.RankResult: [wire.RankResult(7, b"r", False)],
    wire.Deadlock: [wire.Deadlock(()), wire.Deadlock((b"a", b""))],
    wire.Finished: [wire.Finished(1, 2, MOST, 4)],
}
DECODERS = {
    wire.ToBroker: decode_for_broker,
    wire.ToSip: decode_for_sip,
    wire.ToLauncher: decode_for_launcher,
}
ALL = [message for messages in SAMPLES.values() for message in messages]


def decoders_of(message: Message) -> list[Any]:
    return [decode for kinds, decode in DECODERS.items() if isinstance(message, kinds)]


def pack(*fields: Any) -> bytes:
    return msgpack.packb(list(fields))


def refused(frame: bytes) -> list[str]:
    """The errors of all decoders for bytes that each must refuse."""
    errors = []
    for decode in DECODERS.values():
        with pytest.raises(BadFrame) as caught:
            decode(frame)
        errors.append(str(caught.value))
    return errors


# --- encoding and decoding ------------------------------------------------------------------------------------


def test_every_kind_has_a_sample_and_a_receiver() -> None:
    assert set(SAMPLES) == set(get_args(wire.ToBroker | wire.ToSip | wire.ToLauncher)) == set(Message.__subclasses__())
    for message in ALL:
        assert len(decoders_of(message)) == 1


@pytest.mark.parametrize("message", ALL, ids=lambda m: type(m).__name__)
def test_a_message_is_encoded_and_decoded(message: Message) -> None:
    (decode,) = decoders_of(message)
    back = decode(encode(message))
    assert back == message
    assert type(back) is type(message)


@pytest.mark.parametrize("message", ALL, ids=lambda m: type(m).__name__)
def test_other_receivers_refuse_a_message(message: Message) -> None:
    (right,) = decoders_of(message)
    for decode in DECODERS.values():
        if decode is not right:
            with pytest.raises(BadFrame):
                decode(encode(message))


@pytest.mark.parametrize("message", ALL, ids=lambda m: type(m).__name__)
def test_a_message_with_missing_or_extra_bytes_is_refused(message: Message) -> None:
    frame = encode(message)
    for length in range(len(frame)):
        refused(frame[:length])
    refused(frame + b"\x00")


@pytest.mark.parametrize("message", ALL, ids=lambda m: type(m).__name__)
def test_a_field_too_many_or_too_few_is_refused(message: Message) -> None:
    fields = msgspec.to_builtins(message, builtin_types=(bytes,))
    refused(pack(*fields, 0))
    required = sum(f.required for f in msgspec.structs.fields(message))
    refused(pack(*fields[:required]))


def test_a_frame_over_the_limit_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_FRAME_BYTES", 1000)
    assert decode_for_broker(encode(wire.Dump(bytes(900)))) == wire.Dump(bytes(900))
    with pytest.raises(BadFrame, match=r"the message has \d+ bytes; the limit is 1000 bytes"):
        encode(wire.Dump(bytes(1000)))
    assert all("the frame has 1001 bytes; the limit is 1000 bytes" in line for line in refused(bytes(1001)))


# --- wrong bytes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xc1",
        b"\x00",
        b"\xc0",
        pack(),
        pack([]),
        pack("no such kind"),
        pack(b"end"),
        pack("end", None),
        pack(["end"]),
        msgpack.packb("end"),
        b"\x92\xa4stop\xa2\xc3\x28",
    ],
    ids=repr,
)
def test_garbage(frame: bytes) -> None:
    for line in refused(frame):
        assert line.startswith(f"not a message of protocol {ids.PROTOCOL}: ")
        assert not line.endswith(": "), "it says what is wrong"


@pytest.mark.parametrize(
    "fields",
    [
        ("report", True, 2, None, [], [], 0, None),
        ("report", 1.0, 2, None, [], [], 0, None),
        ("report", -1, 2, None, [], [], 0, None),
        ("report", 1, -1, None, [], [], 0, None),
        ("report", MOST + 1, 2, None, [], [], 0, None),
        ("report", 2**64 - 1, 2, None, [], [], 0, None),
        ("report", "1", 2, None, [], [], 0, None),
        ("report", None, 2, None, [], [], 0, None),
        ("report", 1, 2, None, [[1, 2]], [], 0, None),
        ("report", 1, 2, None, [[1, 2, 3, 4]], [], 0, None),
        ("report", 1, 2, None, [[4096, 2, 3]], [], 0, None),
        ("report", 1, 2, None, [[-1, 2, 3]], [], 0, None),
        ("report", 1, 2, None, [[1, False, 3]], [], 0, None),
        ("report", 1, 2, None, None, [], 0, None),
        ("report", 1, 2, None, "", [], 0, None),
        ("report", 1, 2, None, [], [], 0, True),
        ("result", b"", 1),
        ("result", b"", None),
        ("result", "text", True),
        ("dump", "YWJj"),
        ("dump", [1, 2]),
        ("stop", b"bytes"),
        ("stop", 3),
        ("lost", 4096, ""),
        ("lost", True, ""),
        ("grant", 1, [[0, 1]], 3),
        ("grant", 0.5, []),
        ("grant", 10, [[0, -1]]),
        ("grant", 10, [], 1),
        ("grant", 10, [], None),
        ("report", 1, 2, None, [], [], 0, None, -1),
        ("report", 1, 2, None, [], [], 0, None, 0, MOST + 1),
        ("report", 1, 2, None, [], [], 0, None, None),
        ("packet_batch", 1, 3, [[2, 4, "text"]]),
        ("packet_batch", 1, 3, [[2, None, b""]]),
        ("packet_batch", 1, 3, [[None, 4, b""]]),
        ("packet_batch", 1, 3, [[2**20 + 1, 4, b""]]),
        ("packet_batch", 1, 3, [[-1, 4, b""]]),
        ("packet_batch", 1, 3, [[True, 4, b""]]),
        ("packet_batch", 1, 3, [[2, 4]]),
        ("packet_batch", 1, 3, [[2, 4, b"", 5]]),
        ("packet_batch", 1, 3, [2, 4, b""]),
        ("packet_batch", 1, 3, b""),
        ("packet_batch", 1, 3, None),
        ("packet_batch", 1, -1, []),
        ("packet_batch", 1, None, []),
        ("packet_batch", 4096, 3, []),
        ("packet_batch", True, 3, []),
        ("start", [b"a"]),
        ("sync", False, "", 0, 0, [[0]], []),
        ("sync", False, "", 0, 0, [], [["name", -1]]),
        ("deadlock", ["text"]),
    ],
    ids=repr,
)
def test_fields_of_the_wrong_type_or_range(fields: tuple[Any, ...]) -> None:
    refused(pack(*fields))


@pytest.mark.parametrize(
    "frame",
    [
        b"\xdd\xff\xff\xff\xff",
        b"\xdc\xff\xff",
        b"\xdc\xff\xff" * 20_000,
        b"\xc6\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xde\xff\xff",
        b"\xc9\xff\xff\xff\xff\x05",
        b"\x92\xa4dump\xc6\x7f\xff\xff\xff" + bytes(100),
        b"\x92\xa5start\xdd\x00\x01\x00\x00" + bytes(100),
        b"\x92\xa5start\xdd\xff\xff\xff\xff" + bytes(100),
        b"\x92\xa8deadlock\xdd\xff\xff\xff\xff" + bytes(100),
        b"\x94\xacpacket_batch\x01\x00\xdd\xff\xff\xff\xff" + bytes(100),
        b"\x94\xacpacket_batch\x01\x00\xdd\x00\x01\x00\x00" + bytes(100),
        b"\x94\xacpacket_batch\x01\x00\xdd\x00\x01\x00\x00" + b"\x93\x00\x00\xc6\x7f\xff\xff\xff",
        b"\x94\xacpacket_batch\x01\x00\xdd\x00\x01\x00\x00" + b"\xdd\xff\xff\xff\xff" * 20,
        b"\x93\xa5grant\x01\xdd\xff\xff\xff\xff" + bytes(100),
        b"\x93\xa5grant\x01\xdc\x10\x00" + b"\xdd\xff\xff\xff\xff" * 20,
        b"\x97\xa6report\x01\xc0\xc0\xdd\xff\xff\xff\xff" + bytes(100),
        b"\x92\xa4stop\xdb\xff\xff\xff\xff" + bytes(100),
    ],
    ids=lambda frame: frame[:24].hex(),
)
def test_a_huge_claimed_length_takes_no_memory(frame: bytes) -> None:
    tracemalloc.start()
    refused(frame)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


def test_nested_claimed_lengths_do_not_multiply() -> None:
    tracemalloc.start()
    refused(b"\xdc\x02\x00" * 400)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**22


def test_more_items_than_allowed() -> None:
    ranks, most = 4096, ids.MAX_ITEMS
    packet = [0, 0, b""]
    fits = [
        (decode_for_sip, "endpoints", ranks, lambda n: pack("start", [""] * n)),
        (decode_for_sip, "packets", most, lambda n: pack("packet_batch", 1, 0, [packet] * n)),
        (decode_for_sip, "need", ranks, lambda n: pack("grant", 1, [[0, 1]] * n)),
        (decode_for_broker, "sent", ranks, lambda n: pack("report", 1, None, None, [[0, 1, 2]] * n, [], 0)),
        (decode_for_broker, "taken", ranks, lambda n: pack("report", 1, None, None, [], [[0, 1]] * n, 0)),
        (decode_for_launcher, "dumps", ranks, lambda n: pack("deadlock", [b""] * n)),
    ]
    for decode, field, limit, frame in fits:
        assert len(getattr(decode(frame(limit)), field)) == limit
        with pytest.raises(BadFrame, match=f"Expected `array` of length <= {limit}"):
            decode(frame(limit + 1))
    assert decode_for_sip(pack("abort", "x" * 2**20)) == wire.Abort("x" * 2**20)
    with pytest.raises(BadFrame, match=f"Expected `str` of length <= {2**20}"):
        decode_for_sip(pack("abort", "x" * (2**20 + 1)))


def test_a_blob_that_fits_a_frame_is_accepted() -> None:
    blob = bytes(ids.MAX_FRAME_BYTES - 100)
    assert decode_for_broker(encode(wire.Dump(blob))) == wire.Dump(blob)


@pytest.mark.parametrize("depth", [3, 500, 100_000])
def test_deep_nesting(depth: int) -> None:
    refused(b"\x91" * depth + b"\x00")
    refused(b"\x92\xa4stop" + b"\x91" * depth + b"\x00")


@pytest.mark.parametrize("value", [{}, {"a": 1}, {1: 2}, msgpack.ExtType(5, b"x"), msgpack.ExtType(5, b"")], ids=repr)
def test_maps_and_extensions(value: Any) -> None:
    refused(msgpack.packb(value))
    refused(pack("stop", value))
    refused(pack("dump", value))
    refused(pack("report", 1, value, None, [], [], 0, None))


def test_timestamps() -> None:
    refused(pack("stop", msgpack.Timestamp(1, 2)))


@given(st.binary(max_size=200))
def test_random_bytes(frame: bytes) -> None:
    for decode in DECODERS.values():
        try:
            message = decode(frame)
        except BadFrame:
            continue
        assert isinstance(message, Message)


@given(st.sampled_from(ALL), st.data())
def test_messages_with_a_few_bytes_changed(message: Message, data: st.DataObject) -> None:
    frame = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    for decode in DECODERS.values():
        try:
            changed = decode(bytes(frame))
        except BadFrame:
            continue
        assert decode(encode(changed)) == changed, "whatever is accepted is a message that can be told again"


_plain = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5)
_nested = st.recursive(
    _plain | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=8,
)


@given(st.sampled_from([type(m).__struct_config__.tag for m in ALL]), st.lists(_nested, max_size=8))
def test_right_kind_and_wrong_fields(tag: str, fields: list[Any]) -> None:
    for decode in DECODERS.values():
        try:
            assert isinstance(decode(pack(tag, *fields)), Message)
        except BadFrame:
            continue
