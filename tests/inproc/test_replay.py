"""The op logs of all SIPs, carried out again with NumPy alone, land on the same memory: every record says enough."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hardware import WiredPlan, config
from replay import Image, Replay, image
from sips import run_sips, spawn

from sipsim.ccl.algorithms import intercube_allreduce
from sipsim.ccl.seeded import seeded_rows
from sipsim.dtypes import DTYPES
from sipsim.node.sip_node import SipNode
from sipsim.plan.plan import Plan
from sipsim.record.oplog import FIELDS
from sipsim.tl.language import TL
from sipsim.tl.values import Pointer, TensorHandle
from sipsim.topology.address import PePlace, PhysAddr

Log = list[tuple[Any, ...]]
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


class Recorded:
    """All memories before and after a run, and the op logs in between."""

    def __init__(self, plan: Plan, start: Callable[[SipNode], None], mail_seed: int = 0) -> None:
        self.before: dict[int, Image] = {}

        def note_and_start(member: SipNode) -> None:
            start(member)
            self.before[member.rank] = image(member.chip.sip.memory)

        engine = run_sips(plan, note_and_start, mail_seed)
        assert engine.outcome.error is None, engine.outcome.error
        self.after = [image(member.chip.sip.memory) for member in engine.members]
        self.logs: list[Log] = [member.chip.sip.oplog.records for member in engine.members]
        self.engine = engine

    def check(self) -> None:
        """The replay lands on the same memory; it was another one before."""
        before = [self.before[rank] for rank in sorted(self.before)]
        assert not same(before, self.after)
        assert same(Replay(before, self.logs).run(), self.after)


def same(one: list[Image], other: list[Image]) -> bool:
    return len(one) == len(other) and all(
        a.keys() == b.keys() and all((a[at] == b[at]).all() for at in a) for a, b in zip(one, other, strict=True)
    )


def all_reduce(settings: dict[str, Any], dtype: str, n_elem: int = 150) -> Recorded:
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
        member.chip.sip.memory.write(mine, b"".join(row.tobytes() for row in rows))
        args = (mine, n_elem, width, height, system.n_sips, rank, topology, w, h)
        for cube in range(n_cubes):
            spawn(member.chip.sip, cube, 0, lambda tl: intercube_allreduce.kernel(*args, tl))

    return Recorded(plan, start)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("way", WAYS)
def test_an_all_reduce_again(system: str, way: str) -> None:
    all_reduce({**SYSTEMS[system], **WAYS[way]}, "f16").check()


def test_wrapped_integers_again() -> None:
    all_reduce(SYSTEMS["torus"], "i32").check()


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
    ring_exchange(kind, mail_seed).check()


def ring_exchange(kind: str, mail_seed: int = 0) -> Recorded:
    places = [PePlace(sip, 0, 0) for sip in range(3)]
    table = {rank: {"E": (rank + 1) % 3, "W": (rank - 1) % 3} for rank in range(3)}
    settings = {"system.sips.count": 3, "sip.cube_mesh": {"w": 1, "h": 1}, "defaults.buffer_kind": kind}

    def start(member: SipNode) -> None:
        values = np.random.default_rng(member.rank).standard_normal(N).astype("<f4")
        member.chip.sip.memory.write(at(member.rank, "hbm", 0), values.tobytes())
        spawn(member.chip.sip, 0, 0, lambda tl: exchange(member.rank, tl))

    return Recorded(WiredPlan(config(settings), places, table), start, mail_seed)


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
    ("ipcq.recv", "result"): lambda value: "h0",
    ("ipcq.recv", "dst_addr"): lambda value: value + 4,
    ("ipcq.recv", "addr"): lambda value: value + 64,
    ("const", "values"): lambda value: value[:-2] + "41",
    ("const", "result"): lambda value: "h999",
}


@pytest.mark.parametrize(("kind", "field"), OTHER, ids=str)
def test_a_wrong_record_is_seen(kind: str, field: str) -> None:
    """One changed field of the last record of its kind on SIP 1 that has it."""
    recorded = ring_exchange("hbm")
    recorded.check()
    log, place = recorded.logs[1], 5 + FIELDS[kind].index(field)
    index = max(i for i, each in enumerate(log) if each[0] == kind and each[place] != "-")
    record = list(log[index])
    record[place] = OTHER[kind, field](record[place])
    log[index] = tuple(record)
    with pytest.raises((AssertionError, KeyError, ValueError)):
        recorded.check()
