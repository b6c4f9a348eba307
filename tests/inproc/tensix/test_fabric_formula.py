"""A fabric without contention against arithmetic: the study's formula, with terms from the chip's parameters.

Wire and software overlap wholly (an infinite exponent): the slower one sets the pace.
"""

import dataclasses

import msgspec
import pytest
from arithmetic_fabric import WORMHOLE, Formula

from launcher.bench.base import BENCHES
from launcher.bench.benches.fabric import FabricCase, LatencyCase
from launcher.bench.machine import Machine
from sipsim.chips.api.chip import CHIPS
from sipsim.chips.tensix.params import ChipParams

NEAR = 0.03
LINE, PAYLOAD = "2025-11", 2816
PARAMS = msgspec.convert(CHIPS.get("wormhole").params_of({}), ChipParams)
COSTS, FABRIC = PARAMS.fabric.costs, PARAMS.fabric
CHANNELS = 3
"""Of a router on a line: workers, receiver, pass-through."""
TURN_NS = COSTS.round_ns + CHANNELS * COSTS.look_ns


ROOM = Machine(settings=(f"system.chip_params.fabric.revisions.{LINE}.slots=[{{sender: 16, receiver: 16}}]",))
"""Slots enough for a worker's credits to come back: with 8, packets of 1 and 2 KiB wait for these."""
SHORT_TURN = 10
QUICK = Machine(settings=tuple(f"system.chip_params.fabric.costs.{key}" for key in ("round_ns=4", "look_ns=2")))
"""Loops in whose turns no packet waits for long: with longer ones it waits from nothing to a turn, not half of one."""


def of_period() -> Formula:
    """A router's packet: a turn of its loop, and what a sender or a receiver channel does about it, at the two ends of
    a link; the slower one sets the pace.
    """
    sender_ns, receiver_ns = COSTS.send_ns + COSTS.sent_ns + COSTS.credit_ns, COSTS.forward_ns + COSTS.completion_ns
    return dataclasses.replace(WORMHOLE, service_ns=TURN_NS + max(sender_ns, receiver_ns))


def hop_ns(nbytes: int) -> float:
    """From a router to the next: half a turn at each of two loops, a look, the commands, and the copies on the way."""
    size = nbytes + WORMHOLE.header_bytes
    loops = SHORT_TURN + 2 * 2 + COSTS.forward_ns + COSTS.send_ns
    stores = 2 * min(size, FABRIC.copy_bytes) / (PARAMS.ethernet.copy_GBps or 1)
    noc = size / PARAMS.noc.flit_bytes + NOC_HOPS * PARAMS.noc.hop_cycles + 2 * PARAMS.noc.niu_cycles
    return WORMHOLE.latency_ns + loops + WORMHOLE.wire_ns(nbytes) + stores + noc


NOC_HOPS = 2
"""Between Ethernet channels 0 and 1, whose columns are neighbours around the torus."""


def period_ns(case: FabricCase, machine: Machine = ROOM) -> float:
    """From a packet over the busiest link to the next."""
    figure, *_ = BENCHES.get("fabric-bandwidth").measure(case, machine)
    return case.sizes[0] / figure.value


def one_stream(nbytes: int, chips: int) -> FabricCase:
    """From the first chip of a line to the last."""
    return FabricCase("", sizes=(nbytes,), pattern="line_one_forward", is_multicast=False, shape=(1, chips),
                      payload_bytes=PAYLOAD)  # fmt: skip


@pytest.mark.parametrize("nbytes", [16, 2048, 2816])
@pytest.mark.parametrize("chips", [2, 4])
def test_one_stream_has_the_pace_of_router_or_wire(nbytes: int, chips: int) -> None:
    case = one_stream(nbytes, chips)
    assert period_ns(case) == pytest.approx(of_period().period_ns(nbytes), rel=NEAR)


@pytest.mark.parametrize("nbytes", [16, 1024, 2048, 4096])
def test_a_hop_of_one_packet_is_the_sum_of_its_parts(nbytes: int) -> None:
    case = LatencyCase("round_trip_slope", hops=7, sizes=(nbytes,), chips=8, revision=LINE)
    (figure,) = BENCHES.get("fabric-latency").measure(case, QUICK)
    assert figure.value == pytest.approx(hop_ns(nbytes), rel=NEAR)


@pytest.mark.parametrize("revision", ["2025-03", LINE])
def test_a_packet_goes_once_around_a_ring(revision: str) -> None:
    """Past a dateline, too; what the worker and acknowledgements take is shared by the hops."""
    case = LatencyCase("once_around", sizes=(16,), topology="ring", chips=4, is_circuit=True, revision=revision)
    figures = {each.statistic: each.value for each in BENCHES.get("fabric-latency").measure(case, QUICK)}
    assert figures["mean_round_trip"] == 4 * figures["per_hop"]
    assert hop_ns(16) < figures["per_hop"] < 1.3 * hop_ns(16)


@pytest.mark.parametrize("nbytes", [1024, 2048])
def test_without_room_credits_set_the_pace(nbytes: int) -> None:
    """The difference from the formula names them."""
    expected_ns = of_period().period_ns(nbytes)
    little = f"system.chip_params.fabric.revisions.{LINE}.slots=[{{sender: 4, receiver: 4}}]"
    assert period_ns(one_stream(nbytes, 2), Machine(settings=(little,))) > (1 + NEAR) * expected_ns


def test_both_ways_are_not_the_sum_of_one_way_each() -> None:
    """One server a router: the formula for one stream does not hold, which names the contention."""
    both = dataclasses.replace(one_stream(16, 4), pattern="line_halves")
    assert period_ns(both) > (1 + 5 * NEAR) * of_period().period_ns(16)
