"""Wrong numbers are found and reported: kernels with one small fault each, every SIP in this process.

Each fault is small enough for a tolerance to hide it: one SIP of 16 left out of a sum, one cube of 64, the last
bit of one element.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from runs import Run, ccl_file, run, script_file
from seeded import seeded_rows
from sweeps import crossed

from sipsim.collectives.testdata import compare
from sipsim.core.dtypes import DTYPES

SMALL = ("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2")
N_ELEM = 6

REAL = """
import numpy as np
from sipsim.chips.ahbm.collectives.algorithms import intercube_allreduce as real
from sipsim.chips.ahbm.collectives.algorithms.intercube_allreduce import TOPO_NAME_TO_KIND, kernel_args
from sipsim.chips.ahbm.collectives.algorithms.intercube_allreduce import neighbors, reference
from sipsim.chips.ahbm.tl.values import TensorHandle

def kernel(*args):
    faulty(*args[:2], args[5], args[-1], args)

def put(tl, ptr, array):
    tl.store(ptr, TensorHandle(tl, np.ascontiguousarray(array), ptr.dtype))

def shard(tl, t_ptr, n_elem):
    return t_ptr + tl.program_id(1) * n_elem * t_ptr.dtype.itemsize
"""

DROPPED_SIP = """
def faulty(t_ptr, n_elem, rank, tl, args):
    if rank == 2:
        put(tl, shard(tl, t_ptr, n_elem), np.zeros(n_elem, t_ptr.dtype.numpy))
    real.kernel(*args)
"""

DROPPED_CUBE = """
def faulty(t_ptr, n_elem, rank, tl, args):
    if rank == 2 and tl.program_id(1) == 1:
        put(tl, shard(tl, t_ptr, n_elem), np.zeros(n_elem, t_ptr.dtype.numpy))
    real.kernel(*args)
"""

CHANGED_ELEMENT = """
def faulty(t_ptr, n_elem, rank, tl, args):
    real.kernel(*args)
    if rank == 2 and tl.program_id(1) == 1:
        values = tl.load(shard(tl, t_ptr, n_elem), n_elem).array.copy()
        values.view(f"u{values.itemsize}")[4] ^= 1
        put(tl, shard(tl, t_ptr, n_elem), values)
"""

STALE_RANK = """
def faulty(t_ptr, n_elem, rank, tl, args):
    before = tl.load(shard(tl, t_ptr, n_elem), n_elem)
    real.kernel(*args)
    if rank == 2:
        tl.store(shard(tl, t_ptr, n_elem), before)
"""

STALE_SECOND_TIME = """
from collections import Counter
LAUNCHES = Counter()

def faulty(t_ptr, n_elem, rank, tl, args):
    LAUNCHES[rank, tl.program_id(1)] += 1
    if LAUNCHES[rank, tl.program_id(1)] != 2:
        real.kernel(*args)
"""

NO_FAULT = "faulty = lambda *a: real.kernel(*a[4])"
ALL = "all"
FAULTS = {
    "none": (NO_FAULT, []),
    "a SIP left out": (DROPPED_SIP, ALL),
    "a cube left out": (DROPPED_CUBE, ALL),
    "the last bit of one element": (CHANGED_ELEMENT, [2]),
    "one rank with a stale result": (STALE_RANK, [2]),
}
SIZES = {4: ("--sips", 4, "--topology", "torus_2d"), 16: ("--sips", 16, "--topology", "torus_2d")}
WRONG_NUMBERS = re.compile(
    r"rank (\d+): (\d+) wrong elements; first wrong at \[(\d+), (\d+)\]: expected (\S+), got (\S+)"
)


def run_faulty(folder: Path, fault: str, *flags: object) -> Run:
    return run(*ccl_file(folder, REAL + fault), *SMALL, "--n-elem", N_ELEM, *flags)


def expected_row(done: Run) -> np.ndarray:
    job, sips = done.prepared.job, done.document["sips"]
    dtype = DTYPES[job.dtype]
    rows = [seeded_rows(rank, (4, N_ELEM), dtype, job.seed, 4 * sips) for rank in range(sips)]
    return np.sum(rows, axis=(0, 1)).astype(dtype.numpy)


def assert_reported(done: Run, ranks: list[int]) -> None:
    """For each of ``ranks``, and no other, the count, the first wrong index, and the two values there."""
    sips, right = done.document["sips"], expected_row(done)
    wrong = {rank: np.argwhere(done.tensor(rank) != right) for rank in range(sips)}
    assert [rank for rank, found in wrong.items() if len(found)] == ranks
    assert sum(each["wrong"] for each in done.document["runs"]) == sum(map(len, wrong.values()))
    error = done.outcome.error
    if not ranks:
        assert (done.outcome.exit_code, error) == (0, None)
        return
    assert (done.outcome.exit_code, done.document["status"], error.kind, error.rank) == (
        *(1, "failed", "wrong_numbers"),
        ranks[0],
    )
    for rank, line in zip(ranks, [error.message, *error.detail.splitlines()], strict=True):
        found, first = WRONG_NUMBERS.fullmatch(line.strip()), tuple(wrong[rank][0])
        assert found is not None, line
        values = f"{right[first[1]]}", f"{done.tensor(rank)[first]}"
        assert found.groups() == (*map(str, (rank, len(wrong[rank]), *first)), *values)
        assert values[0] != values[1]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("sips", "dtype"), crossed(SIZES, DTYPES))
def test_a_fault_is_reported(tmp_path, fault, sips, dtype):
    source, ranks = FAULTS[fault]
    done = run_faulty(tmp_path, source, *SIZES[sips], "--dtype", dtype)
    assert_reported(done, list(range(sips)) if ranks is ALL else ranks)
    # The sum of a SIP's cubes may be zero in an element, so not all of them need be wrong.
    if ranks:
        of_rank = done.document["runs"][0]["wrong"] // (sips if ranks is ALL else 1)
        assert of_rank == 1 if source is CHANGED_ELEMENT else of_rank >= 4 * (N_ELEM - 2)


@pytest.mark.parametrize("more", ["--iters=2", "--warmup=1"])
def test_the_last_iteration_did_nothing(tmp_path, more):
    assert_reported(run_faulty(tmp_path, STALE_SECOND_TIME, *SIZES[4], more), [0, 1, 2, 3])


def test_an_iteration_did_nothing_and_the_next_was_right(tmp_path):
    done = run_faulty(tmp_path, STALE_SECOND_TIME, *SIZES[4], "--iters", 3)
    assert (done.outcome.exit_code, done.document["runs"][0]["wrong"]) == (1, 4 * 4 * N_ELEM)
    np.testing.assert_array_equal(done.tensor(0)[0], expected_row(done))


def test_a_size_of_a_sweep(tmp_path):
    done = run(*ccl_file(tmp_path, REAL + STALE_SECOND_TIME), *SMALL, *SIZES[4], "--n-elem", "3,4,5")
    assert [each["wrong"] for each in done.document["runs"]] == [0, 4 * 4 * 4, 0]
    assert done.outcome.exit_code == 1


def test_without_verification_a_fault_is_not_looked_for(tmp_path):
    done = run_faulty(tmp_path, DROPPED_CUBE, *SIZES[4], "--no-verify-data")
    assert (done.outcome.exit_code, done.document["runs"][0]["checked"]) == (0, False)


class TestCompare:
    """The comparison itself is of bits."""

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32])
    def test_the_last_bit(self, dtype):
        right = np.array([[100, 200], [300, 400]], dtype)
        wrong = right.copy()
        wrong.view(f"u{wrong.itemsize}")[1, 0] += 1
        assert compare(right, right.copy()) == (0, "")
        found = compare(wrong, right)
        assert found == (1, f"first wrong at [1, 0]: expected {right[1, 0]}, got {wrong[1, 0]}")
        assert str(wrong[1, 0]) != str(right[1, 0])

    def test_a_row_is_compared_with_every_row(self):
        got = np.array([[1, 2], [1, 2], [1, 3]], np.int32)
        assert compare(got, np.array([1, 2], np.int32)).first == "first wrong at [2, 1]: expected 2, got 3"

    def test_signs_of_zero_differ(self):
        zeros = np.array([0.0, -0.0], np.float16)
        assert compare(zeros, zeros[::-1]).elements == 2

    @pytest.mark.parametrize("dtype", [np.float16, np.float32])
    def test_any_nan_equals_any_nan_and_no_number(self, dtype):
        """Sign and payload of a NaN depend on the order of the operands, which IEEE 754 leaves open."""
        nans = np.array([np.nan, -np.nan, np.nan, 1, np.inf], dtype)
        nans.view(f"u{nans.itemsize}")[2] += 1
        assert compare(nans, nans[[1, 2, 0, 3, 4]]) == (0, "")
        assert compare(nans, nans[[1, 2, 0, 0, 4]]) == (1, "first wrong at [3]: expected nan, got 1.0")
        assert compare(nans, nans[[1, 3, 0, 3, 0]]) == (2, "first wrong at [1]: expected 1.0, got nan")


GIVEN = """
import numpy as np

def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group(backend="ahbm")
    init = np.random.default_rng(rank).standard_normal((4, 64))
    init = (init * 50 if DTYPE == "i8" else init).astype(np.float32)
    tensor = torch.zeros((4, 64), dtype=DTYPE, dp=DPPolicy(num_cubes=4))
    tensor.copy_(torch.from_numpy(init.astype(tensor.dtype.numpy)))
    dist.all_reduce(tensor, op="sum")
"""

NANS = GIVEN.replace(
    "    tensor =",
    """    init.view("u4")[:, :8] = 0x7FC10000 + (np.arange(32).reshape(4, 8) + 32 * rank << 16)
    init[:, 8:16] = np.inf if rank % 2 else -np.inf
    init[rank % 4, 16:24] = np.nan
    init[:, 24:32] = LARGE if rank % 2 else -LARGE
    tensor =""",
)
"""NaNs with payloads in every row or in one a rank, sums of both infinities, and sums that overflow to them."""

OWN_COPY = """
import importlib.util
import numpy as np
from sipsim.chips.ahbm.tl.values import TensorHandle
spec = importlib.util.find_spec("sipsim.chips.ahbm.collectives.algorithms.intercube_allreduce")
mine = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mine)
TOPO_NAME_TO_KIND, kernel_args, neighbors = mine.TOPO_NAME_TO_KIND, mine.kernel_args, mine.neighbors
reference, kernel = mine.reference, mine.kernel
"""

OTHER_WAY_ROUND = """
mine.EXCHANGES = {
    0: lambda sums, rank, w, h, tl: mine._ring(sums, w, "global_W", "global_E", tl),
    1: lambda sums, rank, w, h, tl: mine._ring(
        mine._ring(sums, h, "global_S", "global_N", tl), w, "global_E", "global_W", tl
    ),
}
"""

FLIPPED_BIT = """
def kernel(*args):
    mine.kernel(*args)
    t_ptr, n_elem, tl = args[0], args[1], args[-1]
    if (tl.program_id(2), tl.program_id(1)) == (3, 2):
        at = t_ptr + 2 * n_elem * t_ptr.dtype.itemsize
        values = tl.load(at, n_elem).array.copy()
        values.view(f"u{values.itemsize}")[17] ^= 1
        tl.store(at, TensorHandle(tl, values, t_ptr.dtype))
"""


def given(folder: Path, *flags: object, source: str = GIVEN, dtype: str = "f16") -> Run:
    text = source.replace("LARGE", "60000" if dtype == "f16" else "3e38").replace("DTYPE", repr(dtype))
    return run(*SMALL, *flags, script_file(folder, text))


class TestGivenData:
    """A host script's random data are compared with NumPy in the kernel's order of additions, bit for bit."""

    @pytest.mark.parametrize(
        "system",
        [("--sips", 2), ("--sips", 5), (*SIZES[4],), ("--sips", 6, "--topology", "mesh_2d_no_wrap", "--shape", "2x3")],
        ids=["ring of 2", "ring of 5", "torus", "mesh"],
    )
    def test_the_kernel_keeps_its_documented_order(self, tmp_path, system):
        done = given(tmp_path, *system)
        (result,) = done.document["runs"]
        assert (result["wrong"], result["checked"], done.outcome.exit_code) == (0, True, 0)
        # The data are such that the order matters: a plain sum has other bits.
        sips = done.document["sips"]
        given_rows = [np.random.default_rng(rank).standard_normal((4, 64)).astype(np.float16) for rank in range(sips)]
        backwards = sum(row for block in reversed(given_rows) for row in block[::-1])
        assert compare(done.tensor(0), backwards).elements > 20

    @pytest.mark.ideal
    @pytest.mark.parametrize(
        ("system", "dtype"), [(("--sips", 2), "f16"), (("--sips", 5), "bf16"), (SIZES[4], "f16")], ids=str
    )
    def test_nans_are_right(self, tmp_path, system, dtype):
        done = given(tmp_path, *system, source=NANS, dtype=dtype)
        assert [(each["wrong"], each["checked"]) for each in done.document["runs"]] == [(0, True)]
        assert np.isnan(done.tensor(0)[:, :32].astype("f4")).sum() >= 24 * 4
        assert not np.isnan(done.tensor(0)[:, 32:].astype("f4")).any()

    @pytest.mark.ideal
    @pytest.mark.parametrize("system", [("--sips", 4), SIZES[4]], ids=["ring", "torus"])
    def test_another_order_of_additions(self, tmp_path, system):
        """Without a reference it is not checked."""
        source = OWN_COPY + OTHER_WAY_ROUND
        done = given(tmp_path, *system, *ccl_file(tmp_path, source))
        assert (done.outcome.exit_code, done.outcome.error.kind) == (1, "wrong_numbers")
        # Only last bits differ, which a tolerance would let pass.
        right = given(tmp_path, *system)
        for rank in range(4):
            np.testing.assert_allclose(done.tensor(rank), right.tensor(rank), rtol=0.02, atol=0.1)
        unchecked = given(tmp_path, *system, *ccl_file(tmp_path, source + "\ndel reference\n", "unchecked"))
        assert (unchecked.outcome.exit_code, unchecked.document["runs"][0]["checked"]) == (0, False)

    @pytest.mark.parametrize("dtype", ["f16", "bf16", "i8"])
    def test_one_flipped_bit(self, tmp_path, dtype):
        """And an unchanged copy is right."""
        done = given(tmp_path, *SIZES[4], *ccl_file(tmp_path, OWN_COPY + FLIPPED_BIT), dtype=dtype)
        assert (done.outcome.exit_code, done.outcome.error.detail) == (1, "")
        found = WRONG_NUMBERS.fullmatch(done.outcome.error.message)
        assert [int(found[group]) for group in (1, 2, 3, 4)] == [3, 1, 2, 17]
        assert given(tmp_path, *SIZES[4], *ccl_file(tmp_path, OWN_COPY, "copy"), dtype=dtype).outcome.exit_code == 0
