"""``--explain``: a path without a gap whose parts add up, changes that a run confirms, bytes that a formula gives."""

from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from random_flags import drawn

from launcher.api import run
from sipsim.explain.graph import Graph
from sipsim.explain.sharing import Sharings
from sipsim.record.explanation import Explanation, WhatIf

SEEDS = [*range(20), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(20, 500))]
TOLERANCE = 0.1
OF_WHOLE = 0.01


def explained(reruns: int = 0, **flags: Any) -> tuple[dict[str, Any], Explanation]:
    outcome = run(**{"engine": "inproc", "verify_data": False, **flags}, explain=True, explain_reruns=reruns)
    assert outcome.error is None, outcome.error
    return outcome.document, msgspec.convert(outcome.document["explain"][-1], Explanation)


def check_path(document: dict[str, Any], told: Explanation) -> None:
    time_ps = told.until_ps - told.since_ps
    assert time_ps >= document["runs"][-1]["time_ns"] * 1000 - 1, "the longest iteration, not shorter than their mean"
    ends_ps = [told.since_ps, *(step.end_ps for step in told.steps)]
    assert [step.start_ps for step in told.steps] == ends_ps[:-1], "one step after the other"
    assert ends_ps[-1] == told.until_ps
    for step in told.steps:
        assert sum(part.ps for part in step.parts) == step.end_ps - step.start_ps > 0, step
        assert all(part.ps > 0 for part in step.parts), step
    assert sum(part.ps for part in told.parts) == time_ps
    assert sum(phase.path_ps for phase in told.phases) == time_ps


@pytest.mark.parametrize("seed", SEEDS)
def test_the_parts_of_the_path_add_up_to_the_time(seed: int) -> None:
    check_path(*explained(**drawn(seed)))


MEMORIES = [
    "hbm.kind=hbm_controller",
    "hbm.params={preset: hbm3_6400}",
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
@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 100))])
def test_waiting_in_memories_has_its_own_parts(seed: int, memories: list[str]) -> None:
    """Nothing that a memory adds is left as a rest without a name, and its buses carry an access at a time."""
    flags = drawn(seed)
    document, told = explained(**{**flags, "set": [*flags["set"], *memories]}, check_invariants=True)
    check_path(document, told)
    names = {part.part for part in told.parts}
    assert not [name for name in names if name.startswith("waiting in ")]
    assert memories is SLOW_MEMORIES or "HBM controller, front end of reads" in names


def test_messages_that_leave_together_wait_for_their_tcm_by_name() -> None:
    document, told = explained(sips=4, topology="ring_1d", bytes="256K", set=["sip.cube_mesh.w=2", *MEMORIES])
    check_path(document, told)
    names = {part.part for part in told.parts}
    assert "waiting for TCM: other accesses" in names
    assert not [name for name in names if name.startswith("waiting in ")]


def test_a_memory_that_is_slower_than_the_route_bounds_the_bytes() -> None:
    _, told = explained(sips=1, bytes="64K", set=SLOW_MEMORIES, reruns=6)
    keys = {part.part: part.keys for part in told.parts}
    assert keys["bytes through HBM"] == ("hbm.params.bandwidth_GBps",)
    saved = {each.name: (each.saved_ps, each.rerun_saved_ps) for each in told.what_if}
    predicted, run_saved = saved["hbm.params.bandwidth_GBps"]
    assert run_saved == pytest.approx(predicted, rel=TOLERANCE)


def unlike(changes: list[WhatIf], time_ps: int) -> list[str]:
    """The changes that are not as predicted: within 10 % of the change, or 1 % of the whole time."""
    return [
        each.name
        for each in changes
        if each.rerun_saved_ps is not None
        and abs(each.saved_ps - each.rerun_saved_ps) > max(TOLERANCE * abs(each.rerun_saved_ps), OF_WHOLE * time_ps)
    ]


@pytest.mark.parametrize(
    ("first", "runs"),
    [(0, 8), pytest.param(8, 48, marks=pytest.mark.slow), pytest.param(56, 48, marks=pytest.mark.slow)],
)
def test_a_run_with_the_change_confirms_nine_of_ten_predictions(first: int, runs: int) -> None:
    tried, wrong = 0, []
    for seed in range(first, first + runs):
        _, told = explained(reruns=2, **drawn(seed))
        tried += sum(each.rerun_saved_ps is not None for each in told.what_if)
        wrong += unlike(list(told.what_if), told.until_ps - told.since_ps)
    assert tried >= 2 * runs - 4
    assert len(wrong) <= tried / 10, wrong


MUTANTS = {
    "only the cause counts": (8, patch.object(Graph, "needs", lambda self, rank, span: iter((span.cause,)))),
    "a send needs no free slot": (16, patch.object(Graph, "_room", lambda *_: iter(()))),
    "shared edges stay as slow": (5, patch.object(Sharings, "of", lambda *_: [])),
}


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
        ({**RING}, 3),
        ({**RING, "sips": 2}, 1),
        ({**RING, "sips": 4, "topology": "torus_2d"}, 1),
        ({**RING, "iters": 3, "warmup": 1}, 3),
    ],
    ids=["ring of 4", "ring of 2", "torus 2x2", "several iterations"],
)
def test_bytes_of_each_link_by_the_algorithm(flags: dict[str, Any], rounds: int) -> None:
    """A ring passes a row on size - 1 times by each link eastwards (and southwards), and nothing the other way."""
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


def test_a_shared_edge_is_named_with_who_was_there(tmp_path: Any) -> None:
    """Cubes 0 and 1 of a row send to 2 and 3: both over the wire from cube 1 to cube 2."""
    (tmp_path / "flows.py").write_text(TWO_FLOWS)
    (tmp_path / "ccl.yaml").write_text(
        "defaults: {algorithm: flows}\nalgorithms:\n  flows: {module: flows.py, topology: none}\n"
    )
    _, told = explained(
        sips=1, ccl=tmp_path / "ccl.yaml", bytes="8K", set=["sip.cube_mesh.w=4", "sip.cube_mesh.h=1"]
    )
    shared = [part.part for part in told.parts if part.part.startswith("sharing ")]
    assert "sharing sip0.cube1.router7>cube1.ucieE with cube1.pe0 to cube3.pe0" in shared
    assert {phase.phase for phase in told.phases} == {"talk", "talk / listen"}
    drains_ps = sum(part.ps for part in told.parts if part.part.startswith(("sharing ", "bytes through")))
    assert drains_ps == pytest.approx(8 * 2048 / 64 * 1000, rel=0.2), "eight messages of 2 KiB over one wire"


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
