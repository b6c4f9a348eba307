"""Hazards that the CCL developer guide names: a search with jitter finds each, and nothing without the mistake."""

from pathlib import Path

import pytest
from runs import run, script_file

from launcher.commands.races import main

FLAGS = ("--topology", "n300")
HOST = """
def worker(rank, world_size, tt):
    core, program = tt.ethernet_cores_to(1 - rank)[0], tt.create_program()
    buffer, place = tt.l1_base(core), tt.workers[-1]
    if rank == 0:
        tt.write(core, buffer, {sync} + bytes([7]) * N + {sync})
        tt.create_kernel(program, sender, core, args=(buffer,))
    else:
        tt.create_kernel(program, receiver, core, args=(buffer, place))
    tt.enqueue_program(program)
    tt.finish()
"""
SYNC = (
    """
N = 4096

def sender(buffer, df):
    df.eth_send_packet(0, {first} // 16, {first} // 16, N // 16 + 1)
    df.eth_wait_for_bytes_on_channel(1)

def receiver(buffer, place, df):
    df.wait_until(lambda: df.peek_word({word}) != 0, "the word of the message")
    {use}
    df.eth_send_bytes_over_channel({word}, {word}, 16, 1)
"""
    + HOST
)
"""A message with its word of synchronisation: in front of the payload, or behind it."""
USES = (
    "df.read_bytes(buffer + 16, N)",
    "df.noc_async_write(buffer + 16, df.get_noc_addr(*place, 0x40000), N); df.noc_async_write_barrier()",
    "df.eth_send_packet(0, (buffer + 16) // 16, (buffer + 32) // 16 + N // 16, N // 16)",
)
BARRIER = (
    """
N, ROUNDS = 16384, 6

def sender(buffer, df):
    for number in range(ROUNDS):
        df.write_word(buffer, number + 1)
        df.write_word(buffer + N - 4, number + 1)
        df.eth_send_bytes_over_channel(buffer, buffer, N, 1)
        df.eth_wait_for_receiver_channel_done(1)

def receiver(buffer, place, df):
    for number in range(ROUNDS):
        df.eth_wait_for_bytes_on_channel(1)
        df.noc_async_write(buffer, df.get_noc_addr(*place, 0x40000 + number * N), N)
        {barrier}
        df.eth_receiver_channel_done(1)
    df.noc_async_write_barrier()
"""
    + HOST
)
CLEARS = """
def push(edm, semaphore, df):
    x, y, buffer, edm_semaphore = edm
    for _ in range(8):
        df.noc_semaphore_wait(semaphore, 1)
        {before}
        df.noc_async_write(0x40000, df.get_noc_addr(x, y, buffer), 64)
        df.noc_semaphore_inc(df.get_noc_addr(x, y, edm_semaphore), 1)
        {behind}

def pull(edm, semaphore, df):
    x, y, buffer, edm_semaphore = edm
    for _ in range(8):
        df.noc_semaphore_wait(semaphore, 1)
        {before}
        df.noc_async_read(df.get_noc_addr(x, y, buffer), 0x80000, 64)
        df.noc_async_read_barrier()
        df.noc_semaphore_inc(df.get_noc_addr(x, y, edm_semaphore), 1)
        {behind}

def worker(rank, world_size, tt):
    program, core, place = tt.create_program(), tt.ethernet_cores_to(1 - rank)[0], tt.workers[0]
    builder, semaphore = tt.edm_builder(1, 64), tt.create_semaphore(program, place)
    add = builder.add_receiver_channel if rank else builder.add_sender_channel
    channel = add(semaphore, 8, place, 64)
    builder.generate_edm_kernel(program, core)
    tt.create_kernel(program, pull if rank else push, place, args=((*core, *channel), semaphore))
    tt.enqueue_program(program)
    tt.finish()
"""
CLEAR = "df.noc_semaphore_set(semaphore, 0)"
ZEROS, ONES = "bytes(16)", "bytes([1]) * 16"


def found(folder: Path, capsys: pytest.CaptureFixture[str], source: str, seeds: int = 8) -> str:
    """The first difference that a search finds, or an empty text."""
    script = script_file(folder, source)
    assert run(*FLAGS, script).document["status"] == "ok", "without jitter nothing shows"
    code = main(["--seeds", str(seeds), *FLAGS, str(script)])
    lines = capsys.readouterr().out.splitlines()
    return lines[-2].partition(": ")[2] if code else ""


@pytest.mark.parametrize("use", USES, ids=["read", "NoC write", "Ethernet"])
def test_a_word_in_front_of_its_payload_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str], use: str) -> None:
    source = SYNC.format(first="buffer", word="buffer", use=use, sync=ONES)
    what = found(tmp_path, capsys, source)
    assert what.startswith("KernelMisuse: kernel receiver on 9-0 reads 4096 B at 0x1c010 of ethernet 9-0 of SIP 1")


def test_a_word_behind_its_payload_is_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = SYNC.format(first="(buffer + 16)", word="buffer + 16 + N", use=USES[0], sync=ONES)
    assert found(tmp_path, capsys, source) == ""


@pytest.mark.parametrize("barrier", ["pass", "df.noc_async_writes_flushed()", "df.eth_noc_async_write_barrier()"])
def test_a_buffer_that_is_free_before_its_bytes_have_left_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], barrier: str
) -> None:
    what = found(tmp_path, capsys, BARRIER.format(barrier=barrier, sync=ZEROS))
    assert what == ("different results: workers of rank 1" if barrier == "pass" else "")


@pytest.mark.parametrize("is_first", [False, True], ids=["behind", "before"])
def test_a_semaphore_that_is_cleared_behind_the_increment_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_first: bool
) -> None:
    before, behind = (CLEAR, "pass") if is_first else ("pass", CLEAR)
    what = found(tmp_path, capsys, CLEARS.format(before=before, behind=behind))
    assert what.startswith("Deadlock: kernel p") is not is_first
