"""Kernels on tiles: what their calls take by hand, what they wait for, what is refused, any order of the mail."""

import re
from pathlib import Path

import pytest
from runs import Run, run, script_file

CHIP = ("--set", "system.chip=wormhole", "--link", "ethernet_100g")
COSTS = {"noc_command_ns": 50, "eth_command_ns": 15, "poll_ns": 6, "l1_access_ns": 5, "timer_ns": 20}
SETTINGS = ("ethernet.copy_GBps=null", *(f"risc.{key}={value}" for key, value in COSTS.items()))
BY_HAND = [word for each in SETTINGS for word in ("--set", f"system.chip_params.{each}")]
HEAD = """
def one_kernel(tt, core, kernel, *args, **how):
    program = tt.create_program()
    tt.create_kernel(program, kernel, core, None, args, **how)
    tt.enqueue_program(program)
    tt.finish()
"""


def run_script(folder: Path, source: str, *flags: object, sips: int = 1, **how: object) -> Run:
    shape = ("--topology", "mesh_2d_no_wrap", "--shape", f"{sips}x1") if sips > 1 else ()
    return run(*CHIP, *BY_HAND, "--sips", sips, *shape, *flags, script_file(folder, HEAD + source), **how)


def passed(done: Run) -> Run:
    assert done.document["status"] == "ok", done.document["error"]
    return done


TIMES = """
def kernel(there, df):
    address = df.get_noc_addr(*there, 0x30000)
    begin = df.get_timestamp_ns()
    {calls}
    took_ns = df.get_timestamp_ns() - begin - 20
    assert took_ns == {expected}, took_ns

def worker(rank, world_size, tt):
    here, there = tt.workers[0], tt.workers[12]
    assert (here, there) == ((1, 1), (6, 2))
    tt.write(here, 0x20000, bytes(range(256)) * 4)
    one_kernel(tt, here, kernel, there)
"""
HOPS, HOPS_BACK = 5 + 1, 5 + 11
"""From 1-1 to 6-2 on NoC 0, and on around both rings."""
WRITE = 50 + 10 + 9 * HOPS + 33
"""1024 B: a command, the head's way, 32 flits and a header."""


def looks(ns: int, begin: int) -> int:
    """When a loop that looks every 6 ns from ``begin`` on knows what is so from ``ns`` on: a look takes its 6 ns."""
    return begin + -(-(ns - begin) // 6) * 6 + 6


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ("df.noc_async_write(0x20000, address, 1024)", 50),
        ("df.noc_async_write(0x20000, address, 1024); df.noc_async_writes_flushed()", 50 + 33),
        ("df.noc_async_write(0x20000, address, 4096); " * 2 + "df.noc_async_writes_flushed()", 50 + 2 * 129),
        (
            "df.noc_async_write_one_packet_with_trid(0x20000, address, 4096, 3); assert not df.are_writes_sent(3); "
            "assert df.are_writes_sent(4); df.wait_until(lambda: df.are_writes_sent(3), 'a write to leave')",
            looks(50 + 129, 50),
        ),
        ("df.instructions(12.5)", 12.5),
        (
            "df.noc_async_write(0x20000, address, 1024); df.noc_async_write_barrier()",
            max(looks(WRITE, 50), WRITE + 10 + 9 * HOPS_BACK + 2),
        ),
        ("df.noc_semaphore_inc(address, 1); df.noc_async_write_barrier()", 50),
        (
            "df.noc_async_read(address, 0x40000, 1024); df.noc_async_read_barrier()",
            looks(50 + 10 + 9 * HOPS + 2 + 10 + 9 * HOPS_BACK + 33, 50),
        ),
        ("df.write_word(0x20000, 7); assert df.read_word(0x20000) == 7", 10),
        ("df.noc_semaphore_set(0x20000, 7); df.noc_semaphore_wait(0x20000, 7)", 5 + 6),
        ("df.noc_semaphore_set(0x20000, 7); df.noc_semaphore_wait_min(0x20000, 3)", 5 + 6),
    ],
)
def test_what_calls_take(tmp_path: Path, calls: str, expected: int) -> None:
    passed(run_script(tmp_path, TIMES.format(calls=calls, expected=expected)))


ORDER = """
def writer(there, semaphore, df):
    for number in range(20):
        df.noc_async_write(0x20000 + 64 * number, df.get_noc_addr(*there, 0x30000 + 64 * number), 64)
        df.noc_semaphore_inc(df.get_noc_addr(*there, semaphore), 1)

def reader(semaphore, df):
    for number in range(20):
        df.noc_semaphore_wait_min(semaphore, number + 1)
        assert df.read_bytes(0x30000 + 64 * number, 64) == bytes([number + 1]) * 64

def worker(rank, world_size, tt):
    here, there = tt.workers[3], tt.workers[70]
    program = tt.create_program()
    semaphore = tt.create_semaphore(program, there)
    for number in range(20):
        tt.write(here, 0x20000 + 64 * number, bytes([number + 1]) * 64)
    tt.create_kernel(program, writer, here, args=(there, semaphore))
    tt.create_kernel(program, reader, there, tt.DataMovementConfig(processor=1, noc=1), (semaphore,))
    tt.enqueue_program(program)
    tt.finish()
"""


def test_a_semaphore_comes_behind_the_writes_before_it(tmp_path: Path) -> None:
    passed(run_script(tmp_path, ORDER))


def test_polls_without_a_find_cost_no_events(tmp_path: Path) -> None:
    """A word that is set a millisecond later: 160,000 looks."""
    source = """
def kernel(df):
    df.noc_semaphore_wait(0x20000, 1)
    assert df.get_timestamp_ns() == 20 + 6 * -(-1_000_000 // 6) + 6

def late(there, df):
    df._processor.spend(1_000_000_000 - 50_000 - (10 + 9 * 20 + 2) * 1000)
    df.noc_semaphore_inc(df.get_noc_addr(*there, 0x20000), 1)

def worker(rank, world_size, tt):
    program = tt.create_program()
    tt.create_kernel(program, kernel, tt.workers[0])
    other = tt.workers[0]._replace(x=1, y=3)
    assert other in tt.workers
    tt.create_kernel(program, late, other, args=(tt.workers[0],))
    tt.enqueue_program(program)
    tt.finish()
"""
    done = passed(run_script(tmp_path, source.replace("9 * 20", "9 * 10")))
    assert done.members[0].session.engine.events < 20


LINK = """
def sender(buffer, nbytes, df):
    df.eth_send_bytes_over_channel(buffer, buffer, nbytes, 3)
    df.eth_wait_for_receiver_channel_ack(3)
    df.eth_wait_for_receiver_channel_done(3)

def receiver(buffer, nbytes, df):
    df.eth_wait_for_bytes(nbytes, 3)
    df.eth_receiver_channel_ack(3, df.ack_address)
    assert df.read_bytes(buffer, nbytes) == bytes(range(256)) * (nbytes // 256)
    df.eth_receiver_channel_done(3)

def worker(rank, world_size, tt):
    (core,) = tt.ethernet_cores_to(1 - rank)
    far_rank, far_core = tt.get_connected_ethernet_core(core)
    assert far_rank == 1 - rank and [core, far_core] in ([(9, 0), (1, 0)], [(1, 0), (9, 0)])
    assert tt.get_active_ethernet_cores() == [core]
    buffer = tt.l1_base(core)
    if rank == 0:
        tt.write(core, buffer, bytes(range(256)) * 8)
    one_kernel(tt, core, receiver if rank else sender, buffer, 2048)
"""


@pytest.mark.ideal
def test_a_message_over_a_link(tmp_path: Path) -> None:
    """15 ns for the command; 2048 B in two frames at 12.5 GB/s and 500 ns; then the word of flow control behind it."""
    done = passed(run_script(tmp_path, LINK, sips=2, keep_oplog=True))
    link = done.prepared.plan.system.link_kinds[0]
    wire_ps, word_ps = link.drain_ps(2048), link.drain_ps(16)
    sends = [record for record in done.members[0].chip.oplog.records if record[0] == "eth.send"]
    assert [(record[2], record[-2], record[-1]) for record in sends] == [
        (15_000, 15_000 + wire_ps, 15_000 + wire_ps + link.latency_ps),
        (35_000, 15_000 + wire_ps + word_ps, 15_000 + wire_ps + word_ps + link.latency_ps),
    ]
    assert [rank["bytes_sent"] for rank in done.document["ranks"]] == [2048 + 16, 16 + 16]
    whole = done.document["whole_run"]
    used = {each["name"]: (each["frames"], each["payload_bytes"], each["wire_bytes"]) for each in whole["links"]}
    frames_bytes = {nbytes: link.wire_bytes(nbytes) for nbytes in (2048, 16)}
    assert frames_bytes == {2048: 2048 + 2 * 50, 16: 16 + 50}
    assert used == {
        "0.E>1.W": (2, 2048 + 16, frames_bytes[2048] + frames_bytes[16]),
        "1.W>0.E": (2, 16 + 16, 2 * frames_bytes[16]),
    }
    assert whole["busiest_link"] == "0.E>1.W"
    assert whole["busiest_link_utilisation"] * whole["time_ns"] == pytest.approx((wire_ps + word_ps) / 1000)


def test_the_mail_does_not_matter(tmp_path: Path) -> None:
    plain = passed(run_script(tmp_path, LINK, sips=2)).document["digest"]
    for seed in range(4):
        assert passed(run_script(tmp_path, LINK, sips=2, mail_seed=seed)).document["digest"] == plain


def test_parameters_are_in_the_digest(tmp_path: Path) -> None:
    """Also those that change no time of this run."""
    flags = ("--set", "system.chip_params.dram.latency_ns=201")
    digests = {passed(run_script(tmp_path, LINK, *more, sips=2)).document["digest"] for more in ((), flags)}
    assert len(digests) == 2


def test_a_source_that_is_used_again_too_soon(tmp_path: Path) -> None:
    """The payload leaves L1 while it is on the wire; the kernel does not wait for the receiver."""
    wait, change = "df.eth_wait_for_receiver_channel_ack(3)", "df.write_bytes(buffer + 2044, b'next')"
    source = LINK.replace(wait, change)
    error = run_script(tmp_path, source, sips=2).document["error"]
    assert error["kind"] == "SourceReused"
    told = r"kernel sender on 9-0 writes 4 bytes at 0x\w+ of ethernet 9-0 of SIP 0, which an Ethernet"
    assert re.match(told, error["message"])


def test_a_deadlock_names_kernels_and_what_they_wait_for(tmp_path: Path) -> None:
    source = LINK.replace("    df.eth_receiver_channel_done(3)\n", "")
    error = run_script(tmp_path, source, sips=2).outcome.error
    assert error is not None
    assert error.kind == "Deadlock"
    assert "kernel sender on 9-0 waits for the receiver of channel 3 to be done" in error.detail + error.message


def test_a_server_need_not_end(tmp_path: Path) -> None:
    source = """
def serve(df):
    while True:
        df.noc_semaphore_wait(0x20000, 1)
        df.noc_semaphore_set(0x20000, 0)

def worker(rank, world_size, tt):
    one_kernel(tt, tt.workers[0], serve, is_server=True)
"""
    passed(run_script(tmp_path, source))


def test_a_program_starts_behind_the_one_before_it(tmp_path: Path) -> None:
    """On other tiles, too, and its semaphores are set then, not when it is enqueued."""
    source = """
def first(semaphore, df):
    df.instructions(500)
    df.noc_semaphore_wait(semaphore, 1)

def second(semaphore, df):
    assert df.get_timestamp_ns() == 506 + 20
    df.noc_semaphore_wait(semaphore, 2)

def worker(rank, world_size, tt):
    for number, kernel in enumerate((first, second)):
        program = tt.create_program()
        core = tt.workers[number]
        semaphore = tt.create_semaphore(program, tt.workers[0], number + 1)
        assert tt.create_semaphore(program, core, number + 1) in (semaphore, semaphore + 16)
        tt.create_kernel(program, kernel, core, args=(semaphore,))
        tt.enqueue_program(program)
    tt.finish()
"""
    passed(run_script(tmp_path, source))


def test_a_program_behind_one_that_never_ends_is_told(tmp_path: Path) -> None:
    source = """
def stuck(df):
    df.noc_semaphore_wait(0x20000, 1)

def late(df):
    pass

def worker(rank, world_size, tt):
    for kernel in (stuck, late):
        program = tt.create_program()
        tt.create_kernel(program, kernel, tt.workers[0])
        tt.enqueue_program(program)
"""
    error = run_script(tmp_path, source).outcome.error
    assert error is not None
    assert error.kind == "Deadlock"
    assert "kernel late on 1-1 waits for the programs before its own" in error.message + error.detail


def test_a_loop_around_a_look_takes_what_a_wait_takes(tmp_path: Path) -> None:
    """The payload comes at any time of a look: both see it at the end of the first look that begins behind it."""
    loop = "    while not df.eth_bytes_are_available_on_channel(3):\n        pass\n"
    wait = "    df.eth_wait_for_bytes_on_channel(3)\n"
    for late_ns in range(6):
        ends = []
        for how in (loop, wait):
            source = LINK.replace("    df.eth_wait_for_bytes(nbytes, 3)\n", how)
            head = "def sender(buffer, nbytes, df):\n"
            source = source.replace(head, f"{head}    df.instructions({late_ns})\n")
            done = passed(run_script(tmp_path, source, sips=2))
            ends.append([rank["sim_end_ps"] for rank in done.document["ranks"]])
        assert ends[0] == ends[1]


def test_a_script_may_ask_whether_there_is_a_call(tmp_path: Path) -> None:
    source = "def worker(rank, world_size, tt):\n    assert not hasattr(tt, 'distributed') and hasattr(tt, 'finish')\n"
    passed(run_script(tmp_path, source))


def test_others_pass_between_the_packets_of_a_long_write(tmp_path: Path) -> None:
    """A write of 512 KiB and a small one to the same tile: the small one waits for a packet, not for all."""
    source = """
def long(there, df):
    df.noc_async_write(0x20000, df.get_noc_addr(*there, 0x20000), 2**19)
    df.noc_async_write_barrier()

def short(there, df):
    df.instructions(4000)
    df.noc_async_write(0x20000, df.get_noc_addr(*there, 0x10000), 32)
    df.noc_async_write_barrier()
    assert df.get_timestamp_ns() < 4000 + 1000

def worker(rank, world_size, tt):
    program = tt.create_program()
    tt.create_kernel(program, long, tt.workers[0], args=(tt.workers[3],))
    tt.create_kernel(program, short, tt.workers[1], args=(tt.workers[3],))
    tt.enqueue_program(program)
    tt.finish()
"""
    passed(run_script(tmp_path, source))


def test_a_long_store_into_a_source_is_found(tmp_path: Path) -> None:
    """It begins while the link reads, and ends behind that."""
    wait, change = "df.eth_wait_for_receiver_channel_ack(3)", "df.write_bytes(buffer, bytes(2048))"
    error = run_script(tmp_path, LINK.replace(wait, change), sips=2).document["error"]
    assert error["kind"] == "SourceReused"
