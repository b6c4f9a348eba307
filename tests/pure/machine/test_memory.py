"""The bytes of a SIP: pages that come to life, ranges that cross them, bounds, and a plain bytearray as reference."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sipsim.errors import MemoryAccessError
from sipsim.memory.store import PAGE_BYTES, MemoryStore
from sipsim.topology.address import VIRTUAL_BIT, PhysAddr

CAPACITY = 3 * PAGE_BYTES + 100
HBM = "sip1.cube0.pe0.hbm"
EDGES = [0, PAGE_BYTES, 2 * PAGE_BYTES, 3 * PAGE_BYTES, CAPACITY]


def store() -> MemoryStore:
    return MemoryStore(1, {"tcm": 1000, "hbm": CAPACITY, "sram": 64})


def at(offset: int, **changes: Any) -> int:
    return PhysAddr(1, 0, 0, "hbm", offset)._replace(**changes).encode()


def test_unwritten_bytes_read_as_zero() -> None:
    """Beside written bytes too, and across pages of which some exist."""
    memory = store()
    assert memory.read(at(0), CAPACITY) == bytes(CAPACITY)
    memory.write(at(PAGE_BYTES + 7), b"x")
    assert memory.read(at(0), CAPACITY) == bytes(PAGE_BYTES + 7) + b"x" + bytes(CAPACITY - PAGE_BYTES - 8)


@pytest.mark.parametrize("start", [PAGE_BYTES - 1, PAGE_BYTES, PAGE_BYTES - 1000, 2 * PAGE_BYTES - 3])
@pytest.mark.parametrize("nbytes", [1, 2, 1000, PAGE_BYTES, PAGE_BYTES + 2])
def test_ranges_across_pages(start: int, nbytes: int) -> None:
    memory = store()
    data = bytes((3 * i + 1) % 251 for i in range(nbytes))
    memory.write(at(start), data)
    assert memory.read(at(start), nbytes) == data
    assert memory.read(at(start - 1), nbytes + 2) == b"\0" + data + b"\0"


near_edges = st.sampled_from(EDGES).flatmap(lambda edge: st.integers(max(edge - 40, 0), min(edge + 40, CAPACITY)))
ranges = st.tuples(near_edges | st.integers(0, CAPACITY), near_edges | st.integers(0, CAPACITY)).map(sorted)


@settings(max_examples=60)
@given(st.lists(st.tuples(ranges, st.integers(1, 255)), max_size=8), st.lists(ranges, min_size=1, max_size=4))
def test_like_a_bytearray(writes: list[tuple[list[int], int]], reads: list[list[int]]) -> None:
    """Any sequence of writes and reads."""
    memory, plain = store(), bytearray(CAPACITY)
    other = at(0, pe=1)
    for (start, stop), seed in writes:
        data = bytes([seed]) * (stop - start)
        memory.write(at(start), data)
        plain[start:stop] = data
    for start, stop in reads:
        assert memory.read(at(start), stop - start) == plain[start:stop]
    assert memory.read(other, CAPACITY) == bytes(CAPACITY)


def test_a_read_is_a_copy() -> None:
    memory = store()
    memory.write(at(8), b"first")
    read = memory.read(at(8), 5)
    memory.write(at(8), b"later")
    assert read == b"first"


def test_a_write_keeps_its_own_copy() -> None:
    memory, data = store(), bytearray(PAGE_BYTES)
    memory.write(at(0), data)
    data[0] = 1
    assert memory.read(at(0), 1) == b"\0"


@pytest.mark.parametrize(
    "change", [{"cube": 1}, {"pe": 1}, {"space": "tcm"}, {"space": "sram"}], ids=lambda change: str(change)
)
def test_memories_are_apart(change: dict[str, Any]) -> None:
    memory = store()
    memory.write(at(0), b"mine")
    assert memory.read(at(0, **change), 4) == bytes(4)


@pytest.mark.parametrize(
    ("address", "nbytes", "says"),
    [
        (at(CAPACITY), 1, f"1 bytes at {HBM}+{CAPACITY:#x} are outside its memory of {CAPACITY} bytes"),
        (at(CAPACITY - 1), 2, f"2 bytes at {HBM}+{CAPACITY - 1:#x} are outside its memory of {CAPACITY} bytes"),
        (at(1000, space="tcm"), 1, "1 bytes at sip1.cube0.pe0.tcm+0x3e8 are outside its memory of 1000 bytes"),
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


def test_up_to_the_last_byte() -> None:
    memory = store()
    memory.write(at(CAPACITY - 2), b"ab")
    assert memory.read(at(CAPACITY - 2), 2) == b"ab"
    assert memory.read(at(CAPACITY), 0) == b""


@pytest.mark.parametrize(("start", "nbytes"), [(0, 10), (5, PAGE_BYTES), (PAGE_BYTES, PAGE_BYTES), (7, 2 * PAGE_BYTES)])
def test_cleared_bytes_are_zero_and_no_others(start: int, nbytes: int) -> None:
    memory, size = store(), 3 * PAGE_BYTES
    memory.write(at(0), b"\1" * size)
    memory.clear(at(start), nbytes)
    assert memory.read(at(0), size) == b"\1" * start + bytes(nbytes) + b"\1" * (size - start - nbytes)
