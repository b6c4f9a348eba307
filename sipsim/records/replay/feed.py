"""What the first pass tells the second one, in order, a batch at a time.

The feed keeps no handle of a kernel, since room in the TCM returns with the last reference to one. It keeps arrays, and
is told when a handle is gone, so that the second pass drops its values, too.
"""

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
import numpy as np

from sipsim.records.replay.rules import Values
from sipsim.records.replay.verdict import Verdict

MOST_RECORDS = 512
MOST_BYTES = 2**23
"""Records and bytes that wait for the second pass."""


class Named(Protocol):
    """A handle of a kernel, as far as the feed needs it."""

    name: str
    array: np.ndarray[Any, Any]


class Gone(weakref.ref[Any]):
    """Tells that a handle is gone, by putting itself among what is told. ``name``: the handle's; ``values``: where the
    second pass keeps its values. What it calls is no Python code, in which the exception of a signal handler would be
    lost.
    """

    __slots__ = ("name", "values")
    name: str
    values: dict[str, Any] | None


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """A message that arrived at ``now_ps``: ``data``, number ``seq`` of the sender's direction, at ``address``."""

    now_ps: int
    address: int
    seq: int
    sender: tuple[int, int, int]
    direction: str
    data: bytes


ToldRecord = tuple[tuple[Any, ...], Values | None, Gone | None, int | None]
"""A record of the op log, the values that the first pass has made, None for none, the handle that has them, and when
the engine took the command from its queue, None without queues."""
Item = ToldRecord | Arrival | Gone | int
"""A number is that of a generation of queue pairs that this SIP has closed."""


class SecondPass(Protocol):
    """Performs again what the first pass tells it, on memories of its own."""

    def perform(self, items: deque[Item]) -> None:
        """Take all of them."""

    def host_wrote(self, address: int, data: bytes | memoryview, now_ps: int) -> None:
        """The host writes to a memory."""

    def host_cleared(self, address: int, nbytes: int, now_ps: int) -> None:
        """The host sets bytes to zero."""

    def verdict(self, memory: Any) -> Verdict:
        """What was found after the last record; ``memory`` is that of the first pass."""


MakeSecondPass = Callable[[int, Any], SecondPass]
"""That of a SIP, from its number and an empty memory."""


class Feed:
    """``append``: the op log's, ``second_pass``: who is told."""

    def __init__(self, append: Callable[..., None], second_pass: SecondPass, now: Callable[[], int]) -> None:
        self._append = append
        self._second_pass = second_pass
        self._now = now
        self._items: deque[Item] = deque()
        self._note_gone = self._items.append
        self._told: Values | None = None
        self._gone: Gone | None = None
        self._taken_ps: int | None = None
        self._nbytes = 0

    def result(self, handle: Named) -> None:
        """The record that follows has filled a handle."""
        array = self._told = getattr(handle, "array", None)
        if array is not None:
            gone = self._gone = Gone(handle, self._note_gone)
            gone.name, gone.values = handle.name, None
            self._nbytes += array.nbytes

    def values(self, values: Values) -> None:
        """The record that follows has written or sent these values."""
        self._told = values
        self._nbytes += len(values) if isinstance(values, bytes) else values.nbytes

    def taken(self, taken_ps: int) -> None:
        """Its engine has taken the record that follows from its queue then."""
        self._taken_ps = taken_ps

    def log(self, *record: Any) -> None:
        """Log one operation, as ``OpLog.append``, with what was told of it just before."""
        self._append(*record)
        items = self._items
        items.append((record, self._told, self._gone, self._taken_ps))
        self._told = self._gone = self._taken_ps = None
        if len(items) >= MOST_RECORDS or self._nbytes >= MOST_BYTES:
            self.drain()

    def arrived(self, address: int, seq: int, sender: tuple[int, int, int], direction: str, data: bytes) -> None:
        """A message has arrived in its slot."""
        self._items.append(Arrival(self._now(), address, seq, sender, direction, data))
        self._nbytes += len(data)

    def closed(self, generation: int) -> None:
        """A generation of queue pairs is closed; its messages have all been told."""
        self._items.append(generation)

    def host_wrote(self, address: int, data: bytes | memoryview) -> None:
        """The host writes to a memory, now."""
        self.drain()
        self._second_pass.host_wrote(address, data, self._now())

    def host_cleared(self, address: int, nbytes: int) -> None:
        """The host sets bytes of a memory to zero, now."""
        self.drain()
        self._second_pass.host_cleared(address, nbytes, self._now())

    def drain(self) -> None:
        """The second pass takes all that was told."""
        self._nbytes = 0
        self._second_pass.perform(self._items)
