"""The records of PE_IPCQ: endpoints, install entries, messages, credits (ADR-0023 D2.5, D12).

Addresses are encoded, sizes in bytes, times in picoseconds.
"""

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from sipsim.fabric.links.frames import Address, Data, Frame, Name, Number, Packet, Small, packet_kind
from sipsim.records.dump import Place

FLIT_BYTES = 64
FLIT_PAYLOAD_BYTES = 60
FIRST_IPCQ_PAYLOAD_BYTES = 52
HEADER_BYTES = 16


class WireFormat:
    """Bytes on the wires of a SIP for payload bytes (at least 1): the payload, or under ``hw_strict`` the flits it
    fills.

    Source: ADR-0023 D19. A flit is 64 B with 60 B of payload; the first of an IPCQ message carries its metadata too and
    has room for 52 B. Credits, read commands and acknowledgements are single headers of their configured size.
    """

    def __init__(self, in_flits: bool) -> None:
        self._in_flits = in_flits

    def data_bytes(self, payload_bytes: int) -> int:
        """A plain DMA transfer."""
        return FLIT_BYTES * -(-payload_bytes // FLIT_PAYLOAD_BYTES) if self._in_flits else payload_bytes

    def message_bytes(self, payload_bytes: int) -> int:
        """An IPCQ message."""
        if not self._in_flits:
            return payload_bytes
        rest = max(payload_bytes - FIRST_IPCQ_PAYLOAD_BYTES, 0)
        return FLIT_BYTES * (1 + -(-rest // FLIT_PAYLOAD_BYTES))


COPY, IN_PLACE = "copy", "in_place"
"""``latch`` in ``ccl.yaml``: what becomes of a message that a receive takes, until its slot is credited.

``null``: its bytes are in the handle at once and for nothing, and the slot is credited. ``copy``: PE_DMA copies them
from the ring's memory to the PE's TCM, and then the slot is credited. ``in_place``: the handle stands for the slot. The
first command that names the handle reads the slot, and the slot is credited when it has done so: a slot in HBM or SRAM
when the bytes are in the PE, one in the TCM at the command's end, or when the last byte of a message has passed PE_DMA.
What a command has read lies in the PE's TCM from then on, so the handle may be named again. ``tl.release`` and the end
of the kernel free a slot without reading it. Slots are credited in order: one that is read waits for those before it.
Limit: the write to the TCM beside the first reading takes no time.
"""
FETCH, PASS = "slot fetch", "slot pass"
"""Spans of the reading of a slot in place: from HBM or SRAM to the PE; by a message that passes PE_DMA."""


class TakenSlot:
    """A slot whose message ``seq`` of a direction was taken. ``read_ps``: when its bytes are read, by span
    ``read_by``; None while that is not known. ``handle``: that which stands for it, empty once a command reads it.
    """

    __slots__ = ("direction", "handle", "nbytes", "read_by", "read_ps", "seq", "slot_pa")

    def __init__(self, direction: str, seq: int, slot_pa: int, nbytes: int) -> None:
        self.direction = direction
        self.seq = seq
        self.slot_pa = slot_pa
        self.nbytes = nbytes
        self.read_ps: int | None = None
        self.read_by = 0
        self.handle = ""


class IpcqEndpoint(NamedTuple):
    """The location of a peer's receive ring (ADR-0023 D2.5). ``rx_base_va`` is 0 where rings have none."""

    sip: int
    cube: int
    pe: int
    buffer_kind: str
    rx_base_pa: int
    rx_base_va: int
    n_slots: int
    slot_size: int

    @property
    def place(self) -> Place:
        """The PE."""
        return self[:3]


class IpcqInitEntry(NamedTuple):
    """One direction of one PE as installed (ADR-0023 D12).

    ``can_send`` is false for a receive-only opposite, ``can_receive`` where no peer sends in it. ``credit_mode``: how
    the credits of its own ring return, see ``sipsim.chips.ahbm.ipcq.credits``.
    """

    direction: str
    peer: IpcqEndpoint
    my_rx_base_pa: int
    n_slots: int
    slot_size: int
    can_send: bool
    credit_ps: int
    can_receive: bool = True
    credit_mode: str = "fast_path"


class Installed(NamedTuple):
    """A queue pair of a PE that was made while time ran."""

    generation: int
    place: Place
    entry: IpcqInitEntry


class Credit(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """The credit for the slots before ``consumer_seq``, for the queue pair of the ring at ``dst_rx_base_pa`` (ADR-0025
    D3, there IpcqCreditMetadata).

    It was made at ``sent_ps``, when the last slot was freed, by span ``span`` of its SIP. ``src_direction`` is a full
    name (:mod:`sipsim.chips.ahbm.ipcq.generations`), ``generation`` its queue pair's.
    """

    consumer_seq: Number
    dst_rx_base_pa: Address
    src_sip: Small
    src_cube: Small
    src_pe: Small
    src_direction: Name
    sent_ps: Number
    span: Number
    generation: Number

    @property
    def sender(self) -> Place:
        """The PE that returns the credit."""
        return self.src_sip, self.src_cube, self.src_pe


MOST_CALL_CHARS = 256
"""Of the text of a call (:meth:`sipsim.chips.ahbm.ipcq.pe_ipcq.PeIpcq.use`)."""


@packet_kind
class Message(Frame, tag=0):
    """A message for PE ``pe`` of cube ``cube``: the write order for the data plane, and the head pointer with it
    (ADR-0023 D9, D12, there IpcqDmaToken).

    ``credits`` are those that leave with it under ``piggyback``; ``sent_ps`` is for checks and spans, not for timing.
    ``span``: the send's number on its SIP. ``src_direction`` and ``generation``: as of a credit. ``call``: the
    collective that its kernel belongs to, as text; empty for none. ``crc``: for the second pass, of what was sent
    (:func:`sipsim.records.replay.message_crc`); 0 without one.
    """

    cube: Small
    pe: Small
    dst_addr: Address
    sender_seq: Number
    src_sip: Small
    src_cube: Small
    src_pe: Small
    src_direction: Name
    data: Data
    dtype: Name
    shape: Annotated[tuple[Number, ...], Meta(max_length=64)]
    sent_ps: Number
    credits: Annotated[tuple[Credit, ...], Meta(max_length=2**16)]
    span: Number
    generation: Number
    call: Annotated[str, Meta(max_length=MOST_CALL_CHARS)]
    crc: Number

    @property
    def data_bytes(self) -> int:
        """Bytes of the message."""
        return len(self.data)

    @property
    def sender(self) -> Place:
        """The PE that sends it."""
        return self.src_sip, self.src_cube, self.src_pe


@packet_kind
class CreditMessage(Frame, tag=1):
    """A credit for a PE of the frame's SIP, sent as a message."""

    cube: Small
    pe: Small
    credit: Credit

    @property
    def data_bytes(self) -> int:
        """A credit carries no data."""
        return 0


@packet_kind
class CreditPacket(Packet, tag=2):
    """A credit on its own wire, for a PE of the SIP that receives it."""

    cube: Small
    pe: Small
    credit: Credit


class Received(msgspec.Struct, frozen=True, gc=False):
    """A message taken from its slot ``slot_pa``; ``data`` was latched before the credit with ``consumer_seq`` left.

    ``src_sip`` sent it in collective ``call``, empty for none.
    """

    direction: str
    slot_pa: int
    consumer_seq: int
    data: bytes
    dtype: str
    shape: tuple[int, ...]
    src_sip: int = 0
    call: str = ""


class CopyTo(msgspec.Struct, frozen=True, gc=False):
    """The destination of a copied message, and the size that the message must have."""

    address: int
    nbytes: int
