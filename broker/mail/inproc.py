"""Mail within one process. Frames are encoded as between processes, so that both kinds of run use the same code."""

import random
from collections import deque

from broker.mail.base import Address

Sent = tuple[Address, Address, bytes]
"""Sender, receiver and frame."""


class InprocMail:
    """The queue of all frames of one process, in the order of sending."""

    def __init__(self) -> None:
        self._queue: deque[Sent] = deque()

    def send(self, sender: Address, to: Address, frame: bytes) -> None:
        """Queue a frame."""
        self._queue.append((sender, to, frame))

    def next(self) -> Sent | None:
        """Remove and return the next frame; None when the queue is empty."""
        return self._queue.popleft() if self._queue else None

    @property
    def last(self) -> Sent | None:
        """The frame that was sent last; None once this frame has been received."""
        return self._queue[-1] if self._queue else None

    def drop_last(self) -> None:
        """Remove the frame that was sent last."""
        self._queue.pop()

    def endpoint_of(self, sender: Address) -> "InprocEndpoint":
        """Return the sending endpoint of one SIP."""
        return InprocEndpoint(self, sender)


class ShuffledInprocMail(InprocMail):
    """Queue that returns frames in a seeded random order; only frames of one sender to one receiver stay in order."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._pairs: dict[tuple[Address, Address], deque[bytes]] = {}
        self._last_pair: tuple[Address, Address] | None = None

    def send(self, sender: Address, to: Address, frame: bytes) -> None:
        self._last_pair = sender, to
        self._pairs.setdefault((sender, to), deque()).append(frame)

    def next(self) -> Sent | None:
        waiting = [pair for pair, queue in self._pairs.items() if queue]
        if not waiting:
            return None
        pair = self._random.choice(waiting)
        return *pair, self._pairs[pair].popleft()

    @property
    def last(self) -> Sent | None:
        if self._last_pair is None or not (queue := self._pairs[self._last_pair]):
            return None
        return *self._last_pair, queue[-1]

    def drop_last(self) -> None:
        assert self._last_pair is not None
        self._pairs[self._last_pair].pop()


class InprocEndpoint:
    """The ``Mail`` of one SIP when one process simulates all SIPs; peers need no connection."""

    endpoint = "inproc"

    def __init__(self, mail: InprocMail, sender: Address) -> None:
        self._mail = mail
        self._sender = sender

    def connect_peers(self, endpoints: tuple[str, ...]) -> None:
        pass

    def reconnect_peer(self, rank: int, incarnation: int, endpoint: str) -> None:
        raise NotImplementedError("SIPs in one process are not restarted")

    def send(self, to: Address, frame: bytes) -> None:
        self._mail.send(self._sender, to, frame)
