"""Durations of kernels, programs and operations: rows, launches and trace; a chip that starts late."""

import csv
from pathlib import Path

import pytest
from runs import Run, run, script_file

GATHER = """
import numpy as np

def worker(rank, world_size, tt):
    tensor = tt.tensor(np.ones((64, 32), np.float32))
    tt.all_gather(tensor)
    tt.all_reduce(tensor)
"""
PROGRAMS = """
def sender(buffer, df):
    df.eth_send_bytes(buffer, buffer, 64)
    df.eth_wait_for_receiver_done()

def receiver(buffer, df):
    df.eth_wait_for_bytes(64)
    df.eth_receiver_channel_done(0)

def idle(df):
    df.instructions(700)

def server(df):
    df.wait_until(lambda: False, "nothing")

def worker(rank, world_size, tt):
    core = tt.ethernet_cores_to(1 - rank)[0]
    program = tt.create_program()
    tt.create_kernel(program, [sender, receiver][rank], core, args=(tt.l1_base(core),))
    tt.create_kernel(program, idle, tt.workers[0])
    tt.create_kernel(program, server, tt.workers[1], is_server=True)
    tt.enqueue_program(program)
    program = tt.create_program()
    tt.create_kernel(program, idle, tt.workers[0])
    tt.create_kernel(program, idle, tt.workers[2])
    tt.enqueue_program(program)
    tt.finish()
"""
BEHIND = """
def idle(df):
    df.instructions(100)

def server(buffer, df):
    df.instructions(1000)
    df.eth_send_bytes(buffer, buffer, 64)

def worker(rank, world_size, tt):
    core = tt.ethernet_cores_to(1 - rank)[0]
    program = tt.create_program()
    tt.create_kernel(program, idle, tt.workers[0])
    tt.create_kernel(program, server, core, args=(tt.l1_base(core),), is_server=True)
    tt.enqueue_program(program)
    tt.finish()
"""
"""A server that sends after the end of its program."""
OWES = """
WORD = 0x20000

def ower(far, start_ns, df):
    df.instructions(start_ns)
    df.owe(1000)
    df.noc_semaphore_inc(df.get_noc_addr(*far, WORD), 1)
    df.owe(1000)
    df.wait_until(lambda: df.memory.word(WORD) == 1, "the other kernel")
    df.owe_polls(100)

def worker(rank, world_size, tt):
    program = tt.create_program()
    for number in range(2):
        core, far = tt.workers[number], tt.workers[1 - number]
        tt.create_kernel(program, ower, core, args=(far, 5000 * number))
    tt.enqueue_program(program)
    tt.finish()
"""
SEND = """
import numpy as np

def worker(rank, world_size, tt):
    tt.send_receive(tt.tensor(np.ones((64, 32), np.float32)), 0, 1)
"""


def passed(folder: Path, source: str, *flags: object) -> Run:
    done = run("--topology", "n300", *flags, script_file(folder, source))
    assert done.document["status"] == "ok", done.document["error"]
    return done


def test_an_operation_is_a_row_of_its_chips(tmp_path: Path) -> None:
    """8 KiB of each of two chips cross the link once per operation; the larger tensor is the gathered one."""
    gathered, reduced = passed(tmp_path, GATHER).document["runs"]
    names = [(each["collective"], each["algorithm"], each["op"]) for each in (gathered, reduced)]
    assert names == [("all_gather", "all_gather_line", "none"), ("all_reduce", "all_reduce_line", "sum")]
    assert (gathered["bytes"], gathered["count"], gathered["dtype"]) == (16384, 4096, "f32")
    assert (reduced["bytes"], reduced["group"], reduced["kernels"]) == (8192, [0, 1], 14)
    assert gathered["busbw_GBps"] == pytest.approx(gathered["algbw_GBps"] / 2)
    assert gathered["time_ns"] == pytest.approx(gathered["bytes"] / gathered["algbw_GBps"])
    assert all(2 * 8192 < each["link_payload_bytes"] < 2 * 8192 + 1024 for each in (gathered, reduced))


def test_the_traffic_of_the_run_is_in_rows_but_for_the_routers_own(tmp_path: Path) -> None:
    document = passed(tmp_path, GATHER).document
    parts = [{link["name"]: link["payload_bytes"] for link in row["links"]} for row in document["runs"]]
    whole = {link["name"]: link["payload_bytes"] for link in document["whole_run"]["links"]}
    # Each operation has routers, whose handshake precedes the row, and whose ends of 16 B follow the row.
    assert {name: nbytes - sum(part[name] for part in parts) for name, nbytes in whole.items() if nbytes} == {
        "0.eth8>1.eth0": 2 * (96 + 2 * 16),
        "1.eth0>0.eth8": 2 * (96 + 2 * 16),
    }


def test_a_program_is_a_row_of_its_chip(tmp_path: Path) -> None:
    document = passed(tmp_path, PROGRAMS).document
    rows = [(each["group"], each["algorithm"], each["bytes"], each["kernels"]) for each in document["runs"]]
    # The sender sends 64 B and the words of flow control, the receiver the words alone.
    assert sorted(rows) == [
        ([0], "idle", 0, 2),
        ([0], "sender+idle", 64 + 16, 2),
        ([1], "idle", 0, 2),
        ([1], "receiver+idle", 16, 2),
    ]
    first, second = (each for each in document["runs"] if each["group"] == [0])
    assert second["time_ns"] == 700
    launches = [each for each in document["launches"] if each["rank"] == 0]
    assert [(each["name"], each["pes"], each["kernels"]) for each in launches] == [
        ("sender", "tile 9-6", 1),
        ("idle", "tile 1-1", 1),
        ("idle", "tiles 1-1, 3-1", 2),
    ]
    assert [document["runs"][each["run"]] for each in launches] == [first, first, second]
    sender = launches[0]
    assert (sender["start_ns"], sender["end_ns"]) == (0, first["time_ns"])
    assert sum(sender["busy_ns"].values()) == first["time_ns"]
    assert [each["launches"] for each in document["ranks"]] == [3, 3]


def test_a_late_chip_misleads_the_durations_of_the_others(tmp_path: Path) -> None:
    """The chip that starts last has the duration of the operation; the other one waits for it."""
    late = "system.chip_params.launch.start_skew_ns={1: 100000}"
    document = passed(tmp_path, GATHER, "--set", late).document
    first, last = (
        next(each for each in document["launches"] if each["rank"] == rank and each["name"] == "writer")
        for rank in (0, 1)
    )
    even = passed(tmp_path, GATHER).document["runs"][0]["time_ns"]
    assert last["start_ns"] == 100_000
    assert last["end_ns"] - last["start_ns"] <= even
    assert first["end_ns"] - first["start_ns"] > 100_000
    assert document["runs"][0]["time_ns"] > 100_000


def test_the_trace_and_the_op_log_have_the_kernels(tmp_path: Path) -> None:
    trace, log = tmp_path / "trace.csv", tmp_path / "log"
    done = passed(tmp_path, PROGRAMS, "--trace-ccl", trace, "--oplog", log)
    with trace.open() as file:
        lines = list(csv.DictReader(file))
    kernels = [each for each in lines if each["op"] == "kernel" and each["rank"] == "0"]
    found = [(each["phase"], each["run"], int(each["t_ps"]) - int(each["start_ps"])) for each in kernels]
    sender_ps = done.document["runs"][-1 if done.document["runs"][-1]["group"] == [0] else -2]["time_ps"]
    assert sorted(found)[:3] == [("idle", "0", 700_000), ("idle", "1", 700_000), ("idle", "1", 700_000)]
    assert found[1][0] == "sender"
    assert found[1][2] >= sender_ps
    sent = [(each["dir"], each["nbytes"], each["peer"]) for each in lines if each["op"] == "send"]
    assert sent == [("eth8", "64", "1.9.0"), ("eth8", "16", "1.9.0"), ("eth0", "16", "0.9.6")]
    assert [each["dir"] for each in lines if each["op"] == "recv"] == ["eth0", "eth0", "eth8"]
    logged = [line.split() for line in log.read_text().splitlines()]
    assert [each[-2] for each in logged if each[:2] == ["0", "kernel"]] == ["name=idle", "name=sender"] + 2 * [
        "name=idle"
    ]


def test_records_of_kernels_do_not_change_the_digest(tmp_path: Path) -> None:
    done = run("--topology", "n300", script_file(tmp_path, PROGRAMS), keep_oplog=True)
    kinds = {record[0] for member in done.members for record in member.chip.oplog.records}
    assert kinds == {"eth.send", "eth.arrive"}


def test_what_a_chip_sends_after_a_row_is_in_no_row(tmp_path: Path) -> None:
    """The record that the chip streams at the end of the row is the record of the results."""
    done = passed(tmp_path, BEHIND)
    rows = [
        (each["group"], each["bytes"], each["link_payload_bytes"], each["time_ns"]) for each in done.document["runs"]
    ]
    assert rows == [([0], 0, 0, 100), ([1], 0, 0, 100)]
    assert done.document["whole_run"]["link_payload_bytes"] == 2 * (64 + 16)
    assert done.outcome._records == [list(done.outcome.ranks[rank].runs) for rank in range(2)]


def test_instructions_that_a_wait_spends_are_instructions(tmp_path: Path) -> None:
    """One of two kernels waits 5 us in its wait, the other one polls once; a NoC command takes 45 ns."""
    first, *_ = passed(tmp_path, OWES).document["launches"]
    used = first["busy_ns"]
    assert used["instructions"] == 5000 + 2 * (1000 + 45 + 1000)
    assert used["polls"] > 5000
    assert set(used) == {"instructions", "polls"}


def test_an_operation_in_which_chips_have_no_kernels_is_a_row(tmp_path: Path) -> None:
    """Two of the chips send and receive; six enqueue programs without kernels."""
    no_barrier = "system.chip_params.ccl.has_barrier=false"
    done = run("--topology", "t3000", "--set", no_barrier, script_file(tmp_path, SEND))
    (row,) = done.document["runs"]
    assert (row["collective"], row["bytes"], row["kernels"]) == ("send_recv", 64 * 32 * 4, 3)
    assert row["time_ns"] == max(each["end_ns"] for each in done.document["launches"])
    without = [each.runs[0].kernels_ps for each in done.outcome.ranks.values()]
    assert without.count((None,)) == 6
