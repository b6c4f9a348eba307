"""Tensors that compute: every operation in every layout and type, against NumPy; refusals; times of their launches."""

from pathlib import Path

import pytest
from runs import Run, run, script_file

ONE = ("--sips", 1, "--set", "sip.cube_mesh={w: 2, h: 1}")
TOP = """
import numpy as np

from sipsim.core.arithmetic.matmul import matmul
from sipsim.core.arithmetic.operations import along_axis, cast, elementwise
from sipsim.core.dtypes import DTYPES
from sipsim.chips.ahbm.host import tensor_kernels as kernels

LAYOUTS = "row_wise", "column_wise", "replicate"
R, C, N = LAYOUTS
random = np.random.default_rng(7)

def made(torch, shape, dtype, dp, values=None):
    tensor = torch.zeros(shape, dtype=dtype, dp=dp)
    values = random.normal(size=shape) * 3 if values is None else values
    return tensor.copy_(torch.from_numpy(values)), cast(np.asarray(values), DTYPES[dtype])

def same(tensor, expected):
    got = tensor.copies()
    for each in got:
        assert each.dtype == expected.dtype and each.shape == expected.shape, (each.shape, expected.shape)
        assert each.tobytes() == expected.tobytes(), (each, expected)

def refused(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("it was not refused")

def worker(rank, world_size, torch):
"""


def scripted(folder: Path, body: str) -> Run:
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    done = run(*ONE, script_file(folder, TOP + lines))
    assert done.outcome.error is None, done.outcome.error.message
    return done


DTYPES = ["f16", "bf16", "f32", "i32", "i8"]
CASES = {
    "products in all layouts": """
for cube, pe in [((R, N),) * 2, ((N, C),) * 2, ((N, N), (R, N)), ((R, N), (N, C)), ((N, C), (R, N)), ((N, N),) * 2]:
    a, x = made(torch, (12, 10), DTYPE, DPPolicy(cube[0], pe[0], 2, 2))
    b, y = made(torch, (10, 8), DTYPE, DPPolicy(cube[1], pe[1], 2, 2))
    same(a @ b, cast(matmul(x, y, DTYPES[DTYPE]), DTYPES[DTYPE]))
    same(torch.matmul(a, b), (a @ b).numpy())
""",
    "element by element": """
for cube in LAYOUTS:
    for pe in LAYOUTS:
        dp, kind = DPPolicy(cube, pe, 2, 2), DTYPES[DTYPE]
        (a, x), (b, y) = made(torch, (8, 12), DTYPE, dp), made(torch, (8, 12), DTYPE, dp)
        three = np.array(3, x.dtype)
        for op, name, number, turned in [
            (a + b, "add", a + 3, 3 + a), (a - b, "sub", a - 3, 3 - a), (a * b, "mul", a * 3, 3 * a)
        ]:
            same(op, elementwise(name, (x, y), kind))
            same(number, elementwise(name, (x, three), kind))
            same(turned, elementwise(name, (three, x), kind))
        same(a.relu(), elementwise("relu", (x,), kind))
        for to in DTYPES:
            same(a.to(to), cast(x, DTYPES[to]))
""",
    "a row for all rows": """
everywhere = DPPolicy(N, N, 2, 2)
for cube, pe in [(R, R), (R, N), (N, R), (N, N)]:
    a, x = made(torch, (8, 3, 5), DTYPE, DPPolicy(cube, pe, 2, 2))
    b, y = made(torch, (5,), DTYPE, everywhere)
    same(a * b, elementwise("mul", (x, y), DTYPES[DTYPE]))
""",
    "rows by index": """
for cube in LAYOUTS:
    for pe in LAYOUTS:
        a, x = made(torch, (8, 12), DTYPE, DPPolicy(cube, pe, 2, 2))
        rows = [7, 0, 0, -2]
        same(a[rows], x[rows])
        same(a[4:8], x[4:8])
        same(a[1:4], x[1:4])
        assert a[np.array([2, 1])].shape == (2, 12)
        if C not in (cube, pe):
            same(a[5], x[5])
            same(a[np.int64(5)], x[5])
flat, x = made(torch, (8,), DTYPE, DPPolicy(R, R, 2, 2))
same(flat[2:6], x[2:6])
""",
    "blocks of many pieces": """
kernels.PIECE_BYTES = 256
a, x = made(torch, (20, 37), DTYPE, DPPolicy(R, R, 2, 2))
b, y = made(torch, (37,), DTYPE, DPPolicy(N, N, 2, 2))
same(a + a, elementwise("add", (x, x), DTYPES[DTYPE]))
same(a - b, elementwise("sub", (x, y), DTYPES[DTYPE]))
same(a[3:19], x[3:19])
""",
}
FLOATS = {
    "softmax and gelu": """
for cube, pe in [(R, R), (R, N), (N, N)]:
    a, x = made(torch, (8, 21), DTYPE, DPPolicy(cube, pe, 2, 2))
    same(a.gelu(), elementwise("gelu", (x,), DTYPES[DTYPE]))
    f32, wide = DTYPES["f32"], x.astype(np.float32)
    e = elementwise("exp", (wide - along_axis("reduce_max", wide, f32, 1),), f32)
    same(a.softmax(), cast(e / along_axis("sum", e, f32, 1), DTYPES[DTYPE]))
    same(torch.softmax(a, -1), a.softmax(1).numpy())
    wide = x.astype(np.float64)
    exact = np.exp(wide - wide.max(1, keepdims=True))
    exact /= exact.sum(1, keepdims=True)
    error = np.abs(a.softmax().numpy().astype(np.float64) - exact).max()
    assert error < {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-22}[DTYPE], error
""",
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_what_is_computed(tmp_path: Path, name: str, dtype: str) -> None:
    scripted(tmp_path, CASES[name].replace("DTYPE]", f"'{dtype}']").replace("DTYPE,", f"'{dtype}',"))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("name", FLOATS)
def test_what_is_computed_of_floats(tmp_path: Path, name: str, dtype: str) -> None:
    scripted(tmp_path, FLOATS[name].replace("DTYPE]", f"'{dtype}']").replace("DTYPE,", f"'{dtype}',"))


def test_one_part_is_a_copy_and_a_type_of_its_own_is_no_copy(tmp_path: Path) -> None:
    body = """
a, x = made(torch, (8, 12), 'f16', DPPolicy(num_cubes=1))
b, y = made(torch, (12, 8), 'f16', DPPolicy(R, C, 1, 1))
same(a @ b, cast(matmul(x, y, DTYPES['f16']), DTYPES['f16']))
same((a @ b) + (a @ b), ((a @ b).numpy() * 2))
assert a.to('f16') is a
c = torch.ones((8, 12), dp=DPPolicy(C, N, 2, 2))
before = torch.space.sha256()
assert refused(ValueError, c.softmax) and refused(ValueError, lambda: a + c)
assert torch.space.sha256() == before, "the hash of all tensors that were ever made"
"""
    scripted(tmp_path, body)


def test_rows_that_follow_each_other_are_one_transfer(tmp_path: Path) -> None:
    """Of 8 rows on four PEs, four of two in one piece each; of every second one, as many as there are."""
    for index, transfers in [("a[0:8]", 4), ("a[[0, 2, 4, 6]]", 4), ("a[[1, 0, 3, 2, 5, 4, 7, 6]]", 8)]:
        done = scripted(tmp_path, f"a = torch.ones((8, 12), dp=DPPolicy(R, R, 2, 2))\n{index}\n")
        (member,) = done.members
        assert member.chip.sip.oplog.total == 2 * transfers, index


def test_an_operation_takes_simulated_time_on_the_pes_of_its_result(tmp_path: Path) -> None:
    body = """
a = torch.ones((8, 64), dp=DPPolicy(R, R, 2, 2))
start, end = torch.Event(enable_timing=True), torch.Event(enable_timing=True)
start.record()
b = a + a
end.record()
(record,) = torch.kernels.records
assert (record.name, record.pes) == ("+", "cubes 0-1, PE 0-1"), record
assert end.time_ps - record.end_ps == 0 < record.end_ps - record.start_ps
assert start.time_ps < record.start_ps, "the result is mapped before"
"""
    scripted(tmp_path, body)
