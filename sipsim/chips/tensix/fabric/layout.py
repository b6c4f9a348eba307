"""Addresses of the words and rings of a router in the L1 of its Ethernet core, equal at both ends of a link. Pure.

From the first address on: words from the far end (handshake, credits), words from a worker of the chip (connection),
then the rings of sender channels, then the rings of receiver channels.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sipsim.chips.tensix.ethernet import WORD_BYTES
from sipsim.chips.tensix.fabric.channels import Ring
from sipsim.chips.tensix.fabric.packet import LONG_BYTES, SHORT_BYTES
from sipsim.chips.tensix.params import Slots
from sipsim.core.errors import KernelMisuse

CONTROL_BYTES = 256
HANDSHAKE_BYTES = 96
SYNC_WORD_BYTES = 16
"""Bytes of a slot after its payload, if the flow control has one word per slot."""


class Idle(NamedTuple):
    """Sender channels, and virtual channels of receivers, of a router that no packet uses."""

    senders: tuple[int, ...] = ()
    receivers: tuple[int, ...] = ()


class Shape(NamedTuple):
    """Slots of a router's rings, of sender channels by number and of receivers by virtual channel, and sizes of the
    parts of a slot. ``suffix_bytes``: after the payload.
    """

    senders: tuple[int, ...]
    receivers: tuple[int, ...]
    payload_bytes: int
    header_bytes: int
    suffix_bytes: int

    @property
    def slot_bytes(self) -> int:
        """The size of one slot in bytes."""
        return self.header_bytes + words(self.payload_bytes) + self.suffix_bytes

    @property
    def slots(self) -> int:
        """The number of slots of all rings."""
        return sum(self.senders) + sum(self.receivers)

    def with_spare(self, idle: Idle, choices: Sequence[Slots], room: int) -> "Shape":
        """Return a shape with the first of ``choices`` that fits into ``room`` slots, for all rings but the worker's;
        rings of idle channels have no slots. Return this shape if none fits.
        """
        for slots in choices:
            passing = [0 if number in idle.senders else slots.sender for number in range(1, len(self.senders))]
            receivers = [0 if vc in idle.receivers else slots.receiver for vc in range(len(self.receivers))]
            found = self._replace(senders=(self.senders[0], *passing), receivers=tuple(receivers))
            if found.slots <= room:
                return found
        return self


class RouterLayout(NamedTuple):
    """Layout of a router from address ``base`` on."""

    base: int
    shape: Shape

    @property
    def handshake(self) -> int:
        """The address of the far end's handshake."""
        return self.base

    @property
    def credits(self) -> int:
        """The address of the credits that the far end's receivers send."""
        return self.base + HANDSHAKE_BYTES

    @property
    def connection(self) -> int:
        """The address of the connection's words of sender channel 0; the count of packets written so far follows."""
        return self.credits + WORD_BYTES

    def sender(self, number: int) -> Ring:
        """Return the ring of a sender channel."""
        return self._ring(sum(self.shape.senders[:number]), self.shape.senders[number])

    def receiver(self, vc: int) -> Ring:
        """Return the ring of a receiver channel."""
        before = sum(self.shape.senders) + sum(self.shape.receivers[:vc])
        return self._ring(before, self.shape.receivers[vc])

    @property
    def end(self) -> int:
        """The first address after the layout."""
        return self._ring(self.shape.slots, 0).base

    def _ring(self, slots_before: int, slots: int) -> Ring:
        nbytes = self.shape.slot_bytes
        return Ring(self.base + CONTROL_BYTES + slots_before * nbytes, slots, nbytes)

    def with_spare(self, idle: Idle, choices: Sequence[Slots], end: int) -> "RouterLayout":
        """Return this layout with the slots of idle channels given to the others; ``end``: the end of the memory."""
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
) -> RouterLayout:
    """Return the layout with the first of ``choices`` that fits. With two virtual channels, all rings have half the
    slots.

    Raises:
        KernelMisuse: if none fits.
    """
    header_bytes = SHORT_BYTES if is_short else LONG_BYTES
    suffix_bytes = SYNC_WORD_BYTES if has_sync_word else 0
    for slots in choices:
        each = [max(count // vcs, 1) for count in (slots.sender, slots.receiver)]
        shape = Shape((each[0],) * senders, (each[1],) * vcs, payload_bytes, header_bytes, suffix_bytes)
        found = RouterLayout(base, shape)
        if found.end <= end:
            return found
    raise KernelMisuse(
        f"packets of {payload_bytes} B: {senders} sender and {vcs} receiver channels do not fit in the {end - base} B "
        "of an Ethernet core; take smaller packets"
    )


def words(nbytes: int) -> int:
    """Return ``nbytes``, rounded up to whole words of Ethernet."""
    return -(-nbytes // WORD_BYTES) * WORD_BYTES
