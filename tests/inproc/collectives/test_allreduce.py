"""The default job, every SIP in this process: each element of each rank is the sum, on many systems.

The sums are checked here, with whole numbers, besides the job's own check.
"""

from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from runs import Run, ccl_file, run, sums_of
from sweeps import crossed, some

from sipsim.errors import ConfigError
from sipsim.task import Task

SMALL = ("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2")
ROW = (*SMALL[:2], "--set", "sip.cube_mesh.h=1")
TORUS = ("--sips", 4, "--topology", "torus_2d")
SHUFFLES = range(6)

SYSTEMS = {
    "one": ("--sips", 1),
    "ring of 2": ("--sips", 2),
    "ring of 3": ("--sips", 3),
    "ring of 4": ("--sips", 4),
    "torus 2x2": TORUS,
    "torus 3x3": ("--sips", 9, "--topology", "torus_2d"),
    "torus 3x2": ("--sips", 6, "--topology", "torus_2d", "--shape", "3x2"),
    "torus 1x4": ("--sips", 4, "--topology", "torus_2d", "--shape", "1x4"),
    "mesh 2x2": ("--sips", 4, "--topology", "mesh_2d_no_wrap"),
    "mesh 3x2": ("--sips", 6, "--topology", "mesh_2d_no_wrap", "--shape", "3x2"),
}


def assert_all_sums(done: Run) -> None:
    """Every element of every rank is right, the job reports it, and no queue holds a message."""
    assert done.outcome.error is None, done.outcome.error.message
    row = sums_of(done)
    for member in done.members:
        np.testing.assert_array_equal(done.tensor(member.rank), np.broadcast_to(row, done.tensor(member.rank).shape))
    assert [(each["wrong"], each["checked"]) for each in done.document["runs"]] == [(0, True)] * len(
        done.document["runs"]
    )
    assert done.document["status"] == "ok"
    for member in done.members:
        assert all(pe.ipcq.queues[d].is_empty for pe in member.chip.sip.pes_in_use() for d in pe.ipcq.queues)


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


@pytest.mark.parametrize(
    ("system", "kernel"),
    crossed(SYSTEMS, [*product(["intercube_allreduce"], ["f16", "f32", "i32"]), ("intercube_allreduce_fused", "f16")]),
)
def test_every_element_is_the_sum(system, kernel):
    algorithm, dtype = kernel
    done = run(*SYSTEMS[system], *SMALL, "--set", f"defaults.algorithm={algorithm}", "--dtype", dtype, "--n-elem", 2500)
    assert_all_sums(done)
    assert len(done.outcome.ranks) == done.document["sips"]


@pytest.mark.parametrize("system", ["one", "ring of 2", "ring of 3", "torus 2x2"])
def test_the_default_job_on_the_default_cubes(system):
    done = run(*SYSTEMS[system])
    assert_all_sums(done)
    (result,) = done.document["runs"]
    assert (result["bytes"], result["count"], result["dtype"], result["op"]) == (65536, 32768, "f16", "sum")


def test_data_differ_between_ranks_and_have_no_zero():
    """Otherwise a sum could be right by accident."""
    done = run(*TORUS, *SMALL, "--dtype", "i32", "--n-elem", 64, "--iters", 1)
    row = sums_of(done)
    assert len(set(row.tolist())) > 60


@pytest.mark.ideal
def test_a_custom_topology_is_refused_by_the_algorithm(tmp_path):
    config = tmp_path / "star.yaml"
    links = [f"{{a: 0, a_port: {port}, b: {peer}, b_port: N}}" for port, peer in (("E", 1), ("W", 2))]
    config.write_text(f"system: {{sips: {{topology: custom, count: 3, custom_links: [{', '.join(links)}]}}}}\n")
    with pytest.raises(ConfigError) as caught:
        run("--config", config)
    line = str(caught.value)
    assert "\n" not in line
    assert line == (
        "system.sips.topology = custom: algorithm intercube_allreduce does not run on it; "
        "allowed: mesh_2d_no_wrap, ring_1d, torus_2d"
    )


@pytest.mark.parametrize(
    ("system", "mesh"), crossed(["one", "ring of 3", "mesh 2x2"], [(1, 1), (2, 1), (1, 3), (2, 2), (3, 2)])
)
def test_cube_meshes(system, mesh):
    sizes = [f"--set=sip.cube_mesh.{side}={cubes}" for side, cubes in zip("wh", mesh, strict=True)]
    done = run(*SYSTEMS[system], *sizes, "--n-elem", 20)
    assert_all_sums(done)
    assert done.tensor(0).shape == (mesh[0] * mesh[1], 20)


@pytest.mark.parametrize("kind", ["tcm", "hbm", "sram"])
def test_rings_in_each_memory(kind):
    done = run(*TORUS, *SMALL, "--set", f"defaults.buffer_kind={kind}", "--n-elem", 5000)
    assert_all_sums(done)
    spaces = {entry.peer.buffer_kind for entries in done.prepared.plan.entries.values() for entry in entries}
    assert spaces == {kind}


def test_the_memory_of_the_rings_changes_times_and_not_data():
    tcm, hbm = (run(*TORUS, *SMALL, "--set", f"defaults.buffer_kind={kind}", "--n-elem", 64) for kind in ("tcm", "hbm"))
    assert [each[0] for each in tcm.results()] == [each[0] for each in hbm.results()]
    assert [each[2] for each in tcm.results()] != [each[2] for each in hbm.results()]


@pytest.mark.parametrize(
    ("system", "link"),
    crossed(["ring of 3", "torus 2x2", "mesh 2x2"], ["ucie", "ethernet_100g", "ethernet_400g"]),
)
def test_links(system, link):
    assert_all_sums(run(*SYSTEMS[system], *SMALL, "--link", link, "--n-elem", 3000))


def test_a_slower_link_takes_longer():
    ucie, ethernet = (run(*TORUS, *SMALL, "--link", link).document["runs"][0] for link in ("ucie", "ethernet_100g"))
    assert ethernet["time_ns"] > ucie["time_ns"]


@pytest.mark.parametrize("dtype", ["f16", "f32", "i32"])
def test_a_single_element(dtype):
    assert_all_sums(run(*TORUS, *SMALL, "--n-elem", 1, "--dtype", dtype))


@pytest.mark.parametrize(("system", "n_elem"), crossed(["ring of 3", "mesh 2x2"], [11, 12, 13, 25, 37]))
def test_shards_that_tiles_do_not_divide(system, n_elem):
    done = run(*SYSTEMS[system], *SMALL, "--n-elem", n_elem, "--set", "defaults.slot_size=24", keep_oplog=True)
    assert_all_sums(done)
    sends = [record[9] for record in done.members[0].chip.sip.oplog.records if record[0] == "ipcq.send"]
    assert set(sends) == ({24, 2 * n_elem % 24} - {0} if n_elem >= 12 else {2 * n_elem})


def test_the_default_slots_with_a_remainder():
    assert_all_sums(run("--sips", 2, *SMALL, "--n-elem", 2 * 2048 + 1))


def test_a_mebibyte_goes_more_than_once_round_the_rings():
    done = run(*TORUS, "--bytes", "1M")
    assert_all_sums(done)
    pes = [pe for member in done.members for pe in member.chip.sip.pes_in_use()]
    queues = [queue for pe in pes for queue in pe.ipcq.queues.values()]
    assert max(queue.my_head for queue in queues) == 16
    assert {queue.n_slots for queue in queues} == {8}


@pytest.mark.parametrize(
    "system", some(["ring of 2", "ring of 3", "torus 2x2", "torus 3x2", "mesh 2x2"], "ring of 2", "torus 3x2")
)
def test_one_small_slot_makes_senders_wait(system, waits):
    knobs = ("--set", "defaults.n_slots=1", "--set", "defaults.slot_size=32")
    done = run(*SYSTEMS[system], *SMALL, *knobs, "--n-elem", 200)
    assert_all_sums(done)
    assert waits.count("send E") > 10 * done.document["sips"]


STREAM = """
from sipsim.ccl.algorithms.intercube_allreduce import TOPO_NAME_TO_KIND, kernel_args, neighbors

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


MEET = """
from sipsim.ccl.algorithms.intercube_allreduce import TOPO_NAME_TO_KIND, kernel_args, neighbors

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


def test_no_sender_waits_with_wide_rings(waits):
    """The counterpart of the tests above: a sender waits for a full ring only."""
    assert_all_sums(run("--sips", 2, *SMALL, "--n-elem", 16))
    assert not [what for what in waits if what.startswith("send")]
    assert "recv W" in waits


def test_slots_change_times_and_not_data():
    many, one = (run(*TORUS, *SMALL, "--set", f"defaults.n_slots={n}", "--n-elem", 20000) for n in (8, 1))
    assert [each[0] for each in many.results()] == [each[0] for each in one.results()]
    assert many.document["runs"][0]["time_ns"] < one.document["runs"][0]["time_ns"]


def test_every_message_was_received_and_every_credit_came_back():
    done = run(*TORUS, *SMALL, "--set", "defaults.n_slots=2", "--set", "defaults.slot_size=64", "--n-elem", 500)
    moved = 0
    for member in done.members:
        assert b'"tasks":[]' in member.chip.dump()
        for queue in (q for pe in member.chip.sip.pes_in_use() for q in pe.ipcq.queues.values()):
            moved += queue.my_head
            assert queue.my_head == queue.peer_tail_cache
            assert queue.my_tail == queue.peer_head_cache
    assert moved > 100


MAILS = {
    "torus": (*TORUS, *SMALL, "--n-elem", 300),
    "ring of 2": ("--sips", 2, *SMALL, "--n-elem", 300),
    "full rings": (*TORUS, *SMALL, "--set", "defaults.n_slots=1", "--set", "defaults.slot_size=64", "--n-elem", 100),
    "mesh": ("--sips", 6, "--topology", "mesh_2d_no_wrap", "--shape", "3x2", *SMALL, "--n-elem", 40),
}


@pytest.mark.parametrize("system", some(MAILS, "full rings", "mesh"))
def test_the_order_of_the_mail_does_not_change_results(system):
    plain = run(*MAILS[system])
    assert_all_sums(plain)
    for seed in SHUFFLES:
        shuffled = run(*MAILS[system], mail_seed=seed)
        assert shuffled.results() == plain.results(), f"seed {seed}"
        assert shuffled.document["digest"] == plain.document["digest"], f"seed {seed}"
        assert shuffled.document["runs"] == plain.document["runs"], f"seed {seed}"


def test_shuffled_mail_changes_the_grants():
    """Otherwise the test above would compare a run with itself."""
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
    assert [each["bytes"] for each in done.document["runs"]] == [64, 256, 1024, 4096]
    assert_all_sums(done)
    times = [each["time_ns"] for each in done.document["runs"]]
    assert times == sorted(times)
    assert times[0] < times[-1]


def test_bandwidths_are_those_of_nccl_tests():
    result = run(*TORUS, *SMALL, "--bytes", "1K").document["runs"][0]
    assert result["algbw_GBps"] == pytest.approx(1024 / result["time_ns"])
    assert result["busbw_GBps"] == pytest.approx(result["algbw_GBps"] * 2 * 3 / 4)


def test_seeds_change_data_and_digest_and_nothing_else():
    first, second = (run(*TORUS, *SMALL, "--n-elem", 32, "--seed", seed) for seed in (1, 2))
    assert first.document["digest"] != second.document["digest"]
    for one, other in zip(first.results(), second.results(), strict=True):
        assert one[0] != other[0]
        assert one[1:] == other[1:]
    assert run(*TORUS, *SMALL, "--n-elem", 32, "--seed", 1).document["digest"] == first.document["digest"]


def test_without_verification_data_move_and_the_digest_stays():
    checked, unchecked = (run(*TORUS, *SMALL, *more) for more in ((), ("--no-verify-data",)))
    assert unchecked.document["digest"] == checked.document["digest"]
    assert [each["checked"] for each in unchecked.document["runs"]] == [False]


def test_too_many_contributions_for_the_type_are_refused():
    flags = ("--sips", 9, "--topology", "torus_2d", "--set", "sip.cube_mesh.w=16", "--set", "sip.cube_mesh.h=16")
    with pytest.raises(ConfigError, match="2304 contributions cannot be summed exactly in f16; use --dtype f32"):
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
    script = tmp_path / "script.py"
    script.write_text(RANDOM_DATA)
    both = [run(*SYSTEMS[system], *SMALL, *which, script, keep_oplog=True) for which in (FUSED, PLAIN)]
    hashes = [[rank.tensor_sha256 for rank in done.outcome.ranks.values()] for done in both]
    assert hashes[0] == hashes[1]
    assert [done.document["runs"][0]["wrong"] for done in both] == [0, 0]
    fused, plain = (done.document["runs"][0]["time_ns"] for done in both)
    assert fused < plain


def test_each_cube_reads_and_writes_its_shard_once() -> None:
    fused, plain = (run("--sips", 2, *SMALL, *which, "--n-elem", 5000, keep_oplog=True) for which in (FUSED, PLAIN))
    once = dict.fromkeys(range(4), TILES)
    assert (accesses(fused, "dma_read"), accesses(fused, "dma_write")) == (once, once)
    assert accesses(plain, "dma_read")[ROOT] == 3 * TILES
    assert accesses(plain, "dma_write")[ROOT] == 2 * TILES


def test_a_shard_of_several_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = Path("sipsim/ccl/algorithms/intercube_allreduce_fused.py").read_text()
    (tmp_path / "small_blocks.py").write_text(source.replace("BLOCK_BYTES = 4 * 2**20", "BLOCK_BYTES = 8192"))
    monkeypatch.syspath_prepend(tmp_path)
    module = ("--set", "algorithms.intercube_allreduce_fused.module=small_blocks")
    done = run("--sips", 3, *SMALL, *FUSED, *module, "--n-elem", 20_000)
    assert_all_sums(done)


def test_the_sums_of_a_block_fit_a_small_tcm() -> None:
    """A shard of 1.5 MiB, and 1 MiB for kernels."""
    done = run("--sips", 2, *ROW, *FUSED, "--set", "tcm_layout.kernel_MiB=1", "--bytes", "3M")
    assert done.outcome.error is None
    assert_all_sums(done)
