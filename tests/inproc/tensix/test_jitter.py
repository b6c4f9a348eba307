"""Runs with jitter and start skew: latency is only added, order kept where hardware keeps it, any order of the mail."""

from pathlib import Path

import pytest
from runs import Run, run, script_file

EXAMPLE = Path(__file__).resolve().parents[3] / "docs/examples/tensix/slices.py"
LAUNCH = "system.chip_params.launch.start_skew_ns"


def passed(done: Run) -> Run:
    assert done.document["status"] == "ok", done.document["error"]
    return done


def slices(*flags: object, **how: int) -> Run:
    return passed(run("--topology", "n300", *flags, EXAMPLE, **how))


def test_a_data_mover_is_right_at_any_seed() -> None:
    """Sessions check each arrival against lookahead and promise, so this also holds that jitter keeps the bounds."""
    usual = slices()
    runs = [slices("--jitter", seed) for seed in range(1, 9)]
    assert len({done.document["digest"] for done in (usual, *runs)}) == 9
    assert {done.document["ranks"][1]["bytes_sent"] for done in runs} == {usual.document["ranks"][1]["bytes_sent"]}


def test_the_mail_does_not_matter() -> None:
    runs = [slices("--jitter", 3, mail_seed=seed) for seed in range(4)]
    assert len({done.document["digest"] for done in (slices("--jitter", 3), *runs)}) == 1


@pytest.mark.parametrize("ranges", ["link_ns", "noc_ns", "start_ns", "late_ns"])
def test_each_range_by_itself(ranges: str) -> None:
    none = [f"system.chip_params.jitter.{key}=0" for key in ("link_ns", "noc_ns", "start_ns", "late_ns")]
    flags = [word for each in none for word in ("--set", each)]
    still = slices("--jitter", 3, *flags)
    assert still.document["ranks"][1]["sim_end_ps"] == slices().document["ranks"][1]["sim_end_ps"]
    moved = slices("--jitter", 3, *flags, "--set", f"system.chip_params.jitter.{ranges}=300")
    assert moved.document["ranks"][1]["sim_end_ps"] != still.document["ranks"][1]["sim_end_ps"]


ORDERED = """
PAYLOAD, FLAG, ROUNDS = 0x20000, 0x30000, 40

def sender(there, df):
    for number in range(1, ROUNDS + 1):
        df.store(PAYLOAD, bytes([number]) * 2048)
        df.noc_async_write(PAYLOAD, df.get_noc_addr(*there, PAYLOAD), 2048)
        df.noc_semaphore_inc(df.get_noc_addr(*there, FLAG), 1)
        df.noc_semaphore_wait_min(FLAG, number)

def receiver(there, df):
    for number in range(1, ROUNDS + 1):
        df.noc_semaphore_wait_min(FLAG, number)
        assert df.peek(PAYLOAD, 2048) == bytes([number]) * 2048
        df.noc_semaphore_inc(df.get_noc_addr(*there, FLAG), 1)

def worker(rank, world_size, tt):
    program = tt.create_program()
    one, other = tt.workers[0], tt.workers[40]
    tt.create_kernel(program, sender, one, args=(other,))
    tt.create_kernel(program, receiver, other, args=(one,))
    tt.enqueue_program(program)
    tt.finish()
"""


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_semaphore_comes_behind_the_payload_before_it(tmp_path: Path, seed: int) -> None:
    flags = ("--chip", "wormhole", "--sips", 1, "--set", "system.chip_params.jitter.noc_ns=900")
    passed(run(*flags, "--jitter", seed, script_file(tmp_path, ORDERED)))


STARTS = """
def worker(rank, world_size, tt):
    expected_ns = 1500.5 * rank
    assert tt.now_ns() == expected_ns
    for _ in range(2):
        program = tt.create_program()
        began_ns = tt.now_ns()
        tt.create_kernel(program, lambda df: df.instructions(100), tt.workers[0])
        tt.enqueue_program(program)
        tt.finish()
        assert tt.now_ns() == began_ns + 100
"""


def test_a_host_starts_later_once(tmp_path: Path) -> None:
    script = script_file(tmp_path, STARTS)
    flags = ("--topology", "n300", "--set", f"{LAUNCH}={{1: 1500.5, 0: 0}}")
    done = passed(run(*flags, script))
    assert [rank["sim_end_ps"] for rank in done.document["ranks"]] == [200_000, 1_700_500]
    again = passed(run(*flags, script, mail_seed=2))
    assert again.document["digest"] == done.document["digest"]


def test_data_are_the_same_with_a_skew() -> None:
    usual, apart = slices(), slices("--set", f"{LAUNCH}={{0: 3000}}")
    assert apart.document["ranks"][0]["sim_end_ps"] > usual.document["ranks"][0]["sim_end_ps"] + 2_000_000
    assert apart.document["digest"] != usual.document["digest"]
