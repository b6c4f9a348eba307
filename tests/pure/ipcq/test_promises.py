"""Promises and reactions: what the plan derives and what a run keeps. What the broker makes of them is a model in
``pure/broker/test_timesync.py``.

The sums are written out from the config, term by term, in nanoseconds.
"""

from pathlib import Path
from typing import Any

import pytest
from hardware import WiredPlan, config
from runs import ccl_file, run
from watched import Watched

from sipsim.chips.ahbm.collectives.queue_pairs import PePlace
from sipsim.chips.ahbm.plan import Plan

ODD_COSTS = {
    "wire.ns_per_mm": 1,
    "cube.noc.router_pitch_mm": 2,
    "cube.noc.pe_distance_mm": 0.3,
    "sip.port_distance_mm": 1.9,
    "pe_dma.overhead_ns": 3,
    "router.overhead_ns": 5,
    "io_port.overhead_ns": 11,
    "pe_ipcq.overhead_ns": 23,
    "cube.pes": 1,
}
"""Every cost on the route to a port has another value."""


def ps(*terms_ns: float) -> int:
    return sum(round(term * 1000) for term in terms_ns)


def default_plan(settings: dict[str, Any] | None = None) -> Plan:
    """With one PE a cube: bounds are those of the PE that is nearest to a port."""
    return Plan(config({"cube.pes": 1, **(settings or {})}))


# --- what the plan derives ------------------------------------------------------------------------------------

# PE_DMA, the router that a port hangs on, the port; then wires: PE, port.
OUT = ps(1, 1, 2, 0.05, 0.1)
"""From the PE that is nearest to a port. The least way of a frame from its source to the link."""
SENT = ps(1, 0.016)
"""PE_IPCQ, and a byte at 64 GB/s, rounded up: a frame is sent when its last byte has left its source."""
TORUS = {"system.sips.topology": "torus_2d"}
MESH = {"system.sips.topology": "mesh_2d_no_wrap", "system.sips.count": 4, "system.sips.shape": [2, 2]}


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("settings", "sips", "egress_ps", "has_transit"),
    [
        ({}, 2, SENT, False),
        ({"system.sips.link": "ethernet_100g"}, 2, ps(1, 51 / 12.5), False),
        ({"system.sips.count": 3}, 3, SENT, False),
        ({**TORUS, "system.sips.count": 9}, 9, SENT, True),
        (MESH, 4, SENT, True),
        ({"sip.cube_mesh": {"w": 1, "h": 1}}, 2, SENT, False),
        (ODD_COSTS, 2, ps(23, 0.016), False),
    ],
    ids=["default", "ethernet_100g", "ring of 3", "torus of 9", "mesh", "one cube", "odd costs"],
)
def test_from_an_event_to_a_sending(settings: dict[str, Any], sips: int, egress_ps: int, has_transit: bool) -> None:
    """PE_IPCQ and the least drain over the link, of any PE. What passes through a SIP leaves when it has come."""
    plan = default_plan(settings)
    assert plan.egress_ps == [egress_ps] * sips
    assert plan.reactions_ps == [0 if has_transit else egress_ps] * sips


@pytest.mark.ideal
def test_a_sip_without_links_has_no_bounds() -> None:
    plan = default_plan({"system.sips.count": 1})
    assert (plan.egress_ps, plan.reactions_ps, plan.channels) == ([0], [0], [])


ONE_CUBE = {"sip.cube_mesh": {"w": 1, "h": 1}}
LINE = {"system.sips.topology": "mesh_2d_no_wrap", "system.sips.count": 3, "system.sips.shape": [3, 1]}
# From PE 0 by port W, over the link, and from port E to PE 0: five routers.
OUT_BY_W, IN_BY_E = ps(1, 2 * 1, 2, 0.05, 0.25, 0.1), ps(2, 5 * 1, 1, 0.1, 4 * 0.25, 0.05)


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("link", "latency_ns", "byte_ns", "credit_ns"),
    [("ucie", 10, 0.016, 16 / 64), ("ethernet_100g", 500, 51 / 12.5, 66 / 12.5)],
)
def test_a_receive_only_sip_sends_only_credits(link: str, latency_ns: float, byte_ns: float, credit_ns: float) -> None:
    """PE_IPCQ and the whole path of 16 bytes, less the pair's least delay: the link, and the least way to it.

    So it is of the plan's own queue pairs; others could be of any PE.
    """
    settings = {**ONE_CUBE, "system.sips.link": link}
    plan = WiredPlan(config(settings), [PePlace(0, 0, 0), PePlace(1, 0, 0)], {0: {"global_E": 1}, 1: {}})
    assert plan.pair_delay_ps[1, 0] == ps(latency_ns) + OUT
    credit_ps = ps(1) + OUT_BY_W + ps(latency_ns) + IN_BY_E + ps(credit_ns)
    assert plan.installed_bounds.egress_ps()[1] == credit_ps - plan.pair_delay_ps[1, 0]
    assert plan.installed_bounds.egress_ps()[0] == ps(1, byte_ns)
    assert plan.egress_ps == plan.reactions_ps


def far_and_near(settings: dict[str, Any], far: bool) -> Plan:
    """Three SIPs in a line. The middle one sends W; with ``far``, PE 1 of the first one sends to PE 1 of the last."""
    places = [PePlace(1, 0, 0), PePlace(0, 0, 0)] + ([PePlace(0, 0, 1), PePlace(2, 0, 1)] if far else [])
    table = {0: {"global_W": 1}, 1: {"global_E": 0}} | ({2: {"there": 3}, 3: {"back": 2}} if far else {})
    return WiredPlan(config({**ONE_CUBE, **LINE, **settings}), places, table)


@pytest.mark.ideal
@pytest.mark.parametrize("far", [True, False])
def test_the_lookahead_counts_the_route_between_two_ports_if_that_is_less(far: bool) -> None:
    """From W to E four routers, with wires of no length a little less than from a PE whose port is slow. What passes
    through is sent when it has come, whoever is wired."""
    between_ports = ps(2, 4 * 1, 2, 0.1, 3 * 0.25, 0.1)
    slow = {"pe_dma.overhead_ns": 30}
    assert far_and_near({}, far).channels[0].delay_ps == ps(10) + OUT
    plan = far_and_near(slow, far)
    assert plan.channels[0].delay_ps == ps(10) + between_ports
    assert plan.reactions_ps == [0, 0, 0]


# --- what a run keeps -----------------------------------------------------------------------------------------


ALL_REDUCES = {
    "default": [],
    "ring of 3": ["--sips", "3", "--bytes", "64K"],
    "torus of 9": ["--sips", "9", "--topology", "torus_2d"],
    "mesh": ["--sips", "4", "--topology", "mesh_2d_no_wrap", "--shape", "2x2"],
    "one cube": ["--sips", "3", "--set", "sip.cube_mesh.w=1", "--set", "sip.cube_mesh.h=1"],
    "many tiles": ["--n-elem", "40000"],
    "slow chip": ["--n-elem", "5000", "--set", "router.bandwidth_GBps=5", "--set", "ucie_port.bandwidth_GBps=3"],
    "ethernet_100g": ["--link", "ethernet_100g", "--n-elem", "20000"],
    "one cube over ethernet": ["--link", "ethernet_100g", "--set", "sip.cube_mesh.w=1", "--set", "sip.cube_mesh.h=1"],
}


@pytest.mark.ideal
@pytest.mark.parametrize("system", ALL_REDUCES)
def test_every_packet_keeps_the_promise_that_is_in_force(monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    """None leaves sooner, and a promise is later than the next event."""
    watched = Watched(monkeypatch)
    done = run(*ALL_REDUCES[system])
    assert done.document["status"] == "ok"
    assert len(watched.slacks) == sum(each["packets_sent"] for each in done.document["ranks"]) > 0
    assert min(watched.slacks) >= 0
    plan = done.prepared.plan
    assert max(watched.gains) == max(plan.egress_ps) > 0, "it widens by what a PE takes to send"
    assert min(watched.gains) < max(watched.gains), "and by less where something is on its way"


THROUGH = """
TOPO_NAME_TO_KIND = {"mesh_2d_no_wrap": 2}

def kernel_args(world_size, n_elem, system):
    return n_elem, system.n_cubes

def neighbors(rank, world_size, built_in, system):
    sip, cube = divmod(rank, system.n_cubes)
    if cube == 0 and sip < 2:
        return {"near": (1 - sip) * system.n_cubes}
    return {"far": (2 - sip) * system.n_cubes + 1} if cube == 1 and sip != 1 else {}

def kernel(t_ptr, n_elem, n_cubes, sip_rank, kind, w, h, tl):
    cube = tl.program_id(1)
    way = "near" if cube == 0 and sip_rank < 2 else "far" if cube == 1 and sip_rank != 1 else None
    lengths = [1 + turn // 2 % 2 * turn * 37 % n_elem for turn in range(30 if way else 0)]
    for tile in [tl.load(t_ptr + cube * n_elem * 2, length) for length in lengths]:
        length = tile.shape[0]
        tl.send(way, tile)
        tl.recv(way, length, "f16")
"""


@pytest.mark.ideal
@pytest.mark.parametrize("link", ["ucie", "ethernet_100g"])
def test_a_promise_made_during_through_traffic_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    """The middle one of three sends to the first only, and forwards the messages between the first and the last."""
    watched = Watched(monkeypatch)
    flags = ["--topology", "mesh_2d_no_wrap", "--sips", 3, "--shape", "3x1", "--link", link, "--n-elem", 1200]
    flags += ["--set", "sip.cube_mesh.w=3", "--set", "sip.cube_mesh.h=1", "--no-verify-data"]
    done = run(*ccl_file(tmp_path, THROUGH), *flags)
    assert done.document["status"] == "ok"
    assert done.prepared.plan.egress_ps == [SENT if link == "ucie" else ps(1, 51 / 12.5)] * 3
    # Three pairs of hops, the near one, and the far one twice, with a mail a message or two for one of several packets;
    # and the credits, which go straight.
    most = {"ucie": 256, "ethernet_100g": 1500}[link]
    mails = sum(1 + (2 * (1 + turn // 2 % 2 * turn * 37 % 1200) > most) for turn in range(30))
    assert len(watched.slacks) == mails * (2 + 4) + 30 * (2 + 2)
    assert min(watched.slacks) >= 0
    assert max(watched.gains) == max(done.prepared.plan.egress_ps)
