"""Layouts over all PEs of a cube: where each row lies, which copy a kernel reads, what the host reads and writes."""

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hardware import ONE_SIP, Bench, config
from hypothesis import given, settings
from hypothesis import strategies as st

from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.host.layout import DPPolicy, HostTensor
from sipsim.chips.ahbm.host.memory import AddressSpace, Storage
from sipsim.chips.ahbm.host.tensor import Tensor
from sipsim.chips.ahbm.host.torch import Torch
from sipsim.chips.ahbm.memory.store import MemoryStore
from sipsim.chips.ahbm.plan import Plan
from sipsim.core.dtypes import DTYPES
from sipsim.core.errors import MemoryAccessError, OutOfMemoryError

SIP, CUBES, PES = 2, 3, 4
CAPACITY = 16 * 1024
LAYOUTS = [*product(("row_wise", "replicate"), repeat=2)]
ALL = [*product(range(CUBES), range(PES))]

NO_HOST = {**ONE_SIP, "host_copies": "free"}
"""Copies wait in simulated time, which needs the task of a host program."""


def made(
    cube: str, pe: str, rows: int = 24, columns: int = 3, cubes: int = CUBES, pes: int = PES
) -> tuple[Tensor, MemoryStore, AddressSpace]:
    """Element (r, c) is ``columns * r + c``."""
    store = MemoryStore(SIP, {"tcm": 0, "hbm": CAPACITY, "sram": 0})
    space = AddressSpace(store, SIP, CAPACITY)
    tensor = Tensor(space, (rows, columns), DTYPES["i32"], DPPolicy(cube, pe, cubes, pes))
    return tensor.copy_(HostTensor(np.arange(rows * columns).reshape(rows, columns))), store, space


def read_by(space: AddressSpace, store: MemoryStore, tensor: Tensor, element: int, at: tuple[int, int]) -> Any:
    """The element as a kernel on a PE reads it, and the PE that it comes from."""
    pa = space.translation_for(*at)(tensor.va + 4 * element, 4)
    place = PhysAddr.decode(pa)
    assert (place.sip, place.space) == (SIP, "hbm")
    return int.from_bytes(store.read(pa, 4), "little"), (place.cube, place.pe)


def holder_of(row: int, cube: str, pe: str, at: tuple[int, int]) -> tuple[int, int]:
    """The PE of which a kernel at ``at`` reads row ``row`` of 24: counted out, without the code's groups."""
    in_cube = row % 8 if cube == "row_wise" else row
    on_cube = row // 8 if cube == "row_wise" else at[0]
    a_pe = (8 if cube == "row_wise" else 24) // PES
    if pe == "row_wise":
        return on_cube, in_cube // a_pe
    return on_cube, at[1] if on_cube == at[0] else 0


@pytest.mark.parametrize(("cube", "pe"), LAYOUTS)
def test_every_element_from_every_pe(cube: str, pe: str) -> None:
    tensor, store, space = made(cube, pe)
    assert np.array_equal(tensor.numpy(), np.arange(72).reshape(24, 3))
    for element, at in product(range(72), ALL):
        assert read_by(space, store, tensor, element, at) == (element, holder_of(element // 3, cube, pe, at))


def test_the_copies_of_pes_that_have_none() -> None:
    """Two cubes of two PEs hold it: others read the first copy of their cube, or of cube 0."""
    tensor, store, space = made("replicate", "replicate", cubes=2, pes=2)
    seen = {at: read_by(space, store, tensor, 5, at)[1] for at in ALL}
    assert seen == {(c, p): (c if c < 2 else 0, p if c < 2 and p < 2 else 0) for c, p in ALL}
    assert space.translate(tensor.va, 4) == PhysAddr(SIP, 0, 0, "hbm", 0).encode(), "the host reads copy 0"


@pytest.mark.parametrize(("cube", "pe"), LAYOUTS)
def test_each_pe_holds_its_part_and_no_more(cube: str, pe: str) -> None:
    tensor, store, _ = made(cube, pe)
    of_cube, of_pe = (3 if cube == "row_wise" else 1), (4 if pe == "row_wise" else 1)
    assert tensor.elements_per_cube() == 72 // of_cube
    assert tensor.elements_per_pe() == 72 // of_cube // of_pe
    nbytes = 4 * tensor.elements_per_pe()
    for at in ALL:
        first = PhysAddr(SIP, *at, "hbm", 0).encode()
        assert store.read(first + nbytes, 512) == bytes(512)
        mine = np.frombuffer(store.read(first, nbytes), "<i4")
        assert np.array_equal(mine, mine[0] + np.arange(len(mine)))
        assert holder_of(mine[0] // 3, cube, pe, at) == at


@pytest.mark.parametrize(("cube", "pe"), LAYOUTS)
def test_copies_can_be_compared_and_count_for_the_hash(cube: str, pe: str) -> None:
    tensor, store, space = made(cube, pe)
    count = (1 if cube == "row_wise" else CUBES) * (1 if pe == "row_wise" else PES)
    assert [copy.tolist() for copy in tensor.copies()] == [tensor.numpy().tolist()] * count
    before = space.sha256()
    store.write(PhysAddr(SIP, CUBES - 1, PES - 1, "hbm", 0).encode(), b"\xff\xff\xff\x7f")
    assert space.sha256() != before, "a copy that differs changes the digest"
    last = tensor.copies()[-1]
    assert (last == 2**31 - 1).sum() == 1
    assert count == 1 or np.array_equal(tensor.copies()[0], np.arange(72).reshape(24, 3))
    tensor.fill_(7)
    assert all((copy == 7).all() for copy in tensor.copies())


@pytest.mark.parametrize("nbytes", [4, 24])
def test_an_access_does_not_cross_the_shards_of_two_pes(nbytes: int) -> None:
    """Two rows of three a PE: 24 bytes."""
    tensor, _, space = made("row_wise", "row_wise")
    assert space.translate(tensor.va + 24 - nbytes, nbytes)
    with pytest.raises(MemoryAccessError, match=r"not within one shard of a tensor$"):
        space.translate(tensor.va + 24 - nbytes + 1, nbytes)


# --- columns --------------------------------------------------------------------------------------------------

KINDS = ("row_wise", "column_wise", "replicate")


def part(size: int, layout: str, wanted: str, at: int, count: int) -> list[int]:
    """The rows (columns) of one of ``count`` that share ``size`` of them, counted out."""
    return [*range(at * size // count, (at + 1) * size // count)] if layout == wanted else [*range(size)]


def block_of(array: Any, cube: str, pe: str, at: tuple[int, int]) -> Any:
    """What the PE ``at`` of 3 cubes of 4 PEs holds: the cube's part, and of that the PE's."""
    for layout, index, count in ((cube, at[0], CUBES), (pe, at[1], PES)):
        array = array[part(len(array), layout, "row_wise", index, count)]
        array = array[..., part(array.shape[-1], layout, "column_wise", index, count)]
    return array


@pytest.mark.parametrize("shape", [(24, 36), (12, 2, 24), (36, 1, 3, 12)], ids=str)
@pytest.mark.parametrize(("cube", "pe"), [*product(KINDS, repeat=2)])
def test_each_pe_holds_its_block(cube: str, pe: str, shape: tuple[int, ...]) -> None:
    """Contiguous and row by row, at the documented address, and the host sees the tensor as it was written."""
    store = MemoryStore(SIP, {"tcm": 0, "hbm": CAPACITY, "sram": 0})
    space = AddressSpace(store, SIP, CAPACITY)
    tensor = Tensor(space, shape, DTYPES["i32"], DPPolicy(cube, pe, CUBES, PES))
    array = np.arange(tensor.numel(), dtype=np.int32).reshape(shape)
    tensor.copy_(HostTensor(array))
    expected = {at: block_of(array, cube, pe, at) for at in ALL}
    assert {block.shape for block in expected.values()} == {tensor.shard_shape}
    for (c, p), block in expected.items():
        number = 0 if cube == "replicate" else c
        if pe != "replicate":
            number = number * PES + p
        assert tensor.elements_per_pe() == block.size
        pa = space.translation_for(c, p)(tensor.va + number * block.nbytes, block.nbytes)
        place = PhysAddr.decode(pa)
        assert (place.cube, place.pe) == (c, p)
        assert store.read(pa, block.nbytes) == block.tobytes()
    assert np.array_equal(tensor.numpy(), array)
    assert tensor.tobytes() == array.tobytes()
    count = (CUBES if cube == "replicate" else 1) * (PES if pe == "replicate" else 1)
    assert [np.array_equal(copy, array) for copy in tensor.copies()] == [True] * count
    store.write(PhysAddr(SIP, CUBES - 1, PES - 1, "hbm", 0).encode(), b"\xff\xff\xff\x7f")
    last = tensor.copies()[-1]
    assert np.argwhere(last != array).tolist() == np.argwhere(array == expected[CUBES - 1, PES - 1].flat[0]).tolist()


def test_what_the_host_reads_is_its_own() -> None:
    tensor, _, _ = made("column_wise", "row_wise", columns=6)
    tensor.numpy()[:] = 0
    assert np.array_equal(tensor.numpy(), np.arange(144).reshape(24, 6))


# --- memory ---------------------------------------------------------------------------------------------------


def test_out_of_memory_names_the_pe() -> None:
    """Of 16 KiB each, 12 KiB are taken on every PE, and all of them on PE 2 of cube 1 alone by its physical place."""
    store = MemoryStore(SIP, {"tcm": 0, "hbm": CAPACITY, "sram": 0})
    space = AddressSpace(store, SIP, CAPACITY)
    everywhere = DPPolicy("row_wise", "row_wise", 2, 3)
    large = space.allocate((6, 6 * 1024), DTYPES["f16"], everywhere)
    space._free[1, 2].take(0, 4 * 1024)
    with pytest.raises(OutOfMemoryError) as refused:
        space.allocate((3, 1024), DTYPES["f16"], DPPolicy("replicate", "row_wise", 2, 3))
    assert str(refused.value) == (
        "a tensor of 2048 bytes per PE does not fit HBM of cube 1, PE 2: 0 bytes are free; use a smaller size or "
        "raise cube.hbm_MiB_per_pe; the largest tensors: tensor 0: (6, 6144) f16, 73728 bytes"
    )
    assert (refused.value.cube, refused.value.pe) == (1, 2)
    small = space.allocate((2, 2048), DTYPES["f16"], DPPolicy("row_wise", "replicate", 2, 2))
    assert [PhysAddr.decode(block.pa)[1:3] for s in small.allocation.segments for block in s.blocks()] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ], "the refused tensor took nothing"
    assert large.allocation.segments[0].nbytes == 12 * 1024


STEP = st.tuples(
    st.sampled_from(LAYOUTS), st.integers(1, CUBES), st.integers(1, PES), st.integers(1, 9), st.integers(0, 5)
)


@settings(max_examples=25)
@given(st.lists(STEP, max_size=25))
def test_random_layouts_and_frees(steps: list[Any]) -> None:
    """Live tensors overlap on no PE, each PE reads its copy, and all memory is free again at the end."""
    store = MemoryStore(SIP, {"tcm": 0, "hbm": CAPACITY, "sram": 0})
    space = AddressSpace(store, SIP, CAPACITY)
    kept: list[Storage] = []
    for layout, cubes, pes, words, keep in steps:
        del kept[keep:]
        dp = DPPolicy(*layout, cubes, pes)
        kept.append(space.allocate((len(dp.holders()), 32 * words), DTYPES["i32"], dp))
        segments = [segment for storage in kept for segment in storage.allocation.segments]
        blocks = sorted(block for segment in segments for block in segment.blocks())
        assert all(pa + nbytes <= other for (pa, nbytes), (other, _) in pairwise(blocks))
        for segment, at in product(kept[-1].allocation.segments, ALL):
            own = PhysAddr.decode(space.translation_for(*at)(segment.va, segment.nbytes))
            assert ((own.cube, own.pe) == at) == (at in [(p.cube, p.pe) for p in map(PhysAddr.decode, _pas(segment))])
    kept.clear()
    whole = space.allocate((CUBES * PES, CAPACITY // 4), DTYPES["i32"], DPPolicy("row_wise", "row_wise", CUBES, PES))
    assert {PhysAddr.decode(segment.pa).offset for segment in whole.allocation.segments} == {0}


def _pas(segment: Any) -> list[int]:
    return [block.pa for block in segment.blocks()]


def test_numbers_of_numpy_are_numbers() -> None:
    assert DPPolicy(num_cubes=np.int64(2), num_pes=np.int64(3)) == DPPolicy(num_cubes=2, num_pes=3)


# --- layouts without a number of cubes ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "cubes_of_sip", "shape", "cubes"),
    [
        ({}, 16, (1, 16), 1),
        ({}, 16, (32, 2), 16),
        ({}, 16, (24, 2), 12),
        ({}, 4, (16, 8), 4),
        ({}, 32, (32, 2), 16),
        ({"cube": "column_wise"}, 16, (1, 10), 10),
        ({"cube": "replicate"}, 16, (1, 16), 16),
        ({"pe": "row_wise", "num_pes": 4}, 16, (8, 2), 2),
    ],
)
def test_a_layout_without_num_cubes_takes_as_many_as_share_the_tensor(
    layout: dict[str, Any], cubes_of_sip: int, shape: tuple[int, ...], cubes: int
) -> None:
    assert DPPolicy(**layout).fitted(shape, cubes_of_sip) == DPPolicy(**layout, num_cubes=cubes)


@pytest.mark.parametrize("cubes", [2, 16])
def test_a_given_number_of_cubes_stays(cubes: int) -> None:
    torch = Torch(Bench(Plan(config({**NO_HOST, "sip.cube_mesh.w": 4, "sip.cube_mesh.h": 4}))).sip)
    with pytest.raises(ValueError, match=f"which {cubes} cubes cannot share equally"):
        torch.zeros((1, 16), dp=DPPolicy(num_cubes=cubes))
    assert torch.zeros((1, 16), dp=DPPolicy()).dp.num_cubes == 1


def test_rows_that_the_pes_of_no_number_of_cubes_can_share() -> None:
    with pytest.raises(ValueError, match="which 16 cubes of 4 PEs cannot share equally"):
        DPPolicy(pe="row_wise", num_pes=4).fitted((6, 2), 16).block_shape((6, 2))


# --- mistakes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"pe": "rows"}, "DPPolicy pe='rows' is not available; allowed: row_wise, column_wise, replicate"),
        ({"cube": "columns"}, "DPPolicy cube='columns' is not available; allowed: row_wise, column_wise, replicate"),
        ({"num_pes": 0}, "DPPolicy num_pes=0: must be at least 1"),
    ],
)
def test_layouts_that_do_not_exist(keys: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match="DPPolicy") as refused:
        DPPolicy(**keys)
    assert str(refused.value) == line


def test_more_pes_than_a_cube_has() -> None:
    torch = Torch(Bench(Plan(config({**ONE_SIP, "cube.pes": 3}))).sip)
    with pytest.raises(ValueError, match=r"^DPPolicy num_pes=4: a cube has 3 PEs;"):
        torch.zeros((4, 4), dp=DPPolicy(num_cubes=1, num_pes=4))


def test_the_layout_of_a_view_makes_no_tensor() -> None:
    torch = Torch(Bench(Plan(config({**NO_HOST, "cube.pes": 4}))).sip)
    view = torch.zeros((4, 4), dp=DPPolicy("row_wise", "row_wise", 1, 4)).narrow(0, 1, 2)
    assert repr(view) != repr(torch.zeros((2, 4), dp=DPPolicy(num_cubes=1)))
    with pytest.raises(TypeError, match="give a DPPolicy, such as"):
        torch.zeros((2, 4), dp=view.dp)
