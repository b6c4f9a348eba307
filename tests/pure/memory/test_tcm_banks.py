"""Who shares a TCM: PE_MATH with messages that arrive and are taken, over two ports, or over banks.

A kernel adds while messages arrive in its rings. Times are summed by hand from the ports' bandwidths: an addition takes
its port for reads twice as long as that for writes, and one port for both three times.
"""

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hardware import Bench, hbm, pair_bench, tcm
from pair_times import run_pair

from sipsim.chips.ahbm.address import MIB, Block
from sipsim.chips.ahbm.tl.language import TL
from sipsim.core.errors import ConfigError
from sipsim.core.free_blocks import FreeBlocks
from sipsim.fabric.graph import Node

KIB = 1024
MESSAGES, MESSAGE_BYTES = 8, 16 * KIB
ADDITIONS, OPERAND_BYTES = 6, 128 * KIB
ALONE_PS = 2_049_000
"""An addition of 128 KiB at PE_MATH's 64 GB/s, and 1 ns to start."""
STREAM_PS = MESSAGES * MESSAGE_BYTES * 1000 // 64


def bench_with(**params: Any) -> Bench:
    queues = {"defaults.n_slots": MESSAGES, "defaults.slot_size": MESSAGE_BYTES, "pe_scheduler.queue_depth": 16}
    return pair_bench({**queues, **{f"tcm.params.{key}": value for key, value in params.items()}})


def additions_ps(streams: bool, **params: Any) -> list[int]:
    """How long each addition took; ``streams``: while all messages came, before one of them was taken."""
    bench = bench_with(**params)

    def sender(tl: TL) -> None:
        message = tl.zeros(MESSAGE_BYTES, "i8")
        tl.delay(6000)
        for _ in range(MESSAGES if streams else 0):
            tl.send("E", message)

    def receiver(tl: TL) -> None:
        x, y = tl.zeros(OPERAND_BYTES, "i8"), tl.zeros(OPERAND_BYTES, "i8")
        for _ in range(ADDITIONS):
            x + y
        for _ in range(MESSAGES if streams else 0):
            tl.recv("W", MESSAGE_BYTES, "i8")

    run_pair(bench, sender, receiver)
    return [each.end_ps - each.start_ps for each in bench.records("math")]


@pytest.mark.parametrize("ports", ["read_and_write", "shared"])
def test_rings_in_a_bank_of_their_own_disturb_no_operation(ports: str) -> None:
    params = {"banks": 4, "bandwidth_GBps": 48, "ports": ports}
    assert additions_ps(True, **params) == additions_ps(False, **params)


def test_interleaved_rings_take_what_the_banks_have_left() -> None:
    """Three banks of 64 GB/s, a port each: an addition takes all 192 GB/s. While messages come at 64 GB/s, the ports
    are divided, so it goes at two thirds of its rate."""
    params = {"banks": 3, "bandwidth_GBps": 64, "ports": "shared", "ipcq_bank": "interleaved"}
    assert additions_ps(False, **params) == [ALONE_PS] * ADDITIONS
    late_ps = sum(additions_ps(True, **params)) - ADDITIONS * ALONE_PS
    assert late_ps == pytest.approx(STREAM_PS / 3, rel=1e-3)


def test_without_banks_messages_share_the_port_for_writes() -> None:
    """At 96 GB/s a port: reads of two operands go at 96, so an addition writes 48, and messages the other 48. With one
    port for both an addition has all 96 alone, and half of it beside messages."""
    slow_ps = 1000 + 2 * OPERAND_BYTES * 1000 // 96
    assert additions_ps(False, bandwidth_GBps=96) == pytest.approx([slow_ps] * ADDITIONS, abs=1)
    assert sum(additions_ps(True, bandwidth_GBps=96)) == pytest.approx(ADDITIONS * slow_ps, abs=ADDITIONS)
    alone_ps, beside_ps = (additions_ps(streams, bandwidth_GBps=96, ports="shared") for streams in (False, True))
    assert alone_ps == pytest.approx([1000 + 3 * OPERAND_BYTES * 1000 // 96] * ADDITIONS, abs=1)
    stream_ps = MESSAGES * MESSAGE_BYTES * 1000 // 48
    assert sum(beside_ps) - sum(alone_ps) == pytest.approx(stream_ps / 2, rel=0.01)


BESIDE = {
    "loads of its own TCM": lambda tl, _: tl.load_async(tcm(0, MIB), 64 * KIB, "i8"),
    "loads of HBM": lambda tl, _: tl.load_async(hbm(0, 0), 64 * KIB, "i8"),
    "stores to HBM": lambda tl, large: tl.store_async(hbm(0, 0), large),
    "nothing": None,
}


def beside_ps(what: str, **params: Any) -> list[tuple[str, int, int]]:
    """When two additions of 4 KiB ran beside a transfer of 64 KiB."""
    bench, other = bench_with(**params), BESIDE[what]

    def kernel(tl: TL) -> None:
        x, y, large = tl.zeros(4 * KIB, "i8"), tl.zeros(4 * KIB, "i8"), tl.zeros(64 * KIB, "i8")
        moved = None if other is None else other(tl, large)
        tl.delay(400)
        x + y
        x + y
        if moved is not None:
            tl.wait(moved)

    run_pair(bench, kernel)
    kinds = "math", "dma_read", "dma_write"
    return [(kind, each.start_ps, each.end_ps) for kind in kinds for each in bench.records(kind)]


@pytest.mark.parametrize("ports", ["read_and_write", "shared"])
@pytest.mark.parametrize("what", BESIDE)
def test_one_bank_for_all_but_the_rings_is_a_memory_with_its_ports(what: str, ports: str) -> None:
    params = {"bandwidth_GBps": 64, "ports": ports}
    assert beside_ps(what, banks=2, **params) == beside_ps(what, **params)


def test_what_passes_a_port_has_its_share_of_it() -> None:
    """An addition reads at 128 GB/s, which is all of the port, and at 64 beside a load of the same TCM."""
    alone, beside = (
        [end_ps - start_ps for kind, start_ps, end_ps in beside_ps(what) if kind == "math"]
        for what in ("nothing", "loads of its own TCM")
    )
    assert (alone[0], beside[0]) == (65_000, 129_000)


@pytest.mark.ideal
@pytest.mark.parametrize(("op", "third"), [("add", False), ("where", True)])
def test_an_operation_takes_the_longer_of_its_unit_and_the_ports(op: str, third: bool) -> None:
    """Two operands of f16 are as much as the port for reads gives; ``where`` reads a mask of i8 beside them."""
    bench = pair_bench({"tcm.kind": "tcm_ports", "tcm.params": {"bandwidth_GBps": 128}})

    def kernel(tl: TL) -> None:
        x = tl.zeros(4096, "f16")
        if third:
            tl.where(tl.zeros(4096, "i8"), x, x)
        else:
            x + x

    run_pair(bench, kernel)
    [record] = [each for each in bench.records("math") if each.fields["op"] == op]
    read_bytes = 16 * KIB + 4 * KIB * third
    assert record.end_ps - record.start_ps == 1000 + max(8 * KIB * 1000 // 64, read_bytes * 1000 // 128)


def test_messages_that_are_used_in_place_are_read_in_their_bank() -> None:
    """Once: what a command has read lies with the kernel's other values."""
    bench = pair_bench({"defaults.latch": "in_place", "tcm.params.banks": 4, "pe_scheduler.queue_depth": 16})

    def sender(tl: TL) -> None:
        for _ in range(3):
            tl.send("E", tl.zeros(KIB, "i8"))

    def receiver(tl: TL) -> None:
        added, stored, sent = (tl.recv("W", KIB, "i8") for _ in range(3))
        added + added
        added + added
        tl.store(hbm(1, 0), stored)
        tl.store(hbm(1, 4 * KIB), stored)
        tl.send("W", sent)

    run_pair(bench, sender, receiver)
    use = {edge.memory: used for edge, used in bench.sip.fabric.use().items() if edge.src == Node("pe", 1, 0)}
    assert use["read port of the rings' bank 3"].nbytes == 4 * KIB


def test_handles_lie_in_the_first_gap_that_holds_them() -> None:
    bench, seen = bench_with(banks=2), list[int]()

    def kernel(tl: TL) -> None:
        first, second, third = (tl.zeros(KIB * n, "i8") for n in (1, 2, 1))
        seen.extend(each.tcm_pa - tcm(0, 0) for each in (first, second, third))
        tl.release(second)
        seen.extend(tl.zeros(KIB * n, "i8").tcm_pa - tcm(0, 0) for n in (3, 2))

    run_pair(bench, kernel)
    assert seen == [0, KIB, 3 * KIB, 4 * KIB, KIB]


def test_a_handle_that_no_gap_holds_lies_in_several() -> None:
    """What fits is decided by sizes, with banks as without."""
    draw, free, taken = random.Random(7), FreeBlocks(64 * KIB), list[list[tuple[int, int]]]()
    for _ in range(2000):
        left = sum(free.sizes())
        if taken and (left < 4 * KIB or draw.random() < 0.5):
            for piece in taken.pop(draw.randrange(len(taken))):
                free.free(*piece)
        else:
            pieces = free.allocate_pieces(64 * draw.randint(1, left // 64 // 4))
            taken.append(pieces)
        spans = sorted(piece for pieces in taken for piece in pieces)
        assert all(at + size <= after for (at, size), (after, _) in pairwise(spans))
        assert sum(size for _, size in spans) + sum(free.sizes()) == 64 * KIB


@pytest.mark.parametrize("is_own", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_an_access_meets_the_banks_of_its_lines(is_own: bool, seed: int) -> None:
    """Line by line: all but the rings go round the banks before the last one, which is the rings' own."""
    draw, banks = random.Random(seed), 4
    bench = bench_with(banks=banks, ipcq_bank="own" if is_own else "interleaved")
    port = bench.sip.memory_ports.at("tcm", Node("pe", 0, 0))
    offset, nbytes = draw.randrange(16 * MIB - 4 * KIB), draw.randint(1, 1000)
    is_ring = 14 * MIB <= offset < 15 * MIB
    met = dict.fromkeys(range(banks), 0)
    for line in range(offset // 64, (offset + nbytes - 1) // 64 + 1):
        met[banks - 1 if is_own and is_ring else line % (banks - is_own)] += 64
    loads = dict(port.loads(Block.piece(tcm(0, offset), nbytes), is_read=True))
    named = {f"read port of bank {bank}": taken for bank, taken in met.items() if taken}
    every = [name for name in loads if name not in named]
    assert len(every) == 1
    assert loads[every[0]] == sum(met.values())
    assert {name: taken for name, taken in loads.items() if name in named} in (named, {})
    assert bool(loads.keys() & named.keys()) == (len(named) < (1 if is_own and is_ring else banks - is_own))


def test_banks_move_no_value() -> None:
    results = []
    for params in ({}, {"banks": 2}, {"banks": 3, "ipcq_bank": "interleaved"}):
        bench = bench_with(**params)

        def sender(tl: TL) -> None:
            tl.send("E", tl.arange(0, 4096, "i32"))

        def receiver(tl: TL) -> None:
            got = tl.recv("W", 4096, "i32")
            tl.store(tcm(1, 0), got[:128] + got[128:256])

        run_pair(bench, sender, receiver)
        results.append(bench.sip.memory.read(tcm(1, 0), 512))
    assert results == [np.arange(128, 384, 2, dtype=np.int32).tobytes()] * 3


@pytest.mark.parametrize(
    ("params", "key"),
    [({"ipcq_bank": "interleaved"}, "ipcq_bank"), ({"banks": 1}, "banks"), ({"banks": 0}, "banks")],
)
def test_banks_that_cannot_be_are_refused(params: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        bench_with(**params)
    assert f"tcm.params.{key}" in str(refused.value)
