"""Packets between SIPs: frames on links, and control records on separate channels.

A packet type is a schema: a struct with a tag, registered at its definition (:func:`packet_kind`). The body of a packet
is a flat MessagePack array: the tag, then the fields in order. Bytes that do not fit a schema raise ``BadFrame``. The
receiving SIP checks whether the destination in the packet exists.
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
"""First tag for modules outside of the simulator; lower tags are the simulator's."""
Address = Annotated[int, Meta(ge=0)]
"""Number below 2**64, the limit of MessagePack."""
Number = Annotated[int, Meta(ge=0, le=MAX_PS)]
Small = Annotated[int, Meta(ge=0, lt=2**31)]
Name = Annotated[str, Meta(max_length=64)]
Data = Annotated[bytes, Meta(max_length=MAX_FRAME_BYTES)]


class Packet(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Packet between SIPs. Each subclass with a tag is a kind of packet: a control record or a :class:`Frame`. Its
    fields have no defaults.
    """


class Frame(Packet):
    """Packet that crosses links to SIP ``dst_sip``; it takes ``nbytes`` on the wires within a SIP. A subclass adds
    fields, from which its delivery (:mod:`sipsim.fabric.links.network`) computes the destination on that SIP.

    A frame with ``frame_number`` 0 arrives with its last byte, ``span_ps`` after its first byte. Other frames arrive
    with their first link packet (``LinkKind.packets``); a :class:`Tail` of the same number arrives with the last byte,
    at least ``frame_rest_ps`` later. Ports and paths write these fields, so a sender does not use a frame again.
    """

    dst_sip: Small
    nbytes: Number
    span_ps: Number
    frame_number: Number
    frame_rest_ps: Number

    @property
    def data_bytes(self) -> int:
        """Bytes of users' data in the frame, without headers; 0 for control. Ports count them as ``bytes_sent``."""
        raise NotImplementedError


UNSENT = 0, 0, 0, 0, 0
"""Values of a frame's first fields before it departs, for constructors: ``Token(*UNSENT, core, number)``."""


class _Kinds(Definitions[int, "type[Packet]"]):
    """Registry of packet kinds, by tag. The decoder is made for the first packet after a kind was added."""

    def __init__(self) -> None:
        super().__init__()
        self._decoder: msgspec.msgpack.Decoder[Any] | None = None

    def add(self, kind: type[Packet]) -> None:
        tag, name = kind.__struct_config__.tag, kind.__name__
        if not isinstance(tag, int):
            raise ValueError(f"packet {name} has no tag; give a number as class argument, such as tag={OWN_TAGS}")
        if tag < OWN_TAGS and not kind.__module__.startswith("sipsim."):
            raise ValueError(f"tag {tag} of {name} is reserved for the simulator; give {OWN_TAGS} or more")
        other = self.get(tag)
        if other is not None and (other.__module__, other.__name__) != (kind.__module__, name):
            raise ValueError(f"tag {tag} of {name} is also the tag of {other.__name__}; give another number")
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
    """Register a kind of packet; a class decorator.

    Raises:
        ValueError: if the kind has no tag, or a tag that is in use or reserved for the simulator; if a field has the
            name of a frame's header field, or a default.
        TypeError: for a frame without ``data_bytes``.
    """
    if issubclass(kind, Frame) and (taken := set(Frame.__struct_fields__) & set(kind.__annotations__)):
        raise ValueError(f"{min(taken)} of {kind.__name__} is a field of every frame; give another name")
    if issubclass(kind, Frame) and kind.data_bytes is Frame.data_bytes:
        raise TypeError(f"{kind.__name__} has no data_bytes; define it as the bytes of users' data, 0 for control")
    if kind.__struct_defaults__:
        raise ValueError(f"{kind.__struct_fields__[-1]} of {kind.__name__} has a default; remove it, as all are sent")
    _KINDS.add(kind)
    return kind


@packet_kind
class Tail(Packet, tag=10):
    """Packet that reports the arrival of the last byte of frame ``number`` on its link."""

    number: Number


encode: Callable[[Packet], bytes] = msgspec.msgpack.Encoder().encode
"""Function that returns the body of a packet."""


def decode(body: bytes) -> Any:
    """Return the :class:`Packet` in a body that :func:`encode` made.

    Raises:
        BadFrame: for any other bytes.
    """
    return checked(_KINDS.decode, body, "the body of a packet")
