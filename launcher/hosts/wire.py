"""Messages between agents and the launcher: MessagePack with a schema and bounds, without code.

Up: facts of an agent and of its fork server. Down: orders for that server, and the end of the run.
"""

import json
from collections.abc import Callable
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from broker.wire import BadFrame, Kind, checked
from launcher.processes.entry import is_sip_name
from launcher.processes.fork_server import News, ProcessesLeft, Ready, SetupFailed, news_from
from sipsim.records.artifacts import LONGEST_NAME, NAME_PATTERN

PIECE_BYTES = 2**20
Name = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")]
"""The name of a process or a host, never a path."""
ArtifactName = Annotated[str, Meta(pattern=NAME_PATTERN, max_length=LONGEST_NAME)]
Text = Annotated[str, Meta(max_length=2**20)]
Piece = Annotated[bytes, Meta(max_length=PIECE_BYTES)]
Seconds = Annotated[float, Meta(ge=0)]
Sample = tuple[Annotated[str, Meta(max_length=32)], Seconds, Seconds, Seconds]
Number = Annotated[int, Meta(ge=0, le=2**31)]


class BadMessage(ValueError):
    """Bytes that are no message of an agent or the launcher."""


class _Message(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    pass


class Hello(_Message, tag="hello", frozen=True):
    """An agent is ready. ``name``: of its host. ``address``: on which its SIPs listen. ``folder``: its private one."""

    node_rank: Number
    name: Name
    pid: Number
    version: Text
    address: Text
    folder: Text


class _ServerLine(_Message, frozen=True):
    """A line of JSON from or for a fork server."""

    line: Text

    @classmethod
    def of(cls, fields: list[Any]) -> Self:
        """Make a message of its fields."""
        return cls(json.dumps(fields))


class ServerNews(_ServerLine, tag="news", frozen=True):
    """An event of the agent's fork server."""

    def news(self) -> News:
        """Decode it.

        Raises:
            BadMessage: when it is no news.
        """
        try:
            found = news_from(json.loads(self.line))
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise BadMessage(f"no news: {error}") from None
        is_nobodys = isinstance(found, ProcessesLeft) and not found.name
        if not isinstance(found, Ready | SetupFailed) and not is_sip_name(found.name) and not is_nobodys:
            raise BadMessage("no news: an agent starts nothing but SIPs")
        return found


class Log(_Message, tag="log", frozen=True):
    """Output of a process since the last such message."""

    name: Name
    data: Piece


class File(_Message, tag="file", frozen=True):
    """A piece of a file in a rank's artifact folder; the next one follows."""

    name: ArtifactName
    data: Piece


class ProcessStates(_Message, tag="process_states", frozen=True):
    """The fields of each process's ``ProcessState``, by name."""

    states: Annotated[dict[Name, Sample], Meta(max_length=4096)]


class Heartbeat(_Message, tag="heartbeat", frozen=True):
    """A sign of life."""


class Leaving(_Message, tag="leaving", frozen=True):
    """The agent has ended all its processes and exits. ``why``: empty after :class:`Finish`."""

    why: Text


class Order(_ServerLine, tag="order", frozen=True):
    """An order for the agent's fork server."""

    @property
    def fields(self) -> list[Any]:
        """Decode it.

        Raises:
            BadMessage: when it is no order.
        """
        try:
            found = json.loads(self.line)
        except (ValueError, RecursionError) as error:
            raise BadMessage(f"no order: {error}") from None
        if not isinstance(found, list) or not found or not isinstance(found[0], str):
            raise BadMessage("no order: not a list that begins with a name")
        return found


class KillSelf(_Message, tag="kill_self", frozen=True):
    """Injected fault: the agent kills itself with SIGKILL."""


class Finish(_Message, tag="finish", frozen=True):
    """End all processes, send their files, and exit. ``grace_s``: for them to exit by themselves."""

    grace_s: Annotated[float, Meta(ge=0, le=3600)]


FromAgent = Hello | ServerNews | Log | File | ProcessStates | Heartbeat | Leaving
ToAgent = Order | Finish | Heartbeat | KillSelf
_ENCODER = msgspec.msgpack.Encoder()
_FROM_AGENT: "msgspec.msgpack.Decoder[FromAgent]" = msgspec.msgpack.Decoder(FromAgent)
_TO_AGENT: "msgspec.msgpack.Decoder[ToAgent]" = msgspec.msgpack.Decoder(ToAgent)


def encode(message: FromAgent | ToAgent) -> bytes:
    """Encode a message."""
    return _ENCODER.encode(message)


def decode_from_agent(frame: bytes) -> FromAgent:
    """Decode a message from an agent.

    Raises:
        BadMessage: when the bytes are anything else.
    """
    return _checked(_FROM_AGENT.decode, frame)


def decode_to_agent(frame: bytes) -> ToAgent:
    """Decode a message from the launcher.

    Raises:
        BadMessage: when the bytes are anything else.
    """
    return _checked(_TO_AGENT.decode, frame)


def _checked(decode: Callable[[bytes], Kind], frame: bytes) -> Kind:
    try:
        return checked(decode, frame, "a message between agents and launchers")
    except BadFrame as error:
        raise BadMessage(str(error)) from None
