"""Links that go down: retrained when the firmware of both ends runs, in ``run_routing`` and what contains it."""

from pathlib import Path

import pytest
from runs import Run, run, script_file

FLAGS = ("--topology", "n300")
DOWN = ("--fault", "link:0.eth8@100ns:2us")
"""The receiver's kernel has the core by then, and nothing is on its way."""
SCRIPT = """
def sender(buffer, df):
    df.instructions(200)
    df.eth_send_packet(0, buffer // 16, buffer // 16, 4)
    df.eth_wait_for_bytes_on_channel(1)

def receiver(buffer, df):
    while not df.read_word(buffer):
        df.instructions(50)
        {idle}
    print(df.get_timestamp_ns())
    df.eth_send_bytes_over_channel(buffer, buffer, 16, 1)

def worker(rank, world_size, tt):
    core, program = tt.ethernet_cores_to(1 - rank)[0], tt.create_program()
    if rank == 0:
        tt.write(core, tt.l1_base(core), bytes([5]) * 64)
    tt.create_kernel(program, receiver if rank else sender, core, args=(tt.l1_base(core),))
    tt.enqueue_program(program)
    tt.finish()
"""


def ends(folder: Path, idle: str, *flags: object) -> Run:
    return run(*FLAGS, *flags, script_file(folder, SCRIPT.format(idle=idle)))


def test_a_kernel_that_never_calls_the_firmware_is_named(tmp_path: Path) -> None:
    error = ends(tmp_path, "pass", *DOWN).document["error"]
    assert (error["kind"], error["rank"]) == ("KernelMisuse", 1)
    assert (
        "kernel receiver on 9-0 has not called run_routing since link 1.eth0>0.eth8 went down at 100ns"
        in error["message"]
    )


@pytest.mark.parametrize(
    "idle",
    [
        "df.run_routing()",
        "df.eth_noc_semaphore_wait(buffer + 64, 0)",
        "df.eth_send_packet(0, buffer // 16 + 8, buffer // 16 + 8, 1)",
    ],
)
def test_a_call_that_contains_it_lets_the_link_be_retrained(tmp_path: Path, idle: str) -> None:
    done = ends(tmp_path, idle, *DOWN)
    assert done.document["error"] is None
    late_ps = done.document["ranks"][1]["sim_end_ps"] - ends(tmp_path, idle).document["ranks"][1]["sim_end_ps"]
    assert 1_000_000 < late_ps < 3_500_000


def test_calls_that_only_look_do_not_contain_it(tmp_path: Path) -> None:
    idle = "df.eth_bytes_are_available_on_channel(1); df.eth_txq_is_busy(); df.eth_is_receiver_channel_send_done(1)"
    assert ends(tmp_path, idle, *DOWN).document["error"]["kind"] == "KernelMisuse"


LATE = "df.instructions(9000 if df.get_timestamp_ns() < 9000 else 0); df.run_routing()"


def test_what_waits_for_the_firmware_comes_as_late_as_it_runs(tmp_path: Path) -> None:
    """Retrained after 9 us and not after 2 us, whatever the time of the outage."""
    done = ends(tmp_path, LATE, *DOWN)
    assert done.document["error"] is None
    assert done.document["ranks"][1]["sim_end_ps"] > 9_000_000


def test_the_sender_holds_the_link_back_too(tmp_path: Path) -> None:
    """The message is on its way when the link goes down, and the sender's kernel has the core for 5 us more."""
    body = SCRIPT[SCRIPT.index("def worker") :]
    source = (
        "\ndef sender(buffer, df):\n"
        "    df.eth_send_packet(0, buffer // 16, buffer // 16, 4)\n"
        "    df.instructions(5000)\n"
        "    df.run_routing()\n"
        "\ndef receiver(buffer, df):\n"
        "    df.eth_noc_semaphore_wait(buffer, 0x05050505)\n\n" + body
    )
    done = run(*FLAGS, *DOWN, script_file(tmp_path, source))
    assert done.document["error"] is None
    assert done.document["ranks"][1]["sim_end_ps"] > 5_000_000


COSTS = """
def kernel(place, df):
    there = df.get_noc_addr(*place, 0x40000)
    def took(call):
        begin_ns = df.get_timestamp_ns()
        call()
        return df.get_timestamp_ns() - begin_ns - 40
    base = {base}
    assert took(df.run_routing) == 500
    assert took(lambda: df.eth_noc_semaphore_wait(base, 0)) == 6, "the first poll finds it"
    def write():
        df.noc_async_write(base, there, 64)
    write()
    plain = took(df.noc_async_write_barrier)
    write()
    assert 0 < plain < 500
    assert took(df.eth_noc_async_write_barrier) >= 506, "a poll finds nothing, and run_routing"
    df.noc_async_read(there, base, 64)
    plain = took(df.noc_async_read_barrier)
    df.noc_async_read(there, base, 64)
    assert took(df.eth_noc_async_read_barrier) == 506 + 6
    assert plain < 506

def worker(rank, world_size, tt):
    if rank == 0:
        program = tt.create_program()
        tt.create_kernel(program, kernel, tt.ethernet_cores_to(1)[0], args=(tt.workers[0],))
        tt.enqueue_program(program)
        tt.finish()
"""


def test_what_a_call_takes(tmp_path: Path) -> None:
    assert run(*FLAGS, script_file(tmp_path, COSTS.format(base=0x1C000))).document["error"] is None


OVERTAKING = """
def sender(buffer, df):
    df.instructions(200)
    df.eth_send_packet(0, buffer // 16, buffer // 16, 4)

def receiver(buffer, df):
    df.instructions(9000)

def worker(rank, world_size, tt):
    core, program = tt.ethernet_cores_to(1 - rank)[0], tt.create_program()
    tt.create_kernel(program, receiver if rank else sender, core, args=(tt.l1_base(core),))
    tt.enqueue_program(program)
    tt.finish()
    tt.open_fabric().terminate()
"""


def test_no_router_overtakes_a_message_that_waits_for_the_firmware(tmp_path: Path) -> None:
    """The receiver's kernel holds the message back for 9 us; the sender's router opens long before."""
    done = run(*FLAGS, *DOWN, script_file(tmp_path, OVERTAKING), keep_oplog=True)
    assert done.document["error"] is None
    arrived = [record for record in done.members[1].chip.oplog.records if record[0] == "eth.arrive"]
    core = arrived[0][3:5]
    first, second = [record for record in arrived if record[3:5] == core][:2]
    assert (first[6], second[6]) == (64, 96)
    assert second[1] >= first[1] > 9_000_000
