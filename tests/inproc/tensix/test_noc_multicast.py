"""NoC multicasts of kernels and of fabric packets: who gets them, when, what they occupy, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from runs import Run, run, script_file

from launcher.commands.races import main
from sipsim.chips.tensix.noc import Core

DATA, FLAG = 0x60000, 0x70000
NBYTES = 4096
KERNEL = f"""
import sys

DATA, FLAG, NBYTES = {DATA}, {FLAG}, {NBYTES}
SOURCE, CORNERS, NUM_DESTS, LOOPED, NOC = {{source}}, {{corners}}, {{num_dests}}, {{looped}}, {{noc}}

def send(df):
    df.write_bytes(0x24000, bytes(range(256)) * 16)
    df.write_word(0x28000, 7)
    to, flag = (df.get_noc_multicast_addr(*CORNERS, each) for each in (DATA, FLAG))
    if LOOPED:
        df.noc_async_write_multicast_loopback_src(0x24000, to, NBYTES, NUM_DESTS)
        df.noc_semaphore_set_multicast_loopback_src(0x28000, flag, NUM_DESTS)
    else:
        df.noc_async_write_multicast(0x24000, to, NBYTES, NUM_DESTS)
        df.noc_semaphore_set_multicast(0x28000, flag, NUM_DESTS)
    df.noc_async_write_barrier()
    print("arrived by", df.get_timestamp_ns())

def take(df):
    df.noc_semaphore_wait(FLAG, 7)
    assert df.peek(DATA, NBYTES) == bytes(range(256)) * 16

def worker(rank, world_size, tt):
    if rank:
        return
    program = tt.create_program()
    x0, y0, x1, y1 = CORNERS
    source = next(core for core in (*tt.workers, *tt.get_active_ethernet_cores()) if tuple(core) == SOURCE)
    config = tt.DataMovementConfig(noc=NOC) if source in tt.workers else tt.EthernetConfig(noc=NOC)
    tt.create_kernel(program, send, source, config)
    for core in tt.workers:
        if core != source and x0 <= core.x <= x1 and y0 <= core.y <= y1:
            tt.create_kernel(program, take, core)
    tt.enqueue_program(program)
    tt.finish()
"""
CASES: dict[str, dict[str, Any]] = {
    "outside": {"source": (1, 1), "corners": (2, 2, 4, 4), "num_dests": 9},
    "inside": {"source": (3, 3), "corners": (2, 2, 4, 4), "num_dests": 8},
    "looped": {"source": (3, 3), "corners": (2, 2, 4, 4), "num_dests": 9, "looped": True},
    "noc 1": {"source": (3, 3), "corners": (2, 2, 4, 4), "num_dests": 8, "noc": 1},
    "over other tiles": {"source": (9, 11), "corners": (4, 5, 6, 7), "num_dests": 4},
    "all": {"source": (1, 1), "corners": (1, 1, 9, 11), "num_dests": 79},
    "a row": {"source": (4, 3), "corners": (1, 3, 9, 3), "num_dests": 7},
    "from ethernet": {"source": (9, 6), "corners": (1, 1, 2, 2), "num_dests": 4},
}


def done_of(folder: Path, *flags: object, **case: Any) -> Run:
    source = KERNEL
    for name, value in {"looped": False, "noc": 0, **case}.items():
        source = source.replace("{" + name + "}", repr(value))
    return run("--topology", "n300", *flags, script_file(folder, source), keep_oplog=True)


def writes(done: Run) -> list[tuple[str, int]]:
    """Tile and address of the writes over the NoC, in order."""
    return [(record[5], record[6]) for record in done.members[0].chip.oplog.records if record[0] == "noc.write"]


@pytest.mark.parametrize("name", CASES)
def test_the_tensix_tiles_of_a_rectangle_get_the_bytes_once(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    done = done_of(tmp_path, **case)
    assert done.document["error"] is None, done.document["error"]
    assert done.document["second_pass"]["differences"] == 0
    x0, y0, x1, y1 = case["corners"]
    plan = done.members[0].chip.plan.floor_plan
    tiles = [core for core in plan.workers if x0 <= core.x <= x1 and y0 <= core.y <= y1]
    tiles = [core for core in tiles if case.get("looped") or core != case["source"]]
    assert len(tiles) == case["num_dests"]
    assert sorted(writes(done)) == sorted((str(core), address) for core in tiles for address in (DATA, FLAG))


def test_each_tile_has_the_bytes_after_its_own_way(tmp_path: Path) -> None:
    """The head's way in the tree, and the drain of 4096 B and a header over one link."""
    case = CASES["outside"]
    chip = done_of(tmp_path, **case).members[0].chip
    x0, y0, x1, y1 = case["corners"]
    cores = tuple(chip.plan.floor_plan.receivers(Core(x0, y0), Core(x1, y1)))
    tree = chip.plan.graph.tree(0, Core(*case["source"]), cores)
    drain_ps = tree.route.edges[0].drain_ps(NBYTES)
    records = [each for each in chip.oplog.records if each[0] == "noc.write" and each[6] == DATA]
    took = {Core(*map(int, each[5].split("-"))): each[2] - each[1] for each in records}
    assert took == {core: head_ps + drain_ps for core, head_ps in tree.heads_ps.items()}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_jitter_keeps_a_flag_behind_its_data(tmp_path: Path, seed: int) -> None:
    done = done_of(tmp_path, "--jitter", seed, **CASES["inside"])
    assert done.document["error"] is None
    assert done.document["second_pass"]["differences"] == 0


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "one tile less": ({"source": (3, 3), "corners": (2, 2, 4, 4), "num_dests": 9}, "8 Tensix tiles are there, without"),
    "one tile more": (
        {"source": (3, 3), "corners": (2, 2, 4, 4), "num_dests": 8, "looped": True}, "9 Tensix tiles are there, with",
    ),
    "itself": ({"source": (3, 3), "corners": (3, 3, 3, 3), "num_dests": 0}, "no other Tensix tile is there"),
    "itself looped": (
        {"source": (3, 3), "corners": (3, 3, 3, 3), "num_dests": 1, "looped": True}, "no other Tensix tile is there",
    ),
    "dram": ({"source": (3, 3), "corners": (0, 1, 4, 4), "num_dests": 16}, "0-1 is no tile with memory"),
    "ethernet": ({"source": (3, 3), "corners": (1, 1, 4, 6), "num_dests": 20}, "4-6 is of kind ethernet"),
    "order": ({"source": (3, 3), "corners": (4, 4, 2, 2), "num_dests": 8}, "the first is not above and left"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(tmp_path: Path, name: str) -> None:
    case, what = REFUSED[name]
    error = done_of(tmp_path, **case).document["error"]
    call = "noc_async_write_multicast" + ("_loopback_src" if case.get("looped") else "")
    assert error["kind"] == "KernelMisuse"
    assert what in error["message"]
    assert f"kernel send on 3-3: {call}" in error["message"]


RACE = """
import sys

def send(df):
    df.write_bytes(0x40000, bytes(range(256)) * 16)
    df.noc_async_write_multicast(0x40000, df.get_noc_multicast_addr(2, 2, 4, 4, 0x60000), 4096, 9)
    if sys.argv[1] == "barrier":
        df.noc_async_write_barrier()
    df.noc_semaphore_inc(df.get_noc_addr(4, 4, 0x70000), 1)

def take(df):
    df.noc_semaphore_wait(0x70000, 1)
    df.noc_async_write(0x60000, df.get_noc_addr(4, 4, 0x80000), 4096)
    df.noc_async_write_barrier()

def worker(rank, world_size, tt):
    if rank == 0:
        program, core = tt.create_program(), next(each for each in tt.workers if tuple(each) == (4, 4))
        tt.create_kernel(program, send, tt.workers[0])
        tt.create_kernel(program, take, core)
        tt.declare_result(core, 0x80000, 4096, "copy")
        tt.enqueue_program(program)
"""


@pytest.mark.parametrize(("between", "code"), [("nothing", 1), ("barrier", 0)])
def test_races_of_a_multicast_and_an_increment_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: str, code: int
) -> None:
    """An increment overtakes a multicast with some seed, unless the kernel waits for all tiles."""
    monkeypatch.chdir(tmp_path)
    words = ["--seeds", "4", "--engine", "inproc", "--topology", "n300", str(script_file(tmp_path, RACE)), between]
    assert main(words) == code


PACKETS = """
from sipsim.chips.tensix.fabric.connection import FabricSender
from sipsim.chips.tensix.fabric.packet import multicast, unicast, write_to_tiles

def send(endpoint, df):
    sender = FabricSender(endpoint, df)
    sender.open()
    df.write_bytes(0x40000, bytes(range(256)) * 4)
    for number, route in enumerate({routes}):
        sender.send(route, write_to_tiles({first}, {last}, 0x60000 + 1024 * number), 0x40000, 1024)
    sender.close()

def worker(rank, world_size, tt):
    fabric, program = tt.open_fabric(revision={revision!r}), tt.create_program()
    if rank == 0:
        tt.create_kernel(program, send, tt.workers[3], args=(fabric.connect(tt.workers[3], "forward"),))
    tt.enqueue_program(program)
    fabric.terminate()
"""
BOTH = "(multicast(1, 2), unicast(2))"
LINE = ("--chip", "wormhole", "--sips", 3, "--topology", "tt_ring")


def packets(folder: Path, revision: str, first: Core, last: Core, *flags: object, routes: str = BOTH) -> Run:
    source = PACKETS.replace("{routes}", routes).replace("{revision!r}", repr(revision))
    source = source.replace("{first}", repr(tuple(first))).replace("{last}", repr(tuple(last)))
    return run(*LINE, *flags, script_file(folder, source), keep_oplog=True)


@pytest.mark.parametrize("revision", ["2024-11", "2025-11"])
@pytest.mark.parametrize("flags", [(), ("--jitter", 2)], ids=["", "jitter"])
def test_a_packet_for_tiles_of_chips(tmp_path: Path, revision: str, flags: tuple[object, ...]) -> None:
    """A multicast over both chips, and a unicast to the second, each to 2 x 3 tiles on both sides of the DRAM's."""
    first, last = Core(4, 7), Core(6, 9)
    done = packets(tmp_path, revision, first, last, *flags)
    assert done.document["error"] is None, done.document["error"]
    assert done.document["second_pass"]["differences"] == 0
    for rank, count in ((0, 0), (1, 1), (2, 2)):
        chip = done.members[rank].chip
        used = [each for each in chip.tiles.in_use() if each[0] in chip.plan.floor_plan.workers]
        written = {core for core, memory in used if bytes(range(256)) in memory.get(0x60000, 1024)}
        tiles = {Core(x, y) for x in (4, 6) for y in (7, 8, 9)}
        assert written == (tiles if rank else set())
        records = [record for record in chip.oplog.records if record[0] == "noc.write" and record[6] >= 0x60000]
        found = [record for record in records if Core(*map(int, record[5].split("-"))) in tiles]
        assert len(found) == 6 * count


def test_a_router_of_the_first_revision_waits_for_the_last_tile(tmp_path: Path) -> None:
    """With slow hops: the second packet's write begins when all tiles have acknowledged the first's."""
    slow = ("--set", "system.chip_params.noc.hop_cycles=500")
    between = {}
    for revision in ("2024-11", "2025-11"):
        done = packets(tmp_path, revision, Core(1, 7), Core(9, 9), *slow, routes="(unicast(1), unicast(1))")
        chip = done.members[1].chip
        records = [record for record in chip.oplog.records if record[0] == "noc.write" and record[6] >= 0x60000]
        first, second = ([each for each in records if each[6] == 0x60000 + 1024 * number] for number in (0, 1))
        assert len(first) == len(second) == 24
        between[revision] = min(each[1] for each in second) - max(each[2] for each in first)
    assert between["2025-11"] < 0 < between["2024-11"]


@pytest.mark.parametrize("revision", ["2024-11", "2025-11"])
@pytest.mark.parametrize(("first", "last"), [((0, 1), (4, 4)), ((4, 4), (1, 1)), ((1, 1), (4, 6))], ids=str)
def test_a_packet_for_a_wrong_rectangle_is_refused(tmp_path: Path, revision: str, first: Any, last: Any) -> None:
    error = packets(tmp_path, revision, first, last).document["error"]
    assert error["kind"] == "KernelMisuse"
    assert "a multicast to tiles" in error["message"]
