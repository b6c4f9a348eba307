"""Short runs against the job itself: simulated time comes near, the costs are bounded, and nothing of a run moves."""

from pathlib import Path

import pytest
from runs import ccl_file, run

from launcher import options
from launcher.predict.prediction import BY_ESTIMATE, BY_SHORT_RUNS, predict
from launcher.predict.short_run import NotPredictable, ShortRun, ShortRuns, extended, short_sizes
from launcher.report.progress import Prediction
from launcher.run import prepare
from launcher.supervise.run import Run

SMALL = ("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2")
LINE = """
def neighbors(rank, world_size, neighbor_map):
    ways = {"W": rank - 1, "E": rank + 1}
    return {way: other for way, other in ways.items() if 0 <= other < world_size}

def kernel_args(world_size, n_elem):
    return n_elem, world_size

def kernel(t_ptr, n_elem, size, tl):
    shard = t_ptr + tl.program_id(1) * n_elem * t_ptr.dtype.itemsize
    mine = tl.load(shard, n_elem)
    if float(mine.array[0]) < 1e6:
        mine = mine + tl.recv("W", n_elem, t_ptr.dtype) if tl.rank() else mine
    if tl.has_direction("E"):
        tl.send("E", src=mine)
    tl.store(shard, mine)
"""
FAILS = LINE.replace("    mine = tl.load", "    1 / 0\n    mine = tl.load")


def prepared(*argv: object) -> Run:
    return prepare.prepare(options.parse([str(word) for word in argv]))


def prediction_of(*argv: object) -> Prediction:
    found = predict(prepared(*argv), 0.0, 0.0)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "words",
    [
        "--sips 1 --bytes 64K",
        "--sips 3 --bytes 160K --dtype f32",
        "--sips 4 --topology torus_2d --bytes 256K",
        "--sips 6 --topology mesh_2d_no_wrap --shape 3x2 --bytes 100K",
        "--sips 2 --bytes 4K,64K,4K --iters 2 --warmup 1",
        "--sips 4 --bytes 256K --set defaults.buffer_kind=hbm",
        "--sips 4 --bytes 160K --set defaults.credit_return_mode=piggyback",
    ],
)
def test_simulated_time_is_near_that_of_the_run(words: str) -> None:
    argv = *words.split(), *SMALL
    told, done = prediction_of(*argv), run(*argv, "--no-verify-data")
    assert done.outcome.error is None
    took_ps = max(each.sim_end_ps for each in done.outcome.ranks.values())
    assert (told.source, sum(told.rows_ps)) == (BY_SHORT_RUNS, pytest.approx(took_ps, rel=0.05))
    assert len(told.rows_ps) == len(told.rows_s) == len(done.prepared.job.n_elems)


def test_a_kernel_that_looks_at_values(tmp_path: Path) -> None:
    argv = "--sips", 3, "--n-elem", 64, *SMALL, "--no-verify-data", *ccl_file(tmp_path, LINE)
    took_ps = max(each.sim_end_ps for each in run(*argv).outcome.ranks.values())
    assert sum(prediction_of(*argv).rows_ps) == took_ps


def test_a_job_that_is_as_short_as_a_short_run_is_known_exactly() -> None:
    argv = "--sips", 2, "--bytes", "1K", *SMALL
    took_ps = max(each.sim_end_ps for each in run(*argv).outcome.ranks.values())
    assert sum(prediction_of(*argv).rows_ps) == took_ps


def test_collectives_over_groups_are_estimated_as_auto_does() -> None:
    told = prediction_of("--sips", 4, *SMALL, "--collective", "all_reduce", "--algorithm", "all", "--bytes", "8K,64K")
    assert (told.source, told.rows_s) == (BY_ESTIMATE, ())
    assert len(told.rows_ps) == len(prepared("--sips", 4, *SMALL, *ALL).job.algorithms[0]) * 2
    assert all(told.rows_ps)


ALL = ("--collective", "all_reduce", "--algorithm", "all", "--bytes", "8K")


def test_the_size_of_a_job_does_not_decide_what_its_short_runs_cost() -> None:
    events = []
    for nbytes in ("64K", "16M"):
        runs = ShortRuns()
        runs.by_size(prepared("--sips", 4, *SMALL, "--bytes", nbytes))
        events.append(runs.events)
    assert events[0] == events[1] < 5_000


def test_a_large_system_is_predicted_from_two_smaller_ones() -> None:
    words = "--sips 36 --topology torus_2d --bytes 2K --set sip.cube_mesh.w=4 --set sip.cube_mesh.h=2"
    runs = ShortRuns()
    (told,) = runs.by_size(prepared(*words.split())).values()
    done = run(*words.split(), "--no-verify-data")
    took_ps = max(each.sim_end_ps for each in done.outcome.ranks.values())
    assert told.time_ps == pytest.approx(took_ps, rel=0.05)
    assert runs.events < sum(each.events for each in done.outcome.ranks.values()) / 2


@pytest.mark.parametrize("words", ["--sips 37", '--sips 36 --topology torus_2d --set system.sips.links={"0.E":ucie}'])
def test_a_large_system_without_like_ones_is_not_predicted(words: str) -> None:
    with pytest.raises(NotPredictable):
        ShortRuns().by_size(prepared(*words.split(), "--bytes", "2K"))


@pytest.mark.parametrize("tree", ["hierarchical", "pipelined", "per_pe", "per_pe_rows"])
def test_trees_whose_units_grow_with_the_size_are_not_predicted(tree: str) -> None:
    made = prepared("--sips", 2, "--bytes", "64K", "--algorithm", f"intercube_{tree}")
    assert predict(made, 0.0, 0.0) is None


def test_what_takes_too_many_events_or_fails_is_not_predicted(tmp_path: Path) -> None:
    with pytest.raises(NotPredictable):
        ShortRuns(most_events=100).by_size(prepared("--sips", 2, *SMALL, "--bytes", "64K"))
    assert predict(prepared("--sips", 2, *SMALL, "--n-elem", 8, *ccl_file(tmp_path, FAILS)), 0.0, 0.0) is None


@pytest.mark.parametrize(
    ("n_elems", "least", "sizes"),
    [([64], 1024, [64]), ([8, 64], 32, [8, 64]), ([64], 8, [8, 16]), ([2, 5, 64], 8, [2, 8, 16])],
)
def test_the_sizes_of_short_runs(n_elems: list[int], least: int, sizes: list[int]) -> None:
    assert short_sizes(n_elems, least) == sizes


def test_between_points_and_behind_them_are_lines() -> None:
    points = [(at, ShortRun(*(time_ps,) * 5)) for at, time_ps in ((1.0, 10), (2.0, 20), (4.0, 80))]
    assert [extended(points, at).time_ps for at in (1.0, 1.5, 2.0, 3.0, 6.0)] == [10, 15, 20, 50, 140]
    assert extended(points[:1], 9.0) == points[0][1]
