"""``tcm_layout.handles_take_room``: what a kernel holds fills its PE's TCM, and returns when the kernel drops it."""

import gc
import random
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hardware import Bench, hbm, pair_bench, tcm
from pair_times import run_pair

from sipsim.chips.ahbm.pe.tcm import TcmBudget
from sipsim.chips.ahbm.tl.language import TL
from sipsim.chips.ahbm.tl.values import TensorHandle
from sipsim.core.dtypes import DTYPES
from sipsim.core.errors import InvariantViolation, KernelError, TcmFull

MIB = 2**20
F32 = DTYPES["f32"]


def bench_of(**more: Any) -> Bench:
    settings = {key.replace("__", "."): value for key, value in more.items()}
    return pair_bench({"tcm_layout.handles_take_room": True, "tcm_layout.kernel_MiB": 4, **settings})


def mib(tl: TL, count: int = 1) -> TensorHandle:
    return tl.load(hbm(tl.program_id(1), 0), count * MIB // 4, "f32")


def used_by(body: Callable[[TL, Callable[[], None]], object], bench: Bench | None = None) -> list[float]:
    """MiB that a kernel's handles take where it asks, and after its end."""
    bench = bench or bench_of()
    room, seen = bench.sip.pe(0, 0).room, list[float]()
    assert room is not None
    run_pair(bench, lambda tl: body(tl, lambda: seen.append(room.used_bytes / MIB)))
    return [*seen, room.used_bytes / MIB]


def holds_192_mib(tl: TL) -> None:
    _held = [tl.load(hbm(0, 0), MIB // 4, "f32") for _ in range(192)]


@pytest.mark.ideal
def test_192_mib_do_not_fit_16() -> None:
    """Without the cost they do. The largest handles are named, with the lines that made them."""
    run_pair(pair_bench(), holds_192_mib)
    with pytest.raises(TcmFull) as caught:
        run_pair(pair_bench({"tcm_layout.handles_take_room": True}), holds_192_mib)
    place = rf"made at {Path(__file__).parent.name}/{Path(__file__).name}:{holds_192_mib.__code__.co_firstlineno + 1}"
    largest = "; ".join(rf"h{number} of 1048576 bytes, {place}" for number in range(5))
    assert re.search(
        rf"^h14 of 1048576 bytes does not fit the TCM: 0 of 14680064 bytes .*: {largest}; and 9 more handles$",
        str(caught.value),
    )
    assert (caught.value.cube, caught.value.pe) == (0, 0)


def test_room_returns_when_a_handle_is_dropped() -> None:
    """Each result takes its own; a name that is bound anew drops what it was bound to after the new one is there."""

    def kernel(tl: TL, note: Callable[[], None]) -> None:
        a = mib(tl)
        note()
        b = a + a
        note()
        del a
        note()
        b = b + b
        note()
        del b
        note()
        for _ in range(20):
            mib(tl, 4)
        note()

    assert used_by(kernel) == [1, 2, 1, 1, 0, 0, 0]


def test_operands_are_held_until_their_command_has_ended() -> None:
    def kernel(tl: TL, note: Callable[[], None]) -> None:
        total = mib(tl) + mib(tl)
        note()
        tl.store(tcm(0, 0), total)
        del total
        note()
        tl.store(tcm(0, 0), mib(tl, 4))
        note()

    assert used_by(kernel) == [1, 0, 0, 0]


@pytest.mark.parametrize("depth", [None, 1, 16])
def test_a_store_holds_its_operand_until_it_has_ended(depth: int | None) -> None:
    """Waited for or not, whether the kernel keeps the future of the one that it has waited for or not."""

    def kernel(tl: TL, note: Callable[[], None]) -> None:
        big = mib(tl, 3)
        store = tl.store_async(tcm(0, 0), big)
        del big
        note()
        tl.wait(store)
        note()
        with pytest.raises(KernelError, match=r"^tl\.wait has returned the handle of this store before, "):
            tl.wait(store)
        big = tl.wait(tl.store_async(tcm(0, 0), mib(tl, 3)))
        note()
        tl.store_async(tcm(0, 0), big)
        tl.store_async(tcm(0, 0), big)
        del big
        note()
        bench.pause(0, 0, 10**9)
        note()
        mib(tl, 4)

    bench = bench_of(pe_scheduler__queue_depth=depth)
    assert used_by(kernel, bench) == [3, 0, 3, 3, 0, 0]


def test_values_of_the_kernel_take_whole_lines() -> None:
    """Until they are released."""

    def kernel(tl: TL, note: Callable[[], None]) -> None:
        one = TensorHandle(tl, np.ones(1, "<f4"), F32)
        note()
        _line = TensorHandle(tl, np.ones(17, "<f4"), F32)
        note()
        tl.release(one)
        note()

    assert used_by(kernel) == [64 / MIB, 192 / MIB, 128 / MIB, 0]


def test_a_cycle_keeps_its_room_until_the_kernel_ends() -> None:
    """Whether Python's collector has come by or not; what the kernel leaves elsewhere takes room no longer than it."""
    left: list[TensorHandle] = []

    def kernel(tl: TL, note: Callable[[], None]) -> None:
        knot: list[Any] = [mib(tl)]
        knot.append(knot)
        left.append(mib(tl))
        del knot
        note()
        gc.collect()
        note()

    bench = bench_of()
    assert used_by(kernel, bench) == [2, 2, 0]
    assert used_by(lambda tl, note: [mib(tl, 4)], bench) == [0]
    left.clear()
    assert used_by(lambda tl, note: [mib(tl, 4), note()], bench) == [4, 0]


@pytest.mark.parametrize(("latch", "kept", "named"), [(None, 1, 1), ("copy", 1, 1), ("in_place", 0, 1)])
@pytest.mark.parametrize("kind", ["sram", "hbm"])
def test_a_message_takes_room_unless_it_stays_in_its_slot(latch: str | None, kind: str, kept: int, named: int) -> None:
    """In place it takes none until the first command has named it."""
    bench = bench_of(defaults__latch=latch, defaults__buffer_kind=kind, defaults__slot_size=MIB, defaults__n_slots=1)
    bench.kernel(1, 0, lambda tl: tl.send("W", mib(tl)))

    def kernel(tl: TL, note: Callable[[], None]) -> None:
        handle = tl.recv("E", MIB // 4, "f32")
        note()
        tl.store(tcm(0, 0), handle)
        note()

    assert used_by(kernel, bench) == [kept, named, 0]


WORDS: list[Callable[[TL, TensorHandle], object]] = [
    lambda tl, x: tl.store(tcm(0, 0), x),
    lambda tl, x: tl.store(hbm(0, 0), x),
    lambda tl, x: x + x,
    lambda tl, x: tl.sum(x),
    lambda tl, x: x.to("f16"),
    lambda tl, x: tl.trans(tl.reshape(x, (64, 64))),
    lambda tl, x: tl.reshape(x, (64, 64)),
    lambda tl, x: x[0:64],
    lambda tl, x: tl.join([x + 1, x + 2]),
    lambda tl, x: tl.dot(tl.reshape(x, (64, 64)), tl.reshape(x, (64, 64))),
]
"""What a kernel may do with a message of 4096 elements."""


N = 4096


class Mixed:
    """Words drawn by chance, between messages to a peer that does the same. ``held``: messages of N elements, which
    alone take ``room`` whenever nothing is under way.
    """

    def __init__(self, tl: TL, rng: random.Random, way: str, room: TcmBudget) -> None:
        self.tl, self.rng, self.room = tl, rng, room
        self.cube = tl.program_id(1)
        self.held: list[Any] = [tl.load(hbm(self.cube, 0), N, "f32")]
        self.later: list[Any] = []
        self.words: list[Callable[[Any], object]] = [
            lambda x: self.held.append(tl.load(hbm(self.cube, 0), N, "f32")),
            lambda x: (tl.load_async(hbm(self.cube, 0), N, "f32"), tl.delay(10**6)),
            lambda x: self.later.append(tl.load_async(hbm(self.cube, 0), N, "f32")),
            lambda x: self.later.append(tl.store_async(hbm(self.cube, 2**16), x)),
            lambda x: (tl.store_async(tcm(self.cube, 0), x), tl.delay(10**6)),
            lambda x: self.later.append(
                tl.gemm_async(
                    *(hbm(self.cube, 2**16 * at) for at in (1, 2, 3)), (16, 16, 16), dtype="f32", out_dtype="f32"
                )
            ),
            lambda x: self.held.append(x + self.rng.choice(self.held)),
            lambda x: self.held.append(tl.join([x[0 : N // 2] + 1, x[N // 2 : N] + 2])),
            lambda x: self.held.append(tl.reshape(tl.trans(tl.reshape(x, (64, 64))), N)),
            lambda x: tl.dot(tl.reshape(x, (64, 64)), tl.reshape(self.rng.choice(self.held), (64, 64))),
            lambda x: self.held.append(x),
            lambda x: len(self.held) > 1 and self.held.pop(self.rng.randrange(len(self.held))),
            lambda x: self.later and tl.wait(self.later.pop(0)),
            *(partial(word, tl) for word in WORDS),
        ]
        self.sends: list[Callable[[Any], object]] = [
            lambda x: tl.send(way, x),
            lambda x: tl.send(way, tl.reshape(x, (64, 64))[0:64]),
            lambda x: tl.send(way, x * 2),
            lambda x: tl.send(way, src_addr=hbm(self.cube, 0), shape=N, dtype="f32"),
        ]
        self.receives: list[Callable[[Any], object]] = [
            lambda x: self.held.append(tl.recv(way, N, "f32")),
            lambda x: tl.recv(way, N, "f32"),
            lambda x: tl.release(tl.recv(way, N, "f32")),
            lambda x: self.held.append(tl.recv(way, N, "f32", dst_addr=hbm(self.cube, 2**18))),
            lambda x: self.later.append(tl.recv_async(way, N, "f32")),
            lambda x: self.held.append(tl.recv(None, N, "f32") if not self.later else tl.recv(way, N, "f32")),
        ]

    def run(self, messages: list[bool], is_first: bool) -> None:
        """``messages``: whether the first of the two sends. None waits for a room that the other one holds."""
        for first_sends in messages:
            for _ in range(self.rng.randrange(4)):
                self._do(self.words)
            self._do(self.sends if first_sends == is_first else self.receives)
        while self.later:
            self.tl.wait(self.later.pop())
        self.held.clear()
        self._check()

    def _do(self, words: list[Callable[[Any], object]]) -> None:
        self.rng.choice(words)(self.rng.choice(self.held))
        if not self.later:
            self._check()

    def _check(self) -> None:
        rooms = [each.room for each in self.held]
        taken = {each for room in rooms for each in (room if isinstance(room, tuple) else (room,)) if each is not None}
        assert {each._number for each in taken} == set(self.room._spaces)


@pytest.mark.parametrize("seed", range(40))
def test_what_any_words_took_returns(seed: int) -> None:
    """As soon as the kernel has dropped it, after any words, with any settings."""
    rng = random.Random(seed)
    messages = [rng.random() < 0.5 for _ in range(8)]
    drawn = {
        "pe_scheduler__queue_depth": rng.choice([None, 1, 16]),
        "defaults__latch": rng.choice([None, "copy", "in_place"]),
        "defaults__buffer_kind": rng.choice(["tcm", "sram", "hbm"]),
        "defaults__credit_return_mode": rng.choice(["fast_path", "fabric"]),
        "defaults__backpressure": rng.choice(["sleep", "poll"]),
        "defaults__virtual_channels": rng.random() < 0.5,
    }
    bench = bench_of(defaults__slot_size=2**14, defaults__n_slots=9, **drawn)
    ended = []
    for cube, way in enumerate("EW"):

        def kernel(tl: TL, cube: int = cube, way: str = way) -> None:
            room = bench.sip.pe(cube, 0).room
            assert room is not None
            Mixed(tl, random.Random(f"{seed} {cube}"), way, room).run(messages, cube == 0)
            ended.append(cube)

        bench.kernel(cube, 0, kernel)
    gc.disable()
    try:
        bench.run()
    finally:
        gc.enable()
    assert sorted(ended) == [0, 1], drawn


@pytest.mark.parametrize("depth", [None, 16])
def test_messages_of_many_times_the_tcm_pass_it(depth: int | None) -> None:
    """There and back, and what was loaded for them. A message that is copied to an address is held too."""
    bench = bench_of(
        pe_scheduler__queue_depth=depth, defaults__latch="copy", defaults__slot_size=MIB, defaults__n_slots=1
    )

    def other(tl: TL) -> None:
        for _ in range(20):
            tl.send("W", tl.recv("W", MIB // 4, "f32"))

    def kernel(tl: TL, note: Callable[[], None]) -> None:
        for _ in range(20):
            tl.send("E", mib(tl))
            held = tl.recv("E", MIB // 4, "f32", dst_addr=hbm(0, 0))
        note()
        del held

    bench.kernel(1, 0, other)
    assert used_by(kernel, bench) == [1, 0]


@pytest.mark.parametrize(
    ("name", "bug"), [("has", lambda *_: True), ("free", lambda room, number: room._spaces.pop(number, None))]
)
def test_a_tcm_that_holds_more_than_it_has_is_found(
    name: str, bug: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted bugs: the bound is forgotten, or what returns."""
    monkeypatch.setattr(TcmBudget, name, bug)

    def kernel(tl: TL) -> None:
        mib(tl)
        _held = [mib(tl) for _ in range(5)]

    with pytest.raises(InvariantViolation, match=r"^the TCM space of cube 0 PE 0 is miscounted: "):
        run_pair(bench_of(), kernel)
