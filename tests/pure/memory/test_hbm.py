"""The HBM controller: rows, turns of the bus and write queue, by hand; mixed traffic that never exceeds the buses."""

import random
from collections import Counter
from typing import Any

import pytest
from memory_bench import at, memory_bench, reads, writes

from sipsim.chips.ahbm.address import Block
from sipsim.chips.ahbm.memory.hbm import HbmController, Mapping
from sipsim.chips.ahbm.memory.ports import Reading, Wait
from sipsim.chips.ahbm.memory.presets import BURST_BYTES, presets
from sipsim.config.schema import MemoryCost
from sipsim.core.engine import Engine
from sipsim.fabric.graph import Node, Route

# HBM3-6400 in ps: tRCD 19,375, tRP 16,250, tCL 12,500, tRRD 3,125, a burst 1,250; 32 B a burst.
BURST, CL, RCD, RP, RRD, RC = 1_250, 12_500, 19_375, 16_250, 3_125, 45_000
FRONT = 48_000
OPENS = RCD + 3 * (RRD - BURST)
"""Until the rows of all four bank groups are open so far that the bus then runs without a gap."""
POSTED = 20_000
ROW_STRIDE = 1 << 17
"""To the next row of the same banks: 16 KiB of each of 8 banks, in a slice of two channels."""
TURNS = 21_250
"""From reads to writes 1,250, back tWTR + tCL = 20,000."""
HIT = FRONT + CL
LINE = Block(0, 1, 512, 512)


def port(**params: Any) -> HbmController:
    """Without a hash of addresses, so that a test can name a bank."""
    cost = MemoryCost(
        overhead_ns=1,
        bandwidth_GBps=64,
        read_latency_ns=99,
        write_latency_ns=20,
        params={"preset": "hbm3_6400", "refresh": "none", "address_hash": "none", **params},
    )
    made = HbmController(cost, Engine(), Node("hbm", 0, 0))
    made.waits = []
    return made


def block(address: int, nbytes: int) -> Block:
    return Block(address, 1, nbytes, nbytes)


def read(made: HbmController, now_ps: int, address: int, nbytes: int) -> tuple[int, int]:
    """When its first byte leaves, and how much later the last one."""
    made.engine.now_ps = now_ps
    return made.reading(block(address, nbytes))[1:]


def write(made: HbmController, now_ps: int, address: int, nbytes: int) -> Route:
    made.engine.now_ps = now_ps
    return made.writing(block(address, nbytes))


def taken(route: Route) -> dict[str, int]:
    """The bytes that an access takes of each edge of the memory."""
    return {edge.memory: edge.wire_bytes(0) for edge in route.edges}


def test_a_closed_row_an_open_row_and_another_row() -> None:
    """4 KiB are 32 bursts in each of four pseudo channels. The third read finds its banks long unused, so it precharges
    at once.
    """
    made = port()
    assert read(made, 0, 0, 4096) == (HIT + OPENS, 32 * BURST)
    assert read(made, 10**6, 4096, 4096) == (HIT, 32 * BURST)
    assert read(made, 2 * 10**6, ROW_STRIDE, 4096) == (HIT + RP + OPENS, 32 * BURST)
    assert [wait.parts for wait in made.waits or ()] == [
        (("opening rows", OPENS),),
        (("opening rows", RP + OPENS),),
    ]


def test_a_closed_page_opens_its_row_each_time() -> None:
    made = port(page_policy="closed")
    assert [read(made, turn * 10**6, 0, 4096)[0] for turn in range(3)] == [HIT + OPENS] * 3
    assert made.least_read_ps == HIT + RCD


def test_a_bank_opens_another_row_after_its_row_cycle() -> None:
    made = port()
    assert read(made, 0, 0, 32) == (HIT + RCD, BURST)
    assert read(made, 1_000, ROW_STRIDE, 32) == (HIT + RC - 1_000 + RCD, BURST)


def test_rows_of_one_bank_follow_each_other() -> None:
    """16 rows of 32 B, a row cycle apart; in two banks half of them; over all pseudo channels tRRD apart at most."""
    ends = []
    for stride in (ROW_STRIDE, ROW_STRIDE // 2, 64):
        made = port()
        first_ps, span_ps = made.reading(Block(0, 16, 32, stride))[1:]
        ends.append((first_ps, span_ps))
    assert ends == [
        (HIT + RCD, 15 * RC + BURST),
        (HIT + RCD, 7 * RC + RRD + BURST),
        (HIT + RCD, RRD + BURST + 2 * BURST),
    ]


def test_what_was_written_recovers_before_another_row_opens() -> None:
    """tRCDWR 9,375, tCWL 6,250, a burst, tWR 20,625 and tRP: 53,750 from activate to activate."""
    made = port()
    write(made, 0, 0, 32)
    assert read(made, 10_000, ROW_STRIDE, 32)[0] == HIT + 53_750 - 10_000 + RCD + 20_000


def test_narrow_accesses_pay_for_their_rows() -> None:
    """tFAW = 15,000 for four: 3,750 a row, 2,500 more than a burst. A window of them is free at first; then each burst
    keeps the bus for three.
    """
    made = port()
    bursts = [taken(made.reading(block(number * ROW_STRIDE // 8, 32)).route)["pseudo channel 0"] for number in range(8)]
    assert bursts == [BURST_BYTES] * 6 + [3 * BURST_BYTES] * 2


def test_bursts_of_one_bank_group_are_further_apart() -> None:
    """16 bursts, a line apart: tCCD_L is two bursts."""
    made = port()
    assert taken(made.reading(Block(0, 16, 32, 512)).route)["pseudo channel 0"] == (15 * 2 + 1) * BURST_BYTES


def test_an_access_takes_the_pseudo_channels_that_it_meets() -> None:
    made = port()
    assert taken(write(made, 0, 0, 4096)) == {"data buses": 4096}
    assert taken(write(made, 0, 256, 128)) == {"data buses": 128, "pseudo channel 2": 128}
    assert taken(write(made, 0, 100, 60)) == {"data buses": 64, "pseudo channel 0": 32, "pseudo channel 1": 32}
    assert made.bandwidths["data buses"] == 4 * made.bandwidths["pseudo channel 0"] == 102_400_000_000


def test_refresh_is_less_bandwidth() -> None:
    """Of tREFI = 3.9 us tRP + tRFC = 366.25 ns, whenever an access comes."""
    made = port(refresh="all_bank")
    assert made.bandwidths["pseudo channel 3"] == 25_600_000_000 * (3_900_000 - 366_250) // 3_900_000
    read(made, 0, 0, 4096)
    assert len({read(made, now_ps, 0, 4096) for now_ps in range(10**6, 10**7, 333_333)}) == 1


@pytest.mark.parametrize("first", ["read", "write"])
def test_the_second_of_two_directions_pays_for_turns_of_the_bus(first: str) -> None:
    """Two turns for each 32 bursts in a pseudo channel, 40 ns. Of what it has met nothing is left for a third one."""
    made = port()
    order = ["read", "write"] if first == "read" else ["write", "read"]
    steps = {"read": lambda: made.reading(block(0, 1 << 16)).route, "write": lambda: write(made, 0, 1 << 16, 1 << 16)}
    routes = [steps[order[0]](), steps[order[1]](), steps[order[1]]()]
    turned = (1 << 16) + -(-(1 << 16) * TURNS // 40_000 // BURST_BYTES) * BURST_BYTES
    assert [taken(route)["data buses"] for route in routes] == [1 << 16, turned, 1 << 16]


def test_a_read_among_writes_waits_for_its_turn() -> None:
    made = port()
    read(made, 0, 0, 512)
    now_ps = 10**6
    write(made, now_ps, 0, 512)
    assert read(made, now_ps, 0, 512)[0] == HIT + 20_000
    assert (made.waits or [])[-1].parts == (("a turn of the bus", 20_000),)


def test_a_write_is_under_way_until_its_last_byte_is_here() -> None:
    made = port()
    read(made, 0, 0, 512)
    write(made, 10**6, 0, 512)
    made.engine.now_ps = 2 * 10**6
    made.written_ps(LINE)
    assert read(made, 3 * 10**6, 0, 512)[0] == HIT


def test_writes_to_a_busy_bank_fill_the_queue() -> None:
    """A pseudo channel's queue holds 64 bursts. Each of these needs another row of one bank, 53.75 ns apart: the 66th
    waits until the first of those that wait has its row.
    """
    made = port()
    for number in range(66):
        write(made, 0, number * ROW_STRIDE, 32)
    assert {made.written_ps(block(number * ROW_STRIDE, 32)) for number in range(65)} == {POSTED}
    assert made.written_ps(block(65 * ROW_STRIDE, 32)) == 53_750 + 9_375 + POSTED
    assert [wait.parts for wait in made.waits or ()] == [(("room in the write queue", 53_750 + 9_375),)]


@pytest.mark.parametrize("preset", presets())
@pytest.mark.parametrize("refresh", ["none", "all_bank"])
@pytest.mark.parametrize("seed", range(3))
def test_mixed_reads_and_writes_never_exceed_the_buses(preset: str, refresh: str, seed: int) -> None:
    """Of any size and place, through the fabric: no edge of the memory carries more than it can until the end."""
    draw = random.Random(seed)
    made = memory_bench({"hbm.kind": "hbm_controller", "hbm.params": {"preset": preset, "refresh": refresh}})
    made.sip.fabric.is_watched = True
    for _ in range(100):
        nbytes = draw.choice((1, 32, 64, 100, 4096, 5000, 40_000))
        address = at("hbm", draw.randrange(1 << 22) // draw.choice((1, 64, 4096)) * 64)
        draw.choice((reads, writes))(made, address, nbytes, pe=draw.randrange(8))
    made.run()
    use = {edge: each for edge, each in made.sip.fabric.use().items() if edge.memory}
    assert len(use) >= 5
    assert all(each.busy_ps <= made.engine.now_ps for each in use.values())


def test_stores_to_a_slice_follow_each_other_whatever_they_take_of_it() -> None:
    """Two stores of a PE, the second of one burst more: they go the same way, and four may be under way."""
    ends = []
    for offset in (0, 16):
        made = memory_bench({"hbm.kind": "hbm_controller", "hbm.params": {"preset": "hbm3_6400"}})
        first, second = writes(made, at("hbm"), 8192), writes(made, at("hbm", (1 << 20) + offset), 8192)
        made.run()
        ends.append((first[0], second[0] - first[0]))
    assert ends[0] == ends[1]
    assert ends[0][1] == 128_000


@pytest.mark.parametrize("is_hashed", [True, False])
@pytest.mark.parametrize("preset", presets())
def test_the_mapping_is_one_to_one_and_spreads_neighbours(preset: str, is_hashed: bool) -> None:
    mapping = Mapping(presets()[preset], 2, is_hashed)
    places = []
    for number in range(4 * mapping.line * 32):
        [piece] = mapping.pieces(number, number + 1)
        [unit] = mapping.units(piece)
        places.append((*unit, piece.bank, piece.row, number // mapping.line % 32))
    assert len(set(places)) == len(places)
    neighbours = {place[:2] for place in places[: mapping.line]}
    assert neighbours == {(channel, group) for channel in range(4) for group in range(presets()[preset].groups)}


@pytest.mark.parametrize("first", [0, 3, 37])
@pytest.mark.parametrize("bursts", [1, 5, 16, 700])
def test_pieces_are_the_bursts_of_an_access(first: int, bursts: int) -> None:
    mapping = Mapping(presets()["hbm3_6400"], 2, True)
    pieces = list(mapping.pieces(first, first + bursts))
    assert [at for piece in pieces for at in range(piece.first, piece.first + piece.bursts)] == [
        *range(first, first + bursts)
    ]
    assert all(piece.bursts < mapping.line or not (piece.first | piece.bursts) % mapping.line for piece in pieces)
    assert all(piece.first // 512 == (piece.first + piece.bursts - 1) // 512 for piece in pieces)


@pytest.mark.parametrize("stride_bits", range(9, 21))
def test_a_hash_spreads_accesses_at_a_power_of_two(stride_bits: int) -> None:
    """16 of them, each in a bank group and pseudo channel of its own; without a hash all are in one."""
    for is_hashed, most in ((True, 1), (False, 16)):
        mapping = Mapping(presets()["hbm3_6400"], 2, is_hashed)
        met: Counter[tuple[int, int]] = Counter()
        for number in range(16):
            burst = (number << stride_bits) // BURST_BYTES
            [piece] = mapping.pieces(burst, burst + 1)
            met.update(mapping.units(piece))
        assert max(met.values()) == most


@pytest.mark.ideal
def test_a_read_through_the_fabric_streams() -> None:
    """PE 0 and its slice: 3 + 5 + 17 ns each way, 16 B of command in 0.25 ns, 64 ns for 4 KiB at the route's 64 GB/s,
    while the slice needs 40.
    """
    made = memory_bench({"hbm.kind": "hbm_controller", "hbm.params": {"preset": "hbm3_6400"}})
    ends = reads(made, at("hbm"), 4096)
    made.run()
    assert ends == [25_250 + HIT + OPENS + 25_000 + 64_000]


def test_waits_are_kept_only_where_they_are_asked_for() -> None:
    made = port()
    made.waits = None
    assert isinstance(made.reading(LINE), Reading)
    assert made.waits is None
    made.waits = []
    read(made, 0, 1 << 20, 64)
    assert [type(each) for each in made.waits] == [Wait]
