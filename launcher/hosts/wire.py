"""What agents and the launcher say to each other, as MessagePack with a schema, bounds and nothing that could be code.

Up: facts of an agent and of the server that it passes on. Down: orders for that server, and the end.
"""

import json
from collections.abc import Callable
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from broker.wire import BadFrame, Kind, checked
from launcher.processes.fork_server import News, Ready, SetupFailed, news_from
from launcher.processes.names import is_sip_name

PIECE_BYTES = 2**20
Name = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")]
"""Of a process, or of a file: never a path."""
Text = Annotated[str, Meta(max_length=2**20)]
Piece = Annotated[bytes, Meta(max_length=PIECE_BYTES)]
Number = Annotated[int, Meta(ge=0, le=2**31)]


class BadMessage(ValueError):
    """Bytes that neither an agent nor the launcher says."""


class _Message(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    pass


class Hello(_Message, tag="hello", frozen=True):
    """An agent is ready. ``name``: of its host. ``address``: where its SIPs can listen. ``folder``: its private one."""

    node_rank: Number
    name: Name
    pid: Number
    version: Text
    address: Text
    folder: Text


class _OfServers(_Message, frozen=True):
    """What servers say or take, passed on as the JSON that it is."""

    line: Text

    @classmethod
    def of(cls, fields: list[Any]) -> Self:
        """From its fields."""
        return cls(json.dumps(fields))


class ServerNews(_OfServers, tag="news", frozen=True):
    """News of the agent's server."""

    def news(self) -> News:
        """What it is.

        Raises:
            BadMessage: when it is no news.
        """
        try:
            found = news_from(json.loads(self.line))
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise BadMessage(f"no news: {error}") from None
        if not isinstance(found, Ready | SetupFailed) and not is_sip_name(found.name):
            raise BadMessage("no news: an agent starts nothing but SIPs")
        return found


class Log(_Message, tag="log", frozen=True):
    """What a process has written since the last one."""

    name: Name
    data: Piece


class File(_Message, tag="file", frozen=True):
    """A piece of a file that a process has left for the launcher; the next piece follows."""

    name: Name
    data: Piece


class ProcessStates(_Message, tag="process_states", frozen=True):
    """How the processes look: state letter and CPU ticks, by name."""

    process_states: Annotated[dict[Name, tuple[Annotated[str, Meta(max_length=1)], Number]], Meta(max_length=4096)]


class Heartbeat(_Message, tag="heartbeat", frozen=True):
    """Still here."""


class Leaving(_Message, tag="leaving", frozen=True):
    """The agent has ended all its processes and leaves; ``why`` is empty when it was told to."""

    why: Text


class Order(_OfServers, tag="order", frozen=True):
    """An order for the agent's server."""

    @property
    def fields(self) -> list[Any]:
        """What it is.

        Raises:
            BadMessage: when it is no order.
        """
        try:
            found = json.loads(self.line)
        except (ValueError, RecursionError) as error:
            raise BadMessage(f"no order: {error}") from None
        if not isinstance(found, list) or not found or not isinstance(found[0], str):
            raise BadMessage("no order: not a list that begins with a word")
        return found


class KillSelf(_Message, tag="kill_self", frozen=True):
    """A fault that the user asked for: kill yourself, as if somebody else had."""


class Finish(_Message, tag="finish", frozen=True):
    """End everything, send what the processes left, and leave. ``grace_s``: for them to end by themselves."""

    grace_s: Annotated[float, Meta(ge=0, le=3600)]


FromAgent = Hello | ServerNews | Log | File | ProcessStates | Heartbeat | Leaving
ToAgent = Order | Finish | Heartbeat | KillSelf
_ENCODER = msgspec.msgpack.Encoder()
_UP: "msgspec.msgpack.Decoder[FromAgent]" = msgspec.msgpack.Decoder(FromAgent)
_DOWN: "msgspec.msgpack.Decoder[ToAgent]" = msgspec.msgpack.Decoder(ToAgent)


def encode(message: FromAgent | ToAgent) -> bytes:
    """A message as bytes."""
    return _ENCODER.encode(message)


def decode_from_agent(frame: bytes) -> FromAgent:
    """Bytes to what an agent says.

    Raises:
        BadMessage: when they are anything else.
    """
    return _checked(_UP.decode, frame)


def decode_to_agent(frame: bytes) -> ToAgent:
    """Bytes to what the launcher says.

    Raises:
        BadMessage: when they are anything else.
    """
    return _checked(_DOWN.decode, frame)


def _checked(decode: Callable[[bytes], Kind], frame: bytes) -> Kind:
    try:
        return checked(decode, frame, "what agents and launchers say")
    except BadFrame as error:
        raise BadMessage(str(error)) from None
