"""Ethernet between SIPs, simulated: the times before frames had a minimum, and stores behind links, by hand in ns."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweeps import some

from launcher.api import run
from launcher.probe.command import parse_probe, probe

AS_BEFORE: dict[str, Any] = {"min_frame_bytes": 0, "forwarding": "cut_through"}
ONE_SUM = {"preamble_bytes": 0, "header_bytes": 50, "stream_header_bytes": 0, "fcs_bytes": 0, "gap_bytes": 0}
FRAMES = {"min_frame_bytes": 64, "forwarding": "store_and_forward"}


def probed(words: str, settings_of: dict[str, Any]) -> dict[str, Any]:
    flags = [word for key, value in settings_of.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    return probe(parse_probe([*words.split(), *flags]))


def params(preset: str, values: dict[str, Any]) -> dict[str, Any]:
    return {f"links.{preset}.params.{key}": value for key, value in values.items()}


@pytest.mark.ideal
@pytest.mark.parametrize("fields", [AS_BEFORE, {**AS_BEFORE, **ONE_SUM}], ids=["by part", "one sum"])
@pytest.mark.parametrize(
    ("words", "link", "times_ps"),
    [
        ("--to 1.3.0", "ethernet_100g", [1205540, 1210500, 1325380, 1329540, 1449380, 1541060]),
        ("--to 1.3.0", "ethernet_400g", [1198460, 1199700, 1228420, 1229460, 1259420, 1282340]),
        pytest.param(
            *("--to 2.0.1 --sips 5", "ethernet_100g", [2225940, 2230900, 2345780, 2349940, 2469780, 2561460]),
            marks=pytest.mark.slow,
        ),
        ("--to 2.0.1 --sips 5", "ethernet_400g", [2218860, 2220100, 2248820, 2249860, 2279820, 2302740]),
    ],
)
def test_the_times_of_packets_with_one_overhead(
    words: str, link: str, times_ps: list[int], fields: dict[str, Any]
) -> None:
    """The pair's times as they were recorded when a packet had 50 B of overhead and no other parameter."""
    for nbytes, time_ps in zip((2, 64, 1500, 1502, 3000, 4096), times_ps, strict=True):
        told = probed(f"--from 0.0.0 {words} --bytes {nbytes} --link {link}", params(link, fields))
        assert told["pair"]["simulated_ps"] == told["pair"]["sum_ps"] == time_ps


LINE = {
    "sip.cube_mesh": {"w": 1, "h": 1},
    "system.sips": {"count": 3, "topology": "mesh_2d_no_wrap", "shape": [3, 1], "link": "ethernet_100g"},
}
PE_TO_E = [1, 0.05, *[1] * 5, *[0.25] * 4, 0.1, 2]
"""PE_DMA, its wire, routers 0 1 2 3 7, the wires between them, the port's wire, the port."""
PE_TO_W = [1, 0.05, *[1] * 2, *[0.25] * 1, 0.1, 2]
THROUGH = [2, 0.1, *[1] * 4, *[0.25] * 3, 0.1, 2]
NEXT_NS = sum(PE_TO_E) + 500 + sum(PE_TO_W)
FAR_NS = sum(PE_TO_E) + 500 + sum(THROUGH) + 500 + sum(PE_TO_W)
NOC_GBPS, FULL_NS, PADDED_NS = 64, 1550 / 12.5, 84 / 12.5
CREDIT_NS = PADDED_NS + 16 / NOC_GBPS
"""A credit of 16 B is one padded frame, which the port stores before it enters the SIP behind the link."""


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("nbytes", "next_ns", "far_ns"),
    [
        # One frame: stored whole, then the NoC's drain; through another SIP, stored once more.
        (16, PADDED_NS + 16 / NOC_GBPS, 2 * PADDED_NS + 16 / NOC_GBPS),
        (1500, FULL_NS + 1500 / NOC_GBPS, 2 * FULL_NS + 1500 / NOC_GBPS),
        # Two: the first is stored, all drain after it; the second, of 84 B, comes within that time.
        (1502, FULL_NS + 1502 / NOC_GBPS, 2 * FULL_NS + 1502 / NOC_GBPS),
        # Two full ones: the last byte comes by the slower link, and is not held back.
        (3000, 2 * FULL_NS, FULL_NS + 2 * FULL_NS),
        (4096, (4096 + 150) / 12.5, FULL_NS + (4096 + 150) / 12.5),
    ],
)
def test_a_frame_is_stored_behind_each_link(nbytes: int, next_ns: float, far_ns: float) -> None:
    """Frames of 100G, to the next SIP and through one: PE_IPCQ, way, bytes, the slot; PE_IPCQ, the credit's way."""
    for dst, way_ns, bytes_ns, credit_ns in (
        ("1.0.0", NEXT_NS, next_ns, CREDIT_NS),
        ("2.0.0", FAR_NS, far_ns, PADDED_NS + CREDIT_NS),
    ):
        told = probed(f"--from 0.0.0 --to {dst} --bytes {nbytes}", {**LINE, **params("ethernet_100g", FRAMES)})
        by_hand_ns = 1 + way_ns + bytes_ns + 1 + 1 + way_ns + credit_ns
        assert told["pair"]["simulated_ps"] == told["pair"]["sum_ps"] == round(by_hand_ns * 1000)


def test_probe_shows_what_is_stored() -> None:
    """Beside the latency of each link, in the order of the way; the credit's, too."""
    told = probed("--from 0.0.0 --to 2.0.0 --bytes 1500", {**LINE, **params("ethernet_100g", FRAMES)})
    stored = [(term["part"], term["what"], term["ps"]) for term in told["pair"]["terms"] if "stored" in term["what"]]
    assert stored == [
        ("data", "a frame stored behind link 0.E>1.W", 124_000),
        ("data", "a frame stored behind link 1.E>2.W", 124_000),
        ("credit", "a frame stored behind link 2.W>1.E", 6_720),
        ("credit", "a frame stored behind link 1.W>0.E", 6_720),
    ]


@pytest.mark.ideal
@pytest.mark.parametrize(("first", "last"), [("ethernet_100g", "ethernet_400g"), ("ethernet_400g", "ethernet_100g")])
def test_links_of_two_rates(first: str, last: str) -> None:
    """3000 B, two frames. From 100G to 400G: the head is stored for a frame of either, and all has come by the slow
    link. From 400G to 100G: one fast frame, and then both frames on the slow link.
    """
    slow_ns, fast_ns = FULL_NS, FULL_NS / 4
    bytes_ns = 2 * slow_ns if first == "ethernet_100g" else fast_ns + 2 * slow_ns
    mixed = {**LINE["system.sips"], "link": first, "links": {"1.E": last}}  # type: ignore[dict-item]
    frames = {**params("ethernet_100g", FRAMES), **params("ethernet_400g", FRAMES)}
    told = probed("--from 0.0.0 --to 2.0.0 --bytes 3000", {**LINE, "system.sips": mixed, **frames})
    credit_ns = PADDED_NS + PADDED_NS / 4 + 16 / NOC_GBPS
    by_hand_ns = 1 + FAR_NS + bytes_ns + 1 + 1 + FAR_NS + credit_ns
    assert told["pair"]["simulated_ps"] == told["pair"]["sum_ps"] == round(by_hand_ns * 1000)


@pytest.mark.ideal
@settings(max_examples=30)
@given(
    st.integers(1, 2048),
    st.integers(1, 4),
    st.fixed_dictionaries(
        {
            "links.ethernet_100g.params.forwarding": st.sampled_from(["store_and_forward", "cut_through"]),
            "links.ethernet_100g.params.min_frame_bytes": st.sampled_from([0, 64, 512]),
            "links.ethernet_100g.params.max_payload_bytes": st.sampled_from([100, 1500, 9000]),
            "links.ethernet_100g.params.bandwidth_GBps": st.sampled_from([3, 12.5, 100]),
            "router.bandwidth_GBps": st.sampled_from([9, 64]),
            "defaults.credit_return_mode": st.sampled_from(["fast_path", "fabric", "piggyback", "auto"]),
            "defaults.buffer_kind": st.sampled_from(["tcm", "hbm"]),
            "sip.cube_mesh": st.just({"w": 2, "h": 1}),
        }
    ),
)
def test_the_sums_equal_the_simulated_times(elements: int, dst: int, chosen: dict[str, Any]) -> None:
    """Over one to three links, whichever edge is the slowest."""
    told = probed(f"--from 0.0.0 --to {dst}.0.0 --bytes {2 * elements} --sips 7 --link ethernet_100g", chosen)
    assert told["pair"]["simulated_ps"] == told["pair"]["sum_ps"]
    if (chosen["defaults.credit_return_mode"], chosen["defaults.buffer_kind"]) == ("fast_path", "tcm"):
        assert 0 <= told["overhead_ps"] < 100_000, "T5 of ADR-0023: never cheaper than a raw DMA, and little dearer"


@pytest.mark.parametrize("mode", some(["fast_path", "fabric", "piggyback", "auto"], "fabric", "auto"))
def test_the_parts_of_a_run_add_up(mode: str) -> None:
    """Messages of one frame, and contention: right sums, and a critical path on which frames are stored."""
    chosen = {**params("ethernet_100g", FRAMES), "defaults.credit_return_mode": mode, "sip.cube_mesh": {"w": 2, "h": 1}}
    outcome = run(
        engine="inproc",
        sips=5,
        topology="ring_1d",
        link="ethernet_100g",
        bytes="2K",
        explain=True,
        check_invariants=True,
        set=[f"{key}={json.dumps(value)}" for key, value in chosen.items()],
    )
    assert outcome.error is None, outcome.error
    told, row = outcome.document["explain"][-1], outcome.document["runs"][-1]
    assert row["wrong"] == 0
    assert sum(part["ps"] for part in told["parts"]) == told["until_ps"] - told["since_ps"]
    names = {part["part"]: part for part in told["parts"]}
    assert names["frames stored behind links"]["keys"] == ("links.ethernet_100g.params.bandwidth_GBps",)
