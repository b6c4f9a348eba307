"""Revision 2024-11 as pull request 14923 lists it, and the statistics of a router."""

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
    fabric, program = tt.open_fabric(revision={revision!r}), tt.create_program()
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


def done_of(folder: Path, revision: str, *flags: object) -> Run:
    script = script_file(folder, SCRIPT.replace("{revision!r}", repr(revision)))
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


def test_acknowledgements_are_sync_words_in_the_one_queue(tmp_path: Path) -> None:
    """Of each packet the first level, bytes_sent and receiver_ack of 1, then the second, both 0; src_id is 0 here."""
    chip = done_of(tmp_path, "2024-11").members[1].chip
    sent = [record for record in chip.oplog.records if record[0] == "eth.send"]
    assert {record[5] for record in sent} == {0}
    back = [
        record for record in done_of(tmp_path, "2024-11").members[0].chip.oplog.records if record[0] == "eth.arrive"
    ]
    assert len([record for record in back if record[6] == 16 and record[5] > 110592 + 256]) == 24


def test_packets_carry_a_sync_word(tmp_path: Path) -> None:
    """bytes_sent of 32 + 48 B, receiver_ack of 0, src_id of the sender channel: 0 of a worker, 1 of a receiver."""
    members = done_of(tmp_path, "2024-11").members
    for rank, source in ((1, 0), (2, 1)):
        expected = b"".join(each.to_bytes(4, "little") for each in (80, 0, source, 0))
        pages = [data for core in members[rank].chip.plan.floor_plan.ethernet
                 for _, data in members[rank].chip.tiles.memory(core).pages()]  # fmt: skip
        assert any(expected in page for page in pages)


def test_local_writes_block(tmp_path: Path) -> None:
    """With slow hops, packets for a chip take a round trip of its NoC each, and only in this revision."""
    ends = {}
    for revision in ("2024-11", "2025-03"):
        slow = ("--set", "system.chip_params.noc.hop_cycles=500")
        ends[revision] = max(end_ps for *_, end_ps in done_of(tmp_path, revision, *slow).results())
    assert ends["2024-11"] > 1.3 * ends["2025-03"]
