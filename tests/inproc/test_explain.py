"""``--explain``: a path without a gap whose parts add up, changes that a run confirms, bytes that a formula gives."""

import random
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from explained import check_path, explained
from launch_flags import launch_settings
from random_flags import drawn
from sweeps import batches

from launcher.api import run
from sipsim.chips.ahbm.costs.prices import sum_ps
from sipsim.insight.explain.costs import Costs, SpanWork
from sipsim.insight.explain.graph import Graph, Times
from sipsim.insight.explain.what_if import Machines
from sipsim.records.explanation import Explanation, WhatIf

SEEDS = batches(500, 1, ordinary=4)
TOLERANCE = 0.1
OF_WHOLE = 0.01


@pytest.mark.ideal
@pytest.mark.parametrize("seed", SEEDS)
def test_the_parts_of_the_path_add_up_to_the_time(seed: int) -> None:
    check_path(*explained(**drawn(seed)))


COSTS = ["pe_cpu.issue_ns=15", "pe_scheduler.queue_depth=2", "pe_cpu.wakeup_ns=30", "pe_cpu.poll_ns=5"]


@pytest.mark.ideal
@pytest.mark.parametrize("seed", SEEDS[:6])
def test_the_parts_add_up_with_the_costs_of_a_pe(seed: int) -> None:
    """With issue, queues, wake-ups, polls that back off and latches; what PE_CPU takes is a part with its own key."""
    flags, latch = drawn(seed), ("copy", "in_place", "null")[seed % 3]
    settings = [*flags["set"], *COSTS, "defaults.poll_interval_max_ns=80", f"defaults.latch={latch}"]
    document, told = explained(**{**flags, "set": settings, "check_invariants": True})
    check_path(document, told)
    keys = {key: part.part for part in told.parts for key in part.keys}
    assert keys["pe_cpu.issue_ns"] == "PE_CPU, issue of a command"


def test_waiting_for_shared_edges_and_links_has_their_names() -> None:
    """Messages of all PEs of a SIP leave by one link: what they wait for has parts of its own, hardly any is left."""
    small = ["sip.cube_mesh={w: 2, h: 1}"]
    flags = {"sips": 4, "collective": "all_reduce", "algorithm": "bidirectional_ring", "bytes": "128K", "set": small}
    _, told = explained(**flags)
    words = "sharing", "waiting in a message"
    shared, unnamed = (sum(part.ps for part in told.parts if part.part.startswith(word)) for word in words)
    assert 20 * unnamed < shared
    names = [each.name for each in told.what_if]
    assert {"all bandwidths", "all bandwidths inside SIPs"} <= set(names)
    saved = {each.name: each.saved_ps for each in told.what_if}
    assert saved["all bandwidths"] == max(saved.values())


MEMORIES = [
    "hbm.kind=hbm_controller",
    "hbm.params={preset: hbm3_6400}",
    "hbm.read_latency_ns=99",  # the default, as another value is refused
    "sram.kind=banked_sram",
    "sram.params={banks: 4, interleave_bytes: 64, bank_bandwidth_GBps: 8}",
    "tcm.kind=tcm_ports",
    "tcm.params={bandwidth_GBps: 128}",
]
SLOW_MEMORIES = [
    "hbm.kind=latency_bandwidth",
    "hbm.params={bandwidth_GBps: 20}",
    "tcm.kind=tcm_ports",
    "tcm.params={bandwidth_GBps: 30, ports: shared}",
]


@pytest.mark.parametrize("memories", [MEMORIES, SLOW_MEMORIES], ids=["banks and ports", "slow"])
@pytest.mark.parametrize("seed", batches(2, 1))
def test_waiting_in_memories_has_its_own_parts(seed: int, memories: list[str]) -> None:
    """Nothing that a memory adds is left as a rest without a name, and its buses carry an access at a time.

    Where transfers meet trains that a memory slows, or several fetches wait for one HBM, a rest may stay unnamed.
    """
    told = _with_memories(seed, memories)
    names = {part.part for part in told.parts}
    assert not [name for name in names if name.startswith("waiting in ")]
    assert memories is SLOW_MEMORIES or "HBM controller, front end of reads" in names


@pytest.mark.slow
@pytest.mark.parametrize("memories", [MEMORIES, SLOW_MEMORIES], ids=["banks and ports", "slow"])
@pytest.mark.parametrize("seed", range(2, 100))
def test_the_parts_add_up_with_memories(seed: int, memories: list[str]) -> None:
    _with_memories(seed, memories)


def _with_memories(seed: int, memories: list[str]) -> Explanation:
    flags = drawn(seed)
    document, told = explained(**{**flags, "set": [*flags["set"], *memories]}, check_invariants=True)
    check_path(document, told)
    return told


@pytest.mark.ideal
def test_a_memory_that_is_slower_than_the_route_bounds_the_bytes() -> None:
    _, told = explained(sips=1, bytes="64K", set=SLOW_MEMORIES, reruns=6)
    keys = {part.part: part.keys for part in told.parts}
    assert keys["bytes through HBM"] == ("hbm.params.bandwidth_GBps",)
    saved = {each.name: (each.saved_ps, each.rerun_saved_ps) for each in told.what_if}
    predicted, run_saved = saved["hbm.params.bandwidth_GBps"]
    assert run_saved == pytest.approx(predicted, rel=TOLERANCE)


@pytest.mark.ideal
@pytest.mark.parametrize("seed", SEEDS[:5])
def test_they_do_where_launches_take_time(seed: int) -> None:
    draw = random.Random(f"{seed} launches")
    margin_ns = draw.choice(("null", 0, 50, 2000))
    flags = drawn(seed)
    flags["set"] += launch_settings(start_margin_ns=margin_ns, max_start_skew_ns=draw.choice((0, 700)))
    document, told = explained(**flags, check_invariants=True)
    check_path(document, told)
    late_ns = max(each["late_by_ns"] for each in document["launches"])
    assert (late_ns == 0) == (margin_ns in ("null", 2000))
    assert told.where.endswith(".host")


def unlike(changes: list[WhatIf], time_ps: int) -> list[str]:
    """The changes that are not as predicted: within 10 % of the change, or 1 % of the whole time."""
    return [
        each.name
        for each in changes
        if each.rerun_saved_ps is not None
        and abs(each.saved_ps - each.rerun_saved_ps) > max(TOLERANCE * abs(each.rerun_saved_ps), OF_WHOLE * time_ps)
    ]


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("first", "runs"),
    [(0, 3), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((0, 5), (5, 51), (56, 48)))],
)
def test_a_run_with_the_change_confirms_nine_of_ten_predictions(first: int, runs: int) -> None:
    tried, wrong = 0, []
    for seed in range(first, first + runs):
        _, told = explained(reruns=2, **drawn(seed))
        tried += sum(each.rerun_saved_ps is not None for each in told.what_if)
        wrong += unlike(list(told.what_if), told.until_ps - told.since_ps)
    assert tried >= 2 * runs - 4
    assert len(wrong) <= tried / 10, wrong


@pytest.mark.ideal
@pytest.mark.parametrize("seed", SEEDS[:3])
def test_work_is_priced_anew_wherever_a_change_moves_its_price(seed: int) -> None:
    usual, priced = Machines.work_ps, []

    def checked(machines: Machines, work: SpanWork) -> Times:
        found = usual(machines, work)
        assert found.tolist() == [sum(sum_ps(call.price(each)) for call in work.calls) for each in machines.prices]
        priced.append(found)
        return found

    with patch.object(Machines, "work_ps", checked):
        explained(**drawn(seed))
    assert priced


def test_a_faster_poll_sees_its_event_sooner() -> None:
    """A look of 40 ns every 100 ns: as each one that sees an event ends sooner, some later ones are not needed."""
    poll = ["defaults.backpressure=poll", "defaults.poll_interval_ns=100", "pe_cpu.poll_ns=40"]
    _, told = explained(sips=2, bytes="256", set=[*poll, "sip.cube_mesh={w: 2, h: 2}"], reruns=6)
    [poll_change] = [each for each in told.what_if if each.name == "pe_cpu.poll_ns"]
    assert poll_change.saved_ps == poll_change.rerun_saved_ps
    assert poll_change.saved_ps >= 2 * 20_000, "two looks on the path at least"


MUTANTS = {
    "only the cause counts": (8, patch.object(Graph, "needs", lambda self, rank, span: iter((span.cause,)))),
    "a send needs no free slot": (54, patch.object(Graph, "_room", lambda *_: iter(()))),
    "shared edges stay as slow": (12, patch.object(Costs, "_transfers", lambda *_: iter(()))),
}


@pytest.mark.ideal
@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_graph_predicts_what_no_run_confirms(name: str) -> None:
    seed, mutant = MUTANTS[name]
    _, right = explained(reruns=3, **drawn(seed))
    saved = {each.name: each.rerun_saved_ps for each in right.what_if}
    assert not unlike(list(right.what_if), right.until_ps - right.since_ps)
    with mutant:
        _, wrong = explained(**drawn(seed))
    for each in wrong.what_if:
        each.rerun_saved_ps = saved.get(each.name)
    assert unlike(list(wrong.what_if), wrong.until_ps - wrong.since_ps)


RING = {"sips": 4, "topology": "ring_1d", "set": ["sip.cube_mesh.w=2", "sip.cube_mesh.h=2"]}


@pytest.mark.parametrize(
    ("flags", "rounds"),
    [
        pytest.param({**RING}, 3, marks=pytest.mark.slow),
        pytest.param({**RING, "sips": 2}, 1, marks=pytest.mark.slow),
        ({**RING, "sips": 4, "topology": "torus_2d"}, 1),
        ({**RING, "iters": 3, "warmup": 1}, 3),
    ],
    ids=["ring of 4", "ring of 2", "torus 2x2", "several iterations"],
)
def test_bytes_of_each_link_by_the_algorithm(flags: dict[str, Any], rounds: int) -> None:
    """A ring passes a row on size - 1 times by each link eastwards (and southwards), and nothing the other way."""
    flags = {**flags, "set": [*flags["set"], "links.ucie.params.flit_bytes=256"]}
    document, _ = explained(**flags, bytes="48K", dtype="i32")
    row = document["runs"][-1]
    row_bytes = row["bytes"] // 4
    tiles = row_bytes // 4096
    flits = -(-4096 // 240)
    links = {each["name"]: each for each in row["links"]}
    assert row_bytes == tiles * 4096
    for name, link in links.items():
        is_used = name.split(">")[0].endswith((".E", ".S"))
        assert link["payload_bytes"] == (rounds * row_bytes if is_used else 0), name
        assert link["wire_bytes"] == (rounds * tiles * flits * 256 if is_used else 0), name
        assert link["frames"] == (rounds * tiles if is_used else 0), name


TWO_FLOWS = """
def kernel_args(world_size, n_elem):
    return (n_elem,)

def neighbors(rank, world_size, built_in):
    return {"E": rank + 2} if rank < 2 else {"W": rank - 2}

def kernel(t_ptr, n, tl):
    row = t_ptr + tl.program_id(1) * n * 2
    with tl.phase("talk"):
        tile = tl.load(row, n)
        if tl.has_direction("E"):
            for turn in range(4):
                tl.send("E", tile)
        else:
            for turn in range(4):
                with tl.phase("listen"):
                    tl.recv("W", n, "f16")
"""


@pytest.mark.ideal
def test_a_shared_edge_is_named_with_who_was_there(tmp_path: Any) -> None:
    """Cubes 0 and 1 of a row send to 2 and 3: both over the wire from cube 1 to cube 2."""
    (tmp_path / "flows.py").write_text(TWO_FLOWS)
    (tmp_path / "ccl.yaml").write_text(
        "defaults: {algorithm: flows}\nalgorithms:\n  flows: {module: flows.py, topology: none}\n"
    )
    _, told = explained(sips=1, ccl=tmp_path / "ccl.yaml", bytes="8K", set=["sip.cube_mesh.w=4", "sip.cube_mesh.h=1"])
    shared = [part.part for part in told.parts if part.part.startswith("sharing ")]
    assert "sharing sip0.cube1.router7>cube1.ucieE with cube1.pe0 to cube3.pe0" in shared
    assert {phase.phase for phase in told.phases} == {"talk", "talk / listen"}
    drains_ps = sum(part.ps for part in told.parts if part.part.startswith(("sharing ", "bytes through")))
    assert drains_ps == pytest.approx(8 * 2048 / 64 * 1000, rel=0.2), "eight messages of 2 KiB over one wire"


@pytest.mark.ideal
def test_the_time_of_kernels_is_all_accounted_for() -> None:
    document, told = explained(**RING, bytes="16K")
    row = document["runs"][-1]
    assert sum(row["kernel_time"].values()) == pytest.approx(1, abs=1e-9)
    of_kernels = sum(sum(phase.kernels_ps.values()) for phase in told.phases)
    time_ps = told.until_ps - told.since_ps
    ended = row["kernel_time"].get("ended", 0)
    assert of_kernels == pytest.approx(row["kernels"] * time_ps * (1 - ended), rel=1e-9)


def test_explaining_changes_no_result() -> None:
    plain = run(**RING, bytes="16K", engine="inproc")
    told, _ = explained(**RING, bytes="16K", verify_data=True)
    assert plain.digest == told["digest"]
    assert plain.document["explain"] == []


ADDS = """
def kernel(tl):
    if tl.program_id(1) == 0:
        message = tl.zeros(8192, "f16")
        tl.delay(6000)
        for _ in range(8):
            tl.send("E", message)
    else:
        x = tl.zeros(65536, "f16")
        for _ in range(7):
            x + x
        for _ in range(8):
            tl.recv("W", 8192, "f16")


def worker(rank, world_size, torch):
    torch.distributed.init_process_group()
    torch.launch(kernel, cubes=[0, 1], pes=[0])
"""


ONE_PAIR = ["sip.cube_mesh={w: 2, h: 1}", "defaults.slot_size=16384", "defaults.n_slots=8"]


@pytest.mark.parametrize(("place", "late_ps"), [("own", 0), ("interleaved", 8 * 16384 * 1000 // 64 // 3)])
def test_a_conflict_in_a_bank_of_the_tcm_has_a_line(tmp_path: Path, place: str, late_ps: int) -> None:
    """Messages at 64 GB/s beside additions that take all that three banks give: these are a third slower meanwhile."""
    (tmp_path / "adds.py").write_text(ADDS)
    ports = [f"tcm.params={{bandwidth_GBps: 64, ports: shared, banks: 3, ipcq_bank: {place}}}"]
    _, told = explained(script=tmp_path / "adds.py", sips=1, set=[*ports, *ONE_PAIR])
    shared = {
        part.part: part.ps for part in told.parts if part.part.startswith("sharing the ports of the banks of TCM")
    }
    assert sum(shared.values()) == pytest.approx(late_ps, abs=10)
    assert {key for part in told.parts if part.part in shared for key in part.keys} <= {"tcm.params.bandwidth_GBps"}
