"""The page tables of one SIP: what the host maps for its PEs, as messages say it (ADR-0023 D12, ``MmuMapMsg``).

A message maps for all PEs, for those of a cube, or for one PE; where several do, the narrowest counts, so that each PE
may have a copy of its own behind one address. Tables that are alike are kept once: a PE that is not used costs nothing.

Limit: a mapping may begin anywhere in a page, as shards do, and a page may hold parts of several mappings. Each part is
a translation of its own, with base and bounds, where hardware would have page frames. Tables take no memory,
and mapping takes no time: the host's calls deliver the messages, which ``sipsim.control`` does not carry yet.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

from sipsim.core.errors import InvariantViolation, MemoryAccessError, MmuFault

KEPT_UNMAPPED = 256
"""The last mappings that ended, for the message of a fault."""


class MmuMapEntry(NamedTuple):
    """``nbytes`` of virtual addresses from ``va`` on lie at physical address ``pa``."""

    va: int
    pa: int
    nbytes: int


class MmuMapMsg(NamedTuple):
    """Map entries for the PEs of a target; None means all. ``name``: what is mapped, for messages."""

    target_cube: int | None
    target_pe: int | None
    entries: tuple[MmuMapEntry, ...]
    name: str = ""


class MmuUnmapMsg(NamedTuple):
    """End the mappings of a target that begin at these virtual addresses."""

    target_cube: int | None
    target_pe: int | None
    vas: tuple[int, ...]


class Mapping(NamedTuple):
    """An entry that is mapped; ``serial`` is another one for each."""

    va: int
    nbytes: int
    pa: int
    serial: int
    name: str

    def __str__(self) -> str:
        return f"{self.name or 'a mapping'} at {self.va:#x} to {self.va + self.nbytes:#x}"


Target = tuple[int | None, int | None]


class PageTable:
    """The tables of all PEs of a SIP, in pages of ``page_bytes``. ``on_unmap``: told the serial of what is unmapped.

    ``version``: another number after each change.
    """

    def __init__(self, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self.version = 0
        self.on_unmap: list[Callable[[int], None]] = []
        self._tables: dict[Target, list[Mapping]] = {}
        self._ended: deque[Mapping] = deque(maxlen=KEPT_UNMAPPED)
        self._serials = count()

    def map(self, message: MmuMapMsg) -> None:
        """Add the entries of a message.

        Raises:
            InvariantViolation: for an entry that overlaps another of the same target.
        """
        table = self._tables.setdefault((message.target_cube, message.target_pe), [])
        self.version += 1
        for va, pa, nbytes in message.entries:
            index = bisect_right(table, va, key=_va)
            new = Mapping(va, nbytes, pa, next(self._serials), message.name)
            for other in table[max(index - 1, 0) : index + 1]:
                if va < other.va + other.nbytes and other.va < va + nbytes:
                    raise InvariantViolation(f"{new} overlaps {other}; unmap that first")
            table.insert(index, new)

    def unmap(self, message: MmuUnmapMsg) -> None:
        """End mappings; TLBs drop them at once.

        Raises:
            InvariantViolation: for an address at which none of this target begins.
        """
        table = self._tables.get((message.target_cube, message.target_pe), [])
        self.version += 1
        for va in message.vas:
            index = bisect_right(table, va, key=_va) - 1
            if index < 0 or table[index].va != va:
                raise InvariantViolation(f"no mapping begins at {va:#x}, so it cannot be unmapped")
            ended = table.pop(index)
            self._ended.append(ended)
            for drop in self.on_unmap:
                drop(ended.serial)

    def find(self, cube: int, pe: int, address: int, nbytes: int) -> Mapping:
        """The mapping that a range of virtual addresses lies in, as one PE sees it.

        Raises:
            MmuFault: for an address that is not mapped.
            MemoryAccessError: for a range that does not end within the mapping that it begins in.
        """
        for table in self._seen_by(cube, pe):
            index = bisect_right(table, address, key=_va) - 1
            if index >= 0:
                found = table[index]
                if address + nbytes <= found.va + found.nbytes:
                    return found
                if address < found.va + found.nbytes:
                    what = f"{nbytes} bytes at virtual address {address:#x} are not within one shard of a tensor"
                    raise MemoryAccessError(f"{what}: {found}")
        raise self._fault(cube, pe, address, nbytes)

    def _seen_by(self, cube: int, pe: int) -> Iterator[list[Mapping]]:
        """The tables of a PE, the narrowest first."""
        tables = self._tables
        for target in ((cube, pe), (cube, None), (None, None)):
            table = tables.get(target)
            if table:
                yield table

    def _fault(self, cube: int, pe: int, address: int, nbytes: int) -> MmuFault:
        near = [each for table in self._seen_by(cube, pe) for each in table]
        below = max((each for each in near if each.va <= address), key=_va, default=None)
        above = min((each for each in near if each.va > address), key=_va, default=None)
        ended = next((each for each in reversed(self._ended) if each.va <= address < each.va + each.nbytes), None)
        if ended is not None:
            why = f"{ended} was freed; keep the tensor while kernels use it"
        else:
            found = (f"{side} {each}" for side, each in (("below", below), ("above", above)) if each is not None)
            why = f"mapped near it: {', '.join(found) or 'nothing'}"
        return MmuFault(
            f"{nbytes} bytes at virtual address {address:#x} are not mapped for cube {cube}, PE {pe}; {why}",
            cube=cube,
            pe=pe,
        )


def _va(mapping: Mapping) -> int:
    return mapping.va
