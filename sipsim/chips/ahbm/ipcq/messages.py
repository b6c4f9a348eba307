"""Records of PE_IPCQ: endpoints, install entries, messages and credits (ADR-0023 D2.5, D12).

Addresses are encoded (:mod:`sipsim.chips.ahbm.address`), sizes are in bytes, times in picoseconds.
"""

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from sipsim.config.schema import IpcqKnobs
from sipsim.fabric.links.frames import Address, Data, Frame, Name, Number, Packet, Small, packet_kind
from sipsim.records.dump import Place

FLIT_BYTES = 64
FLIT_PAYLOAD_BYTES = 60
FIRST_IPCQ_PAYLOAD_BYTES = 52
HEADER_BYTES = 16
"""Bytes of a header-only flit: of a credit (by default) and of a doorbell."""


class WireFormat:
    """Number of bytes on the wires within a SIP: the payload's bytes (1 or more), or under ``hw_strict`` whole flits.

    Source: ADR-0023 D19. A flit is 64 B with 60 B of payload; the first flit of an IPCQ message also carries metadata
    and has 52 B of payload, unless a doorbell carries them (``head_update``). Credits, doorbells, read commands and
    acknowledgements are single headers.
    """

    def __init__(self, knobs: IpcqKnobs) -> None:
        self._in_flits = knobs.hw_strict
        first_bytes = FLIT_PAYLOAD_BYTES if knobs.has_doorbells else FIRST_IPCQ_PAYLOAD_BYTES
        self._metadata_bytes = FLIT_PAYLOAD_BYTES - first_bytes

    def data_bytes(self, payload_bytes: int) -> int:
        """Return the wire bytes of a plain DMA transfer."""
        return FLIT_BYTES * -(-payload_bytes // FLIT_PAYLOAD_BYTES) if self._in_flits else payload_bytes

    def message_bytes(self, payload_bytes: int) -> int:
        """Return the wire bytes of an IPCQ message."""
        return self.data_bytes(payload_bytes + self._metadata_bytes) if self._in_flits else payload_bytes


COPY, IN_PLACE = "copy", "in_place"
"""Values of ``latch`` in ``ccl.yaml``, which decides when a received message is read from its slot and when the slot is
credited.

``null``: the handle gets the bytes in zero time, and the slot is credited at once. ``copy``: PE_DMA copies the bytes
from the ring's memory to the PE's TCM, then the slot is credited. ``in_place``: the handle refers to the slot. The
first command that uses the handle reads the slot. A slot in HBM or SRAM is credited when the bytes are in the PE. A
slot in the TCM is credited when the command ends or, for a send, when the last byte has passed PE_DMA. Then the bytes
are in the PE's TCM, so later commands may use the handle. ``tl.release`` and the end of the kernel free a slot without
a read. Slots are credited in order: a slot that was read waits for the slots before it.
Limit: the write to the TCM during the first read takes no time.
"""
FETCH, PASS = "slot fetch", "slot pass"
"""Names of the spans in which a slot is read in place: a fetch from HBM or SRAM; a send through PE_DMA."""


class TakenSlot:
    """Slot whose message, number ``seq`` of its direction, a receive has taken. ``read_ps``: end of span ``read_by``,
    which reads the bytes; None while unknown. ``handle``: name of its handle, empty once read.
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
    """Location of a peer's receive ring (ADR-0023 D2.5). ``rx_base_va`` is 0 if rings have no virtual address."""

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
        """SIP, cube and PE that own the ring."""
        return self[:3]


class IpcqInitEntry(NamedTuple):
    """Configuration of one queue pair, which is one direction of one PE (ADR-0023 D12).

    ``can_send`` is false for receive-only directions, ``can_receive`` for send-only directions. ``credit_ps``: latency
    of a returned credit, in ps. ``credit_mode``: return mode of the credits (:mod:`sipsim.chips.ahbm.ipcq.credits`).
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
    """A queue pair of the PE at ``place`` that was installed during the simulation."""

    generation: int
    place: Place
    entry: IpcqInitEntry


class Credit(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """Credit for all slots before ``consumer_seq`` of the ring at ``dst_rx_base_pa`` (ADR-0025 D3: IpcqCreditMetadata).

    Span ``span`` of the source SIP freed the last slot at ``sent_ps``. ``src_direction`` is the full name of the queue
    pair that returns the credit (:mod:`sipsim.chips.ahbm.ipcq.generations`), ``generation`` its generation.
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
"""Maximum length of the text of a call (:meth:`sipsim.chips.ahbm.ipcq.pe_ipcq.PeIpcq.use`)."""


@packet_kind
class Message(Frame, tag=0):
    """Message for PE ``pe`` of cube ``cube``: data and address of the write, and the new head pointer (ADR-0023 D9,
    D12: IpcqDmaToken).

    ``credits``: carried credits under ``piggyback``. ``sent_ps`` is for checks and spans, not for timing.
    ``span``: number of the send's span on its SIP. ``src_direction``, ``generation``: queue pair of the sender.
    ``call``: text of the sending kernel's collective call, empty if there is none. ``crc``: checksum for the second
    pass (:func:`sipsim.records.replay.message_crc`); 0 without a second pass.
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
        """Size of the data, in bytes."""
        return len(self.data)

    @property
    def sender(self) -> Place:
        """The PE that sends the message."""
        return self.src_sip, self.src_cube, self.src_pe


@packet_kind
class CreditFrame(Frame, tag=1):
    """Frame with one credit for PE ``pe`` of cube ``cube``, sent over the fabric and links like a message."""

    cube: Small
    pe: Small
    credit: Credit

    @property
    def data_bytes(self) -> int:
        """Size of the data: 0, because a credit carries none."""
        return 0

    @property
    def sender(self) -> Place:
        """The PE that returns the credit."""
        return self.credit.sender


class Notice(Frame):
    """Header for PE ``pe`` of cube ``cube`` about message ``sender_seq``, whose data are in the slot at ``dst_addr``.

    ``generation``, ``src_direction``: the queue pair that has sent the message. ``src_sip``, ``src_cube``, ``src_pe``:
    the PE that sends the header.
    """

    cube: Small
    pe: Small
    dst_addr: Address
    sender_seq: Number
    generation: Number
    src_direction: Name
    src_sip: Small
    src_cube: Small
    src_pe: Small

    @property
    def data_bytes(self) -> int:
        """Size of the data: 0, because a header carries none."""
        return 0

    @property
    def sender(self) -> Place:
        """The PE that sends the header."""
        return self.src_sip, self.src_cube, self.src_pe


@packet_kind
class Acknowledgement(Notice, tag=4):
    """Header from the memory of the slot to the message's sender: the fence before the doorbell (ADR-0023 D23)."""


@packet_kind
class Doorbell(Notice, tag=5):
    """Header from the message's sender to its receiver, which moves ``peer_head_cache`` (ADR-0023 D23)."""


@packet_kind
class WireCredit(Packet, tag=2):
    """Packet with one credit on a dedicated wire, for PE ``pe`` of cube ``cube`` of the SIP that receives it."""

    cube: Small
    pe: Small
    credit: Credit


class Received(msgspec.Struct, frozen=True, gc=False):
    """Message that a receive has taken from slot ``slot_pa``. ``data`` was read before credit ``consumer_seq`` left.

    ``src_sip``: SIP that sent the message. ``call``: text of the sender's collective call, empty if there is none.
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
    """Destination address of a copied message, and the size that the message must have, in bytes."""

    address: int
    nbytes: int
