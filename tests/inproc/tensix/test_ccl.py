"""Operations on the fabric: elements beside NumPy's, bugs that these show, and long messages by extension."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from runs import run, script_file
from sweeps import some
from tenstorrent.rows import request_of

from launcher.bench.base import BENCHES
from launcher.bench.benches.ccl import CclCase, run_ns
from launcher.bench.machine import Machine
from launcher.bench.published import Published
from sipsim.chips.tensix.ccl import workers
from sipsim.chips.tensix.fabric import router as machine
from sipsim.chips.tensix.fabric.packet import write_and_increment
from sipsim.chips.tensix.fabric.router import Flush
from sipsim.core.errors import ConfigError

SCRIPT = """
import json
import sys

import numpy as np
from sipsim.core.dtypes import DTYPES

CASES = json.loads(sys.argv[1])

def elements(rank, shape, dtype):
    return np.random.default_rng(rank).integers(0, 4, size=shape).astype(DTYPES[dtype].numpy)

def expected(op, rank, each, dim):
    if op == "all_gather":
        return np.concatenate(each, dim)
    if op == "all_to_all":
        return np.concatenate([np.split(one, len(each), dim)[rank] for one in each], dim)
    total = sum(one.astype(np.int64) for one in each).astype(each[0].dtype)
    return total if op == "all_reduce" else np.split(total, len(each), dim)[rank]

def worker(rank, world_size, tt):
    for op, dtype, shape, dim, memory, options in CASES:
        each = [elements(chip, shape, dtype) for chip in range(world_size)]
        tensor = tt.tensor(each[rank], memory)
        result = getattr(tt, op)(tensor, dim, **options)
        found, right = tt.to_numpy(result), expected(op, rank, each, dim)
        assert found.shape == right.shape, (op, found.shape)
        assert np.array_equal(found, right), f"{op} of {dtype} {shape} along {dim} {options}: wrong on chip {rank}"
"""
BLOCK_SCRIPT = """
import sys

import numpy as np
from sipsim.chips.tensix.formats import FORMATS

SHAPE, DIM, DTYPE = (128, 96), 0, sys.argv[1]

def elements(rank):
    return (np.random.default_rng(rank).standard_normal(SHAPE) * 2.0**rank).astype(np.float32)

def coded(array):
    tiles = array.reshape(-1, 32, array.shape[1] // 32, 32).swapaxes(1, 2)
    data = FORMATS[DTYPE].encode(tiles)
    return data, FORMATS[DTYPE].decode(data).reshape(tiles.shape).swapaxes(1, 2).reshape(array.shape)

def worker(rank, world_size, tt):
    each = [coded(elements(chip))[1] for chip in range(world_size)]
    tensor = tt.tensor(elements(rank), dtype=DTYPE)
    assert np.array_equal(tt.to_numpy(tensor), each[rank]) and not np.array_equal(each[rank], elements(rank))
    core, first = tensor.place(0)
    page = len(coded(elements(rank))[0]) // tensor.pages.n_pages
    assert tt.read(core, first, page) == coded(elements(rank))[0][:page]
    total = coded(sum(each))[1]
    wanted = {
        "all_gather": np.concatenate(each, DIM),
        "all_to_all": np.concatenate([np.split(one, world_size, DIM)[rank] for one in each], DIM),
        "reduce_scatter": np.split(total, world_size, DIM)[rank],
        "all_reduce": total,
    }
    for op, right in wanted.items():
        found = tt.to_numpy(getattr(tt, op)(tensor, DIM))
        assert found.dtype == np.float32 and np.array_equal(found, right), f"{op}: wrong on chip {rank}"
    mesh = tt.mesh_tensor(elements(7), 0, dtype=DTYPE)
    assert np.array_equal(tt.to_numpy(tt.all_gather(mesh, 0)), coded(elements(7))[1])
"""
OPS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
FABRICS = [("line", 2), ("line", 3), ("line", 4), ("line", 8), ("ring", 3), ("ring", 4), ("ring", 8)]
Case = tuple[str, str, list[int], int, str, dict[str, Any]]


def check(tmp_path: Path, topology: str, chips: int, cases: list[Case], *flags: str) -> str:
    """Run cases on a fabric of so many chips.

    Returns:
        What went wrong; empty if nothing did.
    """
    told = [(*each, {"topology": topology, **more}) for *each, more in cases]
    machine = ("--chip", "wormhole", "--sips", chips, "--topology", f"tt_{topology}", *flags)
    done = run(*machine, script_file(tmp_path, SCRIPT), json.dumps(told))
    error = done.document["error"]
    return "" if error is None else f"{error['kind']}: {error['message']}"


ELEMENTS = [(*fabric, dtype) for fabric in FABRICS for dtype in ("bf16", "f32", "i32")]


@pytest.mark.parametrize("dtype", ["bfp8", "bfp4"])
def test_block_formats(tmp_path: Path, dtype: str) -> None:
    """On two chips a sum is that of two operands, rounded once; the second pass adds so, too."""
    done = run("--topology", "n300", script_file(tmp_path, BLOCK_SCRIPT), dtype)
    assert done.document["error"] is None
    assert done.document["second_pass"]["differences"] == 0
    rows = {row["collective"]: row for row in done.document["runs"]}
    assert {row["dtype"] for name, row in rows.items() if name != "program"} == {dtype}
    assert (rows["all_reduce"]["count"], rows["all_reduce"]["bytes"]) == (
        12288,
        {"bfp8": 1088, "bfp4": 576}[dtype] * 12,
    )


@pytest.mark.parametrize(
    ("topology", "chips", "dtype"),
    some(ELEMENTS, ("line", 3, "bf16"), ("ring", 4, "bf16"), ("line", 2, "f32"), ("ring", 3, "i32"), names=3),
)
def test_elements_are_those_of_numpy(tmp_path: Path, topology: str, chips: int, dtype: str) -> None:
    cases: list[Case] = [(op, dtype, [chips * 3, 2, 40], 0, "dram", {}) for op in OPS]
    cases += [(op, dtype, [chips * 32, 64], 0, "dram", {}) for op in OPS]
    assert check(tmp_path, topology, chips, cases) == ""


OPTIONS: dict[str, list[Case]] = {
    "one direction": [(op, "bf16", [256, 64], 0, "dram", {"bidirectional": False}) for op in OPS],
    "relays of small tensors": [("reduce_scatter", "bf16", [512, 64], 0, "dram", {"is_direct": False})],
    "slices of two packets": [
        (
            "reduce_scatter",
            "bf16",
            [1024, 64],
            0,
            "dram",
            {"is_direct": False, "slice_packets": 2, "chunks_per_sync": 3},
        )
    ],
    "tiles along the last dimension": [(op, "bf16", [2, 32, 256], -1, "dram", {}) for op in OPS],
    "in L1": [(op, "bf16", [256, 32], 0, "l1", {}) for op in OPS],
    "rows that make whole tiles together": [
        ("all_gather", "f32", [8, 64], 0, "dram", {}),
        ("all_gather", "i32", [3, 16, 32], 1, "l1", {}),
    ],
    "a worker that copies": [
        (op, "f32", [256, 32], 0, "dram", {"num_workers_per_link": 2}) for op in ("all_gather", "all_to_all")
    ],
    "direct in one direction": [
        ("reduce_scatter", "i32", [256, 64], 0, "dram", {"is_direct": True, "bidirectional": False})
    ],
    "again and again": [("all_reduce", "i32", [128, 32], 0, "dram", {})] * 4,
}


@pytest.mark.parametrize(
    "name", some(OPTIONS, "one direction", "slices of two packets", "in L1", "a worker that copies")
)
def test_options_change_no_element(tmp_path: Path, name: str) -> None:
    assert check(tmp_path, "ring", 4, OPTIONS[name]) == ""


def test_two_links_share_the_work(tmp_path: Path) -> None:
    cases: list[Case] = [(op, "bf16", [1024, 64], 0, "dram", {"num_links": 2}) for op in OPS]
    assert check(tmp_path, "line", 4, cases, "--set", "system.sips.num_links=2") == ""


MANY_LINKS = ("--set", "system.sips.num_links=4")
CHUNKS_ON_THEIR_WAY: list[Case] = [
    ("all_gather", "f16", [rows, 3, 32, 96], 3, "dram", {"num_links": 4}) for rows in (36, 40, 48)
]
"""Packets of a chunk go to channels of DRAM over a NoC that four links share, and some overtake others."""


def test_a_relay_sends_what_has_come(tmp_path: Path) -> None:
    assert check(tmp_path, "ring", 4, CHUNKS_ON_THEIR_WAY, *MANY_LINKS) == ""


def _without_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "write_and_increment", partial(write_and_increment, is_flushed=False))


def _flush_of_one_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "Flush", lambda target, its, _behind, at_ps: Flush(target, its, (its,), at_ps))


@pytest.mark.slow
@pytest.mark.parametrize("bug", [_without_flush, _flush_of_one_packet])
def test_a_relay_that_is_told_too_early_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: Callable[[pytest.MonkeyPatch], None]
) -> None:
    bug(monkeypatch)
    assert "wrong on chip" in check(tmp_path, "ring", 4, CHUNKS_ON_THEIR_WAY, *MANY_LINKS)


MISTAKES: dict[str, tuple[Case, str]] = {
    "topology": (("all_gather", "f32", [4, 32], 0, "dram", {"topology": "mesh"}), "give one of line, ring"),
    "dimension": (("all_gather", "f32", [4, 32], 2, "dram", {}), "dim=2: give a whole number, -2 to 1"),
    "tiles": (("all_to_all", "f32", [64, 32], 0, "dram", {}), "2 tiles along dimension 0 cannot be cut into 3 slices"),
    "slices": (("reduce_scatter", "f32", [4, 30], 0, "dram", {}), "cannot be cut into 3 slices"),
    "memory": (("all_gather", "f32", [4, 30], 0, "hbm", {}), "give one of dram, l1"),
    "chunks": (("reduce_scatter", "f32", [3, 30], 0, "dram", {"chunks_per_sync": 0}), "1 or more"),
    "chunks of a line": (("all_gather", "f32", [3, 30], 0, "dram", {"chunks_per_sync": "2"}), "chunks_per_sync='2': "),
    **{
        f"{option} {value!r}": ((op, "f32", [3, 30], 0, "dram", {option: value}), f"{option}={value!r}: give {what}")
        for op, option, values, what in (
            ("all_gather", "num_workers_per_link", (0, -1, 3, True, "2", 1.5), "a whole number, 1 to 2"),
            ("all_to_all", "num_workers_per_link", (0, 3, "2"), "a whole number, 1 to 2"),
            ("all_gather", "num_links", (0, -1, True, "1"), "a whole number, 1 or more"),
            ("all_reduce", "chunks_per_sync", (-1, True, 1.5), "a whole number, 1 or more"),
            ("reduce_scatter", "slice_packets", (-1, True, "2"), "a whole number, 0 or more"),
            ("reduce_scatter", "is_direct", ("x", 0), "True or False"),
            ("all_gather", "bidirectional", (2, "no"), "True or False"),
            ("all_gather", "fabric", (3, ""), "what tt.open_fabric returns"),
        )
        for value in values
    },
    **{
        f"dimension {dim!r}": (("all_gather", "f32", [4, 32], dim, "dram", {}), f"dim={dim!r}: give a whole number, ")
        for dim in ("0", None, 0.5, True)
    },
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_told(tmp_path: Path, name: str) -> None:
    case, text = MISTAKES[name]
    found = check(tmp_path, "line", 3, [case])
    assert found.startswith("KernelMisuse")
    assert text in found


DIFFERENT = """
import numpy as np

def worker(rank, world_size, tt):
    x = tt.tensor(np.full((128, 32), 1, np.float32))
    tt.to_numpy({call})
"""
OTHER_CALLS = {
    "shape": ("tt.all_reduce(tt.tensor(np.ones((64, 32 + 32 * rank), 'f4')))", "64x32 f32", "64x64 f32"),
    "dtype": ("tt.reduce_scatter(tt.tensor(np.ones((64, 32), ['f4', 'i4'][rank])))", "64x32 f32", "64x32 i32"),
    "dimension": ("tt.all_gather(x, dim=rank)", "dim=0", "dim=1"),
    "directions": ("tt.all_gather(x, bidirectional=not rank)", "bidirectional=True", "bidirectional=False"),
    "chunks": ("tt.all_reduce(x, chunks_per_sync=1 + rank)", "chunks_per_sync=1", "chunks_per_sync=2"),
    "slices": ("tt.all_to_all(tt.tensor(np.ones((128, 32), 'f4'), slices=1 + rank))", "of 4 pages", "of 2 pages"),
    "memory": ("tt.all_gather(tt.tensor(np.ones((64, 32), 'f4'), ['dram', 'l1'][rank]))", "from dram", "from l1"),
    "layout": (
        "tt.all_gather(tt.tensor(np.ones((64, 32), 'f4'), layout=['tile', 'row_major'][rank]))",
        "tile from",
        "row_major from",
    ),
    "memory config": (
        "tt.all_gather(x, memory_config=[None, tt.MemoryConfig('height_sharded')][rank])",
        "to dram at",
        "to l1 height_sharded of",
    ),
    "tensors before": (
        "tt.all_to_all(([tt.tensor(np.ones((64, 32), 'f4')) for _ in range(rank)], x)[1])",
        " at 0x",
        " at 0x",
    ),
    "operation": ("[tt.all_gather, tt.all_reduce][rank](x)", "calls all_gather", "rank 1 all_reduce"),
}


@pytest.mark.parametrize("name", OTHER_CALLS)
def test_chips_that_make_other_calls_are_told(tmp_path: Path, name: str) -> None:
    """What each gives, whether sums were wrong, or the run came to its end in another way, or in none."""
    call, *told = OTHER_CALLS[name]
    error = run("--topology", "n300", script_file(tmp_path, DIFFERENT.format(call=call))).document["error"]
    assert error["kind"] == "CollectiveMismatch"
    assert all(each in error["message"] for each in ("rank 0 calls", "rank 1", *told))


def test_a_chip_that_makes_fewer_calls_is_told(tmp_path: Path) -> None:
    call = "x if rank else tt.all_gather(x)"
    error = run("--topology", "n300", script_file(tmp_path, DIFFERENT.format(call=call))).document["error"]
    assert error["kind"] == "Deadlock"
    assert "rank 1 has not called all_gather of 128x32 f32, call 1 of the group of all ranks (its" in error["message"]


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        (
            "fabric.revisions.2025-03.avoidance=any",
            "2025-03.avoidance = 'any': must be one of: none, dateline, bubble",
        ),
    ],
)
def test_words_of_a_config(tmp_path: Path, setting: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(tmp_path, "line", 2, [], "--set", f"system.chip_params.{setting}")
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("[1.0]", "give an array"),
        ("np.ones((2, 32), np.int32), slices=0", "slices=0: "),
        ("np.ones((2, 32), np.int32), layout='tile'", "layout='tile': "),
        (
            "np.ones((2, 32), np.int32), tt.MemoryConfig('width_sharded', 'l1', (3, 1))",
            "core_grid=(3, 1): 2 x 32 elements",
        ),
        (
            "np.ones((2, 32), np.int32), memory_config=tt.MemoryConfig('sharded')",
            "memory_layout='sharded': give one of",
        ),
    ],
)
def test_what_no_tensor_is_made_of(tmp_path: Path, what: str, line: str) -> None:
    source = f"import numpy as np\ndef worker(rank, world_size, tt):\n    tt.tensor({what})\n"
    error = run("--topology", "n300", script_file(tmp_path, source)).document["error"]
    assert error["kind"] == "KernelMisuse"
    assert line in error["message"]


ROW = Published(
    *("X1", "wormhole_b0", "ccl_report_wormhole_b0", "all_gather", 1, 6144, 1, "us", 1.0, "output", "kernel_time"),
    topology="line",
    devices="2",
    links=1,
    total_bytes=2**20,
    note="bf16 tile pages 2048 B",
)


def test_a_row_says_its_case() -> None:
    assert request_of(ROW).case == CclCase(
        "all_gather", sizes=(2**20,), topology="line", chips=2, links=1, packet_bytes=6144, calls=1
    )


NOT_CLAIMED = [{"test": "all_gather_binary_mult"}, {"topology": ""}, {"devices": "2,4"}, {"total_bytes": None},
               {"total_bytes": 2**20 + 16}, {"note": "bfp8 pages"}, {"statistic": "device_kernel"}, {"nbytes": None},
               {"topology": "ring"}, {"metric": "GB/s"}]  # fmt: skip


@pytest.mark.parametrize("other", NOT_CLAIMED, ids=str)
def test_what_is_not_simulated_is_no_claim(other: dict[str, Any]) -> None:
    assert request_of(ROW._replace(**other)).case is None


def extended_and_plain_ns(case: CclCase, machine: Machine, nbytes: int) -> tuple[float, float]:
    """The time of a size by extension, and that of a plain run of it."""
    [figure] = BENCHES.get("ccl").measure(replace(case, sizes=(nbytes,)), machine)
    assert nbytes > case.most_plain
    return figure.value * 1000, run_ns(case, machine, nbytes)


@pytest.mark.parametrize("test", some(OPS, "all_to_all"))
def test_long_messages_by_extension(test: str) -> None:
    case = CclCase(test, topology="line", chips=2)
    extended_ns, plain_ns = extended_and_plain_ns(case, Machine(), case.steady[1] * 5 // 4)
    assert extended_ns == pytest.approx(plain_ns, rel=0.01)


LONG = [("all_gather", "ring", 4, "wormhole"), ("reduce_scatter", "ring", 4, "wormhole"),
        ("reduce_scatter", "line", 4, "wormhole"), ("all_to_all", "line", 4, "wormhole"),
        ("all_to_all", "ring", 4, "wormhole"), ("all_reduce", "ring", 4, "wormhole"),
        ("all_gather", "line", 8, "wormhole"), ("reduce_scatter", "ring", 8, "wormhole"),
        ("all_gather", "line", 4, "blackhole"), ("reduce_scatter", "ring", 4, "blackhole")]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("test", "topology", "chips", "chip"), LONG)
def test_long_messages_on_other_fabrics_by_extension(test: str, topology: str, chips: int, chip: str) -> None:
    """Half as much again as the longer of the two runs. Sums on rings meet channels of DRAM that others use, and no
    two rounds take the same time there.
    """
    links, packet_bytes = (2, 8192) if chip == "blackhole" else (1, 6144)
    case = CclCase(test, topology=topology, chips=chips, links=links, packet_bytes=packet_bytes)
    extended_ns, plain_ns = extended_and_plain_ns(case, Machine(chip=chip), case.steady[1] * 3 // 2)
    is_uneven = topology == "ring" and test in ("reduce_scatter", "all_reduce")
    assert extended_ns == pytest.approx(plain_ns, rel=0.05 if is_uneven else 0.02)


def test_additions_take_their_time() -> None:
    """On a line of two each chip adds one slice to its own, packet by packet, behind which all else hides."""
    slice_bytes, case = 8 * 2048, CclCase("reduce_scatter", topology="line", chips=2)
    slow_ns, quick_ns = (
        run_ns(case, Machine(settings=(f"system.chip_params.ccl.add_GBps={rate}",)), 2 * slice_bytes)
        for rate in (0.1, 0.2)
    )
    assert slow_ns - quick_ns == pytest.approx(slice_bytes / 0.1 - slice_bytes / 0.2, rel=0.01)


def test_one_all_reduce_is_the_sum_of_its_operations_and_a_chain_is_not() -> None:
    """As published: each part by itself, until its slowest chip has ended."""
    parts_ns = [
        run_ns(CclCase(op, topology="line", chips=3), Machine(), 49152) for op in ("reduce_scatter", "all_gather")
    ]
    whole = CclCase("all_reduce", topology="line", chips=3)
    assert run_ns(whole, Machine(), 49152) == pytest.approx(sum(parts_ns), rel=0.005)
    assert run_ns(replace(whole, calls=2), Machine(), 49152, calls=1) != pytest.approx(sum(parts_ns), rel=0.005)


def test_calls_back_to_back_take_no_longer_by_and_by() -> None:
    case = CclCase("all_gather", sizes=(16384,), topology="line", chips=2, calls=8)
    [figure] = BENCHES.get("ccl").measure(case, Machine())
    [single] = BENCHES.get("ccl").measure(replace(case, calls=1), Machine())
    assert figure.statistic == "kernel_time_back_to_back"
    assert single.value / 2 < figure.value < single.value
