"""What PE_IPCQ is told and what it tells: endpoints, install entries, tokens, credits (ADR-0023 D2.5 and D12).

Plain records; addresses are encoded, sizes in bytes, times in picoseconds.
"""

from typing import NamedTuple

Place = tuple[int, int, int]
"""(sip, cube, pe)."""


class IpcqEndpoint(NamedTuple):
    """Where a peer's receive ring is (ADR-0023 D2.5)."""

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

    ``can_send`` is false for a receive-only opposite, ``can_receive`` where nobody sends to this PE by it.
    """

    direction: str
    peer: IpcqEndpoint
    my_rx_base_pa: int
    n_slots: int
    slot_size: int
    can_send: bool
    credit_ps: int
    can_receive: bool = True


class IpcqCreditMetadata(NamedTuple):
    """A freed slot on its way back (ADR-0025 D3): matched at the sender by ``dst_rx_base_pa``."""

    consumer_seq: int
    dst_rx_base_pa: int
    src_sip: int
    src_cube: int
    src_pe: int
    src_direction: str


class IpcqDmaToken(NamedTuple):
    """A message on its way: the data plane's order and, piggybacked, the head pointer (ADR-0023 D9, D12).

    ``credits`` ride along under ``credit_return_mode: piggyback``; ``sent_ps`` is for checks, nothing is timed by it.
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


class Message(NamedTuple):
    """What is sent: so many bytes of a type and shape."""

    nbytes: int
    dtype: str
    shape: tuple[int, ...]


class Received(NamedTuple):
    """A message taken from its slot ``slot_pa``; ``data`` was latched before the credit with ``consumer_seq`` left."""

    direction: str
    slot_pa: int
    consumer_seq: int
    data: bytes
    dtype: str
    shape: tuple[int, ...]


class Waiting(NamedTuple):
    """What a task that blocks on queues waits for: ``op`` is send or recv; any of ``directions`` would do."""

    op: str
    directions: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.op} {' or '.join(self.directions)}"
