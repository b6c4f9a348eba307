"""The intercube algorithms on the machine: bits, layouts, operators, bytes. That they are right: ``test_allreduce``."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hardware import records_of
from intercube_bounds import bottleneck_of, bounds
from runs import Run, run, script_file
from sweeps import crossed

from sipsim.core.errors import ConfigError

PIPELINED, HIERARCHICAL = "intercube_pipelined", "intercube_hierarchical"
BOTH = [PIPELINED, HIERARCHICAL]


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


PER_PE = {"intercube_per_pe": "column_wise", "intercube_per_pe_rows": "row_wise"}


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("algorithm", "dtype", "system"),
    crossed(BOTH, ["f16", "bf16", "f32"], [(5, "ring_1d"), (6, "torus_2d 3x2"), (3, "mesh_2d_no_wrap 3x1")]),
)
def test_all_rows_of_all_ranks_are_the_same_bits(
    tmp_path: Path, algorithm: str, dtype: str, system: tuple[int, str]
) -> None:
    """What RANK_IDENTICAL says; and they are those of the reference."""
    script = script_file(tmp_path, SCRIPT.replace("N)", "1111)").replace("DTYPE", repr(dtype)))
    done = right(run(*flags(algorithm, *system, "3x2"), script))
    assert len({row.tobytes() for rank in range(system[0]) for row in done.tensor(rank)}) == 1
    assert "last bits" not in done.table()


@pytest.mark.ideal
@pytest.mark.parametrize("algorithm", PER_PE)
def test_rows_of_pes_are_the_same_bits(tmp_path: Path, algorithm: str) -> None:
    """Random floats on 3 SIPs of 2 cubes of 4 PEs; checked against the reference."""
    rows = 8 if PER_PE[algorithm] == "row_wise" else 2
    dp = f"DPPolicy(pe={PER_PE[algorithm]!r}, num_cubes=2, num_pes=4)"
    source = SCRIPT.replace("DPPolicy(num_cubes=6)", dp).replace("(6, N)", f"({rows}, 612)").replace("DTYPE", "'f32'")
    done = right(run(*flags(algorithm, 3, mesh="2x1"), "--set", "cube.pes=4", script_file(tmp_path, source)))
    assert len({row.tobytes() for rank in range(3) for row in done.tensor(rank)}) == 1


@pytest.mark.parametrize(
    ("algorithm", "dp", "says"),
    [
        (HIERARCHICAL, "pe='replicate', num_pes=2", "takes DPPolicy(cube='row_wise', num_pes=1), and the tensor has"),
        (HIERARCHICAL, "pe='column_wise', num_pes=2", "takes DPPolicy(cube='row_wise', num_pes=1), and the tensor has"),
        ("intercube_per_pe", "num_pes=1", "the tensor lies on 4 PEs; use DPPolicy(num_pes=4)"),
        ("intercube_per_pe", "pe='row_wise', num_pes=4", "pe='column_wise' on all PEs), and the tensor has"),
        ("intercube_per_pe_rows", "pe='row_wise', num_pes=2", "the tensor lies on 8 PEs; use DPPolicy(num_pes=4)"),
        ("intercube_per_pe_rows", "cube='column_wise', pe='row_wise', num_pes=4", "and the tensor has cube='column_w"),
    ],
)
def test_other_layouts_are_refused(tmp_path: Path, algorithm: str, dp: str, says: str) -> None:
    source = SCRIPT.replace("num_cubes=6", f"num_cubes=4, {dp}").replace("(6, N)", "(16, 96)")
    source = source.replace("DTYPE", "'f32'").replace("dist.all_reduce", "dist.intercube_all_reduce")
    done = run(*flags(algorithm, 2), "--set", "cube.pes=4", script_file(tmp_path, source))
    assert done.outcome.error is not None
    assert says in done.outcome.error.message


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            [*flags(PIPELINED, 3, "custom"), "--set", "system.sips.custom_links="
             "[{a: 0, a_port: E, b: 1, b_port: W}, {a: 1, a_port: N, b: 2, b_port: S}]"],
            "custom links must join port E of each SIP with port W of the next SIP, in a line or a ring",
        ),
        (flags(PIPELINED, root_cube=4), "root_cube = 4: must be null, auto or a cube of the mesh, 0 to 3"),
        (flags(HIERARCHICAL, root_cube="auto"), "root_cube = auto: the algorithm has no root cube; leave it null"),
        (flags("intercube_allreduce", root_cube="auto"), "root_cube = auto: must be null or 3, the cube where"),
        (flags(PIPELINED, latch="in_place"), "set latch to copy or null"),
        ([*flags("intercube_per_pe"), "--n-elem", 7], "give a multiple of 2 elements per cube, not 7"),
        (flags(HIERARCHICAL, world_size=3), "every cube takes part; leave world_size null"),
    ],
)  # fmt: skip
def test_refused(words: list[Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run(*words)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("sips", "topology", "part"),
    [
        (3, "ring_1d", 2 / 3),
        (4, "ring_1d", 3 / 4),
        (4, "torus_2d", 3 / 8),
        pytest.param(9, "torus_2d", 4 / 9, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("algorithm", BOTH)
def test_bytes_over_each_link(algorithm: str, sips: int, topology: str, part: float) -> None:
    """``(n-1)/n`` of a row a direction of a ring; ``(w-1)/w * (1 + 1/h) / 2`` of one of a torus."""
    words = flags(algorithm, sips, topology, n_slots=2, slot_size=64)
    done = right(run(*words, "--n-elem", 16 * 36, "--dtype", "f32"))
    links = done.document["runs"][0]["links"]
    assert len(links) == sips * (2 if topology == "ring_1d" else 4)
    sent = Counter[str]()
    for link in links:
        sent[link["name"].split(">")[0][-1]] += link["payload_bytes"]
    assert sent == dict.fromkeys(sent, pytest.approx(part * 16 * 36 * 4 * sips))


def test_every_link_of_the_mesh_carries_the_same() -> None:
    """``(1 + 1/W) / 2`` of a row in each direction of a square mesh of one SIP."""
    words = flags(HIERARCHICAL, 1, mesh="4x4", rank_per="cube", n_slots=2, slot_size=64)
    done = right(run(*words, "--n-elem", 16 * 16, "--dtype", "f32", keep_oplog=True))
    sent: Counter[tuple[int, str]] = Counter()
    for record in records_of(done.members[0].chip.sip, "ipcq.send"):
        sent[record.cube, record.fields["dir"]] += record.fields["nbytes"]
    assert len(sent) == 48
    assert set(sent.values()) == {16 * 16 * 4 * 5 // 8}


@pytest.mark.parametrize("topology", ["ring_1d", "torus_2d"])
def test_the_bound_holds_and_names_its_resource(topology: str) -> None:
    mesh = ("--set", "sip.cube_mesh={w: 2, h: 1}")
    done = right(run("--algorithm", HIERARCHICAL, "--sips", 4, "--topology", topology, "--bytes", "256K", *mesh))
    found = bounds(done.prepared.plan.system, 2**18 // 2, workers=8)
    name, bound_ps = bottleneck_of(found)
    assert name == "HBM of PE 0"
    assert bound_ps < done.document["runs"][0]["time_ns"] * 1000 < 6 * bound_ps
