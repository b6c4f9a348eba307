"""Commands of a PE: an engine of one's own, completions that take no time, and several commands at once."""

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import NamedTuple

import numpy as np
import pytest
from hardware import Bench, hbm, pair_bench, tcm
from pair_times import IPCQ_PS, RETURN_PS, arrival_ps, put, recv_i32, run_pair

from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.pe.commands import Completion, Direction, IpcqRecv, IpcqSend
from sipsim.chips.ahbm.pe.engine import CommandEngine, engine_for
from sipsim.chips.ahbm.tl.language import TL
from sipsim.chips.ahbm.tl.values import TensorHandle
from sipsim.core.dtypes import DTYPES
from sipsim.core.errors import InvariantViolation, MemoryAccessError
from sipsim.core.registry import UnknownName
from sipsim.records.oplog import record_kind

# --- an operation of one's own: a command, its engine, a word ---------------------------------------------------

FILL = record_kind("fill", "addr", "nbytes", "value")


class Fill(NamedTuple):
    """Write a byte to all of a range."""

    address: int
    nbytes: int
    value: int


@engine_for(Fill)
class FillEngine(CommandEngine):
    """One at a time: 3 ns to start, and a nanosecond for 32 bytes."""

    free_ps = 0

    def take(self, command: Fill) -> Completion:
        completion = self._begin(command)
        self.free_ps = max(self.free_ps, self._engine.now_ps) + 3_000 + -(-command.nbytes * 1_000 // 32)
        self._engine.at(self.free_ps, partial(self.fill, completion))
        return completion

    def fill(self, completion: Completion) -> None:
        address, nbytes, value = completion.command
        self._sip.memory.write(address, bytes([value]) * nbytes)
        self._end(completion, FILL, address, nbytes, value)


class MoreTL(TL):
    """``tl`` with the word."""

    def fill(self, ptr: int, nbytes: int, value: int) -> None:
        self._submit(Fill(self._translate(ptr, nbytes), nbytes, value)).wait(self._task())


def kernel(bench: Bench, body: Callable[[MoreTL], None], cube: int = 0) -> None:
    """Start ``body`` on PE 0 of a cube, with the word."""
    pe = bench.sip.pe(cube, 0)
    tl = MoreTL(pe, lambda address, _nbytes: address)
    bench.sip.spawn(pe, lambda: body(tl))


@pytest.mark.ideal
def test_an_operation_of_ones_own() -> None:
    """640 B: 3 ns and 20 ns; then a load sees them, and the next word starts when this one has ended."""
    bench = pair_bench()
    got: list[list[int]] = []

    def body(tl: MoreTL) -> None:
        tl.fill(tcm(0, 0), 640, 7)
        tl.fill(tcm(0, 4), 8, 9)
        got.append(tl.load(tcm(0, 0), 4, "i32").array.tolist())

    kernel(bench, body)
    bench.run()
    assert got == [[0x07070707, 0x09090909, 0x09090909, 0x07070707]]
    assert bench.sip.oplog.records[:2] == [
        ("fill", 0, 23_000, 0, 0, tcm(0, 0), 640, 7),
        ("fill", 23_000, 26_250, 0, 0, tcm(0, 4), 8, 9),
    ]
    assert [each.start_ps for each in bench.records("dma_read")] == [26_250]


@pytest.mark.ideal
def test_an_engine_is_of_one_pe_and_keeps_its_state() -> None:
    """Two commands at once on a PE, one after the other on its engine; another PE has an engine of its own."""
    bench = pair_bench()

    def two(tl: MoreTL) -> None:
        first, second = (tl._submit(Fill(hbm(0, 64 * i), 64, i)) for i in (1, 2))
        assert not first.ended
        second.wait(tl._task())
        assert first.ended

    kernel(bench, two)
    kernel(bench, lambda tl: tl.fill(hbm(1, 0), 32, 3), cube=1)
    bench.run()
    assert [(each.end_ps, each.cube) for each in bench.records("fill")] == [(4_000, 1), (5_000, 0), (10_000, 0)]


def test_a_command_that_no_engine_takes() -> None:
    class Filll(NamedTuple):
        address: int

    bench = pair_bench()
    kernel(bench, lambda tl: tl._submit(Filll(0)).wait(tl._task()))
    with pytest.raises(UnknownName, match=r"unknown command 'Filll'; did you mean 'Fill'\? allowed: .*DmaRead"):
        bench.run()


# --- completions ------------------------------------------------------------------------------------------------


@pytest.mark.ideal
def test_a_send_with_room_has_ended_when_it_is_submitted() -> None:
    """The kernel goes on without a switch: the events are its start, and the message's leaving, which gives a place of
    PE_DMA's queue back, its end, and its write at the slot."""
    bench = pair_bench()
    switches: list[object] = []

    def sender(tl: TL) -> None:
        task = bench.sip.pe(0, 0).task
        assert task is not None
        task.wait = switches.append  # type: ignore[method-assign]
        tl.send("E", src_addr=tcm(0, 0), shape=16, dtype="i32")

    run_pair(bench, sender)
    assert switches == []
    assert bench.engine.events == 4


@pytest.mark.ideal
def test_sends_that_wait_leave_in_order() -> None:
    """Commands that nobody waits for yet: of three for a ring of one slot the second leaves with the first's credit,
    and the third with the second's, of whose values it sees what was written meanwhile."""
    bench = pair_bench({"defaults.n_slots": 1})
    put(bench, tcm(0, 0), [1] * 16, "<i4")
    got: list[int] = []

    def sender(tl: TL) -> None:
        sends = [tl._submit(IpcqSend("E", tcm(0, 0), 64, (16,), DTYPES["i32"])) for _ in range(3)]
        assert [each.ended for each in sends] == [True, False, False]
        put(bench, tcm(0, 0), [2] * 16, "<i4")
        sends[2].wait(tl._task())
        assert all(each.ended for each in sends)

    run_pair(bench, sender, lambda tl: got.extend(recv_i32(tl)[0] for _ in range(3)))
    assert got == [1, 2, 2]
    turn_ps = arrival_ps(64) + RETURN_PS
    assert bench.ends("ipcq.send") == [0, turn_ps, 2 * turn_ps]
    assert bench.queue(0, 0, "E").my_head == 3


@pytest.mark.parametrize("backpressure", ["sleep", "poll"])
def test_receives_of_any_direction_are_served_in_order(backpressure: str) -> None:
    """Two at once, before there is a message: each gets one, the first the first."""
    bench = pair_bench({"defaults.backpressure": backpressure})
    got: list[int] = []

    def receiver(tl: TL) -> None:
        handles = [TensorHandle(tl, None, DTYPES["i32"]) for _ in range(2)]
        posted = [tl._submit(IpcqRecv(Direction.ANY, (16,), DTYPES["i32"], None, each)) for each in handles]
        posted[1].wait(tl._task())
        assert all(each.ended for each in posted)
        got.extend(int(each.array[0]) for each in handles)

    run_pair(bench, 2, receiver)
    assert got == [0, 1]


def test_a_failed_command_raises_in_the_kernel_that_waits() -> None:
    """A store through PE_DMA to another SIP, found only when the value has been fetched from its slot."""
    bench = pair_bench({"defaults.buffer_kind": "hbm"})

    def receiver(tl: TL) -> None:
        handle = tl.recv("W", 16, "i32")
        with pytest.raises(
            MemoryAccessError, match=r"is on another SIP; tl\.load and tl\.store reach only the kernel's SIP"
        ):
            tl.store(tcm(0, 0, sip=1), handle)

    run_pair(bench, 1, receiver)
    assert bench.engine.now_ps > arrival_ps(64, "hbm") + IPCQ_PS


@pytest.mark.parametrize("place", [{"cube": 77}, {"pe": 60}])
@pytest.mark.parametrize("space", ["hbm", "tcm"])
def test_an_address_of_a_cube_or_pe_that_does_not_exist_is_an_error_of_the_kernel(
    place: dict[str, int], space: str
) -> None:
    address = PhysAddr(**{"sip": 0, "cube": 0, "pe": 0, "space": space, "offset": 0, **place}).encode()

    def kernel(tl: TL) -> None:
        for word in (lambda: tl.load(address, 4, "f32"), lambda: tl.store(address, tl.zeros(4, "f32"))):
            with pytest.raises(MemoryAccessError, match="does not exist"):
                word()

    bench = pair_bench()
    bench.kernel(0, 0, kernel)
    (task,) = bench.sip.tasks
    while not task.ended:
        assert bench.step()


# --- records ------------------------------------------------------------------------------------------------------


@pytest.mark.ideal
def test_values_that_a_kernel_makes_are_recorded() -> None:
    """Up to 32 bytes themselves, more by their hash; and as they are now, whatever becomes of the array."""
    bench = pair_bench()
    small, large = np.arange(8, dtype="<i4"), np.arange(9, dtype="<f4").reshape(3, 3)
    expected = f"0x{small.tobytes().hex()}", f"sha256:{sha256(large.tobytes()).hexdigest()}"

    def body(tl: TL) -> None:
        handles = [TensorHandle(tl, small, DTYPES["i32"]), TensorHandle(tl, large, DTYPES["f32"])]
        small[:] = 0
        assert handles[0].array.tolist() == list(range(8))
        with pytest.raises(ValueError, match="read-only"):
            handles[1].array[0] = 1

    run_pair(bench, body)
    assert bench.sip.oplog.records == [
        ("const", 0, 0, 0, 0, "i32", "8", expected[0], "h0"),
        ("const", 0, 0, 0, 0, "f32", "3x3", expected[1], "h1"),
    ]


def test_handles_are_numbered_on_each_pe_over_all_kernels() -> None:
    bench = pair_bench()

    def body(tl: TL) -> None:
        total = tl.load(tcm(tl.program_id(1), 0), 4, "f32")
        tl.store(tcm(tl.program_id(1), 64), total + total)

    for cube in (0, 1, 0):
        bench.kernel(cube, 0, body)
        bench.run()
    named = [(r.cube, r.fields["operands"], r.fields["result"]) for r in bench.records("math")]
    assert named == [(0, "h0,h0", "h1"), (1, "h0,h0", "h1"), (0, "h2,h2", "h3")]
    assert [each.fields["operand"] for each in bench.records("dma_write")] == ["h1", "h1", "h3"]


def test_a_command_that_ends_twice_is_refused() -> None:
    completion = Completion(Fill(0, 32, 1), 0)
    completion.end()
    with pytest.raises(InvariantViolation, match=r"^a Fill ended a second time$"):
        completion.end()
