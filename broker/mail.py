"""How messages travel: the ``Mail`` that a SIP or the broker holds, and the in-process post office.

Everything is bytes, in one process too, so that one process and many run the same code. The post
office keeps each ordered pair in order and nothing else; :class:`ShuffledPostOffice` uses that freedom.
"""

import random
from collections import deque
from typing import Protocol

Address = int


class Letter:
    """Bytes, and who sent them."""

    __slots__ = ("frame", "sender")

    def __init__(self, sender: Address, frame: bytes) -> None:
        self.sender = sender
        self.frame = frame


class Mail(Protocol):
    """What a SIP sends with. Receiving is the business of the loop around it."""

    def meet(self, endpoints: tuple[str, ...]) -> None:
        """Learn where every SIP listens, by rank; before that only the broker can be sent to."""

    def send(self, to: Address, frame: bytes) -> None:
        """Hand over a frame for a rank or the broker; never blocks and never loses it."""


class PostOffice:
    """All mailboxes of one process: letters are delivered in the order in which they were posted."""

    def __init__(self) -> None:
        self._letters: deque[tuple[Address, Letter]] = deque()

    def post(self, sender: Address, to: Address, frame: bytes) -> None:
        """Take a letter."""
        self._letters.append((to, Letter(sender, frame)))

    def next(self) -> tuple[Address, Letter] | None:
        """The next (destination, letter), or None when no letter is left."""
        return self._letters.popleft() if self._letters else None

    def mail_of(self, sender: Address) -> Mail:
        """The sending end for one participant."""
        return _Box(self, sender)


class _Box:
    def __init__(self, office: PostOffice, sender: Address) -> None:
        self._office = office
        self._sender = sender

    def meet(self, endpoints: tuple[str, ...]) -> None:
        pass

    def send(self, to: Address, frame: bytes) -> None:
        self._office.post(self._sender, to, frame)


class ShuffledPostOffice(PostOffice):
    """Delivers in a seeded random order that keeps only each ordered pair's own order: the worst legal mail."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._pairs: dict[tuple[Address, Address], deque[Letter]] = {}

    def post(self, sender: Address, to: Address, frame: bytes) -> None:
        self._pairs.setdefault((sender, to), deque()).append(Letter(sender, frame))

    def next(self) -> tuple[Address, Letter] | None:
        waiting = [pair for pair, letters in self._pairs.items() if letters]
        if not waiting:
            return None
        pair = self._random.choice(waiting)
        return pair[1], self._pairs[pair].popleft()
