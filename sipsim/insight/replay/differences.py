"""The differences between the two passes of a SIP, and which of them races explain.

Values are compared bit for bit; any NaN equals any NaN, as IEEE 754 leaves its payload open.

A record says when its command began and ended, not when its bytes moved in between. So where the bytes that a record
has accessed were written by another one at the same time, no order of the two records is right for certain, and a
difference there is a race. What a write has left is known: the second pass takes it over from the first one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np

from sipsim.records.dump import place_name
from sipsim.records.oplog import line
from sipsim.records.replay import Array, Arrival, Difference, Values

BYTE = np.dtype(np.uint8)
Offsets = np.ndarray[Any, np.dtype[np.int64]]


def are_same(told: Values, expected: Values | None) -> bool:
    """Whether two values are the same, bit for bit; two arrays are also of the same shape and type."""
    if isinstance(told, bytes) or not isinstance(expected, np.ndarray):
        return _data(told) == _data(expected)
    return told.dtype == expected.dtype and told.shape == expected.shape and told.tobytes() == expected.tobytes()


def _data(values: Values | None) -> bytes:
    if values is None:
        return b""
    return values if isinstance(values, bytes) else values.tobytes()


class Wrong(NamedTuple):
    """Where values differ: ``offsets`` of the bytes of wrong elements, sorted, None where shape, type or size do;
    ``text``: the first of them.
    """

    offsets: Offsets | None
    text: str


def where_wrong(told: Values, expected: Values | None) -> Wrong | None:
    """How the values of the first pass differ from those expected; None if only NaNs do."""
    shape = told.shape if isinstance(told, np.ndarray) else expected.shape if isinstance(expected, np.ndarray) else None
    dtype = told.dtype if isinstance(told, np.ndarray) else expected.dtype if isinstance(expected, np.ndarray) else BYTE
    got, right = _data(told), _data(expected)
    if isinstance(told, np.ndarray) and isinstance(expected, np.ndarray):
        kinds = [f"{each.dtype}{list(each.shape)}" for each in (expected, told)]
        if kinds[0] != kinds[1]:
            return Wrong(None, f"expected {kinds[0]}, got {kinds[1]}")
    if len(got) != len(right):
        return Wrong(None, f"expected {len(right)} bytes, got {len(got)}")
    a, b = np.frombuffer(got, dtype), np.frombuffer(right, dtype)
    wrong = _differing(a, b)
    if not len(wrong):
        return None
    first, size = int(wrong[0]), dtype.itemsize
    index = [int(i) for i in np.unravel_index(first, shape)] if shape else [first]
    offsets = (wrong[:, None] * size + np.arange(size)).reshape(-1)
    return Wrong(offsets, f"{len(wrong)} of {len(a)} wrong, the first at {index}: expected {b[first]}, got {a[first]}")


def _differing(a: Array, b: Array) -> Offsets:
    """The indices of the elements that differ."""
    bits = np.dtype(f"u{a.dtype.itemsize}")
    differs = np.ascontiguousarray(a).view(bits) != np.ascontiguousarray(b).view(bits)
    if a.dtype.kind not in "iu" and differs.any():
        differs &= ~(np.isnan(a) & np.isnan(b))
    return np.flatnonzero(differs)


MOST_KEPT = 256
LONGEST_TEXT = 240
Range = tuple[int, int]
"""Address and bytes."""


class Numbered(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A record, its number in its rank's log, from 1, and the time from which its engine has worked for it: until then
    it waited behind other records, with which it is in no race.
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
    """The last write of a range, from ``start_ps`` to ``end_ps``. ``by``: its record, or another writer in words.
    ``rival``: the write of the same range before it, if that write had not ended when this one began.
    """

    address: int
    nbytes: int
    start_ps: int
    end_ps: int
    by: object
    is_arrival: bool
    rival: "_Write | None" = None

    def meets(self, ranges: tuple[Range, ...]) -> bool:
        """Whether one of the ranges has bytes of this one."""
        end = self.address + self.nbytes
        return any(address < end and self.address < address + nbytes for address, nbytes in ranges)


class _Kept(NamedTuple):
    """A difference that is kept. ``by``: its record or arrival; None at the end of the run. ``ranges``: the canonical
    ranges on which a race explains it; without any, it is an error. ``last``: the last write of the first wrong byte.
    """

    by: Numbered | Arrival | None
    text: str
    ranges: tuple[Range, ...] = ()
    last: _Write | None = None


class Differences:
    """The differences between the two passes on one SIP.

    A difference of values that were read, or of bytes after a write, may be a race, perhaps with a write whose record
    comes later. So it is kept until the end of the run, and then the first one that is left is an error.

    ``canonical``: one address of each byte. ``count``: of records that differ, without races.
    """

    def __init__(self, canonical: Callable[[int], int]) -> None:
        self._canonical = canonical
        self._writes: dict[Range, _Write] = {}
        self._kept: list[_Kept] = []
        self._beyond = 0
        self._first_beyond: _Kept | None = None
        self.races = 0
        self.first_race = ""

    @property
    def count(self) -> int:
        """Differences that no race has explained so far."""
        return len(self._kept) + self._beyond

    def wrote(
        self, address: int, nbytes: int, start_ps: int, end_ps: int, by: object, is_arrival: bool = False
    ) -> None:
        """A write has ended, of a record or not."""
        if not nbytes:
            return
        key = self._canonical(address), nbytes
        before = self._writes.pop(key, None)
        rival = before._replace(rival=None) if before is not None and before.end_ps > start_ps else None
        write = self._writes[key] = _Write(*key, start_ps, end_ps, by, is_arrival, rival)
        kept, self._kept = self._kept, []
        for each in kept:
            if isinstance(each.by, Numbered) and start_ps < each.by.record[2] and write.meets(each.ranges):
                self._note_race(each, by)
            else:
                self._kept.append(each)

    def of_record(self, by: Numbered, text: str) -> None:
        """A difference that only an error explains."""
        self._keep(_Kept(by, text))

    def of_arrival(self, by: Arrival) -> None:
        """A message has arrived with another CRC than that of what was sent."""
        ends = f"of {place_name(by.sender)} to {place_name(by.receiver)}"
        text = f"message {by.seq} {by.direction} {ends} was changed on its way to the slot at {by.address:#x}"
        self._keep(_Kept(by, text))

    def of_values(
        self, by: Numbered, wrong: Wrong, values: list[Range], operands: list[Range], is_message: bool
    ) -> None:
        """Values of a record differ. ``values``: the ranges of their bytes, in order; empty for computed values.

        ``operands``: what they were computed from. ``is_message``: what was read is a message in its slot, which a
        kernel's own write may have changed since it arrived.
        """
        if wrong.offsets is None:
            self.of_record(by, wrong.text)
            return
        found = self._wrong_ranges(values, wrong.offsets)
        last = self._last(found[0][0]) if found and (is_message or len(self._kept) < MOST_KEPT) else None
        ranges = (*found, *((self._canonical(address), nbytes) for address, nbytes in operands))
        race = self._race(by, ranges, is_message)
        if race is None and is_message and last is not None and not last.is_arrival:
            race = last
        kept = _Kept(by, wrong.text, ranges, last)
        if race is None:
            self._keep(kept)
        else:
            self._note_race(kept, race.by)

    def _wrong_ranges(self, values: list[Range], offsets: Offsets) -> list[Range]:
        """From the first wrong byte of each range to its last; without the ranges that have none."""
        found, start = [], 0
        for address, nbytes in values:
            wrong = offsets[np.searchsorted(offsets, start) : np.searchsorted(offsets, start + nbytes)] - start
            if len(wrong):
                found.append((self._canonical(address) + int(wrong[0]), int(wrong[-1] - wrong[0]) + 1))
            start += nbytes
        return found

    def _race(self, by: Numbered, ranges: tuple[Range, ...], is_message: bool) -> _Write | None:
        """Another write of the ranges that ended after a record had begun. A message is read after it has arrived."""
        # Writes are in the order of their ends.
        for write in reversed(self._writes.values()):
            if write.end_ps <= by.start_ps:
                break
            other = write.rival if write.by is by else write
            if other is not None and not (is_message and other.is_arrival) and other.meets(ranges):
                return other
        return None

    def _last(self, address: int) -> _Write | None:
        """The last write of a byte."""
        return next((each for each in reversed(self._writes.values()) if each.meets(((address, 1),))), None)

    def at_end(self, page: int, expected: bytes, got: bytes) -> None:
        """The bytes of a page that the two passes have left differ."""
        a, b = np.frombuffer(expected, np.uint8), np.frombuffer(got, np.uint8)
        first = int(np.flatnonzero(a != b)[0])
        address, values = page + first, f"expected {a[first]:#04x}, got {b[first]:#04x}"
        text = f"the memories differ at the end, at address {address:#x}: {values}"
        self._keep(_Kept(None, text, last=self._last(address)))

    def first(self) -> Difference | None:
        """The first difference that is left; None for none. One that was not kept may be a race for all that is known,
        and is told where no other is left: there were many.
        """
        found = min(self._kept, key=_order, default=self._first_beyond)
        if found is None:
            return None
        by, text, _, last = found
        if isinstance(by, Arrival):
            at, (_, cube, pe) = by.now_ps, by.receiver
            return Difference(number=0, record="", cube=cube, pe=pe, time_ps=at, direction=by.direction, message=text)
        if not self._kept:
            text += f" (of {self._beyond} differences beyond the first {MOST_KEPT}, which may be races)"
        wrote = "" if last is None or last.by is by else f"; the last to write there was {last.by}"
        owner = by or (last.by if last is not None and isinstance(last.by, Numbered) else None)
        if owner is None:
            return Difference(number=0, record="", cube=0, pe=0, time_ps=0, message=text + wrote)
        _, _, end_ps, cube, pe, *_ = owner.record
        place = f" of cube {cube} PE {pe} at {end_ps} ps"
        what = f"{text}{wrote}{place}" if by is None else f"{by}{place}: {text}{wrote}"
        return Difference(number=owner.number, record=owner.text, cube=cube, pe=pe, time_ps=end_ps, message=what)

    def _keep(self, kept: _Kept) -> None:
        if len(self._kept) < MOST_KEPT:
            self._kept.append(kept)
        else:
            self._beyond += 1
            self._first_beyond = self._first_beyond or kept

    def _note_race(self, kept: _Kept, other: object) -> None:
        self.races += 1
        text = f"{kept.by} is in no order with {other}, which writes there at the same time: {kept.text}"
        self.first_race = self.first_race or text


def _order(kept: _Kept) -> tuple[bool, int]:
    return (False, kept.by.number) if isinstance(kept.by, Numbered) else (True, 0)
