"""The messages between SIPs, broker and launcher, and their encoding. Nothing here decides anything.

A message is a MessagePack array that starts with its kind. Decoding bounds every length before memory
is taken and then checks the result against the message's schema; nothing is ever unpickled. Facts
(``Report``, ``Failed``, ``Lost``) go up to the broker, commands (``Grant``, ``Abort``, ``End``) come down.

Times are integer picoseconds; ``None`` stands for "never".
"""

from typing import Annotated, Any, NamedTuple

import msgpack
import msgspec
from msgspec import Meta

PROTOCOL = 1
BROKER = -1
LAUNCHER = -2

MAX_FRAME_BYTES = 64 * 2**20
MAX_ITEMS = 2**16

Rank = Annotated[int, Meta(ge=0, le=4095)]
MAX_PS = 2**63 - 1
Ps = Annotated[int, Meta(ge=0, le=MAX_PS)]
Tally = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Text = Annotated[str, Meta(max_length=2**20)]


class Channel(NamedTuple):
    """A directed channel between two SIPs. ``delay_ps`` is its lookahead: sent at t, arrived at t + delay or later."""

    src: int
    dst: int
    delay_ps: int
    name: str


class BadFrame(ValueError):
    """Bytes that are not a message of this protocol; says what is wrong with them."""


class Message(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Base of all messages: an array on the wire, checked field by field."""


class Join(Message, tag="join", frozen=True):
    """A SIP is ready. ``plan_digest`` covers config, plan, algorithm source and program version."""

    protocol: int
    rank: Rank
    world_size: Rank
    version: Text
    plan_digest: Text
    pid: Tally
    host: Text
    endpoint: Text


class Start(Message, tag="start", frozen=True):
    """All SIPs have joined: where each one listens, by rank."""

    endpoints: tuple[Text, ...]


class Report(Message, tag="report", frozen=True):
    """What a SIP knows after running to its horizon (DESIGN section 4).

    ``next_ps``: earliest of its local queue; ``held_ps``: least arrival taken from a channel and not
    injected. ``sent``: (destination, packets sent so far, least arrival among the new ones).
    ``taken``: (source, packets taken so far, injected or not). ``waiting``: kernels and scripts that
    wait. ``promise_ps``: it will send nothing before, unless something arrives.
    """

    now_ps: Ps
    next_ps: Ps | None
    held_ps: Ps | None
    sent: tuple[tuple[Rank, Tally, Ps], ...]
    taken: tuple[tuple[Rank, Tally], ...]
    waiting: Tally
    promise_ps: Ps | None = None


class Grant(Message, tag="grant", frozen=True):
    """Run every event before ``horizon_ps`` once ``need`` = (source, count) packets have been taken."""

    horizon_ps: Ps | None
    need: tuple[tuple[Rank, Tally], ...]


class End(Message, tag="end", frozen=True):
    """The run is over and nobody waits: send your ``Result``."""


class AskDump(Message, tag="ask_dump", frozen=True):
    """The run is over and somebody waits: say who, where and for what."""


class Dump(Message, tag="dump", frozen=True):
    """The answer to ``AskDump``, opaque to the broker."""

    blob: bytes


class Abort(Message, tag="abort", frozen=True):
    """Stop now; send what you have as a partial ``Result``."""

    reason: Text


class Refused(Message, tag="refused", frozen=True):
    """A ``Join`` that cannot be accepted, and why."""

    reason: Text


class Failed(Message, tag="failed", frozen=True):
    """A SIP's simulation failed: ``kind`` is one of the documented error kinds, ``detail`` more lines for people."""

    kind: Text
    message: Text
    detail: Text
    now_ps: Ps


class Result(Message, tag="result", frozen=True):
    """A SIP's outcome, opaque to the broker; ``partial`` after an ``Abort``."""

    blob: bytes
    partial: bool


class Lost(Message, tag="lost", frozen=True):
    """The launcher saw the process of ``rank`` end too early."""

    rank: Rank
    why: Text


class Stop(Message, tag="stop", frozen=True):
    """The launcher wants the run to end now."""

    reason: Text


class AskStatus(Message, tag="ask_status", frozen=True):
    """The launcher asks how far the run is."""


class Status(Message, tag="status", frozen=True):
    """``joined`` SIPs, and the least simulated time that any SIP stands at."""

    joined: Tally
    now_ps: Ps
    grants: Tally


class Started(Message, tag="started", frozen=True):
    """To the launcher: all SIPs have joined and run."""


class RankFailed(Message, tag="rank_failed", frozen=True):
    """To the launcher: what ``Failed`` said, and by whom; the first of these is the cause."""

    rank: Rank
    kind: Text
    message: Text
    detail: Text
    now_ps: Ps


class RankResult(Message, tag="rank_result", frozen=True):
    """To the launcher: one SIP's ``Result``."""

    rank: Rank
    blob: bytes
    partial: bool


class Deadlock(Message, tag="deadlock", frozen=True):
    """To the launcher: nothing can happen any more; the dump of every SIP, by rank."""

    dumps: tuple[bytes, ...]


class Finished(Message, tag="finished", frozen=True):
    """To the launcher: every SIP has answered; totals of the synchronisation."""

    reports: Tally
    grants: Tally
    window_ps_sum: Tally
    windows: Tally


class Packet(Message, tag="packet", frozen=True):
    """From SIP to SIP: ``seq`` counts the packets of the ordered pair, ``body`` is opaque."""

    src: Rank
    channel: Rank
    seq: Tally
    arrival_ps: Ps
    body: bytes


ToBroker = Join | Report | Dump | Failed | Result | Lost | Stop | AskStatus
ToSip = Start | Grant | End | AskDump | Abort | Refused | Packet
ToLauncher = Status | Started | RankFailed | RankResult | Deadlock | Finished
AnyMessage = ToBroker | ToSip | ToLauncher


def encode(message: Message) -> bytes:
    """A message as bytes.

    Raises:
        BadFrame: when it would be longer than any receiver accepts.
    """
    frame: bytes = msgpack.packb(msgspec.to_builtins(message, builtin_types=(bytes,)))
    if len(frame) > MAX_FRAME_BYTES:
        raise BadFrame(f"a message of {len(frame)} bytes; at most {MAX_FRAME_BYTES}")
    return frame


def _decode(frame: bytes, kinds: Any) -> Any:
    if len(frame) > MAX_FRAME_BYTES:
        raise BadFrame(f"a frame of {len(frame)} bytes; at most {MAX_FRAME_BYTES}")
    try:
        fields = msgpack.unpackb(
            frame,
            max_bin_len=MAX_FRAME_BYTES,
            max_str_len=2**20,
            max_array_len=min(MAX_ITEMS, len(frame)),
            max_map_len=0,
            max_ext_len=0,
        )
        return msgspec.convert(fields, kinds, builtin_types=(bytes,))
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise BadFrame(f"not a message of protocol {PROTOCOL}: {str(error) or type(error).__name__}") from None


def decode_for_broker(frame: bytes) -> ToBroker:
    """Bytes to a fact for the broker.

    Raises:
        BadFrame: when they are anything else.
    """
    message: ToBroker = _decode(frame, ToBroker)
    return message


def decode_for_sip(frame: bytes) -> ToSip:
    """Bytes to a command or packet for a SIP.

    Raises:
        BadFrame: when they are anything else.
    """
    message: ToSip = _decode(frame, ToSip)
    return message


def decode_for_launcher(frame: bytes) -> ToLauncher:
    """Bytes to a fact for the launcher.

    Raises:
        BadFrame: when they are anything else.
    """
    message: ToLauncher = _decode(frame, ToLauncher)
    return message
