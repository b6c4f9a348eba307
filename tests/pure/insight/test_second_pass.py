"""The second pass of one SIP: what it performs again, the errors that it finds and names, and races, which are none."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hardware import Bench, hbm, pair_bench, tcm
from msgspec.structs import replace

from sipsim.chips.ahbm.ipcq import pe_ipcq
from sipsim.chips.ahbm.ipcq.pe_ipcq import PeIpcq
from sipsim.chips.ahbm.ipcq.queue_pair import QueuePair, Receiving
from sipsim.chips.ahbm.ipcq.transport import MessageSender
from sipsim.chips.ahbm.pe.commands import Completion
from sipsim.chips.ahbm.pe.dma import PeDma
from sipsim.chips.ahbm.pe.engine import CommandEngine, engine_for
from sipsim.chips.ahbm.pe.math import ConstEngine, PeMath
from sipsim.chips.ahbm.tl.language import TL
from sipsim.chips.ahbm.tl.values import TensorHandle
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.replay import FlatMemory, flat
from sipsim.core.dtypes import DTYPES
from sipsim.insight.replay.differences import MOST_PENDING, Differences, Numbered, Wrong
from sipsim.records.oplog import line, record_kind
from sipsim.records.replay import ReplayPe, Verdict, replays

N = 40
FAR = 70_000
"""In another page of the memory."""


def values(base: float) -> Any:
    return np.arange(base, base + N, dtype="<f2")


def sender(tl: TL) -> None:
    x = tl.load(hbm(0, 0), N, "f16") + TensorHandle(tl, values(1), DTYPES["f16"])
    tl.store(hbm(0, 4096), x)
    tl.send("E", x)
    tl.send("E", src_addr=hbm(0, 4096), shape=N, dtype="f16")
    tl.store(hbm(0, 0), x)


def receiver(tl: TL) -> None:
    held = tl.recv("W", N, "f16")
    tl.recv("W", N, "f16", dst_addr=hbm(1, FAR), dst_space="hbm")
    tl.store(tcm(1, 0), held + tl.load(hbm(1, FAR), N, "f16"))


def after(bench: Bench) -> Verdict:
    bench.run()
    verdict = bench.sip.verdict()
    assert verdict is not None
    return verdict


def bench_of(settings: dict[str, Any] | None = None) -> Bench:
    bench = pair_bench(settings, replays=True)
    bench.sip.memory.write_from_host(hbm(0, 0), values(-7).tobytes())
    return bench


def pair(settings: dict[str, Any] | None = None) -> Bench:
    bench = bench_of(settings)
    bench.kernel(0, 0, sender)
    bench.kernel(1, 0, receiver)
    return bench


@pytest.mark.parametrize("kind", ["tcm", "hbm", "sram"])
@pytest.mark.parametrize("latch", [None, "copy", "in_place"])
def test_all_records_again(kind: str, latch: str | None) -> None:
    bench = pair({"defaults.buffer_kind": kind, "defaults.latch": latch})
    verdict = after(bench)
    assert verdict == Verdict(records=len(bench.sip.oplog.records))
    assert {each[0] for each in bench.sip.oplog.records} >= {"const", "math", "dma_read", "dma_write", "ipcq.send"}
    assert verdict.records == 12
    assert [pe.values for pe in bench.sip.second_pass._pes.values()] == [{}, {}], "those of handles that are gone"


# --- errors -----------------------------------------------------------------------------------------------------


def changed(data: bytes) -> bytes:
    """Element 3 is another number."""
    return data[:6] + bytes([data[6] ^ 1]) + data[7:]


def wrong_result(engine: type[CommandEngine], turn: int = 0) -> Callable[[pytest.MonkeyPatch, Bench], None]:
    """An engine leaves another array in the result of one command."""

    def plant(patch: pytest.MonkeyPatch, _bench: Bench) -> None:
        end, left = engine._end, [None] * turn

        def wrong_end(
            self: CommandEngine, completion: Completion, kind: str, *fields: object, work: tuple[Any, ...] = ()
        ) -> None:
            if not hasattr(completion.command, "result"):
                end(self, completion, kind, *fields, work=work)
                return
            array = completion.command.result.array
            if left:
                left.pop()
            else:
                completion.command.result.array = np.frombuffer(changed(array.tobytes()), array.dtype)
                patch.setattr(engine, "_end", end)
            end(self, completion, kind, *fields, work=work)

        patch.setattr(engine, "_end", wrong_end)

    return plant


def wrong_argument(owner: Any, name: str, change: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch, Bench], None]:
    """The first call of a method gets what ``change`` makes of its arguments."""

    def plant(patch: pytest.MonkeyPatch, _bench: Bench) -> None:
        method = getattr(owner, name)

        def wrong(*args: Any, **named: Any) -> Any:
            patch.setattr(owner, name, method)
            return method(*change(*args), **named)

        patch.setattr(owner, name, wrong)

    return plant


def wrong_slot(ipcq: PeIpcq, queue: QueuePair, *rest: Any) -> tuple[Any, ...]:
    """The slot holds other bytes when its message is taken."""
    slot, memory = queue.next_rx_slot_pa(), ipcq._memory
    memory.write(slot, changed(memory.read(slot, 2 * N)))
    return ipcq, queue, *rest


def wrong_message(ipcq: PeIpcq, receiving: Receiving) -> tuple[Any, ...]:
    """The handle of a receive gets other bytes than its slot holds."""
    receiving.value = replace(receiving.value, data=changed(receiving.value.data))
    return ipcq, receiving


def wrong_cell(address: int, time_ps: int) -> Callable[[pytest.MonkeyPatch, Bench], None]:
    def plant(_patch: pytest.MonkeyPatch, bench: Bench) -> None:
        memory = bench.sip.memory
        bench.engine.at(time_ps, lambda: memory.write(address, changed(memory.read(address, 8))))

    return plant


ERRORS: dict[str, tuple[Callable[[pytest.MonkeyPatch, Bench], None], str, str]] = {
    "const": (wrong_result(ConstEngine), "const", "the record states values with sha256:"),
    "DMA read": (
        wrong_result(PeDma),
        "dma_read",
        r"1 of 40 wrong, the first at \[3\]: expected -4.0, got -4.0039",
    ),
    "math": (wrong_result(PeMath), "math", r"1 of 40 wrong, the first at \[3\]: expected 0.0, got 5.96\d+e-08"),
    "DMA write": (
        wrong_argument(PeDma, "_write", lambda *args: (*args[:3], changed(args[3]), *args[4:])),
        "dma_write",
        r"the first at \[3\]: expected 0.0, got 5.96\d+e-08$",
    ),
    "snapshot": (
        wrong_argument(pe_ipcq, "Message", lambda *parts: (*parts[:-9], changed(parts[-9]), *parts[-8:])),
        "ipcq.send",
        r"1 of 80 wrong, the first at \[6\]",
    ),
    "handle of a receive": (
        wrong_argument(PeIpcq, "_received", wrong_message),
        "ipcq.recv",
        r"the first at \[3\]: expected 0.0, got 5.96\d+e-08; the last to write there was a message that arrived",
    ),
    "slot": (
        wrong_argument(PeIpcq, "_take", wrong_slot),
        "ipcq.recv",
        r"the first at \[3\]: expected 0.0, got 5.96\d+e-08",
    ),
    "wire": (
        wrong_argument(
            MessageSender,
            "send_message",
            lambda self, queue, sent, *rest: (self, queue, replace(sent, data=changed(sent.data)), *rest),
        ),
        "",
        r"message 0 E of rank 0 cube 0 PE 0 to rank 0 cube 1 PE 0 was changed in transit to the slot at 0x\w+$",
    ),
    "cell before it is read": (
        wrong_cell(hbm(0, 0), 0),
        "dma_read",
        r"the first at \[3\]: expected -4.0, got -4.0039\d+; the last to write there was the host$",
    ),
    "cell of a store": (
        wrong_cell(tcm(1, 0), 10**9),
        "dma_write",
        r"the memories differ at the end, at address 0x\w+: .*; the last to write there was record 12 \(dma_write ",
    ),
    "cell of nobody": (wrong_cell(hbm(1, 2**20), 0), "", "the memories differ at the end, at address 0x"),
}


@pytest.mark.parametrize("error", ERRORS)
def test_a_planted_error_is_found_and_its_record_named(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, kind, text = ERRORS[error]
    bench = pair()
    plant(monkeypatch, bench)
    verdict = after(bench)
    found = verdict.difference
    assert found is not None
    if error == "DMA read":
        assert verdict.differences == 1, "records that go on from wrong values are judged by themselves"
    assert re.search(text, found.message), found.message
    records = bench.sip.oplog.records
    if not kind:
        assert (found.number, found.record) == (0, "")
        return
    record = records[found.number - 1]
    assert record[0] == kind
    assert line(record).startswith(found.record.removesuffix(" ..."))
    assert (found.time_ps, found.cube, found.pe) == record[2:5]
    assert f"record {found.number} ({found.record})" in found.message


def test_nans_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    end = PeMath._end

    def other_nan(
        self: CommandEngine, completion: Completion, kind: str, *fields: object, work: tuple[Any, ...] = ()
    ) -> None:
        array = completion.command.result.array.copy()
        array.view("<u2")[np.isnan(array)] ^= 1
        completion.command.result.array = array
        end(self, completion, kind, *fields, work=work)

    bench = pair()
    bench.sip.memory.write_from_host(hbm(0, 0), np.full(N, np.nan, "<f2").tobytes())
    monkeypatch.setattr(PeMath, "_end", other_nan)
    assert after(bench).difference is None


# --- races ------------------------------------------------------------------------------------------------------

SHARED = tcm(1, 0)
DELAYS_PS = range(24_000, 112_000, 4_000)


def reads_while_another_writes(writer: int, delay_ps: int) -> Bench:
    """PE 0 of a cube writes to the TCM of cube 1, 60 ns after the start; PE 0 of the other cube reads there."""
    bench = bench_of()

    def write(tl: TL) -> None:
        bench.pause(writer, 0, 60_000)
        tl.store(SHARED, TensorHandle(tl, values(1), DTYPES["f16"]))

    def read(tl: TL) -> None:
        bench.pause(1 - writer, 0, delay_ps + 1)
        tl.load(SHARED, N, "f16")

    bench.kernel(writer, 0, write)
    bench.kernel(1 - writer, 0, read)
    return bench


@pytest.mark.parametrize(("writer", "read_is_first"), [(0, True), (1, False)])
def test_a_read_while_a_write_is_on_its_way_is_no_error(writer: int, read_is_first: bool) -> None:
    """Near the memory a read sees a write whose acknowledgement is on its way; far from it, it comes after the record
    of a write that it has not seen.
    """
    races = 0
    for delay_ps in DELAYS_PS:
        bench = reads_while_another_writes(writer, delay_ps)
        verdict = after(bench)
        assert verdict.difference is None
        assert verdict.races == bool(verdict.first_race)
        if verdict.races:
            races += 1
            found = re.fullmatch(
                r"record (\d) \(dma_read .*\) races with record (\d) \(dma_write .*\), which writes there at "
                r"the same time: 40 of 40 wrong, the first at \[0\]: expected .*",
                verdict.first_race,
            )
            assert found is not None
            assert (found[1] < found[2]) == read_is_first
    assert races > 2


@pytest.mark.parametrize("writer", [0, 1])
def test_an_error_of_a_read_apart_from_the_write_is_one(writer: int) -> None:
    """With the same read changed by an error, the difference is one where the accesses are apart, else a race."""
    errors = races = 0
    for delay_ps in DELAYS_PS:
        bench = reads_while_another_writes(writer, delay_ps)
        with pytest.MonkeyPatch.context() as patch:
            wrong_result(PeDma)(patch, bench)
            verdict = after(bench)
        (write,), (read,) = bench.records("dma_write"), bench.records("dma_read")
        is_apart = read.start_ps >= write.end_ps or write.start_ps >= read.end_ps
        assert (verdict.difference is not None, verdict.races) == (is_apart, not is_apart), delay_ps
        errors += is_apart
        races += not is_apart
    assert errors
    assert races


def overlapping(tl: TL) -> None:
    """Two stores to the same bytes at the same time. The larger one is recorded first, and is there first."""
    large = tl.store_async(SHARED, TensorHandle(tl, np.full(2**12, 1, "<f2"), DTYPES["f16"]))
    small = tl.store_async(SHARED, TensorHandle(tl, np.full(8, 2, "<f2"), DTYPES["f16"]))
    tl.wait(small)
    tl.wait(large)


@pytest.mark.ideal
def test_writes_at_the_same_time_are_no_error() -> None:
    """The record of the large one finds the small one's bytes. Then as if these had been there first: its record finds
    others, too. What is there then is known, so neither a later load nor the end of the run differ."""

    def body(tl: TL) -> None:
        overlapping(tl)
        tl.load(SHARED, 8, "f16")

    undisturbed = bench_of()
    undisturbed.kernel(0, 0, body)
    verdict = after(undisturbed)
    assert (verdict.difference, verdict.races) == (None, 1)
    large, small = undisturbed.records("dma_write")
    assert small.start_ps < large.end_ps < small.end_ps
    bench = bench_of()
    bench.kernel(0, 0, body)
    first = np.full(8, 1, "<f2").tobytes()
    bench.engine.at(small.end_ps - 1, lambda: bench.sip.memory.write(SHARED, first))
    verdict = after(bench)
    assert (verdict.difference, verdict.races) == (None, 2)


@pytest.mark.ideal
@pytest.mark.parametrize("later_write", [False, True])
def test_what_writes_at_the_same_time_have_left_is_known(later_write: bool) -> None:
    """Bytes that change after both have ended are an error, whichever of them was first. A later write orders its own
    bytes again.
    """
    bench = bench_of()

    def body(tl: TL) -> None:
        overlapping(tl)
        if later_write:
            tl.store(SHARED, TensorHandle(tl, np.full(8, 3, "<f2"), DTYPES["f16"]))
        bench.sip.memory.write(SHARED + 8, np.full(4, 9, "<f2").tobytes())
        tl.load(SHARED, 8, "f16")

    bench.kernel(0, 0, body)
    verdict = after(bench)
    assert verdict.races == 1, "the larger one's own"
    assert verdict.difference is not None
    assert verdict.difference.record.startswith("dma_read ")
    expected = 3.0 if later_write else 2.0
    assert f"4 of 8 wrong, the first at [4]: expected {expected}" in verdict.difference.message


@pytest.mark.parametrize(("depth", "found"), [(16, (1, 0)), (None, (0, 1))])
def test_a_load_behind_a_store_in_the_queue_is_in_order(depth: int | None, found: tuple[int, int]) -> None:
    """Both were given at once. Without a queue they are executed at once, too."""
    bench = bench_of({"pe_scheduler.queue_depth": depth})

    def body(tl: TL) -> None:
        x = tl.load(hbm(0, 0), N, "f16")
        for each in [tl.store_async(hbm(0, 4096), x), tl.load_async(hbm(0, 4096), N, "f16")]:
            tl.wait(each)

    bench.kernel(0, 0, body)
    with pytest.MonkeyPatch.context() as patch:
        wrong_result(PeDma, turn=1)(patch, bench)
        verdict = after(bench)
    assert (verdict.differences, verdict.races) == found


def test_differences_beyond_those_kept_are_told() -> None:
    """Races explain all that were pending."""
    differences, most = Differences(FlatMemory()), MOST_PENDING + 44
    for i in range(most):
        by = Numbered(i + 1, ("dma_read", 0, 10, 0, 0, 8 * i, 8, "f32", "2", "h1"), 0)
        differences.of_values(by, Wrong(np.arange(8), "wrong"), [(8 * i, 8)], [], False)
    for i in range(MOST_PENDING):
        differences.wrote(8 * i, 8, 5, 20, "another")
    found = differences.first()
    assert (differences.races, differences.count) == (MOST_PENDING, 44)
    assert found is not None
    assert found.number == MOST_PENDING + 1
    assert "(of 44 differences beyond the first 256, which may be races)" in found.message


# --- operations of one's own ------------------------------------------------------------------------------------

DOUBLE, TWICE = record_kind("double", "operand", "result"), record_kind("twice", "operand", "result")


class Double(NamedTuple):
    operand: TensorHandle
    result: TensorHandle
    kind: str


@engine_for(Double)
class DoubleEngine(CommandEngine):
    """``factor``: not 2 is an error."""

    factor = 2

    def take(self, command: Double) -> Completion:
        completion = self._begin(command)
        command.result.array = command.operand.array * np.float16(self.factor)
        self._end(completion, command.kind, command.operand.name, command.result.name)
        return completion


@replays(DOUBLE)
def replay_double(pe: ReplayPe, operand: str, _result: str) -> Any:
    return pe.value(operand) + pe.value(operand)


def doubled(kind: str) -> Bench:
    bench = bench_of()

    def body(tl: TL) -> None:
        x = tl.load(hbm(0, 0), N, "f16")
        result = TensorHandle(tl, None, DTYPES["f16"])
        tl._submit(Double(x, result, kind))
        tl.store(hbm(0, 4096), result)

    bench.kernel(0, 0, body)
    return bench


def test_a_kind_with_a_rule_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert after(doubled(DOUBLE)) == Verdict(records=3)
    monkeypatch.setattr(DoubleEngine, "factor", 3)
    found = after(doubled(DOUBLE)).difference
    assert found is not None
    assert found.number == 2
    assert "39 of 40 wrong, the first at [0]: expected -14.0, got -21.0" in found.message


def test_a_rule_that_fails_is_a_difference_of_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sipsim.chips.ahbm.pe.dma.as_text", lambda _dims: "7x7")
    bench = bench_of()
    bench.kernel(0, 0, lambda tl: tl.store(hbm(0, 4096), tl.load(hbm(0, 0), N, "f16")))
    found = after(bench).difference
    assert found is not None
    assert found.number == 1
    text = "the rule fails: ValueError: cannot reshape array of size 40 into shape (7,7)"
    assert found.message.endswith(text)


def test_a_kind_without_a_rule_ends_the_second_pass() -> None:
    expected = "records of kind twice have no replay rule; 1 records were compared before"
    assert after(doubled(TWICE)) == Verdict(records=1, stopped=expected)


def test_a_kind_has_one_rule() -> None:
    with pytest.raises(ValueError, match=r"two replay rules, of sipsim.*math and of "):
        replays("math")(replay_double)


def test_a_difference_at_the_end_names_the_tile_of_its_byte() -> None:
    differences = Differences(FlatMemory())
    differences.at_end(flat(Core(1, 6), 0x10000), bytes(16), bytes([0] * 5 + [1] + [0] * 10))
    found = differences.first()
    assert found is not None
    assert " 1-6:0x10005: " in found.message


@pytest.mark.parametrize(("second_start_ps", "races"), [(0, 1), (10, 0)])
def test_a_write_of_the_same_range_is_a_rival_while_it_had_not_ended(second_start_ps: int, races: int) -> None:
    differences = Differences(FlatMemory())
    first = Numbered(1, ("dma_write", 0, 10, 0, 0, 0x100, 64, "f32", "16", "h0"), 0)
    second = Numbered(2, ("dma_write", second_start_ps, 12, 0, 1, 0x100, 64, "f32", "16", "h0"), second_start_ps)
    differences.wrote(0x100, 64, 0, 10, first)
    differences.wrote(0x100, 64, second_start_ps, 12, second)
    differences.of_values(second, Wrong(np.arange(4), "wrong"), [(0x100, 64)], [], False)
    assert (differences.races, differences.count) == (races, 1 - races)
