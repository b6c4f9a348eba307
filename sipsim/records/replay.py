"""The second pass of a SIP as the first one sees it: rules that perform records again, the feed, and the verdict."""

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar
from zlib import crc32

import msgspec
import numpy as np

from sipsim.core.registry import Definitions
from sipsim.records.dump import Place

Array = np.ndarray[Any, Any]
Values = Array | bytes


class WrongRecord(Exception):
    """A record that contradicts what the first pass has told, as its message says."""


class ReplayPe(Protocol):
    """One PE in the second pass. Addresses are physical and of its SIP. ``told``: the values of the first pass for this
    record, None where it told none; only a rule whose record does not say them may use them.
    """

    told: Values | None

    def value(self, name: str) -> Array:
        """The values of a handle of this PE.

        Raises:
            WrongRecord: for a handle that no record has filled, or that nothing can name any more.
        """

    def read(self, address: int, nbytes: int) -> bytes:
        """Bytes of the SIP's memories."""

    def write(self, address: int, data: bytes) -> None:
        """Write to the SIP's memories."""

    def send(self, address: int, seq: int, direction: str, data: bytes) -> None:
        """Message ``seq`` leaves for the slot at ``address``.

        Raises:
            WrongRecord: when the first pass has sent another message.
        """

    def message(self, address: int, seq: int, nbytes: int) -> bytes:
        """Take the message that arrived in the slot at ``address``.

        Raises:
            WrongRecord: when none has arrived there.
        """


def read_rows(pe: ReplayPe, address: int, rows: int, row_bytes: int, pitch: int) -> bytes:
    """The bytes of rows that begin ``pitch`` bytes apart, one after the other."""
    return b"".join([pe.read(address + row * pitch, row_bytes) for row in range(rows)])


def write_rows(pe: ReplayPe, address: int, data: bytes, row_bytes: int, pitch: int) -> None:
    """Write ``data`` to such rows."""
    for row, at in enumerate(range(0, len(data), row_bytes)):
        pe.write(address + row * pitch, data[at : at + row_bytes])


Rule = Callable[..., Values | None]
AnyRule = TypeVar("AnyRule", bound=Rule)
COMPUTED, READ, WRITTEN = "computed", "read", "written"
"""What the values of a rule are: made from others, or the bytes that it has read or written, in this order."""


class KnownRule(NamedTuple):
    """A rule, what its values are, and its module."""

    perform: Rule
    values: str
    module: str


_RULES = Definitions[str, KnownRule]()


def replays(kind: str, values: str = COMPUTED) -> Callable[[AnyRule], AnyRule]:
    """Function decorator: the rule for the records of a kind, defined beside the engine that writes it.

    A rule is ``rule(pe, *fields)`` with the fields of its kind, as in :data:`sipsim.records.oplog.FIELDS`. It returns
    the values that the first pass must have recorded for it, an array or bytes: those of the ``result`` of its command,
    if it has one, else what the engine says (:meth:`sipsim.chips.ahbm.pe.engine.CommandEngine.made`). It reads and
    writes by ``pe`` alone::

        @replays(MATH)
        def replay_math(pe: ReplayPe, op: str, dtype: str, shape: str, operands: str, result: str) -> Array:
            return elementwise(op, tuple(map(pe.value, operands.split(","))), DTYPES[dtype])

    A rule whose values are bytes of memories says so (``values``, one of the three above), so that races are looked for
    where they differ. A kind without a rule ends the second pass of its SIP, which says so.

    Raises:
        ValueError: for a kind that has one from another module.
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
    """The rule for the records of a kind; None for none."""
    return _RULES.get(kind)


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first difference that no race explains. ``number``: of the record in its rank's log, from 1; 0 where it is of
    no record. ``record``: its text, shortened. ``time_ps``: its end. ``direction``: the sender's, where it is of a
    message that arrived at this PE then. ``message``: all of it in one line.
    """

    number: int
    record: str
    cube: int
    pe: int
    time_ps: int
    direction: str = ""
    message: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the second pass of a SIP has found, as plain data.

    ``records``: how many were performed again. ``stopped``: why no more were, empty for all. ``difference``: the first
    one, of ``differences`` records. ``races``: reads and writes that met unordered writes, so that their values could
    not be compared; ``first_race``: one of them.
    """

    records: int
    stopped: str = ""
    differences: int = 0
    difference: Difference | None = None
    races: int = 0
    first_race: str = ""


MOST_RECORDS = 512
MOST_BYTES = 2**23
"""Records and bytes that wait for the second pass."""


class Gone(weakref.ref[Any]):
    """Tells that a handle is gone, by putting itself among what is told. ``name``: the handle's; ``values``: where the
    second pass keeps its values. What it calls is no Python code, in which the exception of a signal handler would be
    lost.
    """

    __slots__ = ("name", "values")
    name: str
    values: dict[str, Any] | None


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """A message that arrived at ``now_ps``: ``data``, number ``seq`` of the sender's direction, at ``address``. It
    carries ``crc``.
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
    """The CRC-32 of message ``seq`` of its sender's direction, for the slot at ``address``."""
    return crc32(data, crc32(f"{address} {seq} {direction}".encode()))


ToldRecord = tuple[tuple[Any, ...], Values | None, Gone | None, int | None, int]
"""A record of the op log, the values that the first pass has made, None for none, the handle that has them, when the
engine took the command from its queue, None without queues, and the CRC of the message that it has sent, else 0."""
Item = ToldRecord | Arrival | Gone


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


MakeSecondPass = Callable[[Any], SecondPass]
"""That of a SIP, from an empty memory of it."""


class Feed:
    """What the first pass hands to the second one, in order, a batch at a time.

    The feed keeps no handle of a kernel, since room in the TCM returns with the last reference to one. It keeps arrays,
    and learns when a handle is gone, so that the second pass drops its values, too.

    ``second_pass`` takes the batches.
    """

    def __init__(self, second_pass: SecondPass, now: Callable[[], int]) -> None:
        self._second_pass = second_pass
        self._now = now
        self._items: deque[Item] = deque()
        self._note_gone = self._items.append
        self._nbytes = 0

    def ended(self, record: tuple[Any, ...], made: Any, taken_ps: int | None, crc: int) -> None:
        """An operation has ended. ``made``: the handle that it has filled, with its ``name`` and its ``array``, or the
        values that it has written or sent; None for neither. ``taken_ps``: when its engine took it from its queue, None
        without queues. ``crc``: :func:`message_crc` of a message, else 0.
        """
        values, gone = made, None
        if made is not None and not isinstance(made, bytes | np.ndarray):
            values = made.array
            if values is not None:
                gone = Gone(made, self._note_gone)
                gone.name, gone.values = made.name, None
        if values is not None:
            self._nbytes += len(values) if isinstance(values, bytes) else values.nbytes
        items = self._items
        items.append((record, values, gone, taken_ps, crc))
        if len(items) >= MOST_RECORDS or self._nbytes >= MOST_BYTES:
            self.drain()

    def arrived(
        self, address: int, seq: int, direction: str, data: bytes, crc: int, sender: Place, receiver: Place
    ) -> None:
        """A message has arrived in its slot."""
        self._items.append(Arrival(self._now(), address, seq, direction, data, crc, sender, receiver))
        self._nbytes += len(data)

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
