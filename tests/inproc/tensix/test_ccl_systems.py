"""Operations on whole systems without a fabric of the script: random programs beside NumPy, and what is refused."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from runs import Run, run, script_file
from sweeps import some

EXAMPLES = Path(__file__).resolve().parents[3] / "docs/examples"
SCRIPT = """
import json
import sys

import numpy as np
from sipsim.core.dtypes import DTYPES

SEED, CHIPS, CASES = json.loads(sys.argv[1])

def elements(number, rank, shape, dtype):
    return np.random.default_rng((SEED, number, rank)).integers(0, 4, size=shape).astype(DTYPES[dtype].numpy)

def expected(op, at, each, dim):
    if op == "all_gather":
        return np.concatenate(each, dim)
    if op == "all_to_all":
        return np.concatenate([np.split(one, len(each), dim)[at] for one in each], dim)
    total = sum(one.astype(np.int64) for one in each).astype(each[0].dtype)
    return total if op == "all_reduce" else np.split(total, len(each), dim)[at]

def worker(rank, world_size, tt):
    def config(given):
        return tt.MemoryConfig(*given) if isinstance(given, list) else given

    for number, (op, dtype, shape, dim, layout, memory, options) in enumerate(CASES):
        line = next(each for each in CHIPS[str(options.get("cluster_axis"))] if rank in each)
        each = [elements(number, chip, shape, dtype) for chip in line]
        at, what = line.index(rank), f"{op} of {dtype} {shape} {layout} {memory} along {dim} {options}"
        if options.get("cluster_axis") is not None and number % 2 and op != "all_to_all":
            tensor = tt.mesh_tensor(each[at], (None, None), config(memory), layout=layout)
        else:
            tensor = tt.tensor(each[at], config(memory), layout=layout)
        given = options | {"memory_config": config(options["memory_config"])}
        found = tt.to_numpy(getattr(tt, op)(tensor, dim, **given))
        right = expected(op, at, each, dim)
        assert found.shape == right.shape, f"{what}: shape {found.shape}"
        assert np.array_equal(found, right), f"{what}: wrong on chip {rank}"
"""
OPS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
RING_OF_T3000 = [0, 4, 5, 1, 2, 6, 7, 3]
ROWS_OF_T3000 = [[4, 0, 3, 7], [5, 1, 2, 6]]
ROWS_OF_GALAXY = [list(range(8 * y, 8 * y + 8)) for y in range(4)]


def columns(rows: list[list[int]]) -> list[list[int]]:
    return [list(column) for column in zip(*rows, strict=True)]


SYSTEMS: dict[str, tuple[list[object], dict[str, list[list[int]]], list[int]]] = {
    "n300": (["--topology", "n300"], {"None": [[0, 1]]}, [1]),
    "t3000": (
        ["--topology", "t3000"],
        {"None": [RING_OF_T3000], "0": columns(ROWS_OF_T3000), "1": ROWS_OF_T3000},
        [1],
    ),
    "galaxy": (["--topology", "galaxy"], {"0": columns(ROWS_OF_GALAXY), "1": ROWS_OF_GALAXY}, [1, 2, 4]),
    "t3000 by descriptor": (
        ["--cluster", EXAMPLES / "t3000.yaml"],
        {"None": [RING_OF_T3000], "0": columns(ROWS_OF_T3000), "1": ROWS_OF_T3000},
        [1],
    ),
}
"""Flags, lines by ``cluster_axis``, numbers of links. Lines are in the order in which operations concatenate."""


KINDS = ("interleaved", "width_sharded", "height_sharded", "block_sharded")


def config(draw: random.Random) -> Any:
    """A memory config, which any shape can have."""
    kind, memory = draw.choice(KINDS), draw.choice(("dram", "l1", "l1"))
    return memory if kind == "interleaved" else [kind, memory, *draw.choice(([], [], [[1, 1]]))]


def shape_and_layout(draw: random.Random, cuts: int) -> tuple[list[int], str | None, int]:
    """A shape, a layout, and a dimension that divides into so many slices."""
    layout = draw.choice(("tile", "row_major", None))
    rank = draw.randint(1 if layout == "row_major" else 2, 3)
    dim = draw.randrange(rank)
    if layout == "tile":
        shape = [draw.randint(1, 2) for _ in range(rank)]
        shape[dim] *= cuts
        return [*shape[:-2], 32 * shape[-2], 32 * shape[-1]], layout, dim
    last = draw.choice((1, 5, 8, 24, 40, 1700))
    shape = [draw.randint(1, 3) if last < 1700 else 1 for _ in range(rank - 1)] + [last]
    shape[dim] *= cuts
    return shape, layout, dim - draw.choice((0, rank))


def program(seed: int, system: str) -> list[Any]:
    """A random program: the lines and operations. It keeps to one fabric of all chips, or one along each axis."""
    _, lines, links = SYSTEMS[system]
    draw = random.Random(f"{system} {seed}")
    is_whole = "None" in lines and (len(lines) == 1 or draw.random() < 0.5)
    options = {"topology": draw.choice(("line", "ring")), "num_links": draw.choice(links)}
    cases = []
    for _ in range(1 if system == "galaxy" else draw.randint(1, 3)):
        axis = None if is_whole else draw.choice((0, 1))
        size, op = len(lines[str(axis)][0]), draw.choice(OPS)
        shape, layout, dim = shape_and_layout(draw, size if op != "all_gather" else 1)
        chosen = options | {"memory_config": draw.choice((None, config(draw)))}
        chosen |= {} if axis is None else {"cluster_axis": axis}
        chosen |= {"is_direct": draw.random() < 0.5} if op == "reduce_scatter" and options["topology"] == "ring" else {}
        cases.append((op, draw.choice(("bf16", "f32", "i32", "i8")), shape, dim, layout, config(draw), chosen))
    return [seed, lines, cases]


TABLE = {
    f"{kind}, {layout}": (kind, layout, ["l1", "dram"][kind == "interleaved"])
    for kind in KINDS
    for layout in ("tile", "row_major")
}
"""The rows of the guide's list of operations."""


@pytest.mark.parametrize(
    "name", some(TABLE, "interleaved, row_major", "width_sharded, tile", "block_sharded, row_major")
)
def test_the_guides_table(tmp_path: Path, name: str) -> None:
    """Each operation along each dimension: the result lies as the tensor does, then interleaved, then in blocks."""
    kind, layout, memory = TABLE[name]
    shape = [64, 128] if layout == "tile" else [8, 24]
    configs = [None, "dram", ["block_sharded", "l1"]]
    cases = [
        (op, "f32", shape, dim, layout, [kind, memory], {"memory_config": configs[(number + dim) % 3]})
        for number, op in enumerate(OPS)
        for dim in (0, 1)
    ]
    assert (
        error_of(run(*SYSTEMS["n300"][0], script_file(tmp_path, SCRIPT), json.dumps([0, {"None": [[0, 1]]}, cases])))
        == ""
    )


def error_of(done: Run) -> str:
    error = done.document["error"]
    return "" if error is None else f"{error['kind']}: {error['message']}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As many random programs as ``--programs`` says; all but a few are slow."""
    if metafunc.function is test_random_programs:
        programs = [(name, seed) for name in SYSTEMS for seed in range(metafunc.config.getoption("programs"))]
        metafunc.parametrize(("system", "seed"), some(programs, *((name, 3) for name in SYSTEMS), names=2))


def test_random_programs(tmp_path: Path, system: str, seed: int) -> None:
    told = json.dumps(program(seed, system))
    assert error_of(run(*SYSTEMS[system][0], script_file(tmp_path, SCRIPT), told)) == ""


# --- which chips take part ------------------------------------------------------------------------------------------

ASK = """
import json
import sys

import numpy as np

def worker(rank, world_size, tt):
    for options in json.loads(sys.argv[1]):
        if rank not in options.get("chips", [rank]):
            continue
        rows = tt.to_numpy(tt.all_gather(tt.tensor(np.full((1, 8), rank, np.int32)), 0, **options))[:, 0]
        if rank == 0:
            print("order", *rows)
"""


def orders(tmp_path: Path, capfd: pytest.CaptureFixture[str], flags: list[object], *options: dict[str, Any]) -> Any:
    """The orders in which calls on chip 0 concatenate, and which fabrics are printed; or the error."""
    done = run(*flags, script_file(tmp_path, ASK), json.dumps(options))
    if done.document["error"]:
        return done.document["error"]["kind"], done.document["error"]["message"]
    lines = [line.split() for line in capfd.readouterr().out.splitlines()]
    found = [[int(each) for each in line[1:]] for line in lines if line[:1] == ["order"]]
    return found, [line[2] for line in lines if line[:1] == ["operations"]]


RING = {"topology": "ring"}


@pytest.mark.parametrize(
    ("flags", "options", "order", "printed"),
    [
        (["--topology", "tt_line", "--sips", 4], {}, [0, 1, 2, 3], []),
        (["--topology", "tt_ring", "--sips", 4], RING, [0, 1, 2, 3], []),
        (["--topology", "tt_line", "--sips", 4], RING, [0, 1, 2, 3], ["line"]),
        (["--topology", "n300"], RING, [0, 1], ["line"]),
        (["--topology", "t3000"], {}, RING_OF_T3000, ["line"]),
        (["--topology", "t3000"], RING, RING_OF_T3000, ["ring"]),
        (["--cluster", EXAMPLES / "t3000.yaml"], RING, RING_OF_T3000, ["ring"]),
        (["--topology", "blackhole_8"], RING, [0, 1, 5, 4, 6, 7, 3, 2], ["ring"]),
        (["--topology", "t3000"], {"chips": [2, 1, 0, 3], **RING}, [2, 1, 0, 3], []),
        (["--topology", "t3000"], {"cluster_axis": 1}, [4, 0, 3, 7], ["line"]),
        (["--topology", "t3000"], {"cluster_axis": 0}, [0, 1], ["line"]),
    ],
    ids=str,
)
def test_order(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    flags: list[object],
    options: dict[str, Any],
    order: list[int],
    printed: list[str],
) -> None:
    """A call and the same call again, on the same fabric: printed once."""
    assert orders(tmp_path, capfd, flags, options, options) == ([order, order], printed)


STAR = [{"a": 0, "a_port": f"eth{spoke}", "b": spoke, "b_port": "eth0"} for spoke in (1, 2, 3)]
STAR_FLAGS = ["--chip", "wormhole", "--sips", 4, "--topology", "custom"]
STAR_FLAGS += ["--set", f"system.sips.custom_links={json.dumps(STAR)}"]


@pytest.mark.parametrize(
    ("flags", "options", "advice", "vain"),
    [
        (STAR_FLAGS, {}, "chips=", "num_links"),
        (STAR_FLAGS, {"cluster_axis": 1}, "chips=", "num_links"),
        (["--topology", "n300"], {"num_links": 2}, "reduce num_links", "chips="),
        (["--topology", "t3000"], {"chips": [0, 2, 1]}, "chips=", "num_links"),
        (["--topology", "t3000"], {"chips": [0, 1, 2], **RING}, "topology='line'", "num_links"),
        (["--topology", "t3000"], {"chips": [0, 1], "cluster_axis": 0}, "give one of them", "num_links"),
        (["--topology", "t3000"], {"chips": [0, 8]}, "0 to 7", "num_links"),
        (["--topology", "t3000"], {"cluster_axis": 2}, "along rows", "num_links"),
    ],
    ids=str,
)
def test_advice_is_what_can_help(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    flags: list[object],
    options: dict[str, Any],
    advice: str,
    vain: str,
) -> None:
    kind, message = orders(tmp_path, capfd, flags, options)
    assert kind == "KernelMisuse"
    assert advice in message
    assert vain not in message


# --- the dispatcher's links -----------------------------------------------------------------------------------------

RESERVED = """
import sys

def kernel(df):
    pass

def worker(rank, world_size, tt):
    near = [tt.get_connected_ethernet_core(core)[0] for core in tt.get_active_ethernet_cores(False)]
    for far in sorted(set(near)):
        free, every = (tt.ethernet_cores_to(far, skip) for skip in (True, False))
        for core in every:
            try:
                tt.create_kernel(tt.create_program(), kernel, core)
                print("link", rank, far, tt.channel_of(core), "free" if core in free else "taken")
            except Exception as error:
                print("link", rank, far, tt.channel_of(core), type(error).__name__, str(core) in str(error))
    print("pcie", rank, tt.cluster.is_device_pcie_connected(rank), *tt.cluster.location(rank))
"""


def facts(tmp_path: Path, capfd: pytest.CaptureFixture[str], flags: list[object]) -> set[str]:
    assert error_of(run(*flags, script_file(tmp_path, RESERVED))) == ""
    return {line for line in capfd.readouterr().out.splitlines() if line.startswith(("link", "pcie"))}


@pytest.mark.parametrize("system", ["n300", "t3000"])
def test_a_reserved_core_is_refused_by_name_and_by_descriptor(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], system: str
) -> None:
    found = facts(tmp_path, capfd, ["--topology", system])
    half = 1 if system == "n300" else 4
    refused = {f"link {a} {b} {channel} KernelMisuse True" for a, b, channel in dispatchers(half)}
    assert {line for line in found if line.startswith("link") and not line.endswith("free")} == refused
    hosts = {tuple(line.split()[1:3]) for line in found if line.startswith("pcie")}
    assert hosts == {(str(rank), str(rank < half)) for rank in range(2 * half)}
    assert facts(tmp_path, capfd, ["--cluster", EXAMPLES / f"{system}.yaml"]) == found


def dispatchers(half: int) -> list[tuple[int, int, int]]:
    """Chip, far chip and channel at both ends of each link from a local to a remote chip that the dispatcher has."""
    onward = [(local, local + half, 9) for local in range(half)]
    return onward + [(remote, local, 1) for local, remote, _ in onward]


def test_the_guides_minimal_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "two.yaml").write_text(
        "chips: {0: [0,0,0,0], 1: [1,0,0,0]}\nchips_with_mmio: [0: 0]\n"
        "ethernet_connections:\n  - [{chip: 0, chan: 8}, {chip: 1, chan: 0}]\n"
    )
    assert facts(tmp_path, capfd, ["--cluster", tmp_path / "two.yaml"]) == {
        "link 0 1 8 free",
        "link 1 0 0 free",
        "pcie 0 True 0 0 0 0",
        "pcie 1 False 1 0 0 0",
    }
