"""Second pass of chips of tiles: no difference in right runs, and planted errors of the simulator that it names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from runs import Run, run, script_file

from sipsim.chips.tensix.chip import TensixChip
from sipsim.chips.tensix.dataflow import Dataflow
from sipsim.chips.tensix.ethernet import EthWrite, Transmitter
from sipsim.chips.tensix.memory import TileMemory
from sipsim.chips.tensix.tiles import Tiles

SUMS = """
import numpy as np

def worker(rank, world_size, tt):
    tensor = tt.tensor(np.arange(world_size * 4096, dtype=np.float32).reshape(-1, 64))
    tt.to_numpy(tt.all_reduce(tensor))
"""
KERNELS = """
def sender(buffer, df):
    for number in range(3):
        df.write_bytes(buffer, bytes([number]) * 64)
        df.eth_send_bytes(buffer, buffer + 64 * number, 64)
        df.eth_wait_for_receiver_done()

def receiver(buffer, other, df):
    for number in range(3):
        df.eth_wait_for_bytes(64)
        df.noc_async_write(buffer + 64 * number, df.get_noc_addr(*other, 0x30000), 64)
        df.noc_async_write_barrier()
        df.noc_semaphore_inc(df.get_noc_addr(*other, 0x20000), 1)
        df.eth_receiver_channel_done(0)

def worker(rank, world_size, tt):
    core = tt.ethernet_cores_to(1 - rank)[0]
    program = tt.create_program()
    if rank == 0:
        tt.create_kernel(program, sender, core, args=(tt.l1_base(core),))
    else:
        tt.create_kernel(program, receiver, core, args=(tt.l1_base(core), tt.workers[0]))
    tt.enqueue_program(program)
    tt.finish()
"""
LATE = """
def copier(place, df):
    for number in range(64):
        df.write_bytes(0x30000, bytes([number]) * 64)
        df.noc_async_write(0x30000, df.get_noc_addr(*place, 0x40000 + 64 * number), 64)
    df.noc_async_write_barrier()

def worker(rank, world_size, tt):
    program = tt.create_program()
    tt.create_kernel(program, copier, tt.workers[0], args=(tt.workers[1],))
    tt.enqueue_program(program)
    tt.finish()
    print(tt.read(tt.workers[1], 0x40000, 4096) == b"".join(bytes([number]) * 64 for number in range(64)))
"""
"""A kernel that does not wait until its writes have left, before it changes their source."""
ENDS = """
from sipsim.chips.tensix.fabric.connection import FabricSender
from sipsim.chips.tensix.fabric.packet import unicast, write_to

def send(endpoint, df):
    sender = FabricSender(endpoint, df)
    sender.open()
    for number in range(4):
        sender.send(unicast(1), write_to((1, 1), 0x50000), 0x40000, 48)
    sender.close()

def look(core, address, df):
    for number in range(4):
        df.noc_async_read(df.get_noc_addr(*core, address), 0x60000 + 32 * number, 24)
        df.noc_async_read_barrier()

def worker(rank, world_size, tt):
    for revision in ("2024-11", "2025-11"):
        fabric, program = tt.open_fabric(revision=revision), tt.create_program()
        router = fabric.routers[0]
        tt.create_kernel(program, look, tt.workers[5], args=(router.core, router.layout.statistics))
        if rank == 0:
            mux = fabric.create_mux(program, tt.workers[1], "forward", 1)
            endpoint = fabric.connect_to_mux(mux, 0, tt.workers[3])
            tt.create_kernel(program, send, tt.workers[3], args=(endpoint,))
        tt.enqueue_program(program)
        fabric.terminate()
"""
"""Two fabrics, one after the other, with a mux and reads of a router's statistics."""


def found(folder: Path, source: str, *flags: object) -> Run:
    return run("--topology", "n300", *flags, script_file(folder, source))


def error_of(done: Run) -> dict[str, Any]:
    error = done.document["error"]
    assert error is not None
    assert error["kind"] == "wrong_numbers"
    return dict(error)


@pytest.mark.parametrize("source", [SUMS, KERNELS, ENDS], ids=["sums", "kernels", "ends"])
def test_right_runs_have_no_difference(tmp_path: Path, source: str) -> None:
    done = found(tmp_path, source)
    assert done.document["error"] is None
    entry = done.document["second_pass"]
    assert entry["records"] > 30
    assert (entry["differences"], entry["races"], entry["stopped"]) == (0, 0, "")
    without = found(tmp_path, source, "--no-verify-data")
    assert without.document["second_pass"] is None
    assert without.document["digest"] == done.document["digest"]


@pytest.mark.parametrize("source", [LATE, KERNELS, ENDS], ids=["late", "kernels", "ends"])
def test_jitter_makes_no_difference(tmp_path: Path, capfd: pytest.CaptureFixture[str], source: str) -> None:
    """Writes that leave late take other bytes in both passes; the parts of a message are messages to both."""
    for seed in range(1, 4):
        done = found(tmp_path, source, "--jitter", seed)
        assert done.document["error"] is None
        assert done.document["second_pass"]["differences"] == 0
        assert (
            done.document["digest"] == found(tmp_path, source, "--jitter", seed, "--no-verify-data").document["digest"]
        )
    assert ("False" in capfd.readouterr().out) == (source is LATE)


def planted(monkeypatch: pytest.MonkeyPatch, which: int, fits: Callable[[int, str], bool]) -> None:
    """Change a bit of the ``which``-th write to tiles that fits its size and its writer."""
    write, seen = TileMemory.write, 0

    def wrong(self: TileMemory, address: int, data: bytes, now_ps: int, writer: str) -> None:
        nonlocal seen
        seen += fits(len(data), writer)
        if seen == which and fits(len(data), writer):
            data = bytes([data[0] ^ 1]) + bytes(data[1:])
        write(self, address, data, now_ps, writer)

    monkeypatch.setattr(TileMemory, "write", wrong)


def test_a_wrong_byte_of_a_noc_write_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, 2, lambda nbytes, writer: nbytes == 64 and writer.startswith("kernel receiver"))
    error = error_of(found(tmp_path, KERNELS))
    assert error["rank"] == 1
    assert error["record_text"].startswith("tile.arrive ")
    assert "addr=1-1:0x30000 nbytes=64" in error["record_text"]


def test_a_wrong_byte_of_an_arrival_is_found_when_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, 1, lambda nbytes, writer: nbytes == 64 and writer.startswith("the far end"))
    error = error_of(found(tmp_path, KERNELS))
    assert error["record_text"].startswith("tile.issue ")
    assert "tile.message" in error["message"]


def test_a_lost_increment_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of three increments leaves its word as it was; nothing waits for it."""
    increment, seen = Tiles.increment, 0

    def lost(self: Tiles, by: Any, core: Any, address: int, by_how_much: int) -> None:
        nonlocal seen
        seen += 1
        if seen == 2:
            memory = self.memory(core)
            monkeypatch.setattr(memory, "word", lambda at: TileMemory.word(memory, at) - 1, raising=False)
            self.engine.at(self.engine.now_ps + 200_000, lambda: monkeypatch.delattr(memory, "word"))
        increment(self, by, core, address, by_how_much)

    monkeypatch.setattr(Tiles, "increment", lost)
    error = error_of(found(tmp_path, KERNELS))
    assert error["record_text"].startswith("tile.increment ")
    assert "addr=1-1:0x20000 increment=1" in error["record_text"]


def test_a_command_that_never_arrives_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, seen = Tiles._start, 0

    def dropped(
        self: Tiles, noc: int, src: Any, dst: Any, route: Any, nbytes: int, done: Any, *rest: Any, **wait: Any
    ) -> None:
        nonlocal seen
        seen += nbytes == 4
        if nbytes != 4 or seen != 3:
            start(self, noc, src, dst, route, nbytes, done, *rest, **wait)

    monkeypatch.setattr(Tiles, "_start", dropped)
    error = error_of(found(tmp_path, KERNELS))
    assert error["record_text"].startswith("tile.lost ")
    assert "increment of 1-1:0x20000" in error["record_text"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda message: replace(message, data=b"\x07" + message.data[1:]), "was changed in transit"),
        (lambda message: replace(message, address=message.address + 16), "was changed in transit"),
    ],
)
def test_a_changed_message_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[EthWrite], EthWrite], what: str
) -> None:
    numbered, seen = Transmitter._numbered, 0

    def wrong(self: Transmitter, message: EthWrite) -> EthWrite:
        nonlocal seen
        sent = numbered(self, message)
        seen += len(message.data) == 64
        return change(sent) if len(message.data) == 64 and seen == 2 else sent

    monkeypatch.setattr(Transmitter, "_numbered", wrong)
    error = error_of(found(tmp_path, KERNELS))
    assert error["record_text"].startswith("tile.message ")
    assert what in error["message"]


def test_swapped_packets_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first payload arrives behind its words of flow control; both are whole, and the data are right."""
    receive, held = TensixChip.receive, list[bytes]()

    def swapped(self: TensixChip, channel: int, body: bytes) -> None:
        is_packet = self.session.rank == 1 and len(held) < 2
        if is_packet:
            held.append(body)
        if not is_packet or len(held) == 2:
            receive(self, channel, body)
            if is_packet:
                receive(self, channel, held[0])

    monkeypatch.setattr(TensixChip, "receive", swapped)
    error = error_of(found(tmp_path, KERNELS))
    assert (error["rank"], error["record_text"].split()[0]) == (1, "tile.message")
    assert "was due" in error["message"]


def test_a_wrong_sum_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of another operand, which only the first pass makes."""
    put_sum = Dataflow.put_sum

    def wrong(self: Dataflow, address: int, dtype: Any, nbytes: int, stride: int, operands: int) -> None:
        memory = self.memory
        read = memory.read
        monkeypatch.setattr(memory, "read", lambda at, n: read(at, n)[::-1] if at > address else read(at, n))
        write, done = memory.write, []

        def first(at: int, data: bytes, now_ps: int, writer: str) -> None:
            monkeypatch.setattr(memory, "read", read)
            write(at, data, now_ps, writer)
            done.append(at)

        monkeypatch.setattr(memory, "write", first)
        put_sum(self, address, dtype, nbytes, stride, operands)
        monkeypatch.setattr(memory, "write", write)

    monkeypatch.setattr(Dataflow, "put_sum", wrong)
    error = error_of(found(tmp_path, SUMS))
    assert error["record_text"].startswith("tile.add ")
