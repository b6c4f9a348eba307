"""Fabrics that end: packets under way arrive or are named, and cores, L1 and links serve the next program."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fabric_runs import SCRIPTS
from runs import Run, run, script_file

TWO_LINKS = ("--chip", "wormhole", "--sips", 4, "--topology", "tt_ring", "--set", "system.sips.num_links=2")
COUNTERS = 0x20000
Life = dict[int, list[Any]]
"""What ``fabric_lives.py`` prints of one fabric, by chip."""


def lives_of(done: Run, output: str) -> list[Life]:
    assert done.document["status"] == "ok", done.document["error"]
    lives: dict[int, Life] = {}
    for line in output.splitlines():
        if line.startswith("LIFE "):
            number, rank, *rest = json.loads(line.removeprefix("LIFE "))
            lives.setdefault(number, {})[rank] = rest
    assert all(not member.chip.fabrics for member in done.members)
    return [lives[number] for number in sorted(lives)]


def check(number: int, life: Life) -> int:
    """Each increment of each stream has come to each chip of its route, or is named once. Return how many are named."""
    end, streams, comes, *_ = next(iter(life.values()))
    named = Counter[tuple[int, int, int, int]]()
    for *_, dropped, taken in life.values():
        assert taken == []
        for (source, x, y), ranks, (_core, address, _nbytes) in dropped:
            if address == COUNTERS + 16 * number:
                named.update((source, x, y, rank) for rank in ranks)
    assert end == "immediate" or not named
    missing = Counter[tuple[int, int]]()
    for index, (stream, chips) in enumerate(zip(streams, comes, strict=True)):
        for rank in chips:
            missing[stream["at"], rank] += stream["packets"] - life[rank][3][index]
    by_chip = Counter[tuple[int, int]]()
    for (source, _x, _y, rank), count in named.items():
        by_chip[source, rank] += count
    assert +missing == +by_chip, number
    return named.total()


@pytest.mark.parametrize("flags", [(), ("--jitter", 3)], ids=["usual", "jitter"])
def test_fabrics_of_all_kinds_end_one_after_the_other(
    flags: tuple[object, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """100 in one script, or fewer with jitter: nothing is lost, or it is named, and all is free."""
    count = 30 if flags else 100
    done = run(*TWO_LINKS, *flags, SCRIPTS / "fabric_lives.py", 3, count)
    lives = lives_of(done, capsys.readouterr().out)
    assert len(lives) == count
    lost = [check(number, life) for number, life in enumerate(lives)]
    ends = Counter(next(iter(life.values()))[0] for life in lives)
    assert min(ends.values()) >= 5
    assert len(ends) == 3
    assert sum(lost) > 0


OPS = """
import numpy as np

from sipsim.chips.tensix.fabric.packet import unicast

def ping(base, sends, df):
    if sends:
        df.eth_send_bytes(base, base, 16)
        df.eth_wait_for_receiver_done()
    else:
        df.eth_wait_for_bytes(16)
        df.eth_receiver_channel_done(0)

def nothing(df):
    pass

def push(edm, sem, df):
    x, y, buf, es = edm
    df.noc_semaphore_wait(sem, 1)
    df.noc_async_write(0x40000, df.get_noc_addr(x, y, buf), 64)
    df.noc_semaphore_inc(df.get_noc_addr(x, y, es), 1)

def pull(edm, sem, df):
    x, y, buf, es = edm
    df.noc_semaphore_wait(sem, 1)
    df.noc_async_read(df.get_noc_addr(x, y, buf), 0x50000, 64)
    df.noc_async_read_barrier()
    df.noc_semaphore_inc(df.get_noc_addr(x, y, es), 1)

def worker(rank, world_size, tt):
    array = np.arange(world_size * 32 * 32, dtype=np.int32).reshape(world_size * 32, 32)
    tensor, far = tt.tensor(array + rank), 1 - rank
    for turn in range({turns}):
        for topology, links in (("line", 1), ("line", 2), ("ring", 1), ("ring", 2)):
            found = tt.all_gather(tensor, topology=topology, num_links=links)
            if turn % 25 == 0:
                assert (tt.to_numpy(found) == np.concatenate([array + each for each in range(world_size)])).all()
        if rank < 2:
            core, program = tt.ethernet_cores_to(far)[turn % 2], tt.create_program()
            if turn % 2:
                tt.create_kernel(program, ping, core, args=(tt.l1_base(core), rank == 0))
            else:
                place, edm = tt.workers[20], tt.edm_builder(1, 64)
                semaphore = tt.create_semaphore(program, place)
                tt.write(place, 0x40000, bytes([turn + 1]) * 64)
                add = edm.add_receiver_channel if rank else edm.add_sender_channel
                interface = add(semaphore, 1, place, 64)
                edm.generate_edm_kernel(program, core)
                tt.create_kernel(program, pull if rank else push, place, args=((*core, *interface), semaphore))
            tt.enqueue_program(program)
            after = tt.create_program()  # starts when the data mover has ended, which is a server
            tt.create_kernel(after, nothing, core)
            tt.enqueue_program(after)
            tt.finish()
            if rank and not turn % 2:
                assert tt.read(place, 0x50000, 64) == bytes([turn + 1]) * 64
    tt.finish()
"""


@pytest.mark.parametrize("turns", [2, pytest.param(50, marks=pytest.mark.slow)])
def test_operations_give_their_links_back(tmp_path: Path, turns: int) -> None:
    """One and two links, a line and a ring, then a data mover or a kernel on a link that they had."""
    done = run(*TWO_LINKS, script_file(tmp_path, OPS.replace("{turns}", str(turns))))
    assert done.document["status"] == "ok", done.document["error"]
    for member in done.members:
        assert member.chip.fabrics == []
        assert not any(memory.reserved for _, memory in member.chip.tiles.in_use())


SMALLER = """
import numpy as np

def worker(rank, world_size, tt):
    array = np.full((192, 32), rank + 1, np.int32)
    for size in (3, 2):
        if rank < size:
            fabric = tt.open_fabric("line", chips=list(range(size)))
            found = tt.to_numpy(tt.all_reduce(tt.tensor(array), fabric=fabric))
            assert (found == size * (size + 1) // 2).all()
            fabric.terminate()
"""


def test_later_fabrics_of_fewer_chips_have_calls_of_their_own(tmp_path: Path) -> None:
    done = run("--chip", "wormhole", "--sips", 4, "--topology", "tt_line", script_file(tmp_path, SMALLER))
    assert done.document["status"] == "ok", done.document["error"]


UNSIGNALLED = """
def worker(rank, world_size, tt):
    fabric = tt.open_fabric()
    if rank:
        fabric.wait_until_terminated()
"""


def test_a_fabric_without_a_signal_is_named(tmp_path: Path) -> None:
    done = run("--topology", "n300", script_file(tmp_path, UNSIGNALLED))
    assert done.document["error"]["kind"] == "Deadlock"
    assert "no termination signal at SIP 1 eth" in json.dumps(done.document["error"])


MESH_AND_MUX = """
from sipsim.chips.tensix.fabric.connection import FabricSender
from sipsim.chips.tensix.fabric.packet import increment_of, mesh_unicast

def send(endpoint, route, target, df):
    sender = FabricSender(endpoint, df)
    sender.open()
    for _ in range(20):
        sender.send(route, target, 0, 0)
    sender.close()

def worker(rank, world_size, tt):
    for turn in range(3):
        fabric, program = tt.open_fabric("mesh", columns=2), tt.create_program()
        if rank == 0:
            mux = fabric.create_mux(program, tt.workers[5], "E", full=2)
            for channel in range(2):
                args = (fabric.connect_to_mux(mux, channel, tt.workers[channel]), mesh_unicast(1, 1))
                target = increment_of(tt.workers[9], 0x20000)
                tt.create_kernel(program, send, tt.workers[channel], args=(*args, target))
        tt.enqueue_program(program)
        fabric.terminate()
        assert tt.read(tt.workers[9], 0x20000, 1)[0] == (40 * (turn + 1) if rank == 3 else 0)
"""


def test_a_mesh_and_its_muxes_end(tmp_path: Path) -> None:
    chips = ("--chip", "wormhole", "--sips", 4, "--topology", "mesh_2d_no_wrap")
    done = run(*chips, script_file(tmp_path, MESH_AND_MUX))
    assert done.document["status"] == "ok", done.document["error"]
    assert all(task.ended for member in done.members for task in member.chip.tasks())
