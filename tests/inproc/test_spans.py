"""Spans: every picosecond of every kernel is one or a wait with a cause, and going back over causes reaches time 0."""

import re
from typing import Any

import pytest
from launch_flags import launch_flags
from runs import Run, ccl_file, run
from sweeps import some

from sipsim.records.recorder import Span

Spans = list[list[Span]]
"""Those of each rank; number n is at n - 1."""
KERNEL = re.compile(r"(cube\d+\.pe\d+)\.kernel")

TORUS = ("--sips", 4, "--topology", "torus_2d", "--no-verify-data")
MESH = ("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2")
SMALL = (*TORUS, *MESH, "--bytes", "4K")
TIGHT = ("--set", "defaults.slot_size=64", "--set", "defaults.n_slots=2")

COSTS_OF_A_PE = (
    *("--set", "pe_cpu.issue_ns=15", "--set", "pe_scheduler.queue_depth=1"),
    *("--set", "pe_mmu={page_KiB: 4, tlb_entries: 2, walk_ns: 200, virtual_rings: true}"),
)


def setting(name: str, value: object) -> tuple[str, str]:
    return "--set", f"defaults.{name}={value}"


RUNS: dict[str, tuple[object, ...]] = {
    "default": (*TORUS, "--bytes", "64K"),
    "rings in HBM": (*SMALL, *setting("buffer_kind", "hbm"), *TIGHT),
    "rings in SRAM, poll": (*SMALL, *setting("buffer_kind", "sram"), *setting("backpressure", "poll"), *TIGHT),
    "fabric credits": (*SMALL, *setting("credit_return_mode", "fabric"), *TIGHT),
    "piggyback": (*SMALL, *setting("credit_return_mode", "piggyback"), *TIGHT),
    "auto": (*SMALL, *setting("credit_return_mode", "auto"), *TIGHT, "--set", "system.sips.links={0.E: ethernet_100g}"),
    "piggyback, poll": (
        *SMALL,
        *setting("credit_return_mode", "piggyback"),
        *setting("backpressure", "poll"),
        *setting("n_slots", 1),
    ),
    "several iterations": (*SMALL, "-n", 3, "-w", 1),
    "sizes": (*TORUS, *MESH, "-b", "1K", "-e", "4K", "-f", 2),
    "two on ethernet": ("--sips", 2, "--bytes", "2K", "--link", "ethernet_100g", "-n", 2, "--no-verify-data"),
    "launches": (*SMALL, *launch_flags(max_start_skew_ns=300), "-n", 2),
    "late starts": (*SMALL, *launch_flags(start_margin_ns=0), *TIGHT),
    "the costs of a PE": (*SMALL, *setting("buffer_kind", "hbm"), *TIGHT, *COSTS_OF_A_PE),
    "in place, the costs of a PE": (
        *SMALL,
        *setting("buffer_kind", "sram"),
        *setting("latch", "in_place"),
        *TIGHT,
        *COSTS_OF_A_PE,
    ),
    "mesh": ("--sips", 4, "--topology", "mesh_2d_no_wrap", *MESH, *TIGHT, "--bytes", "4K", "--no-verify-data"),
}

FEW = ("rings in HBM", "auto", "piggyback, poll", "sizes", "launches", "late starts", "in place, the costs of a PE")


def spans_of(done: Run) -> Spans:
    assert done.outcome.error is None, done.outcome.error
    found = [member.chip.sip.recorder.spans or [] for member in done.members]
    for spans in found:
        assert [each.number for each in spans] == list(range(1, len(spans) + 1))
    return found


def cause_of(spans: Spans, of: Span) -> Span | None:
    rank, number = of.cause
    return spans[rank][number - 1] if number else None


def check_causes(spans: Spans) -> None:
    """A span starts when its cause ends, a wait ends when its cause ends; number 0 is the start of the run."""
    for each in (each for mine in spans for each in mine):
        cause = cause_of(spans, each)
        released_ps = 0 if cause is None else cause.end_ps
        assert (each.end_ps if each.is_wait else each.start_ps) == released_ps, (each, cause)
        assert each.start_ps <= each.end_ps


def way_back(spans: Spans) -> list[Span]:
    """The spans from the last end back to time 0."""
    at: Span | None = max((each for mine in spans for each in mine), key=lambda each: each.end_ps)
    path: list[Span] = []
    while at is not None:
        path.append(at)
        assert len(path) < 10**6, "a cycle of causes"
        at = cause_of(spans, at)
    return path


def check_kernels(spans: Spans) -> int:
    """The spans and waits of a kernel's PE fill its time, one after the other; the number of kernels."""
    kernels = 0
    for mine in spans:
        for kernel in mine:
            pe = KERNEL.fullmatch(kernel.component)
            if pe is None:
                continue
            kernels += 1
            here = [each for each in mine if each.component == pe[1] and each.start_ps < each.end_ps]
            parts = sorted(
                (each.start_ps, each.end_ps)
                for each in here
                if kernel.start_ps <= each.start_ps and each.end_ps <= kernel.end_ps
            )
            ends_ps = [kernel.start_ps, *(end_ps for _, end_ps in parts)]
            assert [start_ps for start_ps, _ in parts] == ends_ps[:-1], (kernel, parts)
            assert ends_ps[-1] == kernel.end_ps, (kernel, parts)
    return kernels


@pytest.mark.ideal
@pytest.mark.parametrize("name", some(RUNS, *FEW))
def test_no_picosecond_is_without_a_cause(name: str) -> None:
    spans = spans_of(run(*RUNS[name], keep_oplog=True))
    check_causes(spans)
    assert check_kernels(spans) >= 8
    path = way_back(spans)
    parts_ps = sum(each.end_ps - each.start_ps for each in path if not each.is_wait)
    assert parts_ps == path[0].end_ps > 0, "the parts of the critical path add up to the whole"
    assert any(each.cause[0] != rank for rank, mine in enumerate(spans) for each in mine), "across SIPs"


FUTURES = """
def kernel_args(world_size, n_elem):
    return (n_elem,)

def neighbors(rank, world_size, built_in):
    return {"E": (rank + 1) % world_size, "W": (rank - 1) % world_size}

def kernel(t_ptr, n, rank, kind, w, h, tl):
    mine = t_ptr + tl.program_id(1) * n * 2
    tile = tl.load(mine, n)
    for turn in range(4):
        futures = [tl.recv_async("W", n, "f16", dst_addr=mine), tl.recv_async("W", n, "f16")]
        tl.send("E", tile)
        tile = tile + tile
        tl.send("E", tile)
        tile = tile + tl.wait(futures[1])
        tl.wait(futures[0])
        tl.send("W", tile)
        tile = tile + tl.recv(shape=n, dtype="f16")
        tl.store(mine, tile)

TOPO_NAME_TO_KIND = {"ring_1d": 0}
"""


@pytest.mark.parametrize("more", [(), ("buffer_kind", "hbm"), ("backpressure", "poll"), ("n_slots", 1)], ids=str)
def test_futures_copies_and_any_direction(tmp_path: Any, more: tuple[object, ...]) -> None:
    flags = ("--sips", 3, "--n-elem", 24, "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1")
    knob = () if not more else setting(*more)  # type: ignore[arg-type]
    done = run(*ccl_file(tmp_path, FUTURES), *flags, *knob, "--no-verify-data", keep_oplog=True)
    spans = spans_of(done)
    check_causes(spans)
    assert check_kernels(spans) == 6
    assert way_back(spans)[-1].start_ps == 0


def test_numbers_are_counted_when_nothing_is_kept() -> None:
    """Packets carry them, and a replay compares their bytes."""
    flags = (*SMALL, *TIGHT)
    kept, lean = run(*flags, keep_oplog=True), run(*flags)
    assert all(member.chip.sip.recorder.spans is None for member in lean.members)
    for a, b in zip(kept.members, lean.members, strict=True):
        assert a.chip.sip.recorder.count == b.chip.sip.recorder.count == len(a.chip.sip.recorder.spans or ())
    assert kept.document["digest"] == lean.document["digest"]
