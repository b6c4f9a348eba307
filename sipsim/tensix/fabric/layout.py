"""Where the words and rings of a router lie in the L1 of its Ethernet core. Pure; both ends of a link have the same.

From the first address on: words that the far end writes (hello, credits), words that a worker of the chip writes
(connection), then the rings of sender channels, then those of receiver channels.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sipsim.errors import KernelMisuse
from sipsim.tensix.ethernet import WORD_BYTES
from sipsim.tensix.fabric.channels import Ring
from sipsim.tensix.fabric.packet import LONG_BYTES, SHORT_BYTES
from sipsim.tensix.params import Slots

CONTROL_BYTES = 256
HELLO_BYTES = 96
SYNC_WORD_BYTES = 16
"""Of a slot, behind its payload, where the flow control is a word a slot."""


class Shape(NamedTuple):
    """What the routers of a fabric have in common: the numbers of sender channels and of virtual channels, the slots of
    each ring (``worker_slots``: of sender channel 0), and what a slot holds. ``suffix_bytes``: behind the payload.
    """

    senders: int
    vcs: int
    worker_slots: int
    slots: Slots
    payload_bytes: int
    header_bytes: int
    suffix_bytes: int

    @property
    def slot_bytes(self) -> int:
        """Of one packet."""
        return self.header_bytes + words(self.payload_bytes) + self.suffix_bytes


class Layout(NamedTuple):
    """``base``: the first address."""

    base: int
    shape: Shape

    @property
    def hello(self) -> int:
        """What the far end says of itself."""
        return self.base

    @property
    def credits(self) -> int:
        """What the far end's receivers say."""
        return self.base + HELLO_BYTES

    @property
    def connection(self) -> int:
        """State, tile, and both semaphores of the worker of sender channel 0, then the packets written so far."""
        return self.credits + WORD_BYTES

    def sender(self, number: int) -> Ring:
        """The ring of a sender channel."""
        shape, first = self.shape, self.base + CONTROL_BYTES
        if number == 0:
            return Ring(first, shape.worker_slots, shape.slot_bytes)
        before = shape.worker_slots + (number - 1) * shape.slots.sender
        return Ring(first + before * shape.slot_bytes, shape.slots.sender, shape.slot_bytes)

    def receiver(self, vc: int) -> Ring:
        """The ring of a receiver channel."""
        slots, nbytes = self.shape.slots.receiver, self.shape.slot_bytes
        first = self.sender(self.shape.senders).base
        return Ring(first + vc * slots * nbytes, slots, nbytes)

    @property
    def end(self) -> int:
        """The first address behind all of it."""
        return self.receiver(self.shape.vcs).base


def layout(
    base: int,
    end: int,
    senders: int,
    vcs: int,
    choices: Sequence[Slots],
    payload_bytes: int,
    is_short: bool,
    has_sync_word: bool,
) -> Layout:
    """The layout with the first of ``choices`` that fits. With two virtual channels, all rings but the
    worker's have half the slots.

    Raises:
        KernelMisuse: when none fits.
    """
    header_bytes = SHORT_BYTES if is_short else LONG_BYTES
    for slots in choices:
        worker_slots = max(slots.sender // vcs, 1)
        if vcs > 1:
            slots = Slots(sender=max(slots.sender // vcs, 1), receiver=max(slots.receiver // vcs, 1))
        shape = Shape(
            senders, vcs, worker_slots, slots, payload_bytes, header_bytes, SYNC_WORD_BYTES if has_sync_word else 0
        )
        found = Layout(base, shape)
        if found.end <= end:
            return found
    raise KernelMisuse(
        f"packets of {payload_bytes} B: {senders} sender and {vcs} receiver channels do not fit in the {end - base} B "
        "of an Ethernet core; take smaller packets"
    )


def words(nbytes: int) -> int:
    """Rounded up to what Ethernet moves."""
    return -(-nbytes // WORD_BYTES) * WORD_BYTES
