"""Mistakes that hardware punishes: writes into the firmware's memory, words between words, buffers of two channels."""

import re
from pathlib import Path

import pytest
from runs import Run, run, script_file

FLAGS = ("--topology", "n300")
SCRIPT = """
def guilty(here, there, df):
    {call}

def idle(df):
    df.instructions(5000)

def worker(rank, world_size, tt):
    program = tt.create_program()
    core = tt.{place} if rank == 0 else tt.ethernet_cores_to(0)[0]
    if rank == 0:
        tt.create_kernel(program, guilty, core, args=(tt.l1_base(core), tt.workers[1]))
    else:
        tt.create_kernel(program, idle, core)
    tt.enqueue_program(program)
    tt.finish()
"""
ETHERNET, WORKER = "ethernet_cores_to(1)[0]", "workers[0]"
FIRMWARE = "where the firmware is"


def line_of(done: Run) -> int:
    """The line of the script at which the run failed."""
    assert done.outcome.error is not None
    found = re.search(r"\.py:(\d+):", done.outcome.error.detail)
    assert found is not None
    return int(found[1])


def test_an_operation_is_refused_with_the_line_of_its_call(tmp_path: Path) -> None:
    """Not with one of Python's library, through which the operation opens its fabric."""
    call = "tt.all_gather(tt.tensor(np.ones(4, np.int32)), chips=[0, 0])"
    source = f"import numpy as np\ndef worker(rank, world_size, tt):\n    {call}\n"
    assert line_of(run("--topology", "n300", script_file(tmp_path, source))) == 3


@pytest.mark.parametrize("given", ["num_links=2", "topology='ring'"])
def test_arguments_that_the_given_fabric_contradicts_are_refused(tmp_path: Path, given: str) -> None:
    call = f"tt.all_gather(tt.tensor(np.ones(4, np.int32)), fabric=tt.open_fabric(), {given})"
    source = f"import numpy as np\ndef worker(rank, world_size, tt):\n    {call}\n"
    error = run("--topology", "n300", script_file(tmp_path, source)).document["error"]
    assert error["kind"] == "KernelMisuse"
    assert "the given fabric is a line" in error["message"]


def refused(folder: Path, place: str, call: str) -> Run:
    return run(*FLAGS, script_file(folder, SCRIPT.format(place=place, call=call)))


@pytest.mark.parametrize(
    ("place", "call", "kind", "words"),
    [
        (ETHERNET, "df.write_word(0x1aff0, 1)", "MemoryAccessError", ("0x1aff0 of ethernet", FIRMWARE)),
        (ETHERNET, "df.write_bytes(0x1aff0, bytes(32))", "MemoryAccessError", ("32 B at 0x1aff0", FIRMWARE)),
        (ETHERNET, "df.eth_send_packet(0, here // 16, 0, 1)", "MemoryAccessError", ("over its link", "0x0", FIRMWARE)),
        (ETHERNET, "df.eth_send_bytes(here, 0x1aff0, 16)", "MemoryAccessError", ("0x1aff0", FIRMWARE)),
        (WORKER, "df.write_bytes(0, bytes(16))", "MemoryAccessError", ("0x0 of tensix 1-1", FIRMWARE)),
        (WORKER, "df.noc_async_write(here, df.get_noc_addr(*there, 0xfff0), 64)", "MemoryAccessError", ("0xfff0",)),
        (WORKER, "df.noc_async_read(df.get_noc_addr(*there, 0), 0, 64)", "MemoryAccessError", ("0x0 of tensix 1-1",)),
        (WORKER, "df.noc_semaphore_inc(df.get_noc_addr(*there, 64), 1)", "MemoryAccessError", ("4 B at 0x40",)),
        (WORKER, "df.noc_semaphore_inc(df.get_noc_addr(*there, here + 2), 1)", "KernelMisuse", ("multiple of 4",)),
        (WORKER, "df.noc_semaphore_set(here + 1, 1)", "KernelMisuse", ("multiple of 4",)),
        (WORKER, "df.noc_semaphore_wait(here + 1, 0)", "KernelMisuse", ("multiple of 4",)),
        (WORKER, "df.noc_semaphore_wait_min(here + 1, 0)", "KernelMisuse", ("multiple of 4",)),
        (WORKER, "df.read_word(here + 3)", "KernelMisuse", ("multiple of 4",)),
        (ETHERNET, "df.eth_send_bytes(here + 8, here, 16)", "KernelMisuse", (f"{0x1C000 + 8}", "16 B")),
        (ETHERNET, "df.eth_send_bytes(here, here + 8, 16)", "KernelMisuse", (f"{0x1C000 + 8}", "16 B")),
        (ETHERNET, "df.eth_send_bytes(here, here, 24)", "KernelMisuse", ("24", "16 B")),
        (ETHERNET, "df.eth_send_bytes(here, df.sync_address(3), 16)", "KernelMisuse", ("words of flow control",)),
    ],
)
def test_it_is_refused_with_kernel_line_and_address(
    tmp_path: Path, place: str, call: str, kind: str, words: tuple[str, ...]
) -> None:
    done = refused(tmp_path, place, call)
    error = done.document["error"]
    assert (error["kind"], error["rank"], line_of(done)) == (kind, 0, 3)
    assert "kernel guilty on " in error["message"]
    assert all(word in error["message"] for word in words), error["message"]


def test_the_first_address_of_programs_may_be_written(tmp_path: Path) -> None:
    for place, base in ((ETHERNET, 0x1B000), (WORKER, 0x10000)):
        assert refused(tmp_path, place, f"df.write_word({base}, 0)").document["status"] == "ok"


def test_the_host_does_not_write_into_the_firmware(tmp_path: Path) -> None:
    source = "def worker(rank, world_size, tt):\n    tt.write(tt.workers[0], 0xffff, b'ab')\n"
    done = run(*FLAGS, script_file(tmp_path, source))
    assert (done.document["error"]["kind"], line_of(done)) == ("MemoryAccessError", 2)


CHANNELS = """
def sender(buffer, df):
    df.eth_send_bytes_over_channel(buffer, buffer, 1024, 1)
    {wait}
    df.eth_send_bytes_over_channel(buffer + 4096, buffer + {offset}, 1024, {channel})
    df.eth_wait_for_receiver_channel_done(1)
    df.eth_wait_for_receiver_channel_done({channel})

def receiver(df):
    for channel in (1, {channel}):
        df.eth_wait_for_bytes_on_channel(channel)
        df.eth_receiver_channel_done(channel)

def worker(rank, world_size, tt):
    core, program = tt.ethernet_cores_to(1 - rank)[0], tt.create_program()
    if rank == 0:
        tt.create_kernel(program, sender, core, args=(tt.l1_base(core),))
    else:
        tt.create_kernel(program, receiver, core)
    tt.enqueue_program(program)
    tt.finish()
"""


@pytest.mark.parametrize(
    ("wait", "offset", "channel", "is_right"),
    [
        ("pass", 1008, 2, False),
        ("pass", 1024, 2, True),
        ("pass", 512, 1, False),
        ("df.eth_wait_for_receiver_channel_done(1)", 512, 2, True),
        ("df.eth_wait_for_receiver_channel_done(1)", 0, 1, True),
    ],
)
def test_a_buffer_has_one_channel_until_the_receiver_is_done(
    tmp_path: Path, wait: str, offset: int, channel: int, is_right: bool
) -> None:
    script = script_file(tmp_path, CHANNELS.format(wait=wait, offset=offset, channel=channel))
    done = run(*FLAGS, script)
    error = done.document["error"]
    if is_right:
        assert error is None
    else:
        assert (error["kind"], line_of(done)) == ("KernelMisuse", 5)
        assert f"0x{0x1C000 + offset:x}" in error["message"]


BUILDER = """
def worker(rank, world_size, tt):
    program = tt.create_program()
    builder = tt.edm_builder({arguments})
    builder.add_sender_channel({channel})
    builder.generate_edm_kernel({kernel})
"""
RIGHT = (
    '1, 2048, "NOT_SHARED", "MESSAGE_COUNT_REACHED"',
    "0x10000, 1, (1, 1), 64",
    "program, tt.ethernet_cores_to(1 - rank)[0]",
)


@pytest.mark.parametrize(
    ("place", "wrong", "words"),
    [
        (0, '1, 2048, "ROUND_ROBIN"', ("buffer_sharing='ROUND_ROBIN'", "not simulated", "NOT_SHARED")),
        (0, '1, 2048, "SHARED"', ("buffer_sharing='SHARED'", "not simulated", "NOT_SHARED")),
        (0, '1, 2048, "MESSAGE_COUNT_REACHED", "NOT_SHARED"', ("buffer_sharing='MESSAGE_COUNT_REACHED'",)),
        (0, "1, 2048, 0", ("buffer_sharing=0", "NOT_SHARED, ROUND_ROBIN, SHARED")),
        (0, '1, 2048, "NOT_SHARED", True', ("termination=True",)),
        (0, '1, 2048, is_merged="NOT_SHARED"', ("is_merged='NOT_SHARED'",)),
        (0, '"1", 2048', ("num_channels='1'",)),
        (0, "1, 2048.5", ("page_bytes=2048.5",)),
        (1, "0x10000, True, (1, 1), 64", ("num_messages=True",)),
        (1, '0x10000, 1, "1-1", 64', ("worker_coords='1-1'",)),
        (1, "0x10000, 1, (1, 1), None", ("message_bytes=None",)),
        (1, "0x10002, 1, (1, 1), 64", ("worker_semaphore_address=0x10002", "multiple of 4")),
        (2, "tt, tt.ethernet_cores_to(1 - rank)[0]", ("program=", "Program")),
        (2, "program, tt.ethernet_cores_to(1 - rank)[0], 2", ("noc=2",)),
    ],
)
def test_a_builder_refuses_arguments_of_other_types_by_name(
    tmp_path: Path, place: int, wrong: str, words: tuple[str, ...]
) -> None:
    given = [wrong if number == place else right for number, right in enumerate(RIGHT)]
    source = BUILDER.format(arguments=given[0], channel=given[1], kernel=given[2])
    error = run(*FLAGS, script_file(tmp_path, source)).document["error"]
    assert error["kind"] == "KernelMisuse"
    assert all(word in error["message"] for word in words), error["message"]
