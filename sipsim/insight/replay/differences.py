"""The differences between the two passes of a SIP, and which of them races explain.

Values are compared bit for bit; any NaN equals any NaN, as IEEE 754 leaves its payload open.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np

from sipsim.insight.replay.writers import Addresses, Race, Write, Writers
from sipsim.records.oplog import line
from sipsim.records.replay import Array, Difference, Values

BYTE = np.dtype(np.uint8)


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

    offsets: np.ndarray[Any, np.dtype[np.int64]] | None
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


def _differing(a: Array, b: Array) -> np.ndarray[Any, np.dtype[np.int64]]:
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
        """Of the record, shortened."""
        text = line(self.record).rstrip("\n")
        return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} ..."

    def __str__(self) -> str:
        return f"record {self.number} ({self.text})"


class _Kept(NamedTuple):
    """A difference: of a record, or None at the end of the run. ``addresses``: of the bytes that no race explains yet,
    None where the values are not those of bytes. ``operands``: what they were computed from: a race there explains all
    of it. Where there is neither, only an error does. ``last``: who wrote the first address last.
    """

    by: Numbered | None
    text: str
    addresses: Addresses | None = None
    operands: tuple[Range, ...] = ()
    last: Write | None = None


class Differences:
    """Those of one SIP.

    A difference of values that were read, or of bytes after a write, may be a race, perhaps with a write whose record
    comes later. So it is kept until the end of the run, and then the first one that is left is an error.

    ``canonical``: one address of each byte. ``count``: of records that differ, without races.
    """

    def __init__(self, canonical: Callable[[int], int]) -> None:
        self._canonical = canonical
        self._writers = Writers()
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
        self,
        address: int,
        nbytes: int,
        start_ps: int,
        end_ps: int,
        by: object,
        is_arrival: bool = False,
        is_told: bool = False,
    ) -> None:
        """A write has ended, of a record or not."""
        if nbytes:
            write = self._writers.note(self._canonical(address), nbytes, start_ps, end_ps, by, is_arrival, is_told)
            if self._kept:
                self._kept = [left for each in self._kept if (left := self._without(each, write)) is not None]

    def of_record(self, by: Numbered | None, text: str) -> None:
        """A difference that only an error explains."""
        self._keep(_Kept(by, text))

    def of_values(
        self, by: Numbered, wrong: Wrong, values: list[Range], operands: list[Range], is_message: bool
    ) -> None:
        """Values of a record differ: those of the bytes of ``values``, in this order, if it is not empty, or computed.

        ``operands``: what they were computed from. ``is_message``: what was read is a message in its slot.
        """
        if wrong.offsets is None:
            self.of_record(by, wrong.text)
            return
        kept, race = _Kept(by, wrong.text), None
        if values:
            addresses, race = self._asked(by, self._touched(values)[wrong.offsets], is_message)
            is_race = not len(addresses)
            kept = kept._replace(addresses=addresses, last=None if is_race else self._writers.last(int(addresses[0])))
        else:
            is_race = False
        if operands and not is_race:
            _, race = self._asked(by, self._touched(operands), is_message)
            is_race = race is not None
            kept = kept._replace(operands=tuple((self._canonical(address), size) for address, size in operands))
        if race is not None and is_race:
            self._note_race(kept, race.write.by if race.write.by is not by else race.other)
        else:
            self._keep(kept)

    def _touched(self, ranges: list[Range]) -> Addresses:
        """The addresses of all bytes of some ranges, one after the other."""
        starts = [(self._canonical(address), size) for address, size in ranges]
        return np.concatenate([np.arange(at, at + size) for at, size in starts])

    def _asked(self, by: Numbered, addresses: Addresses, is_message: bool) -> tuple[Addresses, Race | None]:
        return self._writers.unexplained(np.unique(addresses), by.start_ps, by, is_message)

    def at_end(self, page: int, expected: bytes, got: bytes) -> None:
        """The bytes of a page that the two passes have left differ."""
        a, b = np.frombuffer(expected, np.uint8), np.frombuffer(got, np.uint8)
        left, race = self._writers.unexplained(page + np.flatnonzero(a != b), None, None)
        if race is not None:
            self._note_race(_Kept(None, f"the memories differ at {race.write.address:#x}"), race.other, race)
        if len(left):
            at = int(left[0])
            text = f"address {at:#x}: expected {a[at - page]:#04x}, got {b[at - page]:#04x}"
            self._keep(_Kept(None, text, left, (), self._writers.last(at)))

    def first(self) -> Difference | None:
        """The first difference that is left; None for none. One that was not kept may be a race for all that is known,
        and is told where no other is left: there were many.
        """
        found = min(self._kept, key=_order, default=self._first_beyond)
        if found is None:
            return None
        by, text, addresses, _, last = found
        if not self._kept:
            text += f" (of {self._beyond} differences beyond the first {MOST_KEPT}, which may be races)"
        wrote = "" if last is None or last.by is by else f"; the last to write there was {last.by}"
        owner = by or (last.by if last is not None and isinstance(last.by, Numbered) else None)
        if owner is None:
            at_end = f"the memories differ at the end, at {text}{wrote}" if addresses is not None else text
            return Difference(number=0, record="", cube=0, pe=0, time_ps=0, message=at_end)
        _, _, end_ps, cube, pe, *_ = owner.record
        if by is None:
            what = f"the memories differ at the end, at {text}{wrote} of cube {cube} PE {pe} at {end_ps} ps"
        else:
            what = f"{by} of cube {cube} PE {pe} at {end_ps} ps: {text}{wrote}"
        return Difference(number=owner.number, record=owner.text, cube=cube, pe=pe, time_ps=end_ps, message=what)

    def _without(self, kept: _Kept, write: Write) -> _Kept | None:
        """What is left of a difference beside a later write; None for nothing."""
        if kept.by is None or write.start_ps >= kept.by.record[2]:
            return kept
        left, end = kept.addresses, write.address + write.nbytes
        is_met = any(at < end and write.address < at + size for at, size in kept.operands)
        if left is not None:
            left = left[(left < write.address) | (left >= end)]
        if is_met or (left is not None and not len(left)):
            self._note_race(kept, write.by)
            return None
        return kept._replace(addresses=left)

    def _keep(self, kept: _Kept) -> None:
        if len(self._kept) < MOST_KEPT:
            self._kept.append(kept)
        else:
            self._beyond += 1
            self._first_beyond = self._first_beyond or kept

    def _note_race(self, kept: _Kept, other: object, race: Race | None = None) -> None:
        self.races += 1
        by = kept.by if race is None else race.write.by
        text = f"{by} is in no order with {other}, which writes there at the same time: {kept.text}"
        self.first_race = self.first_race or text


def _order(kept: _Kept) -> tuple[bool, int]:
    return (True, 0) if kept.by is None else (False, kept.by.number)
