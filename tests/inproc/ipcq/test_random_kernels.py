"""Traffic of mixed sizes between cubes and SIPs: every message arrives, in order, with its own bytes."""

import random
from functools import partial
from itertools import product
from typing import Any

import pytest
from sweeps import batches

from ahbm_sim.testing import simulate

PLACES = list(product(range(2), range(4), (0,)))
OFFSETS = (1, 2, 3, -1, -2, -3)
"""In the order of ranks, from a PE to those that it sends to and receives from."""
MESSAGES, AHEAD = 12, 4
LENGTHS = (8, 16, 256, 1024, 2048)
MACHINES: dict[str, tuple[dict[str, object], dict[str, str]]] = {
    "as configured": ({}, {}),
    "slow DMA": ({"pe_dma.bandwidth_GBps": 16}, {}),
    "slow bridges": ({"ucie_port.bandwidth_GBps": 8}, {}),
    "Ethernet": ({}, {"link": "ethernet_100g"}),
}


def exchange(me: int, seed: int, mine: Any, tl: Any) -> None:
    """Messages to and from each peer, ``AHEAD`` of which are sent before the first receive, with loads in between."""
    draw, pause, size = random.Random(seed), random.Random(seed * 1000 + me), len(PLACES)
    pairs = [(a, (a + k) % size) for a in range(size) for k in OFFSETS]
    lengths = {pair: [draw.choice(LENGTHS) for _ in range(MESSAGES)] for pair in pairs}
    held = {length: tl.load(mine, length) for length in LENGTHS}
    for i in range(MESSAGES + AHEAD):
        for peer in [(me + k) % size for k in OFFSETS if i < MESSAGES]:
            if pause.random() < 0.5:
                tl.load(mine, pause.choice((8, 256, 2048)))
            tl.send(f"to{peer}", held[lengths[me, peer][i]])
        for peer in [(me + k) % size for k in OFFSETS if i >= AHEAD]:
            got = tl.recv(f"to{peer}", lengths[peer, me][i - AHEAD], "i32").array
            assert got[0] == got[-1] == peer + 1, (peer, got[0])


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("seed", batches(3, 1))
def test_every_message_arrives_in_order(machine: str, seed: int) -> None:
    settings, flags = MACHINES[machine]
    done = simulate(
        {place: partial(exchange, me, seed) for me, place in enumerate(PLACES)},
        wires={
            (place, f"to{(me + k) % len(PLACES)}"): PLACES[(me + k) % len(PLACES)]
            for me, place in enumerate(PLACES)
            for k in OFFSETS
        },
        data={place: [me + 1] * 2048 for me, place in enumerate(PLACES)},
        dtype="i32",
        sips=2,
        cubes=(2, 2),
        set={"defaults.n_slots": 8, "defaults.slot_size": 8192, **settings},
        **flags,
    )
    assert done.error is None, done.error


@pytest.mark.parametrize("gigabytes_per_s", [4, 16, 40, 64])
def test_nothing_overtakes_on_a_route(gigabytes_per_s: int) -> None:
    """Cubes 0 and 1 send to cube 3 over one bridge, cube 0 small and large messages in turn, all fed slowly."""
    west, north, both = (0, 0, 0), (0, 1, 0), (0, 3, 0)

    def sender(first: int, ptr: Any, tl: Any) -> None:
        large, small = tl.load(ptr, 2048), tl.load(ptr, 16)
        for _ in range(3):
            tl.send("to", small if first == 16 else large)
            tl.send("to", large)

    def receiver(tl: Any) -> None:
        for way, first in (("W", 16), ("N", 2048)):
            for count in (first, 2048) * 3:
                tl.recv(way, count, "f16")

    done = simulate(
        {west: partial(sender, 16), north: partial(sender, 2048), both: receiver},
        wires={(west, "to"): both, (north, "to"): both, (both, "W"): west, (both, "N"): north},
        data={place: [0] * 2048 for place in (west, north)},
        dtype="f16",
        cubes=(4, 1),
        set={"pe_dma.bandwidth_GBps": gigabytes_per_s},
    )
    assert done.error is None, done.error
