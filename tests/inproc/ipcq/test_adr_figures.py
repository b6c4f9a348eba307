"""Times of ADR-0023 D9 under the variants ``adr`` and ``ideal``, to the picosecond, from the config's parameters.

A transfer takes its wires, its nodes, and its bytes over the slowest edge. A message takes a cycle of PE_IPCQ (D17), a
transfer, and the write of its slot (D18); ``recv`` returns a cycle and the transfer of a credit later. Routes are
written out: ``p`` PE, ``r`` router, ``u`` port between cubes, ``i`` IO port between SIPs.
"""

from itertools import pairwise
from typing import Any

import pytest

from ahbm_sim.testing import Place, expect_ps, simulate
from sipsim.chips.config import load
from sipsim.config.schema import Resolved

VARIANTS = ("adr", "ideal")
LINKS = ("ucie", "ethernet_100g", "ethernet_400g")
CREDIT_BYTES = 16
FRAME_FIELDS = ("preamble_bytes", "header_bytes", "stream_header_bytes", "fcs_bytes", "gap_bytes")
"""Of Ethernet, which the record does not know; its frames have no minimum and are not stored here."""
MOST_OVER_RAW_PS = 100_000
"""How much a pair may cost beyond a raw DMA of its bytes (ADR-0023 D13, T5)."""

IN_A_CUBE = ((0, 0, 0), (0, 0, 1), "p rr p", "p rr p")
ACROSS_A_CUBE = ((0, 0, 0), (0, 0, 7), "p rrrrr p", "p rrrrr p")
# Routes in a cube go along the row of routers first, so the way back may be another.
BETWEEN_CUBES = ((0, 0, 0), (0, 1, 0), "p rrrrr uu rr p", "p rr uu rrrrr p")
BETWEEN_ROWS = ((0, 5, 2), (0, 9, 3), "p rr uu rr p", "p rr uu rr p")
BETWEEN_SIPS = ((0, 11, 7), (1, 8, 4), "p r ii r p", "p r ii r p")
FAR_IN_SIPS = ((0, 3, 0), (1, 0, 0), *["p rrrr uu rr uu rrr ii rrrr uu rr uu rrrr p"] * 2)
INSIDE = (IN_A_CUBE, ACROSS_A_CUBE, BETWEEN_CUBES, BETWEEN_ROWS)
ROWS = [(pair, "ucie") for pair in INSIDE] + [(pair, link) for pair in (BETWEEN_SIPS, FAR_IN_SIPS) for link in LINKS]
Pair = tuple[Place, Place, str, str]


def way_ps(config: Resolved, link: str, route: str, nbytes: int) -> float:
    """Wires, nodes, and bytes over the slowest edge."""
    costs, sip, cube = config.components, config.topology.sip, config.topology.cube
    params = config.links.links[link].params
    wires_mm = {
        "pr": cube.noc.pe_distance_mm,
        "rr": cube.noc.router_pitch_mm,
        "ru": cube.noc.ucie_distance_mm,
        "uu": sip.cube_gap_mm,
        "ir": sip.port_distance_mm,
    }
    nodes_ns = {
        "p": costs.pe_dma.overhead_ns,
        "r": costs.router.overhead_ns,
        "u": costs.ucie_port.fdi_to_fdi_ns / 2,
        "i": costs.io_port.overhead_ns,
    }
    rates = {
        "p": costs.pe_dma.bandwidth_GBps,
        "r": costs.router.bandwidth_GBps,
        "u": costs.ucie_port.bandwidth_GBps,
        "i": costs.io_port.bandwidth_GBps,
    }
    parts = route.replace(" ", "")
    edges = ["".join(sorted(edge)) for edge in map("".join, pairwise(parts))]
    link_bytes = nbytes + frames(params, nbytes) * sum(params[field] for field in FRAME_FIELDS if field in params)
    drains_ns = [nbytes / rates[part] for part in parts] + [link_bytes / params["bandwidth_GBps"]] * ("i" in parts)
    total_ns = sum(nodes_ns[part] for part in parts) + max(drains_ns)
    total_ns += sum(link_ns(params) if edge == "ii" else wires_mm[edge] * costs.wire.ns_per_mm for edge in edges)
    return total_ns * 1000


def frames(params: dict[str, Any], nbytes: int) -> int:
    return -(-nbytes // params["max_payload_bytes"]) if "max_payload_bytes" in params else 0


def link_ns(params: dict[str, Any]) -> float:
    if "latency_ns" in params:
        return float(params["latency_ns"])
    reach_ns = params["reach_mm"] * params["ns_per_mm"]
    return float(params["fdi_to_fdi_ns"] + reach_ns + params["retimers"] * params["retimer_ns"])


@pytest.mark.parametrize("nbytes", [64, 4096])
@pytest.mark.parametrize(("pair", "link"), ROWS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_messages_and_credits_take_wires_nodes_and_bytes_over_the_slowest_edge(
    variant: str, pair: Pair, link: str, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ring has one slot, so the second message leaves when the credit of the first arrives."""
    monkeypatch.setenv("AHBM_VARIANT", variant)
    src, dst, forward, back = pair

    def sender(tl: Any) -> None:
        handle = tl.zeros((nbytes,), "i8")
        tl.send("E", handle)
        tl.send("E", handle)

    def receiver(tl: Any) -> None:
        tl.recv("W", nbytes, "i8")
        tl.recv("W", nbytes, "i8")

    settings = {"system.sips.link": link, "defaults.n_slots": 1}
    shape: dict[str, Any] = {"sips": 2, "cubes": (4, 4), "pes": 8, "set": settings}
    done = simulate({src: sender, dst: receiver}, **shape)
    assert done.exit_code == 0, done.error

    config = load()
    cycle_ps = 1000 * config.components.pe_ipcq.overhead_ns
    slot_ps = 1000 * config.components.tcm.write_latency_ns
    there_ps = round(cycle_ps + way_ps(config, link, forward, nbytes) + slot_ps)
    back_ps = round(cycle_ps + way_ps(config, link, back, CREDIT_BYTES))
    start_ps = done.ops("ipcq.send")[0].start_ps
    ends_ps = [op.end_ps - start_ps for op in done.ops("ipcq.recv")]
    assert ends_ps == [there_ps + back_ps, 2 * (there_ps + back_ps)]
    raw_ps = expect_ps(src, dst, nbytes, "raw_dma", **shape)
    assert 0 <= there_ps + back_ps - raw_ps < MOST_OVER_RAW_PS
