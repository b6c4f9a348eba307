"""Ranks that disagree on a collective: an error of its own that names both calls, whatever it leads to.

More such calls are in ``transcripts/kernels.txt`` and ``transcripts/mismatch.txt``.
"""

import pytest
from launch import launched
from runs import Run, run, script_file

FLAGS = ("--sips", 4, "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1")
TENSOR, CALLS = "torch.ones((2, 8 if rank != 2 else 9))", ("16 f16", "18 f16")


def script(folder, tensor):
    source = f"""
def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group()
    dist.all_reduce(torch.ones((2, 4)))
    dist.all_reduce({tensor})
"""
    return script_file(folder, source)


def line(usual, other):
    return (
        f"ranks disagree on call 2 of the group of all ranks: "
        f"rank 0 calls intercube of {usual} (sum), rank 2 intercube of {other} (sum)"
        "; every rank must make the same calls in the same order"
    )


def check(done: Run, usual, other):
    error = done.outcome.error
    assert error is not None
    assert (done.outcome.exit_code, error.kind, error.message) == (3, "CollectiveMismatch", line(usual, other))


@pytest.mark.ideal
@pytest.mark.parametrize("seed", range(3))
def test_the_message_does_not_depend_on_the_mail(tmp_path, seed):
    check(run(*FLAGS, script(tmp_path, TENSOR), mail_seed=seed), *CALLS)


def test_the_traceback_of_a_script_that_fails_on_it_is_kept(tmp_path):
    source = """
def worker(rank, world_size, torch):
    torch.distributed.init_process_group()
    torch.distributed.all_reduce(torch.ones((2, 4 + rank % 2)), async_op=True)
    if rank == 1:
        raise ValueError("a shape that nobody else has")
"""
    error = run(*FLAGS, script_file(tmp_path, source)).outcome.error
    assert error.kind == "CollectiveMismatch"
    assert 'raise ValueError("a shape that nobody else has")' in error.detail


@pytest.mark.ideal
def test_calls_that_were_started_and_not_waited_for(tmp_path):
    source = """
def worker(rank, world_size, torch):
    torch.distributed.init_process_group()
    torch.distributed.all_reduce(torch.ones((2, 4 + rank % 2)), async_op=True)
"""
    error = run(*FLAGS, script_file(tmp_path, source)).outcome.error
    assert error.kind == "CollectiveMismatch"
    assert "rank 0 calls intercube of 8 f16 (sum), rank 1 intercube of 10 f16 (sum)" in error.message


def test_other_failures_are_not_hidden(tmp_path):
    """A rank that makes fewer calls is a deadlock, as before."""
    source = """
def worker(rank, world_size, torch):
    torch.distributed.init_process_group()
    torch.distributed.all_reduce(torch.ones((2, 4)))
    if rank:
        torch.distributed.all_reduce(torch.ones((2, 4)))
"""
    assert run(*FLAGS, script_file(tmp_path, source)).outcome.error.kind == "IpcqDeadlock"


@pytest.mark.ideal
@pytest.mark.processes
@pytest.mark.parametrize("flags", [(), ("--no-verify-data",)], ids=["verify", "no verify"])
def test_with_a_process_for_each_rank(tmp_path, flags):
    done = launched(*FLAGS, "--engine", "local", *flags, script(tmp_path, TENSOR))
    assert (done.exit_code, line(*CALLS) in done.stderr) == (3, True)
