"""Times between SIPs to the picosecond: the whole all-reduce as a sum of legs computed here, and single messages.

The sum uses nothing of the simulator but the numbers of its resolved config. The hops of each leg are written down
below, router by router; how a leg becomes a time, and how legs follow one another, is this file's own. Everything
runs in one process over the real hub, sessions and mail.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hardware import config, records_of
from runs import run
from sweeps import crossed

from ahbm_sim.testing import expect_ps, simulate
from sipsim.config.schema import Node as NodeCost
from sipsim.config.schema import Resolved

N_ELEM = 2048
SLOT_BYTES = 2 * N_ELEM
"""The default 64 KiB: 4096 B of f16 a cube, one slot."""


# --- legs -----------------------------------------------------------------------------------------------------
#
# From PE 0 on router 0 to PE 0 of the next cube. A cube has routers 0 1 2 3 over 4 5 6 7; its UCIe ports sit in the
# middle of its sides, E on router 7, W on 4, N on 2, S on 6. X before Y.

EAST = "pe r0 r1 r2 r3 r7 uE uW r4 r0 pe"
WEST = "pe r0 r4 uW uE r7 r6 r5 r4 r0 pe"
SOUTH = "pe r0 r1 r2 r6 uS uN r2 r1 r0 pe"
NORTH = "pe r0 r1 r2 uN uS r6 r5 r4 r0 pe"
TO_HBM = "pe r0 hbm"
FROM_HBM = "hbm r0 pe"

# From the root cube 15 by port E, on cube 11 to its N, over the link into port W, on cube 8 of the other SIP, and
# there through cubes 9 and 10 to 11, and S to 15. Back, for the credit: 14, 13, 12, N to 8, out by W; in by E at 11.
ACROSS_EAST = (
    "pe r0 r1 r2 uN  uS r6 r7 ioE "
    "ioW r4 r5 r6 r7 uE  uW r4 r5 r6 r7 uE  uW r4 r5 r6 r7 uE  uW r4 r5 r6 uS  uN r2 r1 r0 pe"
)
ACROSS_WEST = (
    "pe r0 r4 uW  uE r7 r6 r5 r4 uW  uE r7 r6 r5 r4 uW  uE r7 r6 r2 uN  uS r6 r5 r4 ioW ioE r7 r6 uS  uN r2 r1 r0 pe"
)
# By port S, on cube 14, into port N, on cube 2: E to 3, then S through 7 and 11 to 15. Back: W to 14, N through 10 and
# 6 to 2, out by N; in by S at 14, E to 15.
ACROSS_SOUTH = "pe r0 r4 uW  uE r7 r6 ioS ioN r2 r3 r7 uE  uW r4 r5 r6 uS  uN r2 r6 uS  uN r2 r6 uS  uN r2 r1 r0 pe"
ACROSS_NORTH = "pe r0 r4 uW  uE r7 r6 r2 uN  uS r6 r2 uN  uS r6 r2 uN  uS r6 r2 ioN ioS r6 r7 uE  uW r4 r0 pe"


class Costs:
    """Times of legs and parts, in picoseconds, from the numbers of a config."""

    def __init__(self, resolved: Resolved, link: str) -> None:
        parts, cube, sip = resolved.components, resolved.topology.cube, resolved.topology.sip
        self.nodes = {
            "p": parts.pe_dma,
            "r": parts.router,
            "u": NodeCost(overhead_ns=parts.ucie_port.fdi_to_fdi_ns / 2, bandwidth_GBps=parts.ucie_port.bandwidth_GBps),
            "i": parts.io_port,
            "h": parts.hbm,
        }
        self.link: dict[str, Any] = resolved.links.links[link].params
        noc = cube.noc
        lengths_mm = {
            "pr": noc.pe_distance_mm,
            "rr": noc.router_pitch_mm,
            "ru": noc.ucie_distance_mm,
            "uu": sip.cube_gap_mm,
            "ir": sip.port_distance_mm,
            "hr": noc.hbm_distance_mm,
        }
        self.wires = {pair: ps(mm * parts.wire.ns_per_mm) for pair, mm in lengths_mm.items()}
        self.wires["ii"] = ps(self._link_ns())
        self.ipcq = ps(parts.pe_ipcq.overhead_ns)
        self.issue = ps(parts.pe_dma.overhead_ns)
        self.tcm_write = ps(parts.tcm.write_latency_ns)
        self.hbm_read, self.hbm_write = ps(parts.hbm.read_latency_ns), ps(parts.hbm.write_latency_ns)
        self.command, self.ack = parts.pe_dma.command_bytes, parts.pe_dma.ack_bytes
        self.math = parts.pe_math
        queues = resolved.ccl.defaults
        self.credit_bytes = queues.ipcq_credit_size_bytes
        self.chunk, self.header = queues.vc_chunk_size, queues.vc_chunk_header_bytes

    def transfer(self, leg: str, nbytes: int) -> int:
        """The timing contract: every wire, every node, and the bottleneck's drain once."""
        kinds = [hop[0] for hop in leg.split()]
        steps = ["".join(sorted(pair)) for pair in pairwise(kinds)]
        head = sum(self.wires[step] for step in steps) + sum(ps(self.nodes[kind].overhead_ns) for kind in kinds)
        drains = [self.on_chip(nbytes, kind) for kind in kinds]
        if "ii" in steps:
            drains.append(drain(self._on_the_link(nbytes), self.link["bandwidth_GBps"]))
        return head + max(drains)

    def on_chip(self, nbytes: int, kind: str) -> int:
        """What the edges of a node need for the bytes and the header of each chunk."""
        return drain(nbytes + up(nbytes, self.chunk) * self.header, self.nodes[kind].bandwidth_GBps)

    def _link_ns(self) -> float:
        """UCIe: a crossing from FDI to FDI, and retimers; its wire is not counted."""
        if "max_payload_bytes" in self.link:
            return float(self.link["latency_ns"])
        return float(self.link["fdi_to_fdi_ns"] + self.link["retimers"] * self.link["retimer_ns"])

    def _on_the_link(self, nbytes: int) -> int:
        """Ethernet: 50 B more a packet of up to 1500. UCIe: flits of 256 B that hold 240, or none."""
        if "max_payload_bytes" in self.link:
            framing = sum(self.link[f"{part}_bytes"] for part in ("preamble", "header", "stream_header", "fcs", "gap"))
            return nbytes + up(nbytes, self.link["max_payload_bytes"]) * int(framing)
        flit = self.link["flit_bytes"]
        if flit is None:
            return nbytes
        return int(up(nbytes, flit - self.link["flit_overhead_bytes"]) * flit)

    def message(self, leg: str, back: str, nbytes: int) -> int:
        """From a send that does not wait to the end of the recv that waits for it: a cycle of PE_IPCQ, the way, the
        slot's write; then a cycle of PE_IPCQ, and the credit's way back, for which recv blocks."""
        there = self.ipcq + self.transfer(leg, nbytes) + self.tcm_write
        return there + self.ipcq + self.transfer(back, self.credit_bytes)

    def load(self, nbytes: int) -> int:
        """The command to the HBM, its read latency, the data back."""
        return self.transfer(TO_HBM, self.command) + self.hbm_read + self.transfer(FROM_HBM, nbytes)

    def store(self, nbytes: int) -> int:
        """The data to the HBM, its write latency, the acknowledgement back."""
        return self.transfer(TO_HBM, nbytes) + self.hbm_write + self.transfer(FROM_HBM, self.ack)

    def add(self, nbytes: int) -> int:
        return ps(self.math.overhead_ns) + drain(nbytes, self.math.bandwidth_GBps)

    def leaving_pe(self, nbytes: int) -> int:
        """How long the edge out of a PE is taken by a train."""
        return max(self.on_chip(nbytes, "p"), self.on_chip(nbytes, "r"))


def ps(nanoseconds: float) -> int:
    return round(nanoseconds * 1000)


def up(count: int, per: int) -> int:
    return -(-count // per)


def drain(nbytes: int, gbytes_per_s: float) -> int:
    """At most one decimal of a gigabyte a second."""
    return up(nbytes * 10_000, round(gbytes_per_s * 10))


# --- the all-reduce -------------------------------------------------------------------------------------------


class Sum(NamedTuple):
    """When the root has its SIP's sum, when the sum of all SIPs is in its HBM, when each cube (x, y) is done."""

    reduced: int
    exchanged: int
    ends: dict[tuple[int, int], int]


def all_reduce(costs: Costs, n: int) -> Sum:
    """Four SIPs in a 2x2 torus, 4x4 cubes each, ``n`` bytes a cube; all SIPs do the same at the same times."""
    # Every cube loads its shard at 0. Each row then adds up W to E, three hops, all rows at once; a hop is a message
    # and then the addition. The last column adds up N to S, three hops. The root has the SIP's sum.
    reduced = costs.load(n)
    reduced += 3 * (costs.message(EAST, WEST, n) + costs.add(n))
    reduced += 3 * (costs.message(SOUTH, NORTH, n) + costs.add(n))
    # The root keeps it in its shard and takes it up again; the PE has nothing else to do, so neither waits.
    exchanged = reduced + costs.store(n) + costs.load(n)
    # Rings of two: one round along the row of SIPs, one along the column. The SIPs send at the same time, each over
    # links and edges of its own: what leaves a SIP by E or S meets nothing that comes in by W or N.
    exchanged += costs.message(ACROSS_EAST, ACROSS_WEST, n) + costs.add(n)
    exchanged += costs.message(ACROSS_SOUTH, ACROSS_NORTH, n) + costs.add(n)
    exchanged += costs.store(n)
    return Sum(reduced, exchanged, broadcast_ends(costs, n, exchanged + costs.load(n)))


def broadcast_ends(costs: Costs, n: int, begins: int) -> dict[tuple[int, int], int]:
    """From the root up the last column, and from there along the rows to the W.

    A cube that has received sends on, N before W, and then stores, all in one step: sends do not block. All three
    leave by the one edge out of its PE, the store by vc_compute and the sends by vc_comm. A send passes PE_IPCQ
    first, so the store's head reaches that edge earlier, by a cycle of PE_IPCQ; then store and send share it. They
    are equally long, so the send's last byte goes last, two ``out`` after the store's head came: as if it had waited
    for the store. The send W waits for the send N; in a cube without a send N it takes its place. The root stores
    nothing here: its send N goes at once and its send W waits for one ``out``.
    """
    out = costs.leaving_pe(n)
    first, second = out - costs.ipcq, 2 * out - costs.ipcq
    north, west = costs.message(NORTH, SOUTH, n), costs.message(WEST, EAST, n)
    received = {(3, 3): begins}
    for y in (2, 1, 0):
        received[3, y] = received[3, y + 1] + (0 if y == 2 else first) + north
    for y in range(4):
        received[2, y] = received[3, y] + {3: out, 2: second, 1: second, 0: first}[y] + west
        received[1, y] = received[2, y] + first + west
        received[0, y] = received[1, y] + first + west
    # A store beside a send has the edge for a cycle of PE_IPCQ, then half of it. The first column sends nothing.
    beside = out - costs.ipcq
    stored = {(x, y): costs.store(n) + (beside if x > 0 else 0) for x, y in received}
    return {cube: at + (0 if cube == (3, 3) else stored[cube]) for cube, at in received.items()}


OTHER_COSTS = {
    "cube.noc.router_pitch_mm": 1.7,
    "cube.noc.pe_distance_mm": 0.3,
    "cube.noc.hbm_distance_mm": 0.7,
    "cube.noc.ucie_distance_mm": 0.4,
    "sip.cube_gap_mm": 1.1,
    "sip.port_distance_mm": 1.9,
    "router.overhead_ns": 1.2,
    "ucie_port.fdi_to_fdi_ns": 4.6,
    "io_port.overhead_ns": 3.1,
    "hbm.overhead_ns": 0.9,
    "pe_dma.overhead_ns": 1.4,
    "pe_ipcq.overhead_ns": 2.6,
    "pe_math.overhead_ns": 0.8,
    "hbm.read_latency_ns": 77,
    "tcm.write_latency_ns": 1.6,
    "pe_dma.ack_bytes": 24,
    "pe_dma.command_bytes": 40,
    "links.ucie.params.flit_bytes": 256,
    "defaults.vc_chunk_size": 384,
    "defaults.vc_chunk_header_bytes": 24,
}
"""Each part another, so that none can stand in for its neighbour."""


@pytest.mark.ideal
@pytest.mark.parametrize("other", [{}, OTHER_COSTS], ids=["default costs", "other costs"])
@pytest.mark.parametrize("link", ["ethernet_100g", "ucie"])
def test_the_all_reduce_takes_the_sum_of_its_legs(link: str, other: dict[str, Any]) -> None:
    """64 KiB on four SIPs: the time of the run, and the end of every cube of every SIP, to the picosecond."""
    costs = [word for key, value in other.items() for word in ("--set", f"{key}={value}")]
    done = run("--sips", 4, "--topology", "torus_2d", "--link", link, *costs, "--n-elem", N_ELEM, keep_oplog=True)
    expected = all_reduce(Costs(config(other), link), SLOT_BYTES)
    for member in done.members:
        writes = records_of(member.chip.sip, "dma_write")
        partial, total = [record for record in writes if record.cube == 15]
        assert (partial.start_ps, total.end_ps) == (expected.reduced, expected.exchanged)
        others = {(r.cube % 4, r.cube // 4): r.end_ps for r in writes if r.cube != 15}
        assert others == {cube: end for cube, end in expected.ends.items() if cube != (3, 3)}
    (timed,) = done.outcome.ranks[0].runs
    assert timed.wrong == 0
    ((start_ps, end_ps),) = timed.spans_ps
    assert end_ps - start_ps == max(expected.ends.values()) == expected.ends[0, 0]


# --- one message ----------------------------------------------------------------------------------------------

ON_CHIP = {"router.bandwidth_GBps": 5, "ucie_port.bandwidth_GBps": 3}
FREE = {f"{part}.overhead_ns": 0 for part in ("router", "io_port", "pe_dma", "pe_ipcq", "hbm", "sram")} | {
    "ucie_port.fdi_to_fdi_ns": 0,
    "wire.ns_per_mm": 0,
}
BOTTLENECKS = {
    "the link": {"system.sips.link": "ethernet_100g"},
    "the chip behind Ethernet": {"system.sips.link": "ethernet_100g", **ON_CHIP},
    "the link by its flits": {"system.sips.link": "ucie"},
    "the chip behind UCIe": {"system.sips.link": "ucie", **ON_CHIP},
    "a chip that costs nothing": {"system.sips.link": "ethernet_400g", **FREE},
    "a slow UCIe": {"system.sips.link": "ucie", "links.ucie.params.bandwidth_GBps": 7},
    "the chip by its headers": {
        **{"system.sips.link": "ucie", "defaults.vc_chunk_size": 64, "defaults.vc_chunk_header_bytes": 16},
    },
}
MESH: dict[str, Any] = {"cubes": (2, 2), "pes": 8}
"""SIPs of 2x2 cubes, whose E and W ports sit on the lower row, cubes 3 and 2."""


def line(sips: int) -> dict[str, Any]:
    """SIPs joined E to W, one behind the other."""
    cables = [{"a": i, "a_port": "E", "b": i + 1, "b_port": "W"} for i in range(sips - 1)]
    return {"system.sips.topology": "custom", "system.sips.custom_links": cables}


@pytest.mark.ideal
@pytest.mark.parametrize(("bottleneck", "n_elem", "last_sip"), crossed(BOTTLENECKS, [1, 121, 751, 2048], [3, 1, 2]))
def test_a_message_between_sips_takes_what_one_fabric_would(bottleneck: str, n_elem: int, last_sip: int) -> None:
    """From the sender's HBM to the next SIP, and through one and two that forward it: the fetch's command, the HBM's
    read and the way to the PE, and then what a message from the PE takes, with the narrowest part's drain once.
    """
    src, dst, settings = (0, 2, 0), (last_sip, 1, 0), {**line(last_sip + 1), **BOTTLENECKS[bottleneck]}
    kernels = {
        src: lambda at, tl: tl.send("there", src_addr=at, shape=n_elem, dtype="f16"),
        dst: lambda tl: tl.recv("back", n_elem, "f16"),
    }
    wires, data = {(src, "there"): dst, (dst, "back"): src}, {src: [1] * n_elem}
    done = simulate(kernels, wires=wires, data=data, dtype="f16", sips=last_sip + 1, set=settings, **MESH)
    costs = Costs(config(BOTTLENECKS[bottleneck]), settings["system.sips.link"])
    fetch_ps = costs.transfer(TO_HBM, costs.command) + costs.hbm_read
    fetch_ps += costs.transfer(FROM_HBM, 0) - ps(costs.nodes["p"].overhead_ns)
    took_ps = done.op("ipcq.recv").end_ps - done.op("ipcq.send").start_ps
    assert took_ps == fetch_ps + expect_ps(src, dst, 2 * n_elem, sips=last_sip + 1, set=settings, **MESH)


@pytest.mark.ideal
def test_end_to_end_by_hand() -> None:
    """The price itself, which the test above relies on: from cube 2 by cube 3 out by E; in by W at cube 2 of the next
    SIP and by its cube 3 out by E; in by W at cube 2 of the last, E to 3, N to 1.
    """
    settings = {**line(3), "system.sips.link": "ethernet_100g"}
    costs = Costs(config({}), "ethernet_100g")
    out = "pe r0 r1 r2 r3 r7 uE  uW r4 r5 r6 r7 ioE"
    through = "ioW r4 r5 r6 r7 uE  uW r4 r5 r6 r7 ioE"
    into = "ioW r4 r5 r6 r7 uE  uW r4 r5 r6 r2 uN  uS r6 r5 r4 r0 pe"
    told = expect_ps((0, 2, 0), (2, 1, 0), 4096, parts=["data"], sips=3, set=settings, **MESH)
    assert told == costs.transfer(f"{out} {through} {into}", 4096) + costs.tcm_write
