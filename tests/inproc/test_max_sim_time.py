"""A limit of simulated time: every event before it has run, none at it or after it, whatever the mail."""

import pytest
from runs import run

SMALL = ("--sips", 3, "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2", "--bytes", "8K,16K", "--iters", 2)


@pytest.fixture(scope="module")
def whole():
    return run(*SMALL, keep_oplog=True)


@pytest.mark.parametrize("limit_ps", [1, 900_000, 1_500_001, 4_000_000])
def test_what_has_happened_is_the_whole_run_up_to_the_limit(whole, limit_ps):
    part = run(*SMALL, "--max-sim-time", f"{limit_ps}ps", keep_oplog=True)
    error = part.document["error"]
    assert (part.outcome.exit_code, part.document["status"], error["kind"]) == (124, "interrupted", "timeout")
    assert (error["time_ps"], part.document["digest"]) == (limit_ps, None)
    for stopped, member in zip(part.members, whole.members, strict=True):
        all_records = member.chip.sip.oplog.records
        assert stopped.chip.sip.oplog.records == [record for record in all_records if record[2] < limit_ps]
        assert stopped.session.engine.now_ps < limit_ps <= stopped.session.engine.next_ps()


def test_it_does_not_depend_on_the_mail():
    words = (*SMALL, "--max-sim-time", "5us")
    plain = run(*words)
    for seed in range(4):
        shuffled = run(*words, mail_seed=seed)
        assert shuffled.results() == plain.results()
        assert shuffled.document["error"] == plain.document["error"]


def test_sizes_that_were_completed_are_kept(whole):
    first, second = whole.document["runs"]
    limit_ps = max(end for rank in range(3) for _, end in whole.outcome.ranks[rank].runs[0].spans_ps) + 300_000
    part = run(*SMALL, "--max-sim-time", f"{limit_ps}ps")
    assert part.document["runs"] == [first]
    assert second["bytes"] > first["bytes"]


def test_a_run_that_ends_before_it_is_unchanged(whole):
    end_ps = max(rank["sim_end_ps"] for rank in whole.document["ranks"])
    same = run(*SMALL, "--max-sim-time", f"{end_ps + 1}ps")
    assert same.document["digest"] == whole.document["digest"] is not None
    assert (same.document["status"], same.outcome.exit_code) == ("ok", 0)
    assert run(*SMALL, "--max-sim-time", f"{end_ps}ps").document["status"] == "interrupted"


@pytest.mark.ideal
def test_the_report_says_where_every_kernel_is():
    part = run(*SMALL, "--max-sim-time", "2us")
    assert part.outcome.error.message == "simulated time has reached 2 us (--max-sim-time)"
    positions = part.document["error"]["positions"]
    unfinished = [len(member.chip.unfinished()) - 1 for member in part.members]
    assert sum(unfinished) > 0
    assert sum("cube" in each for each in positions) == sum(unfinished)
    of_kernels = [each for each in positions if "cube" in each]
    assert all(each["file"].endswith("intercube_allreduce.py") and each["line"] > 0 for each in of_kernels)
    assert ": recv E at sipsim/chips/ahbm/collectives/algorithms/intercube_allreduce.py:" in part.outcome.error.detail
