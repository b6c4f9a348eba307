"""Where the words and rings of a router lie in the L1 of its Ethernet core. Pure; both ends of a link have the same.

From the first address on: words that the far end writes (hello, credits), words that a worker of the chip writes
(connection), then the rings of sender channels, then those of receiver channels.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sipsim.chips.tensix.ethernet import WORD_BYTES
from sipsim.chips.tensix.fabric.channels import Ring
from sipsim.chips.tensix.fabric.packet import LONG_BYTES, SHORT_BYTES
from sipsim.chips.tensix.params import Slots
from sipsim.core.errors import KernelMisuse

CONTROL_BYTES = 256
HELLO_BYTES = 96
SYNC_WORD_BYTES = 16
"""Of a slot, behind its payload, where the flow control is a word a slot."""


class Idle(NamedTuple):
    """Sender channels and virtual channels of receivers of a router that no packet comes to."""

    senders: tuple[int, ...] = ()
    receivers: tuple[int, ...] = ()


class Shape(NamedTuple):
    """The slots of a router's rings, of sender channels by number and of receivers by virtual channel, and what a slot
    holds. ``suffix_bytes``: behind the payload.
    """

    senders: tuple[int, ...]
    receivers: tuple[int, ...]
    payload_bytes: int
    header_bytes: int
    suffix_bytes: int

    @property
    def slot_bytes(self) -> int:
        """Of one packet."""
        return self.header_bytes + words(self.payload_bytes) + self.suffix_bytes

    @property
    def slots(self) -> int:
        """Of all rings."""
        return sum(self.senders) + sum(self.receivers)

    def with_spare(self, idle: Idle, choices: Sequence[Slots], room: int) -> "Shape":
        """With the first of ``choices`` that fits into ``room`` slots, for all rings but the worker's; those of idle
        channels have none. Itself, if there is no such choice.
        """
        for slots in choices:
            passing = [0 if number in idle.senders else slots.sender for number in range(1, len(self.senders))]
            receivers = [0 if vc in idle.receivers else slots.receiver for vc in range(len(self.receivers))]
            found = self._replace(senders=(self.senders[0], *passing), receivers=tuple(receivers))
            if found.slots <= room:
                return found
        return self


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
        return self._ring(sum(self.shape.senders[:number]), self.shape.senders[number])

    def receiver(self, vc: int) -> Ring:
        """The ring of a receiver channel."""
        before = sum(self.shape.senders) + sum(self.shape.receivers[:vc])
        return self._ring(before, self.shape.receivers[vc])

    @property
    def end(self) -> int:
        """The first address behind all of it."""
        return self._ring(self.shape.slots, 0).base

    def _ring(self, slots_before: int, slots: int) -> Ring:
        nbytes = self.shape.slot_bytes
        return Ring(self.base + CONTROL_BYTES + slots_before * nbytes, slots, nbytes)

    def with_spare(self, idle: Idle, choices: Sequence[Slots], end: int) -> "Layout":
        """That of a router with idle channels, whose slots others have; ``end``: of the memory."""
        room = (end - self.base - CONTROL_BYTES) // self.shape.slot_bytes
        return self._replace(shape=self.shape.with_spare(idle, choices, room))


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
    """The layout with the first of ``choices`` that fits. With two virtual channels, all rings have half the slots.

    Raises:
        KernelMisuse: when none fits.
    """
    header_bytes = SHORT_BYTES if is_short else LONG_BYTES
    suffix_bytes = SYNC_WORD_BYTES if has_sync_word else 0
    for slots in choices:
        each = [max(count // vcs, 1) for count in (slots.sender, slots.receiver)]
        shape = Shape((each[0],) * senders, (each[1],) * vcs, payload_bytes, header_bytes, suffix_bytes)
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
