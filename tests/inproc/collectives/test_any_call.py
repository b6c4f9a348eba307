"""Any collective with any algorithm in any group, simulated: results, bytes on every link, and mail in any order."""

from pathlib import Path
from typing import Any

import pytest
from group_runs import HEAD
from hypothesis import given, settings
from hypothesis import strategies as st
from link_elements import link_elements
from runs import Run, run, script_file

from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.chips.config import load
from sipsim.collectives.group import Group
from sipsim.collectives.reduction import NO_OP
from sipsim.collectives.semantics import COLLECTIVES, Task
from sipsim.core.dtypes import DTYPES

SYSTEMS = (
    *(("--sips", sips) for sips in (2, 3, 5)),
    *(("--sips", 4, "--topology", topology, "--shape", "2x2") for topology in ("torus_2d", "mesh_2d_no_wrap")),
    ("--sips", 6, "--topology", "torus_2d", "--shape", "3x2"),
    ("--sips", 3, "--topology", "mesh_2d_no_wrap", "--shape", "3x1"),
)
PES = 4
CALL = """
    case = {case!r}
    group = dist.new_group(case["sips"])
    collective, layout = COLLECTIVES.get(case["collective"]), DPPolicy("row_wise", "row_wise", 1, case["pes"])
    for number in range(2):
        of_source, of_result = collective.elements(case["n_elem"], len(case["sips"]))
        has_source = case["collective"] != "scatter" or rank == case["root"]
        has_result = case["collective"] != "gather" or rank == case["root"]
        random = np.random.default_rng([rank, number])
        values = (random.standard_normal(of_source) * 2.0 ** random.integers(-5, 6, of_source)).astype(np.float32)
        source = torch.zeros((of_source,), dtype=case["dtype"], dp=layout) if has_source else None
        if source is not None:
            source.copy_(torch.from_numpy(values))
        result = source
        if not collective.in_place:
            result = torch.zeros((of_result,), dtype=case["dtype"], dp=layout) if has_result else None
        root = (case["root"],) if collective.has_root else ()
        dist.run_collective(case["collective"], Call(source, result, case["op"], root), False, group, case["algorithm"])
"""
IMPORTS = """
from sipsim.collectives.call import Call
from sipsim.collectives.semantics import COLLECTIVES
"""


def schedules() -> dict[str, Algorithm]:
    """All of the config, by name."""
    entries = load().ccl.algorithms
    found = (Algorithm(name, entry) for name, entry in entries.items())
    return {algorithm.name: algorithm for algorithm in found if algorithm.is_schedule}


SCHEDULES = schedules()
Case = dict[str, Any]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    system = draw(st.sampled_from(SYSTEMS), "system")
    algorithm = draw(st.sampled_from(sorted(SCHEDULES)), "algorithm")
    collective = COLLECTIVES.get(draw(st.sampled_from(SCHEDULES[algorithm].collectives), "collective"))
    sips = draw(st.lists(st.integers(0, int(system[1]) - 1), min_size=1, unique=True), "group")
    dtype = draw(st.sampled_from(sorted(DTYPES)), "type")
    ops = [op for op in collective.ops or (NO_OP,) if op != "avg" or DTYPES[dtype].is_float]
    n_elem = draw(st.integers(1, 400), "elements")
    return {
        "system": system,
        "collective": collective.name,
        "algorithm": algorithm,
        "sips": sips,
        "root": draw(st.sampled_from(sips), "root"),
        "dtype": dtype,
        "op": draw(st.sampled_from(ops), "operator"),
        "n_elem": n_elem,
        "pes": draw(st.sampled_from([pes for pes in (1, 2, 4) if n_elem % pes == 0]), "layout"),
        "worker_bytes": draw(st.sampled_from([64, 256, 8192]), "bytes of a worker"),
        "n_slots": draw(st.integers(1, 4), "slots"),
        "slot_size": draw(st.sampled_from([64, 128, 1024]), "bytes of a slot"),
        "seed": draw(st.integers(0, 1000), "mail"),
    }


def simulated(folder: Path, case: Case, mail_seed: int) -> Run:
    name = case["algorithm"]
    knobs = {
        "sip.cube_mesh": "{w: 1, h: 1}",
        "cube.pes": PES,
        "defaults.worker_bytes": case["worker_bytes"],
        f"algorithms.{name}.n_slots": case["n_slots"],
        f"algorithms.{name}.slot_size": case["slot_size"],
    }
    flags = [word for key, value in knobs.items() for word in ("--set", f"{key}={value}")]
    script = script_file(folder, IMPORTS + HEAD + CALL.format(case=case))
    return run(*case["system"], *flags, "--variant", "ideal", script, mail_seed=mail_seed)


def check(folder: Path, case: Case) -> None:
    done = simulated(folder, case, case["seed"])
    assert done.outcome.error is None
    assert [(row["wrong"], row["checked"]) for row in done.document["runs"]] == [(0, True)] * 2
    plan, collective = done.prepared.plan, COLLECTIVES.get(case["collective"])
    record = done.members[case["sips"][0]].chip.torch.distributed.records.runs[0]
    group, itemsize = Group(tuple(case["sips"]), plan.system), DTYPES[case["dtype"]].itemsize
    root = case["sips"].index(case["root"])
    task = Task(collective, group, case["n_elem"], itemsize, root, collective.in_place, record.workers)
    algorithm = SCHEDULES[case["algorithm"]]
    assert algorithm.schedule is not None
    assert algorithm.wiring is not None
    elements = link_elements(task, algorithm.schedule(task), algorithm.wiring(group))
    wanted = {port: 2 * count * itemsize for port, count in elements.items() if count}
    ports = ((sip, member.chip.sip.network.by_letter) for sip, member in enumerate(done.members))
    sent = {(sip, letter): port.bytes_sent for sip, own in ports for letter, port in own.items() if port.bytes_sent}
    assert sent == wanted
    assert simulated(folder, case, case["seed"] + 1).results() == done.results()


@settings(max_examples=5)
@given(case=cases())
def test_some_calls(tmp_path: Path, case: Case) -> None:
    check(tmp_path, case)


@pytest.mark.slow
@settings(max_examples=400)
@given(case=cases())
def test_many_calls(tmp_path: Path, case: Case) -> None:
    check(tmp_path, case)
