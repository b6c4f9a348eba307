"""The trace of sends and receives: ``--trace-ccl FILE``, one line each, in order of simulated time."""

import csv
from collections import Counter
from pathlib import Path
from typing import Any

from runs import ccl_file, run

from launcher.report.files import write_trace
from sipsim.records.artifacts import make_artifact_folder, rank_folder
from sipsim.records.oplog import TRACE_FILE, TraceFile, TraceLine

PASS_ON = """
TOPO_NAME_TO_KIND = {"ring_1d": 0}

def kernel_args(world_size, n_elem, system):
    return n_elem, system.n_cubes

def neighbors(rank, world_size, built_in):
    return {way: to for way, to in {"W": rank - 1, "E": rank + 1}.items() if 0 <= to < world_size}

def kernel(t_ptr, n_elem, n_cubes, sip_rank, kind, w, h, tl):
    place = sip_rank * n_cubes + tl.program_id(1)
    tile = tl.load(t_ptr + tl.program_id(1) * n_elem * 2, n_elem) if place == 0 else tl.recv("W", n_elem, "f16")
    if tl.has_direction("E"):
        tl.send("E", tile)
"""
FLAGS = ["--sips", 2, "--n-elem", 24, "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1", "--no-verify-data"]


def traced(tmp_path: Path) -> "tuple[list[dict[str, str]], Any]":
    """The lines of a run that hands a tile on, and the run."""
    file = tmp_path / "trace.csv"
    done = run(*ccl_file(tmp_path, PASS_ON), *FLAGS, "--trace-ccl", file, keep_oplog=True)
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines)), done


def test_one_line_per_send_and_recv(tmp_path: Path) -> None:
    """Rank, place, time, direction and bytes as the op log has them, over all ranks in order of time."""
    lines, done = traced(tmp_path)
    assert [(int(each["rank"]), int(each["cube"]), each["op"], each["dir"]) for each in lines] == [
        (0, 0, "send", "E"),
        (0, 1, "recv", "W"),
        (0, 1, "send", "E"),
        (1, 0, "recv", "W"),
        (1, 0, "send", "E"),
        (1, 1, "recv", "W"),
    ]
    assert {(each["pe"], each["nbytes"]) for each in lines} == {("0", "48")}
    times = [int(each["t_ps"]) for each in lines]
    assert times == sorted(times)
    logged = []
    for member in done.members:
        member.chip.sip.oplog.sha256()
        logged += [r[2] for r in member.chip.sip.oplog.records if r[0].startswith("ipcq.")]
    assert sorted(logged) == times


def test_when_it_was_asked_for_and_who_is_at_the_other_end(tmp_path: Path) -> None:
    """As the op log has them: a send starts at its end, a recv when the kernel comes to it."""
    lines, done = traced(tmp_path)
    assert [each["peer"] for each in lines] == ["0.1.0", "0.0.0", "1.0.0", "0.1.0", "1.1.0", "1.0.0"]
    logged = []
    for member in done.members:
        logged += [(r[2], r[1]) for r in member.chip.sip.oplog.records if r[0].startswith("ipcq.")]
    assert sorted(logged) == sorted((int(each["t_ps"]), int(each["start_ps"])) for each in lines)
    waited = [int(each["t_ps"]) > int(each["start_ps"]) for each in lines if each["op"] == "recv"]
    assert all(waited)


def test_the_runs_are_those_of_the_result(tmp_path: Path) -> None:
    """Two sizes of three iterations each, in the built-in job."""
    file = tmp_path / "trace.csv"
    sizes = [*FLAGS[:2], "--n-elem", "24,8", *FLAGS[4:], "-n", 2, "-w", 1]
    done = run(*ccl_file(tmp_path, PASS_ON), *sizes, "--trace-ccl", file)
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    for index, row in enumerate(done.document["runs"]):
        of_run = [each for each in rows if each["run"] == str(index)]
        assert len(of_run) == 3 * 6
        assert {int(each["nbytes"]) for each in of_run} == {row["bytes"] // 2}
    assert len(rows) == 2 * 3 * 6


SCRIPT = """
def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group()
    one, two = torch.zeros(2, 24, dtype="f16"), torch.zeros(2, 24, dtype="f16")
    first = dist.all_reduce(one, async_op=True)
    second = dist.all_reduce(two, async_op=True)
    first.wait(), second.wait()
    torch.launch(own, one)
    dist.all_reduce(one)

def own(t_ptr, tl):
    if tl.has_direction("E"):
        tl.send("E", tl.load(t_ptr, 2))
    if tl.has_direction("W"):
        tl.recv("W", 2, "f16")
"""


def test_a_kernel_of_no_collective_has_no_run(tmp_path: Path) -> None:
    file, script = tmp_path / "trace.csv", tmp_path / "script.py"
    script.write_text(SCRIPT)
    flags = [*FLAGS[:2], *FLAGS[4:]]
    done = run(*ccl_file(tmp_path, PASS_ON), *flags, "--trace-ccl", file, script)
    assert len(done.document["runs"]) == 3, done.outcome.error
    with file.open(newline="") as lines:
        counted = Counter((each["run"], each["nbytes"]) for each in csv.DictReader(lines))
    assert counted == {("0", "48"): 6, ("1", "48"): 6, ("", "4"): 6, ("2", "48"): 6}


PHASES = """
def worker(rank, world_size, torch):
    torch.distributed.init_process_group()
    torch.launch(own, torch.zeros(2, 24))
    torch.launch(plain, torch.zeros(2, 24))

def plain(t, tl):
    if tl.has_direction("E"):
        tl.send("E", tl.load(t, 2))
    if tl.has_direction("W"):
        tl.recv("W", 2, "f16")

def own(t, tl):
    with tl.phase("asks"):
        coming = tl.recv_async("W", 2, "f16") if tl.has_direction("W") else None
        with tl.phase("gives"):
            if tl.has_direction("E"):
                tl.send("E", tl.load(t, 2))
    with tl.phase("waits"):
        if coming is not None:
            tl.wait(coming)
    plain(t, tl)
"""


def test_the_phase_is_that_in_which_the_kernel_asked(tmp_path: Path) -> None:
    """Of a receive too that is waited for in another one; none outside of phases, and in the next kernel."""
    file, script = tmp_path / "trace.csv", tmp_path / "script.py"
    script.write_text(PHASES)
    done = run(*ccl_file(tmp_path, PASS_ON), *FLAGS[:2], *FLAGS[4:], "--trace-ccl", file, script)
    assert done.outcome.error is None
    with file.open(newline="") as lines:
        counted = Counter((each["op"], each["phase"]) for each in csv.DictReader(lines))
    assert counted == {("send", "asks / gives"): 3, ("recv", "asks"): 3, ("send", ""): 6, ("recv", ""): 6}


def test_tracing_does_not_change_the_digest(tmp_path: Path) -> None:
    _, done = traced(tmp_path)
    plain = run(*ccl_file(tmp_path, PASS_ON), *FLAGS)
    assert plain.document["digest"] == done.document["digest"]


def test_a_torn_line_is_left_out(tmp_path: Path) -> None:
    """By a process that was killed while it wrote."""
    for rank, times in ((0, (5, 30)), (1, (7, 30))):
        trace = TraceFile(make_artifact_folder(rank_folder(str(tmp_path), rank)) / TRACE_FILE)
        for t_ps in times:
            trace.append(TraceLine(rank, 0, 0, t_ps, "send", "E", 4, 0, 3, "1.0.0", "up"))
        trace.close()
    with (tmp_path / "rank-1" / TRACE_FILE).open("a") as file:
        file.write("1,0,0,3")
    write_trace(str(tmp_path), tmp_path / "all.csv")
    assert (tmp_path / "all.csv").read_text().splitlines() == [
        "rank,cube,pe,t_ps,op,dir,nbytes,run,start_ps,peer,phase",
        "0,0,0,5,send,E,4,0,3,1.0.0,up",
        "1,0,0,7,send,E,4,0,3,1.0.0,up",
        "0,0,0,30,send,E,4,0,3,1.0.0,up",
        "1,0,0,30,send,E,4,0,3,1.0.0,up",
    ]


def test_a_direction_may_have_any_name(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    source = PASS_ON.replace('"E"', '"to, E"').replace('"W"', '"from ""W"""'.replace('""', "'"))
    done = run(*ccl_file(tmp_path, source), *FLAGS, "--trace-ccl", file)
    assert done.outcome.error is None
    with file.open(newline="") as lines:
        assert {each["dir"] for each in csv.DictReader(lines)} == {"to, E", "from 'W'"}
