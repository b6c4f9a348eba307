"""Links of different kinds in one system, a kind of the tests among them: sums by hand, both ways and in transit."""

import json

import pytest

from launcher.probe.command import parse_probe, probe

LINE = {
    "sip.cube_mesh": {"w": 1, "h": 1},
    "system.sips": {"count": 3, "topology": "mesh_2d_no_wrap", "shape": [3, 1], "links": {"1.W": "ethernet_100g"}},
}
"""SIP 0 and 1 are joined by Ethernet, SIP 1 and 2 by UCIe."""
ETHERNET_NS, UCIE_NS, IPCQ_NS, TCM_WRITE_NS = 500, 10, 1, 1
PE_TO_E = [1, 0.05, *[1] * 5, *[0.25] * 4, 0.1, 2]
"""PE_DMA, its wire, routers 0 1 2 3 7, the wires between them, the port's wire, the port."""
PE_TO_W = [1, 0.05, *[1] * 2, *[0.25] * 1, 0.1, 2]
"""Routers 0 and 4."""
THROUGH = [2, 0.1, *[1] * 4, *[0.25] * 3, 0.1, 2]
"""From one port to the other: routers 4 to 7."""
ETHERNET_4096_NS, ETHERNET_16_NS = (4096 + 3 * 50) * 0.08, (16 + 50) * 0.08
UCIE_4096_NS, UCIE_16_NS = 4096 / 64, 16 / 64

OVER_ETHERNET = [*PE_TO_E, ETHERNET_NS, *PE_TO_W]
OVER_UCIE = [*PE_TO_E, UCIE_NS, *PE_TO_W]
OVER_BOTH = [*PE_TO_E, ETHERNET_NS, *THROUGH, UCIE_NS, *PE_TO_W]


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("src", "dst", "head_ns", "message_ns", "credit_ns"),
    [
        (0, 1, OVER_ETHERNET, ETHERNET_4096_NS, ETHERNET_16_NS),
        (1, 0, OVER_ETHERNET, ETHERNET_4096_NS, ETHERNET_16_NS),
        (1, 2, OVER_UCIE, UCIE_4096_NS, UCIE_16_NS),
        (2, 1, OVER_UCIE, UCIE_4096_NS, UCIE_16_NS),
        (0, 2, OVER_BOTH, ETHERNET_4096_NS, ETHERNET_16_NS),
        (2, 0, OVER_BOTH, ETHERNET_4096_NS, ETHERNET_16_NS),
    ],
)
def test_each_link_has_its_own_costs(
    src: int, dst: int, head_ns: list[float], message_ns: float, credit_ns: float
) -> None:
    """The head over every part, the drain of the slowest link once; the credit back over the same parts."""
    words = ["--from", f"{src}.0.0", "--to", f"{dst}.0.0", "--bytes", "4096"]
    words += [word for key, value in LINE.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    pair = probe(parse_probe(words))["pair"]
    by_hand_ns = IPCQ_NS + sum(head_ns) + message_ns + TCM_WRITE_NS + IPCQ_NS + sum(head_ns) + credit_ns
    assert pair["simulated_ps"] == pair["sum_ps"] == round(by_hand_ns * 1000)


PARITY = {
    "links": {
        "parity": {
            "kind": "lab.parity_link",
            "source": "the tests",
            "params": {"bandwidth_GBps": 8, "latency_ns": 40, "check_ns": 7},
        }
    },
    "sip.cube_mesh": {"w": 1, "h": 1},
    "system.sips": {"count": 3, "topology": "mesh_2d_no_wrap", "shape": [3, 1], "links": {"0.E": "parity"}},
}
"""A kind of the user's own between SIP 0 and SIP 1, UCIe between SIP 1 and SIP 2."""
PARITY_NS, CHECK_NS, PARITY_4096_NS, PARITY_16_NS = 40, 7, (4096 + 64) / 8, (16 + 1) / 8


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("src", "dst", "head_ns", "message_ns", "credit_ns"),
    [
        (0, 1, [*PE_TO_E, PARITY_NS, *PE_TO_W], PARITY_4096_NS, PARITY_16_NS),
        (1, 0, [*PE_TO_E, PARITY_NS, *PE_TO_W], PARITY_4096_NS, PARITY_16_NS),
        (0, 2, [*PE_TO_E, PARITY_NS, *THROUGH, UCIE_NS, *PE_TO_W], PARITY_4096_NS, PARITY_16_NS),
        (2, 0, [*PE_TO_E, PARITY_NS, *THROUGH, UCIE_NS, *PE_TO_W], PARITY_4096_NS, PARITY_16_NS),
    ],
)
def test_a_kind_of_the_users_own(src: int, dst: int, head_ns: list[float], message_ns: float, credit_ns: float) -> None:
    """Its bytes are on its wire, and its port's check delays what arrives there, also on the way to another SIP."""
    words = ["--from", f"{src}.0.0", "--to", f"{dst}.0.0", "--bytes", "4096"]
    words += [word for key, value in PARITY.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    pair = probe(parse_probe(words))["pair"]
    by_hand_ns = IPCQ_NS + sum(head_ns) + message_ns + CHECK_NS + TCM_WRITE_NS + IPCQ_NS + sum(head_ns) + credit_ns
    assert pair["simulated_ps"] == round(by_hand_ns * 1000)
