"""Channels of a data mover, and the addresses of their words and buffers in the L1 of its Ethernet core.

Both ends of a link have the same layout, since a message is written to the address from which it is read. From the
first address of the area on: one semaphore per channel, then the buffers, each with its words of flow control behind if
these are sent with the payload.
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


class TerminationMode(Enum):
    """Rule for a channel's last message: the builder's ``num_messages``, or the worker's signal."""

    MESSAGE_COUNT_REACHED = "the number of messages"
    WORKER_INITIATED = "the worker"


class WorkerSignal:
    """Value that a worker adds to a channel's semaphore. Without ``WORKER_INITIATED`` it is always ``MESSAGE``."""

    MESSAGE = 1
    LAST_MESSAGE = 2
    TERMINATE = 3


class ChannelBufferInterface(NamedTuple):
    """Addresses in the ERISC's L1: the worker's buffer, and the semaphore that it increments after a read or write."""

    eth_buffer_l1_address: int
    eth_semaphore_l1_address: int


class ChannelSpec(NamedTuple):
    """Description of a channel. ``num_messages``: 0 if the worker ends the channel. ``workers``: all workers that write
    or read it, in turn or in parts; each increments the semaphore once per message.
    """

    is_sender: bool
    worker_semaphore: int
    num_messages: int
    workers: tuple[Core, ...]
    message_bytes: int

    def shown(self) -> str:
        """Return the channel's text for messages."""
        count = f"{self.num_messages} messages" if self.num_messages else "messages until the worker ends it"
        return f"{'sends' if self.is_sender else 'receives'} {count} of {self.message_bytes} B"


class Layout(NamedTuple):
    """Layout of the channels' area. ``base``: its first address; ``buffer_bytes``: the size of each buffer, whole
    pages.

    ``is_merged``: the words of flow control are sent with the payload, as its suffix.
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
    """Return the layout of an area; its buffers have as many whole pages as fit.

    Raises:
        KernelMisuse: if the channels or pages do not fit.
    """
    if not 1 <= channels <= CHANNELS:
        raise KernelMisuse(f"a data mover has 1 to {CHANNELS} channels, not {channels}")
    if page_bytes < WORD_BYTES or page_bytes % WORD_BYTES:
        raise KernelMisuse(f"a page of {page_bytes} B; Ethernet moves multiples of {WORD_BYTES} B")
    room = (end - base) // channels - SEMAPHORE_STRIDE - (SYNC_BYTES if is_merged else 0)
    buffer_bytes = room // page_bytes * page_bytes
    if buffer_bytes <= 0:
        raise KernelMisuse(
            f"{channels} buffers of at least a page of {page_bytes} B do not fit: the {end - base} B of L1 leave "
            f"{max(room, 0)} B for each; take fewer channels or smaller pages"
        )
    return Layout(base, channels, buffer_bytes, is_merged)


def agreement(channels: Sequence[ChannelSpec], is_merged: bool, of_far_end: bool) -> bytes:
    """Return 8 bytes: the hash of the values on which both ends must agree, as the sender on channel 0 sees them.
    ``of_far_end``: mirror the channels.
    """
    seen = [(spec.is_sender is not of_far_end, spec.num_messages, spec.message_bytes) for spec in channels]
    return hashlib.sha256(repr((seen, is_merged)).encode()).digest()[:8]
