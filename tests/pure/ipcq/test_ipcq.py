"""Queues between PEs of one SIP: pointers, backpressure, latches and snapshots, refusals, and times worked out by hand.

The pair and its times are those of ``pair_times``.
"""

from typing import Any

import pytest
from hardware import ONE_SIP, Bench, WiredPlan, config, hbm, pair_bench, tcm
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from pair_times import RETURN_PS, arrival_ps, put, queue_bench, recv_i32, run_pair, send_i32
from wire_packets import credit, message_from

from sipsim.chips.ahbm.address import MIB, PhysAddr
from sipsim.chips.ahbm.collectives.queue_pairs import PePlace
from sipsim.chips.ahbm.ipcq.generations import Generation
from sipsim.chips.ahbm.ipcq.messages import Message
from sipsim.chips.ahbm.tl.language import TL
from sipsim.chips.ahbm.tl.values import TensorHandle
from sipsim.core.errors import InvariantViolation, IpcqInvalidDirection, IpcqMessageTooLarge, IpcqTypeMismatch

# --- times ----------------------------------------------------------------------------------------------------


@pytest.mark.ideal
@pytest.mark.parametrize("kind", ["tcm", "hbm", "sram"])
def test_a_pair_takes_the_sum(kind: str) -> None:
    """Send returns at once; recv at IPCQ + way + drain + write + IPCQ + credit. Other buffers change times, never data.
    Other sizes and costs are those of ``test_the_sums_equal_the_simulated_times``.
    """
    got: list[int] = []
    bench = queue_bench(buffer_kind=kind)
    put(bench, tcm(0, 0), range(1024), "<i4")
    run_pair(bench, lambda tl: send_i32(tl, tcm(0, 0), 1024), lambda tl: got.extend(recv_i32(tl, 1024)))
    (sent,), (received,) = bench.records("ipcq.send"), bench.records("ipcq.recv")
    assert (sent.start_ps, sent.end_ps) == (0, 0)
    assert (received.start_ps, received.end_ps) == (0, arrival_ps(4096, kind) + RETURN_PS)
    assert got == list(range(1024))
    assert sent.fields["addr"] == received.fields["addr"] == bench.queue(1, 0, "W").my_rx_base_pa
    assert PhysAddr.decode(sent.fields["addr"]).space == kind


@pytest.mark.ideal
@pytest.mark.parametrize("kind", ["hbm", "sram"])
def test_a_message_is_written_to_the_memory_of_its_ring(kind: str) -> None:
    """A ring in HBM or SRAM is behind that memory's own port: its wire, its overhead and its bandwidth count, not the
    PE's. Here 0.9 mm, 7 ns and 16 GB/s: 0.04 + 6 ns more than to the PE, and a drain of 4 ns for 64 B.
    """
    port = {f"cube.noc.{kind}_distance_mm": 0.9, f"{kind}.overhead_ns": 7, f"{kind}.bandwidth_GBps": 16}
    bench = run_pair(pair_bench({"defaults.buffer_kind": kind, **port}), 1, recv_i32)
    assert bench.ends("ipcq.recv") == [arrival_ps(64, kind) + 6_040 + 3_000 + RETURN_PS]


# --- pointers -------------------------------------------------------------------------------------------------


def pointers(bench: Bench) -> tuple[int, int, int, int]:
    """The sender's my_head and peer_tail_cache, the receiver's peer_head_cache and my_tail."""
    sender, receiver = bench.queue(0, 0, "E"), bench.queue(1, 0, "W")
    return sender.my_head, sender.peer_tail_cache, receiver.peer_head_cache, receiver.my_tail


@pytest.mark.ideal
def test_pointers_after_each_step() -> None:
    """One message: sent, arrived, taken, freed."""
    bench = queue_bench(n_slots=1)
    bench.kernel(0, 0, lambda tl: send_i32(tl, tcm(0, 0)))
    bench.kernel(1, 0, lambda tl: [bench.pause(1, 0, 100_000), tl.recv("W", 16, "i32")])
    seen = [(0, pointers(bench))]
    while bench.step():
        if pointers(bench) != seen[-1][1]:
            seen.append((bench.engine.now_ps, pointers(bench)))
    assert seen == [
        (0, (0, 0, 0, 0)),
        (0, (1, 0, 0, 0)),
        (arrival_ps(64), (1, 0, 1, 0)),
        (100_000, (1, 0, 1, 1)),
        (100_000 + RETURN_PS, (1, 1, 1, 1)),
    ]


def test_pointers_count_on_past_the_ring() -> None:
    """Five messages through two slots, at the slots in turn."""
    bench = queue_bench(n_slots=2, slot_size=64)
    run_messages(bench, [64] * 5, 0)
    assert pointers(bench) == (5, 5, 5, 5)
    base = bench.queue(1, 0, "W").my_rx_base_pa
    sent, taken = ([each.fields for each in bench.records(f"ipcq.{kind}")] for kind in ("send", "recv"))
    slots = [base, base + 64, base, base + 64, base]
    assert [each["addr"] for each in sent] == [each["addr"] for each in taken] == slots
    assert [each["sender_seq"] for each in sent] == [0, 1, 2, 3, 4]
    assert [each["consumer_seq"] for each in taken] == [1, 2, 3, 4, 5], "as its credit says"


def run_messages(bench: Bench, sizes: list[int], first_recv_ps: int) -> list[list[int]]:
    """Send messages of so many bytes, each of its own values, and receive them from a time on; what the handles hold at
    the end.
    """
    got: list[TensorHandle] = []

    def sender(tl: TL) -> None:
        for index, nbytes in enumerate(sizes):
            put(bench, tcm(0, 0), [index] * (nbytes // 4), "<i4")
            send_i32(tl, tcm(0, 0), nbytes // 4)

    run_pair(bench, sender, lambda tl: got.extend(tl.recv("W", n // 4, "i32") for n in sizes), first_recv_ps)
    return [handle.array.tolist() for handle in got]


@pytest.mark.ideal
def test_the_first_wait_by_hand() -> None:
    """Two slots: the third send leaves when the first message, arrived at 17,550, has been taken at 40,000 and its
    credit has come, at 55,800. How long series take is in ``test_sends``.
    """
    bench = run_pair(queue_bench(n_slots=2), 3, lambda tl: [recv_i32(tl) for _ in range(3)], 40_000)
    assert bench.ends("ipcq.send") == [0, 0, 55_800]


@settings(max_examples=40)
@given(
    st.sampled_from([1, 2, 4, 8]),
    st.lists(st.integers(1, 64).map(lambda words: 4 * words), min_size=1, max_size=20),
    st.integers(0, 200_000),
)
def test_messages_arrive_whole_and_in_order(n_slots: int, sizes: list[int], first_recv_ps: int) -> None:
    """And stay what they were while their slots are written again."""
    bench = queue_bench(n_slots=n_slots, slot_size=256)
    assert run_messages(bench, sizes, first_recv_ps) == [[i] * (n // 4) for i, n in enumerate(sizes)]
    assert pointers(bench) == (len(sizes),) * 4


# --- latches and snapshots ------------------------------------------------------------------------------------


def test_received_bytes_cannot_be_written() -> None:
    got: list[TensorHandle] = []
    run_pair(pair_bench(), 1, lambda tl: got.append(tl.recv("W", 16, "i32")))
    with pytest.raises(ValueError, match="read-only"):
        got[0].array[0] = 1


def test_the_source_may_be_overwritten_after_the_send() -> None:
    """In the same step and later, long before the message arrives."""
    bench, got = pair_bench(), list[int]()

    def sender(tl: TL) -> None:
        for value in (7, 8):
            put(bench, hbm(0, 0), [value] * 16, "<i4")
            send_i32(tl, hbm(0, 0))
        bench.pause(0, 0, 100)
        put(bench, hbm(0, 0), [9] * 16, "<i4")

    run_pair(bench, sender, lambda tl: got.extend(recv_i32(tl)[0] for _ in range(2)))
    assert got == [7, 8]


@pytest.mark.ideal
def test_a_blocked_send_reads_its_source_when_it_resumes() -> None:
    """The snapshot is of the step that increments my_head, 55,800 ps; the source changes at 55,799 and 55,801."""
    bench, got = queue_bench(n_slots=1), list[int]()
    for time_ps, value in ((0, 1), (1, 2), (55_799, 3), (55_801, 4)):
        bench.engine.at(time_ps, lambda v=value: put(bench, tcm(0, 0), [v] * 16, "<i4"))  # type: ignore[misc]

    def sender(tl: TL) -> None:
        for _ in range(2):
            send_i32(tl, tcm(0, 0))

    run_pair(bench, sender, lambda tl: got.extend(recv_i32(tl)[0] for _ in range(2)), 40_000)
    assert got == [1, 3]


@pytest.mark.parametrize("kind", ["tcm", "hbm", "sram"])
def test_data_and_pointer_become_visible_in_one_step(kind: str) -> None:
    """I6: after every single event, a slot holds its message if and only if the pointer is past it."""
    bench = pair_bench({"defaults.buffer_kind": kind, "defaults.slot_size": 64})
    for index in range(4):
        put(bench, tcm(0, 64 * index), [index + 1] * 16, "<i4")
    bench.kernel(0, 0, lambda tl: [send_i32(tl, tcm(0, 64 * index)) for index in range(4)])
    receiver = bench.queue(1, 0, "W")
    heads = set()
    while bench.step():
        slots = [bench.sip.memory.read(receiver.my_rx_base_pa + 64 * i, 64) for i in range(5)]
        written = [slot == (i + 1).to_bytes(4, "little") * 16 for i, slot in enumerate(slots)]
        assert written == [i < receiver.peer_head_cache for i in range(5)]
        heads.add(receiver.peer_head_cache)
    assert heads == {0, 1, 2, 3, 4}


# --- directions -----------------------------------------------------------------------------------------------


def test_two_directions_to_one_peer_are_distinguished_by_the_address() -> None:
    """ADR-0025 D2 and D3: what is sent E is received from W, and its credit frees E."""
    table = {0: {"E": 1, "W": 1}, 1: {"E": 0, "W": 0}}
    bench, got = Bench(WiredPlan(config(ONE_SIP), [PePlace(0, 0, 0), PePlace(0, 1, 0)], table)), list[int]()
    put(bench, tcm(0, 0), [5] * 16 + [6] * 16, "<i4")

    def sender(tl: TL) -> None:
        for direction, offset in (("W", 64), ("E", 0)):
            tl.send(direction, src_addr=tcm(0, offset), shape=16, dtype="i32")

    run_pair(bench, sender, lambda tl: got.extend(recv_i32(tl)))
    assert got[0] == 5
    east, west = bench.queue(0, 0, "E"), bench.queue(0, 0, "W")
    assert (east.my_head, east.peer_tail_cache) == (1, 1)
    assert (west.my_head, west.peer_tail_cache) == (1, 0)
    assert bench.queue(1, 0, "E").peer_head_cache == 1


# --- refusals -------------------------------------------------------------------------------------------------


def error_of(bench: Bench, kernel: Any, kind: type[Exception], pe: int = 0) -> str:
    bench.kernel(0, pe, kernel)
    with pytest.raises(kind) as caught:
        bench.run()
    return str(caught.value)


def test_a_direction_that_is_not_installed_raises() -> None:
    """F1, for send and recv, and for sending into a receive-only ring."""
    ring = {rank: {"E": (rank + 1) % 3} for rank in range(3)}
    one_way = Bench(WiredPlan(config(ONE_SIP), [PePlace(0, 0, pe) for pe in range(3)], ring))
    for bench, pe, word, says in (
        (pair_bench(), 0, lambda tl: tl.recv("N", 4, "i32"), "'N' is not installed; installed: E;"),
        (one_way, 0, lambda tl: send_i32(tl, 0) or tl.send("W", src_addr=0, shape=4, dtype="i32"), "'W' is not"),
        (pair_bench(), 3, lambda tl: tl.recv("E", 4, "i32"), "'E' is not installed; installed: none;"),
    ):
        assert says in error_of(bench, word, IpcqInvalidDirection, pe)


def test_a_message_larger_than_a_slot_raises() -> None:
    """By one element; a full slot is allowed."""
    run_messages(pair_bench(), [4096], 0)
    says = error_of(pair_bench(), lambda tl: send_i32(tl, 0, 1025), IpcqMessageTooLarge)
    fits = "a send of 4100 bytes in direction E does not fit a slot of 4096 bytes"
    assert says == f"{fits}; split the message, or raise slot_size"


@pytest.mark.parametrize(
    ("dtype", "shape", "nbytes"),
    [
        ("f32", (4, 5), 80),
        ("f32", (3, 5), 60),
        ("f16", (4, 4), 32),
        ("i32", (4, 4), 64),
        ("f16", (8, 4), 64),
        ("f32", (16, 1), 64),
    ],
)
def test_a_mismatch_raises(dtype: str, shape: tuple[int, ...], nbytes: int) -> None:
    """F2: another size always, another type or shape of the same size under ``strict_validation``; else the bytes are
    read anew.
    """

    def sender(tl: TL) -> None:
        tl.send("E", src_addr=0, shape=(4, 4), dtype="f32")

    def receiver(tl: TL) -> None:
        tl.recv("W", shape, dtype)

    for strict in (False, True):
        bench = queue_bench(strict_validation=strict)
        if nbytes == 64 and not strict:
            run_pair(bench, sender, receiver)
            continue
        with pytest.raises(IpcqTypeMismatch) as caught:
            run_pair(bench, sender, receiver)
        expected = f"recv W expects {dtype}{list(shape)} ({nbytes} bytes), but the message is f32[4, 4] (64 bytes); "
        assert str(caught.value).startswith(expected)


def arriving(address: int, seq: int) -> Message:
    return message_from((0, 0, 0), address, seq, b"1234", dtype="i32", shape=(1,))


def test_impossible_arrivals_raise_named_errors() -> None:
    """I2: out of order; an address in no ring, just below and just above it; a credit for an unknown ring."""
    bench = pair_bench()
    ipcq, base = bench.ipcq(1, 0), bench.queue(1, 0, "W").my_rx_base_pa
    with pytest.raises(InvariantViolation, match=r"I2: message 1 arrived in direction W of .* when message 0 was next"):
        ipcq.arrive(arriving(base, 1))
    for address in (base - 1, base + 8 * 4096, tcm(1, 14 * MIB - 4)):
        with pytest.raises(InvariantViolation, match="which has no ring there"):
            ipcq.arrive(arriving(address, 0))
    with pytest.raises(InvariantViolation, match=r"arrived at .* which does not send to this ring"):
        ipcq.credit(credit(1, base + 1, (0, 0, 0), "E"))


def test_credits_may_overtake_each_other() -> None:
    """The tail only ever moves on, to the consumer's number."""
    bench = pair_bench()
    bench.kernel(0, 0, lambda tl: [send_i32(tl, tcm(0, 0)) for _ in range(3)])
    bench.run()
    sender, base = bench.ipcq(0, 0), bench.queue(1, 0, "W").my_rx_base_pa
    for seq in (3, 1):
        sender.credit(credit(seq, base, (0, 1, 0), "W"))
    assert bench.queue(0, 0, "E").peer_tail_cache == 3


def test_an_early_message_gives_its_credits_at_once() -> None:
    """It waits without them for its generation; the one that came is as it was."""
    bench = pair_bench()
    bench.kernel(0, 0, lambda tl: send_i32(tl, tcm(0, 0)))
    bench.run()
    ipcq, base = bench.ipcq(0, 0), bench.queue(1, 0, "W").my_rx_base_pa
    early = message_from((0, 1, 0), 0, 0, b"1234", generation=1, credits=(credit(1, base, (0, 1, 0), "W"),))
    ipcq.arrive(early)
    assert bench.queue(0, 0, "E").peer_tail_cache == 1
    (held,) = ipcq.generations.install(Generation(1, [], None, 0))
    assert len(early.credits) == 1
    assert held == replace(early, credits=())


def test_a_message_does_not_change_once_it_has_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the object that its sender has made."""
    bench = pair_bench()
    receiver, arrive = bench.ipcq(1, 0), bench.ipcq(1, 0).arrive
    seen: list[tuple[Message, Message]] = []
    monkeypatch.setattr(receiver, "arrive", lambda sent: (seen.append((sent, replace(sent))), arrive(sent)))
    bench.kernel(0, 0, lambda tl: [send_i32(tl, tcm(0, 0)) for _ in range(3)])
    bench.kernel(1, 0, lambda tl: [recv_i32(tl) for _ in range(3)])
    bench.run()
    assert [sent.sender_seq for sent, _ in seen] == [0, 1, 2]
    assert all(sent == as_it_came for sent, as_it_came in seen)
