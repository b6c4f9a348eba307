"""Parts of arrays for the chips of a mesh, and what operations leave cut."""

import numpy as np
import pytest

from sipsim.chips.tensix.ccl.mesh_tensors import Dims, MeshTensor, line_along, part_of
from sipsim.chips.tensix.ccl.placement import Interleaved, memory_config_of
from sipsim.chips.tensix.ccl.tensors import Tensor, pages_of
from sipsim.chips.tensix.formats import FORMATS
from sipsim.core.errors import KernelMisuse

ROWS = ((4, 0, 3, 7), (5, 1, 2, 6))
ARRAY = np.arange(4 * 8 * 3).reshape(4, 8, 3)


@pytest.mark.parametrize("dims", [(0, 1), (1, 0), (None, 1), (1, None), (None, None), (-3, -2)], ids=str)
def test_parts_are_blocks(dims: Dims) -> None:
    for y, row in enumerate(ROWS):
        for x, rank in enumerate(row):
            part = part_of(ARRAY, dims, ROWS, rank)
            right = ARRAY
            for dim, size, index in zip(dims, (2, 4), (y, x), strict=True):
                right = right if dim is None else np.array_split(right, size, dim)[index]
            assert np.array_equal(part.array, right)
            assert part.dims == tuple(None if dim is None else dim % 3 for dim in dims)


@pytest.mark.parametrize("dims", [(0, 0), (1, -2), (3, None), (None, -4), (None, 2)], ids=str)
def test_cuts_that_are_refused(dims: Dims) -> None:
    with pytest.raises(KernelMisuse):
        part_of(ARRAY, dims, ROWS, 0)


def tensor(*shape: int) -> Tensor:
    pages = pages_of(shape, FORMATS["f32"])
    return Tensor(shape, FORMATS["f32"], pages, memory_config_of("dram"), Interleaved((), pages.n_pages, 1, 1), 0)


def test_operations_change_what_is_cut() -> None:
    mesh = MeshTensor(tensor(32, 32), ROWS, (0, 1), False)
    assert mesh.shape == (64, 128)
    gathered = mesh.after(tensor(32, 128), 1, None)
    assert (gathered.dims, gathered.shape) == ((0, None), (64, 128))
    scattered = gathered.after(tensor(32, 32), 1, -1)
    assert (scattered.dims, scattered.shape) == ((0, 1), (64, 128))
    with pytest.raises(KernelMisuse):
        gathered.after(tensor(8, 128), 1, 0)


def test_a_line_has_no_axis_and_a_mesh_needs_one() -> None:
    line, mesh = (MeshTensor(tensor(32, 32), ROWS, (None, 0), is_line) for is_line in (True, False))
    assert line.axis(None) == 1
    assert [mesh.axis(axis) for axis in (0, 1)] == [0, 1]
    for each, axis in ((line, 1), (mesh, None)):
        with pytest.raises(KernelMisuse):
            each.axis(axis)


def test_lines_of_a_chip() -> None:
    assert line_along(ROWS, 2, 0) == (3, 2)
    assert line_along(ROWS, 2, 1) == (5, 1, 2, 6)
