"""Tensors in memory: the place of each page of each layout and memory config, and the segments that operations cut."""

from collections import Counter, defaultdict
from itertools import product
from typing import Any

import numpy as np
import pytest

from sipsim.chips.api.chip import CHIPS
from sipsim.chips.config import load
from sipsim.chips.tensix.ccl.placement import SHARDED, MemoryConfig, memory_config_of
from sipsim.chips.tensix.ccl.tensors import Segments, Store, Tensor, pieces, segments_of, to_pages
from sipsim.chips.tensix.formats import FORMATS
from sipsim.chips.tensix.noc import Core, FloorPlan
from sipsim.config.load import parse_set
from sipsim.core.errors import KernelMisuse

PARAMS: Any = CHIPS.get("wormhole").params(load(overrides=[parse_set("system.chip=wormhole")]))
PLAN = FloorPlan(PARAMS)
L1_BASE = 2**17
SHAPES = ((64, 96), (2, 96, 32), (2, 5, 40), (7, 30), (64,), (1, 4001))
CONFIGS = [MemoryConfig("interleaved", memory) for memory in ("dram", "l1")]
CONFIGS += [MemoryConfig(kind, memory) for kind, memory in product(SHARDED, ("dram", "l1"))]
CASES = [
    (shape, layout, config)
    for shape, layout, config in product(SHAPES, ("tile", "row_major"), CONFIGS)
    if layout == "row_major" or shape[:-3:-1] in ((96, 64), (32, 96))
]


def tensor(shape: tuple[int, ...], layout: str | None, config: MemoryConfig, dtype: str = "f32") -> Tensor:
    """A tensor behind another one of the same memory."""
    store = Store(PLAN, PARAMS, L1_BASE)
    store.make((3, 11), FORMATS[dtype], MemoryConfig("interleaved", config.buffer_type))
    return store.make(shape, FORMATS[dtype], config, layout=layout)


@pytest.mark.parametrize(("shape", "layout", "config"), CASES, ids=str)
def test_each_page_has_bytes_of_its_own_on_a_core_of_the_memory(
    shape: tuple[int, ...], layout: str, config: MemoryConfig
) -> None:
    made = tensor(shape, layout, config)
    size = made.pages.page_bytes
    assert made.nbytes == 4 * np.prod(shape)
    places = [made.place(page) for page in range(made.pages.n_pages)]
    assert all((address - made.base) % size == 0 for _, address in places)
    assert len(set(places)) == len(places)
    assert all(made.base <= address <= made.base + made.core_bytes - size for _, address in places)
    assert {core for core, _ in places} <= set(PLAN.dram if config.buffer_type == "dram" else PLAN.workers)


@pytest.mark.parametrize(("shape", "layout", "config"), [each for each in CASES if each[2].memory_layout in SHARDED])
def test_shards_are_equal_blocks(shape: tuple[int, ...], layout: str, config: MemoryConfig) -> None:
    """A shard fills its core's room, has each of its rows with each of its columns, and is whole in kept directions."""
    made = tensor(shape, layout, config)
    pages: dict[Core, list[tuple[int, int]]] = defaultdict(list)
    width = made.pages.grid[-1]
    for page in range(made.pages.n_pages):
        pages[made.place(page).core].append(divmod(page, width))
    grid = made.memory_config.core_grid
    assert grid is not None
    assert len(pages) == grid[0] * grid[1]
    for block in pages.values():
        rows, columns = ({each[axis] for each in block} for axis in (0, 1))
        assert sorted(product(rows, columns)) == sorted(block)
        assert len(block) * made.pages.page_bytes == made.core_bytes
        assert all(set(range(min(each), max(each) + 1)) == each for each in (rows, columns))
        assert config.memory_layout != "height_sharded" or len(columns) == width
        assert config.memory_layout != "width_sharded" or len(rows) == made.pages.n_pages // width


def test_default_cores_are_the_most_that_divide() -> None:
    """On 10 rows x 8 columns of workers. Shards of rows have whole words of 16 B."""
    found = {
        (kind, layout): tensor((10 * 32, 6 * 32), layout, MemoryConfig(kind)).memory_config.core_grid
        for kind, layout in product(SHARDED, ("tile", "row_major"))
    }
    assert {key: np.prod(grid) for key, grid in found.items() if grid} == {
        ("height_sharded", "tile"): 10,
        ("width_sharded", "tile"): 6,
        ("block_sharded", "tile"): 60,
        ("height_sharded", "row_major"): 80,
        ("width_sharded", "row_major"): 48,
        ("block_sharded", "row_major"): 80,
    }


def memory_of(array: "np.ndarray[Any, Any]", made: Tensor) -> dict[Core, bytearray]:
    """The memory of each core from a tensor's base on."""
    data, size = to_pages(array, made.dtype, made.pages), made.pages.page_bytes
    memory: dict[Core, bytearray] = defaultdict(lambda: bytearray(made.core_bytes))
    for page in range(made.pages.n_pages):
        core, address = made.place(page)
        memory[core][address - made.base : address - made.base + size] = data[page * size : (page + 1) * size]
    return memory


def sliced(array: "np.ndarray[Any, Any]", dim: int, slices: int, layout: str) -> list[bytes]:
    """The bytes of slices of an array, in the order of segments."""
    store, dtype, config = Store(PLAN, PARAMS, L1_BASE), FORMATS["i32"], memory_config_of("dram")
    parts = np.split(array, slices, dim)
    return [to_pages(part, dtype, store.make(part.shape, dtype, config, layout=layout).pages) for part in parts]


@pytest.mark.parametrize("most_bytes", [6144, 4096 + 20])
@pytest.mark.parametrize(("shape", "dim", "layout"), [((64, 192), 1, "tile"), ((4, 192), 1, "row_major"),
                         ((6, 2, 40), 0, "row_major"), ((6000,), 0, "row_major")])  # fmt: skip
def test_groups_of_segments_are_slices(shape: tuple[int, ...], dim: int, layout: str, most_bytes: int) -> None:
    """Slices of a tensor in any config, to a result in any config: each group is these bytes at one place in both."""
    array = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    result_shape = tuple(each // 2 if n == dim else each for n, each in enumerate(shape))
    rights = sliced(array, dim, 2, layout)
    for source, target in product(CONFIGS[::2], CONFIGS[1:]):
        tensors = [tensor(each, layout, config, "i32") for each, config in ((shape, source), (result_shape, target))]
        memory = memory_of(array, tensors[0])
        whole, result = segments_of(tensors, dim, 2)
        for index, right in enumerate(rights):
            found, written = b"", Counter[tuple[Core, int]]()
            for group in pieces([(whole, whole.slice(dim, index, 2)), (result, result.all())], most_bytes):
                (core, address), (to, start) = group.places
                assert group.nbytes <= most_bytes
                found += memory[core][address - whole.tensor.base :][: group.nbytes]
                written.update((to, start + at) for at in range(0, group.nbytes, 4))
            assert found == right
            assert set(written.values()) == {1}
            assert 4 * len(written) == tensors[1].nbytes


def test_interleaved_tensors_move_in_whole_runs_of_pages() -> None:
    made = [tensor((128, 96), "tile", memory_config_of("dram"), "bf16") for _ in range(2)]
    parts: list[Segments] = segments_of(made, 0, 1)
    groups = pieces([(each, each.all()) for each in parts], 6144)
    assert [(each.pages, each.nbytes) for each in groups] == [(3, 6144)] * 4


GRIDS = [(11, 1), (1, 9), (0, 1), 3, "11", (1,), (2.5, 1)]


@pytest.mark.parametrize(
    ("shape", "layout", "config"),
    [
        *(((64, 64), None, MemoryConfig("block_sharded", "l1", grid)) for grid in GRIDS),  # type: ignore[arg-type]
        ((64, 64), None, MemoryConfig("block_sharded", "l1", (4, 1))),
        ((64, 64), "row_major", MemoryConfig("width_sharded", "l1", (3, 1))),
        ((64, 64), None, MemoryConfig("interleaved", "l1", (1, 1))),
        ((64, 64), None, MemoryConfig("sharded")),
        ((64, 64), None, MemoryConfig("width_sharded", "l2")),
        ((64, 64), None, "sharded"),
        ((64, 64), None, None),
        ((64, 40), "tile", "dram"),
        ((64,), "tile", "dram"),
        ((64, 64), "rows", "dram"),
        ((64, 0), "row_major", "dram"),
    ],
    ids=repr,
)
def test_refused(shape: tuple[int, ...], layout: str | None, config: Any) -> None:
    with pytest.raises(KernelMisuse) as caught:
        tensor(shape, layout, memory_config_of(config))
    assert "\n" not in str(caught.value)
