"""Shared edges of real SIPs: what an edge carries, what each flow gets of it, and how waits grow with the load.

The traffic and its figures are those of ``scripts/bench fabric``, which prints what is asserted here.
"""

import random

import pytest
from bench import fabric, kit
from hardware import config, system_of
from plain_fabric import Journey, Watched, travel

from sipsim.chips.ahbm.system import System
from sipsim.fabric.graph import PORTS, Node, Route
from sipsim.fabric.noc.arbitration import COMM, COMPUTE, ONE_QUEUE, Arbitration

EQUAL = Arbitration(256, (1, 1))

# --- a mesh under load ----------------------------------------------------------------------------------------

LOADS = [
    *((ONE_QUEUE, load, 2000) for load in fabric.IDEAL_CYCLES),
    (EQUAL, 0.4, 2000),
    (EQUAL, 0.6, 500),
    pytest.param(EQUAL, 0.6, 2000, marks=pytest.mark.slow),
    pytest.param(EQUAL, 0.8, 2000, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("arbitration", "load", "cycles"), LOADS)
def test_waits_on_a_mesh_under_load_are_those_of_an_ideal_one(
    arbitration: Arbitration, load: float, cycles: int
) -> None:
    """Uniform random single flits on 4x4 routers: at 0.4, 0.6 and 0.8 a node and cycle they wait 0.51, 1.16 and 3.13
    cycles on an ideal mesh, measured apart; more than a fifth off is wrong.
    """
    wait = fabric.Mesh().wait_cycles(load, cycles, 1, arbitration)
    assert wait == pytest.approx(fabric.IDEAL_CYCLES[load], rel=0.2)


# --- shares ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arbitration", [ONE_QUEUE, EQUAL], ids=["one queue", "channels"])
@pytest.mark.parametrize("pes", [(0, 4), (0, 1, 2, 4)], ids=len)
def test_flows_of_one_channel_share_an_edge_evenly(pes: tuple[int, ...], arbitration: Arbitration) -> None:
    """From different PEs of a cube to the next."""
    got = fabric.shares([(pe, COMM) for pe in pes], arbitration)
    assert got == [pytest.approx(1 / len(pes), rel=0.02)] * len(pes)


@pytest.mark.parametrize("nbytes", [256, pytest.param(1000, marks=pytest.mark.slow), 4096])
@pytest.mark.parametrize(
    ("weights", "wanted"), [((1, 1), 0.5), ((4, 1), 0.8), ((2, 8), 0.2), ((4, 1, 5), 0.8), ((1, 1, 0), 0.5)]
)
def test_channels_share_an_edge_by_their_weights(weights: tuple[int, ...], wanted: float, nbytes: int) -> None:
    """Whatever the length of the messages; a third channel that sends nothing takes nothing."""
    arbitration = Arbitration(256 if nbytes != 1000 else 125, weights)
    got = fabric.shares([(0, COMPUTE), (4, COMM)], arbitration, nbytes, window=64 if nbytes < 4096 else 8)
    assert got == [pytest.approx(wanted, rel=0.02), pytest.approx(1 - wanted, rel=0.02)]


@pytest.mark.parametrize("chunk_bytes", [64, 256, 1024])
@pytest.mark.parametrize("turns", [1, 3])
def test_a_short_message_waits_no_more_than_a_turn_an_edge(chunk_bytes: int, turns: int) -> None:
    """64 B behind 256 KiB on the same route share one edge with it: they wait for as many of their own drains as the
    other channel has turns, not for the train.
    """
    graph = system_of(config(fabric.PAIR)).graph
    route = graph.route(Node("pe", 0, 0), Node("pe", 1, 0))
    turn_ps = turns * route.drain_ps(chunk_bytes)
    waits = [
        fabric.message_ps(route, Arbitration(chunk_bytes, (turns, 1)), 10**6 + at, 2**18, 64) - route.latency_ps(64)
        for at in range(0, turn_ps, max(turn_ps // 7, 1))
    ]
    assert max(waits) <= turn_ps
    assert max(waits) == pytest.approx(turns * route.drain_ps(64), abs=2)
    assert fabric.message_ps(route, ONE_QUEUE, 10**6, 2**18, 64) > 3 * 10**6


# --- what an edge carries -------------------------------------------------------------------------------------

SIZES = (16, 64, 256, 1000, 4096, 9000)
UNLIKE = {"ucie_port.bandwidth_GBps": 32, "io_port.bandwidth_GBps": 100, "hbm.bandwidth_GBps": 48}


def real_system(unlike: bool) -> System:
    mesh = {"sip.cube_mesh": {"w": 2, "h": 2}, "system.sips.count": 4, "system.sips.topology": "torus_2d"}
    return system_of(config({**mesh, **(UNLIKE if unlike else {})}))


def real_traffic(system: System, seed: int, arbitration: Arbitration) -> list[Journey]:
    """DMA and messages between PEs and memories, out over links, in from them and in transit."""
    rng = random.Random(seed)
    journeys: list[Journey] = []
    came: dict[Node, int] = {}
    for start in sorted(rng.randrange(400_000) for _ in range(rng.randint(5, 25))):
        nbytes, vc = rng.choice(SIZES), rng.randrange(len(arbitration.weights))
        route, leaves, comes = real_route(rng, system)
        (link,) = set(system.link_kinds)
        lead = link.latency_ps + link.last_chunk_ps(nbytes, arbitration.chunk_bytes) if leaves else 0
        span = link.drain_ps(nbytes) if comes else 0
        delay = 0 if comes else rng.choice((0, 1000))
        # A link carries one train after the other.
        start = came[route.start] = max(start, came.get(route.start, 0) + span)
        journeys.append(Journey(start, route, nbytes, delay, span, lead, vc))
    return sorted(journeys, key=lambda journey: journey.start_ps)


def real_route(rng: random.Random, system: System) -> tuple[Route, bool, bool]:
    """A route, whether it leaves the SIP, and whether it begins at a port."""
    port, *others = rng.sample(PORTS, 2)
    src, dst = Node("pe", rng.randrange(4), rng.randrange(8)), Node("pe", rng.randrange(4), rng.randrange(8))
    way = rng.randrange(6)
    if way == 0:
        return system.leaving(0, src, port), True, False
    if way == 1:
        return system.leaving(0, Node("io", -1, port), others[0]), True, True
    if way == 2:
        return system.graph.route(Node("io", -1, port), dst), False, True
    if way == 3 or src == dst:
        return system.graph.route(src, Node("hbm", rng.randrange(4), rng.randrange(8))), False, False
    return system.graph.route(src, dst), False, False


@pytest.mark.parametrize("unlike", [False, True], ids=["equal edges", "unlike edges"])
def test_edges_of_a_sip_carry_no_more_than_their_bandwidth(unlike: bool) -> None:
    """With and without channels, and all else that the witness checks; an end is told before a link's least lead."""
    system = real_system(unlike)
    for seed in range(150):
        arbitration = Arbitration((64, 256, 1000)[seed % 3], ((1, 1), (4, 1), (1, 2, 0))[seed // 3 % 3])
        journeys = real_traffic(system, seed, arbitration)
        for how in (arbitration, arbitration._replace(weights=(1,))):
            ends, _, _ = travel(journeys, Watched, how)
            for journey, end in zip(journeys, ends, strict=True):
                head = journey.start_ps + journey.delay_ps - journey.span_ps + journey.route.head_ps()
                assert end.tail_ps >= head + max(journey.span_ps, journey.route.drain_ps(journey.nbytes))
                assert end.now_ps <= max(end.tail_ps - journey.lead_ps, journey.start_ps)


# --- the bench ------------------------------------------------------------------------------------------------


def test_the_bench_prints_and_returns_its_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row a load, a set of flows, and a route; a message is quicker with channels."""
    monkeypatch.setattr(fabric, "SHARES", fabric.SHARES[:1])
    rows = kit.document_of("fabric", "--cycles", "50")["rows"]
    assert [row["what"] for row in rows] == ["wait"] * 3 + ["share"] + ["message"] * 2
    assert all(row["alone_ns"] < row["channels_ns"] < row["one_queue_ns"] for row in rows if row["what"] == "message")
    assert "between cubes" in capsys.readouterr().out
