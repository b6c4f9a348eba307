"""Runs a random program on real SIPs in this process and compares the outcome with the model. Not a test."""

import random
from typing import Any, NamedTuple

import msgspec
import numpy as np
from doorbells import DOORBELLS
from hardware import WiredPlan, config
from random_programs import Blocked, Op, Program, circle, judge
from sips import check_second_passes, run_sips

from launcher.engines.inproc import InProcess
from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.collectives.queue_pairs import PePlace
from sipsim.chips.ahbm.tl.language import TL
from sipsim.chips.ahbm.tl.values import TensorHandle
from sipsim.core.dtypes import DTYPES
from sipsim.node.sip_node import SipNode
from sipsim.records.dump import Waiting

I32 = DTYPES["i32"]
SLOT_BYTES = 1024
SOURCE, COPIES, STORES = 0, 64 * 1024, 32 * 1024
"""Offsets of a PE's buffers: to send from, to copy to, to store to."""


def pattern(tag: int, words: int) -> "np.ndarray[Any, Any]":
    return np.arange(words, dtype="<i4") + tag * 1000


class Kernel:
    """The program of one rank, and its observations."""

    def __init__(self, program: Program, rank: int, member: SipNode, place: PePlace) -> None:
        self.ops = program.ops[rank]
        self.rank = rank
        self.place = place
        self.sip = member.chip.sip
        self.at = 0
        self.got: list[tuple[str, int, int]] = []
        self.choices: list[str] = []
        self.handles: list[tuple[TensorHandle, bytes]] = []
        self.futures: dict[int, Any] = {}
        self.last: TensorHandle | None = None
        self.total: TensorHandle | None = None
        part = self.sip.pe(place.cube, place.pe)
        self.tl = TL(part, lambda address, _nbytes: address)
        # Not run_kernel: a program may leave futures, which the queues serve all the same.
        self.task = self.sip.spawn(part, self.run)

    def run(self) -> None:
        for op in self.ops:
            getattr(self, op.kind)(op)
            self.at += 1

    def address(self, how: str, offset: int) -> int:
        """In a memory of this PE, or another cube's HBM, disjoint from other PEs' and from rings."""
        sip, cube, pe = self.place
        if how == "far":
            return PhysAddr(sip, 1 - cube, 7, "hbm", 2**20 * (1 + cube * 8 + pe) + offset).encode()
        if how == "sram":
            return PhysAddr(sip, cube, 0, "sram", 24 * 2**20 + 2**20 * pe + offset).encode()
        return PhysAddr(sip, cube, pe, how, offset).encode()

    def send(self, op: Op) -> None:
        data = pattern(op.tag, op.words)
        if op.how == "handle":
            self.tl.send(op.direction, TensorHandle(self.tl, data, I32))
            return
        address, memory = self.address(op.how, SOURCE), self.sip.memory
        memory.write_from_host(address, data.tobytes())
        self.tl.send(op.direction, src_addr=address, shape=op.words, dtype="i32")
        memory.write_from_host(address, bytes(4 * op.words))

    def forward(self, op: Op) -> None:
        if self.last is None:
            self.send(op)
        else:
            self.tl.send(op.direction, self.last)

    def copied(self, op: Op) -> dict[str, Any]:
        if not op.how:
            return {}
        return {"dst_addr": self.address(op.how, COPIES + self.at * SLOT_BYTES), "dst_space": op.how}

    def saw(self, direction: str, handle: TensorHandle, into: dict[str, Any]) -> None:
        tag, words = int(handle.array[0]) // 1000, handle.array.size
        assert (handle.array == pattern(tag, words)).all(), f"rank {self.rank} got {handle.array} from {direction}"
        data = handle.array.tobytes()
        if into:
            assert self.sip.memory.read(into["dst_addr"], len(data)) == data, f"rank {self.rank}: not copied"
        self.got.append((direction, tag, words))
        self.handles.append((handle, data))
        self.last = handle
        if handle.in_slot is not None:
            _ = handle + handle

    def recv(self, op: Op) -> None:
        into = self.copied(op)
        self.saw(op.direction, self.tl.recv(op.direction, op.words, "i32", **into), into)

    def any(self, op: Op) -> None:
        into = self.copied(op)
        handle = self.tl.recv(shape=op.words, dtype="i32", **into)
        assert self.tl.last_polled_dir is not None
        self.choices.append(self.tl.last_polled_dir)
        self.saw(self.tl.last_polled_dir, handle, into)

    def post(self, op: Op) -> None:
        into = self.copied(op)
        self.futures[op.tag] = self.tl.recv_async(op.direction, op.words, "i32", **into), into

    def wait(self, op: Op) -> None:
        future, into = self.futures[op.tag]
        self.saw(op.direction, self.tl.wait(future), into)

    def pause(self, op: Op) -> None:
        self.sip.engine.at(self.sip.engine.now_ps + op.tag, self.task.resume)
        self.task.wait("a pause")

    def add(self, _op: Op) -> None:
        """Sum up what is received, of one size."""
        if self.last is not None:
            fits = self.total is not None and self.total.shape == self.last.shape
            self.total = self.last + (self.total if fits else self.last)

    def store(self, _op: Op) -> None:
        """Store the last message, and the sum in its place once it has been read back."""
        if self.last is None:
            return
        address = self.address("hbm", STORES)
        self.tl.store(address, self.last)
        if self.total is not None:
            self.tl.store(address, self.tl.load(address, self.last.shape, "i32") + self.last)
            self.tl.store(address, self.total)


class Settings(NamedTuple):
    """What varies between runs of a program; times depend on it, results do not. ``credit_return_mode`` may also be
    ``doorbell``, with credits over the fabric.
    """

    sips: int
    buffer_kind: str
    backpressure: str
    credit_return_mode: str
    latch: str | None = None
    depth: int | None = None
    """Of the engines' queues; with one, commands, wake-ups and polls cost PE_CPU, too."""

    def costs(self) -> dict[str, Any]:
        if self.depth is None:
            return {}
        on_cpu = {"pe_cpu.issue_ns": 15, "pe_cpu.wakeup_ns": 30, "pe_cpu.poll_ns": 5}
        return {**on_cpu, "pe_scheduler.queue_depth": self.depth, "defaults.poll_interval_max_ns": 80}

    def chosen(self, program: Program, seed: int) -> dict[str, Any]:
        rng = random.Random(seed)
        strict = program.n_slots in (1, 2, 4, 8) and rng.random() < 0.3
        channels = rng.random() < 0.7
        is_rung = self.credit_return_mode == "doorbell"
        credits_return = DOORBELLS if is_rung else {"defaults.credit_return_mode": self.credit_return_mode}
        line = {"system.sips.topology": "mesh_2d_no_wrap", "system.sips.shape": [self.sips, 1]}
        return {
            "system.sips.count": self.sips,
            "sip.cube_mesh": {"w": 2, "h": 1},
            "system.sips.link": rng.choice(("ucie", "ucie", "ethernet_100g")),
            "system.sips.links": {"0.E": rng.choice(("ucie", "ethernet_400g"))} if self.sips > 1 else {},
            "defaults.buffer_kind": self.buffer_kind,
            "defaults.backpressure": self.backpressure,
            "defaults.poll_interval_ns": rng.choice((1, 10, 37, 1000)),
            **credits_return,
            "defaults.piggyback_wait_ns": rng.choice((0, 5, 100, 2000)),
            "defaults.n_slots": program.n_slots,
            "defaults.slot_size": SLOT_BYTES,
            "defaults.virtual_channels": channels,
            "defaults.credit_virtual_channel": channels
            and self.credit_return_mode != "fast_path"
            and rng.random() < 0.5,
            "defaults.ipcq_credit_size_bytes": 16 if strict else rng.choice((1, 16, 64)),
            "defaults.hw_strict": strict,
            "defaults.strict_validation": rng.random() < 0.5,
            "hbm.bandwidth_GBps": rng.choice((64, 8, 256)),
            "pe_dma.bandwidth_GBps": rng.choice((64, 64, 64, 4)),
            "links.ucie.params.bandwidth_GBps": rng.choice((64, 7)),
            "defaults.latch": self.latch,
            **self.costs(),
            **(line if self.sips > 1 and rng.random() < 0.5 else {}),
        }

    def pe_of_rank(self, program: Program, seed: int) -> list[PePlace]:
        """Different PEs, and few to a SIP, so that most rings lead to another one."""
        rng = random.Random(seed)
        room = [PePlace(sip, cube, pe) for sip in range(self.sips) for cube in range(2) for pe in range(3)]
        rng.shuffle(room)
        return room[: len(program.table)]


class Ran(NamedTuple):
    """A finished run. ``blocked``: as the tasks were left."""

    engine: InProcess
    kernels: list[Kernel]
    blocked: dict[int, Blocked]

    def results(self) -> list[tuple[int, str]]:
        return [(member.chip.sip.engine.now_ps, member.chip.sip.oplog.sha256()) for member in self.engine.members]


def run_program(program: Program, settings: Settings, seed: int, mail_seed: int = 0) -> Ran:
    places = settings.pe_of_rank(program, seed)
    plan = WiredPlan(config(settings.chosen(program, seed)), places, program.table)
    kernels: dict[int, Kernel] = {}

    def start(member: SipNode) -> None:
        for rank, place in enumerate(places):
            if place.sip == member.rank:
                kernels[rank] = Kernel(program, rank, member, place)

    engine = run_sips(plan, start, mail_seed)
    blocked = {}
    for rank, kernel in kernels.items():
        if not kernel.task.ended:
            reason = kernel.task.waits_for
            assert isinstance(reason, Waiting), f"rank {rank} stands in {reason}"
            blocked[rank] = Blocked(kernel.at, reason.op, reason.directions)
    return Ran(engine, [kernels[rank] for rank in range(len(places))], blocked)


def check(program: Program, ran: Ran) -> None:
    """The outcome is one that the model permits."""
    error = ran.engine.outcome.error
    said = "" if error is None else f"{error.kind}: {error.message}\n{error.detail}"
    assert error is None or error.kind == "IpcqDeadlock", said
    verdict = judge(program, {kernel.rank: kernel.choices for kernel in ran.kernels})
    assert ran.blocked == verdict.blocked, said
    assert (error is not None) == bool(verdict.blocked), said
    assert {kernel.rank: kernel.got for kernel in ran.kernels} == verdict.got
    for kernel in ran.kernels:
        assert all(handle.array.tobytes() == data for handle, data in kernel.handles), "a handle's values changed"
    _check_pointers(program, ran, verdict.sent, verdict.taken)
    check_second_passes(ran.engine)
    if error is not None:
        _check_report(program, ran, error.facts["deadlock"])


def _check_pointers(program: Program, ran: Ran, sent: Any, taken: Any) -> None:
    """At the end nothing is in flight: the pointers at both ends agree."""

    def queue(rank: int, direction: str) -> Any:
        kernel = ran.kernels[rank]
        return kernel.sip.pe(kernel.place.cube, kernel.place.pe).ipcq.queues[direction]

    for (rank, direction), (sender, theirs) in program.rings.items():
        here, there = queue(rank, direction), queue(sender, theirs)
        pointers = there.my_head, here.peer_head_cache, here.my_tail, there.peer_tail_cache
        count, gone = sent[rank, direction], taken[rank, direction]
        assert pointers == (count, count, gone, gone), (rank, direction)


def _check_report(program: Program, ran: Ran, facts: dict[str, Any]) -> None:
    """The report lists exactly the blocked PEs, and a cycle if and only if there is one."""
    told = {(w["here"]["rank"], w["here"]["cube"], w["here"]["pe"]) for w in facts["waits"]}
    assert told == {tuple(ran.kernels[rank].place) for rank in ran.blocked}
    if all(len(where.directions) == 1 for where in ran.blocked.values()):
        assert bool(facts["cycle"]) == circle(program, ran.blocked), msgspec.json.encode(facts).decode()
