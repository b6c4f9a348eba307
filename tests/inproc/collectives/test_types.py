"""All element types through the whole tool: seeded sums, odd sizes, host scripts with given data, kernels."""

import numpy as np
import pytest
from runs import ccl_file, run, script_file, sums_of
from sweeps import crossed

from sipsim.dtypes import DTYPES
from sipsim.errors import ConfigError

SMALL = ("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2")
TORUS = ("--sips", 4, "--topology", "torus_2d", *SMALL)
NEW = ("bf16", "i8")
MACHINES = {
    "default": (),
    "flits": ("hw_strict=true", "n_slots=4", "slot_size=64"),
    "odd slots": ("slot_size=24",),
    "slots in HBM": ("buffer_kind=hbm", "slot_size=128"),
    "slots in use": ("buffer_kind=sram", "latch=in_place"),
    "credits with data": ("credit_return_mode=piggyback",),
}


SIZES = ("one element", "fewer than a message", "several messages and a rest")


@pytest.mark.parametrize(("machine", "size", "dtype"), crossed(MACHINES, SIZES, NEW))
def test_sizes_that_nothing_divides(machine, size, dtype):
    n_elem = (1, 3, 257 if "slot_size" in str(MACHINES[machine]) else 4097)[SIZES.index(size)]
    knobs = [word for knob in MACHINES[machine] for word in ("--set", f"defaults.{knob}")]
    done = run(*TORUS, "--dtype", dtype, "--n-elem", n_elem, *knobs, "--check-invariants")
    assert done.outcome.error is None, done.outcome.error.message
    (row,) = done.document["runs"]
    assert (row["wrong"], row["checked"], row["dtype"]) == (0, True, dtype)
    assert (row["bytes"], row["count"]) == (4 * n_elem * DTYPES[dtype].itemsize, 4 * n_elem)
    for rank in range(4):
        np.testing.assert_array_equal(done.tensor(rank), np.broadcast_to(sums_of(done), (4, n_elem)))


@pytest.mark.parametrize("dtype", NEW)
def test_on_the_default_machine(dtype):
    """Its HBM has rows and buses, its transfers lines and flits."""
    done = run(*TORUS, "--dtype", dtype, "--n-elem", 4097)
    assert (done.outcome.error, done.document["runs"][0]["wrong"]) == (None, 0)


@pytest.mark.parametrize("algorithm", ["intercube_allreduce", "intercube_allreduce_fused"])
@pytest.mark.parametrize("dtype", NEW)
def test_both_algorithms(dtype, algorithm):
    done = run("--sips", 3, *SMALL, "--dtype", dtype, "--bytes", "12K", "--set", f"defaults.algorithm={algorithm}")
    assert (done.outcome.error, done.document["runs"][0]["wrong"]) == (None, 0)


def test_more_ranks_than_bf16_can_sum_exactly():
    with pytest.raises(ConfigError) as refused:
        run("--sips", 17, "--dtype", "bf16")
    assert str(refused.value) == ("272 contributions cannot be summed exactly in bf16; use --dtype f32 or --dtype i32")


GIVEN = """
import numpy as np

def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group(backend="ahbm")
    values = np.random.default_rng(rank).{values}
    tensor = torch.zeros(4, 33, dtype={dtype})
    tensor.copy_(torch.from_numpy(values))
    assert tensor.dtype is {dtype} and tensor.nbytes == 132 * {itemsize}
    dist.all_reduce(tensor)
"""


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("torch.bfloat16", "standard_normal((4, 33))"),
        ("torch.bfloat16", "choice([1.0, np.nan, np.inf, -np.inf, -0.0], (4, 33))"),
        ("torch.int8", "integers(-128, 128, (4, 33))"),
    ],
)
def test_given_data_are_checked_against_the_reference(tmp_path, dtype, values):
    source = GIVEN.format(dtype=dtype, values=values, itemsize=1 if "8" in dtype else 2)
    done = run("--sips", 4, *SMALL, script_file(tmp_path, source))
    assert done.outcome.error is None, done.outcome.error.message
    assert [(row["wrong"], row["checked"]) for row in done.document["runs"]] == [(0, True)]


@pytest.mark.parametrize("dtype", NEW)
def test_a_wrong_bit_of_given_data_is_found(tmp_path, dtype):
    """An algorithm that flips the last bit of one element that it leaves."""
    faulty = (
        "from sipsim.ccl.algorithms import intercube_allreduce as real\n"
        "from sipsim.ccl.algorithms.intercube_allreduce import TOPO_NAME_TO_KIND, kernel_args, neighbors, reference\n"
        "from sipsim.tl.values import TensorHandle\n"
        "def kernel(t_ptr, *args):\n"
        "    tl = args[-1]\n"
        "    real.kernel(t_ptr, *args)\n"
        "    if tl.program_id(1) == 0:\n"
        "        values = tl.load(t_ptr, 2).array.copy()\n"
        "        values.view('u1')[-1] ^= 1\n"
        "        tl.store(t_ptr, TensorHandle(tl, values, t_ptr.dtype))\n"
    )
    source = GIVEN.format(
        dtype=f"torch.{ {'bf16': 'bfloat16', 'i8': 'int8'}[dtype] }",
        values="integers(1, 9, (4, 33))",
        itemsize=DTYPES[dtype].itemsize,
    )
    done = run("--sips", 2, *SMALL, *ccl_file(tmp_path, faulty), script_file(tmp_path, source))
    assert done.outcome.error is not None
    assert (done.outcome.error.kind, done.document["runs"][0]["wrong"]) == ("wrong_numbers", 2)


KERNEL = """
import numpy as np

def kernel(a, b, tl):
    total = tl.load(a, 5) + tl.load(a + 5 * a.dtype.itemsize, 5)
    tl.store(b, total)

def worker(rank, world_size, torch):
    a, b = (torch.zeros(1, n, dtype="{dtype}", dp=DPPolicy(num_cubes=1)) for n in (10, 5))
    a.copy_(torch.from_numpy(np.array({x} + {y}).reshape(1, 10)))
    torch.launch(kernel, a, b, cubes=0)
    assert b.numpy().tolist() == [[{sums}]], b.numpy()
"""


@pytest.mark.parametrize(
    ("dtype", "x", "y", "sums"),
    [
        ("bf16", [1, 256, 257.0, 3e38, -1], [2**-8, 1, 1, 3e38, 1], "1.0, 256.0, 256.0, np.inf, 0.0"),
        ("i8", [127, -128, 1, 100, -1], [1, -1, 2, 100, 1], "-128, 127, 3, -56, 0"),
    ],
)
def test_a_kernel_adds_by_the_rule_of_its_type(tmp_path, dtype, x, y, sums):
    done = run("--sips", 1, *SMALL, script_file(tmp_path, KERNEL.format(dtype=dtype, x=x, y=y, sums=sums)))
    assert done.outcome.error is None, done.outcome.error.message
