"""One ring with many random packets: each comes to the chips of its route, once and whole, or the ring names its cycle.

A packet costs 35 to 50 events and 2 to 3 ms, so ten thousand are for ``--all``.
"""

from pathlib import Path

import pytest
from fabric_load import drawn, run_load, wrong
from fabric_runs import passed, slots_of

BUBBLE, DATELINE = "2025-11", "2025-03"
BOTH = pytest.mark.parametrize("revision", [BUBBLE, DATELINE])
MANY, FEWER = 10_000, 1_000
SLOTS = {1: 2, 2: 4, 3: 0}
"""By seed; 0: as many as the config has."""


def check_load(size: int, count: int, seed: int, revision: str, folder: Path) -> None:
    """All packets come as they must, and credits settle."""
    load = drawn(size, count, seed)
    done = passed(run_load(load, revision, folder, *slots_of(revision, SLOTS[seed])))
    assert wrong(load, done) == []


@BOTH
def test_each_packet_of_a_ring_comes_once(revision: str, tmp_path: Path) -> None:
    check_load(5, FEWER, 2, revision, tmp_path)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("seed", SLOTS)
@pytest.mark.parametrize("size", [5, 8])
def test_each_of_ten_thousand_packets_comes_once(size: int, seed: int, revision: str, tmp_path: Path) -> None:
    check_load(size, MANY, seed, revision, tmp_path)


def check_cycle(size: int, count: int, seed: int, revision: str, folder: Path) -> None:
    """Without the avoidance of its revision the same load ends in a cycle of channels of all chips, which is named."""
    none = ("--set", f"system.chip_params.fabric.revisions.{revision}.avoidance=none")
    done = run_load(drawn(size, count, seed), revision, folder, *none, *slots_of(revision, SLOTS[seed]))
    error = done.document["error"]
    assert error is not None, "it has ended"
    assert error["kind"] == "Deadlock"
    cycle = error["deadlock"]["channel_cycle"]
    assert error["message"].startswith(f"a cycle of {len(cycle)} channels: ")
    assert {name.split()[1] for name in cycle} == {str(sip) for sip in range(size)}


@BOTH
def test_without_avoidance_the_same_packets_block_the_ring(revision: str, tmp_path: Path) -> None:
    check_cycle(5, FEWER, 2, revision, tmp_path)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("seed", SLOTS)
@pytest.mark.parametrize("size", [5, 8])
def test_without_avoidance_ten_thousand_packets_block_the_ring(
    size: int, seed: int, revision: str, tmp_path: Path
) -> None:
    check_cycle(size, MANY, seed, revision, tmp_path)
