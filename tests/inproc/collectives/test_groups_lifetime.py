"""Groups that are made and destroyed: what they took comes back, on the host and in the TCM."""

import gc
import tracemalloc

import pytest
from group_runs import rows, run_groups
from sweeps import some

from sipsim.chips.ahbm.host.distributed import Distributed

MANY = """
    tensor = torch.zeros((3,), dtype="f32", dp=DPPolicy("row_wise", "row_wise", 1, 1)).fill_(rank)
    kept = [dist.new_group([1, 0]) for _ in range(2)]
    for number in range({times}):
        group = dist.new_group([[0, 1], [1, 0]][number % 2])
        dist.barrier(group)
        if number % 4 == 0 and number < {times} // 4:  # a row of the result each, which it keeps
            (dist.send if rank else dist.recv)(tensor, 1 - rank, group)
        dist.destroy_process_group(group)
        if number in {samples}:
            dist.sample()
"""
STATE = """
    for group in kept:
        dist.destroy_process_group(group)
    try:
        dist.all_reduce(tensor, group=kept[0])
        raise AssertionError("a destroyed group")
    except ValueError as error:
        assert str(error) == "all_reduce: group 1 of ranks 1, 0 was destroyed; use a group before its destruction"
    try:
        dist.destroy_process_group(kept[0])
        raise AssertionError("destroyed twice")
    except ValueError as error:
        assert str(error).startswith("destroy_process_group: group 1 of ranks 1, 0 was destroyed before")
"""


@pytest.mark.ideal
@pytest.mark.parametrize("times", some([30, 100, 200, 1000], 30))
def test_groups_leave_nothing(tmp_path, monkeypatch, times):
    """Sizes of all that a rank keeps by group, queue pair or ring, and the host's memory, do not grow."""
    sizes, memory = [], []

    def sample(dist):
        sip, launcher = dist._sip, dist._launcher
        pes = [(len(pe.ipcq.every), len(pe.ipcq.generations.live)) for pe in sip.pes_in_use()]
        groups, works = dist._groups, launcher._works
        kept = len(groups._live), [len(free) for free in groups._windows._free], len(works)
        sizes.append((sip.sip, pes, kept, len(launcher._pairs), len(launcher._evicted)))
        if sip.sip == 0:
            gc.collect()
            memory.append(tracemalloc.get_traced_memory()[0])

    monkeypatch.setattr(Distributed, "sample", sample, raising=False)
    tracemalloc.start()
    try:
        done = run_groups(
            tmp_path, MANY.format(times=times, samples=(times // 2 - 1, times - 1)) + STATE, "--no-verify-data", sips=2
        )
    finally:
        tracemalloc.stop()
    assert done.outcome.error is None, done.outcome.error
    for rank in (0, 1):
        first, last = (each for each in sizes if each[0] == rank)
        assert first == last
    per_group = (memory[1] - memory[0]) / (times / 2)
    # What is told of each call at the end of a run, of two ranks: its text, and a record of its launch.
    assert per_group < 8000, per_group


def test_a_window_that_comes_back_is_taken_again(tmp_path):
    """As many groups as the TCM has room for, again and again; one more is refused by name."""
    body = """
        tensor = torch.zeros((1,), dtype="f32", dp=DPPolicy("row_wise", "row_wise", 1, 1))
        for turn in range(3):
            groups = []
            try:
                while True:
                    groups.append(dist.new_group([0, 1]))
            except Exception as error:
                assert "SIP 0 is in" in str(error) and "destroy_process_group" in str(error), error
            if turn == 0:
                first = len(groups)
            assert len(groups) == first > 2
            for group in groups:
                dist.all_reduce(tensor.fill_(1), group=group)
                assert tensor.numpy() == 2
            for group in reversed(groups) if turn else groups:
                dist.destroy_process_group(group)
    """
    told = rows(run_groups(tmp_path, body, sips=2))
    assert len(told) % 3 == 0
    assert all((wrong, checked) == (0, True) for _, _, wrong, checked in told)


LEFT = """
    tensor = torch.zeros((1,), dtype="f32", dp=DPPolicy("row_wise", "row_wise", 1, 1)).fill_(1)
    group = dist.new_group([1, 0])
    assert (repr(dist.group.WORLD), repr(group)) == ("the group of all ranks", "group 1 of ranks 1, 0")
    dist.all_reduce(tensor, group=group)
    dist.destroy_process_group({world})
    assert (dist.is_initialized(), dist.group.WORLD) == (False, None)
    dist.init_process_group()
    dist.all_reduce(tensor)
    assert tensor.numpy() == 4
    try:
        dist.all_reduce(tensor, group=group)
        raise AssertionError("a group that was left")
    except ValueError as error:
        assert str(error) == "all_reduce: group 1 of ranks 1, 0 was destroyed; use a group before its destruction"
"""


@pytest.mark.parametrize("world", ["", "dist.group.WORLD"])
def test_the_group_of_all_ranks_goes_with_all_others(tmp_path, world):
    assert len(rows(run_groups(tmp_path, LEFT.format(world=world), sips=2))) == 2
