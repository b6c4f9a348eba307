"""Messages of mixed sizes from all PEs of a cube arrive in the order of their sends, whatever memory rings are in."""

import random
from functools import partial

import pytest
from hardware import ONE_SIP, Bench, WiredPlan, config, tcm

from sipsim.chips.ahbm.collectives.queue_pairs import PePlace
from sipsim.chips.ahbm.tl.language import TL

PES = 8
PLACES = [PePlace(0, cube, pe) for cube in range(2) for pe in range(PES)]
PAIRS = {pe: {"E": PES + pe} for pe in range(PES)} | {PES + pe: {"W": pe} for pe in range(PES)}


@pytest.mark.parametrize("memory", ["tcm", "sram", "hbm"])
@pytest.mark.parametrize(("mix", "seed"), [((4, 16, 16, 64, 256, 1024), 2), ((4, 16, 1024, 1024, 16), 1)])
def test_messages_of_mixed_sizes_arrive_in_order(memory: str, mix: tuple[int, ...], seed: int) -> None:
    """A small one behind a large one that waits for the ports of the TCM leaves behind it (I2); one whose write an
    HBM controller takes in sooner arrives with the one before it.
    """
    settings = {**ONE_SIP, "defaults.n_slots": 16, "defaults.buffer_kind": memory}
    bench = Bench(WiredPlan(config(settings), PLACES, PAIRS))
    rng = random.Random(seed)
    sizes = [[rng.choice(mix) for _ in range(40)] for _ in range(PES)]

    def send(pe: int, tl: TL) -> None:
        for count in sizes[pe]:
            tl.send("E", src_addr=tcm(0, 0, pe), shape=count, dtype="i32")

    def receive(pe: int, tl: TL) -> None:
        for count in sizes[pe]:
            tl.recv("W", shape=count, dtype="i32")

    for pe in range(PES):
        bench.kernel(0, pe, partial(send, pe))
        bench.kernel(1, pe, partial(receive, pe))
    bench.run()
    assert [bench.queue(1, pe, "W").my_tail for pe in range(PES)] == [40] * PES
