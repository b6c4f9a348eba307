"""Launches on disjoint PEs run beside each other; on a PE they keep their order; each has its own counts."""

import csv
from pathlib import Path

import msgspec
import numpy as np
import pytest
from runs import Run, run, script_file

from launcher.api import run as run_program
from launcher.run.prepare import describe
from sipsim.records.explanation import Explanation

MESH = ("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2")
ONE = ("--sips", 1, *MESH)

KERNELS = """
def load(t_ptr, times, tl):
    mine = t_ptr + tl.program_id(1) * 64 * 2
    for _ in range(times):
        tl.load(mine, 64)

def add(t_ptr, times, tl):
    mine = t_ptr + tl.program_id(1) * 64 * 2
    for _ in range(times):
        x = tl.load(mine, 64)
        tl.store(mine, x + x)

def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group()
    t = torch.ones((4, 64))
"""


def scripted(folder: Path, body: str, *flags: object) -> Run:
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    done = run(*(flags or ONE), script_file(folder, KERNELS + lines))
    assert done.outcome.error is None, done.outcome.error
    return done


def times_of(done: Run, rank: int = 0) -> list[tuple[str, float, float]]:
    """Name, start and end of each launch in order of starts, in loads of the kernels above."""
    found = [each for each in done.document["launches"] if each["rank"] == rank]
    unit = load_ns() if found else 1
    told = [(each["name"], round(each["start_ns"] / unit, 9), round(each["end_ns"] / unit, 9)) for each in found]
    return sorted(told, key=lambda each: (each[1], each[2]))


def load_ns() -> float:
    """A load of 128 B from the HBM beside the PE's router: a command of 16 B there, the read, the data back."""
    there = 1 + 0.05 + 1 + 0.05 + 1 + 16 / 64
    back = 1 + 0.05 + 1 + 0.05 + 1 + 128 / 64
    return there + 99 + back


class TestOrder:
    @pytest.mark.ideal
    def test_disjoint_launches_run_beside_each_other(self, tmp_path: Path) -> None:
        body = """
first = torch.launch(load, t, 3, cubes=0, async_op=True)
second = torch.launch(load, t, 2, cubes=[1, 2], async_op=True)
first.wait()
second.wait()
"""
        assert times_of(scripted(tmp_path, body)) == [("load", 0, 2), ("load", 0, 3)]

    @pytest.mark.ideal
    def test_on_a_pe_launches_keep_their_order(self, tmp_path: Path) -> None:
        """The third waits for the second, whose other PE is still taken, though its own PE is idle by then."""
        body = """
works = [torch.launch(load, t, times, cubes=cubes, async_op=True)
         for times, cubes in ((3, [0, 1]), (1, [1, 2]), (2, [2]), (1, [3]))]
for work in works:
    work.wait()
"""
        starts_and_ends = [(start, end) for _, start, end in times_of(scripted(tmp_path, body))]
        assert starts_and_ends == [(0, 1), (0, 3), (3, 4), (4, 6)]

    @pytest.mark.ideal
    def test_without_places_launches_follow_each_other(self, tmp_path: Path) -> None:
        body = "for _ in range(3): torch.launch(load, t, 1, async_op=True)"
        assert times_of(scripted(tmp_path, body)) == [("load", 0, 1), ("load", 1, 2), ("load", 2, 3)]

    @pytest.mark.ideal
    def test_beside_and_one_after_the_other_data_are_equal(self, tmp_path: Path) -> None:
        both = "[torch.launch(add, t, 2, cubes=cube, async_op={}) for cube in range(4)]"
        beside, serial = (scripted(tmp_path, both.format(is_async)) for is_async in (True, False))
        assert np.array_equal(beside.tensor(0), np.full((4, 64), 4, np.float16))
        assert np.array_equal(beside.tensor(0), serial.tensor(0))
        one = max(end for _, _, end in times_of(beside))
        assert max(end for _, _, end in times_of(serial)) == pytest.approx(4 * one)

    def test_a_tensor_stays_until_its_launch_has_ended(self, tmp_path: Path) -> None:
        """There is no room for the second large tensor before dead ones return, of which the launch's is none."""
        body = """
work = torch.launch(add, t, 40, cubes=0, async_op=True)
del t
torch.launch(load, torch.ones((4, 64)), 1, cubes=1)
for _ in range(2):
    torch.ones((4, 400 * 1024))
assert not work.is_completed()
work.wait()
"""
        small = ("--set", "cube.hbm_MiB_per_pe=1", "--set", "defaults.n_slots=1")
        # A timed copy of 1.6 MB would last longer than the launch.
        scripted(tmp_path, body, *ONE, *small, "--set", "host_copies=free")


class TestCounts:
    BESIDE = """
work = torch.launch(load, t, {}, pes=[1, 2], async_op=True)
dist.all_reduce(torch.ones((4, 64)))
work.wait()
"""

    @pytest.mark.ideal
    def test_a_row_is_its_collective_alone(self, tmp_path: Path) -> None:
        """A launch beside it, longer than it or not, is none of its kernels."""
        alone = scripted(tmp_path, "dist.all_reduce(torch.ones((4, 64)))").document["runs"][0]
        for times in (1, 60):
            (row,) = scripted(tmp_path, self.BESIDE.format(times)).document["runs"]
            assert row["kernels"] == alone["kernels"] == 4
            assert set(row["kernel_time"]) == set(alone["kernel_time"])
            assert sum(row["kernel_time"].values()) == pytest.approx(1)

    def test_traces_name_the_collective(self, tmp_path: Path) -> None:
        trace = tmp_path / "trace.csv"
        flags = ("--sips", 2, *MESH, "--trace-ccl", trace)
        scripted(tmp_path, self.BESIDE.format(60) + "\ndist.all_reduce(torch.ones((4, 64)))", *flags)
        with trace.open() as file:
            lines = list(csv.DictReader(file))
        assert {line["run"] for line in lines} == {"0", "1"}

    @pytest.mark.ideal
    def test_every_launch_has_its_busy_times(self, tmp_path: Path) -> None:
        body = """
a = torch.launch(load, t, 3, cubes=0, async_op=True)
torch.launch(load, t, 1, cubes=[1, 2])
a.wait()
dist.all_reduce(t)
"""
        found = scripted(tmp_path, body).document["launches"]
        assert [(each["name"], each["run"], each["pes"], each["kernels"]) for each in found] == [
            ("load", None, "cubes 1-2, PE 0", 2),
            ("load", None, "cube 0, PE 0", 1),
            ("intercube", 0, "cubes 0-3, PE 0", 4),
        ]
        assert [each["busy_ns"] for each in found[:2]] == [pytest.approx({"load": n * load_ns()}) for n in (2, 3)]
        assert {"load", "recv"} <= set(found[2]["busy_ns"])


@pytest.mark.ideal
@pytest.mark.parametrize(("body", "rows"), [("torch.launch(load, t, 1)", 0), ("dist.all_reduce(t)", 1)])
def test_a_script_without_collectives_has_no_table_and_no_algorithm(tmp_path: Path, body: str, rows: int) -> None:
    done = scripted(tmp_path, body)
    text, algorithm = done.table(), done.prepared.plan.resolved.ccl.defaults.algorithm
    assert len(done.document["runs"]) == rows
    assert ("#wrong" in text) == (algorithm in text) == (rows > 0), text
    told = {key: done.document[key] for key in done.document.keys() - {"config"}}
    assert (algorithm in str(told)) == (rows > 0)
    assert algorithm not in describe(done.prepared)


def test_only_the_first_launches_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sipsim.chips.ahbm.host.stream.MOST_LAUNCHES", 2)
    done = scripted(tmp_path, "for _ in range(5): torch.launch(load, t, 1)")
    assert len(done.document["launches"]) == 2
    assert done.document["ranks"][0]["launches"] == 5
    assert "# 3 more launches, which are not listed\n" in done.table()


MANY = """
for name in range(7):
    kernel = lambda t_ptr, times, tl: load(t_ptr, times, tl)
    kernel.__name__ = f"kernel_{name}"
    torch.launch(kernel, t, 1)
"""


@pytest.mark.parametrize("body", [MANY, MANY + "dist.all_reduce(t)", "dist.all_reduce(t)", "pass"])
def test_at_most_five_lines_below_the_table_the_rest_is_verbose(tmp_path: Path, body: str) -> None:
    done = scripted(tmp_path, body)
    short, verbose = (
        done.table(verbose).splitlines()[1 + 3 * bool(done.document["runs"]) :] for verbose in (False, True)
    )
    assert len(short) <= 5
    assert short[-1] == verbose[-1] == f"# digest {done.document['digest']}"
    assert ("-v)" in "".join(short)) == (body.startswith(MANY))
    assert sum("launch kernel_" in line for line in verbose) == 7 * body.startswith(MANY)


@pytest.mark.ideal
def test_the_explanation_of_a_row_leaves_out_what_runs_beside_it(tmp_path: Path) -> None:
    """The launch on PE 3 ends within the row; it is in no phase of the row, and saves nothing where it gets faster."""
    alone = "    dist.all_reduce(torch.ones((4, 64)))\n"
    beside = f"    work = torch.launch(load, t, 3, pes=3, async_op=True)\n{alone}    work.wait()\n"
    loads = []
    for body in (alone, beside):
        path = script_file(tmp_path, KERNELS + body)
        done = run_program(path, engine="inproc", sips=1, set=MESH[1::2], explain=True, verify_data=False)
        assert done.error is None, done.error
        told = msgspec.convert(done.document["explain"][-1], Explanation)
        assert sum(part.ps for part in told.parts) == told.until_ps - told.since_ps
        assert told.where.endswith(".pe0")
        loads.append(sum(phase.kernels_ps.get("load", 0) for phase in told.phases))
        if body is beside:
            (other,) = [each for each in done.document["launches"] if each["run"] is None]
            assert 0 < other["end_ns"] < done.runs[0]["time_ns"]
    assert loads[0] > 0
    assert loads[1] < loads[0] + 3 * 1000 * load_ns()
