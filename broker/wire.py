"""The messages between SIPs, broker and launcher, and their encoding. Nothing here decides anything.

A message is a MessagePack array that starts with its kind. It is decoded against its schema, so every length is bounded
before memory is taken; nothing is ever unpickled. Facts go to the broker, commands to SIPs. No simulation depends on
host times (``_ns``). Simulated times are integer picoseconds; None means "never".
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
    the packets in their logs, which hold all that the rank sends before ``logged_ps``.
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
    """All SIPs have joined. ``endpoints``: where each listens, by rank; empty for one that is being restarted.

    ``taken``: by rank, how many packets it has taken from earlier incarnations of the receiver of this message.
    """

    endpoints: Annotated[tuple[Text, ...], Few]
    taken: Annotated[tuple[Count, ...], Few] = ()


class Rejoined(Message, tag="rejoined", frozen=True):
    """A peer was restarted and listens at another endpoint: send it all packets again from the first one."""

    rank: Rank
    endpoint: Text
    incarnation: Incarnation


class Report(Message, tag="report", frozen=True):
    """The state of a SIP after running to its horizon.

    ``next_ps``: earliest of its local queue; ``held_ps``: least arrival taken from a channel and not
    injected. ``sent``: (destination, packets sent so far, least arrival among the new ones).
    ``taken``: (source, packets taken so far, injected or not). ``waiting``: blocked kernels and scripts.
    ``promise_ps``: by its local events alone it sends nothing before (``MAX_PS``: nothing at all); None promises
    nothing. ``run_ns``, ``send_ns``: host time since the last report of simulating, and of sending, that report too.
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
    """Run every event before ``horizon_ps`` once ``need`` = (source, count) packets have been taken.

    ``colocate``: share a processor with the broker, since no other SIP would run in parallel (``ColocationPolicy``).
    """

    horizon_ps: Ps | None
    need: Annotated[tuple[tuple[Rank, Count], ...], Few]
    colocate: bool = False


class RevokeGrant(Message, tag="revoke_grant", frozen=True):
    """Packets that a grant requires may never arrive: report again, unless its window has begun."""


class End(Message, tag="end", frozen=True):
    """The run is over and no kernel waits: send the ``Result``."""


class Leave(Message, tag="leave", frozen=True):
    """Every SIP has answered: exit."""


class Ping(Message, tag="ping", frozen=True):
    """No-op; sending it fails if the SIP is no longer connected."""


class DumpRequest(Message, tag="dump_request", frozen=True):
    """The run is over and kernels wait: send a ``Dump`` of them."""


class Dump(Message, tag="dump", frozen=True):
    """The answer to ``DumpRequest``, opaque to the broker."""

    blob: Blob


class Abort(Message, tag="abort", frozen=True):
    """Stop now; send a partial ``Result``."""

    reason: Text


class Refused(Message, tag="refused", frozen=True):
    """A ``Join`` was not accepted, and why."""

    reason: Text


class FailureSite(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The place of a failure within its SIP, opaque to the broker; -1 and "" for none."""

    cube: Annotated[int, Meta(ge=-1, lt=2**31)] = -1
    pe: Annotated[int, Meta(ge=-1, lt=2**31)] = -1
    direction: Text = ""


NOWHERE = FailureSite()


class Failed(Message, tag="failed", frozen=True):
    """The failure of a SIP: ``kind`` is a documented one, ``detail`` text, ``blames`` another rank to blame, if any.

    ``stands``: it stands at its time, and its report follows. The run ends when all others have run up to that time, as
    one of them may fail sooner.
    """

    kind: Text
    message: Text
    detail: Text
    now_ps: Ps
    where: FailureSite = NOWHERE
    blames: Rank | None = None
    stands: bool = False


class Result(Message, tag="result", frozen=True):
    """A SIP's outcome, opaque to the broker, empty if it cannot be told; ``partial`` after an ``Abort`` or failure."""

    blob: Blob
    partial: bool


class Progress(Message, tag="progress", frozen=True):
    """A SIP is alive: simulated time, and events and host calls in long windows, so far."""

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
    """The process of ``rank`` has exited too early, and is not restarted."""

    rank: Rank
    why: Text


class Restart(Message, tag="restart", frozen=True):
    """The process of ``rank`` has exited too early, and is restarted as ``incarnation``."""

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
    """The progress of a run. ``joined``: how many SIPs have joined. ``now_ps``: the least time of all. ``reported_ps``:
    the time that SIPs have reported, ``age_ns`` ago, both as means.
    """

    joined: Count
    now_ps: Ps
    grants: Count
    reported_ps: Ps = 0
    age_ns: Count = 0


class SipSync(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The synchronisation state of one SIP. ``state``: joining, joined, starting, running, waiting or idle.

    ``by`` blocks it (``state`` waiting) or bounds its horizon, sending at ``by_ps`` over ``chain``, which takes
    ``delay_ps``; None if none does. ``lacks``: packets in flight to it at the grant. ``quiet_ns``: since it progressed.
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
    """To the launcher: the state of every SIP, and the channels whose waits cost most host time.

    ``last``: not an answer, but the state when the phase ``running`` ended.
    """

    last: bool
    phase: Text
    reports: Count
    grants: Count
    sips: Annotated[tuple[SipSync, ...], Few]
    channels: Annotated[tuple[tuple[Text, Count], ...], Few]


class PeerLost(Message, tag="peer_lost", frozen=True):
    """To the launcher: ``rank`` has lost its connection to ``peer``, or if both are equal, to the broker."""

    rank: Rank
    peer: Rank
    why: Text
    incarnation: Incarnation = 0
    peer_incarnation: Incarnation = 0


class RunStarted(Message, tag="run_started", frozen=True):
    """To the launcher: all SIPs have joined."""


class RankFailed(Message, tag="rank_failed", frozen=True):
    """To the launcher: the ``Failed`` by one SIP, on ``host`` by its own name; the first of these is the cause."""

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
    """To the launcher: every SIP has run all events before ``limit_ps``; the dump of every SIP, by rank."""

    limit_ps: Ps
    dumps: Annotated[tuple[Blob, ...], Few]


class Deadlock(Message, tag="deadlock", frozen=True):
    """To the launcher: no SIP can go on; the dump of every SIP, by rank."""

    dumps: Annotated[tuple[Blob, ...], Few]


class Finished(Message, tag="finished", frozen=True):
    """To the launcher: every SIP has answered; totals of the synchronisation."""

    reports: Count
    grants: Count
    window_ps_sum: Count
    windows: Count


class PacketBatch(Message, tag="packet_batch", frozen=True):
    """Packets from SIP to SIP: (channel, arrival, body) each, the bodies opaque.

    ``first`` is the number of the first one in the stream of the ordered pair; the others follow without gaps.
    """

    src: Rank
    first: Count
    packets: Annotated[tuple[tuple[Channels, Ps, Blob], ...], Many]


FromSip = Join | Report | Progress | Record | ConnectionLost | Dump | Failed | Result
ToBroker = FromSip | Lost | Restart | Stop | StatusRequest | SyncRequest
ToSip = Start | Rejoined | Grant | RevokeGrant | End | Leave | Ping | DumpRequest | Abort | Refused | PacketBatch
OfRank = PeerLost | RankFailed | RankResult | RankRecord
ToLauncher = Status | Sync | RunStarted | OfRank | Deadlock | SimTimeReached | Finished
_BATCH = b"\x94\xacpacket_batch"


def source_of(frame: bytes) -> int | None:
    """The ``src`` of a ``PacketBatch`` as :func:`encode` writes it, without decoding the rest; None for other bytes."""
    at = len(_BATCH) + 1
    if not frame.startswith(_BATCH) or len(frame) < at:
        return None
    if (first := frame[at - 1]) < 0x80:
        return first
    found = frame[at : at + (size := {0xCC: 1, 0xCD: 2}.get(first, 0))]
    return int.from_bytes(found, "big") if size and len(found) == size else None


Kind = TypeVar("Kind")
_ENCODER = msgspec.msgpack.Encoder()
_FOR_BROKER: "msgspec.msgpack.Decoder[ToBroker]" = msgspec.msgpack.Decoder(ToBroker)
_FOR_SIP: "msgspec.msgpack.Decoder[ToSip]" = msgspec.msgpack.Decoder(ToSip)
_FOR_LAUNCHER: "msgspec.msgpack.Decoder[ToLauncher]" = msgspec.msgpack.Decoder(ToLauncher)


def encode(message: Message) -> bytes:
    """A message as bytes.

    Raises:
        BadFrame: when it would be longer than any receiver accepts.
    """
    frame = _ENCODER.encode(message)
    if len(frame) > MAX_FRAME_BYTES:
        raise BadFrame(f"a message of {len(frame)} bytes; at most {MAX_FRAME_BYTES}")
    return frame


def checked(decode: Callable[[bytes], Kind], frame: bytes, what: str = f"a message of protocol {PROTOCOL}") -> Kind:
    """Bytes by a decoder with a schema, or ``BadFrame``."""
    if len(frame) > MAX_FRAME_BYTES:
        raise BadFrame(f"a frame of {len(frame)} bytes; at most {MAX_FRAME_BYTES}")
    try:
        return decode(frame)
    # With an old msgspec its errors are no ValueError.
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise BadFrame(f"not {what}: {str(error) or type(error).__name__}") from None


def decode_for_broker(frame: bytes) -> ToBroker:
    """Bytes to a fact for the broker, or ``BadFrame``."""
    return checked(_FOR_BROKER.decode, frame)


def decode_for_sip(frame: bytes) -> ToSip:
    """Bytes to a command or a packet batch for a SIP, or ``BadFrame``."""
    return checked(_FOR_SIP.decode, frame)


def decode_for_launcher(frame: bytes) -> ToLauncher:
    """Bytes to a fact for the launcher, or ``BadFrame``."""
    return checked(_FOR_LAUNCHER.decode, frame)
