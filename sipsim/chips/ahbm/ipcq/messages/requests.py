"""Requests to PE_IPCQ: sends and receives, which it may serve later than they are made."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from sipsim.chips.ahbm.ipcq.messages.latch import TakenSlot
from sipsim.chips.ahbm.ipcq.messages.messages import IpcqDmaToken, Received
from sipsim.records.dump import Waiting

Ps = int


class Source(NamedTuple):
    """A message to send: ``snapshot`` reads its bytes; PE_DMA fetches them from ``read_pa``, None for the PE."""

    snapshot: Callable[[], bytes]
    read_pa: int | None
    nbytes: int
    dtype: str
    shape: tuple[int, ...]


class CopyTo(NamedTuple):
    """The destination of a copied message, and the size that the message must have."""

    address: int
    nbytes: int


class SendRequest(Protocol):
    """A send, which waits while the peer's ring is full. It leaves no sooner than ``start_ps``. ``cause``: the span
    that released its command; ``reason``: what it waits for. ``is_followed``: it is told when it has ``passed``.
    """

    source: Source
    is_followed: bool
    start_ps: Ps
    cause: int
    reason: object

    def sent(self, slot_pa: int, seq: int, span: int, sent_ps: Ps) -> None:
        """The message leaves for the slot at ``slot_pa`` at ``sent_ps``, now or later, numbered ``seq``; ``span`` is
        the number of the sending.
        """

    def passed(self, token: IpcqDmaToken, passed_ps: Ps) -> None:
        """Note that the last byte of the message passes PE_DMA at ``passed_ps``, now or later."""

    def fail(self, error: Exception) -> None:
        """It could not be sent after it had waited."""


class ReceiveRequest(Protocol):
    """A receive posted at ``start_ps``. ``waits_since_ps``: since when its kernel waits for it, None while it does not.
    ``copy_to``: the copy's destination, None to return the slot (ADR-0023 D9.5).

    A message of another size is not copied. ``cause``: the span that released its command. ``freed_by``: the span that
    freed its slot, at ``freed_ps``.
    """

    start_ps: Ps
    waits_since_ps: Ps | None
    freed_ps: Ps
    freed_by: int
    cause: int
    copy_to: CopyTo | None
    reason: object

    def waits(self, reason: Waiting) -> None:
        """It waits for something else now than its ``reason``."""

    def take(self, received: Received) -> None:
        """A message was taken from its slot and latched."""

    def keep(self, taken: TakenSlot) -> None:
        """Its message stays in its slot, for which its handle stands."""

    def returned(self) -> None:
        """The credit for the slot has been emitted."""
