"""Blocks of rows in memories: bytes gathered and scattered, and times summed by hand."""

import pytest
from hardware import Bench, WiredPlan, config

from sipsim.chips.ahbm.address import Block, PhysAddr
from sipsim.core.errors import MemoryAccessError
from sipsim.fabric.graph import Node

MACHINE = {
    "system.sips.count": 1,
    "sip.cube_mesh": {"w": 1, "h": 1},
    "wire.ns_per_mm": 0,
    "pe_dma.overhead_ns": 3,
    "router.overhead_ns": 5,
    "hbm.overhead_ns": 17,
    "sram.overhead_ns": 17,
    "hbm.read_latency_ns": 40,
    "hbm.write_latency_ns": 20,
    "sram.read_latency_ns": 6,
    "sram.write_latency_ns": 4,
    "tcm.read_latency_ns": 1,
    "tcm.write_latency_ns": 1,
}
WAY, SHORT = 25_000, 25_250
"""From PE 0 to a memory of its cube: 3 + 5 + 17 ns, and 0.25 ns for 16 B at 64 GB/s."""
FAST: dict[str, object] = {}
BUS = {"hbm.kind": "latency_bandwidth", "hbm.params": {"bandwidth_GBps": 32}}
BANKS = {"sram.kind": "banked_sram", "sram.params": {"banks": 4, "interleave_bytes": 64, "bank_bandwidth_GBps": 16}}
"""A stretch of 64 B takes its bank 4 ns."""
DRAM = {"hbm.kind": "hbm_controller", "hbm.params": {"preset": "hbm3_6400", "refresh": "none"}}
UNHASHED = {**DRAM, "hbm.params": {"preset": "hbm3_6400", "refresh": "none", "address_hash": "none"}}
PORTS = {"tcm.kind": "tcm_ports", "tcm.params": {"bandwidth_GBps": 32}}
SLOW_PORTS = {"tcm.kind": "tcm_ports", "tcm.params": {"bandwidth_GBps": 8}}


def bench(settings: dict[str, object]) -> Bench:
    every = {**MACHINE, **settings}
    if settings in (DRAM, UNHASHED):
        del every["hbm.read_latency_ns"]
    return Bench(WiredPlan(config(every), [], {}))


def at(space: str, offset: int = 0) -> int:
    return PhysAddr(0, 0, 0, space, offset).encode()


def read_ps(made: Bench, block: Block) -> int:
    found: list[tuple[int, bytes]] = []
    made.sip.pe(0, 0).dma.read(block, lambda data: found.append((made.engine.now_ps, data)))
    made.run()
    [(end_ps, data)] = found
    assert len(data) == block.nbytes
    return end_ps


def write_ps(made: Bench, block: Block) -> int:
    ends: list[int] = []
    made.sip.pe(0, 0).dma.write(block, bytes(block.nbytes), lambda: ends.append(made.engine.now_ps))
    made.run()
    [end_ps] = ends
    return end_ps


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("settings", "space", "rows", "row_bytes", "pitch", "read_end_ps", "write_end_ps"),
    [
        # Fixed latencies know no addresses: 4 KiB take 64 ns on the way.
        (FAST, "hbm", 64, 64, 8192, SHORT + 40_000 + WAY + 64_000, WAY + 64_000 + 20_000 + SHORT),
        # 64 rows, each 2 ns on the bus.
        (BUS, "hbm", 64, 64, 8192, SHORT + 40_000 + WAY + 128_000, WAY + 128_000 + 20_000 + SHORT),
        # All in one bank, in four of them, and rows that are narrower than a stretch.
        (BANKS, "sram", 16, 64, 256, SHORT + 6_000 + WAY + 16 * 4_000, WAY + 16 * 4_000 + 4_000 + SHORT),
        (BANKS, "sram", 16, 64, 320, SHORT + 6_000 + WAY + 16_000, WAY + 16_000 + 4_000 + SHORT),
        (BANKS, "sram", 16, 16, 64, SHORT + 6_000 + WAY + 4 * 4_000, None),
        (BANKS, "sram", 16, 16, 16, SHORT + 6_000 + WAY + 4_000, None),
        # In its own memory, without the fabric: 4 rows of 2 ns.
        (PORTS, "tcm", 4, 64, 128, 1_000 + 4 * 2_000, 1_000 + 4 * 2_000),
        # In the TCM of the PE the bytes are one piece, as slow as its port; the first one leaves it after 1 ns.
        (
            {**SLOW_PORTS, **BUS},
            *("hbm", 64, 64, 8192),
            SHORT + 40_000 + WAY + 512_000 + 1_000,
            1_000 + WAY + 512_000 + 20_000 + SHORT,
        ),
    ],
    ids=["fixed", "bus", "one bank", "four banks", "narrow rows", "one piece", "own memory", "slow TCM"],
)
def test_a_read_and_a_write(
    settings: dict[str, object],
    space: str,
    rows: int,
    row_bytes: int,
    pitch: int,
    read_end_ps: int,
    write_end_ps: int | None,
) -> None:
    block = Block(at(space), rows, row_bytes, pitch)
    assert read_ps(bench(settings), block) == read_end_ps
    assert write_end_ps in (None, write_ps(bench(settings), block))


@pytest.mark.ideal
@pytest.mark.parametrize("settings", [FAST, BUS, BANKS, DRAM, PORTS], ids=["fixed", "bus", "banks", "dram", "tcm"])
@pytest.mark.parametrize("space", ["hbm", "sram", "tcm"])
@pytest.mark.parametrize(("rows", "row_bytes", "pitch"), [(1, 4096, 9999), (64, 64, 64)])
def test_a_block_in_one_piece_takes_what_the_piece_does(
    settings: dict[str, object], space: str, rows: int, row_bytes: int, pitch: int
) -> None:
    ends: list[int] = []
    made, other = bench(settings), bench(settings)
    made.sip.pe(0, 0).dma.read(Block.piece(at(space), 4096), lambda _: ends.append(made.engine.now_ps))
    made.run()
    other.sip.pe(0, 0).dma.write(Block.piece(at(space), 4096), bytes(4096), lambda: ends.append(other.engine.now_ps))
    other.run()
    block = Block(at(space), rows, row_bytes, pitch)
    assert [read_ps(bench(settings), block), write_ps(bench(settings), block)] == ends


@pytest.mark.ideal
def test_rows_of_many_dram_rows_take_longer_than_one_piece() -> None:
    """Without a hash of addresses their rows lie in few pseudo channels, and each needs another row of a bank."""
    scattered, whole = Block(at("hbm"), 64, 64, 8192), Block(at("hbm"), 64, 64, 64)
    made = bench(UNHASHED)
    port = made.sip.memory_ports.at("hbm", Node("hbm", 0, 0))
    port.waits = waits = []
    scattered_ps, whole_ps = read_ps(made, scattered), read_ps(bench(DRAM), whole)
    assert scattered_ps > whole_ps + 150_000
    [wait] = waits
    assert (wait.address, wait.nbytes, wait.is_read) == (at("hbm"), 4096, True)
    alone_ps = SHORT + port.least_read_ps + port.read_span_ps(4096) + WAY
    assert sum(ps for _, ps in wait.parts) == scattered_ps - alone_ps


@pytest.mark.ideal
def test_bytes_are_gathered_and_scattered() -> None:
    made = bench(FAST)
    pattern = bytes(range(200))
    made.sip.memory.write(at("hbm", 65_500), pattern)
    found: list[bytes] = []
    dma = made.sip.pe(0, 0).dma
    dma.read(Block(at("hbm", 65_510), 3, 20, 60), found.append)
    made.run()
    assert found == [pattern[10:30] + pattern[70:90] + pattern[130:150]]
    dma.write(Block(at("sram", 65_530), 3, 20, 60), found[0], lambda: None)
    made.run()
    expected = bytearray(160)
    for row in range(3):
        expected[5 + row * 60 : 25 + row * 60] = found[0][row * 20 : row * 20 + 20]
    assert made.sip.memory.read(at("sram", 65_525), 160) == expected


@pytest.mark.ideal
@pytest.mark.parametrize("is_read", [True, False])
def test_a_block_ends_within_its_memory(is_read: bool) -> None:
    made = bench({**FAST, "cube.hbm_MiB_per_pe": 1})
    dma, block = made.sip.pe(0, 0).dma, Block(at("hbm", (1 << 20) - 256), 3, 64, 128)
    if is_read:
        dma.read(block, lambda _: None)
    else:
        dma.write(block, bytes(192), lambda: None)
    with pytest.raises(MemoryAccessError, match=r"^320 bytes at .* are outside the memory of 1048576 bytes$"):
        made.run()
    assert made.sip.memory.read(at("hbm", (1 << 20) - 256), 256) == bytes(256)
