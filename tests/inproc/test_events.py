"""Events of host scripts: the times of points behind launches, in one run of one or two SIPs."""

from pathlib import Path

import pytest
from runs import Run, run, script_file

MESH = ("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2")
ONE = ("--sips", 1, *MESH)
TOP = """
def load(t_ptr, times, tl):
    for _ in range(times):
        tl.load(t_ptr + tl.program_id(1) * 128, 64)

def refused(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("it was not refused")

def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group()
    t = torch.ones((4, 64))
    first, second, third = (torch.Event(enable_timing=True) for _ in range(3))
    launch = lambda times, cube: torch.launch(load, t, times, cubes=cube, async_op=True)
"""


def scripted(folder: Path, body: str, *flags: object) -> Run:
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    done = run(*(flags or ONE), script_file(folder, TOP + lines))
    assert done.outcome.error is None, done.outcome.error.message
    assert [member.chip.torch.kernels.unfinished() for member in done.members] == [[]] * len(done.members)
    return done


CASES = {
    "the latest end of those before it, and of none behind it": """
a, b = launch(5, 0), launch(3, 1)
first.record()
c = launch(9, 2)
assert not first.query()
first.synchronize()
assert first.query() and first.time_ps == a.end_ps > b.end_ps
assert not c.is_completed()
""",
    "launches on one PE follow each other": """
a, b, c = launch(1, 0), launch(5, 0), launch(2, 0)
first.record()
first.synchronize()
assert first.time_ps == c.end_ps > b.end_ps > a.end_ps
""",
    "what has not begun when it is recorded counts": """
launch(50, 0)
first.record()
b = launch(1, 0)
second.record()
second.synchronize()
assert second.time_ps == b.end_ps and first.elapsed_time(second) == (b.end_ps - first.time_ps) / 1e9
""",
    "the time of the call where all have ended": """
first.record()
assert first.query() and first.time_ps == 0
a = launch(3, 0)
a.wait()
dist.start_together()
second.record()
assert second.query() and second.time_ps >= a.end_ps
third.record()
assert second.elapsed_time(third) == 0
""",
    "times between two points, in milliseconds": """
first.record()
a = launch(7, 3)
second.record()
torch.synchronize()
assert a.start_ps == first.time_ps and a.end_ps == second.time_ps
assert first.elapsed_time(second) == (a.end_ps - a.start_ps) / 1e9 > 7 * 99 / 1e6
assert second.elapsed_time(first) == -first.elapsed_time(second)
""",
    "collectives are launches": """
work = dist.all_reduce(t, async_op=True)
first.record()
first.synchronize()
assert first.time_ps == work.end_ps > 0
""",
    "the last record counts": """
a = launch(5, 0)
first.record()
b = launch(9, 0)
first.record()
first.synchronize()
assert first.time_ps == b.end_ps
""",
    "to wait lets later launches start behind it": """
a, b = launch(9, 0), launch(1, 1)
first.record()
first.wait()
c = launch(1, 1)
c.wait()
assert c.start_ps == a.end_ps > b.end_ps
""",
    "all have ended after synchronize": """
works = [launch(n + 1, n % 4) for n in range(9)] + [dist.all_reduce(t, async_op=True)]
torch.synchronize()
assert all(work.is_completed() for work in works)
torch.synchronize()
""",
    "the names of PyTorch": """
event = torch.cuda.Event(enable_timing=True)
launch(2, 0)
event.record()
torch.cuda.synchronize()
assert event.query() and event.time_ps > 0
launch(2, 0)
torch.accelerator.synchronize()
""",
    "one that is not recorded holds nobody up": """
assert first.query()
first.synchronize()
first.wait()
""",
    "mistakes": """
untimed = torch.Event()
timed = "elapsed_time needs two events that were made with enable_timing=True"
recorded = "elapsed_time needs two recorded events; call record() on both"
completed = "elapsed_time needs two completed events; call synchronize() on the end"
assert refused(RuntimeError, lambda: first.elapsed_time(untimed)) == timed
first.record()
assert refused(RuntimeError, lambda: first.elapsed_time(second)) == recorded
assert refused(RuntimeError, lambda: second.elapsed_time(first)) == recorded
assert refused(RuntimeError, lambda: second.time_ps) == "the event must be recorded before it has a time; call record()"
a = launch(3, 0)
second.record()
assert refused(RuntimeError, lambda: first.elapsed_time(second)) == completed
what = "the event must be completed before it has a time; call synchronize()"
assert refused(RuntimeError, lambda: second.time_ps) == what
a.wait()
assert first.elapsed_time(second) > 0
""",
}


@pytest.mark.ideal
@pytest.mark.parametrize("case", CASES)
def test_in_a_script(tmp_path: Path, case: str) -> None:
    scripted(tmp_path, CASES[case])


def test_the_way_of_a_launch_counts(tmp_path: Path) -> None:
    """An event stands where the host knows of the end, as ``end_ns`` of the result does."""
    body = "first.record()\nlaunch(4, 1)\nsecond.record()\nsecond.synchronize()"
    more = "assert first.time_ps < second.time_ps\nt.fill_(second.time_ps // 10**6)"
    done = scripted(tmp_path, f"{body}\n{more}")
    (told,) = done.document["launches"]
    assert done.tensor(0)[0, 0] == int(told["end_ns"] // 1000)
    assert told["end_ns"] > told["start_ns"] + 4 * 100


def test_ranks_have_events_of_their_own(tmp_path: Path) -> None:
    """Rank 1 launches more; an event of rank 0 stands behind its own launches."""
    body = """
works = [launch(3, cube) for cube in range(1 + 2 * rank)]
first.record()
first.synchronize()
assert first.time_ps == max(work.end_ps for work in works)
dist.all_reduce(t)
second.record()
assert first.elapsed_time(second) > 0
"""
    scripted(tmp_path, body, "--sips", 2, *MESH)


@pytest.mark.parametrize("call", ["first.record()", "torch.synchronize()"])
def test_a_kernel_has_no_events(tmp_path: Path, call: str) -> None:
    source = f"{TOP}    torch.launch(lambda tl: {call})\n"
    done = run(*ONE, script_file(tmp_path, source))
    assert done.outcome.error is not None
    assert "a kernel cannot launch kernels or wait for a launch; call this in worker()" in done.outcome.error.message
