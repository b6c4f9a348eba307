"""Every key of the config has an effect on what runs, or a line says that it has none.

For every key that the schemas know, a run with another value is set beside one without: times, tensors, op log, usage,
failure and notices, all but config and digest.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from config_keys import Key, keys_of
from msgspec.structs import asdict
from runs import Run, run, script_file

from launcher import options
from launcher.run import prepare
from launcher.run.effects import note_effects
from sipsim.core.errors import ConfigError

pytestmark = pytest.mark.xdist_group("keys")

CUBES = ("sip.cube_mesh={w: 2, h: 1}", "cube={pes: 2, noc: {routers: {w: 2, h: 1}}}")
OF_CONFIG = ("settings", "sips", "topology", "shape", "link", "cubes")
"""Fields of a row that only say what was set."""
RICH = """
import numpy as np
from sipsim.chips.ahbm.host.layout import DPPolicy
from sipsim.chips.ahbm.address import PhysAddr

N = 64
MIB = 2**20


def kernel(a, b, c, sram, scratch, tl):
    '''Meets the depth of queues, the entries of the TLB, the room of the TCM, and messages of another type.'''
    me = tl.program_id(0)
    mine = me * N * N * 2
    later = [tl.load_async(a + mine + i * 256, 128) for i in range(24)]
    for each in later:
        tl.wait(each)
    product = tl.gemm_async(a + mine, b + mine, c + mine, (N, N, N))
    for i in range(16):
        tl.load(b + mine + i * 512, 256)
    tl.wait(product)
    x = tl.load(a + mine, (32, 32), stride=N)
    z = tl.dot(tl.exp(x * 0.01), x).to("f16")
    tl.store(sram, z)
    tl.load(sram, 1024, "f16")
    tl.store(scratch, z)
    held = [tl.load(c + me * MIB, MIB // 2) for _ in range(3)]
    if me == 0 and tl.has_direction("E"):
        tl.send("E", x)
    if me == 0 and tl.has_direction("W"):
        tl.recv("W", (32, 32), "bf16")


def worker(rank, world_size, torch):
    dist = torch.distributed
    a, b = (torch.ones((2 * N, N), dp=DPPolicy("row_wise", "row_wise", 1, 2)) for _ in range(2))
    c = torch.ones((2, MIB // 2), dp=DPPolicy("row_wise", "row_wise", 1, 2))
    sram, scratch = PhysAddr(rank, 1, 0, "sram", 3 * MIB // 2), PhysAddr(rank, 0, 0, "tcm", 11 * MIB // 2)
    torch.launch(kernel, a, b, c, sram.encode(), scratch.encode(), cubes=[0, 1], pes=[0, 1])
    dist.init_process_group()
    wide = torch.ones((4, 4096), dp=DPPolicy("row_wise", "row_wise", 2, 2))
    for algorithm in ("ring", "bidirectional_ring"):
        dist.all_reduce(wide, algorithm=algorithm)
"""
TILES = """
import numpy as np


def ping(buffer, df):
    df.get_timestamp_ns()
    df.eth_send_bytes(buffer, buffer, 64)
    df.eth_wait_for_receiver_done()


def pong(buffer, df):
    df.eth_wait_for_bytes(64)
    df.eth_receiver_channel_done(0)


def worker(rank, world_size, tt):
    core = tt.ethernet_cores_to(1 - rank)[0]
    program = tt.create_program()
    tt.create_kernel(program, pong if rank else ping, core, args=(tt.l1_base(core),))
    tt.enqueue_program(program)
    tt.finish()
    tensor = tt.tensor(np.full((world_size * 64, 128), rank + 1, dtype=np.float32), "dram")
    tt.all_reduce(tensor, 0, topology="line")
    tt.all_to_all(tensor, 0, topology="line")
    tt.finish()
"""
JOB, SCRIPT, CHIP = "a built-in job", "a script", "a chip of tiles"
RUNS: dict[str, tuple[list[str], list[str], str]] = {
    JOB: (["--n-elem", "64"], [*CUBES], ""),
    SCRIPT: (
        ["--no-verify-data"],
        [
            *CUBES,
            "cube={hbm_MiB_per_pe: 2, sram_MiB: 2}",
            "sram={params: {interleave_bytes: 4096}}",
            "pe_mmu={page_KiB: 4, tlb_entries: 4}",
            "tcm_layout={kernel_MiB: 2, ipcq_MiB: 2, scratch_MiB: 2, handles_take_room: false}",
            "pe_gemm={buffer_KiB: 32}",
            "defaults={workers: 2, worker_bytes: 1024, group_KiB: 1200}",
        ],
        RICH,
    ),
    CHIP: (["--no-verify-data", "--topology", "n300"], [], TILES),
}
"""Flags, settings, and the script if there is one."""


class Tried(NamedTuple):
    """A run with another value of a key. ``moved``: whether it differs; ``said``: whether a line says it cannot."""

    flag: str
    moved: bool
    said: bool


def done_with(name: str, folder: Path, *settings: str) -> Run:
    flags, own, source = RUNS[name]
    words = [word for setting in (*own, *settings) for word in ("--set", setting)]
    done = run(*flags, *words, *([script_file(folder, source)] if source else []))
    note_effects(done.prepared, done.outcome)
    return done


def facts(done: Run) -> Any:
    """What a run shows of itself besides config and digest."""
    document = done.document
    return (
        [{key: value for key, value in row.items() if key not in OF_CONFIG} for row in document["runs"]],
        [
            (each["sim_end_ps"], each["tensor_sha256"], each["oplog_sha256"], each["bytes_sent"])
            for each in document["ranks"]
        ],
        (document["launches"], document["whole_run"], document["error"] and document["error"]["kind"]),
        [line for line in done.outcome.notices if not line.startswith("no effect")],
    )


def is_tried(key: Key) -> bool:
    """Of entries and presets some: those that run, and others."""
    first, *others = key.path
    some = {"algorithms": ("intercube_allreduce_fused", "ring", "tree"), "links": ("ucie", "tenstorrent_100g")}
    return first not in some or not others or others[0] in some[first]


@cache
def all_tried(name: str, folder: Path, part: int) -> dict[str, list[Tried]]:
    """By key: runs with other values that the rules allow, up to one that moves the run or has a line.

    ``part``: of so many keys one is tried.
    """
    flags, own, source = RUNS[name]
    words = [*flags, *(word for setting in own for word in ("--set", setting)), *(["x.py"] if source else [])]
    resolved, before = prepare.resolve(options.parse(words)), facts(done_with(name, folder))
    assert before[2][2] is None, before
    keys = [key for key in keys_of(resolved) if is_tried(key)][::part]
    return {key.name: tried(name, folder, key, before) for key in keys}


def tried(name: str, folder: Path, key: Key, before: Any) -> list[Tried]:
    found: list[Tried] = []
    for flag in key.flags():
        try:
            done = done_with(name, folder, flag)
        except ConfigError:
            continue
        found.append(Tried(flag, facts(done) != before, key.name in done.outcome.without_effect))
        if found[-1].moved or found[-1].said or len(found) == 4:
            break
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


MEANS_THE_DEFAULT = {
    "algorithms.intercube_allreduce_fused.credit_virtual_channel",
    "algorithms.intercube_allreduce_fused.head_update",
    "algorithms.intercube_allreduce_fused.rank_per",
    "algorithms.intercube_allreduce_fused.root_cube",
    "algorithms.intercube_allreduce_fused.topology",
    "algorithms.intercube_allreduce_fused.virtual_channels",
    "algorithms.ring.buffer_kind",
    "defaults.credit_virtual_channel",
}
"""Keys whose other values are refused in these systems, or are the default's by another name, or its mirror."""
NOT_MET = {
    *("defaults.worker_bytes", "pe_gemm.accumulators", "pe_gemm.chunk_bytes", "sram.params.banks"),
    *(
        f"system.chip_params.{key}"
        for key in (
            *("ccl.line_chunks_per_sync", "dram.channel_MiB"),
            *("ethernet.accept_ahead", "ethernet.copy_bytes", "noc.packet_flits"),
            *("fabric.costs.ack_ns", "fabric.costs.further_ns", "fabric.payload_bytes"),
        )
    ),
}
"""Keys of parts that run whose limits and cases these runs do not reach: so long messages, so many chips."""


@pytest.mark.parametrize(
    ("name", "part"),
    [(JOB, 4), *(pytest.param(name, 1, marks=pytest.mark.slow) for name in RUNS)],
)
def test_what_has_a_line_has_no_effect(folder: Path, name: str, part: int) -> None:
    every = [each for tries in all_tried(name, folder, part).values() for each in tries]
    assert [each.flag for each in every if each.said and each.moved] == []
    assert len([each for each in every if each.said]) > 40 // part
    assert len([each for each in every if each.moved]) > 40 // part


@pytest.mark.slow
def test_every_key_moves_a_run_or_has_a_line(folder: Path) -> None:
    last: dict[str, list[Tried]] = {}
    for name in RUNS:
        for key, tries in all_tried(name, folder, 1).items():
            last.setdefault(key, []).extend(tries[-1:])
    assert len(last) > 300
    silent = {key for key, tries in last.items() if tries and not any(each.moved for each in tries)}
    silent -= {key for key, tries in last.items() if all(each.said for each in tries)}
    assert silent == MEANS_THE_DEFAULT | NOT_MET


def told(*words: object) -> tuple[list[str], list[str]]:
    """The keys that a run has not read, and the lines about them."""
    done = run("--sips", 2, *(word for setting in CUBES for word in ("--set", setting)), *words)
    assert done.outcome.error is None, done.outcome.error
    note_effects(done.prepared, done.outcome)
    return done.outcome.without_effect, [line for line in done.outcome.notices if line.startswith("no effect")]


def test_the_memory_of_rings_has_an_effect_on_every_collective(tmp_path: Path) -> None:
    key = "defaults.buffer_kind"
    file = tmp_path / "hbm.yaml"
    file.write_text("defaults: {buffer_kind: hbm}\n")
    assert told("--collective", "all_reduce", "--bytes", "4K", "--ccl", file) == ([], [])
    assert told("--n-elem", 8, "--ccl", file) == ([], [])
    call = "def worker(rank, size, torch):\n    torch.distributed.init_process_group()\n"
    over_sips = script_file(tmp_path, f"{call}    torch.distributed.all_reduce(torch.ones((4, 8)), algorithm='ring')\n")
    assert told("--set", f"{key}=hbm", over_sips) == ([], [])
    assert told("--set", f"{key}=hbm", script_file(tmp_path, call))[0] == [key]


@pytest.mark.parametrize("job", [["--n-elem", 8], ["--collective", "all_reduce", "--bytes", "4K"]])
def test_what_a_call_of_a_script_means_has_no_effect_on_a_job(job: list[object]) -> None:
    assert told(*job, "--set", "defaults.all_reduce=intercube")[0] == ["defaults.all_reduce"]


def test_a_chunk_counts_where_it_is_a_packet_or_has_a_header() -> None:
    chunk = "defaults.vc_chunk_size"
    job: tuple[object, ...] = ("--n-elem", 8, "--set", f"{chunk}=64")
    keys, lines = told(*job)
    assert (keys, [line.count(chunk) for line in lines]) == ([chunk], [1])
    for more in ("defaults.vc_chunk_header_bytes=16", "router.buffer_packets=4"):
        assert told(*job, "--set", more) == ([], [])


def test_a_section_without_effect_is_one_thing_and_a_variant_too(tmp_path: Path) -> None:
    preset = asdict(prepare.resolve(options.parse([])).links.links["ethernet_100g"])
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps({"links": {"mine": preset}, "pe_gemm": {"rows": 64}, "router": {"overhead_ns": 2}}))
    keys, lines = told("--config", file, "--n-elem", 8, "--variant", "ideal")
    assert {"links.mine.kind", "links.mine.params.gap_bytes", "pe_gemm.rows"} < set(keys)
    assert "links.mine.source" not in keys
    assert "router.overhead_ns" not in keys
    assert (len(lines), lines[0].count("links.mine"), lines[0].count("variant")) == (1, 1, 0)
    assert told("--config", file, "--n-elem", 8, "--link", "mine")[0] == ["pe_gemm.rows"]


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["--sips", "2", "--set", "system.sips.count=4"], "system.sips.count"),
        (["--algorithm", "ring", "--set", "defaults={algorithm: tree}"], "defaults.algorithm"),
        (["--set", "links={}"], "links"),
    ],
)
def test_what_another_flag_overrides_or_sets_nothing_is_refused(words: list[str], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        prepare.resolve(options.parse(words))
