"""Messages between agents and the launcher: MessagePack, checked against types and limits; never executed.

An agent sends its state and the events of its fork server; the launcher sends commands for the fork server.
"""

from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from broker.ids import Rank, Text
from broker.wire import BadFrame, Kind, checked
from launcher.processes.fork_server import (
    Message,
    NotStarted,
    ProcessExited,
    ProcessMessage,
    ProcessStarted,
    ServerCommand,
    ServerEvent,
)
from sipsim.records.artifacts import LONGEST_NAME, NAME_PATTERN

PIECE_BYTES = 2**20
Name = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")]
"""The name of a host."""
ArtifactName = Annotated[str, Meta(pattern=NAME_PATTERN, max_length=LONGEST_NAME)]
Piece = Annotated[bytes, Meta(max_length=PIECE_BYTES)]
Seconds = Annotated[float, Meta(ge=0)]
Sample = tuple[Annotated[str, Meta(max_length=32)], Seconds, Seconds, Seconds]
Number = Annotated[int, Meta(ge=0, le=2**31)]


class BadMessage(ValueError):
    """Error: bytes that are no message of an agent or the launcher."""


class Hello(Message, tag="hello", frozen=True):
    """First message of an agent. ``name``: host name; ``address``: where SIPs listen; ``folder``: private folder."""

    node_rank: Number
    name: Name
    pid: Number
    version: Text
    address: Text
    folder: Text


class Log(Message, tag="log", frozen=True):
    """Output of a SIP process since the previous ``Log`` message of this process."""

    rank: Rank
    data: Piece


class File(Message, tag="file", frozen=True):
    """A piece of a file in a rank's artifact folder; the pieces of a file arrive in order."""

    name: ArtifactName
    data: Piece


class ProcessStates(Message, tag="process_states", frozen=True):
    """States of processes: the fields of a ``ProcessState`` as a tuple, by rank."""

    states: Annotated[dict[Rank, Sample], Meta(max_length=4096)]


class Heartbeat(Message, tag="heartbeat", frozen=True):
    """Sign of life of an agent or the launcher."""


class Leaving(Message, tag="leaving", frozen=True):
    """The agent has ended all processes and exits. ``why``: the reason; empty if :class:`Finish` was the reason."""

    why: Text


class KillSelf(Message, tag="kill_self", frozen=True):
    """Injected fault: the agent kills itself with SIGKILL."""


class Finish(Message, tag="finish", frozen=True):
    """Command: end all processes, send files, and exit. ``grace_s``: seconds for processes to exit by themselves."""

    grace_s: Annotated[float, Meta(ge=0, le=3600)]


FromAgent = Hello | ServerEvent | Log | File | ProcessStates | Heartbeat | Leaving
ToAgent = ServerCommand | Finish | Heartbeat | KillSelf
_ENCODER = msgspec.msgpack.Encoder()
_FROM_AGENT: "msgspec.msgpack.Decoder[FromAgent]" = msgspec.msgpack.Decoder(FromAgent)
_TO_AGENT: "msgspec.msgpack.Decoder[ToAgent]" = msgspec.msgpack.Decoder(ToAgent)


def encode(message: FromAgent | ToAgent) -> bytes:
    """Encode a message."""
    return _ENCODER.encode(message)


def decode_from_agent(frame: bytes) -> FromAgent:
    """Decode a message from an agent.

    Raises:
        BadMessage: if the bytes are anything else, or an event of a process that is no SIP.
    """
    message = _checked(_FROM_AGENT.decode, frame)
    if isinstance(message, ProcessStarted | NotStarted | ProcessMessage | ProcessExited) and message.rank is None:
        raise BadMessage("an event of a process that is no SIP; agents start only SIPs")
    return message


def decode_to_agent(frame: bytes) -> ToAgent:
    """Decode a message from the launcher.

    Raises:
        BadMessage: if the bytes are anything else.
    """
    return _checked(_TO_AGENT.decode, frame)


def _checked(decode: Callable[[bytes], Kind], frame: bytes) -> Kind:
    try:
        return checked(decode, frame, "a message between agents and launchers")
    except BadFrame as error:
        raise BadMessage(str(error)) from None
