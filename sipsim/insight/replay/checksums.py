"""Checksums of the messages of queue pairs between SIPs, by both ends; the launcher compares them (:func:`changed`).

The second pass takes a received message as it came. That it is what was sent can only be seen where both ends are
known: within a SIP at its arrival, between SIPs at the end of the run. A checksum covers all messages of a queue pair
so far. One is kept for each message until there are ``MOST``, then for each second one, and so on, so that the first
message that differs is known exactly up to ``MOST`` messages, and to a few of them beyond.

Those of queue pairs that were made while time ran are also summed, for each sender and receiving SIP, so that nothing
is kept for a queue pair that is closed. The sum does not depend on which of them an end has closed, and in what order.
"""

from array import array
from collections.abc import Iterable
from zlib import crc32

from sipsim.records.replay import QueueCheck

Place = tuple[int, int, int]
MOST = 1024
CHECK_BYTES = 4


class Checksums:
    """The messages of one queue pair, as one end sees them."""

    __slots__ = ("_checks", "_count", "_last", "_stride")

    def __init__(self) -> None:
        self._count = 0
        self._last = 0
        self._stride = 1
        self._checks = array("I")

    def add(self, address: int, seq: int, data: bytes) -> None:
        """The next message, number ``seq``, for the slot at an address."""
        self._last = crc32(data, crc32(b"%d %d" % (address, seq), self._last))
        self._count += 1
        if self._count % self._stride == 0:
            self._checks.append(self._last)
            if len(self._checks) > MOST:
                self._checks = self._checks[1::2]
                self._stride *= 2

    @property
    def count(self) -> int:
        """How many messages."""
        return self._count

    @property
    def last(self) -> int:
        """The checksum of all of them."""
        return self._last

    def told(self, sender: tuple[int, int, int], direction: str, peer: str) -> QueueCheck:
        """As plain data."""
        checks = [*self._checks, *([self._last] if self._count % self._stride else [])]
        data = b"".join(each.to_bytes(CHECK_BYTES, "little") for each in checks)
        return QueueCheck(sender, direction, peer, self._count, self._stride, data)


class Sums:
    """Of the messages of later queue pairs, by sender and rank of the receiver: how many, and a sum of checksums."""

    def __init__(self) -> None:
        self._of: dict[tuple[Place, int], tuple[int, int]] = {}

    def copy(self) -> "Sums":
        """One to be added to."""
        made = Sums()
        made._of = dict(self._of)
        return made

    def add(self, sender: Place, receiver: int, direction: str, messages: Checksums) -> None:
        """Those of one queue pair, by the full name of its direction at the sender."""
        count, total = self._of.get((sender, receiver), (0, 0))
        own = crc32(direction.encode(), messages.last)
        self._of[sender, receiver] = count + messages.count, (total + own) % 2**64

    def told(self) -> list[QueueCheck]:
        """As plain data."""
        return [
            QueueCheck(sender, f"of later queue pairs to rank {receiver}", "", count, 0, total.to_bytes(8, "little"))
            for (sender, receiver), (count, total) in sorted(self._of.items())
        ]


def changed(sent: Iterable[QueueCheck], arrived: Iterable[QueueCheck]) -> tuple[QueueCheck, str] | None:
    """The first queue pair whose ends saw different messages, as the receiver tells it, and which; None for none.

    ``sent``, ``arrived``: of all ranks.
    """
    senders = {(each.sender, each.direction): each for each in sent}
    for receiver in sorted(arrived, key=lambda each: (not each.stride, each.sender, each.direction)):
        sender = senders.get((receiver.sender, receiver.direction))
        if sender is None and is_later(receiver.direction):
            continue
        if sender is None:
            return receiver, "a message arrived that was not sent"
        if (sender.count, sender.checks) != (receiver.count, receiver.checks):
            return receiver, _which(sender, receiver)
    return None


def is_later(direction: str) -> bool:
    """Whether a full name is that of a queue pair that was made while time ran. The sender may have closed it."""
    return "#" in direction


def _which(sender: QueueCheck, receiver: QueueCheck) -> str:
    """The first message that differs, as text, from 0 as ``sender_seq``."""
    if not sender.stride and sender.count == receiver.count:
        return "a message"
    size, stride, before = CHECK_BYTES, sender.stride, min(len(sender.checks), len(receiver.checks)) // CHECK_BYTES
    if stride != receiver.stride:
        return f"{sender.count} messages were sent and {receiver.count} arrived"
    for index in range(before):
        at = slice(index * size, index * size + size)
        if sender.checks[at] != receiver.checks[at]:
            last = min((index + 1) * stride, sender.count) - 1
            first = index * stride
            return f"message {first}" if first == last else f"a message from {first} to {last}"
    return f"{sender.count} messages were sent and {receiver.count} arrived"
