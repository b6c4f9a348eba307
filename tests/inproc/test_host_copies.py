"""Copies between host and device, and maps of tensors: sums by hand, what waits for them, and what takes no time.

The sums take HBM with its two latencies, and UCIe without flits: rows, refresh and flits have tests of their own.
"""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from hardware import config
from runs import Run, run, script_file

from launcher.api import run as run_program
from sipsim.chips.ahbm.mesh import HOST_NODE, IO_CPU_NODE
from sipsim.chips.ahbm.plan import Plan
from sipsim.fabric.graph import Node

PLAIN = {"hbm.kind": None, "ucie_port.flit_bytes": None}
FLAGS = ("--set", "hbm.kind=null", "--set", "ucie_port.flit_bytes=null", "--check-invariants")
HEADER = """
import numpy as np

def idle(*args):
    pass

def write(t_ptr, tl):
    tl.store(t_ptr, tl.full((8,), 7.0, "f16"))

def worker(rank, world_size, torch):
    marks = []
    def mark():
        marks.append(torch.Event())
        marks[-1].record()
    def times():
        return [b.time_ps - a.time_ps for a, b in zip(marks, marks[1:])]
"""
HOST, TAKE, DISPATCH, COUNT = 500, 500, 50, 20
LINK = Fraction(63)
"""GB/s of the host's link, which are bytes per ns."""
READ, WRITE = 99, 20


def script(folder: Path, body: str, name: str = "script.py") -> str:
    return script_file(folder, HEADER + "".join(f"    {line}\n" for line in body.strip().splitlines()), name)


def done(folder: Path, body: str, *flags: object) -> Run:
    ran = run(*(flags or ("--sips", 1, *FLAGS)), script(folder, body))
    assert ran.outcome.error is None, (ran.outcome.error.message, ran.outcome.error.detail)
    return ran


def mesh(side: int) -> tuple[object, ...]:
    return "--sips", 1, *FLAGS, "--set", f"sip.cube_mesh.w={side}", "--set", f"sip.cube_mesh.h={side}"


class Paths:
    """Heads of routes, in ns; the graph's latencies have tests of their own."""

    def __init__(self, side: int) -> None:
        settings = {**PLAIN, "sip.cube_mesh.w": side, "sip.cube_mesh.h": side, "system.sips.count": 1}
        self._graph = Plan(config(settings)).system.graph

    def ns(self, *nodes: Node) -> Fraction:
        return Fraction(sum(self._graph.route(a, b).head_ps() for a, b in pairwise(nodes)), 1000)


def shared(starts: Sequence[Fraction], nbytes: int) -> list[Fraction]:
    """When each of several transfers of ``nbytes`` has left that share the host's link equally from their starts on."""
    left, ends = dict.fromkeys(range(len(starts)), Fraction(nbytes)), dict[int, Fraction]()
    now = Fraction(0)
    while left:
        on = [each for each in left if starts[each] <= now]
        coming = [starts[each] for each in left if starts[each] > now]
        finish = now + min(left[each] for each in on) * len(on) / LINK if on else None
        step = min([*coming, *([] if finish is None else [finish])])
        for each in on:
            left[each] -= (step - now) * LINK / len(on)
            if left[each] <= 0:
                ends[each] = step
        left = {each: rest for each, rest in left.items() if each not in ends}
        now = step
    return [ends[each] for each in range(len(starts))]


def served(arrivals: Sequence[Fraction], ns: int) -> Fraction:
    """When a CPU that takes ``ns`` for each answer has taken the last."""
    free = Fraction(0)
    for arrival in sorted(arrivals):
        free = max(free, arrival) + ns
    return free


def by_hand(side: int, nbytes: int, to_device: bool) -> Fraction:
    """The time of a copy of ``nbytes`` for PE 0 of each cube, in ns."""
    path, cubes = Paths(side), range(side * side)
    m_cpus, memories = [Node("m_cpu", cube, 0) for cube in cubes], [Node("hbm", cube, 0) for cube in cubes]
    starts, answers = [], []
    for cube, (here, memory) in enumerate(zip(m_cpus, memories, strict=True)):
        dispatched = HOST + TAKE + cube + path.ns(IO_CPU_NODE, here) + Fraction(64, 64) + DISPATCH
        if to_device:
            starts.append(dispatched + path.ns(here, HOST_NODE) + 16 / LINK)
        else:
            starts.append(dispatched + path.ns(here, memory) + Fraction(16, 64) + READ)
    for left, here, memory in zip(shared(starts, nbytes), m_cpus, memories, strict=True):
        moved = left + (path.ns(HOST_NODE, here, memory) + WRITE if to_device else path.ns(memory, here))
        answers.append(moved + COUNT + path.ns(here, IO_CPU_NODE) + Fraction(16, 64))
    return served(answers, COUNT) + HOST


class TestSums:
    @pytest.mark.parametrize("side", [1, 2, 4])
    @pytest.mark.parametrize("nbytes", [64, 4096, 2**21])
    def test_there_and_back(self, tmp_path: Path, side: int, nbytes: int) -> None:
        """To the picosecond for one cube. Answers of several cubes may share the edge into IO_CPU, 0.25 ns for each."""
        body = f"""
t = torch.zeros(({side * side}, {nbytes}), dtype="i8", dp=DPPolicy(num_cubes={side * side}))
source = torch.from_numpy(np.ones(t.shape, np.int8))
mark()
t.copy_(source)
mark()
assert (t.numpy() == 1).all()
mark()
expected = {[round(1000 * by_hand(side, nbytes, to_device)) for to_device in (True, False)]}
answers_ps = 250 * ({side * side} - 1)
assert all(-1 <= got - want <= 1 + answers_ps for got, want in zip(times(), expected)), (times(), expected)
"""
        done(tmp_path, body, *mesh(side))

    def test_engines_overlap_what_is_no_transfer(self, tmp_path: Path) -> None:
        """Eight blocks of 4 KiB: with an engine each, all ask at once and their bytes fill the link; with fewer a block
        asks when the one before has been written; two engines work in turns. Requests of 16 B are left out."""
        body = """
t = torch.zeros((8, 4096), dtype="i8", dp=DPPolicy("row_wise", "row_wise", 1, 8))
t.copy_(torch.from_numpy(np.ones(t.shape, np.int8)))
"""
        took = {}
        for engines in (1, 2, 8):
            ran = done(tmp_path, body, *mesh(1), "--set", f"m_cpu.dma_engines={engines}")
            took[engines] = Fraction(ran.document["ranks"][0]["sim_end_ps"], 1000)
        paths, here = Paths(1), Node("m_cpu", 0, 0)
        round_trip = paths.ns(here, HOST_NODE) + paths.ns(HOST_NODE, here)
        drain = 4096 / LINK
        all_at_once = round_trip + 8 * drain + WRITE
        assert took[1] - took[8] == pytest.approx(float(8 * (round_trip + drain + WRITE) - all_at_once), abs=50)
        assert took[2] - took[8] == pytest.approx(float(4 * (round_trip + drain + WRITE) + drain - all_at_once), abs=50)

    @pytest.mark.parametrize("count", [0, COUNT])
    @pytest.mark.parametrize("entries", [1, 8])
    def test_a_map(self, tmp_path: Path, entries: int, count: int) -> None:
        """To all eight PEs of the cube, with an entry of 24 B per block of the tensor; M_CPU counts seven answers after
        the last dispatch, and the eighth when it comes: late, if a count takes no time."""
        path, here = Paths(1), Node("m_cpu", 0, 0)
        to_cube = path.ns(IO_CPU_NODE, here) + Fraction(64 + 24 * entries, 64)
        last = Node("pe", 0, 7)
        there = path.ns(here, last) + Fraction(64 + 24 * entries, 64)
        back = path.ns(last, here) + Fraction(16, 64)
        dispatched = HOST + TAKE + to_cube + 8 * DISPATCH
        counted = max(dispatched + 7 * count, dispatched + there + back) + count
        expected = counted + path.ns(here, IO_CPU_NODE) + Fraction(16, 64) + COUNT + HOST
        body = f"""
mark()
t = torch.zeros(({entries}, 64), dtype="i8", dp=DPPolicy("row_wise", "row_wise", 1, {entries}))
mark()
assert times() == [{round(1000 * expected)}], (times(), {round(1000 * expected)})
"""
        done(tmp_path, body, *mesh(1), "--set", f"m_cpu.gather_ns={count}")

    def test_a_map_to_all_cubes(self, tmp_path: Path) -> None:
        """IO_CPU has taken the answer of cube 0 when it still waits for that of cube 15, which comes last."""
        paths, cubes = Paths(4), range(16)
        counted = []
        for cube in cubes:
            here, last = Node("m_cpu", cube, 0), Node("pe", cube, 7)
            at_cube = HOST + TAKE + (cube + 1) * Fraction(64 + 24, 64) + paths.ns(IO_CPU_NODE, here)
            answered = at_cube + 8 * DISPATCH + paths.ns(here, last, here) + Fraction(64 + 24 + 16, 64)
            all_counted = max(at_cube + 8 * DISPATCH + 7 * COUNT, answered) + COUNT
            counted.append(all_counted + paths.ns(here, IO_CPU_NODE) + Fraction(16, 64))
        expected = round(1000 * (served(counted, COUNT) + HOST))
        body = f"""
mark()
t = torch.zeros((1, 64), dtype="i8", dp=DPPolicy(num_cubes=1))
mark()
assert abs(times()[0] - {expected}) <= 1, (times(), {expected})
"""
        done(tmp_path, body)


class TestOrder:
    @pytest.mark.parametrize("mode", ["dma", "free"])
    def test_a_copy_waits_for_launches_on_its_tensor(self, tmp_path: Path, mode: str) -> None:
        """A view has the memory of its tensor. A launch on another tensor is not waited for, as a free copy shows."""
        body = """
t, other = (torch.zeros((1, 64), dp=DPPolicy(num_cubes=1)) for _ in range(2))
for view in (t, t.narrow(0, 0, 1)):
    t.fill_(0)
    work = torch.launch(write, view, cubes=0, pes=0, async_op=True)
    assert t.numpy()[0, :8].tolist() == [7] * 8
    assert work.is_completed()
work = torch.launch(write, t, cubes=0, pes=0, async_op=True)
t.fill_(1)
assert work.is_completed()
assert (t.numpy() == 1).all()
work = torch.launch(write, other, cubes=0, pes=0, async_op=True)
t.narrow(0, 0, 1).numpy()
assert torch.components.host_copies == "dma" or not work.is_completed()
work.wait()
"""
        done(tmp_path, body, "--sips", 1, *FLAGS, "--set", f"host_copies={mode}")

    def test_hosts_that_copy_more_start_their_kernels_later(self, tmp_path: Path) -> None:
        """By what the copies differ in: rank 1 copies twice."""
        body = """
t = torch.zeros((1, 65536), dtype="i8", dp=DPPolicy(num_cubes=1))
source = torch.from_numpy(np.ones(t.shape, np.int8))
for _ in range(1 + rank):
    t.copy_(source)
torch.launch(idle, cubes=0, pes=0)
"""
        ran = done(tmp_path, body, "--sips", 2, *mesh(1)[2:])
        starts = {each["rank"]: each["kernels_start_ns"] for each in ran.document["launches"]}
        assert starts[1] - starts[0] == pytest.approx(float(by_hand(1, 65536, True)), abs=2e-3)

    def test_a_copy_leaves_nothing_to_the_collector(self, tmp_path: Path) -> None:
        """The bytes of a copy would stay in memory until a collection."""
        body = """
import gc
from sipsim.chips.ahbm.control.fan_out import FanOut, HostRequest
gc.collect()
gc.disable()
t = torch.zeros((1, 64), dp=DPPolicy(num_cubes=1))
t.fill_(1)
t.numpy()
torch.launch(idle, t, cubes=0, pes=0)
torch.launch(idle, cubes=0, pes=1)
left = [type(each).__name__ for each in gc.get_objects() if isinstance(each, (FanOut, HostRequest))]
gc.enable()
assert len(left) <= 2, left
"""
        done(tmp_path, body)

    def test_a_kernel_cannot_copy(self, tmp_path: Path) -> None:
        body = """
t = torch.zeros((1, 64), dp=DPPolicy(num_cubes=1))
torch.launch(lambda tl: t.numpy(), cubes=0, pes=0)
"""
        ran = run("--sips", 1, *FLAGS, script(tmp_path, body))
        assert ran.outcome.error is not None
        assert (ran.outcome.error.kind, ran.outcome.error.message.count("\n")) == ("exception", 0)


class TestLimits:
    """No copy is faster than the bytes on the host's link, and the use of a row's edges is the row's."""

    @pytest.mark.parametrize("buffers", ["null", "8", "32"])
    def test_a_copy_takes_at_least_the_time_of_its_bytes(self, tmp_path: Path, buffers: str) -> None:
        body = """
t = torch.zeros((1, 16384), dtype="i8", dp=DPPolicy(num_cubes=1))
mark()
t.fill_(1)
mark()
for _ in range(3):
    t.numpy()
    mark()
assert all(took >= 16384 * 1000 // 2 for took in times()), times()
"""
        slow = ("--set", "launch.bandwidth_GBps=2", "--set", f"router.buffer_packets={buffers}")
        done(tmp_path, body, "--sips", 1, *FLAGS, *slow)

    def test_copies_count_for_no_row(self, tmp_path: Path) -> None:
        """The row of a collective is the same with copies behind it."""
        body = """
dist = torch.distributed
dist.init_process_group()
x = torch.zeros((1, 4096), dtype="f16", dp=DPPolicy(num_cubes=1))
dist.all_reduce(x)
"""
        more = "for _ in range(5): x.numpy()"
        alone, before = (done(tmp_path, body + each, "--sips", 2).document["runs"][0] for each in ("", more))
        assert alone == before

    def test_all_copies_of_a_tensor_pass_in_one_request(self, tmp_path: Path) -> None:
        """128 blocks of 1 KiB, which IO_CPU takes once."""
        body = """
t = torch.zeros((4, 64), dtype="f32", dp=DPPolicy("replicate", "replicate", 16, 8))
mark()
found = t.copies()
mark()
assert len(found) == 128
assert 128 * 1024 * 1000 // 63 < times()[0] < 10_000_000, times()
"""
        done(tmp_path, body)


COLLECTIVE = """
dist = torch.distributed
dist.init_process_group()
x = torch.zeros((1, 4096), dtype="f16", dp=DPPolicy(num_cubes=1))
x.copy_(torch.from_numpy(np.full(x.shape, rank + 1, np.float16)))
dist.all_reduce(x)
assert (x.numpy() == 3).all()
"""


class TestFree:
    OFF = ("--set", "host_copies=free")

    def test_it_takes_no_time(self, tmp_path: Path) -> None:
        body = """
mark()
t = torch.ones((16, 4096), dp=DPPolicy(num_cubes=16))
t.numpy()
mark()
assert times() == [0]
"""
        done(tmp_path, body, "--sips", 1, *self.OFF)
        done(tmp_path, body, "--sips", 1, "--variant", "ideal")

    def test_data_do_not_depend_on_it(self, tmp_path: Path) -> None:
        timed, free = (done(tmp_path, COLLECTIVE, "--sips", 2, *flags).document for flags in ((), self.OFF))
        hashes = [[each["tensor_sha256"] for each in document["ranks"]] for document in (timed, free)]
        assert hashes[0] == hashes[1]
        assert timed["digest"] != free["digest"]

    @pytest.mark.parametrize("body", [COLLECTIVE])
    def test_the_programs_own_checks_take_no_time(self, tmp_path: Path, body: str) -> None:
        checked, unchecked = (
            done(tmp_path, body, "--sips", 2, *flags).document for flags in ((), ("--no-verify-data",))
        )
        assert checked["digest"] == unchecked["digest"]
        assert checked["runs"][0]["wrong"] == 0

    def test_built_in_jobs_take_no_time_for_their_data(self) -> None:
        timed, free = (run("--sips", 2, "--bytes", "4K", *flags).document for flags in ((), self.OFF))
        assert timed["digest"] == free["digest"]


def part(node: str) -> str:
    """The kind of a node, such as m_cpu of cube3.m_cpu0 or io_cpu of io_cpu.0."""
    return next(kind for kind in ("io_cpu", "m_cpu", "pe") if kind in node)


class TestTrace:
    def test_three_paths_have_their_messages(self, tmp_path: Path) -> None:
        """To 16 M_CPUs and back for each, and to the PEs of a launch and of a map."""
        log = tmp_path / "log"
        body = """
t = torch.zeros((16, 64), dp=DPPolicy(num_cubes=16))
t.numpy()
torch.launch(idle, t, pes=range(8))
"""
        done(tmp_path, body, "--sips", 1, *FLAGS, "--oplog", str(log))
        fields = [
            dict(word.split("=") for word in line.split() if "=" in word) for line in log.read_text().splitlines()
        ]
        messages = Counter(
            (each["request"], part(each["from"]), part(each["to"])) for each in fields if "request" in each
        )
        both = {("io_cpu", "m_cpu"): 16, ("m_cpu", "io_cpu"): 16}
        pes = {("m_cpu", "pe"): 128, ("pe", "m_cpu"): 128}
        assert {key[1:]: count for key, count in messages.items() if key[0] == "copy"} == both
        assert {key[1:]: count for key, count in messages.items() if key[0] == "map"} == both | pes
        assert {key[1:]: count for key, count in messages.items() if key[0] == "launch"} == both | pes

    def test_explain_names_the_copy(self, tmp_path: Path) -> None:
        """Rank 1 copies 4 MiB before its collective, for which rank 0 waits; the sum of all parts is the time."""
        body = """
t = torch.zeros((1, 2**22), dtype="i8", dp=DPPolicy(num_cubes=1))
x = torch.zeros((1, 64), dtype="f16", dp=DPPolicy(num_cubes=1))
torch.distributed.init_process_group()
if rank:
    t.copy_(torch.from_numpy(np.ones(t.shape, np.int8)))
torch.distributed.all_reduce(x)
"""
        told = run_program(sips=2, engine="inproc", explain=True, explain_reruns=0, script=script(tmp_path, body))
        assert told.error is None, told.error
        (found,) = told.document["explain"]
        copies = [part for part in found["parts"] if part["part"].startswith("host copy: ")]
        assert sum(part["ps"] for part in found["parts"]) == found["until_ps"] - found["since_ps"]
        assert max(copies, key=lambda part: part["ps"])["keys"] == ("launch.bandwidth_GBps",)
        assert all(part["keys"] for part in copies)


class TestWays:
    """The same bits with other engines, memories and fabrics."""

    @pytest.mark.parametrize(
        "flags",
        [
            ("--set", "router.buffer_packets=8"),
            ("--set", "defaults.hw_strict=true", "--set", "defaults.n_slots=4"),
        ],
    )
    def test_data_arrive(self, tmp_path: Path, flags: tuple[object, ...]) -> None:
        done(tmp_path, COLLECTIVE, "--sips", 2, "--check-invariants", *flags)

    @pytest.mark.parametrize("pe", ["row_wise", "column_wise", "replicate"])
    @pytest.mark.parametrize("cube", ["row_wise", "column_wise", "replicate"])
    def test_every_layout(self, tmp_path: Path, cube: str, pe: str) -> None:
        body = f"""
values = np.arange(32 * 64).reshape(32, 64)
t = torch.zeros(values.shape, dtype="i32", dp=DPPolicy("{cube}", "{pe}", 4, 2))
t.copy_(torch.from_numpy(values))
assert (t.numpy() == values).all()
assert all((each == values).all() for each in t.copies())
again = torch.zeros(values.shape, dtype="i32", dp=DPPolicy("{pe}", "{cube}", 2, 4))
again.copy_(t)
assert (again.numpy() == values).all()
"""
        done(tmp_path, body)
