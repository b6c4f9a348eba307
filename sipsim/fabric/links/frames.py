"""Packets between SIPs: frames on links, and control records on separate channels.

A packet type is a schema: a struct with a tag, registered at its definition (:func:`packet_kind`). Its body is a flat
MessagePack array: the tag, then the fields in order. A body is decoded against the schema: any bytes are a packet or a
``BadFrame``. The receiving SIP checks whether the places in it exist.
"""

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from broker.ids import MAX_FRAME_BYTES, MAX_PS
from broker.wire import checked
from sipsim.core.registry import Definitions

OWN_TAGS = 64
"""Tags below are reserved for the simulator; other modules use higher ones."""
Address = Annotated[int, Meta(ge=0)]
"""A number below 2**64, as every number of MessagePack."""
Number = Annotated[int, Meta(ge=0, le=MAX_PS)]
Small = Annotated[int, Meta(ge=0, lt=2**31)]
Name = Annotated[str, Meta(max_length=64)]
Data = Annotated[bytes, Meta(max_length=MAX_FRAME_BYTES)]


class Packet(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Packet between SIPs, as on the wire. A subclass is a control record or a :class:`Frame`, with a tag and no
    defaults.
    """


class Frame(Packet):
    """Packet that crosses links, for a place on SIP ``dst_sip``; it takes ``nbytes`` on the wires within a SIP. A
    subclass adds its fields; its delivery (:mod:`sipsim.fabric.links.network`) knows the place.

    A frame without a ``frame_number`` arrives with its last byte, ``span_ps`` after its first. A frame with one arrives
    with its first link packet (``LinkKind.packets``); a :class:`Tail` of that number follows with the last byte, at
    least ``frame_rest_ps`` after the frame. Ports and paths write this header, so a sender does not use a frame again.
    """

    dst_sip: Small
    nbytes: Number
    span_ps: Number
    frame_number: Number
    frame_rest_ps: Number

    @property
    def data_bytes(self) -> int:
        """Bytes of users' data in the frame, without headers: ports count them as ``bytes_sent``. 0 for control."""
        raise NotImplementedError


UNSENT = 0, 0, 0, 0, 0
"""Header of a frame that has not departed, for its constructor: ``Token(*UNSENT, core, number)``."""


class _Kinds(Definitions[int, "type[Packet]"]):
    """All kinds of packets, by tag. The decoder is made at the first packet after a kind was added."""

    def __init__(self) -> None:
        super().__init__()
        self._decoder: msgspec.msgpack.Decoder[Any] | None = None

    def add(self, kind: type[Packet]) -> None:
        tag, name = kind.__struct_config__.tag, kind.__name__
        if not isinstance(tag, int):
            raise ValueError(f"packet {name} has no tag; give a number as class argument, such as tag={OWN_TAGS}")
        if tag < OWN_TAGS and not kind.__module__.startswith("sipsim."):
            raise ValueError(f"tag {tag} of {name} is kept for the simulator; give {OWN_TAGS} or more")
        known = self.get(tag)
        if known is not None and (known.__module__, known.__name__) != (kind.__module__, name):
            raise ValueError(f"tag {tag} of {name} is that of {known.__name__}; give another number")
        self.define(tag, kind, kind.__module__)
        self._decoder = None

    def forget(self) -> None:
        super().forget()
        self._decoder = None

    def decode(self, body: bytes) -> Any:
        if self._decoder is None:
            self._decoder = msgspec.msgpack.Decoder(reduce(or_, self.values()))
        return self._decoder.decode(body)


_KINDS = _Kinds()
KindType = TypeVar("KindType", bound=type[Packet])


def packet_kind(kind: KindType) -> KindType:
    """Class decorator that registers a kind of packet.

    Raises:
        ValueError: for a kind without a tag; for a tag that is taken or is the simulator's; for a field that every
            frame has; for a field with a default.
        TypeError: for a frame without ``data_bytes``.
    """
    if issubclass(kind, Frame) and (taken := set(Frame.__struct_fields__) & set(kind.__annotations__)):
        raise ValueError(f"{min(taken)} of {kind.__name__} is a field of each frame; give another name")
    if issubclass(kind, Frame) and kind.data_bytes is Frame.data_bytes:
        raise TypeError(f"{kind.__name__} has no data_bytes; define it: bytes of users' data, 0 for control")
    if kind.__struct_defaults__:
        raise ValueError(f"{kind.__struct_fields__[-1]} of {kind.__name__} has a default; remove it: all are sent")
    _KINDS.add(kind)
    return kind


@packet_kind
class Tail(Packet, tag=10):
    """Arrival of the last byte of frame ``number`` of its link."""

    number: Number


encode: Callable[[Packet], bytes] = msgspec.msgpack.Encoder().encode
"""Function from a packet to its body."""


def decode(body: bytes) -> Any:
    """Return the :class:`Packet` in a body that :func:`encode` made.

    Raises:
        BadFrame: for any other bytes.
    """
    return checked(_KINDS.decode, body, "the body of a packet")
