"""Channels of a data mover, and where their words and buffers lie in the L1 of its Ethernet core.

Both ends of a link have the same layout, since a message is written to the address that it was read from. From the
first address of the area on: a semaphore for each channel, then the buffers, with room for the words of flow control
behind each where they go with the payload.
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
"""A semaphore has 32 B, as in the guide's data structures."""


class TerminationMode(Enum):
    """Who says which message is a channel's last: the builder's ``num_messages``, or the worker with its signal."""

    MESSAGE_COUNT_REACHED = "the number of messages"
    WORKER_INITIATED = "the worker"


class WorkerSignal:
    """What a worker adds to a channel's semaphore. Without ``WORKER_INITIATED`` it is always ``MESSAGE``."""

    MESSAGE = 1
    LAST_MESSAGE = 2
    TERMINATE = 3


class ChannelBufferInterface(NamedTuple):
    """Where a worker writes or reads the payload, and the semaphore that it increments then; both in the ERISC's L1."""

    eth_buffer_l1_address: int
    eth_semaphore_l1_address: int


class ChannelSpec(NamedTuple):
    """A channel. ``num_messages``: 0 if the worker ends it. ``workers``: all that write or read it, by turns or parts;
    each increments the semaphore once a message.
    """

    is_sender: bool
    worker_semaphore: int
    num_messages: int
    workers: tuple[Core, ...]
    message_bytes: int

    def shown(self) -> str:
        """For messages."""
        count = f"{self.num_messages} messages" if self.num_messages else "messages until the worker ends it"
        return f"{'sends' if self.is_sender else 'receives'} {count} of {self.message_bytes} B"


class Layout(NamedTuple):
    """``base``: the first address of the area; ``buffer_bytes``: of each of ``channels`` buffers, whole pages.

    ``is_merged``: the words of flow control go with the payload, as its suffix.
    """

    base: int
    channels: int
    buffer_bytes: int
    is_merged: bool

    def semaphore(self, channel: int) -> int:
        """Of a channel."""
        return self.base + channel * SEMAPHORE_STRIDE

    def buffer(self, channel: int) -> int:
        """The first address of a channel's buffer."""
        return self.base + self.channels * SEMAPHORE_STRIDE + channel * self.stride

    @property
    def stride(self) -> int:
        """Between buffers."""
        return self.buffer_bytes + (SYNC_BYTES if self.is_merged else 0)


def layout(base: int, end: int, channels: int, page_bytes: int, is_merged: bool) -> Layout:
    """The layout of an area: buffers are as large as whole pages allow.

    Raises:
        KernelMisuse: for channels or pages that do not fit.
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


def contract(channels: Sequence[ChannelSpec], is_merged: bool, of_far_end: bool) -> bytes:
    """8 B of what both ends must agree on, as the end sees it that sends on channel 0; ``of_far_end``: as mirrored."""
    told = [(spec.is_sender is not of_far_end, spec.num_messages, spec.message_bytes) for spec in channels]
    return hashlib.sha256(repr((told, is_merged)).encode()).digest()[:8]
