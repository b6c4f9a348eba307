"""Who wrote where, and whether two accesses are a race: neither began after the other had ended.

A record says when its command began and ended, not when its bytes moved in between. So where two writes of an address
overlap in time, or a read and a write do, no order of the records is right for certain. What such a read finds is no
error of an engine, whatever it is. For each range of addresses the last write is kept, and with it the one before if
the two overlap in time. They leave nothing open where the first pass has told, after the last of them, what is there.
"""

from collections import defaultdict
from typing import Any, NamedTuple

import msgspec
import numpy as np

PAGE_BITS = 16
Addresses = np.ndarray[Any, np.dtype[np.int64]]


class Write(msgspec.Struct, eq=False, gc=False):
    """Of ``nbytes`` at ``address`` from ``start_ps`` to ``end_ps``, by a record or what else ``by`` is.

    ``order``: counts all writes. ``rival``: the write of the same range before this one, if that is a race.
    ``is_told``: the first pass has told what was in the memory then, and the second pass has that.
    """

    address: int
    nbytes: int
    start_ps: int
    end_ps: int
    order: int
    by: Any
    is_arrival: bool
    is_told: bool
    rival: "Write | None"


class Race(NamedTuple):
    """A write, and the access or write that it is in a race with."""

    write: Write
    other: Any


class Writers:
    """The last writes of one SIP's memories. They are found by address only once that was asked for."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], Write] = {}
        self._by_page: defaultdict[int, dict[tuple[int, int], Write]] | None = None
        self._count = 0

    def note(
        self,
        address: int,
        nbytes: int,
        start_ps: int,
        end_ps: int,
        by: Any,
        is_arrival: bool = False,
        is_told: bool = False,
    ) -> Write:
        """A write has ended."""
        self._count += 1
        key = address, nbytes
        rival = self._last.get(key)
        if rival is not None:
            if rival.end_ps <= start_ps:
                rival = None
            else:
                # A chain of rivals would keep all writes of a run.
                rival.rival = None
        write = self._last[key] = Write(address, nbytes, start_ps, end_ps, self._count, by, is_arrival, is_told, rival)
        if self._by_page is not None:
            _index(self._by_page, write)
        return write

    def last(self, address: int) -> Write | None:
        """The last write of a byte."""
        return max(self._covering(address), key=lambda each: each.order, default=None)

    def unexplained(
        self, addresses: Addresses, start_ps: int | None, by: Any, is_message: bool = False
    ) -> tuple[Addresses, Race | None]:
        """Those of some sorted addresses that only the writes in order can have written, and a race of the others.

        ``by``: who reads from ``start_ps`` on, None for the end of the run. ``is_message``: a message was read, which a
        kernel's own write changed.
        """
        left, race = [], None
        while len(addresses):
            at = int(addresses[0])
            covering = sorted(self._covering(at), key=lambda each: each.order)
            size = self._stretch(at)
            met = _race(covering, start_ps, by, is_message)
            here = addresses < at + size
            if met is None:
                left.append(addresses[here])
            race = race or met
            addresses = addresses[~here]
        return np.concatenate(left) if left else addresses, race

    def _covering(self, address: int) -> list[Write]:
        return [each for each in self._page(address).values() if each.address <= address < each.address + each.nbytes]

    def _stretch(self, address: int) -> int:
        """For how many bytes the same writes cover the addresses."""
        end = ((address >> PAGE_BITS) + 1) << PAGE_BITS
        for each in self._page(address).values():
            for bound in (each.address, each.address + each.nbytes):
                if address < bound < end:
                    end = bound
        return end - address

    def _page(self, address: int) -> dict[tuple[int, int], Write]:
        """The last writes to the page of an address, by their ranges."""
        if self._by_page is None:
            self._by_page = defaultdict(dict)
            for write in self._last.values():
                _index(self._by_page, write)
        return self._by_page.get(address >> PAGE_BITS, {})


def _index(by_page: defaultdict[int, dict[tuple[int, int], Write]], write: Write) -> None:
    address, nbytes = write.address, write.nbytes
    for page in range(address >> PAGE_BITS, ((address + nbytes - 1) >> PAGE_BITS) + 1):
        by_page[page][address, nbytes] = write


def _race(covering: list[Write], start_ps: int | None, by: Any, is_message: bool) -> Race | None:
    if not covering:
        return None
    *before, last = covering
    if start_ps is not None:
        # A receive waits for its message.
        others = (each for each in covering if each.by is not by and not (is_message and each.is_arrival))
        late = next((each for each in others if each.end_ps > start_ps), None)
        if late is not None:
            return Race(late, by)
    if not last.is_told:
        rival = last.rival or next((each for each in before if each.end_ps > last.start_ps), None)
        if rival is not None:
            return Race(last, rival.by)
    return Race(last, by) if is_message and not last.is_arrival else None
