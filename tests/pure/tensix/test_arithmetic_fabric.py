"""The study's formula, by hand and against published rows; later tests compare simulated fabrics with it."""

from dataclasses import replace

import pytest
from arithmetic_fabric import BLACKHOLE, WORMHOLE, Formula

from launcher.bench.published import Published, default_files, read_published

ROWS: dict[str, Published] = {row.id: row for path in default_files() for row in read_published(path)}
HALF = replace(BLACKHOLE, rate_GBps=25)
PLAIN = Formula(
    rate_GBps=10, latency_ns=400, service_ns=200, channel_ns=100, ring_ns=50, flush_ns=30, copy_ns=0.1, op_us=5,
    relay_us=2, reduce_ns=0.01, worker_GBps=4, header_bytes=100,
)  # fmt: skip


@pytest.mark.parametrize(("nbytes", "wire_ns"), [(0, 15), (900, 105), (1400, 155), (1401, 160.1), (4400, 465)])
def test_a_packet_is_cut_into_frames(nbytes: int, wire_ns: float) -> None:
    assert PLAIN.wire_ns(nbytes) == pytest.approx(wire_ns)


def test_a_hop_is_a_visit_the_wire_and_a_copy() -> None:
    assert PLAIN.hop_ns(900) == pytest.approx(400 + 200 + 105 + 100)
    assert PLAIN.hop_ns(900, is_ring=True) == pytest.approx(400 + 250 + 105 + 100)
    assert PLAIN.hop_ns(900, is_fused=True) == pytest.approx(400 + 200 + 30 + 100 + 105 + 100)
    assert PLAIN.path_ns(900, 3) == pytest.approx(3 * 805 + 100)


@pytest.mark.parametrize(
    ("nbytes", "further", "credit_ns", "slots", "period_ns"),
    [
        (900, 0, 0, 1, 200),  # the router
        (900, 2, 0, 1, 400),  # with two more channels
        (4400, 0, 0, 1, 465),  # the wire
        (900, 0, 3000, 8, 375),  # the credits
    ],
)
def test_the_slowest_sets_the_pace(nbytes: int, further: int, credit_ns: float, slots: int, period_ns: float) -> None:
    assert PLAIN.period_ns(nbytes, further, credit_ns=credit_ns, slots=slots) == pytest.approx(period_ns)


def test_a_collective_is_a_call_a_crossing_a_first_packet_and_the_bytes_of_the_busiest_link() -> None:
    """4 chips in a line, 80 kB: 20 kB each, packets of 1400 B at 7 B/ns; the way of a packet is 3 hops."""
    sync_us, first_us = 3 * (400 + 200 + 16.6 + 11.6) / 1000, 3 * (400 + 200 + 155 + 150) / 1000
    gathered_us = 5 + sync_us + first_us + 60 / 7
    found = PLAIN.collective_us("all_gather", 4, 80_000, 1400)
    assert found == pytest.approx(gathered_us)
    again = PLAIN.collective_us("all_gather", 4, 80_000, 1400, is_back_to_back=True)
    assert again == pytest.approx(found - sync_us / 2)
    scattered_us = gathered_us + 3 * 2 + 0.01 * (60 + 40)
    assert PLAIN.collective_us("reduce_scatter", 4, 80_000, 1400) == pytest.approx(scattered_us)
    assert PLAIN.collective_us("all_reduce", 4, 80_000, 1400) == pytest.approx(gathered_us + scattered_us)
    moved_us = 5 + sync_us + first_us + 80 / 7
    assert PLAIN.collective_us("all_to_all", 4, 80_000, 1400) == pytest.approx(moved_us)


def test_of_two_chips_one_worker_feeds_the_link() -> None:
    slow, fast = (replace(PLAIN, worker_GBps=rate).collective_us("all_gather", 2, 80_000, 1400) for rate in (4, 100))
    assert slow - fast == pytest.approx(40 / 4 - 40 / 7)


def test_a_ring_has_two_directions_half_the_hops_and_relays() -> None:
    ring_us = PLAIN.collective_us("all_gather", 4, 80_000, 1400, is_ring=True)
    sync_us, first_us = 2 * (400 + 250 + 16.6 + 11.6) / 1000, 2 * (400 + 250 + 155 + 150) / 1000
    assert ring_us == pytest.approx(5 + sync_us + first_us + 1 * 2 + 30 / 7)
    one_shot_us = PLAIN.collective_us("reduce_scatter", 4, 80_000, 1400, is_ring=True)
    assert one_shot_us == pytest.approx(ring_us + 1.3 * 30 / 7 + 0.01 * (2.3 * 30 + 40))


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ("TT0074", 2 * WORMHOLE.path_ns(16, 7)),
        ("TT0078", 2 * WORMHOLE.path_ns(2048, 7)),
        ("TT0093", WORMHOLE.hop_ns(4096, is_ring=True)),
        ("TT0243", 2 * WORMHOLE.path_ns(16, 1)),
        ("TT0244", 2 * WORMHOLE.path_ns(4096, 1)),
        ("TT0267", 2 * BLACKHOLE.path_ns(16, 1)),
        ("TT0280", 2 * BLACKHOLE.path_ns(4096, 1)),
        ("TT0136", WORMHOLE.rate(16)),  # one worker, one direction
        ("TT0138", WORMHOLE.rate(4096)),
        ("TT0112", WORMHOLE.rate(16, further=1)),  # workers on each chip, one direction: merging
        ("TT0118", WORMHOLE.rate(16, further=1)),  # two directions
        ("TT0100", WORMHOLE.rate(16, further=1, is_ring=True)),
        ("TT0150", WORMHOLE.rate(16, further=1, is_fused=True)),
        ("TT0154", WORMHOLE.rate(4096, further=1, is_fused=True)),
        ("TT0378", BLACKHOLE.rate(2048)),
        ("TT0398", WORMHOLE.collective_us("all_gather", 2, 4194304, 6144)),
        ("TT0411", WORMHOLE.collective_us("all_gather", 8, 65536, 6144)),
        ("TT0417", WORMHOLE.collective_us("all_gather", 8, 2**30, 6144)),
        ("TT0419", WORMHOLE.collective_us("all_gather", 8, 65536, 6144, is_ring=True)),
        ("TT0433", WORMHOLE.collective_us("reduce_scatter", 2, 2**30, 6144)),
        ("TT0442", WORMHOLE.collective_us("reduce_scatter", 8, 16384, 6144)),
        ("TT0472", WORMHOLE.collective_us("all_reduce", 4, 67108864, 6144)),
        ("TT0502", WORMHOLE.collective_us("all_to_all", 4, 4194304, 6144)),
        ("TT0545", HALF.collective_us("all_gather", 8, 2**30, 8192, links=2)),
        ("TT0577", HALF.collective_us("reduce_scatter", 8, 2**30, 8192, links=2)),
    ],
)
def test_rows_that_arithmetic_explains(row: str, value: float) -> None:
    assert value == pytest.approx(ROWS[row].value, rel=0.15)
