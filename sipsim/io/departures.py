"""The order in which a PE's messages leave it: that of their sends, whatever had to be fetched first.

PE_DMA's queue for communication. A message whose bytes are fetched from another memory comes to the PE some time
after its send; those behind it, at hand or fetched faster, let its last byte pass first. Otherwise they would reach
the peer before it (I2).
"""

from collections import deque
from collections.abc import Callable

from sipsim.engine import Engine

Ps = int
Go = Callable[[Ps, Ps], None]
"""Called with the times at which the head and the tail pass PE_DMA; the head may have passed already."""


class Departure:
    """A message that was sent and has not left. ``is_here`` once its head and tail are known."""

    __slots__ = ("go", "head_ps", "is_here", "tail_ps")

    def __init__(self, go: Go) -> None:
        self.go = go
        self.is_here = False
        self.head_ps: Ps = 0
        self.tail_ps: Ps = 0


class Departures:
    """Of one PE. All times are those at which something passes PE_DMA on its way out."""

    __slots__ = ("_clear_ps", "_engine", "_waiting")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: deque[Departure] = deque()
        self._clear_ps: Ps = 0

    @property
    def is_clear(self) -> bool:
        """Whether nothing that was fetched is still in the way of a message that is at hand."""
        return not self._waiting and self._clear_ps <= self._engine.now_ps

    def add(self, go: Go) -> Departure:
        """The next message, which is not here yet."""
        departure = Departure(go)
        self._waiting.append(departure)
        return departure

    def here(self, departure: Departure, head_ps: Ps, tail_ps: Ps) -> None:
        """A message's head and tail are at PE_DMA then: it leaves, with those that waited for it, or waits itself."""
        departure.is_here, departure.head_ps, departure.tail_ps = True, head_ps, tail_ps
        while self._waiting and self._waiting[0].is_here:
            first = self._waiting.popleft()
            head_ps = max(first.head_ps, self._clear_ps)
            self._clear_ps = max(first.tail_ps, head_ps)
            first.go(head_ps, self._clear_ps)
