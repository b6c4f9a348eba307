"""UCIe, the same model within a SIP and between SIPs: sums by hand, in ns, and what is told of it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.api import run
from launcher.probe.command import parse_probe, probe

FLITS = {"ucie_port.fdi_to_fdi_ns": 2, "ucie_port.flit_bytes": 256, "ucie_port.flit_overhead_bytes": 16}
"""2 ns from FDI to FDI in place of 4, and flits with 240 B of payload."""
OF_LINKS = {"links.ucie.params.flit_bytes": 256}
PE_TO_E = [1, 0.05, *[1] * 5, *[0.25] * 4, 0.05]
"""PE_DMA, its wire, routers 0 1 2 3 7, the wires between them, that to the port."""
W_TO_PE = [0.05, *[1] * 2, *[0.25] * 1, 0.05, 1]
"""The wire from the port, routers 4 and 0, their wire, the PE's wire, PE_DMA."""
PORT_MM = 2 * (0.1 - 0.05)
"""An IO port is 1 mm from its router, a UCIe port 0.5."""
CROSSING_NS, GAP_NS = 2, 0.1
FLIT_NS = 256 / 64


def probed(words: str, chosen: dict[str, Any]) -> dict[str, Any]:
    flags = [word for key, value in chosen.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    return probe(parse_probe([*words.split(), *flags]))


def totals(told: dict[str, Any]) -> tuple[int, int, int]:
    return told["raw_dma"]["simulated_ps"], told["pair"]["simulated_ps"], told["pair"]["sum_ps"]


@pytest.mark.ideal
@pytest.mark.parametrize(("nbytes", "flits"), [(2, 1), (240, 1), (242, 2), (4096, 18)])
def test_between_cubes(nbytes: int, flits: int) -> None:
    """One crossing by the E of cube 0, and one back by the W of cube 1, for 16 B in a flit. Both are the slowest."""
    way_ns = sum(PE_TO_E) + CROSSING_NS + GAP_NS + sum(W_TO_PE)
    raw_ns = way_ns + flits * FLIT_NS + 1 + way_ns + FLIT_NS
    told = probed(f"--from 0.0.0 --to 0.1.0 --bytes {nbytes}", FLITS)
    raw_ps = round(raw_ns * 1000)
    assert totals(told) == (raw_ps, raw_ps + 2_000, raw_ps + 2_000)
    drains = [term["what"] for term in told["pair"]["terms"] if term["what"].startswith("drain")]
    assert drains == [
        f"drain of {n * 256} B at 64 GB/s, from sip0.cube{c}.ucie{p}" for n, c, p in ((flits, 0, "E"), (1, 1, "W"))
    ]


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("link", "lines"),
    [
        ({}, [(", FDI to FDI", 2_000), (", 2 retimers", 8_000)]),
        (
            {"retimers": 0, "reach_mm": 20},
            [(", FDI to FDI", 2_000), (", wire", 134)],
        ),
        ({"fdi_to_fdi_ns": 0, "retimers": 1, "retimer_ns": 7}, [(", 1 retimers", 7_000)]),
    ],
)
def test_between_sips(link: dict[str, Any], lines: list[tuple[str, int]]) -> None:
    """SIPs of one cube: out by E and in by W, a port of 2 ns at either end, 4096 B in 18 flits, 16 B in one."""
    link = {"flit_bytes": 256, **link}
    chosen = {"sip.cube_mesh": {"w": 1, "h": 1}, **{f"links.ucie.params.{key}": value for key, value in link.items()}}
    latency_ns = sum(ps for _, ps in lines) / 1000
    way_ns = sum(PE_TO_E) + 2 + latency_ns + 2 + sum(W_TO_PE) + PORT_MM
    by_hand_ns = 1 + way_ns + 18 * FLIT_NS + 1 + 1 + way_ns + FLIT_NS
    told = probed("--from 0.0.0 --to 1.0.0 --bytes 4096", chosen)
    assert totals(told)[1:] == (round(by_hand_ns * 1000),) * 2
    ends = "link 0.E>1.W", "link 1.W>0.E"
    shown = [(term["what"], term["ps"]) for term in told["pair"]["terms"] if term["what"].startswith("link")]
    assert shown == [(end + what, ps) for end in ends for what, ps in lines]


@settings(max_examples=40)
@given(
    st.tuples(st.integers(0, 2), st.integers(0, 15), st.integers(0, 7)),
    st.integers(1, 2048),
    st.fixed_dictionaries(
        {
            "ucie_port.fdi_to_fdi_ns": st.sampled_from([0, 2, 4, 2.001]),
            "ucie_port.flit_bytes": st.sampled_from([None, 68, 256]),
            "ucie_port.flit_overhead_bytes": st.sampled_from([4, 16]),
            "ucie_port.bandwidth_GBps": st.sampled_from([16, 64, 100]),
            "links.ucie.params.flit_bytes": st.sampled_from([None, 68, 256]),
            "links.ucie.params.reach_mm": st.sampled_from([0, 25]),
            "links.ucie.params.retimers": st.sampled_from([0, 2]),
            "router.bandwidth_GBps": st.sampled_from([9, 64]),
            "defaults.buffer_kind": st.sampled_from(["tcm", "hbm", "sram"]),
            "defaults.credit_return_mode": st.sampled_from(["fast_path", "piggyback", "auto"]),
        }
    ),
)
def test_the_sums_equal_the_simulated_times(dst: tuple[int, int, int], elements: int, chosen: dict[str, Any]) -> None:
    """Any PE of three SIPs, any message of a slot."""
    if dst != (0, 0, 0):
        told = probed(f"--from 0.0.0 --to {'.'.join(map(str, dst))} --sips 3 --bytes {2 * elements}", chosen)
        assert told["pair"]["simulated_ps"] == told["pair"]["sum_ps"]
        if chosen["defaults.credit_return_mode"] != "piggyback" and chosen["defaults.buffer_kind"] == "tcm":
            assert 0 <= told["overhead_ps"] < 100_000, "T5 of ADR-0023: never cheaper than a raw DMA, and little dearer"
        assert told["raw_dma"]["simulated_ps"] in (told["raw_dma"]["sum_ps"], None)


@pytest.mark.ideal
@pytest.mark.parametrize("flits", [False, True])
def test_only_links_between_sips_are_told_as_links(flits: bool) -> None:
    """With flits and without; and the parts of the path add up. A rank's tensor has four rows of 16 KiB."""
    outcome = run(
        engine="inproc",
        sips=3,
        bytes="64K",
        explain=True,
        check_invariants=True,
        set=[
            "sip.cube_mesh.w=2",
            "sip.cube_mesh.h=2",
            *(f"{k}={v}" for k, v in {**FLITS, **OF_LINKS}.items() if flits),
        ],
    )
    assert outcome.error is None, outcome.error
    row, told = outcome.document["runs"][-1], outcome.document["explain"][-1]
    assert row["wrong"] == 0
    assert [link["name"] for link in row["links"]] == [f"{a}.{p}>{b}.{q}" for a, p, b, q in RING]
    # In two rounds of a ring each SIP sends a row's worth each time: four messages of 4096 B, of 18 flits each.
    assert {link["payload_bytes"] for link in row["links"]} == {0, 2 * 16384}
    assert {link["wire_bytes"] for link in row["links"]} == {0, 2 * 4 * (18 * 256 if flits else 4096)}
    assert sum(part["ps"] for part in told["parts"]) == told["until_ps"] - told["since_ps"]
    keys = {part["part"]: part["keys"] for part in told["parts"]}
    assert keys["ports between cubes"] == ("ucie_port.fdi_to_fdi_ns",)
    assert keys["adapters and PHYs of links"] == ("links.ucie.params.fdi_to_fdi_ns",)
    assert keys["retimers of links"] == ("links.ucie.params.retimer_ns",)


RING = [(0, "E", 1, "W"), (0, "W", 2, "E"), (1, "E", 2, "W"), (1, "W", 0, "E"), (2, "E", 0, "W"), (2, "W", 1, "E")]
