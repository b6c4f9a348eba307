"""The differences between the two passes of a SIP: distinguishes races of the program from errors of the simulator.

Values are compared bit for bit; any NaN equals any NaN, as IEEE 754 does not specify its payload.

A record contains the start and end of its command, not the times at which bytes moved in between. So if two commands
overlap, and one writes bytes that the other accesses, the order is unknown and a difference there is a race. After
a write that differs, the second pass continues with the bytes of the first pass.
"""

from typing import Any, NamedTuple

import msgspec
import numpy as np

from sipsim.records.dump import place_name
from sipsim.records.oplog import line
from sipsim.records.replay import Array, Arrival, Difference, ReplayMemory, Values

BYTE = np.dtype(np.uint8)
Offsets = np.ndarray[Any, np.dtype[np.int64]]


def are_same(got: Values, expected: Values | None) -> bool:
    """Whether two values are equal bit for bit; two arrays must also have the same shape and type."""
    if isinstance(got, bytes) or not isinstance(expected, np.ndarray):
        return _data(got) == _data(expected)
    return got.dtype == expected.dtype and got.shape == expected.shape and got.tobytes() == expected.tobytes()


def _data(values: Values | None) -> bytes:
    if values is None:
        return b""
    return values if isinstance(values, bytes) else values.tobytes()


class Wrong(NamedTuple):
    """A difference of values. ``offsets``: sorted byte offsets of the wrong elements; None if shape, type or size
    differ. ``text``: the first wrong element, for messages.
    """

    offsets: Offsets | None
    text: str


def where_wrong(got: Values, expected: Values | None) -> Wrong | None:
    """Return the difference of the first pass's values (``got``) from ``expected``; None if at most NaNs differ."""
    shape = got.shape if isinstance(got, np.ndarray) else expected.shape if isinstance(expected, np.ndarray) else None
    dtype = got.dtype if isinstance(got, np.ndarray) else expected.dtype if isinstance(expected, np.ndarray) else BYTE
    data, right = _data(got), _data(expected)
    if isinstance(got, np.ndarray) and isinstance(expected, np.ndarray):
        kinds = [f"{each.dtype}{list(each.shape)}" for each in (expected, got)]
        if kinds[0] != kinds[1]:
            return Wrong(None, f"expected {kinds[0]}, got {kinds[1]}")
    if len(data) != len(right):
        return Wrong(None, f"expected {len(right)} bytes, got {len(data)}")
    a, b = np.frombuffer(data, dtype), np.frombuffer(right, dtype)
    wrong = _differing(a, b)
    if not len(wrong):
        return None
    first, size = int(wrong[0]), dtype.itemsize
    index = [int(i) for i in np.unravel_index(first, shape)] if shape else [first]
    offsets = (wrong[:, None] * size + np.arange(size)).reshape(-1)
    return Wrong(offsets, f"{len(wrong)} of {len(a)} wrong, the first at {index}: expected {b[first]}, got {a[first]}")


def _differing(a: Array, b: Array) -> Offsets:
    """Return the indices of the elements that differ; NaNs are equal."""
    bits = np.dtype(f"u{a.dtype.itemsize}")
    differs = np.ascontiguousarray(a).view(bits) != np.ascontiguousarray(b).view(bits)
    if a.dtype.kind not in "iu" and differs.any():
        differs &= ~(np.isnan(a) & np.isnan(b))
    return np.flatnonzero(differs)


MOST_PENDING = 256
LONGEST_TEXT = 240
Range = tuple[int, int]
"""An address and a number of bytes."""


class Numbered(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A record, its number in its rank's log, from 1, and ``start_ps``: when its engine started the command. A write
    that ended before ``start_ps`` cannot race with the command.
    """

    number: int
    record: tuple[Any, ...]
    start_ps: int

    @property
    def text(self) -> str:
        """The record's line, shortened."""
        text = line(self.record).rstrip("\n")
        return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} ..."

    def __str__(self) -> str:
        return f"record {self.number} ({self.text})"


class _Write(NamedTuple):
    """The last write of a range, from ``start_ps`` to ``end_ps``. ``by``: its record, or the name of another writer.
    ``rival``: the previous write of the same range, if that write had not ended when this write began.
    """

    address: int
    nbytes: int
    start_ps: int
    end_ps: int
    by: object
    is_arrival: bool
    rival: "_Write | None" = None

    def meets(self, ranges: tuple[Range, ...]) -> bool:
        """Whether this write overlaps with any of the ranges."""
        end = self.address + self.nbytes
        return any(address < end and self.address < address + nbytes for address, nbytes in ranges)


class _Pending(NamedTuple):
    """A difference that may still be a race. ``by``: its record or arrival; None at the end of the run.
    ``ranges``: where a race would explain it; empty if it is an error. ``last``: last write of the first wrong byte.
    """

    by: Numbered | Arrival | None
    text: str
    ranges: tuple[Range, ...] = ()
    last: _Write | None = None


class Differences:
    """The differences between the two passes on one SIP.

    A difference of values that were read, or of bytes after a write, may be a race, perhaps with a write whose record
    arrives later. So a difference stays pending to the end of the run; then the first one without a race is an error.

    ``memory``: the memory of the second pass.
    """

    def __init__(self, memory: ReplayMemory) -> None:
        self._canonical = memory.canonical
        self._text = memory.address_text
        self._place = memory.place
        self._writes: dict[Range, _Write] = {}
        self._pending: list[_Pending] = []
        self._beyond = 0
        self._first_beyond: _Pending | None = None
        self.races = 0
        self.first_race = ""

    @property
    def count(self) -> int:
        """The number of differences that no race has explained so far."""
        return len(self._pending) + self._beyond

    def wrote(
        self, address: int, nbytes: int, start_ps: int, end_ps: int, by: object, is_arrival: bool = False
    ) -> None:
        """Note a write that has ended, by a record or another writer."""
        if not nbytes:
            return
        key = self._canonical(address), nbytes
        before = self._writes.pop(key, None)
        rival = before._replace(rival=None) if before is not None and before.end_ps > start_ps else None
        write = self._writes[key] = _Write(*key, start_ps, end_ps, by, is_arrival, rival)
        pending, self._pending = self._pending, []
        for each in pending:
            if isinstance(each.by, Numbered) and start_ps < each.by.record[2] and write.meets(each.ranges):
                self._note_race(each, by)
            else:
                self._pending.append(each)

    def of_record(self, by: Numbered, text: str) -> None:
        """Add a difference that no race can explain."""
        self._add(_Pending(by, text))

    def of_arrival(self, by: Arrival) -> None:
        """Add a message whose data on arrival does not match the CRC that the message carries."""
        ends = f"of {place_name(by.sender)} to {place_name(by.receiver)}"
        text = f"message {by.seq} {by.direction} {ends} was changed in transit to the slot at {self._text(by.address)}"
        self._add(_Pending(by, text))

    def of_values(
        self, by: Numbered, wrong: Wrong, values: list[Range], operands: list[Range], is_message: bool
    ) -> None:
        """Add a difference of a record's values. ``values``: ranges of the values' bytes; empty if computed.

        ``operands``: the ranges from which the values were computed. ``is_message``: the record read a message in its
        slot, which a write by a kernel may have changed after the arrival.
        """
        if wrong.offsets is None:
            self.of_record(by, wrong.text)
            return
        found = self._wrong_ranges(values, wrong.offsets)
        last = self._last(found[0][0]) if found and (is_message or len(self._pending) < MOST_PENDING) else None
        ranges = (*found, *((self._canonical(address), nbytes) for address, nbytes in operands))
        race = self._race(by, ranges, is_message)
        if race is None and is_message and last is not None and not last.is_arrival:
            race = last
        pending = _Pending(by, wrong.text, ranges, last)
        if race is None:
            self._add(pending)
        else:
            self._note_race(pending, race.by)

    def _wrong_ranges(self, values: list[Range], offsets: Offsets) -> list[Range]:
        """Return each range with wrong bytes, cut to the first through the last wrong byte in that range."""
        found, start = [], 0
        for address, nbytes in values:
            wrong = offsets[np.searchsorted(offsets, start) : np.searchsorted(offsets, start + nbytes)] - start
            if len(wrong):
                found.append((self._canonical(address) + int(wrong[0]), int(wrong[-1] - wrong[0]) + 1))
            start += nbytes
        return found

    def _race(self, by: Numbered, ranges: tuple[Range, ...], is_message: bool) -> _Write | None:
        """Return another write of the ranges that ended after the record began. Arrivals do not race with messages."""
        # Writes are stored in the order of their ends.
        for write in reversed(self._writes.values()):
            if write.end_ps <= by.start_ps:
                break
            other = write.rival if write.by is by else write
            if other is not None and not (is_message and other.is_arrival) and other.meets(ranges):
                return other
        return None

    def _last(self, address: int) -> _Write | None:
        """Return the last write of a byte."""
        return next((each for each in reversed(self._writes.values()) if each.meets(((address, 1),))), None)

    def at_end(self, page: int, expected: bytes, got: bytes) -> None:
        """Add a page whose bytes differ between the passes at the end of the run."""
        a, b = np.frombuffer(expected, np.uint8), np.frombuffer(got, np.uint8)
        first = int(np.flatnonzero(a != b)[0])
        address, values = self._canonical(page + first), f"expected {a[first]:#04x}, got {b[first]:#04x}"
        text = f"the memories differ at the end, at address {self._text(address)}: {values}"
        self._add(_Pending(None, text, last=self._last(address)))

    def first(self) -> Difference | None:
        """Return the first difference that no race has explained, or None. A difference beyond ``MOST_PENDING`` was not
        checked for races, so such a difference is returned only if no other is left.
        """
        found = min(self._pending, key=_order, default=self._first_beyond)
        if found is None:
            return None
        by, text, _, last = found
        if isinstance(by, Arrival):
            at, (_, cube, pe) = by.now_ps, by.receiver
            return Difference(number=0, record="", cube=cube, pe=pe, time_ps=at, direction=by.direction, message=text)
        if not self._pending:
            text += f" (of {self._beyond} differences beyond the first {MOST_PENDING}, which may be races)"
        wrote = "" if last is None or last.by is by else f"; the last to write there was {last.by}"
        owner = by or (last.by if last is not None and isinstance(last.by, Numbered) else None)
        if owner is None:
            return Difference(number=0, record="", cube=0, pe=0, time_ps=0, message=text + wrote)
        _, _, end_ps, cube, pe, *_ = owner.record
        place = f" of {self._place.format(cube, pe)} at {end_ps} ps"
        what = f"{text}{wrote}{place}" if by is None else f"{by}{place}: {text}{wrote}"
        return Difference(number=owner.number, record=owner.text, cube=cube, pe=pe, time_ps=end_ps, message=what)

    def _add(self, pending: _Pending) -> None:
        if len(self._pending) < MOST_PENDING:
            self._pending.append(pending)
        else:
            self._beyond += 1
            self._first_beyond = self._first_beyond or pending

    def _note_race(self, pending: _Pending, other: object) -> None:
        self.races += 1
        text = f"{pending.by} races with {other}, which writes there at the same time: {pending.text}"
        self.first_race = self.first_race or text


def _order(pending: _Pending) -> tuple[bool, int]:
    return (False, pending.by.number) if isinstance(pending.by, Numbered) else (True, 0)
