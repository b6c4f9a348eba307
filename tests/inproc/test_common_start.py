"""Every iteration of the built-in job starts on all ranks at one simulated time: no skew is left to the next."""

import pytest
from launch import launched
from runs import Run, run
from sweeps import some

SMALL = ("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1", "--n-elem", "16")
MESH = ("--sips", 9, "--topology", "mesh_2d_no_wrap")
SYSTEMS = {
    "one": ("--sips", 1),
    "ring": ("--sips", 5),
    "torus": ("--sips", 4, "--topology", "torus_2d"),
    "mesh": MESH,
    "ethernet": ("--sips", 3, "--link", "ethernet_400g"),
    "fabric": ("--sips", 3, "--set", "defaults.credit_return_mode=fabric"),
    "piggyback": ("--sips", 3, "--set", "defaults.credit_return_mode=piggyback"),
}


def times(done: Run) -> list[float]:
    assert done.outcome.error is None, done.outcome.error.message
    return [each["time_ns"] for each in done.document["runs"]]


def test_the_skew_of_a_size_is_not_in_the_next():
    flags = (*MESH, "--set", "sip.cube_mesh={w: 2, h: 2}", "--no-verify-data")
    first, second = times(run(*flags, "--bytes", "16K,16K"))
    assert first == second == times(run(*flags, "--bytes", "16K"))[0]


@pytest.mark.ideal
@pytest.mark.parametrize("system", some(SYSTEMS, "one", "torus", "ethernet", "piggyback"))
def test_all_iterations_take_the_same_time(system):
    """With several sizes, iterations and warmup; the figure of one alone is the same."""
    flags = (*SYSTEMS[system], *SMALL, "--check-invariants")
    done = run(*flags, "--iters", 3, "--warmup", 1)
    assert times(done) == times(run(*flags))
    both = run(*SYSTEMS[system], *SMALL[:-1], "16,48,16", "--iters", 2)
    alone = times(run(*flags))[0]
    assert times(both)[0] == times(both)[2] == alone
    for index in range(3):
        spans = [rank.runs[index].spans_ps for rank in both.outcome.ranks.values()]
        (first, end), (second, _) = (
            (min(a), max(b)) for a, b in (zip(*each, strict=True) for each in zip(*spans, strict=True))
        )
        assert all([start for start, _ in each] == [first, second] for each in spans)
        assert second == end + both.prepared.plan.barrier_tree.gap_ps


def test_the_mail_does_not_change_the_results():
    flags = (*SYSTEMS["mesh"], *SMALL, "--iters", 3)
    plain = run(*flags).results()
    for seed in range(3):
        assert run(*flags, mail_seed=seed).results() == plain


@pytest.mark.processes
def test_the_digest_equals_that_of_local_and_of_restarts():
    """Of rows with several iterations; a rank is killed in an iteration, at a row start, and in a later row."""
    flags = (*SYSTEMS["piggyback"], *SMALL[:-1], "16,48,16", "--iters", 2)
    plain = run(*flags).document
    assert launched(*flags, "--engine", "local").digest == plain["digest"]
    begin_ns = [told["start_ns"] for told in plain["launches"] if told["rank"] == 1]
    row_start, later = (f"{each / 1000:.6f}us" for each in (begin_ns[2] - 20, begin_ns[-1] + 100))
    for fault in ("kill:2@500ns", f"kill:1@{row_start}", f"kill:0@{later}"):
        restarted = launched(*flags, "--engine", "local", "--max-restarts", 2, "--fault", fault)
        assert restarted.digest == plain["digest"]
        assert f"fault {fault.partition('@')[0]}" in restarted.stderr
