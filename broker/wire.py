"""The messages between SIPs, broker and launcher, and their encoding.

A message is a MessagePack array that starts with its kind. The decoder checks the schema, so every length is bounded
before memory is allocated; nothing is unpickled. SIPs send facts to the broker, the broker sends commands to SIPs. No
simulated result depends on host times (``_ns``). Simulated times are integer picoseconds; None means "never".
"""

from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from broker.ids import MAX_FRAME_BYTES, PROTOCOL, Blob, Channels, Count, Few, Incarnation, Many, Ps, Rank, Text


class BadFrame(ValueError):
    """Bytes that are not a message of this protocol; the text gives the reason."""


class Message(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Base of all messages: an array on the wire, checked field by field."""


class Join(Message, tag="join", frozen=True):
    """A SIP is ready. ``plan_digest`` covers config, plan, algorithm source and program version.

    ``incarnation``: the number of earlier processes of this rank. ``logged``: (destination, packets, least arrival) of
    the packet logs of these processes, which contain all packets that the rank sends before ``logged_ps``.
    """

    protocol: int
    rank: Rank
    world_size: Rank
    version: Text
    plan_digest: Text
    pid: Count
    host: Text
    endpoint: Text
    incarnation: Incarnation = 0
    logged_ps: Ps = 0
    logged: Annotated[tuple[tuple[Rank, Count, Ps], ...], Few] = ()


class Start(Message, tag="start", frozen=True):
    """All SIPs have joined. ``endpoints``: where each SIP listens, by rank; "" for a SIP that is being restarted.

    ``taken``: by rank, how many packets each SIP has taken from earlier incarnations of the receiver of this message.
    """

    endpoints: Annotated[tuple[Text, ...], Few]
    taken: Annotated[tuple[Count, ...], Few] = ()


class Rejoined(Message, tag="rejoined", frozen=True):
    """A peer was restarted and listens at another endpoint; the receiver must resend all packets to the peer."""

    rank: Rank
    endpoint: Text
    incarnation: Incarnation


class Report(Message, tag="report", frozen=True):
    """The state of a SIP after running to its horizon.

    ``next_ps``: the earliest local event. ``held_ps``: the least arrival of packets taken and not yet injected.
    ``sent``: (destination, packets sent so far, least arrival of the new packets). ``taken``: (source,
    packets taken so far, injected or not). ``waiting``: number of blocked kernels and scripts. ``promise_ps``: unless a
    packet arrives, the SIP sends nothing before this time (``MAX_PS``: nothing at all); None if it promises nothing.
    ``run_ns``, ``send_ns``: host time of simulating, and of sending packets and the last report, since that report.
    """

    now_ps: Ps
    next_ps: Ps | None
    held_ps: Ps | None
    sent: Annotated[tuple[tuple[Rank, Count, Ps], ...], Few]
    taken: Annotated[tuple[tuple[Rank, Count], ...], Few]
    waiting: Count
    promise_ps: Ps | None = None
    run_ns: Count = 0
    send_ns: Count = 0


class Grant(Message, tag="grant", frozen=True):
    """The SIP must run all events before ``horizon_ps``, after taking the packets ``need`` = (source, total count).

    ``colocate``: share a processor with the broker, since no other SIP would run in parallel (``ColocationPolicy``).
    """

    horizon_ps: Ps | None
    need: Annotated[tuple[tuple[Rank, Count], ...], Few]
    colocate: bool = False


class RevokeGrant(Message, tag="revoke_grant", frozen=True):
    """Packets that a grant requires may never arrive: the SIP must report again, unless its window has begun."""


class End(Message, tag="end", frozen=True):
    """The run is over and no kernel waits: the SIP must send its ``Result``."""


class Leave(Message, tag="leave", frozen=True):
    """Every SIP has answered: the SIP must exit."""


class Ping(Message, tag="ping", frozen=True):
    """No-op by which the broker tests a connection: sending fails if the SIP is no longer connected."""


class DumpRequest(Message, tag="dump_request", frozen=True):
    """The run is over and kernels wait: the SIP must send a ``Dump``."""


class Dump(Message, tag="dump", frozen=True):
    """The answer to ``DumpRequest``: a SIP's tasks and queues, opaque to the broker."""

    blob: Blob


class Abort(Message, tag="abort", frozen=True):
    """The run ends early: the SIP must stop and send a partial ``Result``."""

    reason: Text


class Refused(Message, tag="refused", frozen=True):
    """The ``Join`` was not accepted; the process must exit. ``reason``: one line."""

    reason: Text


class FailureSite(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The place of a failure within its SIP, opaque to the broker. -1 or "" if the failure has no such place."""

    cube: Annotated[int, Meta(ge=-1, lt=2**31)] = -1
    pe: Annotated[int, Meta(ge=-1, lt=2**31)] = -1
    direction: Text = ""


NOWHERE = FailureSite()


class Failed(Message, tag="failed", frozen=True):
    """The failure of a SIP. ``kind``: a documented kind of failure. ``blames``: the rank at fault, None for the sender.

    ``deferred``: the run ends only when all other SIPs have run up to ``now_ps``, since another SIP may fail earlier in
    simulated time; the report of the failed SIP follows.
    """

    kind: Text
    message: Text
    detail: Text
    now_ps: Ps
    where: FailureSite = NOWHERE
    blames: Rank | None = None
    deferred: bool = False


class Result(Message, tag="result", frozen=True):
    """A SIP's outcome, opaque to the broker; empty if encoding fails. ``partial``: true after ``Abort`` or failure."""

    blob: Blob
    partial: bool


class Progress(Message, tag="progress", frozen=True):
    """A SIP is alive. ``steps``: events and host calls so far, counted in long windows only."""

    now_ps: Ps
    steps: Count


class Record(Message, tag="record", frozen=True):
    """Collective ``index`` of a SIP's program has ended; ``blob`` is opaque to the broker."""

    index: Count
    blob: Blob


class ConnectionLost(Message, tag="connection_lost", frozen=True):
    """A SIP has lost its connection to a peer, which listened at ``endpoint``."""

    peer: Rank
    endpoint: Text
    why: Text


class Lost(Message, tag="lost", frozen=True):
    """The process of ``rank`` has exited too early and is not restarted."""

    rank: Rank
    why: Text


class Restart(Message, tag="restart", frozen=True):
    """The process of ``rank`` has exited too early and is restarted as ``incarnation``."""

    rank: Rank
    incarnation: Incarnation


class Stop(Message, tag="stop", frozen=True):
    """The launcher ends the run."""

    reason: Text


class StatusRequest(Message, tag="status_request", frozen=True):
    """The launcher requests a ``Status``."""


class SyncRequest(Message, tag="sync_request", frozen=True):
    """The launcher requests a ``Sync``."""


class Status(Message, tag="status", frozen=True):
    """The progress of a run. ``joined``: how many SIPs have joined. ``now_ps``: the least simulated time of all SIPs.

    ``reported_ps``, ``age_ns``: means over SIPs: simulated time in the last ``Progress``, host time since then.
    """

    joined: Count
    now_ps: Ps
    grants: Count
    reported_ps: Ps = 0
    age_ns: Count = 0


class SipSync(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The synchronisation state of one SIP. ``state``: joining, joined, starting, running, waiting or idle.

    SIP ``by`` blocks this SIP (``state`` waiting) or bounds its horizon, as it may send at ``by_ps`` over ``chain`` in
    ``delay_ps``; None if no SIP does. ``lacks``: packets in flight, as (source, count). ``quiet_ns``: host time since
    the last progress. ``since_ns``: host time since ``state`` changed.
    """

    rank: Rank
    state: Text
    now_ps: Ps
    next_ps: Ps | None
    horizon_ps: Ps | None
    since_ns: Count
    by: Rank | None
    by_ps: Ps
    delay_ps: Ps
    chain: Annotated[tuple[Text, ...], Few]
    lacks: Annotated[tuple[tuple[Rank, Count], ...], Few]
    waiting: Count
    run_ns: Count
    send_ns: Count
    wait_ns: Count
    quiet_ns: Count = 0
    incarnation: Incarnation = 0


class Sync(Message, tag="sync", frozen=True):
    """To the launcher: the state of every SIP, and (name, ns) of the channels whose waits cost most host time.

    ``last``: sent without a request, at the end of the phase ``running``.
    """

    last: bool
    phase: Text
    reports: Count
    grants: Count
    sips: Annotated[tuple[SipSync, ...], Few]
    channels: Annotated[tuple[tuple[Text, Count], ...], Few]


class PeerLost(Message, tag="peer_lost", frozen=True):
    """To the launcher: ``rank`` has lost its connection to ``peer``, or to the broker if ``peer`` is ``rank``."""

    rank: Rank
    peer: Rank
    why: Text
    incarnation: Incarnation = 0
    peer_incarnation: Incarnation = 0


class RunStarted(Message, tag="run_started", frozen=True):
    """To the launcher: all SIPs have joined."""


class RankFailed(Message, tag="rank_failed", frozen=True):
    """To the launcher: the ``Failed`` of a SIP on ``host``. The first such message of a run is the cause shown."""

    rank: Rank | None
    kind: Text
    message: Text
    detail: Text
    now_ps: Ps
    where: FailureSite = NOWHERE
    host: Text = ""


class RankResult(Message, tag="rank_result", frozen=True):
    """To the launcher: one SIP's ``Result``."""

    rank: Rank
    blob: Blob
    partial: bool


class RankRecord(Message, tag="rank_record", frozen=True):
    """To the launcher: one SIP's ``Record``."""

    rank: Rank
    index: Count
    blob: Blob


class SimTimeReached(Message, tag="sim_time_reached", frozen=True):
    """To the launcher: every SIP has run all events before ``limit_ps``. ``dumps``: by rank."""

    limit_ps: Ps
    dumps: Annotated[tuple[Blob, ...], Few]


class Deadlock(Message, tag="deadlock", frozen=True):
    """To the launcher: no SIP can proceed, and kernels or scripts wait. ``dumps``: by rank."""

    dumps: Annotated[tuple[Blob, ...], Few]


class Finished(Message, tag="finished", frozen=True):
    """To the launcher: every SIP has answered. The fields are totals over the run, ``window_ps_sum`` in ps."""

    reports: Count
    grants: Count
    window_ps_sum: Count
    windows: Count


class PacketBatch(Message, tag="packet_batch", frozen=True):
    """Packets from SIP to SIP, each as (channel, arrival in ps, opaque body).

    ``first``: the number of the first packet in the stream of the ordered pair; the others follow without gaps.
    """

    src: Rank
    first: Count
    packets: Annotated[tuple[tuple[Channels, Ps, Blob], ...], Many]


FromSip = Join | Report | Progress | Record | ConnectionLost | Dump | Failed | Result
ToBroker = FromSip | Lost | Restart | Stop | StatusRequest | SyncRequest
ToSip = Start | Rejoined | Grant | RevokeGrant | End | Leave | Ping | DumpRequest | Abort | Refused | PacketBatch
RankMessage = PeerLost | RankFailed | RankResult | RankRecord
ToLauncher = Status | Sync | RunStarted | RankMessage | Deadlock | SimTimeReached | Finished
_BATCH = b"\x94\xacpacket_batch"


def source_of(frame: bytes) -> int | None:
    """Return the ``src`` of an encoded ``PacketBatch`` without decoding the rest; None for other bytes."""
    start = len(_BATCH) + 1
    if not frame.startswith(_BATCH) or len(frame) < start:
        return None
    if (first := frame[start - 1]) < 0x80:
        return first
    encoded = frame[start : start + (size := {0xCC: 1, 0xCD: 2}.get(first, 0))]
    return int.from_bytes(encoded, "big") if size and len(encoded) == size else None


Kind = TypeVar("Kind")
_ENCODER = msgspec.msgpack.Encoder()
_FOR_BROKER: "msgspec.msgpack.Decoder[ToBroker]" = msgspec.msgpack.Decoder(ToBroker)
_FOR_SIP: "msgspec.msgpack.Decoder[ToSip]" = msgspec.msgpack.Decoder(ToSip)
_FOR_LAUNCHER: "msgspec.msgpack.Decoder[ToLauncher]" = msgspec.msgpack.Decoder(ToLauncher)


def encode(message: Message) -> bytes:
    """Return a message as bytes.

    Raises:
        BadFrame: when the message is longer than ``MAX_FRAME_BYTES``.
    """
    frame = _ENCODER.encode(message)
    if len(frame) > MAX_FRAME_BYTES:
        raise BadFrame(f"the message has {len(frame)} bytes; the limit is {MAX_FRAME_BYTES} bytes")
    return frame


def checked(decode: Callable[[bytes], Kind], frame: bytes, what: str = f"a message of protocol {PROTOCOL}") -> Kind:
    """Return ``decode(frame)``; raise ``BadFrame`` if the bytes do not match the schema. ``what``: for the text."""
    if len(frame) > MAX_FRAME_BYTES:
        raise BadFrame(f"the frame has {len(frame)} bytes; the limit is {MAX_FRAME_BYTES} bytes")
    try:
        return decode(frame)
    # The errors of old versions of msgspec are not ValueErrors.
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise BadFrame(f"not {what}: {str(error) or type(error).__name__}") from None


def decode_for_broker(frame: bytes) -> ToBroker:
    """Decode a message to the broker; raise ``BadFrame`` for other bytes."""
    return checked(_FOR_BROKER.decode, frame)


def decode_for_sip(frame: bytes) -> ToSip:
    """Decode a command or a packet batch to a SIP; raise ``BadFrame`` for other bytes."""
    return checked(_FOR_SIP.decode, frame)


def decode_for_launcher(frame: bytes) -> ToLauncher:
    """Decode a message to the launcher; raise ``BadFrame`` for other bytes."""
    return checked(_FOR_LAUNCHER.decode, frame)
