"""The HBM controller: rows, buses, refresh and write queue, by hand; mixed traffic that never exceeds the bus."""

import random
from typing import Any

import pytest
from memory_bench import at, memory_bench, reads

from sipsim.chips.ahbm.memory.hbm import HbmController, Mapping
from sipsim.chips.ahbm.memory.ports import BusWitness, Wait
from sipsim.chips.ahbm.memory.presets import BURST_BYTES, presets
from sipsim.chips.ahbm.memory.store import MemoryStore
from sipsim.config.schema import MemoryCost
from sipsim.core.engine import Engine
from sipsim.core.errors import InvariantViolation

# HBM3-6400 in ps: tRCD 19,375, tRP 16,250, tCL 12,500, tRRD 3,125, a burst 1,250; 32 B a burst.
BURST, CL, RCD, RP, RRD = 1_250, 12_500, 19_375, 16_250, 3_125
FRONT = 48_000
OPENS = RCD + 3 * (RRD - BURST)
"""Until the rows of all four bank groups are open so far that the bus then runs without a gap."""
POSTED = 20_000
ROW_STRIDE = 1 << 17
"""To the next row of the same banks: 16 KiB of each of 8 banks, in a slice of two channels."""


def port(**params: Any) -> HbmController:
    cost = MemoryCost(
        overhead_ns=1,
        bandwidth_GBps=64,
        read_latency_ns=99,
        write_latency_ns=20,
        params={"preset": "hbm3_6400", "refresh": "none", **params},
    )
    made = HbmController(cost, Engine(), MemoryStore(0, {"hbm": 1 << 31}))
    made.check_buses()
    made.waits = []
    return made


def read(made: HbmController, now_ps: int, address: int, nbytes: int) -> tuple[int, int]:
    made.engine.now_ps = now_ps
    return made.claim_read(address, nbytes)


def write(made: HbmController, now_ps: int, address: int, nbytes: int, span_ps: int = 0) -> int:
    made.engine.now_ps = now_ps
    return made.claim_write(address, nbytes, span_ps)


HIT = FRONT + CL + BURST


def test_a_closed_row_an_open_row_and_another_row() -> None:
    """4 KiB are 32 bursts in each of four pseudo channels. The third read finds its banks long unused, so it precharges
    at once.
    """
    made = port()
    assert read(made, 0, 0, 4096) == (HIT + OPENS, 31 * BURST)
    assert read(made, 10**6, 4096, 4096) == (HIT, 31 * BURST)
    assert read(made, 2 * 10**6, ROW_STRIDE, 4096) == (HIT + RP + OPENS, 31 * BURST)
    assert [wait.parts for wait in made.waits or ()] == [
        (("opening rows", OPENS),),
        (("opening rows", RP + OPENS),),
    ]


def test_a_closed_page_opens_its_row_each_time() -> None:
    made = port(page_policy="closed")
    assert [read(made, turn * 10**6, 0, 4096)[0] for turn in range(3)] == [HIT + OPENS] * 3
    assert made.least_read_ps == HIT + RCD


def test_a_row_stays_open_for_its_least_time() -> None:
    """Of one bank: activated at 0, so precharged at tRAS = 28,125 and activated again at tRC = 45,000."""
    made = port()
    assert read(made, 0, 0, 32) == (HIT + RCD, 0)
    assert read(made, 1_000, ROW_STRIDE, 32) == (HIT + 45_000 - 1_000 + RCD, 0)


def test_four_activates_in_a_window() -> None:
    """tFAW = 15,000: the fifth bank of a pseudo channel waits from 12,500 (4 * tRRD) to 15,000. The bus has been given
    until 42,500 by then, and its next burst that begins after 15,000 + tRCD + tCL does so at 47,500.
    """
    made = port()
    read(made, 0, 0, 128)
    assert read(made, 0, 1 << 14, 32) == (HIT + 47_500 - CL, 0)


def test_reads_share_the_bus_and_fill_its_gaps() -> None:
    """A read that must open a row leaves the bus to one that comes later and finds its row open."""
    made = port()
    read(made, 0, 0, 4096)
    start = 10**6
    assert read(made, start, ROW_STRIDE, 4096)[0] == HIT + RP + OPENS
    assert read(made, start, 1 << 14, 4096)[0] > HIT + RP + OPENS
    made = port()
    read(made, 0, 0, 4096)
    read(made, 0, 1 << 14, 4096)
    read(made, start, (1 << 14) + ROW_STRIDE, 4096)
    assert read(made, start, 0, 2048) == (HIT, 15 * BURST)


def test_two_reads_at_a_time_take_turns() -> None:
    made = port()
    read(made, 0, 0, 16384)
    assert read(made, 10**6, 0, 4096) == (HIT, 31 * BURST)
    assert read(made, 10**6, 4096, 4096) == (HIT + 32 * BURST, 31 * BURST)
    assert (made.waits or [])[-1].parts == (("other accesses", 32 * BURST),)


def test_a_write_is_posted_and_drained_when_the_bus_is_idle() -> None:
    """The write's rows are open after tRCDWR = 9,375 + 5,625, its data on the bus tCWL = 6,250 later, for 40 ns. A read
    of the same rows comes then and waits for tWTR = 7,500 from the end of the data.
    """
    made = port()
    assert write(made, 0, 0, 4096) == POSTED
    end = 9_375 + 5_625 + 6_250 + 32 * BURST
    assert read(made, end, 4096, 4096)[0] == HIT + 7_500
    assert (made.waits or [])[0].parts == (("other accesses", 7_500),)


def test_a_write_that_comes_while_reads_pass_turns_the_bus() -> None:
    """tRTW + tCWL - tCL - burst = 1,250 after the end of the reads; then tWTR and tCL to the next read."""
    made = port()
    read(made, 0, 0, 4096)
    now = 10**6
    first, span = read(made, now, 0, 4096)
    read_end = now + first + span - FRONT
    assert write(made, now, 4096, 4096) == POSTED
    drained = read_end + 1_250 + 32 * BURST
    assert read(made, drained, 8192, 4096)[0] == HIT + 7_500


def test_a_full_write_queue_holds_writes_back() -> None:
    """A pseudo channel's queue holds 64 bursts: 8 KiB of the slice. Of 16 KiB the rest must be drained first."""
    made = port()
    assert write(made, 0, 0, 8192) == POSTED
    made = port()
    assert write(made, 0, 0, 16384) == POSTED + 9_375 + 5_625 + 6_250 + 64 * BURST
    assert [wait.parts for wait in made.waits or ()] == [(("room in the write queue", 101_250),)]
    # What comes more slowly than the bus takes it is never held back: 12 MiB at 64 GB/s.
    made = port()
    assert write(made, 12 << 24, 0, 12 << 20, 12 * 2**20 * 1000 // 64) == POSTED


def test_refresh_stops_reads_and_closes_rows() -> None:
    """tREFI = 3.9 us, tRP + tRFC = 366,250. A read in its midst opens its rows when it is over."""
    made = port(refresh="all_bank")
    assert read(made, 3_899_999 - OPENS - CL, 0, 64)[0] < HIT + OPENS
    inside = 3_900_000 + 100_000
    assert read(made, inside, 0, 4096) == (HIT + 366_250 - 100_000 + OPENS, 31 * BURST)
    assert (made.waits or [])[-1].parts == (("opening rows", OPENS), ("refresh", 266_250))


def test_refresh_that_one_pseudo_channel_waits_for() -> None:
    """One burst of 32 B each: pseudo channel 0 is 1 ns within a refresh, and pseudo channel 1 200 ns."""
    made = port(refresh="all_bank")
    read(made, 3_900_000 + 1_000, 0, 32)
    assert read(made, 3_900_000 + 200_000, 128, 32) == (HIT + 166_250 + RCD, 0)
    assert [wait.parts for wait in made.waits or ()] == [
        (("opening rows", RCD), ("refresh", 365_250)),
        (("opening rows", RCD), ("refresh", 166_250)),
    ]


def test_what_writes_wait_for_refresh_is_no_part_of_a_read() -> None:
    """A write comes within a refresh and is drained tRCD and tCL after it; a read that comes then waits for tWTR."""
    made = port(refresh="all_bank")
    assert write(made, 3_900_000 + 1_000, 0, 4096) == POSTED
    end = 3_900_000 + 366_250 + RCD + CL + 32 * BURST
    assert read(made, end, 4096, 4096) == (HIT + 7_500, 31 * BURST)
    assert [wait.parts for wait in made.waits or ()] == [(("other accesses", 7_500),)]


def test_a_long_read_goes_around_refreshes() -> None:
    """1 MiB needs 10.24 us of four buses: two refreshes of tRP + tRFC + tRCD in between. Before the second one half a
    burst's time is left over.
    """
    made = port(refresh="all_bank")
    first, span = read(made, 0, 0, 1 << 20)
    assert first == HIT + OPENS
    assert span == (1 << 20) // (4 * BURST_BYTES) * BURST - BURST + 2 * (RP + 350_000 + RCD) + 625


@pytest.mark.parametrize("preset", presets())
@pytest.mark.parametrize("refresh", ["none", "all_bank"])
@pytest.mark.parametrize("seed", range(3))
def test_mixed_reads_and_writes_never_exceed_the_bus(preset: str, refresh: str, seed: int) -> None:
    """Of any size and place, more than the memory can take: each bus carries a burst at a time, and all of them."""
    draw, made, seen = random.Random(seed), port(preset=preset, refresh=refresh), []

    class Noting(BusWitness):
        def took(self, start_ps: int, end_ps: int) -> None:
            super().took(start_ps, end_ps)
            seen.append((start_ps, end_ps))

    made._one.witness = Noting("one")
    made.part()
    for each in made._each or ():
        each.witness = Noting("each")
    now = asked = 0
    burst = presets()[preset].timings.burst
    for _ in range(300):
        now += draw.choice((0, 500, 20_000, 900_000))
        nbytes = draw.choice((1, 32, 64, 100, 4096, 5000, 40_000))
        address = draw.randrange(1 << 22) // draw.choice((1, 64, 4096)) * 64
        bursts = -(-(address + nbytes) // BURST_BYTES) - address // BURST_BYTES
        if draw.random() < 0.5:
            read(made, now, address, nbytes)
        else:
            write(made, now, address, nbytes, draw.choice((0, nbytes * 16)))
        asked += bursts
    queued = sum(each._queued for each in made._each or ())
    assert sum(end - start for start, end in seen) == (asked - queued) * burst
    assert max(end for _, end in seen) - min(start for start, _ in seen) >= (asked - queued) * burst // 4
    assert all(ps > 0 for wait in made.waits or () for _, ps in wait.parts)


def aligned(made: HbmController, seed: int) -> list[object]:
    """Accesses that are alike in all pseudo channels."""
    draw, now, told = random.Random(seed), 0, []
    for _ in range(200):
        now += draw.choice((0, 20_000, 400_000))
        address, nbytes = draw.randrange(1 << 10) * 4096, draw.choice((512, 4096, 16384, 65536))
        told.append(read(made, now, address, nbytes) if draw.random() < 0.6 else write(made, now, address, nbytes, 999))
    return [*told, made.waits]


@pytest.mark.parametrize("seed", range(5))
def test_what_is_worked_out_once_is_right_for_all_pseudo_channels(seed: int) -> None:
    one, each = port(refresh="all_bank"), port(refresh="all_bank")
    each.part()
    assert aligned(one, seed) == aligned(each, seed)
    assert (one._each is None, each._each is None) == (True, False)


def test_the_mapping_is_one_to_one_and_spreads_neighbours() -> None:
    for name, preset in presets().items():
        mapping = Mapping(preset, 2)
        line = preset.groups * 4
        places = []
        for number in range(4 * line * 32):
            [piece] = mapping.pieces(number, number + 1)
            where = [(channel, *mapping.share(piece, channel)) for channel in range(4)]
            [(channel, group, _)] = [each for each in where if each[2]]
            places.append((channel, group, piece.bank, piece.row, piece.first // line))
        assert len(set(places)) == len(places), name
        assert {place[:2] for place in places[:line]} == {(c, g) for c in range(4) for g in range(preset.groups)}


@pytest.mark.parametrize("first", [0, 3, 37])
@pytest.mark.parametrize("count", [1, 5, 16, 700])
def test_shares_of_pseudo_channels_are_those_of_single_bursts(first: int, count: int) -> None:
    mapping = Mapping(presets()["hbm3_6400"], 2)
    for piece in mapping.pieces(first, first + count):
        for channel in range(4):
            bursts = [at for at in range(piece.first, piece.end) if at // 4 % 4 == channel]
            group, found = mapping.share(piece, channel)
            assert (found, group if found else None) == (len(bursts), bursts[0] % 4 if bursts else None)


def test_the_witness_sees_two_accesses_at_a_time() -> None:
    witness = BusWitness("cube0.hbm3")
    witness.took(100, 200)
    witness.took(200, 300)
    witness.took(50, 100)
    with pytest.raises(
        InvariantViolation, match=r"cube0.hbm3: its bus carries two accesses at a time, from 150 to 160"
    ):
        witness.took(150, 160)


@pytest.mark.ideal
def test_a_read_through_the_fabric_streams() -> None:
    """PE 0 and its slice: 3 + 5 + 17 ns each way, 16 B of command in 0.25 ns, 64 ns for 4 KiB at the route's 64 GB/s,
    while the slice needs 38.75.
    """
    made = memory_bench({"hbm.kind": "hbm_controller", "hbm.params": {"preset": "hbm3_6400"}})
    ends = reads(made, at("hbm"), 4096)
    made.run()
    assert ends == [25_250 + HIT + OPENS + 25_000 + 64_000]


def test_waits_are_kept_only_where_they_are_asked_for() -> None:
    made = port()
    made.waits = None
    read(made, 0, 0, 4096)
    assert made.waits is None
    made.waits = []
    read(made, 0, 0, 64)
    assert [type(each) for each in made.waits] == [Wait]
