"""The built-in job over groups: every collective with every algorithm is right, groups run in parallel, faults show."""

from pathlib import Path

import pytest
from bench._lower_bounds import LatencyBound, latency_bound
from group_runs import run_groups
from runs import ccl_file, run
from sweeps import crossed, some

from launcher.options import parse
from launcher.run.prepare import prepare
from launcher.supervise.run import Run
from sipsim.chips.ahbm.collectives.cost import CommandTimes
from sipsim.chips.ahbm.collectives.settings import effective_ipcq
from sipsim.chips.ahbm.host.builtin_job import tasks_of
from sipsim.chips.ahbm.plan import Plan
from sipsim.collectives.semantics import COLLECTIVES
from sipsim.core.errors import ConfigError

SMALL = ("--set", "sip.cube_mesh={w: 2, h: 1}", "--set", "cube.pes=2")
NAMES = [name for name in COLLECTIVES.names() if not COLLECTIVES.get(name).per_cube]


@pytest.mark.parametrize("name", NAMES)
def test_all_algorithms_of_a_collective(name: str) -> None:
    done = run("--sips", 3, *SMALL, "--collective", name, "--algorithm", "all", "--n-elem", "1,700", "--dtype", "i8")
    runs = done.document["runs"]
    assert [each["wrong"] for each in runs] == [0] * len(runs)
    assert all(each["checked"] for each in runs)
    algorithms = [each["algorithm"] for each in runs]
    assert len(set(algorithms)) > 1
    assert algorithms == [each for names in done.prepared.job.algorithms for each in names]


BUS = dict.fromkeys(NAMES, lambda n: (n - 1) / n) | {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "broadcast": lambda n: 1,
    "reduce": lambda n: 1,
}
"""Bus bandwidth over algorithm bandwidth with ``n`` ranks, as nccl-tests defines it."""


@pytest.mark.parametrize("name", NAMES)
def test_busbw_is_that_of_nccl_tests(name: str) -> None:
    """By the size of the group, not of the system; the algorithm bandwidth is the whole's bytes by the time."""
    for groups in ("0,1", "0,1,2", "4,3,2,1,0"):
        words = ("--sips", 5, *SMALL, "--collective", name, "--group", groups, "--n-elem", 30)
        (row,) = run(*words).document["runs"]
        size = len(row["group"])
        assert row["algbw_GBps"] == pytest.approx(row["bytes"] / row["time_ns"])
        assert row["busbw_GBps"] == pytest.approx(row["algbw_GBps"] * BUS[name](size)), (name, size)


@pytest.mark.parametrize(
    "flags",
    [
        ("--op", "avg", "--dtype", "bf16"),
        ("--op", "prod", "--dtype", "f32", "--layout", "2x2"),
        ("--op", "max", "--dtype", "f16", "--out-of-place"),
        ("--op", "min", "--dtype", "i32", "-n", "2", "-w", "1"),
    ],
)
def test_operators_layouts_and_places(flags: tuple[str, ...]) -> None:
    done = run("--sips", 4, *SMALL, "--collective", "all_reduce", "--n-elem", "96", *flags)
    (row,) = done.document["runs"]
    assert (row["wrong"], row["checked"], row["op"], row["dtype"]) == (0, True, flags[1], flags[3])


def test_disjoint_groups_run_at_the_same_time() -> None:
    """Rows of a grid, each joined by links of its own: two take as long as one."""
    grid = ("--sips", 4, "--topology", "torus_2d", *SMALL, "--collective", "all_gather", "--n-elem", 512)
    one, both = (run(*grid, "--group", ranks) for ranks in ("0,1", "rows"))
    (alone,), rows = one.document["runs"], both.document["runs"]
    assert [row["group"] for row in rows] == [[0, 1], [2, 3]]
    assert [row["wrong"] for row in rows] == [0, 0]
    assert {row["time_ns"] for row in rows} == {alone["time_ns"]}


def test_roots_are_ranks_of_their_group() -> None:
    done = run("--sips", 4, *SMALL, "--collective", "broadcast", "--group", "3,1", "--root", 1, "--n-elem", 64)
    assert (done.document["runs"][0]["wrong"], done.document["runs"][0]["group"]) == (0, [3, 1])


def test_a_row_does_not_depend_on_the_algorithms_beside_it() -> None:
    """Each has its own way of returning credits, whichever of them the run was wired for."""
    slow = ("--set", "algorithms.direct.credit_return_mode=fast_path", "--collective", "all_reduce", "--n-elem", 64)
    alone = [run("--sips", 3, *SMALL, *slow, "--algorithm", name).document["runs"] for name in ("one_shot", "direct")]
    for names in ("one_shot,direct", "direct,one_shot"):
        rows = run("--sips", 3, *SMALL, *slow, "--algorithm", names).document["runs"]
        times = {row["algorithm"]: row["time_ns"] for row in rows}
        assert times == {row["algorithm"]: row["time_ns"] for (row,) in alone}
    own_wire = ("--set", "algorithms.one_shot.credit_return_mode=fast_path")
    (waits,) = run("--sips", 3, *SMALL, *slow, *own_wire, "--algorithm", "one_shot").document["runs"]
    assert waits["time_ns"] > alone[0][0]["time_ns"], "with fast_path a receive waits for its credit"


def test_credits_of_a_schedule_are_smaller_than_those_of_the_wired_algorithm() -> None:
    """They arrive earlier than its own would: no earlier than their channel promises."""
    sizes = ("--set", "algorithms.intercube_allreduce_fused.ipcq_credit_size_bytes=4096")
    modes = [("--set", f"algorithms.{name}.credit_return_mode=fast_path") for name in ("ring", "direct")]
    flags = (*SMALL, *sizes, *modes[0], *modes[1], "--collective", "all_reduce", "--algorithm", "ring,direct")
    done = run("--sips", 2, *flags, "--bytes", "256K")
    assert done.outcome.error is None
    assert [row["wrong"] for row in done.document["runs"]] == [0, 0]


def bound_of(prepared: Run) -> LatencyBound | None:
    """Of the one size of a job, in its first group."""
    job, plan, collective = prepared.job, prepared.plan, COLLECTIVES.get(prepared.job.collective)
    assert isinstance(plan, Plan)
    (((first, *_),), ((name, *_),)) = tasks_of(job, collective, plan), job.algorithms
    return latency_bound(first.task, first.places[0], CommandTimes(plan.system, effective_ipcq(plan.resolved, name)))


def test_links_of_several_kinds_have_no_bound() -> None:
    """Of three in a line with a slow link between the ends, the relay over the middle is faster than its link."""
    flags = ["--sips", "3", *SMALL, "--collective", "all_reduce", "--n-elem", "4"]
    same, mixed = ([], ["--set", "system.sips.links={0.W: ethernet_100g}"])
    assert bound_of(prepare(parse([*flags, *same]))) is not None
    assert bound_of(prepare(parse([*flags, *mixed]))) is None


@pytest.mark.parametrize(("name", "system"), crossed(NAMES, [("--sips", 3), ("--sips", 4, "--topology", "torus_2d")]))
def test_no_call_with_few_bytes_is_faster_than_its_bound(name: str, system: tuple[object, ...]) -> None:
    """And the best is near to it: one command loads what lies side by side and one stores it, receives are issued
    while the first message is under way, and what comes from the farthest is taken last.
    """
    warm = ("--set", "hbm.params.refresh=none", "-w", 2)
    done = run(*system, *SMALL, *warm, "--collective", name, "--algorithm", "all", "--n-elem", 4)
    bound = bound_of(done.prepared)
    assert bound is not None
    times = [row["time_ns"] - row["launch_ns"] for row in done.document["runs"]]
    assert bound.ps / 1000 < min(times) < 1.3 * bound.ps / 1000


def test_receives_of_few_bytes_are_issued_while_the_first_message_is_under_way() -> None:
    """Three of seven are more than are issued before the sends: behind the first arrival they would take 45 ns."""
    warm = ("--set", "hbm.params.refresh=none", "-w", 2)
    done = run("--sips", 8, *SMALL, *warm, "--collective", "all_reduce", "--algorithm", "one_shot", "--n-elem", 4)
    bound, (row,) = bound_of(done.prepared), done.document["runs"]
    assert bound is not None
    assert row["time_ns"] - row["launch_ns"] < 1.55 * bound.ps / 1000


MESSAGE = """
if rank == 0:
    dist.send(torch.zeros((65536,)), 1)
else:
    dist.recv(torch.zeros((65536,)), 0)
"""


def test_messages_between_two_ranks_take_their_queue_pairs_from_the_defaults(tmp_path: Path) -> None:
    """Not from the algorithm that is wired, whatever of its own that has."""

    def times(*settings: str) -> list[str]:
        flags = [word for setting in ("defaults.algorithm=ring", *settings) for word in ("--set", setting)]
        done = run_groups(tmp_path, MESSAGE, *flags, sips=2)
        assert done.outcome.error is None
        return [row["time_ns"] for row in done.document["runs"]]

    usual = times()
    assert times("algorithms.ring.n_slots=1", "algorithms.ring.slot_size=256") == usual
    assert times("defaults.n_slots=1") > usual
    assert times("defaults.slot_size=256") > usual
    assert times("defaults.n_slots=1", "defaults.credit_return_mode=piggyback") != times("defaults.n_slots=1")


def test_a_message_does_not_pass_the_one_before_it() -> None:
    """Of two of one way, of a chunk each, the first comes slowly from the link: the second waits for it."""
    one_cube = ("--set", "sip.cube_mesh={w: 1, h: 1}", "--set", "cube.pes=4")
    small = [("--set", setting) for setting in ("defaults.worker_bytes=128", "defaults.group_KiB=64")]
    rings = [("--set", f"algorithms.ring.{setting}") for setting in ("slot_size=128", "n_slots=3")]
    flags = ("--sips", 5, "--topology", "mesh_2d_no_wrap", "--shape", "5x1", "--layout", "1x4", "--dtype", "i32")
    call = ("--collective", "reduce_scatter", "--algorithm", "ring", "--n-elem", 256)
    done = run(*flags, *one_cube, *small[0], *small[1], *rings[0], *rings[1], *call)
    assert (done.outcome.error, done.document["runs"][0]["wrong"]) == (None, 0)


FAULTY = """
from sipsim.collectives.algorithms import ring
from sipsim.collectives.algorithms.ring import COLLECTIVES, RANK_IDENTICAL, wiring

def changed(steps):
    {change}

def schedule(task):
    return [flow._replace(steps_of=lambda rank, flow=flow: changed(flow.steps_of(rank)))
            for flow in ring.schedule(task)]
"""
FAULTS = {
    "rank 0 ends with block 0 of 3 without the values of rank 2": "return [steps[0]._replace(combine=0), *steps[1:]]",
    "rank 0 receives block 1 .* where block 2": "return [*steps[:-1], steps[-1]._replace(recvs=steps[-2].recvs)]",
    "rank 0 ends with block 1 of 3 without the values of rank 1": "return steps[:-1]",
}


@pytest.mark.parametrize("says", FAULTS)
def test_a_faulty_algorithm_is_refused(says: str, tmp_path: Path) -> None:
    chosen = ccl_file(tmp_path, FAULTY.format(change=FAULTS[says]), "faulty")
    with pytest.raises(ConfigError, match=says):
        run("--sips", 3, *SMALL, *chosen, "--collective", "all_reduce", "--n-elem", 60)


def test_the_table_names_algorithms_where_rows_differ() -> None:
    words = ("--sips", 2, *SMALL, "--collective", "all_reduce", "--n-elem", 8, "--algorithm")
    several, one = (run(*words, names) for names in ("ring,direct", "ring"))
    text = several.table()
    assert [line.split()[8] for line in text.splitlines() if not line.startswith("#")] == ["ring", "direct"]
    assert "algorithm" not in one.table().splitlines()[1]


def test_what_does_not_suit_is_told() -> None:
    """Not all algorithms that all-gather run in a group of three, or the note would be about none."""
    done = run("--sips", 3, *SMALL, "--collective", "broadcast", "--algorithm", "all", "--n-elem", 8)
    notes = done.table(verbose=True)
    for note in done.prepared.job.notes:
        assert f"# {note}" in notes


def test_auto_says_what_it_chose_and_why() -> None:
    done = run("--sips", 4, *SMALL, "--collective", "all_reduce", "--n-elem", "8,4096")
    said = done.table(verbose=True)
    lines = said.splitlines()
    for row in done.document["runs"]:
        (at,) = [at for at, line in enumerate(lines) if line.startswith(f"# size {row['bytes']}: auto chose ")]
        assert lines[at].startswith(f"# size {row['bytes']}: auto chose {row['algorithm']}, by the ")
        assert " ".join(lines[at + 1].split()) == "# algorithm estimate messages in a row busiest link busy"
        assert lines[at + 2].split()[1] == row["algorithm"]
        assert len({len(line) for line in lines[at + 1 : at + 5]}) == 1, "a table"


@pytest.mark.parametrize("system", some([(4, "2x1"), (4, "2x2"), (6, "2x2")], (4, "2x1")), ids=str)
@pytest.mark.parametrize("collective", some(["all_reduce", "broadcast"], "broadcast"))
def test_estimates_are_near_the_times(collective: str, system: tuple[int, str]) -> None:
    """Of every algorithm, without the launch: within a third, and the chosen one close to the best.

    A broadcast by a chain takes longer: an estimate's links serve messages one after the other, so that the first ones
    go on while others come; on the fabric those of all workers come together.
    """
    least = 0.55 if collective == "broadcast" else 0.67
    from sipsim.chips.ahbm.collectives.catalog import ranked
    from sipsim.chips.ahbm.host.builtin_job import tasks_of

    sips, (w, _, h) = system
    flags = ("--sips", sips, "--set", f"sip.cube_mesh={{w: {w}, h: {h}}}", "-w", 1, "--collective", collective)
    done = run(*flags, "--algorithm", "all", "--bytes", "48K")
    definition = COLLECTIVES.get(collective)
    plan, job = done.prepared.plan, done.prepared.job
    ((made,),) = tasks_of(job, definition, plan)
    choices = ranked(plan.catalog, made)
    times_ns = {row["algorithm"]: row["time_ns"] - row["launch_ns"] for row in done.document["runs"]}
    assert {each.algorithm.name for each in choices} == set(times_ns)
    for each in choices:
        assert least < each.estimate.time_ps / 1000 / times_ns[each.algorithm.name] < 1.5
    assert times_ns[choices[0].algorithm.name] <= 1.15 * min(times_ns.values())
