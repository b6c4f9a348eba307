"""Channels of a router: rings of packet slots, and credits for the rings that a router fills. Pure.

A slot holds one packet of any size. A *sender channel* is filled by one upstream, which is a worker or a receiver of
the chip, and sends over the link into a receiver channel at the far end. Counters of packets and slots only grow.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from sipsim.chips.tensix.fabric.packet import Direction
from sipsim.chips.tensix.fabric.termination import Origin

Ps = int


class Ring(NamedTuple):
    """Ring of ``slots`` in L1, ``slot_bytes`` each, from ``base`` on."""

    base: int
    slots: int
    slot_bytes: int

    def address(self, number: int) -> int:
        """Return the address of the slot of packet ``number``."""
        return self.base + number % self.slots * self.slot_bytes

    def addresses(self) -> list[int]:
        """Return the addresses of all slots."""
        return [self.address(number) for number in range(self.slots)]

    @property
    def end(self) -> int:
        """The first address after the ring."""
        return self.base + self.slots * self.slot_bytes


class SlotCredits:
    """Credits of a router for a ring that the router fills: of a receiver at the far end of the link, or of a sender
    channel of the same chip. ``used``: packets written into the ring; ``returned``: slots freed since the start.
    """

    __slots__ = ("name", "returned", "ring", "used")

    def __init__(self, name: str, ring: Ring) -> None:
        self.name = name
        self.ring = ring
        self.used = self.returned = 0

    @property
    def free(self) -> int:
        """The number of free slots."""
        return self.ring.slots - self.used + self.returned


class SenderChannel:
    """Sender channel ``number`` of a router, which sends into the ring ``far``. ``needed``: free slots of ``far`` that
    a send requires: 1, or 2 for injection with a bubble. ``return_credits(count, at_ps)`` notifies the upstream.

    ``written``: packets that the upstream has written; ``freed``: slots whose credits the upstream has received.
    ``credits``: slots that the far end has freed and no visit has handled. ``origins``: of the packets to send.
    """

    __slots__ = (
        "credits",
        "far",
        "freed",
        "name",
        "needed",
        "number",
        "origins",
        "return_credits",
        "ring",
        "sent",
        "written",
    )

    def __init__(self, name: str, number: int, ring: Ring, far: SlotCredits, needed: int) -> None:
        self.name = name
        self.number = number
        self.ring = ring
        self.far = far
        self.needed = needed
        self.written = self.sent = self.freed = self.credits = 0
        self.origins: deque[Origin] = deque()
        self.return_credits: Callable[[int, Ps], None] = no_upstream

    @property
    def may_send(self) -> bool:
        """Whether there is a packet to send, and a free slot for the packet at the far end."""
        return self.sent < self.written and self.far.free >= self.needed


class ReceiverChannel:
    """Receiver channel of virtual channel ``vc``. ``downstream``: by direction, the rings to which packets continue.

    ``arrived``, ``acked``, ``handled``, ``completed``: numbers of packets that have arrived, were acknowledged, were
    written and forwarded, and have a slot reported free. ``open``: handled but not completed packets, in order.
    ``origins``: of the packets to handle.
    """

    __slots__ = ("acked", "arrived", "completed", "downstream", "handled", "name", "open", "origins", "ring", "vc")

    def __init__(self, name: str, vc: int, ring: Ring) -> None:
        self.name = name
        self.vc = vc
        self.ring = ring
        self.downstream: dict[Direction, SlotCredits] = {}
        self.arrived = self.acked = self.handled = self.completed = 0
        self.open: deque[PacketInFlight] = deque()
        self.origins: deque[Origin] = deque()

    @property
    def completes_ps(self) -> Ps | None:
        """The time at which the oldest open packet has left the slot; None if unknown or if no packet is open."""
        return self.open[0].left_ps if self.open and not self.open[0].writes else None


class PacketInFlight:
    """Packet that ``receiver`` has written or forwarded. ``sender``: number of the channel that sent the packet.
    ``writes``: number of NoC writes that have not arrived. ``left_ps``: time of the latest acknowledged write.
    """

    __slots__ = ("left_ps", "origin", "receiver", "sender", "writes")

    def __init__(self, receiver: ReceiverChannel, sender: int, origin: Origin) -> None:
        self.receiver = receiver
        self.origin = origin
        self.sender = sender
        self.writes = 0
        self.left_ps: Ps = 0


def no_upstream(_count: int, _at_ps: Ps) -> None:
    """Drop credits of a channel without upstream."""
