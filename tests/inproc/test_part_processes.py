"""A part of SimPy processes and a memory that they serve: what counts as waiting, what stops, what is refused."""

import gc
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import simpy
from hardware import hbm, pair_bench
from runs import Run, run, script_file
from simpy.events import Event

from launcher.report.failure import block
from sipsim.chips.ahbm.address import Block
from sipsim.chips.ahbm.memory.ports import MEMORY_KINDS
from sipsim.chips.ahbm.mesh import PARTS
from sipsim.chips.ahbm.processes import PartDoor
from sipsim.chips.ahbm.tl.language import TL
from sipsim.core.errors import ConfigError, ProcessMisuse
from sipsim.core.processes import PartProcess
from sipsim.fabric.graph import Node

SMALL = (
    *("--sips", 2, "--topology", "ring_1d", "--set", "sip.cube_mesh={w: 2, h: 1}", "--bytes", "16K"),
    *("--max-sim-time", "200us"),
)
"""The limit of simulated time ends a run whose background would go on for ever."""


Act = Callable[[PartDoor], Any]


@pytest.fixture(autouse=True)
def _known() -> None:
    """Another test may have made the registries forget the modules of ``lab``."""
    for name in ("lab.actor", "lab.traffic", "lab.queued", "lab.refreshed", "lab.disorder"):
        if name not in {**PARTS._entries, **MEMORY_KINDS._entries}:
            sys.modules.pop(name, None)


def act_as(act: Act) -> None:
    """Make ``act`` the processes of ``lab.actor``."""
    importlib.import_module("lab.actor").ACTS["act"] = act


def acting(act: Act, *flags: object) -> Run:
    act_as(act)
    return run(*SMALL, *flags, "--set", "parts={lab.actor: {act: act}}")


def failure(done: Run) -> dict[str, Any]:
    error: dict[str, Any] = done.document["error"]
    return error


def on_first(act: Act) -> Act:
    """Only on SIP 0."""
    return lambda door: act(door) if door.sip == 0 else None


def generator(door: PartDoor, *steps: Any) -> Iterator[Event]:
    for step in steps:
        yield step() if callable(step) else door.env.timeout(step)


def ticks(door: PartDoor, period_ps: int = 1000) -> Iterator[Event]:
    while True:
        yield door.env.timeout(period_ps)


# --- the door -------------------------------------------------------------------------------------------------


def bench_with(act: Act) -> Any:
    act_as(act)
    return pair_bench({"parts": {"lab.actor": {"act": "act"}}, "hbm.kind": None})


def test_a_transfer_takes_the_routes_time_and_shares_its_edges() -> None:
    """Two transfers from one node leave one after the other; the event comes with the last byte."""
    ends: list[int] = []

    def one(door: PartDoor, dst: Node | int) -> Iterator[Event]:
        yield door.transfer(door.node(0), dst, 64_000)
        ends.append(door.env.now)

    def act(door: PartDoor) -> None:
        door.start(one(door, Node("hbm", 0, 1)))
        door.start(one(door, hbm(0, 0, pe=1)))

    bench = bench_with(act)
    bench.run()
    route = bench.sip.graph.route(Node("lab.actor", 0, 0), Node("hbm", 0, 1))
    assert ends == [route.latency_ps(64_000), route.latency_ps(64_000) + 10**6]


def test_a_transfer_delays_a_load_and_changes_no_byte() -> None:
    def kernel(tl: TL) -> None:
        tl.load(hbm(0, 0, pe=1), 16_384, "f32")

    def loads_ps(act: Act) -> int:
        bench = bench_with(act)
        bench.kernel(0, 0, kernel)
        bench.run()
        assert bench.sip.memory.read(hbm(0, 0, pe=1), 64) == bytes(64)
        (end_ps,) = bench.ends("dma_read")
        return int(end_ps)

    def act(door: PartDoor) -> None:
        door.transfer(Node("pe", 0, 1), Node("pe", 0, 0), 128_000)

    assert loads_ps(act) > loads_ps(lambda _door: None)


@pytest.mark.parametrize(
    ("src", "dst", "nbytes"),
    [
        (Node("pe", 0, 0), Node("io", -1, "E"), 64),
        (Node("pe", 0, 0), Node("far", -1, "E"), 64),
        (Node("io", -1, "E"), Node("pe", 0, 0), 64),
        (Node("pe", 0, 0), hbm(0, 0, sip=1), 64),
        (Node("hbm", 0, 0), Node("pe", 0, 0), 64),
        (Node("pe", 0, 0), Node("router", 0, 3), 64),
        (Node("pe", 0, 0), Node("pe", 0, 99), 64),
        (Node("pe", 9, 0), Node("pe", 0, 0), 64),
        (Node("pe", 0, 0), hbm(99, 0), 64),
        (Node("pe", 0, 0), 2**63, 64),
        (Node("pe", 0, 0), Node("pe", 0, 1), 0),
        (Node("pe", 0, 0), Node("pe", 0, 1), 64.0),
    ],
)
def test_a_transfer_that_a_part_may_not_start_is_refused(src: Node, dst: Any, nbytes: Any) -> None:
    refused: list[str] = []

    def act(door: PartDoor) -> None:
        with pytest.raises(ProcessMisuse) as caught:
            door.transfer(src, dst, nbytes)
        refused.append(str(caught.value))

    bench = bench_with(act)
    bench.run()
    (text,) = refused
    assert "\n" not in text
    is_far = (
        "io" in (src.kind, getattr(dst, "kind", "")) or getattr(dst, "kind", "") == "far" or dst == hbm(0, 0, sip=1)
    )
    assert ("links" in text) >= is_far
    assert not bench.sip.fabric.use(), "nothing was sent"


def test_a_door_has_the_sizes_of_the_system() -> None:
    doors: list[tuple[int, tuple[int, int, int], int]] = []
    done = acting(lambda door: doors.append((door.sip, door.sizes, door.env.now)))
    assert failure(done) is None
    assert sorted(doors) == [(0, (8, 2, 2), 0), (1, (8, 2, 2), 0)]


# --- foreground and background --------------------------------------------------------------------------------


def test_a_foreground_process_holds_up_the_end() -> None:
    long_ps = 50_000_000
    done = acting(lambda door: door.start(generator(door, long_ps)) and None)
    assert failure(done) is None
    assert {rank["sim_end_ps"] for rank in done.document["ranks"]} == {long_ps}


@pytest.mark.parametrize("name", ["door", "env"])
def test_a_process_that_waits_for_ever_is_a_deadlock_and_named(name: str) -> None:
    def act(door: PartDoor) -> None:
        waits = generator(door, 5_000, simpy.Store(door.env).get)
        door.env.process(waits) if name == "env" else door.start(waits, "collector")

    done = acting(on_first(act))
    assert failure(done)["kind"] == "IpcqDeadlock"
    (other,) = failure(done)["deadlock"]["others"]
    assert other["task"] == f"process {'generator' if name == 'env' else 'collector'} of part lab.actor"
    assert (other["rank"], other["waits_for"]) == (0, "a StoreGet event")
    assert other["file"] == __file__
    assert failure(done)["deadlock"]["reason"].startswith(other["task"])
    for member in done.members:
        member.stop_tasks()
    assert all(each.ended for each in done.members[0].chip.sip.engine.env.processes)


def test_a_wait_beside_a_background_that_ticks_is_found_at_the_limit_of_simulated_time() -> None:
    """No deadlock is seen while an event is left; the report at the limit is the same each time."""

    def act(door: PartDoor) -> None:
        door.start(ticks(door, 100_000), background=True)
        door.start(generator(door, simpy.Store(door.env).get), "collector")

    first, second = (failure(acting(on_first(act))) for _ in range(2))
    assert first == second
    assert (first["kind"], first["time_ps"]) == ("timeout", 200_000_000)
    (position,) = first["positions"]
    assert (position["task"], position["rank"]) == ("process collector of part lab.actor", 0)
    assert (position["waits_for"], position["file"]) == ("a StoreGet event", __file__)


def test_the_background_neither_counts_nor_holds_up_the_end() -> None:
    alone = acting(lambda _door: None)
    done = acting(lambda door: door.start(ticks(door), background=True) and None)
    assert failure(done) is None
    assert done.results() == alone.results(), "ticks that load nothing change nothing, not even the end"
    for member in done.members:
        engine = member.chip.sip.engine
        assert (engine.next_ps(), list(engine.env.processes)) == (None, [])


def test_the_background_goes_on_until_the_last_process_in_front_ends() -> None:
    seen: list[int] = []

    def count(door: PartDoor) -> Iterator[Event]:
        while True:
            yield door.env.timeout(1_000_000)
            seen.append(door.env.now)

    def act(door: PartDoor) -> None:
        door.start(count(door), background=True)
        door.start(generator(door, 50_500_000))

    done = acting(on_first(act))
    assert failure(done) is None
    assert seen == list(range(1_000_000, 50_500_000, 1_000_000))


UNJOINED = """
def worker(rank, world_size, torch):
    torch.launch(kernel, torch.zeros((2, 8)), async_op=True)
    torch.launch(kernel, torch.zeros((2, 8)), async_op=True)

def kernel(values, tl):
    tl.delay(5000)
"""


def test_the_background_goes_on_while_launches_run_that_the_host_does_not_wait_for(tmp_path: Path) -> None:
    """Also between two launches on the same PEs, when no kernel runs."""
    last: dict[int, int] = {}

    def count(door: PartDoor) -> Iterator[Event]:
        while True:
            yield door.env.timeout(1_000)
            last[door.sip] = door.env.now

    act_as(lambda door: door.start(count(door), background=True) and None)
    flags = (*SMALL[:6], *SMALL[-2:], "--set", "parts={lab.actor: {act: act}}")
    done = run(*flags, script_file(tmp_path, UNJOINED))
    assert failure(done) is None
    for rank in done.document["ranks"]:
        assert rank["launches"] == 2
        assert rank["sim_end_ps"] - 1_000 <= last[rank["rank"]] <= rank["sim_end_ps"]
        assert last[rank["rank"]] > 10_000_000


ROWS = ("--bytes", "16K,16K,16K")


def test_a_row_start_stops_the_background_and_starts_it_anew() -> None:
    starts: list[int] = []

    def act(door: PartDoor) -> None:
        starts.append(door.env.now)
        door.start(ticks(door, 777), background=True)

    done = acting(on_first(act), *ROWS)
    assert failure(done) is None
    alone = acting(lambda _door: None, *ROWS)
    assert done.results() == alone.results()
    assert len(starts) == 3
    assert starts[0] == 0


def test_each_row_with_traffic_is_like_the_first() -> None:
    done = run(*SMALL, *ROWS, "--set", "parts={lab.traffic: {period_ns: 40}}")
    quiet = run(*SMALL, *ROWS)
    assert failure(done) is None
    (time_ns,) = {row["time_ns"] for row in done.document["runs"]}
    assert time_ns > quiet.document["runs"][0]["time_ns"]


def test_a_process_in_front_must_have_ended_at_a_row_start() -> None:
    done = acting(lambda door: door.start(generator(door, simpy.Store(door.env).get)) and None, *ROWS)
    assert failure(done)["kind"] == "ProcessMisuse"
    assert "process generator of part lab.actor" in failure(done)["message"]


# --- errors ---------------------------------------------------------------------------------------------------


def raises(door: PartDoor) -> Iterator[Event]:
    yield door.env.timeout(3_000)
    raise KeyError("lost")


def floats(door: PartDoor) -> Iterator[Event]:
    yield door.env.timeout(3_000)
    yield door.env.timeout(0.5)


def yields(door: PartDoor) -> Iterator[Any]:
    yield door.env.timeout(3_000)
    yield 0.5


def runs(door: PartDoor) -> Iterator[Event]:
    yield door.env.timeout(3_000)
    door.env.run()


def line_of(function: Callable[..., Any], offset: int = 2) -> str:
    return f"test_part_processes.py:{function.__code__.co_firstlineno + offset}"


@pytest.mark.fault
@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize(
    ("process", "kind"),
    [(raises, "exception"), (floats, "ProcessMisuse"), (yields, "ProcessMisuse"), (runs, "ProcessMisuse")],
)
def test_an_error_of_a_process_names_process_rank_time_and_line(
    process: Callable[[PartDoor], Iterator[Any]], kind: str, background: bool
) -> None:
    done = acting(on_first(lambda door: door.start(process(door), background=background) and None))
    error = failure(done)
    assert (error["kind"], error["rank"], error["time_ps"]) == (kind, 0, 3_000)
    first = block(done.outcome).splitlines()[0]
    for part in ("rank 0", f"process {process.__name__} of part lab.actor", line_of(process), "3.000 ns"):
        assert part in first
    if process in (floats, yields):
        assert "0.5" in first


@pytest.mark.fault
@pytest.mark.parametrize("act", [lambda door: raises(door), lambda _door: [][0], lambda door: door.start(7)])
def test_an_error_of_the_function_that_starts_processes_names_its_part(act: Act) -> None:
    error = failure(acting(act))
    assert error["kind"] in ("exception", "ProcessMisuse")
    assert "part lab.actor" in error["message"]


# --- a memory that processes serve ----------------------------------------------------------------------------


def serving(places: int, service_ns: int, odd_ns: int = 0) -> dict[str, Any]:
    return {
        "hbm.kind": "lab.queued",
        "hbm.params": {"places": places, "service_ns": service_ns, "odd_ns": odd_ns},
        "pe_scheduler.queue_depth": None,
    }


@pytest.mark.ideal
@pytest.mark.parametrize(("places", "ends_at"), [(1, (1, 2, 3, 4)), (2, (1, 1, 2, 2)), (4, (1, 1, 1, 1))])
def test_accesses_take_turns(places: int, ends_at: tuple[int, ...]) -> None:
    """Four PEs load 64 B each from one slice at one time; the service is longer than all ways."""
    quiet, busy = pair_bench({"hbm.kind": None}), pair_bench(serving(places, 10_000))
    for bench in (quiet, busy):
        for pe in (0, 1, 2, 3):
            bench.kernel(0, pe, lambda tl: tl.load(hbm(0, 0, pe=5), 16, "f32"))
        bench.run()
    order = sorted(range(4), key=lambda pe: quiet.records("dma_read")[pe].end_ps)
    ends = sorted(record.end_ps for record in busy.records("dma_read"))
    assert len(order) == 4
    for end_ps, turns in zip(ends, ends_at, strict=True):
        assert turns * 10_000_000 < end_ps < turns * 10_000_000 + 500_000


@pytest.mark.ideal
@pytest.mark.parametrize("command", ["load", "store", "copy", "ring", "from HBM"])
def test_loads_stores_copies_and_ring_slots_are_served(command: str) -> None:
    """Each access is later by the service, a copy by two."""

    def end_ps(service_ns: int) -> int:
        rings = {"defaults.buffer_kind": "hbm"} if command == "ring" else {}
        bench = pair_bench({**serving(1, service_ns), **rings, "defaults.latch": None})

        def kernel(tl: TL) -> None:
            if command == "load":
                tl.load(hbm(0, 4096, pe=3), 64, "f32")
            elif command == "store":
                tl.store(hbm(0, 4096, pe=3), tl.zeros(64, "f32"))
            elif command == "ring":
                tl.send("E", tl.zeros(64, "f32"))
            else:
                tl.send("E", src_addr=hbm(0, 4096, pe=3), shape=64, dtype="f32")

        if command == "copy":
            bench.sip.pe(0, 0).dma.copy(hbm(0, 0), hbm(1, 0), bytes(64), lambda: None)
        else:
            bench.kernel(0, 0, kernel)
        if command in ("ring", "from HBM"):
            bench.kernel(1, 0, lambda tl: tl.recv("W", 64, "f32"))
        bench.run()
        return bench.engine.now_ps

    assert end_ps(1_000) - end_ps(0) == (2_000_000 if command == "copy" else 1_000_000)


def test_writes_end_in_the_order_in_which_they_arrive() -> None:
    """Two places, and an access to an odd page is served for longer than one to the next page."""
    bench = pair_bench(serving(2, 100, odd_ns=1_000))
    port = bench.sip.memory_ports.at("hbm", Node("hbm", 0, 0))
    ended: list[tuple[str, int]] = []
    for name, address, is_read in (("odd", 4096, False), ("even", 0, False), ("read", 0, True)):
        block_ = Block.piece(hbm(0, address), 64)
        port.when_served(block_, is_read, lambda n=name: ended.append((n, bench.engine.now_ps)))
    bench.run()
    assert ended == [("read", 200_000), ("odd", 1_100_000), ("even", 1_100_000)]


def test_a_kind_with_processes_is_not_constant_and_serves_no_tcm() -> None:
    queued = importlib.import_module("lab.queued").Queued
    assert (queued.is_served, queued.is_constant) == (True, False)
    assert not any(MEMORY_KINDS.get(name).is_served for name in ("fixed_latency", "hbm_controller", "banked_sram"))
    with pytest.raises(ConfigError, match=r"tcm\.kind"):
        run(*SMALL, "--set", "tcm={kind: lab.queued, params: {}}")


RINGS_IN_HBM = ("--set", "defaults.buffer_kind=hbm")
QUEUED = (*RINGS_IN_HBM, "--set", "hbm={kind: lab.queued, params: {places: 2, odd_ns: 15}}")
TRAFFIC = ("--set", "parts={lab.traffic: {period_ns: 40}}")


REFRESHED = (*RINGS_IN_HBM, "--set", "hbm={kind: lab.queued, params: {refresh_ns: 30}}", *ROWS)
FLAGS = {"queued": QUEUED, "traffic": TRAFFIC, "both": (*QUEUED, *TRAFFIC), "refreshed": REFRESHED}


@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
def test_the_order_of_mail_changes_nothing(flags: tuple[str, ...]) -> None:
    """With the invariants checked, and the second pass."""
    words = (*SMALL, "--check-invariants", *flags)
    first, *others = (run(*words, mail_seed=seed) for seed in (None, 1, 2))
    assert failure(first) is None
    assert first.document["digest"] is not None
    for other in others:
        assert other.document["digest"] == first.document["digest"]


def test_what_a_process_costs_is_named() -> None:
    """For ``--explain``: a wait beyond the least times, for reads and for writes."""
    done = run(*SMALL, *QUEUED, "--explain")
    assert failure(done) is None
    write_ps = done.members[0].chip.sip.memory_ports.at("hbm", Node("hbm", 0, 0)).least_write_ps
    waits = [wait for member in done.members for wait in member.chip.sip.memory_waits]
    assert {wait.is_read for wait in waits} == {True, False}
    for wait in waits:
        ((reason, ps),) = wait.parts
        latency_ps = 0 if wait.is_read else write_ps
        assert (reason, wait.now_ps + ps + latency_ps) == ("its process", wait.end_ps)
        assert ps >= 20_000


def test_a_memory_stops_its_background_and_leaves_nothing() -> None:
    done = run(*SMALL, *REFRESHED)
    assert failure(done) is None
    slow, fast = run(*SMALL, *REFRESHED).document["runs"], run(*SMALL, *QUEUED, *ROWS).document["runs"]
    assert min(row["time_ns"] for row in slow) > max(row["time_ns"] for row in fast)
    assert not [each for member in done.members for each in member.chip.sip.engine.env.processes]


def test_a_background_without_serve_stops_too() -> None:
    done = run(*SMALL, *RINGS_IN_HBM, "--set", "hbm={kind: lab.refreshed, params: {}}", *ROWS)
    assert failure(done) is None
    assert not [each for member in done.members for each in member.chip.sip.engine.env.processes]


def test_processes_that_have_ended_are_freed_without_the_collector() -> None:
    bench = pair_bench(serving(1, 10))

    def kernel(tl: TL) -> None:
        for _ in range(50):
            tl.load(hbm(0, 0, pe=3), 16, "f32")

    def alive() -> int:
        return sum(type(each) is PartProcess for each in gc.get_objects())

    bench.kernel(0, 0, kernel)
    gc.collect()
    gc.disable()
    try:
        before = alive()
        bench.run()
        assert alive() == before
    finally:
        gc.enable()


@pytest.mark.fault
@pytest.mark.parametrize(
    "fault",
    [
        *("float", "whole float", "numpy float", "numpy int", "negative", "a number"),
        *("run", "step", "thread", "before arrivals"),
    ],
)
def test_a_fault_of_the_order_is_refused_at_the_call(fault: str) -> None:
    """Those that no call shows are in ``tests/processes/test_order_of_parts.py``."""
    memory = f"hbm={{kind: lab.disorder, params: {{fault: {fault}}}}}"
    error = failure(run(*SMALL, *RINGS_IN_HBM, "--set", memory))
    assert error["kind"] == "ProcessMisuse"
    assert "\n" not in error["message"]
    assert fault == "thread" or "process serve of memory cube" in error["message"]
    assert fault == "thread" or "lab/disorder.py:" in error["message"]
