"""Mail within one process whose order varies with a seed. Not a test."""

import random
from collections import deque

from broker.mail.inproc import Envelope, InprocMail


class ShuffledInprocMail(InprocMail):
    """Delivers in a seeded random order that keeps only each ordered pair's own order: the worst legal mail."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._pairs: dict[tuple[int, int], deque[Envelope]] = {}

    def send(self, sender: int, to: int, frame: bytes) -> None:
        self._pairs.setdefault((sender, to), deque()).append(Envelope(sender, frame))

    def next(self) -> tuple[int, Envelope] | None:
        waiting = [pair for pair, queue in self._pairs.items() if queue]
        if not waiting:
            return None
        pair = self._random.choice(waiting)
        return pair[1], self._pairs[pair].popleft()
