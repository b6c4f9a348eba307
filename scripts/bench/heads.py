"""Ways in which a receiver learns of a message and a sender of a free slot, compared (ADR-0023 D9, D23).

A row is one message between two PEs of the default machine, simulated. ``pointer`` is the time from ``tl.send`` until
the receiver's pointer moves, ``pair`` that until ``tl.recv`` returns, each beside its factor to the first way. The last
columns are bytes on all edges and links together, with their framing: data, acknowledgement, doorbell, credit. A credit
on a wire of its own uses no edge. A credit that travels in a message the other way adds no bytes, but here is no such
message, and it leaves alone. The bytes of the columns add up to those that the simulation counts.
"""

import argparse
from typing import Any

from launcher.options import parse
from launcher.probe.simulate import ProbeRun
from launcher.run.prepare import prepare
from sipsim.chips.ahbm.address import PePlace
from sipsim.chips.ahbm.costs.prices import Path, sum_ps
from sipsim.chips.ahbm.costs.probe import Probe, ProbePlan
from sipsim.chips.ahbm.ipcq.credits import FAST_PATH
from sipsim.chips.ahbm.ipcq.messages import HEADER_BYTES, WireFormat
from sipsim.core.units import ps_to_ns
from sipsim.fabric.graph import Node

from .kit import Flag, Table

WAYS = {
    "head in message, own wire": [],
    "head in message, polled": ["--set", "defaults.backpressure=poll"],
    "credit over fabric": ["--set", "defaults.credit_return_mode=fabric"],
    "credit in message": ["--set", "defaults.credit_return_mode=piggyback"],
    "doorbell, sleep": ["--variant", "doorbell"],
    "doorbell, poll": ["--variant", "doorbell", "--set", "defaults.backpressure=poll"],
}
"""Flags of each way. The first is the default."""
PAIRS = {
    "in a cube": (PePlace(0, 0, 0), PePlace(0, 0, 1)),
    "cube to cube": (PePlace(0, 0, 0), PePlace(0, 1, 0)),
    "SIP to SIP": (PePlace(0, 0, 0), PePlace(1, 0, 0)),
}
FLAGS = {"sizes": Flag((64, 4096), (64,), "bytes of the message")}


def bytes_on(path: Path, nbytes: int) -> int:
    """Bytes on all edges of a path."""
    return sum(edge.wire_bytes(nbytes) for _, route in path for edge in route.edges)


def edge_bytes(plan: ProbePlan, probe: Probe, nbytes: int) -> dict[str, int]:
    """Bytes of one message by their purpose."""
    pair, prices, knobs = plan.neighbours, plan.prices, plan.ipcq
    src, dst = (Node("pe", place.cube, place.pe) for place in (pair.src, pair.dst))
    back = prices.path(pair.dst.sip, dst, pair.src.sip, src, pair.reverse)
    forth = prices.path(pair.src.sip, src, pair.dst.sip, dst, pair.direction)
    answer = prices.answer(pair.src, pair.dst, knobs.buffer_kind, pair.reverse)
    rings = plan.ipcq.has_doorbells
    return {
        "data": bytes_on(probe.forward, WireFormat(knobs).message_bytes(nbytes)),
        "acknowledgement": bytes_on(answer, plan.resolved.components.pe_dma.ack_bytes) if rings else 0,
        "doorbell": bytes_on(forth, HEADER_BYTES) if rings else 0,
        "credit": 0 if probe.credit_mode == FAST_PATH else bytes_on(back, knobs.ipcq_credit_size_bytes),
    }


def measure(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each pair of PEs, size and way; two SIPs are joined by UCIe."""
    table = Table(
        *("from, to:<12", "bytes:5d", "way:<25", "pointer ns:10.3f", "x:5.2f", "pair ns:9.3f", "x:5.2f"),
        *("data:6d", "ack:5d", "bell:5d", "credit:6d"),
    )
    rows: list[dict[str, Any]] = []
    for pair, ends in PAIRS.items():
        for nbytes in chosen.sizes:
            first = len(rows)
            for way, flags in WAYS.items():
                plan = ProbePlan(prepare(parse(flags)).plan.resolved, *ends)
                probe, ran = Probe(plan, nbytes), ProbeRun(plan, [nbytes])
                row = {
                    **{"pair": pair, "bytes": nbytes, "way": way},
                    "pointer_ns": ps_to_ns(sum_ps(probe.arrival())),
                    "pair_ns": ps_to_ns(ran.received_ps[0]),
                    "sum_ns": ps_to_ns(sum_ps(probe.pair())),
                    "edge_bytes": edge_bytes(plan, probe, nbytes),
                    "simulated_bytes": ran.edge_bytes,
                }
                rows.append(row)
                times = [word for key in ("pointer_ns", "pair_ns") for word in (row[key], row[key] / rows[first][key])]
                table.row(pair, nbytes, way, *times, *row["edge_bytes"].values())
    return rows


def holds(document: list[dict[str, Any]]) -> bool:
    """Whether each sum is that of the simulation: the time, and the bytes."""
    return all(
        row["pair_ns"] == row["sum_ns"] and sum(row["edge_bytes"].values()) == row["simulated_bytes"]
        for row in document
    )
