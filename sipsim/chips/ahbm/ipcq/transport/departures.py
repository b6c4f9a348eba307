"""PE_DMA's queue for communication: a PE's messages leave in the order of their sends.

A message whose bytes are fetched from another memory arrives at the PE some time after its send. Later messages,
already in the PE or fetched faster, leave after its last byte; otherwise they would overtake it (I2). So does any
message after one that was in the PE and left at once, but waits for the ports of the TCM.
"""

from collections import deque
from collections.abc import Callable

from sipsim.core.engine import Engine

Ps = int
Go = Callable[[Ps, Ps], None]
"""Called with the times at which head and tail pass PE_DMA; that of the head may be in the past."""


class Departure:
    """A message that was sent and has not left. ``is_here`` once the times of its head and tail are known."""

    __slots__ = ("go", "head_ps", "is_here", "tail_ps")

    def __init__(self, go: Go) -> None:
        self.go = go
        self.is_here = False
        self.head_ps: Ps = 0
        self.tail_ps: Ps = 0


class Departures:
    """The queue of one PE. All times are those at which bytes pass PE_DMA on the way out."""

    __slots__ = ("_at_once_ps", "_clear_ps", "_engine", "_waiting")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: deque[Departure] = deque()
        self._clear_ps: Ps = 0
        self._at_once_ps: Ps = 0

    @property
    def is_clear(self) -> bool:
        """Whether a message that needs no fetch can leave at once."""
        return not self._waiting and self._clear_ps <= self._engine.now_ps

    def leave_at_once(self, head_ps: Ps, tail_ps: Ps) -> Ps:
        """A message that needs no fetch leaves now: its head and tail pass at these times, but for how much later its
        head must be to come behind the last one that left so; the answer is that."""
        later_ps = max(self._at_once_ps - head_ps, 0)
        self._at_once_ps = tail_ps + later_ps
        return later_ps

    def add(self, go: Go) -> Departure:
        """Queue the next message, whose bytes are being fetched."""
        departure = Departure(go)
        self._waiting.append(departure)
        return departure

    def here(self, departure: Departure, head_ps: Ps, tail_ps: Ps) -> None:
        """Set the times of a message's head and tail, and let messages leave in order."""
        departure.is_here, departure.head_ps, departure.tail_ps = True, head_ps, tail_ps
        while self._waiting and self._waiting[0].is_here:
            first = self._waiting.popleft()
            head_ps = max(first.head_ps, self._clear_ps, self._at_once_ps)
            self._clear_ps = max(first.tail_ps, head_ps)
            first.go(head_ps, self._clear_ps)
