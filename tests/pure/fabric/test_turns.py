"""Transfers in line on one edge, of which a later one is through before an earlier one: those behind them go on."""

from itertools import pairwise
from typing import NamedTuple

from plain_fabric import Journey, Watched, travel

from sipsim.fabric.graph import Edge, Node, Route
from sipsim.fabric.links.ucie import Ucie
from sipsim.fabric.noc.arbitration import Arbitration

GBPS = 64 * 10**9
WIRES_PS = {"pe": 50, "hbm": 50, "r": 250, "io": 100}
"""By the kind of the end that is no router."""
UCIE = Ucie(64, 2, 25, 0.0067, 2, 4, 256, 16)


class Load(NamedTuple):
    """A transfer of a SIP of one cube of 4x2 routers; ``way``: its nodes."""

    start_ps: int
    way: str
    nbytes: int
    delay_ps: int
    span_ps: int
    lead_ps: int
    vc: int


LOADS = [
    Load(0, "pe7 r7 hbm7", 4370, 52266, 34141, 0, 0),
    Load(15000, "pe7 r7 r6 r5 r4 io.W far.W", 4368, 87391, 34125, 14168, 1),
    Load(106453, "io.E r7 r6 r5 r4 r0 pe0", 4368, 0, 76000, 0, 1),
    Load(182453, "io.E r7 r6 r5 r4 pe4", 4368, 0, 76000, 0, 1),
    Load(258453, "io.E r7 r6 r5 pe5", 4368, 0, 76000, 0, 1),
    Load(334453, "io.E r7 r6 r5 r1 pe1", 4370, 0, 76000, 0, 1),
    Load(402846, "pe7 r7 io.E far.E", 4370, 51141, 34141, 14168, 1),
    Load(417846, "pe7 r7 io.E far.E", 4370, 70282, 34141, 14168, 1),
    Load(426453, "io.E r7 r6 r5 r4 r0 pe0", 4370, 0, 76000, 0, 1),
    Load(432846, "pe7 r7 r6 r5 r4 io.W far.W", 4368, 89407, 34125, 14168, 1),
    Load(478703, "pe4 r4 hbm4", 4368, 35125, 34125, 0, 0),
    Load(493703, "pe4 r4 r5 r6 r7 io.E far.E", 4368, 70250, 34125, 14168, 1),
    Load(495296, "pe7 r7 hbm7", 4368, 45082, 34125, 0, 0),
    Load(502453, "io.E r7 r6 pe6", 4370, 0, 76000, 0, 1),
    Load(562096, "pe7 r7 r6 r5 r4 io.W far.W", 4368, 51125, 34125, 14168, 1),
    Load(563703, "pe4 r4 io.W far.W", 16, 1000, 0, 14168, 1),
    Load(578453, "io.E r7 r6 r2 pe2", 4368, 0, 76000, 0, 1),
    Load(592528, "pe4 r4 hbm4", 4368, 35125, 34125, 0, 0),
    Load(638226, "pe3 r3 r2 r1 r0 r4 io.W far.W", 4368, 70266, 34125, 14168, 1),
    Load(639482, "pe5 r5 r4 io.W far.W", 16, 1000, 0, 14168, 1),
]
"""Of a line of five SIPs in the middle of an all-reduce: the least that once stopped. A credit of 16 B goes before the
rest of a message that had divided the edge behind and has it to itself again; both are in line when a third comes.
"""


def node(name: str) -> Node:
    kind = name.rstrip("0123456789").partition(".")[0]
    return Node(kind, 0, name[len(kind) :].lstrip("."))


def edge(src: str, dst: str) -> Edge:
    ends = node(src), node(dst)
    if ends[1].kind == "far":
        return Edge(*ends, UCIE.latency_ps, 0, GBPS, UCIE)
    other = next((end.kind for end in ends if end.kind != "r"), "r")
    return Edge(*ends, WIRES_PS[other], 1000, GBPS)


EDGES: dict[tuple[str, str], Edge] = {}


def journey(load: Load) -> Journey:
    names = load.way.split()
    edges = tuple(EDGES.setdefault(pair, edge(*pair)) for pair in pairwise(names))
    return Journey(load.start_ps, Route(node(names[0]), 1000, edges), *load[2:])


def test_a_third_goes_on_when_both_before_it_are_through() -> None:
    ends, _, _ = travel([journey(load) for load in LOADS], Watched, Arbitration(256, (1, 1, 0)))
    by_w = [(load, end) for load, end in zip(LOADS, ends, strict=True) if load.way.endswith("far.W")]
    assert max(end.tail_ps for _, end in by_w) < 2_000_000
    assert len(ends) == len(LOADS)
