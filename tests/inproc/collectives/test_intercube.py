"""The intercube algorithms on the machine: meshes, topologies, types, odd sizes, slots, operators; bit for bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import Run, ccl_file, run, script_file
from sweeps import crossed

from launcher.run.results import table
from sipsim.ccl.intercube.bounds import bottleneck_of, bounds
from sipsim.dtypes import DTYPES
from sipsim.errors import ConfigError

PIPELINED, HIERARCHICAL = "intercube_pipelined", "intercube_hierarchical"
BOTH = [PIPELINED, HIERARCHICAL]
CUSTOM_LINE = [{"a": sip, "a_port": "E", "b": sip + 1, "b_port": "W"} for sip in range(2)]


def flags(algorithm: str, sips: int = 3, topology: str = "ring_1d", mesh: str = "2x2", **settings: object) -> list[Any]:
    kind, _, shape = topology.partition(" ")
    w, h = mesh.split("x")
    words = ["--algorithm", algorithm, "--sips", sips, "--topology", kind, *(["--shape", shape] if shape else [])]
    words += ["--set", f"sip.cube_mesh={{w: {w}, h: {h}}}", "--set", "cube.pes=2"]
    for key, value in settings.items():
        words += ["--set", f"algorithms.{algorithm}.{key}={value}"]
    return words


def right(done: Run) -> Run:
    assert done.outcome.error is None, done.outcome.error
    assert all((row["wrong"], row["checked"]) == (0, True) for row in done.document["runs"])
    return done


SYSTEMS = [
    (1, "ring_1d"),
    (2, "ring_1d"),
    (3, "ring_1d"),
    (5, "ring_1d"),
    (9, "ring_1d"),
    (4, "torus_2d"),
    (6, "torus_2d 3x2"),
    (6, "mesh_2d_no_wrap 2x3"),
    (4, "mesh_2d_no_wrap 4x1"),
    (9, "torus_2d"),
]


@pytest.mark.parametrize(("system", "algorithm"), crossed(SYSTEMS, BOTH))
def test_topologies_and_sizes(algorithm: str, system: tuple[int, str]) -> None:
    sips, topology = system
    right(run(*flags(algorithm, sips, topology, "2x1"), "--n-elem", "1,7,1030", "--check-invariants"))


@pytest.mark.parametrize("algorithm", BOTH)
@pytest.mark.parametrize(
    ("mesh", "dtype"), [("1x1", "f16"), ("4x1", "bf16"), ("1x3", "f32"), ("3x2", "i8"), ("4x4", "i32")]
)
def test_meshes_and_types(algorithm: str, mesh: str, dtype: str) -> None:
    right(run(*flags(algorithm, 2, mesh=mesh), "--n-elem", "1,3,999", "--dtype", dtype))


@pytest.mark.parametrize(("algorithm", "n_slots", "mode"), crossed(BOTH, [1, 2], ["fast_path", "fabric", "piggyback"]))
def test_few_small_slots(algorithm: str, n_slots: int, mode: str) -> None:
    """Some ten units of a worker in rings of one slot or two."""
    small = flags(algorithm, 4, "torus_2d", "2x2", n_slots=n_slots, slot_size=64)
    mode_set = ("--set", f"defaults.credit_return_mode={mode}")
    right(run(*small, *mode_set, "--n-elem", 700, "--check-invariants"))


@pytest.mark.parametrize("root", [0, 1, 4, 5, "auto", "null"])
def test_any_root(root: object) -> None:
    right(run(*flags(PIPELINED, 3, mesh="3x2", root_cube=root), "--n-elem", 200))


@pytest.mark.parametrize("per", ["cube", "pe"])
@pytest.mark.parametrize("algorithm", BOTH)
def test_one_worker_a_cube_and_all(algorithm: str, per: str) -> None:
    done = right(run(*flags(algorithm, 2, rank_per=per), "--n-elem", 3000))
    assert done.prepared.plan.world_size == 2 * 4 * (2 if per == "pe" else 1)


SCRIPT = """
import numpy as np


def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group(backend="ahbm")
    tensor = torch.zeros((6, N), dtype=DTYPE, dp=DPPolicy(num_cubes=6))
    values = np.random.default_rng(rank).standard_normal((6, N))
    tensor.copy_(torch.from_numpy(values.astype(tensor.dtype.numpy)))
    dist.all_reduce(tensor, op="sum")
"""


def values_of(sips: int, n: int, dtype: str) -> list[Any]:
    return [np.random.default_rng(rank).standard_normal((6, n)).astype(DTYPES[dtype].numpy) for rank in range(sips)]


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("algorithm", "dtype", "system"),
    crossed(BOTH, ["f16", "bf16", "f32"], [(5, "ring_1d"), (6, "torus_2d 3x2"), (3, "mesh_2d_no_wrap 3x1")]),
)
def test_all_rows_of_all_ranks_are_the_same_bits(
    tmp_path: Path, algorithm: str, dtype: str, system: tuple[int, str]
) -> None:
    """What RANK_IDENTICAL says; and they are those of the reference."""
    sips, topology = system
    script = script_file(tmp_path, SCRIPT.replace("N)", "1111)").replace("DTYPE", repr(dtype)))
    done = run(*flags(algorithm, sips, topology, "3x2"), script)
    assert done.outcome.error is None, done.outcome.error
    rows = {row.tobytes() for rank in range(sips) for row in done.tensor(rank)}
    plan = done.prepared.plan
    assert plan.algorithm.reference is not None
    (wanted, *_) = plan.algorithm.reference(values_of(sips, 1111, dtype), plan.system)
    assert rows == {wanted.tobytes()}
    assert "last bits" not in table.render(done.document, done.prepared)


PER_PE = {"intercube_per_pe": "column_wise", "intercube_per_pe_rows": "row_wise"}


@pytest.mark.parametrize("algorithm", PER_PE)
@pytest.mark.parametrize(
    ("sips", "topology", "mesh", "pes"),
    [
        (3, "ring_1d", "2x2", 2),
        (2, "ring_1d", "1x1", 8),
        (4, "torus_2d", "3x1", 3),
        (2, "mesh_2d_no_wrap 2x1", "1x2", 4),
        (1, "ring_1d", "2x1", 8),
    ],
)
def test_tensors_over_all_pes(algorithm: str, sips: int, topology: str, mesh: str, pes: int) -> None:
    words = [*flags(algorithm, sips, topology, mesh, n_slots=2, slot_size=256), "--set", f"cube.pes={pes}"]
    right(run(*words, "--n-elem", f"{pes},{pes * 333}", "--dtype", "f32", "--check-invariants"))


@pytest.mark.ideal
@pytest.mark.parametrize("algorithm", PER_PE)
def test_rows_of_pes_are_the_same_bits(tmp_path: Path, algorithm: str) -> None:
    """Random floats on 3 SIPs of 2 cubes of 4 PEs; checked against the reference."""
    rows = 8 if PER_PE[algorithm] == "row_wise" else 2
    dp = f"DPPolicy(pe={PER_PE[algorithm]!r}, num_cubes=2, num_pes=4)"
    source = SCRIPT.replace("DPPolicy(num_cubes=6)", dp).replace("(6, N)", f"({rows}, 612)").replace("DTYPE", "'f32'")
    done = run(*flags(algorithm, 3, mesh="2x1"), "--set", "cube.pes=4", script_file(tmp_path, source))
    right(done)
    assert len({row.tobytes() for rank in range(3) for row in done.tensor(rank)}) == 1


@pytest.mark.parametrize(
    ("algorithm", "dp", "says"),
    [
        (HIERARCHICAL, "pe='replicate', num_pes=2", "takes DPPolicy(cube='row_wise', num_pes=1), and the tensor has"),
        (HIERARCHICAL, "pe='column_wise', num_pes=2", "takes DPPolicy(cube='row_wise', num_pes=1), and the tensor has"),
        ("intercube_per_pe", "num_pes=1", "the tensor lies on 4; use DPPolicy(num_pes=4)"),
        ("intercube_per_pe", "pe='row_wise', num_pes=4", "pe='column_wise' on all PEs), and the tensor has"),
        ("intercube_per_pe_rows", "pe='row_wise', num_pes=2", "the tensor lies on 8; use DPPolicy(num_pes=4)"),
        ("intercube_per_pe_rows", "cube='column_wise', pe='row_wise', num_pes=4", "and the tensor has cube='column_w"),
    ],
)
def test_other_layouts_are_refused(tmp_path: Path, algorithm: str, dp: str, says: str) -> None:
    source = SCRIPT.replace("num_cubes=6", f"num_cubes=4, {dp}").replace("(6, N)", "(16, 96)")
    source = source.replace("DTYPE", "'f32'").replace("dist.all_reduce", "dist.intercube_all_reduce")
    done = run(*flags(algorithm, 2), "--set", "cube.pes=4", script_file(tmp_path, source))
    assert done.outcome.error is not None
    assert says in done.outcome.error.message


OPERATORS = """
import numpy as np
from sipsim.ccl.algorithms import MODULE as base
from sipsim.ccl.algorithms.MODULE import *
from sipsim.ccl.algorithms.MODULE import kernel_args, neighbors


def kernel(*args):
    base.kernel(*args, op=OP)


def reference(tensors, system):
    rows = np.concatenate(tensors)
    return [base.reference(tensors, system, op=OP)] [0] if OP in ("avg", "prod") else [rows.OP(axis=0)] * len(tensors)
"""


@pytest.mark.parametrize("op", ["max", "min", "prod", "avg"])
@pytest.mark.parametrize("algorithm", BOTH)
def test_other_operators(tmp_path: Path, algorithm: str, op: str) -> None:
    source = OPERATORS.replace("MODULE", algorithm).replace("rows.OP", f"rows.{op}").replace("OP", repr(op))
    rank_per = "pe" if algorithm == HIERARCHICAL else "cube"
    chosen = ccl_file(tmp_path, source, rank_per=rank_per)
    right(run(*chosen, *flags("mine", 3)[2:], "--n-elem", 77, "--dtype", "f32"))


@pytest.mark.parametrize("algorithm", BOTH)
def test_a_custom_line(algorithm: str) -> None:
    words = flags(algorithm, 3, "custom")
    right(run(*words, "--set", f"system.sips.custom_links={CUSTOM_LINE}", "--n-elem", 300))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            [*flags(PIPELINED, 3, "custom"), "--set", "system.sips.custom_links="
             "[{a: 0, a_port: E, b: 1, b_port: W}, {a: 1, a_port: N, b: 2, b_port: S}]"],
            "custom links must join port E of each SIP with port W of the next one, in a line or a ring",
        ),
        (flags(PIPELINED, root_cube=4), "root_cube = 4: must be null, auto or a cube of the mesh, 0 to 3"),
        (flags(HIERARCHICAL, root_cube="auto"), "root_cube = auto: the algorithm has no root cube; leave it null"),
        (flags("intercube_allreduce", root_cube="auto"), "root_cube = auto: must be null or 3, the cube where"),
        (flags(PIPELINED, latch="in_place"), "set latch to copy or null"),
        ([*flags("intercube_per_pe"), "--n-elem", 7], "7 elements a cube are no whole number for each of the 2 PEs"),
        (flags(HIERARCHICAL, world_size=3), "every cube takes part; leave world_size null"),
    ],
)  # fmt: skip
def test_refused(words: list[Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run(*words)
    assert says in str(caught.value)


@pytest.mark.parametrize(("topology", "part"), [("ring_1d", 3 / 4), ("torus_2d", 3 / 8)], ids=["ring_1d", "torus_2d"])
@pytest.mark.parametrize("algorithm", BOTH)
def test_bytes_over_each_link(algorithm: str, topology: str, part: float) -> None:
    """The formula of the modules' docstrings."""
    done = right(run(*flags(algorithm, 4, topology), "--bytes", "128K"))
    row_bytes = 2**17 // 4
    links = done.document["runs"][0]["links"]
    assert len(links) == (8 if topology == "ring_1d" else 16)
    assert {link["payload_bytes"] for link in links} == {part * row_bytes}


@pytest.mark.parametrize("topology", ["ring_1d", "torus_2d"])
def test_the_bound_holds_and_names_its_resource(topology: str) -> None:
    mesh = ("--set", "sip.cube_mesh={w: 2, h: 1}")
    done = right(run("--algorithm", HIERARCHICAL, "--sips", 4, "--topology", topology, "--bytes", "256K", *mesh))
    found = bounds(done.prepared.plan.system, 2**18 // 2, workers=8)
    name, bound_ps = bottleneck_of(found)
    assert name == "HBM of PE 0"
    assert bound_ps < done.document["runs"][0]["time_ns"] * 1000 < 6 * bound_ps
