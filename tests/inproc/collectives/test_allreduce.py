"""The default job, every SIP in this process: each element of each rank is the sum, on any system.

The sums are checked here, with whole numbers, besides the job's own check.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from runs import Run, ccl_file, run, sums_of
from sweeps import some

from sipsim.core.dtypes import DTYPES
from sipsim.core.errors import ConfigError
from sipsim.core.task import Task

SMALL = ("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2")
ROW = (*SMALL[:2], "--set", "sip.cube_mesh.h=1")
TORUS = ("--sips", 4, "--topology", "torus_2d")
SHUFFLES = range(6)
LINE = [{"a": sip, "a_port": "E", "b": sip + 1, "b_port": "W"} for sip in range(2)]

SYSTEMS = {
    "one": ("--sips", 1),
    "ring of 2": ("--sips", 2),
    "ring of 3": ("--sips", 3),
    "ring of 5": ("--sips", 5),
    "torus 2x2": TORUS,
    "torus 3x3": ("--sips", 9, "--topology", "torus_2d"),
    "torus 3x2": ("--sips", 6, "--topology", "torus_2d", "--shape", "3x2"),
    "torus 1x4": ("--sips", 4, "--topology", "torus_2d", "--shape", "1x4"),
    "mesh 2x2": ("--sips", 4, "--topology", "mesh_2d_no_wrap"),
    "mesh 3x2": ("--sips", 6, "--topology", "mesh_2d_no_wrap", "--shape", "3x2"),
    "line": ("--sips", 3, "--topology", "custom", "--set", f"system.sips.custom_links={LINE}"),
}
INTERCUBE = ("intercube_pipelined", "intercube_hierarchical")
PER_PE = ("intercube_per_pe", "intercube_per_pe_rows")
WIRED = ("intercube_allreduce", "intercube_allreduce_fused", *INTERCUBE, *PER_PE)


@st.composite
def jobs(draw: st.DrawFn, name: str) -> list[Any]:
    """The command line of an all-reduce by an algorithm that is wired before the run, on any system."""
    refused = ("line",) if name not in INTERCUBE else ()
    system = draw(st.sampled_from([each for each in SYSTEMS if each not in refused]), "system")
    meshes = [(1, 1), (2, 1), (1, 3), (2, 2), (3, 2)]
    w, h = draw(st.sampled_from(meshes[:3] if system == "torus 3x3" else meshes), "mesh")
    pes = draw(st.sampled_from([1, 2, 3] if w * h < 3 else [1, 2]), "PEs")
    slots, size = draw(st.sampled_from([(1, 24), (2, 24), (1, 64), (2, 256), (8, 4096)]), "slots")
    kind = draw(st.sampled_from(["tcm", "hbm", "sram"]), "memory of the rings")
    keys: dict[str, object] = {"n_slots": slots, "slot_size": size, "buffer_kind": kind}
    keys["credit_return_mode"] = draw(st.sampled_from(["fast_path", "fabric", "piggyback"]), "credits")
    keys["hw_strict"] = size == 64
    if name in INTERCUBE:
        keys["rank_per"] = draw(st.sampled_from(["cube", "pe"]), "workers")
    if name == "intercube_pipelined":
        keys["root_cube"] = draw(st.sampled_from([*range(w * h), "auto", "null"]), "root")
    values = {"sip.cube_mesh": f"{{w: {w}, h: {h}}}", "cube.pes": pes}
    values |= {f"algorithms.{name}.{key}": value for key, value in keys.items()}
    if name.startswith("intercube_allreduce") and draw(st.booleans(), "latch in place"):
        values["defaults.latch"] = "in_place"
    elements = draw(st.sampled_from([1, 25, 257, 1030 if size > 64 else 130]), "elements") * (
        pes if name in PER_PE else 1
    )
    words = [*SYSTEMS[system], "--algorithm", name, "--n-elem", elements, "--check-invariants"]
    words += ["--dtype", draw(st.sampled_from(sorted(DTYPES)), "type")]
    words += ["--link", draw(st.sampled_from(["ucie", "ethernet_100g", "ethernet_400g"]), "link")]
    words += draw(st.sampled_from([[], ["--variant", "adr"], ["--variant", "ideal"]]), "variant")
    return [*words, *(word for key, value in values.items() for word in ("--set", f"{key}={value}"))]


def assert_all_sums(done: Run) -> None:
    """Every element of every rank is right, the job reports it, and no queue holds a message or lacks a credit."""
    assert done.outcome.error is None, done.outcome.error.message
    assert (done.document["status"], len(done.outcome.ranks)) == ("ok", done.document["sips"])
    assert all((each["wrong"], each["checked"]) == (0, True) for each in done.document["runs"])
    for member in done.members:
        of_rank = done.tensor(member.rank)
        if len(of_rank) == done.prepared.plan.system.n_cubes:  # not a row a PE
            np.testing.assert_array_equal(of_rank, np.broadcast_to(sums_of(done), of_rank.shape))
        assert b'"tasks":[]' in member.chip.dump()
        for queue in (queue for pe in member.chip.sip.pes_in_use() for queue in pe.ipcq.queues.values()):
            assert queue.is_empty
            assert (queue.my_head, queue.my_tail) == (queue.peer_tail_cache, queue.peer_head_cache)


def check(algorithm: str, data: st.DataObject) -> None:
    """An all-reduce is right, and no order of the mail changes a tensor, an op log, a time or the digest."""
    job = data.draw(jobs(algorithm))
    done, other = run(*job), run(*job, mail_seed=data.draw(st.integers(0, 1000), "mail"))
    assert_all_sums(done)
    assert other.results() == done.results()
    assert (other.document["digest"], other.document["runs"]) == (done.document["digest"], done.document["runs"])


@pytest.mark.parametrize("algorithm", WIRED)
@settings(max_examples=5, phases=[Phase.generate])
@given(data=st.data())
def test_every_element_is_the_sum(algorithm: str, data: st.DataObject) -> None:
    check(algorithm, data)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", WIRED)
@settings(max_examples=100, phases=[Phase.generate])
@given(data=st.data())
def test_every_element_is_the_sum_on_many_systems(algorithm: str, data: st.DataObject) -> None:
    check(algorithm, data)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What tasks waited for, in order: such as ``send E`` and ``recv global_W`` for queues."""
    seen: list[str] = []
    really = Task.wait

    def noted(task: Task, what: object) -> object:
        seen.append(str(what))
        return really(task, what)

    monkeypatch.setattr(Task, "wait", noted)
    return seen


@pytest.mark.parametrize("system", ["one", "torus 2x2"])
def test_the_default_job_on_the_default_cubes(system):
    done = run(*SYSTEMS[system])
    assert_all_sums(done)
    (result,) = done.document["runs"]
    assert (result["bytes"], result["count"], result["dtype"], result["op"]) == (65536, 32768, "f16", "sum")


def test_data_differ_between_ranks_and_have_no_zero():
    """Otherwise a sum could be right by accident."""
    done = run(*TORUS, *SMALL, "--dtype", "i32", "--n-elem", 64, "--iters", 1)
    assert len(set(sums_of(done).tolist())) > 60


@pytest.mark.parametrize(
    ("fast", "slow"),
    [
        ("defaults.buffer_kind=tcm", "defaults.buffer_kind=hbm"),
        ("defaults.n_slots=8", "defaults.n_slots=1"),
        ("system.sips.link=ucie", "system.sips.link=ethernet_100g"),
    ],
)
def test_a_slower_machine_changes_times_and_not_data(fast, slow):
    done = [run(*TORUS, *SMALL, "--set", setting, "--n-elem", 20000) for setting in (fast, slow)]
    assert [each[0] for each in done[0].results()] == [each[0] for each in done[1].results()]
    assert done[0].document["runs"][0]["time_ns"] < done[1].document["runs"][0]["time_ns"]


@pytest.mark.parametrize("n_elem", [11, 37])
def test_shards_that_tiles_do_not_divide(n_elem):
    """A message is a slot, and what is left."""
    done = run(*SYSTEMS["mesh 2x2"], *SMALL, "--n-elem", n_elem, "--set", "defaults.slot_size=24", keep_oplog=True)
    sends = [record[9] for record in done.members[0].chip.sip.oplog.records if record[0] == "ipcq.send"]
    assert set(sends) == ({24, 2 * n_elem % 24} - {0} if n_elem >= 12 else {2 * n_elem})


STREAM = """
from sipsim.chips.ahbm.collectives.algorithms.intercube_allreduce import TOPO_NAME_TO_KIND, kernel_args, neighbors

def kernel(t_ptr, n_elem, cube_w, cube_h, n_sips, sip_rank, kind, w, h, tl):
    for index in range(n_elem):
        at = t_ptr + index * t_ptr.dtype.itemsize
        if sip_rank == 0:
            tl.send("global_E", src_addr=at, shape=1)
        else:
            tl.store(at, tl.recv("global_W", 1, t_ptr.dtype))
"""


def test_a_sender_waits_for_a_slow_receiver_behind_a_link(tmp_path, waits):
    """The all-reduce sends as much as it receives and never fills a ring between SIPs; this stream does."""
    one_cube = ("--set", "sip.cube_mesh.w=1", "--set", "sip.cube_mesh.h=1")
    flags = (*ccl_file(tmp_path, STREAM, n_slots=2), "--sips", 2, *one_cube, "--n-elem", 40, "--no-verify-data")
    plain = run(*flags)
    assert waits.count("send global_E") == 38
    np.testing.assert_array_equal(plain.tensor(1), plain.tensor(0))
    assert len(set(plain.tensor(0)[0].tolist())) > 20
    for seed in SHUFFLES:
        assert run(*flags, mail_seed=seed).results() == plain.results()


def test_no_sender_waits_with_wide_rings(waits):
    """A sender waits for a full ring only."""
    run("--sips", 2, *SMALL, "--n-elem", 16)
    assert not [what for what in waits if what.startswith("send")]
    assert "recv W" in waits


MEET = """
from sipsim.chips.ahbm.collectives.algorithms.intercube_allreduce import TOPO_NAME_TO_KIND, kernel_args, neighbors

def kernel(t_ptr, n_elem, cube_w, cube_h, n_sips, sip_rank, kind, w, h, tl):
    cube = tl.program_id(1)
    for _ in range(4):
        if (sip_rank, cube) in ((0, 0), (2, 1)):
            tl.send(("global_E", "global_W")[cube], src_addr=t_ptr + cube * n_elem * t_ptr.dtype.itemsize, shape=n_elem)
        if sip_rank == 1:
            tl.recv(("global_W", "global_E")[cube], n_elem, t_ptr.dtype)
"""


def test_packets_that_arrive_at_one_time_are_in_canonical_order(tmp_path):
    """SIPs 0 and 2 send to SIP 1 from mirrored places, so that their packets always meet there."""
    mirrored = ("cube.noc.routers.w=1", "cube.noc.routers.h=1", "cube.pes=1", "sip.cube_mesh.w=2", "sip.cube_mesh.h=1")
    flags = (*ccl_file(tmp_path, MEET), "--sips", 3, "--n-elem", 16, "--no-verify-data")
    flags += tuple(f"--set={setting}" for setting in mirrored)
    plain = run(*flags, keep_oplog=True)
    ends = [record[2] for record in plain.members[1].chip.sip.oplog.records]
    assert ends[0::2] == ends[1::2]
    assert len(set(ends)) == 4
    for seed in SHUFFLES:
        assert run(*flags, mail_seed=seed).results() == plain.results(), f"seed {seed}"


def test_shuffled_mail_changes_the_grants():
    """Otherwise shuffled runs would be compared with themselves."""
    grants = {run(*TORUS, mail_seed=seed).document["sync"]["grants"] for seed in range(4)}
    assert len(grants) > 1


@pytest.mark.ideal
def test_iterations_and_warmup():
    alike = (*TORUS, *SMALL, "--n-elem", 32)
    once, thrice, warm = (run(*alike, *more) for more in ((), ("--iters", 3), ("--iters", 3, "--warmup", 2)))
    for done in (once, thrice, warm):
        assert_all_sums(done)
    times = [done.document["runs"][0]["time_ns"] for done in (once, thrice, warm)]
    assert times[0] == times[1] == times[2]
    ends = [max(each[2] for each in done.results()) for done in (once, thrice, warm)]
    step_ps = times[0] * 1000 + once.prepared.plan.barrier_tree.gap_ps
    assert ends[1:] == [ends[0] + 2 * step_ps, ends[0] + 4 * step_ps]


def test_a_sweep_of_sizes():
    done = run(*TORUS, *SMALL, "-b", 64, "-e", "4K", "-f", 4)
    assert_all_sums(done)
    assert [each["bytes"] for each in done.document["runs"]] == [64, 256, 1024, 4096]
    times = [each["time_ns"] for each in done.document["runs"]]
    assert times == sorted(set(times))


def test_seeds_change_data_and_digest_and_nothing_else():
    first, second = (run(*TORUS, *SMALL, "--n-elem", 32, "--seed", seed) for seed in (1, 2))
    assert first.document["digest"] != second.document["digest"]
    for one, other in zip(first.results(), second.results(), strict=True):
        assert one[0] != other[0]
        assert one[1:] == other[1:]


def test_without_verification_data_move_and_the_digest_stays():
    checked, unchecked = (run(*TORUS, *SMALL, *more) for more in ((), ("--no-verify-data",)))
    assert unchecked.document["digest"] == checked.document["digest"]
    assert [each["checked"] for each in unchecked.document["runs"]] == [False]


@pytest.mark.parametrize(
    ("flags", "count"),
    [(("--sips", 17, "--dtype", "bf16"), 272), (("--sips", 9, "--set", "sip.cube_mesh={w: 16, h: 16}"), 2304)],
)
def test_too_many_contributions_for_the_type_are_refused(flags, count):
    with pytest.raises(ConfigError, match=f"^{count} contributions cannot be summed exactly in .*; use --dtype f32"):
        run(*flags, "--n-elem", 1)


# --- the fused algorithm: the same results bit for bit, without round trips to HBM -------------------------------

FUSED = ("--set", "defaults.algorithm=intercube_allreduce_fused")
PLAIN = ("--set", "defaults.algorithm=intercube_allreduce")
RANDOM_DATA = """
import numpy as np
def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group()
    tensor = torch.zeros((4, 5000), dtype="f16")
    tensor.copy_(torch.from_numpy(np.random.default_rng(rank).standard_normal((4, 5000)).astype("f2")))
    dist.all_reduce(tensor)
"""
ROOT, TILES = 3, 3
"""The south-east cube of four; 5,000 elements of 2 B in slots of 4 KiB."""


def accesses(done: Run, kind: str) -> Counter[int]:
    """How often each cube of SIP 0 read or wrote a memory."""
    return Counter(record[3] for record in done.members[0].chip.sip.oplog.records if record[0] == kind)


@pytest.mark.ideal
@pytest.mark.parametrize("system", some(["ring of 3", "torus 3x2", "mesh 3x2"], "ring of 3", "torus 3x2"))
def test_the_order_of_additions_is_the_same(system: str, tmp_path: Path) -> None:
    """And each cube reads and writes its shard once."""
    script = tmp_path / "script.py"
    script.write_text(RANDOM_DATA)
    both = [run(*SYSTEMS[system], *SMALL, *which, script, keep_oplog=True) for which in (FUSED, PLAIN)]
    hashes = [[rank.tensor_sha256 for rank in done.outcome.ranks.values()] for done in both]
    assert hashes[0] == hashes[1]
    assert [done.document["runs"][0]["wrong"] for done in both] == [0, 0]
    fused, plain = both
    assert fused.document["runs"][0]["time_ns"] < plain.document["runs"][0]["time_ns"]
    once = dict.fromkeys(range(4), TILES)
    assert (accesses(fused, "dma_read"), accesses(fused, "dma_write")) == (once, once)
    assert (accesses(plain, "dma_read")[ROOT], accesses(plain, "dma_write")[ROOT]) == (3 * TILES, 2 * TILES)


def test_a_shard_of_several_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = Path("sipsim/chips/ahbm/collectives/algorithms/intercube_allreduce_fused.py").read_text()
    (tmp_path / "small_blocks.py").write_text(source.replace("BLOCK_BYTES = 4 * 2**20", "BLOCK_BYTES = 8192"))
    monkeypatch.syspath_prepend(tmp_path)
    module = ("--set", "algorithms.intercube_allreduce_fused.module=small_blocks")
    assert_all_sums(run("--sips", 3, *SMALL, *FUSED, *module, "--n-elem", 20_000))


def test_the_sums_of_a_block_fit_a_small_tcm() -> None:
    """A shard of 1.5 MiB, and 1 MiB for kernels."""
    assert_all_sums(run("--sips", 2, *ROW, *FUSED, "--set", "tcm_layout.kernel_MiB=1", "--bytes", "3M"))
