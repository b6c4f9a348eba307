"""Addresses of a router's words and rings in the L1 of an Ethernet core, equal at both ends of a link. Pure.

The order by address: words that the far end writes (handshake, credits), words that a worker of the chip writes
(connection, termination), notices of the far end, statistics, rings of sender channels, rings of receiver channels.
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
"""Bytes of a slot after the payload, if the flow control has one word per slot."""


class Idle(NamedTuple):
    """Idle channels of a router: the numbers of sender channels and receiver channels that no packet uses."""

    senders: tuple[int, ...] = ()
    receivers: tuple[int, ...] = ()


class Shape(NamedTuple):
    """Shape of a router's rings. ``senders``: slots by sender channel; ``receivers``: slots by virtual channel. A slot
    contains a header, a payload of at most ``payload_bytes``, and ``suffix_bytes`` after the payload.
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

    def with_spare(self, idle: Idle, choices: Sequence[Slots], limit: int) -> "Shape":
        """Return a shape in which idle channels have no slots, and all others except the worker's channel use the first
        of ``choices`` that fits into ``limit`` slots in all. Return this shape if no choice fits.
        """
        for slots in choices:
            passing = [0 if number in idle.senders else slots.sender for number in range(1, len(self.senders))]
            receivers = [0 if vc in idle.receivers else slots.receiver for vc in range(len(self.receivers))]
            shape = self._replace(senders=(self.senders[0], *passing), receivers=tuple(receivers))
            if shape.slots <= limit:
                return shape
        return self


class RouterLayout(NamedTuple):
    """Layout of a router from address ``base`` on."""

    base: int
    shape: Shape

    @property
    def handshake(self) -> int:
        """The address to which the far end writes the handshake."""
        return self.base

    @property
    def credits(self) -> int:
        """The address to which the far end's receivers write credits."""
        return self.base + HANDSHAKE_BYTES

    @property
    def connection(self) -> int:
        """The address of the words of the connection to sender channel 0; a count of the written packets follows."""
        return self.credits + WORD_BYTES

    @property
    def termination(self) -> int:
        """The address of the word for the termination signal."""
        return self.connection + 2 * WORD_BYTES

    @property
    def notice(self) -> int:
        """The address to which a terminating far end writes its notices."""
        return self.termination + WORD_BYTES

    @property
    def statistics(self) -> int:
        """The address of the statistics region."""
        return self.notice + WORD_BYTES

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
        """Return this layout with the slots of idle channels given to other channels. ``end``: end of the L1."""
        limit = (end - self.base - CONTROL_BYTES) // self.shape.slot_bytes
        return self._replace(shape=self.shape.with_spare(idle, choices, limit))


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
    """Return the layout with the first of ``choices`` (slots per ring) that fits between ``base`` and ``end``. With two
    virtual channels, each ring has half as many slots.

    Raises:
        KernelMisuse: if no choice fits.
    """
    header_bytes = SHORT_BYTES if is_short else LONG_BYTES
    suffix_bytes = SYNC_WORD_BYTES if has_sync_word else 0
    for slots in choices:
        each = [max(count // vcs, 1) for count in (slots.sender, slots.receiver)]
        shape = Shape((each[0],) * senders, (each[1],) * vcs, payload_bytes, header_bytes, suffix_bytes)
        choice = RouterLayout(base, shape)
        if choice.end <= end:
            return choice
    raise KernelMisuse(
        f"packets of {payload_bytes} B: {senders} sender and {vcs} receiver channels do not fit in the {end - base} B "
        "of an Ethernet core; take smaller packets"
    )


def words(nbytes: int) -> int:
    """Return ``nbytes`` rounded up to whole Ethernet words of 16 B."""
    return -(-nbytes // WORD_BYTES) * WORD_BYTES
