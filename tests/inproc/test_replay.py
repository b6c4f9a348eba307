"""The second passes of several SIPs land on the same memories: every record says enough, and each field counts."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hardware import WiredPlan, config
from msgspec.structs import replace
from offline import Offline
from seeded import seeded_rows
from sips import check_second_passes, run_sips, spawn

from launcher.engines.inproc import InProcess
from launcher.report.checks import note_verdicts
from sipsim.chips.ahbm.address import PePlace, PhysAddr
from sipsim.chips.ahbm.collectives.algorithms import intercube_allreduce
from sipsim.chips.ahbm.ipcq.messages import Message
from sipsim.chips.ahbm.ipcq.pe_ipcq import PeIpcq
from sipsim.chips.ahbm.memory.store import MemoryStore
from sipsim.chips.ahbm.pe.engine import CommandEngine
from sipsim.chips.ahbm.pe.math import PeMath
from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.ahbm.tl.language import TL
from sipsim.chips.ahbm.tl.values import Pointer, TensorHandle
from sipsim.core.dtypes import DTYPES
from sipsim.node.sip_node import SipNode
from sipsim.records.oplog import FIELDS
from sipsim.records.replay import Feed

SMALL = {"sip.cube_mesh": {"w": 2, "h": 2}, "defaults.slot_size": 128}
SYSTEMS: dict[str, dict[str, Any]] = {
    "two in a ring": {"system.sips.count": 2},
    "three in a ring": {"system.sips.count": 3},
    "torus": {"system.sips.count": 4, "system.sips.topology": "torus_2d"},
    "mesh": {"system.sips.count": 4, "system.sips.topology": "mesh_2d_no_wrap"},
}
WAYS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "rings in HBM": {"defaults.buffer_kind": "hbm"},
    "one slot": {"defaults.n_slots": 1},
    "piggyback": {"defaults.credit_return_mode": "piggyback"},
    "fabric credits": {"defaults.credit_return_mode": "fabric", "defaults.buffer_kind": "sram"},
}


def all_reduce(settings: dict[str, Any], dtype: str, n_elem: int = 150) -> InProcess:
    """The default algorithm on seeded values, its rows in the HBM of cube 0's PE 0; three tiles a cube."""
    plan = Plan(config({**SMALL, **settings}))
    system, kind = plan.system, DTYPES[dtype]
    pointer = Pointer(PhysAddr(0, 0, 0, "hbm", 4096).encode(), kind)
    n_cubes, (width, height) = system.n_cubes, system.cube_mesh
    w, h = system.shape
    topology = intercube_allreduce.TOPO_NAME_TO_KIND[system.topology]

    def start(member: SipNode) -> None:
        rank = member.rank
        mine = pointer + (PhysAddr(rank, 0, 0, "hbm", 0).encode() - PhysAddr(0, 0, 0, "hbm", 0).encode())
        rows = seeded_rows(rank, (n_cubes, n_elem), kind, 1, system.n_sips * n_cubes)
        member.chip.sip.memory.write_from_host(mine, b"".join(row.tobytes() for row in rows))
        args = (mine, n_elem, width, height, system.n_sips, rank, topology, w, h)
        for cube in range(n_cubes):
            spawn(member.chip.sip, cube, 0, lambda tl: intercube_allreduce.kernel(*args, tl))

    return run_sips(plan, start)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("way", WAYS)
def test_an_all_reduce_again(system: str, way: str) -> None:
    assert check_second_passes(all_reduce({**SYSTEMS[system], **WAYS[way]}, "f16")) > 60


def test_wrapped_integers_again() -> None:
    check_second_passes(all_reduce(SYSTEMS["torus"], "i32"))


# --- futures, copies and constants --------------------------------------------------------------------------------

N = 24
TURNS = 5


def at(sip: int, space: str, offset: int) -> int:
    return PhysAddr(sip, 0, 0, space, offset).encode()


def exchange(sip: int, tl: TL) -> None:
    """Pass sums on in a ring: copies into all memories, futures waited for in the other order, sends of all sources."""
    one = TensorHandle(tl, np.full(8, sip + 1, "<f4"), DTYPES["f32"])
    tl.store(at(sip, "sram", 8 * 2**20), one)
    total = tl.load(at(sip, "hbm", 0), N, "f32")
    for turn in range(TURNS):
        space, offset = [("tcm", 8192), ("hbm", 8192), ("sram", 9 * 2**20)][turn % 3]
        copied = tl.recv_async("W", N, "f32", dst_addr=at(sip, space, offset), dst_space=space)
        held = tl.recv_async("W", N, "f32")
        tl.send("E", total)
        tl.send("E", src_addr=at(sip, "hbm", 0), shape=N, dtype="f32")
        total = total + tl.wait(held)
        tl.wait(copied)
        tl.send("W", src_addr=at(sip, space, offset), shape=N, dtype="f32")
        total = total + tl.recv(shape=N, dtype="f32")
        tl.store(at(sip, "hbm", 4 * N * (turn + 1)), total)
        tl.store(at(sip, "hbm", 0), total)


@pytest.mark.parametrize("kind", ["tcm", "hbm", "sram"])
@pytest.mark.parametrize("mail_seed", [0, 1])
def test_futures_and_copies_again(kind: str, mail_seed: int) -> None:
    check_second_passes(ring_exchange(kind, mail_seed))


def ring_exchange(kind: str, mail_seed: int = 0) -> InProcess:
    places = [PePlace(sip, 0, 0) for sip in range(3)]
    table = {rank: {"E": (rank + 1) % 3, "W": (rank - 1) % 3} for rank in range(3)}
    settings = {"system.sips.count": 3, "sip.cube_mesh": {"w": 1, "h": 1}, "defaults.buffer_kind": kind}

    def start(member: SipNode) -> None:
        values = np.random.default_rng(member.rank).standard_normal(N).astype("<f4")
        member.chip.sip.memory.write_from_host(at(member.rank, "hbm", 0), values.tobytes())
        spawn(member.chip.sip, 0, 0, lambda tl: exchange(member.rank, tl))

    return run_sips(WiredPlan(config(settings), places, table), start, mail_seed)


# --- without the second pass ----------------------------------------------------------------------------------------

RUNS: dict[str, Callable[[], InProcess]] = {
    "all-reduce": lambda: all_reduce(SYSTEMS["torus"], "f16"),
    "ring exchange": lambda: ring_exchange("hbm"),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_log_repeated_with_numpy_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From what the host wrote, to the bytes of all memories."""
    written: list[tuple[MemoryStore, int, bytes]] = []
    write = MemoryStore.write_from_host

    def noted(store: MemoryStore, address: int, data: bytes | memoryview) -> None:
        written.append((store, address, bytes(data)))
        write(store, address, data)

    monkeypatch.setattr(MemoryStore, "write_from_host", noted)
    members = RUNS[name]().members
    stores = [member.chip.sip.memory for member in members]
    system = members[0].chip.sip.plan.system
    fresh = [MemoryStore(sip, system.capacities, system.spaces_of_cubes) for sip in range(len(stores))]
    for store, address, data in written:
        fresh[stores.index(store)].write(address, data)
    Offline(fresh, [member.chip.sip.oplog.records for member in members])
    assert [image(each) for each in fresh] == [image(each) for each in stores]
    assert all(image(each) for each in stores)


def image(store: MemoryStore) -> dict[int, bytes]:
    """Pages that are not all zero, by address."""
    return {address: bytes(page) for address, page in store.pages() if any(page)}


# --- wrong records ------------------------------------------------------------------------------------------------

OTHER = {
    ("dma_read", "addr"): lambda value: value + 4,
    ("dma_read", "result"): lambda value: "h999",
    ("dma_write", "addr"): lambda value: value + 4,
    ("dma_write", "operand"): lambda value: "h0",
    ("math", "operands"): lambda value: value.split(",")[0] + ",h0",
    ("math", "result"): lambda value: "h0",
    ("ipcq.send", "source"): lambda value: "h0" if isinstance(value, str) else value + 4,
    ("ipcq.send", "addr"): lambda value: value + 64,
    ("ipcq.send", "sender_seq"): lambda value: value + 100,
    ("ipcq.send", "dir"): lambda value: {"E": "W", "W": "E"}[value],
    ("ipcq.recv", "result"): lambda value: "h0",
    ("ipcq.recv", "dst_addr"): lambda value: value + 4,
    ("ipcq.recv", "addr"): lambda value: value + 64,
    ("const", "values"): lambda value: value[:-2] + "41",
    ("const", "result"): lambda value: "h999",
}


TURN = {"const": 1, "dma_read": 1}
"""Which record of its kind is changed; else the third."""


@pytest.mark.parametrize(("kind", "field"), OTHER, ids=str)
def test_a_wrong_record_is_seen(kind: str, field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One changed field of a record of its kind on SIP 1 that has it."""
    ended, place, found = Feed.end_operation, 5 + FIELDS[kind].index(field), []

    def wrong_record(feed: Feed, record: tuple[Any, ...], *rest: Any) -> None:
        if record[0] == kind and record[place] != "-" and feed._second_pass.memory._sip == 1:  # type: ignore[attr-defined]
            found.append(record)
            if len(found) == TURN.get(kind, 3):
                record = *record[:place], OTHER[kind, field](record[place]), *record[place + 1 :]
        ended(feed, record, *rest)

    monkeypatch.setattr(Feed, "end_operation", wrong_record)
    engine = ring_exchange("hbm")
    assert len(found) >= TURN.get(kind, 3)
    with pytest.raises(AssertionError):
        check_second_passes(engine)


# --- messages between SIPs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 7])
def test_a_message_that_is_changed_between_sips(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what has taken it from the link, before the far SIP knows of it."""
    arrive = PeIpcq.arrive
    slots: list[int] = []

    def changed(ipcq: PeIpcq, message: Message) -> None:
        if message.src_sip == 1 and message.src_direction == "E" and message.sender_seq == number:
            slots.append(message.dst_addr)
            message = replace(message, data=bytes([message.data[0] ^ 1]) + message.data[1:])
        arrive(ipcq, message)

    monkeypatch.setattr(PeIpcq, "arrive", changed)
    outcome = ring_exchange("tcm").outcome
    note_verdicts(outcome)
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.rank, outcome.also) == ("wrong_numbers", 2, [])
    ends, slot = "of rank 1 cube 0 PE 0 to rank 2 cube 0 PE 0", slots[0]
    told = f"rank 2, second pass: message {number} E {ends} was changed in transit to the slot at {slot:#x}"
    assert outcome.error.message == told
    facts = {key: outcome.error.facts[key] for key in ("cube", "pe", "direction")}
    assert facts == {"cube": 0, "pe": 0, "direction": "E"}


@pytest.mark.parametrize(("number", "kind"), [(3, "InvariantViolation"), (2 * TURNS - 1, "IpcqDeadlock")])
def test_a_message_that_is_lost_between_sips(number: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one leaves a gap, or the receive of the last one waits."""
    arrive = PeIpcq.arrive

    def lost(ipcq: PeIpcq, message: Message) -> None:
        if (message.src_sip, message.src_direction, message.sender_seq) != (1, "E", number):
            arrive(ipcq, message)

    monkeypatch.setattr(PeIpcq, "arrive", lost)
    error = ring_exchange("tcm").outcome.error
    assert error is not None
    assert error.kind == kind


def test_an_error_on_two_ranks_is_told_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line each, and the facts of the first."""
    end = PeMath._end

    def wrong_end(self: CommandEngine, completion: Any, kind: str, *fields: object, work: tuple[Any, ...] = ()) -> None:
        if self._sip.sip < 2:
            completion.command.result.array = completion.command.result.array * 2
        end(self, completion, kind, *fields, work=work)

    monkeypatch.setattr(PeMath, "_end", wrong_end)
    engine = ring_exchange("tcm")
    outcome = engine.outcome
    note_verdicts(outcome)
    lines = [each.message for each in (outcome.error, *outcome.also) if each is not None]
    records = [member.chip.sip.oplog.records for member in engine.members]
    first = [next(i for i, record in enumerate(log, 1) if record[0] == "math") for log in records[:2]]
    assert [line.split(" (")[0] for line in lines] == [
        f"rank {rank}, second pass: record {number}" for rank, number in enumerate(first)
    ]
    assert outcome.error is not None
    facts = outcome.error.facts
    assert (facts["record"], facts["cube"], facts["pe"]) == (first[0], 0, 0)
    assert facts["time_ps"] == records[0][first[0] - 1][2]
    assert facts["record_text"].startswith("math ")
