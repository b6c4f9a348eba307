"""The bytes of a SIP: pages that come to life, ranges that cross them, bounds, and a plain bytearray as reference."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sipsim.chips.ahbm.address import VIRTUAL_BIT, PhysAddr
from sipsim.chips.ahbm.memory.store import PAGE_BYTES, MemoryStore
from sipsim.core.errors import MemoryAccessError

CAPACITY = 3 * PAGE_BYTES + 100
HBM = "sip1.cube0.pe0.hbm"
EDGES = [0, PAGE_BYTES, 2 * PAGE_BYTES, 3 * PAGE_BYTES, CAPACITY]


def store() -> MemoryStore:
    return MemoryStore(1, {"tcm": 1000, "hbm": CAPACITY, "sram": 64})


def at(offset: int, **changes: Any) -> int:
    return PhysAddr(1, 0, 0, "hbm", offset)._replace(**changes).encode()


near_edges = st.sampled_from(EDGES).flatmap(lambda edge: st.integers(max(edge - 40, 0), min(edge + 40, CAPACITY)))
ranges = st.tuples(near_edges | st.integers(0, CAPACITY), near_edges | st.integers(0, CAPACITY)).map(sorted)


@settings(max_examples=60)
@given(st.lists(st.tuples(ranges, st.integers(0, 255)), max_size=8), st.lists(ranges, min_size=1, max_size=4))
@example([([PAGE_BYTES + 7, PAGE_BYTES + 8], 1)], [[0, CAPACITY]])
@example([([PAGE_BYTES - 1, 2 * PAGE_BYTES + 1], 1), ([PAGE_BYTES + 7, 2 * PAGE_BYTES], 0)], [[0, CAPACITY]])
@example([([0, CAPACITY], 1), ([5, 2 * PAGE_BYTES + 5], 0)], [[0, CAPACITY]])
def test_like_a_bytearray(writes: list[tuple[list[int], int]], reads: list[list[int]]) -> None:
    """Any sequence of writes, clears (0) and reads; across pages, of which some exist, and up to the last byte.
    Data are copied on their way in and out, and no other memory changes.
    """
    memory, plain = store(), bytearray(CAPACITY)
    before = memory.read(at(0), CAPACITY)
    for (start, stop), seed in writes:
        data = bytearray(seed and (seed + i) % 251 for i in range(stop - start))
        if seed:
            memory.write(at(start), data)
        elif data:
            memory.clear(at(start), stop - start)
        plain[start:stop] = data
        data[:] = bytes(len(data))
    for start, stop in reads:
        assert memory.read(at(start), stop - start) == plain[start:stop]
    assert before == bytes(CAPACITY)
    for change in ({"cube": 1}, {"pe": 1}, {"space": "tcm"}, {"space": "sram"}):
        assert memory.read(at(0, **change), 64) == bytes(64)


@pytest.mark.parametrize(
    ("address", "nbytes", "says"),
    [
        (at(CAPACITY), 1, f"1 bytes at {HBM}+{CAPACITY:#x} are outside the memory of {CAPACITY} bytes"),
        (at(CAPACITY - 1), 2, f"2 bytes at {HBM}+{CAPACITY - 1:#x} are outside the memory of {CAPACITY} bytes"),
        (at(1000, space="tcm"), 1, "1 bytes at sip1.cube0.pe0.tcm+0x3e8 are outside the memory of 1000 bytes"),
        (at(0, sip=0), 1, "sip0.cube0.pe0.hbm+0x0 is not a memory of SIP 1"),
        (VIRTUAL_BIT, 1, "0x8000000000000000 is not a physical address"),
        (3 << 36, 1, "0x3000000000 names no memory space"),
        (2**64, 1, "0x10000000000000000 is not a physical address"),
    ],
)
def test_accesses_outside_the_memory_raise(address: int, nbytes: int, says: str) -> None:
    """Read and write refuse alike, by name."""
    memory = store()
    with pytest.raises(MemoryAccessError) as read:
        memory.read(address, nbytes)
    with pytest.raises(MemoryAccessError) as written:
        memory.write(address, bytes(nbytes))
    assert str(read.value) == str(written.value) == says


def test_a_refused_write_changes_nothing() -> None:
    memory = store()
    with pytest.raises(MemoryAccessError):
        memory.write(at(2 * PAGE_BYTES), b"\1" * (PAGE_BYTES + 101))
    assert memory.read(at(2 * PAGE_BYTES), PAGE_BYTES + 100) == bytes(PAGE_BYTES + 100)
