"""Channels of a data mover, and the addresses of semaphores and buffers in the L1 of an Ethernet core.

Both ends of a link have the same layout, since a message has the same address in both L1s. The area contains one
semaphore per channel, then the buffers. If flow control is sent with the payload (``is_merged``), each buffer is
followed by the channel's words of flow control.
"""

import hashlib
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from sipsim.chips.tensix.eth_dataflow import CHANNELS, SYNC_BYTES
from sipsim.chips.tensix.ethernet import WORD_BYTES
from sipsim.chips.tensix.noc import Core
from sipsim.core.errors import KernelMisuse

SEMAPHORE_STRIDE = 32
"""Bytes per semaphore, as in the guide's data structures."""


class BufferSharingMode(Enum):
    """Rule by which channels share buffers; only NOT_SHARED is simulated."""

    NOT_SHARED = "each channel has its own buffer"
    ROUND_ROBIN = "channels take buffers in turn"
    SHARED = "channels have buffers in common"


class TerminationMode(Enum):
    """Rule that determines a channel's last message: the builder's ``num_messages``, or the worker's signal."""

    MESSAGE_COUNT_REACHED = "the number of messages"
    WORKER_INITIATED = "the worker"


class WorkerSignal:
    """Values that a worker adds to a channel's semaphore; with ``MESSAGE_COUNT_REACHED`` only ``MESSAGE``."""

    MESSAGE = 1
    LAST_MESSAGE = 2
    TERMINATE = 3


class ChannelBufferInterface(NamedTuple):
    """Addresses in the ERISC's L1: the worker's buffer, and the semaphore to increment after a read or write."""

    eth_buffer_l1_address: int
    eth_semaphore_l1_address: int


class ChannelSpec(NamedTuple):
    """Description of a channel. ``num_messages``: number of messages, or 0 if the worker ends the channel. ``workers``:
    tiles that each write or read a part of every message, and increment the semaphore once per message.
    """

    is_sender: bool
    worker_semaphore: int
    num_messages: int
    workers: tuple[Core, ...]
    message_bytes: int

    def shown(self) -> str:
        """Return the channel's text for messages."""
        count = f"{self.num_messages} messages" if self.num_messages else "messages until the worker ends the channel"
        return f"{'sends' if self.is_sender else 'receives'} {count} of {self.message_bytes} B"


class Layout(NamedTuple):
    """Layout of the channels' area. ``base``: first address; ``buffer_bytes``: size of each buffer, a multiple of the
    page.

    ``is_merged``: whether the words of flow control follow the payload and are sent in the same command.
    """

    base: int
    channels: int
    buffer_bytes: int
    is_merged: bool

    def semaphore(self, channel: int) -> int:
        """Return the address of a channel's semaphore."""
        return self.base + channel * SEMAPHORE_STRIDE

    def buffer(self, channel: int) -> int:
        """Return the first address of a channel's buffer."""
        return self.base + self.channels * SEMAPHORE_STRIDE + channel * self.stride

    @property
    def stride(self) -> int:
        """The distance between the first addresses of two buffers."""
        return self.buffer_bytes + (SYNC_BYTES if self.is_merged else 0)


def layout(base: int, end: int, channels: int, page_bytes: int, is_merged: bool) -> Layout:
    """Return the layout of the area from ``base`` to ``end``, with as many whole pages per buffer as fit.

    Raises:
        KernelMisuse: if the channels or pages do not fit.
    """
    if not 1 <= channels <= CHANNELS:
        raise KernelMisuse(f"a data mover has 1 to {CHANNELS} channels, not {channels}")
    if page_bytes < WORD_BYTES or page_bytes % WORD_BYTES:
        raise KernelMisuse(f"page_bytes is {page_bytes}; Ethernet moves words of {WORD_BYTES} B, give a multiple")
    free_bytes = (end - base) // channels - SEMAPHORE_STRIDE - (SYNC_BYTES if is_merged else 0)
    buffer_bytes = free_bytes // page_bytes * page_bytes
    if buffer_bytes <= 0:
        raise KernelMisuse(
            f"{channels} buffers of at least a page of {page_bytes} B do not fit: the {end - base} B of L1 leave "
            f"{max(free_bytes, 0)} B per buffer; take fewer channels or smaller pages"
        )
    return Layout(base, channels, buffer_bytes, is_merged)


def agreement(channels: Sequence[ChannelSpec], is_merged: bool, of_far_end: bool) -> bytes:
    """Return the 8-byte hash of the settings on which both ends must agree. ``of_far_end``: swap senders and receivers,
    so that the result equals the far end's hash.
    """
    seen = [(spec.is_sender is not of_far_end, spec.num_messages, spec.message_bytes) for spec in channels]
    return hashlib.sha256(repr((seen, is_merged)).encode()).digest()[:8]
