"""Headers that a kernel wrote itself, good ones with bytes changed by chance: each is delivered, or refused by name."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest
from fabric_runs import flags, left
from runs import run, script_file

from sipsim.chips.tensix.fabric.packet import (
    Target,
    increment_of,
    multicast,
    pack,
    scatter_to,
    write_and_increment,
    write_to,
    write_to_tiles,
)

SCRIPT = """
import json
import sys

from sipsim.chips.tensix.dataflow import NocAddress
from sipsim.chips.tensix.fabric.connection import FabricSender

def send(endpoint, header, df):
    FabricSender(endpoint, df).open()
    df.store(0x30000, header)
    df.noc_async_write(0x30000, NocAddress(endpoint.router, endpoint.ring.address(0)), len(header))
    df.instructions(9000)

def worker(rank, world_size, tt):
    asked = json.loads(sys.argv[1])
    fabric = tt.open_fabric(revision=asked["revision"])
    if rank == 0:
        program, core = tt.create_program(), tt.workers[0]
        endpoint = fabric.connect(core, "forward")
        if asked["mux"]:
            mux = fabric.create_mux(program, tt.workers[1], "forward", 1)
            endpoint = fabric.connect_to_mux(mux, 0, core)
        tt.create_kernel(program, send, core, args=(endpoint, bytes.fromhex(asked["header"])))
        tt.enqueue_program(program)
    tt.finish()
"""
A, B, ROUTER = (1, 1), (6, 7), (9, 0)
TARGETS = (
    write_to(A, 0x40000),
    increment_of(B, 0x20, 7),
    write_and_increment(A, 0x40000, B, 0x40),
    scatter_to((A, 0x40000), (B, 0x50000), 48),
    write_to_tiles(A, B, 0x40000),
)
SHORT_TARGETS = (*TARGETS[:2], TARGETS[4])
BY_CHANCE = range(16)


def sent(folder: Path, header: bytes, revision: str, has_mux: bool = False) -> str:
    """What a run with one packet fails with; empty where the packet was delivered."""
    words = json.dumps({"header": header.hex(), "revision": revision, "mux": has_mux})
    done = run(*flags(3), script_file(folder, SCRIPT), words)
    error = done.document["error"]
    if error is not None:
        assert error["kind"] == "KernelMisuse", (header.hex(), error)
        assert "\n" not in error["message"]
        return str(error["message"])
    assert left(done) == []
    return ""


@pytest.mark.parametrize(("revision", "is_short"), [("2025-11", False), ("2024-11", True)])
@pytest.mark.parametrize("changed", [1, 2])
def test_any_header_is_delivered_or_refused(tmp_path: Path, revision: str, is_short: bool, changed: int) -> None:
    """To both other chips of a line."""
    draw, ends = random.Random(changed), Counter[bool]()
    for number in BY_CHANCE:
        targets = SHORT_TARGETS if is_short else TARGETS
        target = targets[number % len(targets)]
        header = bytearray(pack(multicast(1, 2), target, 64 * target.takes_payload, is_short))
        for _ in range(changed):
            header[draw.randrange(len(header))] = draw.randrange(256)
        ends[sent(tmp_path, bytes(header), revision) == ""] += 1
    assert len(ends) == 2, "some are delivered, and some refused"


@pytest.mark.parametrize("has_mux", [False, True], ids=["router", "mux"])
@pytest.mark.parametrize(
    ("header", "line"),
    [
        (pack(multicast(1, 1), write_to((0, 1), 0), 64, False), "tile 0-1 has no memory; Tensix, Ethernet and DRAM"),
        (
            pack(multicast(1, 1), write_to(A, 2**31), 64, False),
            "64 B at 0x80000000 are outside of tile 1-1, which has 1499136 B",
        ),
        (pack(multicast(1, 1), TARGETS[0], 4353, False), "the payload is 4353 B, but a slot holds at most 4352 B"),
        (pack(multicast(1, 1), write_to(ROUTER, 0x1AFC0), 64, False), "64 B at 0x1afc0 of tile 9-0 are below 0x1b000"),
        (b"\x3f" + bytes(47), "the command is 63, but this revision has commands 0 to 4"),
    ],
    ids=["tile", "address", "size", "firmware", "command"],
)
def test_what_cannot_be_delivered_is_refused_where_it_is_written(
    tmp_path: Path, header: bytes, line: str, has_mux: bool
) -> None:
    assert f"a packet whose header is {header.hex()} was written into a slot: {line}" in sent(
        tmp_path, header, "2025-11", has_mux
    )


@pytest.mark.parametrize("target", [write_to(ROUTER, 0x1B000), increment_of(ROUTER, 0x1B060, 1)])
def test_no_packet_is_for_what_routers_have(tmp_path: Path, target: Target) -> None:
    header = pack(multicast(1, 2), target, 64 * target.takes_payload, False)
    line = sent(tmp_path, header, "2025-11")
    assert "of core 9-0 arrived at SIP " in line
    assert "kernels may write only into slots and the words of connections" in line
