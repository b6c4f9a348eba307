"""The forecast of the built-in job against the job itself: every command is counted, simulated time comes near."""

from collections import Counter
from pathlib import Path

import pytest
from runs import ccl_file, run

from launcher import options
from launcher.run import prepare
from sipsim.chips.ahbm.costs.forecast import REMOTE, Uncountable, forecast
from sipsim.chips.api.chip import kind_of
from sipsim.chips.api.forecast import JobForecast

SMALL = ("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2")
KINDS = {"dma_read": "load", "dma_write": "store", "math": "add", "ipcq.recv": "recv", "ipcq.send": "send"}
LINE = """
def neighbors(rank, world_size, neighbor_map):
    ways = {"W": rank - 1, "E": rank + 1}
    return {way: other for way, other in ways.items() if 0 <= other < world_size}

def kernel_args(world_size, n_elem):
    return n_elem, world_size

"""
WORDS = """
def kernel(t_ptr, n_elem, size, tl):
    shard = t_ptr + tl.program_id(1) * n_elem * t_ptr.dtype.itemsize
    mine = tl.load(shard, n_elem)
    posted = [tl.recv_async("W", n_elem, t_ptr.dtype) for _ in range(3)] if tl.rank() else []
    for _ in range(3):
        if tl.has_direction("E"):
            tl.send("E", src_addr=shard, shape=n_elem)
    for future in posted:
        mine = mine + tl.wait(future)
    tl.store(shard, mine)
    tl.wait(tl.store_async(shard, mine))
    tl.store_async(shard, mine)
"""


def forecast_of(*argv: object) -> JobForecast:
    prepared = prepare.prepare(options.parse([str(word) for word in argv]))
    return forecast(prepared.job, prepared.plan)


@pytest.mark.parametrize(
    "words",
    [
        "--sips 1 --bytes 4K",
        "--sips 2 --bytes 1K",
        "--sips 3 --bytes 160K --dtype f32",
        "--sips 4 --topology torus_2d --bytes 96K",
        "--sips 6 --topology mesh_2d_no_wrap --shape 3x2 --bytes 40K",
        "--sips 2 --bytes 4K,64K,4K --iters 2 --warmup 1",
        "--sips 4 --topology torus_2d --bytes 64K --link ethernet_100g",
        "--sips 4 --bytes 64K --set defaults.buffer_kind=hbm",
        "--sips 4 --bytes 160K --set defaults.buffer_kind=sram --set defaults.credit_return_mode=fabric",
        "--sips 4 --bytes 160K --set defaults.credit_return_mode=piggyback --set defaults.n_slots=2",
        '--sips 3 --bytes 40K --set defaults.credit_return_mode=auto --set system.sips.links={"0.E":ethernet_100g}',
        "--sips 3 --bytes 32K --set defaults.backpressure=poll --set defaults.hw_strict=true",
        "--sips 4 --bytes 96K --set defaults.algorithm=intercube_allreduce_fused",
    ],
)
def test_the_algorithm_that_comes_with_the_simulator(words: str) -> None:
    assert_true(*words.split(), *SMALL)


def test_an_algorithm_of_a_user(tmp_path: Path) -> None:
    assert_true("--sips", 3, "--n-elem", 64, *SMALL, "--no-verify-data", *ccl_file(tmp_path, LINE + WORDS))


def assert_true(*argv: object) -> None:
    told, done = forecast_of(*argv), run(*argv, keep_oplog=True)
    assert done.outcome.error is None
    records = [record for member in done.members for record in member.chip.sip.oplog.records]
    kinds = Counter(KINDS[record[0]] for record in records)
    remote = sum(record[0] == "ipcq.send" and record[5].split(".")[0] != record[6].split(".")[0] for record in records)
    counted = Counter({kind: sum(size.counts.get(kind, 0) for size in told.sizes) for kind in (*kinds, REMOTE)})
    counted = Counter({kind: number * told.iterations for kind, number in counted.items()})
    assert counted == Counter({**kinds, "send": kinds["send"] - remote, REMOTE: remote})
    assert told.commands == sum(kinds.values()) == sum(member.commands_ended() for member in done.members)
    took_ps = max(each.sim_end_ps for each in done.outcome.ranks.values())
    assert 0.7 < told.duration_ps / took_ps < 1.1, (told.duration_ps, took_ps)


def test_commands_and_times_belong_together() -> None:
    told = forecast_of("--sips", 2, "--bytes", "4K,64K", "--iters", 3, *SMALL)
    steps = [told.time_ps(commands) for commands in range(told.commands + 1)]
    assert steps == sorted(steps)
    assert (steps[0], steps[-1]) == (told.sizes[0].curve_ps[0], told.duration_ps)
    first = told.sizes[0]
    assert told.time_ps(3 * first.commands) == 3 * (first.duration_ps + told.gap_ps) + told.sizes[1].curve_ps[0]


@pytest.mark.parametrize(
    "body",
    [
        "tl.load(t_ptr, n_elem).array.sum()",
        "tl.load(t_ptr, n_elem).array[0]",
        "float(tl.load(t_ptr, n_elem).array)",
        "tl.load(t_ptr, n_elem) if tl.load(t_ptr, n_elem).array else None",
        "tl.load(t_ptr, n_elem).array == 3",
        "import numpy; numpy.asarray(tl.load(t_ptr, n_elem).array)",
        "try: tl.load(t_ptr, n_elem).array[0]\n    except Exception: pass",
        "tl.send('E', src_addr=t_ptr, shape=1) if tl.has_direction('E') else tl.recv(None, 1, t_ptr.dtype)",
        "tl.recv_async('E', 1, t_ptr.dtype).is_completed() if tl.has_direction('E') else None",
        "tl.recv_async('E', 1, t_ptr.dtype).received if tl.has_direction('E') else None",
        "tl.last_polled_dir",
        "tl.has_direction('E') and tl.recv('E', 1, t_ptr.dtype)",
        "1 / 0",
        "raise SystemExit(3)",
        "pass",
    ],
)
def test_what_cannot_be_counted(tmp_path: Path, body: str) -> None:
    source = f"{LINE}\ndef kernel(t_ptr, n_elem, size, tl):\n    {body}\n"
    words = ["--sips", "2", "--n-elem", "4", *SMALL, *map(str, ccl_file(tmp_path, source))]
    prepared = prepare.prepare(options.parse(words))
    with pytest.raises(Uncountable):
        forecast(prepared.job, prepared.plan)
    jobs = kind_of(prepared.plan.resolved).jobs
    assert jobs is not None
    assert jobs.forecast(prepared.job, prepared.plan) is None
