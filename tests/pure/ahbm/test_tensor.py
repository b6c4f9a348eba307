"""Device tensors: the placement of each byte, and what a kernel may address."""

import contextlib
import gc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hardware import ONE_SIP, Bench, config
from hypothesis import given
from hypothesis import strategies as st

from sipsim.chips.ahbm.address import MIB, VIRTUAL_BIT, PhysAddr
from sipsim.chips.ahbm.host import memory as allocator
from sipsim.chips.ahbm.host.layout import DPPolicy, HostTensor
from sipsim.chips.ahbm.host.memory import ALIGN_BYTES, LEAST_MADE_BYTES, AddressSpace, Storage
from sipsim.chips.ahbm.host.tensor import Tensor
from sipsim.chips.ahbm.host.torch import Torch
from sipsim.chips.ahbm.memory.store import MemoryStore
from sipsim.chips.ahbm.plan import Plan
from sipsim.core.dtypes import DTYPES, dtype_of
from sipsim.core.errors import MemoryAccessError, OutOfMemoryError

CUBES = 4
CAPACITY = 64 * 1024


def memory() -> MemoryStore:
    return MemoryStore(2, {"tcm": 0, "hbm": CAPACITY, "sram": 0})


def space(reserved: int = 0, store: MemoryStore | None = None) -> AddressSpace:
    return AddressSpace(store or memory(), 2, CAPACITY - reserved)


def allocate(addresses: AddressSpace, cubes: int, nbytes: int) -> Storage:
    """``nbytes``, a multiple of 2, on each of the first ``cubes``."""
    return addresses.allocate((cubes, nbytes // 2), DTYPES["f16"], DPPolicy(num_cubes=cubes))


def tensor(shape: tuple[int, ...], dtype: str = "i32", cubes: int = CUBES) -> tuple[Tensor, MemoryStore, AddressSpace]:
    store = memory()
    addresses = space(store=store)
    return Tensor(addresses, shape, DTYPES[dtype], DPPolicy(num_cubes=cubes)), store, addresses


def hbm(cube: int, offset: int) -> int:
    return PhysAddr(2, cube, 0, "hbm", offset).encode()


def test_each_cube_holds_its_block_of_rows() -> None:
    """Eight rows on four cubes: two each, in order."""
    made, store, _ = tensor((8, 3))
    values = np.arange(24, dtype="<i4").reshape(8, 3)
    made.copy_(HostTensor(values))
    for cube in range(CUBES):
        assert store.read(hbm(cube, 0), 24) == values[2 * cube : 2 * cube + 2].tobytes()
    assert np.array_equal(made.numpy(), values)
    assert (made.nbytes, made.numel(), made.elements_per_cube()) == (96, 24, 6)


def test_one_range_of_virtual_addresses() -> None:
    """A kernel finds cube c's shard at the start plus c shards."""
    made, store, addresses = tensor((4, 3))
    made.copy_(HostTensor(np.arange(12).reshape(4, 3)))
    for element in range(12):
        where = addresses.translate(made.va + 4 * element, 4)
        assert int.from_bytes(store.read(where, 4), "little") == element
        assert PhysAddr.decode(where) == PhysAddr(2, element // 3, 0, "hbm", element % 3 * 4)


@pytest.mark.parametrize(
    ("start", "nbytes"), [(0, 13), (4, 12), (12, 13), (11, 2), (44, 8), (48, 1), (-1, 1), (10**9, 4)]
)
def test_ranges_outside_one_shard(start: int, nbytes: int) -> None:
    """Across two shards, past the end, before the start."""
    made, _, addresses = tensor((4, 3))
    with pytest.raises(MemoryAccessError, match=f"^{nbytes} bytes at virtual address 0x[0-9a-f]+ are not within one"):
        addresses.translate((made.va + start) | VIRTUAL_BIT, nbytes)


def test_physical_addresses_pass_through() -> None:
    assert space().translate(hbm(3, 40), 99) == hbm(3, 40)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 350)), min_size=1, max_size=12))
def test_allocations_never_overlap(wanted: list[tuple[int, int]]) -> None:
    """Neither in virtual nor in physical space, and each starts aligned."""
    addresses = space()
    kept = [allocate(addresses, cubes, 2 * words) for cubes, words in wanted]
    segments = [segment for storage in kept for segment in storage.allocation.segments]
    for key in ("va", "pa"):
        ordered = sorted((getattr(s, key), s.nbytes) for s in segments)
        assert all(a + n <= b for (a, n), (b, _) in pairwise(ordered))
    assert all(s.pa % ALIGN_BYTES == 0 for s in segments)
    for segment in segments:
        assert addresses.translate(segment.va, segment.nbytes) == segment.pa


def test_out_of_memory_below_the_reserved_bytes() -> None:
    addresses = space(reserved=1024)
    kept = [allocate(addresses, 1, nbytes) for nbytes in (512, CAPACITY - 2048, 512)]
    with pytest.raises(OutOfMemoryError) as refused:
        allocate(addresses, 2, 2)
    assert str(refused.value) == (
        "a tensor of 2 bytes per PE does not fit HBM of cube 0, PE 0: 0 bytes are free; use a smaller size or raise "
        "cube.hbm_MiB_per_pe; the largest tensors: tensor 1: (1, 31744) f16, 63488 bytes; "
        "tensor 0: (1, 256) f16, 512 bytes; tensor 2: (1, 256) f16, 512 bytes"
    )
    del kept[0]
    with pytest.raises(OutOfMemoryError, match=r"512 bytes are free; .*: tensor 1: [^;]*; tensor 2: [^;]*$"):
        allocate(addresses, 1, 514)
    del kept[1]
    with pytest.raises(OutOfMemoryError, match="1024 bytes are free, at most 512 bytes in one piece; use"):
        allocate(addresses, 1, 514)


def test_an_allocation_that_does_not_fit_takes_nothing() -> None:
    """Cube 1 has room, cube 0 has not; the other way round it would be found first."""
    addresses = space()
    both, first = allocate(addresses, 2, CAPACITY // 2), allocate(addresses, 1, CAPACITY // 2)
    with pytest.raises(OutOfMemoryError, match="does not fit HBM of cube 0"):
        allocate(addresses, 2, 2)
    del first
    assert offsets(allocate(addresses, 2, CAPACITY // 2)) == [CAPACITY // 2] * 2
    assert offsets(both) == [0, 0]


# --- freeing --------------------------------------------------------------------------------------------------


def offsets(storage: Storage) -> list[int]:
    return [PhysAddr.decode(segment.pa).offset for segment in storage.allocation.segments]


def test_the_first_block_that_fits_is_taken_again() -> None:
    addresses = space()
    kept = {name: allocate(addresses, 2, 512) for name in "abcd"}
    for name in "acb":
        del kept[name]
        addresses.free_dead()
    assert offsets(kept["d"]) == [1536, 1536]
    wide = allocate(addresses, 2, 1026)
    small, next_small = allocate(addresses, 1, 2), allocate(addresses, 2, 2)
    assert (offsets(wide), offsets(small), offsets(next_small)) == ([0, 0], [1280], [2048, 1280])


def test_a_freed_range_is_no_longer_translated() -> None:
    addresses = space()
    first, second = allocate(addresses, 4, 64), allocate(addresses, 4, 64)
    va, other = first.allocation.segments[2].va, second.allocation.segments[3]
    del first
    assert addresses.translate(va, 2), "memory returns when it is needed, and not before"
    addresses.free_dead()
    with pytest.raises(MemoryAccessError, match="not within one shard"):
        addresses.translate(va, 2)
    assert addresses.translate(other.va, 64) == other.pa
    third = allocate(addresses, 4, 64)
    assert third.allocation.segments[0].va > other.va, "virtual addresses are never used again"


def test_a_freed_tensor_reads_zero_and_its_hash_is_kept() -> None:
    made, store, addresses = tensor((4, 5))
    made.fill_(7)
    other = made
    before, where = addresses.sha256(), made.shards[3].pa
    del made
    addresses.free_dead()
    assert store.read(where, 20) == other.numpy()[3].tobytes()
    del other
    addresses.free_dead()
    assert addresses.sha256() == before, "the hash covers freed tensors"
    assert not any(store.read(where, 20))
    store.write(where, b"written by its physical address")
    again = Tensor(addresses, (4, 6), DTYPES["i32"], DPPolicy(num_cubes=4))
    assert (again.shards[3].pa, again.numpy().any()) == (where, False)
    assert addresses.sha256() != before


def plain(made: Tensor) -> object:
    return None


def in_a_cycle(made: Tensor) -> object:
    cycle: list[object] = [made]
    cycle.append(cycle)
    return None


def in_a_cycle_that_was_collected(made: Tensor) -> object:
    in_a_cycle(made)
    gc.collect()
    return None


def in_an_exception(made: Tensor) -> object:
    try:
        raise ValueError(made)
    except ValueError as error:
        kept = error
        return kept and None


@pytest.mark.parametrize("hold", [plain, in_a_cycle, in_a_cycle_that_was_collected, in_an_exception])
def test_what_the_program_cannot_reach_returns_whenever_python_has_noticed(hold: Callable[[Tensor], object]) -> None:
    """The next tensor that needs the room gets it; one that does not leaves it, also after a collection."""
    made, _, addresses = tensor((4, 5))
    hold(made)
    where = made.shards[0].pa
    del made
    small = allocate(addresses, 4, 20)
    gc.collect()
    assert [offsets(allocate(addresses, 4, 20))[0] for _ in range(2)] == [2 * ALIGN_BYTES, 3 * ALIGN_BYTES]
    assert len(addresses.live()) == 4
    assert offsets(small)[0] == ALIGN_BYTES
    del small
    whole = allocate(addresses, 4, CAPACITY)
    assert (whole.allocation.segments[0].pa, len(addresses.live())) == (where, 1)


def test_dead_tensors_return_when_as_much_was_made_as_is_alive() -> None:
    """Before there is no room: a script that drops its tensors does not fill the host."""
    store = MemoryStore(2, {"tcm": 0, "hbm": 4 * LEAST_MADE_BYTES, "sram": 0})
    addresses = AddressSpace(store, 2, 4 * LEAST_MADE_BYTES)
    third = LEAST_MADE_BYTES // 3 // ALIGN_BYTES * ALIGN_BYTES
    assert [offsets(allocate(addresses, 1, third))[0] // third for _ in range(5)] == [0, 1, 2, 0, 1]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(0, 5)), max_size=40))
def test_random_allocations_and_frees(steps: list[tuple[int, int, int]]) -> None:
    """Live tensors never overlap, a new one reads zero, and all memory is free again at the end."""
    store = memory()
    addresses = space(store=store)
    kept: list[Storage] = []
    for cubes, blocks, keep in steps:
        del kept[keep:]
        with contextlib.suppress(OutOfMemoryError):
            made = allocate(addresses, cubes, ALIGN_BYTES * blocks * 8)
            assert not any(any(part) for part in addresses.read(made.allocation))
            for segment in made.allocation.segments:
                store.write(segment.pa, b"\7" * segment.nbytes)
            kept.append(made)
            del made
        segments = [segment for storage in kept for segment in storage.allocation.segments]
        ordered = sorted((segment.pa, segment.nbytes) for segment in segments)
        assert all(a + n <= b for (a, n), (b, _) in pairwise(ordered))
        assert all(addresses.translate(segment.va, segment.nbytes) == segment.pa for segment in segments)
    kept.clear()
    assert offsets(allocate(addresses, 4, CAPACITY)) == [0] * 4


@pytest.mark.parametrize(("kind", "reserved"), [("hbm", 8 * 16384 + MIB), ("tcm", 0)])
def test_torch_does_not_allocate_the_rings(kind: str, reserved: int) -> None:
    """Rings in HBM lie at its top: PE 0 of a 2x1 mesh has one, below it are 1 MiB for rings of groups."""
    settings = {
        **ONE_SIP,
        "host_copies": "free",
        "cube.hbm_MiB_per_pe": 2,
        "defaults.buffer_kind": kind,
        "defaults.slot_size": 16384,
    }
    torch = Torch(Bench(Plan(config(settings))).sip)
    room = 2 * MIB - reserved
    kept = torch.zeros((2, room // 4), dtype="i32")
    with pytest.raises(OutOfMemoryError, match="0 bytes are free"):
        torch.zeros((2, 1), dtype="i32")
    assert kept.nbytes == 2 * room


@pytest.mark.parametrize(
    ("given_type", "dtype", "expected"),
    [
        ("<f8", "f16", [1.0, -2.5, 2048.0, np.inf]),
        ("<i8", "i32", [1, -2, 7, 2**31 - 1]),
        (">f4", "f32", [1, 2, 3, 4]),
        ("<f4", "bf16", [1.0, -2.5, 2.0**127, np.inf]),
        ("<i4", "bf16", [1, -255, 256, 0]),
        (DTYPES["bf16"].numpy, "bf16", [1, -2.5, 3, 0]),
        (DTYPES["bf16"].numpy, "f32", [1, -2.5, 3, 0]),
        ("?", "i8", [1, 0, 1, 0]),
        ("u1", "i8", [1, 2, 127, 0]),
    ],
)
def test_copies_convert_on_the_host(given_type: str, dtype: str, expected: list[float]) -> None:
    """Any array, in any byte order."""
    made, store, _ = tensor((4,), dtype)
    made.copy_(HostTensor(np.array(expected, given_type)))
    assert made.numpy().tolist() == expected
    assert made.numpy().dtype == DTYPES[dtype].numpy
    assert store.read(hbm(0, 0), DTYPES[dtype].itemsize) == np.array(expected[:1], DTYPES[dtype].numpy).tobytes()


@pytest.mark.parametrize(
    ("given", "dtype", "expected"),
    [
        (np.float32([1 + 2**-8, 1 + 3 * 2**-8, 3e38, -0.0]), "bf16", [1.0, 1 + 2**-6, 3e38, -0.0]),
        (np.float32([1e9, -1e9, 1.9, np.nan]), "i8", [127, -128, 1, 0]),
        (np.float64([1e19, -1e19, -1.9, np.nan]), "i32", [2**31 - 1, -(2**31), -1, 0]),
        (np.int64([128, -129, 256, 2**40 + 3]), "i8", [-128, 127, 0, 3]),
    ],
)
def test_copies_round_and_keep_within_the_type(given: Any, dtype: str, expected: list[float]) -> None:
    """To the nearest, ties to even; floats to integers within the range, integers to integers by wrapping."""
    made, _, _ = tensor((4,), dtype)
    made.copy_(HostTensor(given))
    assert made.numpy().tobytes() == np.array(expected, DTYPES[dtype].numpy).tobytes()


@pytest.mark.parametrize(("dtype", "value"), [("bf16", 0.1), ("i8", -7)])
def test_fill(dtype: str, value: float) -> None:
    made, _, _ = tensor((4, 3), dtype)
    assert np.all(made.fill_(value).numpy() == np.array(value, DTYPES[dtype].numpy))
    assert made.nbytes == 12 * DTYPES[dtype].itemsize


def test_arrays_that_are_not_contiguous() -> None:
    made, _, _ = tensor((4, 2))
    values = np.arange(8, dtype="<i4").reshape(2, 4).T
    made.copy_(HostTensor(values))
    assert np.array_equal(made.numpy(), values)


def test_copy_between_device_tensors_and_fill() -> None:
    one, _, _ = tensor((4, 5), "f32")
    two, _, _ = tensor((4, 5), "f16")
    assert one.fill_(2.5) is one
    assert two.copy_(one).numpy().tolist() == [[2.5] * 5] * 4
    assert two.cpu().numpy().tolist() == [[2.5] * 5] * 4


@given(st.data())
def test_a_view_is_its_rows_of_the_same_memory(data: st.DataObject) -> None:
    """Rows inside a block or whole blocks, of a tensor or of a view, at their addresses; others stay as they are."""
    made, _, addresses = tensor((24, 2))
    view, want = made, np.arange(48, dtype=np.int32).reshape(24, 2)
    made.copy_(HostTensor(want))
    for _ in range(data.draw(st.integers(1, 3))):
        block = view.shape[0] // len(view.shards)
        step = data.draw(st.sampled_from([1, block]))
        within = block if step == 1 else view.shape[0]
        start = data.draw(st.integers(0, within // step - 1)) * step
        length = data.draw(st.integers(1, (within - start) // step)) * step
        start += data.draw(st.integers(0, view.shape[0] // within - 1)) * within
        view, want = view.narrow(0, start, length), want[start : start + length]
        assert np.array_equal(view.numpy(), want)
        assert view.tobytes() == want.tobytes()
    assert int(view.pointer()) == made.va + int(want[0, 0]) * 4
    assert view.dp.places() == made.dp.places()
    whole, start = made.numpy(), int(want[0, 0]) // 2
    whole[start : start + len(want)] = -1
    view.fill_(-1)
    assert np.array_equal(made.numpy(), whole)
    assert addresses.translate(int(view.pointer()), view.shards[0].nbytes) == view.shards[0].pa


def test_operations_take_whole_tensors() -> None:
    made, _, _ = tensor((8, 3), "f32")
    view = made.narrow(0, 0, 2)
    calls = (lambda: view + 1, lambda: made + view, lambda: view @ made, lambda: made @ view)
    for operation in (*calls, view.relu, view.softmax, lambda: view[0], lambda: view.to("f16")):
        with pytest.raises(TypeError, match="is a view, which has no operations; copy_ it into"):
            operation()


def test_numpy_is_a_copy() -> None:
    made, _, _ = tensor((4,))
    array = made.numpy()
    array[:] = 9
    assert made.numpy().tolist() == [0] * 4


def test_mistakes_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"\(6, 3\) has 6 rows, which 4 cubes cannot share equally; use a multiple"):
        tensor((6, 3))
    made, _, _ = tensor((4, 3))
    with pytest.raises(ValueError, match=r"cannot copy a tensor of shape \(3,\) into one of shape \(4, 3\)"):
        made.copy_(HostTensor(np.zeros(3)))
    with pytest.raises(ValueError, match="num_cubes=0: must be at least 1"):
        DPPolicy(num_cubes=0)


@pytest.mark.parametrize(
    ("given_type", "name"),
    [
        ("f16", "f16"),
        (np.float16, "f16"),
        (np.dtype("<f4"), "f32"),
        ("float32", "f32"),
        (np.int32, "i32"),
        ("bfloat16", "bf16"),
        (DTYPES["bf16"].numpy, "bf16"),
        (np.int8, "i8"),
        (DTYPES["i32"], "i32"),
    ],
)
def test_types_by_their_names(given_type: object, name: str) -> None:
    assert dtype_of(given_type) is DTYPES[name]


@pytest.mark.parametrize("given_type", ["f8", np.float64, 3, ">f4", np.uint32])
def test_unknown_types(given_type: object) -> None:
    with pytest.raises(TypeError, match="is not available; allowed: f16, bf16, f32, i32, i8"):
        dtype_of(given_type)


def test_tensors_of_few_bytes_count_as_what_they_take_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "LEAST_MADE_BYTES", 64 * allocator.RECORD_BYTES)
    addresses = AddressSpace(MemoryStore(2, {"tcm": 0, "hbm": 2**20, "sram": 0}), 2, 2**20)
    alive = []
    for _ in range(300):
        allocate(addresses, 1, 4)
        alive.append(len(addresses.live()))
    assert max(alive) <= 64 + 1
