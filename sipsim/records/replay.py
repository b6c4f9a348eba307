"""Interface of the second pass of a SIP: replay rules by kind of record, the feed of records, and the verdict."""

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar
from zlib import crc32

import msgspec
import numpy as np

from sipsim.core.registry import Definitions
from sipsim.records.dump import Place

Array = np.ndarray[Any, Any]
Values = Array | bytes


class WrongRecord(Exception):
    """Error: a record contradicts other records of the first pass; the message states the contradiction."""


class ReplayPe(Protocol):
    """One PE in the second pass, as rules use it. Addresses are physical, on the PE's SIP. ``recorded``: values of
    the first pass for this record, or None; only for rules that cannot compute the values from the record's fields.
    """

    recorded: Values | None

    def value(self, name: str) -> Array:
        """Return the values of a handle of this PE.

        Raises:
            WrongRecord: no record has filled the handle, or the handle has been freed.
        """

    def read(self, address: int, nbytes: int) -> bytes:
        """Read from the SIP's memories."""

    def write(self, address: int, data: bytes) -> None:
        """Write to the SIP's memories."""

    def send(self, address: int, seq: int, direction: str, data: bytes) -> None:
        """Check the send of message ``seq`` to the slot at ``address``.

        Raises:
            WrongRecord: the first pass sent a different message.
        """

    def message(self, address: int, seq: int, nbytes: int) -> bytes:
        """Take the message that arrived in the slot at ``address``.

        Raises:
            WrongRecord: no message has arrived in this slot.
        """


def read_rows(pe: ReplayPe, address: int, rows: int, row_bytes: int, pitch: int) -> bytes:
    """Read ``rows`` rows of ``row_bytes`` that begin ``pitch`` bytes apart; return the rows concatenated."""
    return b"".join([pe.read(address + row * pitch, row_bytes) for row in range(rows)])


def write_rows(pe: ReplayPe, address: int, data: bytes, row_bytes: int, pitch: int) -> None:
    """Write ``data`` to rows of ``row_bytes`` that begin ``pitch`` bytes apart."""
    for row, offset in enumerate(range(0, len(data), row_bytes)):
        pe.write(address + row * pitch, data[offset : offset + row_bytes])


Rule = Callable[..., Values | None]
AnyRule = TypeVar("AnyRule", bound=Rule)
COMPUTED, READ, WRITTEN = "computed", "read", "written"
"""The origin of a rule's values: computed from other values, bytes that the rule read, or bytes that the rule wrote."""


class KnownRule(NamedTuple):
    """A rule, the origin of its ``values`` (``COMPUTED``, ``READ`` or ``WRITTEN``), and its module."""

    perform: Rule
    values: str
    module: str


_RULES = Definitions[str, KnownRule]()


def replays(kind: str, values: str = COMPUTED) -> Callable[[AnyRule], AnyRule]:
    """Function decorator: registers the replay rule for a kind of record, next to the engine that writes such records.

    A rule is ``rule(pe, *fields)`` with the fields of its kind, as in :data:`sipsim.records.oplog.FIELDS`. It returns
    the values that the first pass must have recorded, an array or bytes: the values of the command's ``result`` if
    there is one, else those that the engine records (:meth:`sipsim.chips.ahbm.pe.engine.CommandEngine.made`). A rule
    accesses memory only through ``pe``::

        @replays(MATH)
        def replay_math(pe: ReplayPe, op: str, dtype: str, shape: str, operands: str, result: str) -> Array:
            return elementwise(op, tuple(map(pe.value, operands.split(","))), DTYPES[dtype])

    ``values``: the origin of the values. For bytes of memories (``READ``, ``WRITTEN``), a difference may be a race. A
    record of a kind without a rule ends the second pass of the SIP; the verdict then gives the reason.

    Raises:
        ValueError: the kind already has a rule from another module.
    """

    def add(rule: AnyRule) -> AnyRule:
        module = rule.__module__
        known = _RULES.get(kind)
        if known is not None and known.module != module:
            raise ValueError(f"records of kind {kind!r} have two replay rules, of {known.module} and of {module}")
        _RULES.define(kind, KnownRule(rule, values, module), module)
        return rule

    return add


def rule_of(kind: str) -> KnownRule | None:
    """Return the rule for a kind of record; None if the kind has no rule."""
    return _RULES.get(kind)


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first difference that no race explains. ``number``: the record's number in its rank's log, from 1; 0 if the
    difference belongs to no record. ``record``: the record's text, shortened. ``time_ps``: the record's end, or the
    arrival of a message. ``direction``: a message's direction at the sender, or "". ``message``: a line for the user.
    """

    number: int
    record: str
    cube: int
    pe: int
    time_ps: int
    direction: str = ""
    message: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the second pass of a SIP, as plain data.

    ``records``: number of records performed again. ``stopped``: the reason for stopping before the last record, or "".
    ``differences``: number of differences; ``difference``: the first difference. ``races``: number of accesses that
    raced with other writes, so that their values could not be compared; ``first_race``: the text of the first race.
    """

    records: int
    stopped: str = ""
    differences: int = 0
    difference: Difference | None = None
    races: int = 0
    first_race: str = ""


MOST_RECORDS = 512
MOST_BYTES = 2**23
"""Limits of a batch for the second pass: number of records, bytes of values."""


class FreedHandle(weakref.ref[Any]):
    """Weak reference that appends itself to the feed when its handle is freed. ``name``: the handle's name; ``values``:
    the dictionary of the second pass that contains the handle's values. The callback is ``deque.append`` and not Python
    code, in which an exception of a signal handler would be lost.
    """

    __slots__ = ("name", "values")
    name: str
    values: dict[str, Any] | None


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """A message that arrived at ``now_ps`` in the slot at ``address``. ``seq``: number of the message in the sender's
    ``direction``. ``crc``: the CRC that the message carries.
    """

    now_ps: int
    address: int
    seq: int
    direction: str
    data: bytes
    crc: int
    sender: Place
    receiver: Place


def message_crc(address: int, seq: int, direction: str, data: bytes) -> int:
    """Return the CRC-32 of message ``seq`` in the sender's ``direction``, for the slot at ``address``."""
    return crc32(data, crc32(f"{address} {seq} {direction}".encode()))


FeedRecord = tuple[tuple[Any, ...], Values | None, FreedHandle | None, int | None, int]
"""A record of the op log; the values of the first pass, or None; the handle with the values, or None; the time at which
the engine took the command from its queue, None without queues; and the CRC of the message that was sent, else 0."""
Item = FeedRecord | Arrival | FreedHandle


class FirstMemory(Protocol):
    """Memory of the first pass of a SIP, to compare with the memory of the second pass."""

    def pages(self) -> Iterator[tuple[int, bytes | bytearray]]:
        """Yield pages with their canonical addresses; a page that is not yielded is all 0."""


class ReplayMemory(FirstMemory, Protocol):
    """Memory of the second pass of a SIP. ``place``: format of the name of a record's place, from the record's cube and
    PE, which are a tile's x and y on chips of tiles.
    """

    place: str

    def canonical(self, address: int) -> int:
        """Return the one address that stands for all addresses of the byte at ``address``."""

    def address_text(self, address: int) -> str:
        """Return the text of an address, for reports."""

    def read(self, address: int, nbytes: int) -> bytes:
        """Return a copy of bytes."""

    def write(self, address: int, data: bytes | memoryview) -> None:
        """Set bytes."""

    def clear(self, address: int, nbytes: int) -> None:
        """Set bytes to 0."""


class SecondPass(Protocol):
    """Performs the records of the first pass again, on a separate copy of the SIP's memories."""

    def perform(self, items: deque[Item]) -> None:
        """Process all items and remove them from the queue."""

    def host_wrote(self, address: int, data: bytes | memoryview, now_ps: int) -> None:
        """Apply a write of the host to a memory at ``now_ps``."""

    def host_cleared(self, address: int, nbytes: int, now_ps: int) -> None:
        """Set bytes of a memory to zero, as the host did at ``now_ps``."""

    def verdict(self, memory: FirstMemory) -> Verdict:
        """Return the result after the last record; ``memory`` is the memory of the first pass."""


MakeSecondPass = Callable[[ReplayMemory], SecondPass]
"""Factory of the second pass of a SIP. The argument is an empty copy of the SIP's memory."""


class Feed:
    """Queue of records from the first pass to the second pass, in order and in batches.

    The feed holds no reference to a handle of a kernel, since TCM space is freed with the last reference to its handle.
    The feed holds the handle's array, and a weak reference by which the second pass drops values of a freed handle.
    """

    def __init__(self, second_pass: SecondPass, now: Callable[[], int]) -> None:
        self._second_pass = second_pass
        self._now = now
        self._items: deque[Item] = deque()
        self._note_freed = self._items.append
        self._nbytes = 0

    def end_operation(self, record: tuple[Any, ...], made: Any, taken_ps: int | None, crc: int) -> None:
        """Append an operation that has ended. ``made``: the filled handle, with ``name`` and ``array``, or the values
        written or sent, or None. ``taken_ps``: when the engine took the command from its queue, or None without
        queues. ``crc``: :func:`message_crc` of a message, else 0.
        """
        values, freed = made, None
        if made is not None and not isinstance(made, bytes | np.ndarray):
            values = made.array
            if values is not None:
                freed = FreedHandle(made, self._note_freed)
                freed.name, freed.values = made.name, None
        if values is not None:
            self._nbytes += len(values) if isinstance(values, bytes) else values.nbytes
        items = self._items
        items.append((record, values, freed, taken_ps, crc))
        if len(items) >= MOST_RECORDS or self._nbytes >= MOST_BYTES:
            self.drain()

    def arrived(
        self, address: int, seq: int, direction: str, data: bytes, crc: int, sender: Place, receiver: Place
    ) -> None:
        """Append a message that has arrived in its slot."""
        self._items.append(Arrival(self._now(), address, seq, direction, data, crc, sender, receiver))
        self._nbytes += len(data)

    def host_wrote(self, address: int, data: bytes | memoryview) -> None:
        """Pass a write of the host to the second pass, with the current time."""
        self.drain()
        self._second_pass.host_wrote(address, data, self._now())

    def host_cleared(self, address: int, nbytes: int) -> None:
        """Pass a zeroing of memory by the host to the second pass, with the current time."""
        self.drain()
        self._second_pass.host_cleared(address, nbytes, self._now())

    def drain(self) -> None:
        """Let the second pass process all queued items."""
        self._nbytes = 0
        self._second_pass.perform(self._items)
