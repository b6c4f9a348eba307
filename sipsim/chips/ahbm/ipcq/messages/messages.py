"""Records of PE_IPCQ: endpoints, install entries, tokens, credits (ADR-0023 D2.5 and D12).

Addresses are encoded, sizes in bytes, times in picoseconds.
"""

from typing import NamedTuple

from sipsim.records.dump import Place


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


class IpcqCreditMetadata(NamedTuple):
    """The credit of the slots before ``consumer_seq``, matched at the sender by ``dst_rx_base_pa`` (ADR-0025 D3).

    It was made at ``sent_ps``, when the last slot was freed, by span ``span`` of its SIP. ``src_direction`` is a full
    name (:mod:`sipsim.chips.ahbm.ipcq.generations`), ``generation`` its queue pair's.
    """

    consumer_seq: int
    dst_rx_base_pa: int
    src_sip: int
    src_cube: int
    src_pe: int
    src_direction: str
    sent_ps: int = 0
    span: int = 0
    generation: int = 0


class IpcqDmaToken(NamedTuple):
    """A message: the write order for the data plane, and the head pointer with it (ADR-0023 D9, D12).

    ``credits`` are those that leave with it under ``piggyback``; ``sent_ps`` is for checks and spans, not for timing.
    ``span``: the send's number on its SIP. ``src_direction`` and ``generation``: as of a credit. ``call``: the
    collective that its kernel belongs to, as text; empty for none.
    """

    dst_addr: int
    sender_seq: int
    src_sip: int
    src_cube: int
    src_pe: int
    src_direction: str
    data: bytes
    dtype: str
    shape: tuple[int, ...]
    sent_ps: int = 0
    credits: tuple[IpcqCreditMetadata, ...] = ()
    span: int = 0
    generation: int = 0
    call: str = ""


class Received(NamedTuple):
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
