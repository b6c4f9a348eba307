"""The default machine, with all its costs on: data, checks, explanations and bounds hold as on the ideal one."""

from typing import Any

import pytest
from explained import check_path, explained
from random_flags import drawn
from runs import run as run_once
from sweeps import batches, crossed

from launcher.api import run
from launcher.probe.command import parse_probe, probe

SEEDS = batches(200, 1, ordinary=2)
TORUS = ("--sips", 4, "--topology", "torus_2d", "--bytes", "32K", "--set", "sip.cube_mesh={w: 2, h: 2}")
MOST_OVERHEAD_PS = 100_000
"""ADR-0023 T5."""


@pytest.mark.parametrize("seed", SEEDS)
def test_data_are_those_of_the_ideal_machine_and_the_path_adds_up(seed: int) -> None:
    flags = {**drawn(seed), "check_invariants": True}
    flags["set"] = [each for each in flags["set"] if "hbm.read_latency_ns" not in each]
    document, told = explained(**flags)
    check_path(document, told)
    ideal = run(**flags, variant="ideal")
    tensors = [[rank["tensor_sha256"] for rank in each["ranks"]] for each in (document, ideal.document)]
    assert tensors[0] == tensors[1]
    assert [row["wrong"] for row in document["runs"]] == [0] * len(document["runs"])


@pytest.mark.parametrize("latch", ["copy", "in_place"])
def test_results_do_not_depend_on_the_mail(latch: str) -> None:
    flags = (*TORUS, "--set", f"defaults.latch={latch}")
    first, *others = (run_once(*flags, mail_seed=seed) for seed in range(5))
    assert all(each.results() == first.results() for each in others)
    assert all(each.document["runs"] == first.document["runs"] for each in others)


T5_CLAIMS: list[dict[str, Any]] = [
    {"latch": latch, "buffer_kind": kind, "backpressure": backpressure}
    for latch, kind in (("copy", "tcm"), ("in_place", "tcm"), ("in_place", "hbm"), ("in_place", "sram"))
    for backpressure in ("sleep", "poll")
]


@pytest.mark.parametrize(
    ("settings", "dst", "nbytes"), crossed(T5_CLAIMS, ["0.1.0", "0.15.0", "0.0.3"], [2, 256, 4096])
)
def test_a_pair_costs_no_less_than_raw_dma_and_less_than_100_ns_more(
    settings: dict[str, str], dst: str, nbytes: int
) -> None:
    """T5. ``copy`` from HBM and SRAM reads the message again, which raw DMA does not: it claims nothing."""
    sets = [word for name, value in settings.items() for word in ("--set", f"defaults.{name}={value}")]
    told = probe(parse_probe(["--from", "0.0.0", "--to", dst, "--bytes", str(nbytes), *sets]))
    raw, pair = (sum(term["ps"] for term in told[key]["terms"]) for key in ("raw_dma", "pair"))
    assert (told["raw_dma"]["simulated_ps"], told["pair"]["simulated_ps"]) == (raw, pair)
    assert raw <= pair < raw + MOST_OVERHEAD_PS


OFF = [
    ("pe_cpu.issue_ns=0", "pe_cpu.wakeup_ns=0", "pe_cpu.poll_ns=0"),
    ("pe_scheduler.queue_depth=null", "tcm_layout.handles_take_room=false"),
    ("defaults.latch=null", "defaults.poll_interval_max_ns=null"),
    ("hbm.kind=null", "sram.kind=null", "tcm.kind=null"),
    ("pe_mmu=null", "launch=null", "io_cpu=null", "m_cpu=null"),
    ("ucie_port.fdi_to_fdi_ns=4", "ucie_port.flit_bytes=null", "io_port.overhead_ns=2"),
    ("links.ucie.params={reach_mm: 0, flit_bytes: null}", "defaults.algorithm=intercube_allreduce"),
]
"""All that the variant ``adr`` changes for UCIe links."""
OF_ADR = ("fdi_to_fdi_ns=4", "overhead_ns=2", "algorithm=intercube_allreduce")
"""What it has of its own, besides costs that are off."""


def test_each_cost_off_by_name_gives_the_machine_of_the_adrs() -> None:
    """Each group changes the time, or is of a part that this run does not wait for; all together give that variant."""
    flags: dict[str, Any] = {"sips": 2, "bytes": ["32K"], "engine": "inproc"}
    default, ideal, adr = (run(**flags, variant=variant).runs[0]["time_ns"] for variant in (None, "ideal", "adr"))
    every = [each for group in OFF for each in group]
    assert run(**flags, set=every).runs[0]["time_ns"] == adr != default
    of_ideal = [each for group in OFF for each in group if not each.endswith(OF_ADR)]
    assert run(**flags, set=of_ideal).runs[0]["time_ns"] == ideal
    without = {group: run(**flags, set=list(group)).runs[0]["time_ns"] for group in OFF}
    assert [group for group, time_ns in without.items() if time_ns == default] == [OFF[1]], "queues never fill here"
