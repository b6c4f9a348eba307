"""The channels of a router: rings of packet slots and what is known of their far ends. Pure.

A slot holds one packet, whatever its size. A *sender channel* is filled by one upstream, a worker or a receiver of the
same chip, and sends over the link into the slots of a receiver channel at the far end. Each counter only grows.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from sipsim.chips.tensix.fabric.packet import Way

Ps = int


class Ring(NamedTuple):
    """``slots`` of ``slot_bytes`` each, from ``base`` on."""

    base: int
    slots: int
    slot_bytes: int

    def address(self, number: int) -> int:
        """Of the slot of packet ``number``."""
        return self.base + number % self.slots * self.slot_bytes

    def addresses(self) -> list[int]:
        """Of all slots."""
        return [self.address(number) for number in range(self.slots)]

    @property
    def end(self) -> int:
        """The first address behind it."""
        return self.base + self.slots * self.slot_bytes


class SlotCredits:
    """What a router knows of a ring that it fills: a receiver's at the far end of its link, or a sender channel's of
    its chip. ``used``: packets put in; ``returned``: slots that are free again.
    """

    __slots__ = ("name", "returned", "ring", "used")

    def __init__(self, name: str, ring: Ring) -> None:
        self.name = name
        self.ring = ring
        self.used = self.returned = 0

    @property
    def free(self) -> int:
        """Slots that a packet may be put into."""
        return self.ring.slots - self.used + self.returned


class SenderChannel:
    """``number`` of a router, into ``far``. ``needed``: free slots there for a packet to be sent; 2 where it injects
    into a ring with a bubble. ``tell_free(count, at_ps)`` tells the upstream.

    ``written``: packets that the upstream has put in; ``freed``: slots that were told free. ``credits``: slots that
    the far end has told free and no visit has handled.
    """

    __slots__ = ("credits", "far", "freed", "name", "needed", "number", "ring", "sent", "tell_free", "written")

    def __init__(self, name: str, number: int, ring: Ring, far: SlotCredits, needed: int) -> None:
        self.name = name
        self.number = number
        self.ring = ring
        self.far = far
        self.needed = needed
        self.written = self.sent = self.freed = self.credits = 0
        self.tell_free: Callable[[int, Ps], None] = nobody

    @property
    def may_send(self) -> bool:
        """Whether there is a packet, and room for it at the far end."""
        return self.sent < self.written and self.far.free >= self.needed


class ReceiverChannel:
    """A receiver channel of virtual channel ``vc``. ``downstream``: by way, the rings that it forwards into.

    ``arrived``, ``acked``, ``handled``, ``completed``: packets that have come, were acknowledged, were written and
    forwarded, and whose slots were told free. ``open``: those that are handled and not completed, in order.
    """

    __slots__ = ("acked", "arrived", "completed", "downstream", "handled", "name", "open", "ring", "vc")

    def __init__(self, name: str, vc: int, ring: Ring) -> None:
        self.name = name
        self.vc = vc
        self.ring = ring
        self.downstream: dict[Way, SlotCredits] = {}
        self.arrived = self.acked = self.handled = self.completed = 0
        self.open: deque[Handled] = deque()

    @property
    def completes_ps(self) -> Ps | None:
        """When the oldest handled packet has left, if that is known."""
        return self.open[0].left_ps if self.open and not self.open[0].writes else None


class Handled:
    """A packet that ``receiver`` has written or forwarded, and the sender channel that it came from. ``writes``: of the
    NoC, that have not arrived. ``left_ps``: when the last of the others is acknowledged.
    """

    __slots__ = ("left_ps", "receiver", "sender", "writes")

    def __init__(self, receiver: ReceiverChannel, sender: int) -> None:
        self.receiver = receiver
        self.sender = sender
        self.writes = 0
        self.left_ps: Ps = 0


def nobody(_count: int, _at_ps: Ps) -> None:
    """Nobody is upstream."""
