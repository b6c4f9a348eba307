"""All PEs of a cube: rings, kernels and tensors of every PE, with real data checked (what ADR-0032 cannot address)."""

import numpy as np
import pytest
from runs import Run, ccl_file, run, script_file
from sweeps import crossed

from sipsim.chips.ahbm.address import OFFSET_BITS, PhysAddr

CUBE_RING = """
import numpy as np


def neighbors(rank, world_size, built_in, system):
    '''A ring of the PEs of each cube.'''
    first, pes = rank // system.n_pes * system.n_pes, system.n_pes
    return {"E": first + (rank + 1) % pes, "W": first + (rank - 1) % pes}


def kernel_args(world_size, n_elem, system):
    return n_elem, system.n_pes


def kernel(t_ptr, n_elem, pes, tl):
    '''Ring all-reduce of the rows of a cube, a row a PE, in ``pes`` parts: reduce-scatter, then all-gather.'''
    pe, cube, size = tl.program_id(0), tl.program_id(1), t_ptr.dtype.itemsize
    length = n_elem // pes // pes
    mine = t_ptr + (cube * n_elem + pe * (n_elem // pes)) * size

    def part(index):
        return mine + index % pes * length * size

    moving = tl.load(part(pe), length)
    for step in range(1, pes):
        tl.send("E", moving)
        moving = tl.load(part(pe - step), length) + tl.recv("W", length, t_ptr.dtype)
    tl.store(part(pe + 1), moving)
    for step in range(1, pes):
        tl.send("E", moving)
        moving = tl.recv("W", length, t_ptr.dtype)
        tl.store(part(pe + 1 - step), moving)


def reference(tensors, system):
    '''Every row of a cube ends as the sum of its rows.'''
    def summed(rows):
        of_pes = rows.reshape(system.n_cubes, system.n_pes, -1)
        return np.tile(of_pes.sum(1, dtype=rows.dtype, keepdims=True), (1, system.n_pes, 1)).reshape(rows.shape)

    return [summed(rows) for rows in tensors]
"""

SCRIPT = """
import numpy as np


def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group(backend="ahbm")
    dp = DPPolicy(cube="row_wise", pe="row_wise", num_cubes=CUBES, num_pes=8)
    tensor = torch.zeros((CUBES * 8, N), dtype="i32", dp=dp)
    values = np.random.default_rng(rank).integers(-2**31, 2**31, (CUBES * 8, N), dtype=np.int64)
    tensor.copy_(torch.from_numpy(values.astype(np.int32)))
    dist.all_reduce(tensor, op="sum")
"""

CUBES = 2
N = 8 * 96
FLAGS = ("--sips", 2, "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1")


def words(folder, n=N, *flags):
    source = SCRIPT.replace("CUBES", str(CUBES)).replace("N)", f"{n})")
    chosen = ccl_file(folder, CUBE_RING, name="cube_ring", rank_per="pe")
    return (*FLAGS, *chosen, *flags, script_file(folder, source))


def expected(rank, n=N):
    values = np.random.default_rng(rank).integers(-(2**31), 2**31, (CUBES * 8, n), dtype=np.int64).astype(np.int32)
    sums = values.reshape(CUBES, 8, n).sum(1, dtype=np.int32)
    return np.repeat(sums, 8, axis=0)


def check(done: Run, n=N) -> None:
    assert done.outcome.error is None, done.outcome.error
    (row,) = done.document["runs"]
    assert (row["wrong"], row["checked"], row["kernels"]) == (0, True, 2 * CUBES * 8)
    for rank in range(2):
        np.testing.assert_array_equal(done.tensor(rank), expected(rank, n))


@pytest.mark.parametrize(("kind", "mode"), crossed(["tcm", "hbm", "sram"], ["fast_path", "fabric", "piggyback"]))
def test_a_ring_all_reduce_over_the_pes_of_each_cube(tmp_path, kind, mode):
    settings = ("--set", f"defaults.buffer_kind={kind}", "--set", f"defaults.credit_return_mode={mode}")
    argv = words(tmp_path, N, "--check-invariants", *settings)
    done = run(*argv)
    check(done)
    assert run(*argv, mail_seed=5).document["digest"] == done.document["digest"]
    assert {(sip, cube) for sip, cube, _ in done.prepared.plan.pe_of_rank} == {(s, c) for s in range(2) for c in (0, 1)}
    assert all(len(entries) == 2 for entries in done.prepared.plan.entries.values())


def test_tensors_and_rings_share_every_slice_of_hbm_without_a_byte_of_overlap(tmp_path):
    """2 MiB a PE: 2 rings of 32 KiB, 1 MiB for rings of groups, and a tensor of all the rest, 983,040 B a PE."""
    full = (2**20 - 2 * 8 * 4096) // 4
    tight = ("--set", "cube.hbm_MiB_per_pe=2", "--set", "defaults.buffer_kind=hbm")
    most = run(*words(tmp_path, full + 8, *tight))
    assert most.outcome.error.kind == "OutOfMemoryError"
    assert "does not fit HBM of cube 0, PE 0: 983040 bytes are free" in most.outcome.error.message
    small = ("--set", "defaults.slot_size=122880", "--set", "defaults.n_slots=2", "--set", "cube.hbm_MiB_per_pe=2")
    n = (2**20 - 2 * 2 * 122880) // 4 // 64 * 64
    check(run(*words(tmp_path, n, "--set", "defaults.buffer_kind=hbm", "--check-invariants", *small)), n)


GRID = """
import numpy as np


def put_places(t_ptr, shape, num_pes, tl):
    mine = t_ptr + (tl.program_id(1) * num_pes + tl.program_id(0)) * int(np.prod(shape)) * t_ptr.dtype.itemsize
    for _ in range(tl.program_id(1) * num_pes + tl.program_id(0)):
        tl.store(mine, tl.load(mine, shape) + tl.load(mine, shape))


def worker(rank, world_size, torch):
    dp = DPPolicy(cube={cube!r}, pe={pe!r}, num_cubes=2, num_pes=4)
    tensor = torch.ones(8, 16, dtype="i32", dp=dp)
    torch.launch(put_places, tensor, tensor.shard_shape, 4, pes=range(4), cubes=range(2))
    expected = np.ones((8, 16), np.int32)
    for cube in range(2):
        for pe in range(4):
            rows, columns = {where}
            expected[rows, columns] = 2 ** (4 * cube + pe)
    assert tensor.numpy().tolist() == expected.tolist(), tensor.numpy()
"""


@pytest.mark.parametrize(
    ("cube", "pe", "where"),
    [
        ("row_wise", "column_wise", "slice(4 * cube, 4 * cube + 4), slice(4 * pe, 4 * pe + 4)"),
        ("column_wise", "row_wise", "slice(2 * pe, 2 * pe + 2), slice(8 * cube, 8 * cube + 8)"),
        ("column_wise", "column_wise", "slice(None), slice(8 * cube + 2 * pe, 8 * cube + 2 * pe + 2)"),
    ],
)
def test_kernels_on_a_grid_of_blocks(tmp_path, cube, pe, where):
    """Each PE doubles its block as often as its number says, found by the address that the guide names."""
    done = run(*FLAGS, script_file(tmp_path, GRID.format(cube=cube, pe=pe, where=where)))
    assert done.outcome.error is None, done.outcome.error.message


def test_pes_that_are_not_used_are_not_made():
    """The default algorithm on 16 cubes of 8 PEs: a PE, a slice of HBM and a TCM of each cube, and no other."""
    done = run("--sips", 2, "--bytes", "32K")
    for member in done.members:
        sip = member.chip.sip
        assert [(pe.cube, pe.pe) for pe in sip.pes_in_use()] == [(cube, 0) for cube in range(16)]
        assert sorted(member.chip.torch.space._free) == [(cube, 0) for cube in range(16)]
        banks = {PhysAddr.decode(key << OFFSET_BITS)[1:4] for key in sip.memory._banks}
        assert banks == {(cube, 0, space) for cube in range(16) for space in ("hbm", "tcm")}


OWN_COPY = """
import numpy as np


def add_own_number(t_ptr, n, tl):
    number = tl.program_id(1) * 8 + tl.program_id(0)
    tl.store(t_ptr, tl.load(t_ptr, n) + tl.load(t_ptr + 4 * n, n))
    for _ in range(number):
        tl.store(t_ptr, tl.load(t_ptr, n) + tl.load(t_ptr + 4 * n, n))


def worker(rank, world_size, torch):
    tensor = torch.zeros((2, 4), dtype="i32", dp=DPPolicy("replicate", "replicate", 2, 8))
    tensor.copy_(torch.from_numpy(np.array([[0] * 4, [1] * 4], np.int32)))
    torch.launch(add_own_number, tensor, 4)
    for number, copy in enumerate(tensor.copies()):
        assert copy.tolist() == [[number + 1] * 4, [1] * 4], (number, copy)
    assert tensor.numpy().tolist() == [[1] * 4, [1] * 4]
    print("copies", len(tensor.copies()))
"""


def test_a_kernel_reads_and_writes_its_own_copy(tmp_path, capfd):
    chosen = ccl_file(tmp_path, CUBE_RING, name="cube_ring", rank_per="pe")
    done = run(*FLAGS, *chosen, script_file(tmp_path, OWN_COPY))
    assert done.outcome.error is None, done.outcome.error
    assert capfd.readouterr().out.count("copies 16") == 2
