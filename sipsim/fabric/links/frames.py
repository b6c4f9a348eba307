"""What crosses from SIP to SIP: frames on links, control records on channels of their own, and their codecs.

What a frame carries is a :class:`Payload`. It and a control record are record types with a codec: a tag and a schema,
registered where the type is defined (:func:`codec`).
A body is a flat MessagePack array that starts with the tag. It is decoded against the schema: any bytes are a packet or
a ``BadFrame``. The receiving SIP checks whether the places in it exist.
"""

import sys
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Protocol, TypeVar

import msgpack
import msgspec
from msgspec import Meta

from broker.ids import MAX_FRAME_BYTES, MAX_PS
from broker.wire import checked
from sipsim.core.registry import note_definer, on_forget

OWN_TAGS = 64
"""Tags below are the simulator's own; other modules have the rest."""
Address = Annotated[int, Meta(ge=0)]
"""Below 2**64, as every number of MessagePack is."""
Number = Annotated[int, Meta(ge=0, le=MAX_PS)]
Small = Annotated[int, Meta(ge=0, lt=2**31)]
Name = Annotated[str, Meta(max_length=64)]
Data = Annotated[bytes, Meta(max_length=MAX_FRAME_BYTES)]


class Payload(Protocol):
    """What a frame carries: a record type with a codec, and on its chip a delivery
    (``sipsim.fabric.links.network``).
    """

    @property
    def data_bytes(self) -> int:
        """Bytes of users' data in it, without headers: ports count them as ``bytes_sent``. 0 for control."""


class Frame(NamedTuple):
    """A payload on its way to SIP ``dst_sip``; ``nbytes`` on the wires within a SIP. It arrives ``span_ps`` after its
    first byte, with its last one; or with its first packet, if its sender gives it a ``number``. Then a :class:`Tail`
    of that number follows with the last byte, no sooner than ``rest_ps`` after the frame.
    """

    dst_sip: int
    nbytes: int
    span_ps: int
    payload: Payload
    number: int = 0
    rest_ps: int = 0


class Tail(NamedTuple):
    """The last byte of frame ``number`` of its link."""

    number: int


class Body(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The schema of a control record: its fields in order. A subclass names its ``tag`` and makes the record."""

    def payload(self) -> Any:
        """The record."""
        raise NotImplementedError

    def packet(self) -> Any:
        """What :func:`decode` returns: the record itself."""
        return self.payload()


class FrameBody(Body):
    """The schema of a frame: its header, then the fields of a :class:`Payload`, which a subclass adds."""

    dst_sip: Small
    nbytes: Number
    span_ps: Number
    frame_number: Number
    frame_rest_ps: Number

    def packet(self) -> Frame:
        """A frame with the payload."""
        return Frame(self.dst_sip, self.nbytes, self.span_ps, self.payload(), self.frame_number, self.frame_rest_ps)


BodyType = TypeVar("BodyType", bound=type[Body])
Fields = Callable[[Any], tuple[Any, ...]]


class _Codecs:
    """All codecs. The decoder is made at the first packet after a codec was added."""

    def __init__(self) -> None:
        self.by_type: dict[type, tuple[int, Fields]] = {}
        self._bodies: dict[int, type[Body]] = {}
        self._decoder: msgspec.msgpack.Decoder[Any] | None = None

    def add(self, payload: type, body: type[Body], fields: Fields) -> None:
        tag = body.__struct_config__.tag
        if not isinstance(tag, int):
            raise ValueError(f"the codec of {payload.__name__} has no tag; give a number of its own")
        if tag < OWN_TAGS and not body.__module__.startswith("sipsim."):
            raise ValueError(f"tag {tag} of {payload.__name__} is kept for the simulator; give {OWN_TAGS} or more")
        known = self._bodies.get(tag)
        if known is not None and (known.__module__, known.__name__) != (body.__module__, body.__name__):
            raise ValueError(f"tag {tag} of {payload.__name__} is that of {known.__name__}; give another number")
        self._bodies[tag] = body
        self.by_type[payload] = tag, fields
        self._decoder = None
        note_definer(body.__module__)

    def forget(self) -> None:
        """Drop the codecs of modules that are not imported any more."""
        for payload in [each for each in self.by_type if each.__module__ not in sys.modules]:
            del self.by_type[payload]
        for tag in [tag for tag, body in self._bodies.items() if body.__module__ not in sys.modules]:
            del self._bodies[tag]
            self._decoder = None

    def decode(self, body: bytes) -> Any:
        decoder = self._decoder
        if decoder is None:
            decoder = self._decoder = msgspec.msgpack.Decoder(_union([*self._bodies.values()]))
        return decoder.decode(body).packet()


def _union(bodies: list[type[Body]]) -> Any:
    every: Any = bodies[0]
    for body in bodies[1:]:
        every = every | body
    return every


_CODECS = _Codecs()
on_forget(_CODECS.forget)


def codec(payload: type, fields: Fields = tuple) -> Callable[[BodyType], BodyType]:
    """Class decorator of a schema: the codec of ``payload``, whose values ``fields`` returns in the schema's order.

    Raises:
        ValueError: without a tag, or with one that is taken or kept for the simulator; for a field of the frame itself.
        TypeError: for what a frame would carry and is no :class:`Payload`.
    """

    def add(body: BodyType) -> BodyType:
        if issubclass(body, FrameBody) and (taken := set(FrameBody.__struct_fields__) & set(body.__annotations__)):
            raise ValueError(f"{min(taken)} of {payload.__name__} is a field of each frame; give another name")
        if issubclass(body, FrameBody) and not hasattr(payload, "data_bytes"):
            raise TypeError(f"{payload.__name__} has no data_bytes; a frame's payload tells how much data it carries")
        _CODECS.add(payload, body, fields)
        return body

    return add


@codec(Tail)
class _TailBody(Body, tag=10):
    number: Number

    def payload(self) -> Tail:
        return Tail(self.number)


def encode(packet: Any) -> bytes:
    """The body of a frame, or of a control record."""
    if type(packet) is Frame:
        payload = packet[3]
        tag, fields = _CODECS.by_type[type(payload)]
        body: bytes = msgpack.packb((tag, *packet[:3], packet[4], packet[5], *fields(payload)))
        return body
    tag, fields = _CODECS.by_type[type(packet)]
    body = msgpack.packb((tag, *fields(packet)))
    return body


def decode(body: bytes) -> Any:
    """The :class:`Frame` or the control record in a body that :func:`encode` made.

    Raises:
        BadFrame: for any other bytes.
    """
    return checked(_CODECS.decode, body, "the body of a packet")
