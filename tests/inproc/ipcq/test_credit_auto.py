"""``credit_return_mode: auto``: each queue pair by the links that its credits cross; sums by hand, in nanoseconds.

Three SIPs of one cube in a line, joined by Ethernet between SIP 0 and 1 and by UCIe between SIP 1 and 2.
"""

import json
from typing import Any

import pytest
from hardware import WiredPlan, config

from launcher.probe.command import parse_probe, probe
from sipsim.chips.ahbm.collectives.queue_pairs import PePlace

LINE = {
    "sip.cube_mesh": {"w": 1, "h": 1},
    "system.sips": {"count": 3, "topology": "mesh_2d_no_wrap", "shape": [3, 1], "links": {"1.W": "ethernet_100g"}},
    "defaults.credit_return_mode": "auto",
}
IPCQ_NS, TCM_WRITE_NS, UCIE_NS, ETHERNET_NS = 1, 1, 10, 500
OUT_BY_E = [1, 0.05, *[1] * 5, *[0.25] * 4, 0.1, 2]
"""PE_DMA, its wire, routers 0 1 2 3 7, the wires between them, the port's wire, the port. In by E is the same."""
OUT_BY_W = [1, 0.05, *[1] * 2, *[0.25] * 1, 0.1, 2]
THROUGH = [2, 0.1, *[1] * 4, *[0.25] * 3, 0.1, 2]
NEXT, FAR = sum(OUT_BY_E) + sum(OUT_BY_W), sum(OUT_BY_E) + sum(THROUGH) + sum(OUT_BY_W)
NEAR = 1 + 0.05 + 1 + 0.25 + 1 + 0.05 + 1
"""PE_DMA, router 0, router 1, PE_DMA, and the wires between them."""


def ethernet_ns(nbytes: int) -> float:
    return (nbytes + 50) * 0.08


LEFT_THE_PE_NS = IPCQ_NS + 1
"""PE_IPCQ and the PE's port; then 16 B at the rate of the link that it leaves by, as its bytes wait at the PE."""


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("src", "dst", "mode", "way_ns", "drain_ns", "credit_ns"),
    [
        ("1.0.0", "2.0.0", "fast_path", NEXT + UCIE_NS, 64 / 64, IPCQ_NS + NEXT + UCIE_NS + 16 / 64),
        ("0.0.0", "1.0.0", "fabric", NEXT + ETHERNET_NS, ethernet_ns(64), LEFT_THE_PE_NS + ethernet_ns(16)),
        ("0.0.0", "2.0.0", "fabric", FAR + ETHERNET_NS + UCIE_NS, ethernet_ns(64), LEFT_THE_PE_NS + 16 / 64),
        ("0.0.0", "0.0.1", "fast_path", NEAR, 64 / 64, IPCQ_NS + NEAR + 16 / 64),
    ],
)
def test_recv_blocks_by_the_links_of_its_queue_pair(
    src: str, dst: str, mode: str, way_ns: float, drain_ns: float, credit_ns: float
) -> None:
    """64 B from a PE to another: the whole way back die to die and within a SIP, else until the credit has left."""
    words = ["--from", src, "--to", dst, "--bytes", "64"]
    told = probe(parse_probe([*words, *flags(LINE)]))
    by_hand_ns = IPCQ_NS + way_ns + drain_ns + TCM_WRITE_NS + credit_ns
    assert told["credit_return_mode"] == mode
    assert told["pair"]["simulated_ps"] == told["pair"]["sum_ps"] == round(by_hand_ns * 1000)


def flags(settings: dict[str, Any]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]


def test_only_pairs_without_ethernet_between_them_have_credit_wires() -> None:
    """Their channels are those of the links, and of SIPs 1 and 2."""
    table = {0: {"a": 1, "b": 2}, 1: {"a": 0, "c": 2}, 2: {"b": 0, "c": 1}}
    plan = WiredPlan(config(LINE), [PePlace(sip, 0, 0) for sip in range(3)], table)
    assert [channel.name for channel in plan.extra_channels()] == ["1~credit~2", "2~credit~1"]
    found = {(place.sip, entry.direction): entry.credit_mode for place in plan.entries for entry in plan.entries[place]}
    assert found == {
        (0, "a"): "fabric",
        (0, "b"): "fabric",
        (1, "a"): "fabric",
        (1, "c"): "fast_path",
        (2, "b"): "fabric",
        (2, "c"): "fast_path",
    }
