"""Muxes that are used as they must not be, and what the end of a run and a deadlock say of their channels."""

from pathlib import Path

import pytest
from fabric_runs import flags, left
from runs import Run, run, script_file

from sipsim.chips.tensix.fabric.channels import Ring, SenderChannel, SlotCredits
from sipsim.chips.tensix.fabric.router import unsettled

SCRIPT = """
from sipsim.chips.tensix.fabric.connection import FabricSender
from sipsim.chips.tensix.fabric.packet import unicast, write_to

def send(endpoint, packets, df):
    fabric = FabricSender(endpoint, df)
    fabric.open()
    for _ in range(packets):
        fabric.send(unicast(1), write_to((1, 1), 0x40000), 0x30000, 64)
    fabric.close()

def worker(rank, world_size, tt):
    fabric = tt.open_fabric() if rank == 0 or {is_open} else None
    core, *others = tt.workers
    if rank == 0:
        muxes, program = tt.create_program(), tt.create_program()
        mux = fabric.create_mux(muxes, core, "forward", 2)
        for channel, client in enumerate(others[:2]):
            tt.create_kernel(program, send, client, args=(fabric.connect_to_mux(mux, channel, client), {packets}))
        {more}
        tt.enqueue_program(program)
    tt.finish()
"""
BEGUN = "tt.enqueue_program(muxes)"


def run_mux(folder: Path, packets: int, more: str, is_open: bool = True) -> Run:
    return run(*flags(2), script_file(folder, SCRIPT.format(packets=packets, more=more, is_open=is_open)))


@pytest.mark.parametrize(
    ("more", "lines"),
    [
        (BEGUN, []),
        ("pass", [f"SIP 0 mux 1-1 channel {channel} has 3 packets that were not sent" for channel in (0, 1)]),
    ],
    ids=["a mux", "a mux that was not begun"],
)
def test_packets_that_are_left_in_a_mux_are_told(tmp_path: Path, more: str, lines: list[str]) -> None:
    """Its clients have closed their connections before that."""
    done = run_mux(tmp_path, 3, more)
    assert done.document["status"] == "ok", done.document["error"]
    assert left(done) == lines
    assert [notice for notice in done.outcome.notices if "mux" in notice] == [f"rank 0: {line}" for line in lines]


DIRT = """
        def dirt(address, df):
            df.write_bytes(address, bytes([7]) * 2**16)
        before = tt.create_program()
        tt.create_kernel(before, dirt, core, args=(tt.l1_base(core),))
        tt.enqueue_program(before)
        tt.finish()
"""


def test_a_mux_does_not_mind_what_was_in_its_memory(tmp_path: Path) -> None:
    source = SCRIPT.format(packets=3, more=BEGUN, is_open=True).replace("\n        muxes, ", f"{DIRT}\n        muxes, ")
    done = run(*flags(2), script_file(tmp_path, source))
    assert (done.document["status"], left(done)) == ("ok", []), done.document["error"]


def test_slots_that_a_mux_has_not_told_free_are_told() -> None:
    ring = Ring(0, 8, 64)
    channel = SenderChannel("a mux channel 0", 0, ring, SlotCredits("a router", ring), 1)
    channel.written = channel.sent = 5
    channel.freed = 4
    line = "a mux channel 0 has sent 5 packets, and 4 of their slots were reported free"
    assert [*unsettled([], [channel])] == [line]


@pytest.mark.parametrize("is_open", [False, True], ids=["a router that waits", "a mux that was not begun"])
def test_a_deadlock_names_the_channels_of_a_mux(tmp_path: Path, is_open: bool) -> None:
    error = run_mux(tmp_path, 99, "pass" if is_open else BEGUN, is_open).document["error"]
    assert error["kind"] == "Deadlock"
    muxed = [each for each in error["deadlock"]["blocked"] if "mux" in each["name"]]
    assert [each["name"] for each in muxed] == [f"SIP 0 mux 1-1 channel {channel}" for channel in (0, 1)]
    assert {each["waits_for"] for each in muxed} == {"SIP 0 eth0 sender 0"}
    assert muxed[0]["text"] == "8 of its 8 slots hold packets that the mux has not sent"
