"""Revision 2024-11 as pull request 14923 lists it, and the statistics of a router."""

import struct
from collections import defaultdict
from pathlib import Path

import pytest
from runs import Run, run, script_file

SCRIPT = """
from sipsim.chips.tensix.fabric.connection import FabricSender
from sipsim.chips.tensix.fabric.packet import multicast, write_to

def send(endpoint, df):
    sender = FabricSender(endpoint, df)
    sender.open()
    for number in range(12):
        sender.send(multicast(1, 2), write_to((1, 1), 0x50000 + 64 * number), 0x40000, 48)
    sender.close()

def worker(rank, world_size, tt):
    fabric, program = tt.open_fabric(revision={revision!r}, payload_bytes={payload}), tt.create_program()
    if rank == 0:
        tt.create_kernel(program, send, tt.workers[3], args=(fabric.connect(tt.workers[3], "forward"),))
    tt.enqueue_program(program)
    before = None if rank == 0 else fabric.statistics("backward")
    routers = fabric.routers
    fabric.terminate()
    found = [router.statistics for router in routers if router.way.name == "W"]
    if rank:
        assert found[0][:3] == (12, 12 if rank == 1 else 0, 12 * 48)
        assert found[0].gbps_since(before) == 8000 * 12 * 48 / (found[0].time_ps - before.time_ps)
    print(fabric.num_links)
"""
LINKS = ("--chip", "wormhole", "--sips", 3, "--topology", "tt_ring", "--set", "system.sips.num_links=2")


def done_of(folder: Path, revision: str, *flags: object, payload: int | None = None) -> Run:
    source = SCRIPT.replace("{revision!r}", repr(revision)).replace("{payload}", repr(payload))
    script = script_file(folder, source)
    done = run(*LINKS, *flags, script, keep_oplog=True)
    assert done.document["status"] == "ok", done.document["error"]
    return done


@pytest.mark.parametrize(("revision", "links"), [("2024-11", "2"), ("2025-11", "1")])
def test_links_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str], revision: str, links: str) -> None:
    done_of(tmp_path, revision)
    assert [line for line in capsys.readouterr().out.splitlines() if line in ("1", "2")] == [links] * 3


@pytest.mark.parametrize(("revision", "words"), [("2024-11", [1, 0]), ("2025-11", [1, 2])])
def test_words_of_a_connection(tmp_path: Path, revision: str, words: list[int]) -> None:
    """Open, and tear down: 4 B of 0, or the words again and then an answer."""
    records = done_of(tmp_path, revision).members[0].chip.oplog.records
    connection = 110592 + 112
    found = [record for record in records if record[0] == "noc.write" and record[6] == connection]
    assert [record[7] for record in found] == ([16, 4] if words[1] == 0 else [16, 16])


BASE, SLOTS, SENDERS = 110592 + 256, 8, 2
"""The first sender ring of a router, behind its words; slots of each sender ring, and rings."""


def words_of(arrived: str) -> tuple[int, ...]:
    """The four words of a channel_sync in the op log."""
    return struct.unpack("<IIII", bytes.fromhex(arrived.removeprefix("0x")))


def arrivals(done: Run, rank: int) -> list[tuple[int, int, str]]:
    """Address, size and bytes of each message that has come to the rings of a chip."""
    records = done.members[rank].chip.oplog.records
    return [record[5:8] for record in records if record[0] == "eth.arrive" and record[5] >= BASE]


def slot_bytes(payload: int) -> int:
    """Header, payload, sync word."""
    return 32 + payload + 16


def sync_words(payload: int) -> dict[int, int]:
    """By address of each slot's sync word, behind the payload's place, the number of the slot."""
    size = slot_bytes(payload)
    return {BASE + (number + 1) * size - 16: number for number in range(SENDERS * SLOTS + 16)}


PAYLOAD = 4352
"""The longest payload by default."""


def test_acknowledgements_are_sync_words_in_the_one_queue(tmp_path: Path) -> None:
    """Of each packet the first level, receiver_ack of 1, then the second, bytes_sent and receiver_ack of 0; each goes
    to the place of its packet's sync word, and names the sender channel, which is 0.
    """
    done = done_of(tmp_path, "2024-11")
    sent = [record for record in done.members[1].chip.oplog.records if record[0] == "eth.send"]
    assert {record[5] for record in sent} == {0}
    places, levels = sync_words(PAYLOAD), defaultdict(list)
    for address, nbytes, text in arrivals(done, 0):
        assert nbytes == 16
        levels[places[address]].append(words_of(text))
    ack, free = (80, 1, 0, 0), (0, 0, 0, 0)
    assert dict(levels) == {number: [ack, free] * (2 if number < 12 - SLOTS else 1) for number in range(SLOTS)}


@pytest.mark.parametrize("payload", [PAYLOAD, 48], ids=["padded", "full"])
def test_packets_carry_a_sync_word(tmp_path: Path, payload: int) -> None:
    """bytes_sent of 32 + 48 B, receiver_ack of 0, src_id of the sender channel: 0 of a worker, 1 of a receiver. The
    word ends the slot: in the message of a packet that fills the slot, otherwise in a message behind the packet's.
    """
    done, size = done_of(tmp_path, "2024-11", payload=payload), slot_bytes(payload)
    first = BASE + SENDERS * SLOTS * size
    for rank, source in ((1, 0), (2, 1)):
        came = [(address, nbytes, text) for address, nbytes, text in arrivals(done, rank) if address >= first]
        if payload == 48:
            assert [(address, nbytes) for address, nbytes, _ in came] == [
                (first + number * size, size) for number in range(12)
            ]
        else:
            slots = [(first + number * size, 80) for number in range(12)]
            assert [(address, nbytes) for address, nbytes, _ in came[::2]] == slots
            ends = [(first + (number + 1) * size - 16, 16) for number in range(12)]
            assert [(address, nbytes) for address, nbytes, _ in came[1::2]] == ends
            assert {words_of(text) for *_, text in came[1::2]} == {(80, 0, source, 0)}


def test_sync_words_at_the_end(tmp_path: Path) -> None:
    """Both ends' words of a slot are free, and name the sender channel."""
    done, size = done_of(tmp_path, "2024-11"), slot_bytes(PAYLOAD)
    first = BASE + SENDERS * SLOTS * size
    for rank, source, words in (
        (1, 0, range(first, first + 12 * size, size)),
        (0, 0, range(BASE, BASE + 8 * size, size)),
    ):
        found = {
            memory.read(each + size - 16, 16)
            for core in done.members[rank].chip.plan.floor_plan.ethernet
            for memory in (done.members[rank].chip.tiles.memory(core),)
            for each in words
        }
        assert found <= {struct.pack("<IIII", 0, 0, source, 0)}


def test_local_writes_block(tmp_path: Path) -> None:
    """With slow hops, packets for a chip take a round trip of its NoC each, and only in this revision."""
    ends = {}
    for revision in ("2024-11", "2025-03"):
        slow = ("--set", "system.chip_params.noc.hop_cycles=500")
        ends[revision] = max(end_ps for *_, end_ps in done_of(tmp_path, revision, *slow).results())
    assert ends["2024-11"] > 1.3 * ends["2025-03"]
