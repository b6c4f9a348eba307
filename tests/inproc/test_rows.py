"""Rows of a table can be compared: each has the same times alone and behind any others, to the picosecond."""

import os
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from random_rows import drawn, drawn_bench, last_row, measured
from runs import Run, run, script_file
from sweeps import some

from launcher.bench.base import BENCHES
from launcher.bench.machine import Machine
from launcher.result.fields import AS_LEFT, ROW_START, WITH_OUTAGES
from sipsim.chips.ahbm.barrier import Barrier
from sipsim.chips.ahbm.sip import Sip

FEW = range(4)
MANY = range(100, 100 + int(os.environ.get("AHBM_TEST_ROWS", "60")))
"""More can be drawn by this environment variable."""
CUBE = ("--set", "sip.cube_mesh.w=1", "--set", "sip.cube_mesh.h=1", "--check-invariants")
TWO_CUBES = ("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1")
GRID = ("--sips", 4, "--topology", "mesh_2d_no_wrap", *CUBE, "--collective", "all_reduce")
FAST_LINK = ("--set", "links.ucie.params.bandwidth_GBps=256")
PAIR = ("--sips", 2, *CUBE, "--set", "cube.pes=2", "--collective", "all_reduce", "--algorithm", "ring")
INTERCUBE = ("--sips", 3, "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2", "--set", "defaults.n_slots=3")


def check(folder: Path, seed: int) -> None:
    flags, rows = drawn(seed)
    flags = (*flags, "--check-invariants", *(["--no-verify-data"] if seed % 2 else []))
    alone = measured(folder, flags, rows[-1:])
    assert alone[0]
    assert measured(folder, flags, rows) == alone


@pytest.mark.parametrize("seed", FEW)
def test_a_row_is_the_same_alone_and_behind_three_others(tmp_path: Path, seed: int) -> None:
    """All that its entries say, and the times of each rank."""
    check(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MANY)
def test_many_rows_are_the_same_alone_and_behind_three_others(tmp_path: Path, seed: int) -> None:
    """Each eighth is one of a bench of chips of tiles."""
    if seed % 8:
        check(tmp_path, seed)
    else:
        check_bench(seed)


JOBS = {
    "algorithms": ((*GRID, *FAST_LINK, "--bytes", "256K"), "--algorithm", ("ring", "multidim_ring")),
    "others": ((*GRID, *FAST_LINK, "--bytes", "256K"), "--algorithm", ("tree", "multidim_ring")),
    "sizes": ((*PAIR, "--iters", 3), "--bytes", ("4K", "32K", "200K")),
    "warm": ((*PAIR, "-w", 2), "--bytes", ("4K", "32K")),
    "intercube": ((*INTERCUBE, "--check-invariants", "--explain"), "--bytes", ("16K", "40K", "64K")),
    "piggyback": ((*INTERCUBE, "--set", "defaults.credit_return_mode=piggyback"), "--bytes", ("16K", "24K")),
    "groups": ((*GRID, "--group", "rows", "--algorithm", "ring"), "--bytes", ("8K", "64K")),
}


@pytest.mark.parametrize("job", JOBS)
def test_rows_of_the_built_in_job(job: str) -> None:
    flags, flag, values = JOBS[job]
    together = run(*flags, flag, ",".join(values))
    alone = run(*flags, flag, values[-1])
    assert last_row(together) == last_row(alone)
    assert [each["state"] for each in together.document["runs"]] == [ROW_START] * len(together.document["runs"])
    explained = [told.document["explain"] for told in (together, alone)]
    assert explained[0][-1:] == explained[1] or explained[0][-1]["parts"] == explained[1][0]["parts"]


def check_bench(seed: int) -> None:
    name, case, chip = drawn_bench(seed)
    machine = Machine(chip=chip, samples=8)
    last = case.sizes[-1]
    figures, alone = (BENCHES.get(name).measure(replace(case, sizes=sizes), machine) for sizes in (case.sizes, (last,)))
    assert [each for each in figures if each.nbytes == last] == alone != []


@pytest.mark.parametrize("seed", [2, 3])
def test_a_size_of_a_bench_is_the_same_alone_and_behind_three_others(seed: int) -> None:
    check_bench(seed)


# --- nothing is under way at a row start ----------------------------------------------------------------------

LAST_CREDITS = (
    *(*INTERCUBE[:6], "--collective", "all_reduce", "--algorithm", "ring"),
    *("--set", "defaults.credit_return_mode=piggyback", "--set", "launch=null"),
)
"""They leave alone, after the kernels' ends, which the host knows at once."""


def counts_at_starts(*argv: object) -> list[set[int]]:
    """At each row start of a run, for all SIPs together: packets that were sent, and that have arrived."""
    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    begin = Sip.begin_row

    def note(sip: Sip, cause: int) -> None:
        counts = sip.barrier._count()
        found[sip.engine.now_ps].append(counts)
        begin(sip, cause)

    with patch.object(Sip, "begin_row", note):
        done = run(*argv)
    assert done.outcome.error is None, done.outcome.error.message
    assert {len(each) for each in found.values()} == {done.document["sips"]}
    return [{sum(sent for sent, _ in each), sum(arrived for _, arrived in each)} for _, each in sorted(found.items())]


def test_all_that_was_sent_has_arrived_when_a_row_starts() -> None:
    counts = counts_at_starts(*LAST_CREDITS, "--bytes", "16K,24K,8K")
    assert len(counts) == 2
    assert all(len(each) == 1 and each != {0} for each in counts)


def ends_at_once(barrier: Barrier, _since_ps: int, cause: int) -> None:
    barrier._reported = barrier._count()
    barrier._note_end(barrier._sip, barrier._engine.now_ps, barrier._reported, cause)


def test_a_round_that_ends_before_all_is_quiet_is_found() -> None:
    with patch.object(Barrier, "_end_when_quiet", ends_at_once):
        done = run(*LAST_CREDITS, "--set", "defaults.piggyback_wait_ns=5000", "--bytes", "16K,24K")
    assert done.outcome.error is not None
    assert done.outcome.error.kind == "InvariantViolation"
    assert "events are pending" in done.outcome.error.message


def starts_at_once(barrier: Barrier, cause: int) -> None:
    """Of SIP 0, after the first round."""
    barrier._start(barrier._engine.now_ps + barrier._tree.gap_ps, cause)


def test_a_start_after_the_first_round_is_found() -> None:
    """The credits that have left alone are under way then."""
    with patch.object(Barrier, "_begin_again", starts_at_once):
        done = run(*LAST_CREDITS, "--bytes", "16K,24K")
    assert done.outcome.error is not None
    assert done.outcome.error.kind == "InvariantViolation"
    assert "packets were in flight" in done.outcome.error.message


def test_the_mail_does_not_change_row_starts() -> None:
    flags = (*LAST_CREDITS, "--bytes", "16K,24K,8K", "--iters", 2)
    plain = run(*flags).results()
    for seed in range(3):
        assert run(*flags, mail_seed=seed).results() == plain


TWICE = """
def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group()
    tensor = torch.zeros((2, 3000), dtype="f16")
    for name in "ab":
        with torch.ahbm.row(name):
            dist.all_reduce(tensor, algorithm="ring")
"""


def times_of(*argv: object) -> list[tuple[float, ...]]:
    """Of each row of a run."""
    done = run(*argv)
    assert done.outcome.error is None, done.outcome.error.message
    return [(each["time_ns"], *(tlb["misses"] for tlb in each["tlbs"])) for each in done.document["runs"]]


def test_a_row_is_the_same_behind_another(tmp_path: Path) -> None:
    """Of a job and of a script: time and TLB misses."""
    small = (*PAIR, "--set", "pe_mmu.page_KiB=16", "--bytes")
    first, second = times_of(*PAIR[:2], *TWO_CUBES, script_file(tmp_path, TWICE))
    assert times_of(*small, "4K,32K")[1:] == times_of(*small, "32K")
    assert first == second


GOES_ON = {
    *("sip", "plan", "graph", "engine", "session", "memory", "page_table", "recorder", "second_pass", "oplog"),
    *("wire_format", "generations", "closed", "barrier", "loop", "make_task", "tasks", "handle_numbers", "usage"),
    *("memory_waits", "_transfers", "_is_checked"),
}
"""Of a SIP: no state that times depend on, but for what a row start closes."""


def test_every_part_of_a_sip_is_new_or_known_to_go_on() -> None:
    """A part that is made elsewhere than the others would keep its state over a row start."""
    begin, kept = Sip.begin_row, []

    def note(sip: Sip, cause: int) -> None:
        before = dict(vars(sip))
        begin(sip, cause)
        kept.append({name for name, part in vars(sip).items() if part is before.get(name)})

    with patch.object(Sip, "begin_row", note):
        done = run(*INTERCUBE, "--check-invariants", "--bytes", "16K,16K")
    assert done.outcome.error is None
    assert {frozenset(each) for each in kept} == {frozenset(GOES_ON)}


# --- what is shown --------------------------------------------------------------------------------------------


def shown(done: Run) -> list[str]:
    return done.table().splitlines()


def test_of_several_iterations_the_spread_is_shown_beside_the_mean() -> None:
    """An iteration that follows another one finds pages in the TLBs, so that the first is the longest."""
    done = run(*PAIR, "--iters", 4, "--bytes", "4K,32K")
    for row, spans in zip(done.document["runs"], (each.spans_ps for each in done.outcome.ranks[0].runs), strict=True):
        times_ns = sorted((end - start) / 1000 for start, end in spans)
        assert (row["time_min_ns"], row["time_max_ns"]) == (times_ns[0], times_ns[-1])
        assert row["time_median_ns"] == pytest.approx((times_ns[1] + times_ns[2]) / 2, abs=1e-3)
        assert row["time_min_ns"] <= row["time_ns"] < row["time_max_ns"]
    names, _, *lines = [line.removeprefix("#").split() for line in shown(done)[1:5]]
    for row, line in zip(done.document["runs"], lines, strict=True):
        told = dict(zip(names, line, strict=True))
        assert told["time"] == f"{row['time_ns'] / 1000:.3f}"
        for name in ("min", "median", "max"):
            assert told[name] == f"{row[f'time_{name}_ns'] / 1000:.3f}"


def test_a_table_of_one_iteration_has_the_usual_columns() -> None:
    done = run(*PAIR, "--bytes", "4K")
    assert "#       size        count   type  redop         time     algbw     busbw  #wrong" in shown(done)
    (row,) = done.document["runs"]
    assert row["time_min_ns"] == row["time_median_ns"] == row["time_max_ns"] == row["time_ns"]


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ((), "; cold: TLBs empty, HBM rows closed (-w 0)"),
        (("--set", "pe_mmu=null"), "; cold: HBM rows closed (-w 0)"),
        (("-w", 2), "; warm: after 2 iterations of its row (-w 2)"),
        (("--variant", "ideal"), ""),
    ],
)
def test_a_line_says_how_rows_begin(flags: tuple[object, ...], text: str) -> None:
    lines = shown(run(*PAIR, *flags, "--bytes", "4K"))
    told = [line for line in lines if "before and after all kernels" in line or "cold" in line or "warm" in line]
    assert [line.endswith(text) for line in told] == ([True] if text else [])


# --- scripts --------------------------------------------------------------------------------------------------


def scripted(folder: Path, body: str, *flags: object) -> Run:
    """A script with a tensor, which two ranks run."""
    head = "def worker(rank, world_size, torch):\n    dist = torch.distributed\n    dist.init_process_group()\n"
    head += "    tensor, row = torch.zeros((1, 4000)), torch.ahbm.row\n    reduce = lambda: dist.all_reduce(tensor)\n"
    return run("--sips", 2, *CUBE, *flags, script_file(folder, head + body))


def test_rows_of_a_script_have_names_and_say_how_they_begin(tmp_path: Path) -> None:
    body = """
    reduce()
    for name in ("warm", "again"):
        with row(name):
            reduce()
            reduce()
    reduce()
"""
    runs = scripted(tmp_path, body).document["runs"]
    assert [(each["row"], each["state"]) for each in runs] == [
        (None, AS_LEFT), *[("warm", ROW_START)] * 2, *[("again", ROW_START)] * 2, (None, AS_LEFT),
    ]  # fmt: skip
    times = [each["time_ns"] for each in runs]
    assert times[1:3] == times[3:5]
    assert times[0] == times[1], "nothing was before"


def test_rows_of_a_run_with_outages_say_so() -> None:
    done = run(*PAIR, "--link", "ethernet_400g", "--fault", "link:0.E@9us:5us", "--bytes", "4K,4K,4K")
    assert [each["state"] for each in done.document["runs"]] == [WITH_OUTAGES] * 3
    times = [each["time_ns"] for each in done.document["runs"]]
    assert times[0] == times[2] < times[1] or times[0] == times[1] < times[2]


MISUSES = {
    "    with row('ab'[rank]): reduce()": ("CollectiveMismatch", "call 1 of the group of all ranks"),
    "    if rank:\n        with row('a'): reduce()": ("IpcqDeadlock", "rank 0 has not called row('a')"),
    "    if rank:\n        reduce()\n    else:\n        with row('a'): pass": ("CollectiveMismatch", "row('a')"),
    "    if rank: dist.isend(tensor, 0).wait()\n    with row('a'): pass": ("IpcqInUse", "a row starts while rank 0"),
    "    with row('a'):\n        with row('b'): pass": ("exception", "row('b') is inside row('a')"),
    "    with row('a\\n'): pass": ("exception", "as a line of text"),
    "    dist.destroy_process_group()\n    with row('a'): pass": ("exception", "init_process_group"),
}


@pytest.mark.parametrize("body", some(MISUSES, *list(MISUSES)[:4]))
def test_misuses_of_rows_are_named(tmp_path: Path, body: str) -> None:
    error = scripted(tmp_path, body).outcome.error
    assert error is not None
    kind, text = MISUSES[body]
    assert error.kind == kind
    assert text in error.message
