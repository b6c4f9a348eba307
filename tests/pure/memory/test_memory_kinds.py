"""What accesses take in memories with a bandwidth: times summed by hand, of reads and writes that stream."""

import random

import pytest
from hardware import ONE_SIP, Bench, WiredPlan, config
from memory_bench import at, memory_bench, reads, writes

from sipsim.chips.ahbm.address import Block
from sipsim.chips.ahbm.memory.ports import FIXED_LATENCY
from sipsim.fabric.graph import Node

LATENCIES: dict[str, object] = {
    "hbm.read_latency_ns": 40,
    "hbm.write_latency_ns": 20,
    "sram.read_latency_ns": 6,
    "sram.write_latency_ns": 4,
}
WAY_PS = 25_000
SHORT_PS = WAY_PS + 250
"""PE 0 to a memory of its cube or back, and with a command or an answer."""


def slow(space: str, rate: float) -> dict[str, object]:
    return {f"{space}.kind": "latency_bandwidth", f"{space}.params": {"bandwidth_GBps": rate}}


def slow_hbm(rate: float) -> dict[str, object]:
    return slow("hbm", rate)


def banked(banks: int = 4, rate: float = 16) -> dict[str, object]:
    """A stretch of 64 B takes 4 ns at 16 GB/s."""
    params = {"banks": banks, "interleave_bytes": 64, "bank_bandwidth_GBps": rate}
    return {"sram.kind": "banked_sram", "sram.params": params}


def banked_tcm(banks: int) -> dict[str, object]:
    return {key.replace("sram", "tcm"): value for key, value in banked(banks).items()}


def tcm(rate: float, ports: str = "read_and_write") -> dict[str, object]:
    return {"tcm.kind": "tcm_ports", "tcm.params": {"bandwidth_GBps": rate, "ports": ports}}


def bench(*settings: dict[str, object]) -> Bench:
    return memory_bench(LATENCIES, *settings)


def only(made: Bench, ends: list[int]) -> int:
    made.run()
    [end_ps] = ends
    return end_ps


@pytest.mark.ideal
@pytest.mark.parametrize(("rate", "bytes_ps"), [(128, 64_000), (64, 64_000), (32, 128_000), (8, 512_000)])
def test_an_access_takes_the_slower_of_memory_and_route(rate: float, bytes_ps: int) -> None:
    made = bench(slow_hbm(rate))
    assert only(made, reads(made, at("hbm"), 4096)) == SHORT_PS + 40_000 + WAY_PS + bytes_ps
    made = bench(slow_hbm(rate))
    assert only(made, writes(made, at("hbm"), 4096)) == WAY_PS + bytes_ps + 20_000 + SHORT_PS


@pytest.mark.ideal
def test_reads_and_writes_share_one_bandwidth() -> None:
    """At 32 GB/s: the write's data leave from 0 on, and the read's command beside them, so that it is there at 25.5.
    From 65.5 on each gets 16 GB/s: the write, with 2,000 B left, for 125 ns; the read has 2,096 B left then. The
    write's acknowledgement leaves the memory behind what was read.
    """
    made = bench(slow_hbm(32))
    written, read = writes(made, at("hbm"), 4096), reads(made, at("hbm", 1 << 20), 4096)
    made.run()
    assert written == [65_500 + 125_000 + 65_500 + SHORT_PS]
    assert read == [65_500 + 125_000 + 65_500 + WAY_PS]


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("nbytes", "banks", "in_banks_ps"),
    [(64, 4, 4_000), (256, 4, 4_000), (4096, 4, 16 * 4_000), (4096, 1, 64 * 4_000), (4096, 64, 0)],
    ids=["a stretch", "one each", "16 each", "one bank", "many banks"],
)
def test_a_read_of_banks(nbytes: int, banks: int, in_banks_ps: int) -> None:
    made = bench(banked(banks))
    bytes_ps = max(in_banks_ps, nbytes * 1000 // 64)
    assert only(made, reads(made, at("sram"), nbytes)) == SHORT_PS + 6_000 + WAY_PS + bytes_ps


@pytest.mark.ideal
@pytest.mark.parametrize(("offset", "waits_ps"), [(0, 11_000), (256, 11_000), (64, 0)], ids=["same", "same", "other"])
def test_bank_conflicts_cost(offset: int, waits_ps: int) -> None:
    """Two PEs read 64 B of banks that need 16 ns for it; their commands share edges, for 0.25 ns more each. PE 1's is a
    router and 5 ns behind. If the bank is the same the first one has 44 B left then, and half of the rate for 22 ns;
    the other one 20 B after that. Banks of another cube are others.
    """
    made = bench(banked(rate=4))
    first, second = reads(made, at("sram"), 64), reads(made, at("sram", offset), 64, pe=1)
    elsewhere = writes(made, at("sram", cube=1), 64, cube=1)
    made.run()
    assert first == [SHORT_PS + 250 + 6_000 + 16_000 + waits_ps + WAY_PS]
    assert second == [SHORT_PS + 250 + 5_000 + 6_000 + 16_000 + waits_ps + WAY_PS + 5_000]
    assert elsewhere == [WAY_PS + 16_000 + 4_000 + SHORT_PS]


@pytest.mark.ideal
@pytest.mark.parametrize(("slot", "waits_ps"), [(0, 15_000), (1, 0)], ids=["same bank", "other bank"])
def test_a_message_occupies_the_bank_of_its_slot(slot: int, waits_ps: int) -> None:
    """The bank needs 16 ns for 64 B. PE 2's leave from 0 on, the message's from 1 ns on: they share it until 31 ns."""
    made = bench(banked(rate=4), {"defaults.buffer_kind": "sram", "defaults.slot_size": 64})
    made.kernel(0, 0, lambda tl: tl.send("E", src_addr=0, shape=16, dtype="f32"))
    made.kernel(0, 1, lambda tl: tl.recv("W", 16, "f32"))
    ends = writes(made, made.queue(0, 1, "W").my_rx_base_pa + 64 * (slot + 4), 64, pe=2)
    assert only(made, ends) == WAY_PS + 10_000 + waits_ps + 16_000 + 4_000 + SHORT_PS + 10_000


@pytest.mark.ideal
def test_the_usual_kind_counts_for_the_digest_as_none() -> None:
    def digest(settings: dict[str, object]) -> str:
        return WiredPlan(config({**ONE_SIP, **settings}), [], {}).digest

    assert digest({"sram.kind": FIXED_LATENCY}) == digest({"sram.kind": None}) == digest({})
    assert digest(banked()) != digest({})


@pytest.mark.ideal
@pytest.mark.parametrize(("nbytes", "rate"), [(12 << 20, 128), (4096, 64), (64, 32)])
def test_a_pe_reads_and_writes_its_own_tcm_at_the_bandwidth_of_its_ports(nbytes: int, rate: int) -> None:
    made = bench(tcm(rate))
    took_ps = -(-nbytes * 1000 // rate) + 1_000
    assert only(made, reads(made, at("tcm"), nbytes)) == took_ps
    made = bench(tcm(rate))
    assert only(made, writes(made, at("tcm"), nbytes)) == took_ps


@pytest.mark.ideal
@pytest.mark.parametrize(("ports", "write_ps"), [("read_and_write", 33_000), ("shared", 64_000)])
def test_accesses_share_the_ports_of_a_tcm(ports: str, write_ps: int) -> None:
    """At 128 GB/s 4 KiB take 32 ns: two reads take turns, a write has a port of its own or shares one with them. Then
    it begins 1 ns earlier, as its latency comes last, and both end at 64 ns.
    """
    made = bench(tcm(128, ports))
    first = reads(made, at("tcm"), 4096)
    written = writes(made, at("tcm", 8192), 4096)
    second = reads(made, at("tcm"), 4096)
    made.run()
    assert (first, written) == ([write_ps], [write_ps])
    assert second == [write_ps + 32_000]


@pytest.mark.ideal
def test_a_load_lands_in_the_tcm_and_a_store_comes_from_there() -> None:
    """At 32 GB/s the TCM is the slowest of all: 128 ns for 4 KiB, and 1 ns of latency besides, each way."""
    made = bench(tcm(32))
    assert only(made, reads(made, at("sram"), 4096)) == SHORT_PS + 6_000 + WAY_PS + 128_000 + 1_000
    made = bench(tcm(32))
    assert only(made, writes(made, at("sram"), 4096)) == 1_000 + WAY_PS + 128_000 + 4_000 + SHORT_PS


@pytest.mark.ideal
def test_a_message_takes_the_ports_of_both_tcms() -> None:
    """From PE 0 to PE 1: 3 + 5 + 5 + 3 ns of way, 1 of PE_IPCQ, 1 of each TCM; 4 KiB through ports of 32 GB/s."""
    made = bench(tcm(32), {"defaults.slot_size": 4096})
    made.kernel(0, 0, lambda tl: tl.send("E", src_addr=at("tcm"), shape=1024, dtype="f32"))
    made.kernel(0, 1, lambda tl: tl.recv("W", 1024, "f32"))
    made.run()
    credit_ps = 1_000 + 16_000 + 250
    assert made.ends("ipcq.recv") == [1_000 + 1_000 + 16_000 + 128_000 + 1_000 + credit_ps]


@pytest.mark.ideal
def test_a_copy_takes_the_port_of_each_end_once() -> None:
    """From the SRAM to the PE's TCM: what passes PE_DMA is not written to the TCM on the way."""
    made = bench(tcm(32), banked(rate=1024))
    ends: list[int] = []
    made.sip.pe(0, 0).dma.copy(at("sram"), at("tcm"), bytes(4096), lambda: ends.append(made.engine.now_ps))
    assert only(made, ends) == SHORT_PS + 6_000 + WAY_PS + 64_000 + 128_000 + 1_000


@pytest.mark.ideal
@pytest.mark.parametrize(("ports", "rate"), [("read_and_write", 32), ("shared", 16)])
def test_a_copy_within_a_tcm_takes_a_shared_port_twice(ports: str, rate: int) -> None:
    made, ends = bench(tcm(32, ports)), list[int]()
    made.sip.pe(0, 0).dma.latch(at("tcm", 8192), at("tcm"), 4096, lambda: ends.append(made.engine.now_ps))
    assert only(made, ends) == 1_000 + 4096 * 1000 // rate + 1_000


def test_a_read_finds_what_was_written_before_its_first_byte_leaves() -> None:
    made = bench(slow_hbm(8))
    made.sip.memory.write(at("hbm"), b"\1" * 512)
    found: list[bytes] = []
    made.sip.pe(0, 0).dma.read(Block.piece(at("hbm"), 512), found.append)
    made.engine.at(SHORT_PS + 39_999, lambda: made.sip.memory.write(at("hbm"), b"\2" * 512))
    made.engine.at(SHORT_PS + 40_001, lambda: made.sip.memory.write(at("hbm"), b"\3" * 512))
    made.run()
    assert found == [b"\2" * 512]


@pytest.mark.ideal
def test_an_uncontended_read_costs_as_many_events_as_with_a_fixed_latency() -> None:
    """One for each transfer, and one for the memory."""
    events = []
    controller = {"hbm.kind": "hbm_controller", "hbm.params": {"preset": "hbm3_6400"}, "hbm.read_latency_ns": 99}
    for settings in ({}, slow_hbm(32), controller):
        made = bench(settings)
        only(made, reads(made, at("hbm"), 4096))
        events.append(made.engine.events)
    assert events == [events[0]] * 3


@pytest.mark.ideal
@pytest.mark.parametrize(
    "settings",
    [tcm(20), tcm(20, "shared"), slow("tcm", 3), banked_tcm(1), banked_tcm(4), banked_tcm(64)],
    ids=["two ports", "one port", "a bus", "one bank", "four banks", "many banks"],
)
@pytest.mark.parametrize("seed", range(20))
def test_a_copy_within_an_idle_tcm_takes_what_its_port_says(settings: dict[str, object], seed: int) -> None:
    """Of any bytes at any address."""
    draw = random.Random(seed)
    made, nbytes = bench(settings), draw.randrange(1, 2000)
    src, dst = at("tcm", draw.randrange(1 << 12)), at("tcm", draw.randrange(1 << 12))
    port = made.sip.memory_ports.at("tcm", Node("pe", 0, 0))
    ends: list[int] = []
    made.sip.pe(0, 0).dma.latch(src, dst, nbytes, lambda: ends.append(made.engine.now_ps))
    copy_ps = port.copy_span_ps(src, dst, nbytes)
    assert only(made, ends) == port.least_read_ps + copy_ps + port.least_write_ps
