"""Operations over data movers: elements beside NumPy's, what crosses the links, cores that are free afterwards, slices
that the pipeline does not hold.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from runs import Run, run, script_file
from sweeps import some

SCRIPT = """
import json
import sys

import numpy as np
from sipsim.core.dtypes import DTYPES

LINES, CASES = json.loads(sys.argv[1])

def elements(number, rank, shape, dtype):
    return np.random.default_rng((number, rank)).integers(0, 4, size=shape).astype(DTYPES[dtype].numpy)

def expected(op, at, each, dim):
    if op == "all_gather":
        return np.concatenate(each, dim)
    total = sum(one.astype(np.int64) for one in each).astype(each[0].dtype)
    return np.split(total, len(each), dim)[at]

def worker(rank, world_size, tt):
    results = []
    for number, (op, dtype, shape, dim, memory, options) in enumerate(CASES):
        line = next(each for each in LINES[str(options.get("cluster_axis"))] if rank in each)
        each = [elements(number, chip, shape, dtype) for chip in line]
        tensor = tt.tensor(each[line.index(rank)], memory)
        if "cluster_axis" in options and number % 2:
            tensor = tt.mesh_tensor(each[line.index(rank)], (None, None), memory)
        found = getattr(tt, op)(tensor, dim, **{"transport": "data_mover", **options})
        results.append((found, expected(op, line.index(rank), each, dim)))
    for (found, right), case in zip(results, CASES, strict=True):
        found = tt.to_numpy(found)
        assert found.shape == right.shape, (case, found.shape)
        assert np.array_equal(found, right), f"{case}: wrong on chip {rank}"
"""
Case = tuple[str, str, list[int], int, str, dict[str, Any]]


def ran(tmp_path: Path, cases: list[Case], lines: dict[str, list[list[int]]], *flags: object) -> Run:
    return run(*flags, script_file(tmp_path, SCRIPT), json.dumps((lines, cases)))


def error_of(done: Run) -> str:
    error = done.document["error"]
    return "" if error is None else f"{error['kind']}: {error['message']}"


def on_all(tmp_path: Path, topology: str, chips: int, cases: list[Case], *flags: object) -> Run:
    """Run cases on all chips of a line or ring."""
    cases = [(*each, {"topology": topology, **options}) for *each, options in cases]
    machine = ("--chip", "wormhole", "--sips", chips, "--topology", f"tt_{topology}", *flags)
    return ran(tmp_path, cases, {"None": [list(range(chips))]}, *machine)


def mixed(chips: int) -> list[Case]:
    """Sizes of a page, of no whole packet, and of several packets for each worker of a link, with a short one last."""
    return [
        ("all_gather", "f32", [1, 5], 0, "dram", {}),
        ("all_gather", "i32", [3, 2, 40], 1, "l1", {}),
        ("all_gather", "bf16", [77 * 32, 32], 0, "dram", {"bidirectional": False}),
        ("all_gather", "bf16", [2, 32, 5 * 32], -1, "dram", {}),
    ]


def reductions(chips: int) -> list[Case]:
    return [
        ("reduce_scatter", "i32", [chips * 3, 5, 40], 0, "dram", {}),
        ("reduce_scatter", "bf16", [chips * 4 * 32, 21 * 32], 0, "dram", {}),
        ("reduce_scatter", "f32", [2, 3 * 32, chips * 32], -1, "l1", {"bidirectional": False, "slice_packets": 2}),
    ]


@pytest.mark.parametrize(
    ("topology", "chips"),
    some(
        [("line", 2), ("line", 3), ("line", 8), ("ring", 3), ("ring", 4), ("ring", 8)],
        ("line", 3),
        ("ring", 4),
        names=2,
    ),
)
def test_elements_are_those_of_numpy(tmp_path: Path, topology: str, chips: int) -> None:
    cases = mixed(chips) + (reductions(chips) if topology == "ring" else [])
    done = on_all(tmp_path, topology, chips, cases)
    assert error_of(done) == ""
    assert done.document["second_pass"]["differences"] == 0


def test_jitter_and_parallel_links_change_no_element(tmp_path: Path) -> None:
    cases = [(*each, {"num_links": 2, **options}) for *each, options in mixed(3) + reductions(3)]
    for seed in (1, 2):
        flags = ("--set", "system.sips.num_links=2", "--jitter", seed)
        assert error_of(on_all(tmp_path, "ring", 3, cases, *flags)) == ""


RING_OF_T3000 = [0, 4, 5, 1, 2, 6, 7, 3]
ROWS_OF_T3000 = [[4, 0, 3, 7], [5, 1, 2, 6]]
ROWS_OF_GALAXY = [list(range(8 * y, 8 * y + 8)) for y in range(4)]
SYSTEMS: dict[str, tuple[dict[str, list[list[int]]], dict[str, Any]]] = {
    "n300": ({"None": [[0, 1]]}, {"topology": "ring"}),
    "t3000": ({"None": [RING_OF_T3000]}, {"topology": "ring"}),
    "t3000 rows": ({"1": ROWS_OF_T3000}, {"cluster_axis": 1}),
    "galaxy rows": ({"1": ROWS_OF_GALAXY}, {"cluster_axis": 1, "num_links": 4}),
}


@pytest.mark.parametrize("name", some(SYSTEMS, "n300", "t3000 rows"))
def test_systems_have_lines_and_rings(tmp_path: Path, name: str) -> None:
    lines, options = SYSTEMS[name]
    cases: list[Case] = [("all_gather", "bf16", [64, 96], dim, "dram", options) for dim in (0, 1)]
    assert error_of(ran(tmp_path, cases, lines, "--topology", name.split()[0])) == ""


def test_links_are_free_for_the_next_operation(tmp_path: Path) -> None:
    """The fabric opens while data movers may not have ended, and data movers start where routers were."""
    transports = ("data_mover", "fabric", "data_mover", "data_mover", "fabric", "fabric", "data_mover")
    cases: list[Case] = [("all_gather", "f32", [64, 32], 0, "dram", {"transport": each}) for each in transports]
    cases += [("reduce_scatter", "f32", [4 * 64, 32], 0, "dram", {"transport": each}) for each in transports]
    assert error_of(on_all(tmp_path, "ring", 4, cases)) == ""


# --- what crosses the links -------------------------------------------------------------------------------------------

TILES, TILE_BYTES, CHIPS = 16, 2048, 4


def payloads(tmp_path: Path, topology: str, op: str, options: dict[str, Any]) -> dict[str, float]:
    """Bytes over each link between neighbours, in units of one chip's tensor."""
    done = on_all(tmp_path, topology, CHIPS, [(op, "bf16", [TILES * 32, 32], 0, "dram", options)])
    assert error_of(done) == ""
    (row,) = done.document["runs"]
    assert (row["collective"], row["algorithm"]) == (op, f"{op}_{topology}_data_mover")
    used = {link["name"]: link["payload_bytes"] / TILES / TILE_BYTES for link in row["links"]}
    return {name: tensors for name, tensors in used.items() if tensors}


def test_a_ring_carries_half_of_each_tensor_all_the_way_round(tmp_path: Path) -> None:
    tensors = payloads(tmp_path, "ring", "all_gather", {})
    assert len(tensors) == 2 * CHIPS
    assert all(each == pytest.approx((CHIPS - 1) / 2, rel=0.05) for each in tensors.values())


def test_one_direction_carries_the_whole_of_each_tensor(tmp_path: Path) -> None:
    tensors = payloads(tmp_path, "ring", "all_gather", {"bidirectional": False})
    assert sorted(tensors.values())[CHIPS:] == pytest.approx([CHIPS - 1] * CHIPS, rel=0.05)
    assert max(sorted(tensors.values())[:CHIPS]) < 0.1, "the other direction has acknowledgements alone"


def test_a_line_carries_each_tensor_to_both_ends(tmp_path: Path) -> None:
    tensors = payloads(tmp_path, "line", "all_gather", {})
    expected = {(chip, chip + 1): chip + 1 for chip in range(CHIPS - 1)}
    expected |= {(chip + 1, chip): CHIPS - 1 - chip for chip in range(CHIPS - 1)}
    found = {tuple(int(end.partition(".")[0]) for end in name.split(">")): each for name, each in tensors.items()}
    assert found == pytest.approx(expected, rel=0.05)


def test_a_reduce_scatter_carries_a_slice_a_step(tmp_path: Path) -> None:
    tensors = payloads(tmp_path, "ring", "reduce_scatter", {})
    assert all(each == pytest.approx((CHIPS - 1) / CHIPS / 2, rel=0.1) for each in tensors.values())


# --- slices that the pipeline does not hold ---------------------------------------------------------------------------

PIPELINE = 9
"""Packets between two workers: 8 slots of the circular buffer but one that is free, a buffer in each data mover."""


def scattered(tmp_path: Path, packets: int, slice_packets: int) -> Run:
    """A reduce-scatter whose workers have so many packets of a fracture each, with 4 workers, in one direction."""
    tiles = 3 * 4 * 8 * packets
    options = {"bidirectional": False, "slice_packets": slice_packets}
    return on_all(tmp_path, "ring", 3, [("reduce_scatter", "bf16", [tiles * 32, 32], 0, "dram", options)])


@pytest.mark.parametrize("slice_packets", [PIPELINE, 0])
def test_slices_that_fit_pass(tmp_path: Path, slice_packets: int) -> None:
    assert error_of(scattered(tmp_path, PIPELINE if slice_packets else PIPELINE + 1, slice_packets)) == ""


def test_a_slice_of_a_packet_more_deadlocks_and_is_named(tmp_path: Path) -> None:
    done = scattered(tmp_path, PIPELINE + 1, PIPELINE + 1)
    advice = f"(a slice has {PIPELINE + 1} packets, and the pipeline to the next chip holds {PIPELINE}: "
    advice += f"give slice_packets={PIPELINE} or less)"
    assert (done.document["error"]["kind"], done.outcome.exit_code) == ("Deadlock", 3)
    assert advice in done.document["error"]["message"]
    assert done.outcome.long_report is not None
    report = done.outcome.long_report[1]
    for kernel, what in (
        ("scatter_reader", "room in its circular buffer"),
        ("scatter_writer", "room in the data mover on 9-6"),
    ):
        waits = [line for line in report.splitlines() if kernel in line and f"{what} {advice}" in line]
        assert len(waits) >= 3 * 4, "each worker of each chip"


# --- what is refused --------------------------------------------------------------------------------------------------

REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    ("line", "all_gather", {"transport": "ethernet"}, "fabric, data_mover"),
    ("line", "all_gather", {"num_workers_per_link": 1}, "no use for num_workers_per_link"),
    ("line", "all_gather", {"chunks_per_sync": 1}, "no use for chunks_per_sync"),
    ("ring", "reduce_scatter", {"is_direct": False, "chunks_per_sync": 2}, "no use for is_direct and chunks_per_sync"),
    ("line", "reduce_scatter", {}, "give topology='ring'"),
    ("line", "all_gather", {"num_links": 2}, "the line needs 2 parallel links or more, but 1 link leads"),
]


@pytest.mark.parametrize(
    ("topology", "op", "options", "what"), REFUSED, ids=[f"{each[1]} {each[2]}" for each in REFUSED]
)
def test_what_does_not_fit_is_refused_by_name(
    tmp_path: Path, topology: str, op: str, options: dict[str, Any], what: str
) -> None:
    error = error_of(on_all(tmp_path, topology, 3, [(op, "f32", [96, 32], 0, "dram", options)]))
    assert error.startswith("KernelMisuse: ")
    assert what in error


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter"])
def test_a_page_that_fits_no_packet_is_refused(tmp_path: Path, op: str) -> None:
    error = error_of(on_all(tmp_path, "ring", 3, [(op, "f32", [3, 5000], 0, "dram", {})]))
    assert error.startswith("KernelMisuse: ")
    assert "its segments are 20000 B, more than a packet of 16384 B" in error


OPEN = """
import numpy as np

def worker(rank, world_size, tt):
    fabric = tt.open_fabric("line")
    tensor = tt.tensor(np.ones((32, 32), np.float32))
    tt.all_gather(tensor, transport="data_mover", **{})
"""


@pytest.mark.parametrize(
    ("options", "what"), [({}, "end the fabric first"), ({"fabric": 0}, "no use for fabric")], ids=["open", "given"]
)
def test_an_open_fabric_is_in_the_way(tmp_path: Path, options: dict[str, Any], what: str) -> None:
    text = OPEN.replace("**{}", "fabric=fabric" if options else "")
    error = error_of(run("--topology", "n300", script_file(tmp_path, text)))
    assert error.startswith("KernelMisuse: ")
    assert what in error


def test_chips_that_choose_other_transports_are_named(tmp_path: Path) -> None:
    text = OPEN.replace('fabric = tt.open_fabric("line")', "pass").replace(
        'transport="data_mover", **{}', 'transport=("fabric", "data_mover")[rank]'
    )
    error = error_of(run("--topology", "n300", script_file(tmp_path, text)))
    assert error.startswith("CollectiveMismatch: ")
    assert "all_gather over data movers of 32x32 f32" in error
