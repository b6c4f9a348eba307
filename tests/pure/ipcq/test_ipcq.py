"""Queues between PEs of one SIP: pointers, backpressure, latches and snapshots, refusals, and times worked out by hand.

The pair and its times are those of ``pair_times``.
"""

from typing import Any

import pytest
from hardware import ONE_SIP, Bench, WiredPlan, config, hbm, pair_bench, tcm
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_times import CREDIT_PS, RETURN_PS, arrival_ps, drain_ps, put, send_i32

from sipsim.ccl.install import PePlace
from sipsim.errors import InvariantViolation, IpcqInvalidDirection, IpcqMessageTooLarge, IpcqTypeMismatch
from sipsim.ipcq.messages import IpcqCreditMetadata, IpcqDmaToken
from sipsim.tl.language import TL
from sipsim.tl.values import TensorHandle
from sipsim.topology.address import MIB, PhysAddr

# --- times ----------------------------------------------------------------------------------------------------


@pytest.mark.ideal
@pytest.mark.parametrize("kind", ["tcm", "hbm", "sram"])
@pytest.mark.parametrize("nbytes", [4, 64, 4096])
def test_a_pair_takes_the_sum(kind: str, nbytes: int) -> None:
    """Send returns at once; recv at IPCQ + way + drain + write + IPCQ + credit. Other buffers change times, never data.
    From the PE's own TCM: nothing is fetched.
    """
    bench = pair_bench({"defaults.buffer_kind": kind})
    put(bench, tcm(0, 0), range(nbytes // 4))
    got: list[TensorHandle] = []
    bench.kernel(0, 0, lambda tl: tl.send("E", src_addr=tcm(0, 0), shape=nbytes // 4, dtype="f32"))
    bench.kernel(1, 0, lambda tl: got.append(tl.recv("W", nbytes // 4, "f32")))
    bench.run()
    (sent,), (received,) = bench.records("ipcq.send"), bench.records("ipcq.recv")
    assert (sent.start_ps, sent.end_ps) == (0, 0)
    assert (received.start_ps, received.end_ps) == (0, arrival_ps(nbytes, kind) + RETURN_PS)
    assert got[0].array.tolist() == list(range(nbytes // 4))
    assert sent.fields["addr"] == received.fields["addr"] == bench.queue(1, 0, "W").my_rx_base_pa
    assert PhysAddr.decode(sent.fields["addr"]).space == kind


@pytest.mark.ideal
@pytest.mark.parametrize("kind", ["hbm", "sram"])
def test_a_message_is_written_to_the_memory_of_its_ring(kind: str) -> None:
    """A ring in HBM or SRAM is behind that memory's own port: its wire, its overhead and its bandwidth count, not the
    PE's. Here 0.9 mm, 7 ns and 16 GB/s: 0.04 + 6 ns more than to the PE, and a drain of 4 ns for 64 B.
    """
    port = {f"cube.noc.{kind}_distance_mm": 0.9, f"{kind}.overhead_ns": 7, f"{kind}.bandwidth_GBps": 16}
    bench = pair_bench({"defaults.buffer_kind": kind, **port})
    bench.kernel(0, 0, lambda tl: send_i32(tl, tcm(0, 0)))
    bench.kernel(1, 0, lambda tl: tl.recv("W", 16, "i32"))
    bench.run()
    assert bench.records("ipcq.recv")[0].end_ps == arrival_ps(64, kind) + 6_040 + 3_000 + RETURN_PS


@pytest.mark.ideal
def test_the_credit_of_a_pair_is_the_path_of_16_bytes() -> None:
    bench = pair_bench()
    assert bench.queue(0, 0, "E").credit_ps == bench.queue(1, 0, "W").credit_ps == CREDIT_PS


@pytest.mark.ideal
def test_a_send_behind_a_send_waits_on_the_edge_out_of_the_pe() -> None:
    """Both heads leave at once: the second is a drain later."""
    bench = pair_bench()

    def sender(tl: TL) -> None:
        send_i32(tl, tcm(0, 0), 1024)
        send_i32(tl, tcm(0, 0), 16)

    def receiver(tl: TL) -> None:
        tl.recv("W", 1024, "i32")
        tl.recv("W", 16, "i32")

    bench.kernel(0, 0, sender)
    bench.kernel(1, 0, receiver)
    bench.run()
    first = arrival_ps(4096) + RETURN_PS
    assert [r.end_ps for r in bench.records("ipcq.recv")] == [first, first + RETURN_PS]
    assert arrival_ps(4096) + 1_000 < first, "the second was there when the first returned"


# --- pointers -------------------------------------------------------------------------------------------------


def pointers(bench: Bench) -> tuple[int, int, int, int]:
    """The sender's my_head and peer_tail_cache, the receiver's peer_head_cache and my_tail."""
    sender, receiver = bench.queue(0, 0, "E"), bench.queue(1, 0, "W")
    return sender.my_head, sender.peer_tail_cache, receiver.peer_head_cache, receiver.my_tail


@pytest.mark.ideal
def test_pointers_after_each_step() -> None:
    """One message: sent, arrived, taken, freed."""
    bench = pair_bench({"defaults.n_slots": 1})
    bench.kernel(0, 0, lambda tl: send_i32(tl, tcm(0, 0)))

    def late(tl: TL) -> None:
        bench.pause(1, 0, 100_000)
        tl.recv("W", 16, "i32")

    bench.kernel(1, 0, late)
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
    bench = pair_bench({"defaults.n_slots": 2, "defaults.slot_size": 64})
    run_messages(bench, [64] * 5, 0)
    assert pointers(bench) == (5, 5, 5, 5)
    base = bench.queue(1, 0, "W").my_rx_base_pa
    slots = [base, base + 64, base, base + 64, base]
    assert [r.fields["addr"] for r in bench.records("ipcq.send")] == slots
    assert [r.fields["addr"] for r in bench.records("ipcq.recv")] == slots
    assert [r.fields["sender_seq"] for r in bench.records("ipcq.send")] == [0, 1, 2, 3, 4]
    assert [r.fields["consumer_seq"] for r in bench.records("ipcq.recv")] == [1, 2, 3, 4, 5], "as its credit says"


def run_messages(bench: Bench, sizes: list[int], first_recv_ps: int) -> list[list[int]]:
    """Send messages of so many bytes, each of its own values, and receive them from a time on; what was received."""
    got: list[TensorHandle] = []

    def sender(tl: TL) -> None:
        for index, nbytes in enumerate(sizes):
            put(bench, tcm(0, 0), [index] * (nbytes // 4), "<i4")
            send_i32(tl, tcm(0, 0), nbytes // 4)

    def receiver(tl: TL) -> None:
        bench.pause(1, 0, first_recv_ps)
        got.extend(tl.recv("W", nbytes // 4, "i32") for nbytes in sizes)

    bench.kernel(0, 0, sender)
    bench.kernel(1, 0, receiver)
    bench.run()
    return [handle.array.tolist() for handle in got]


# --- backpressure ---------------------------------------------------------------------------------------------


def hand_times(count: int, n_slots: int, first_recv_ps: int) -> tuple[list[int], list[int]]:
    """When each of ``count`` sends and recvs of 64 B returns, one after the other: a send waits for the credit of the
    message that has its slot; messages are a drain apart at least; a recv waits for its message and then its credit."""
    sent: list[int] = []
    freed: list[int] = []
    arrived_ps = 0
    for index in range(count):
        sent.append(max(sent[-1:] + freed[index - n_slots : index - n_slots + 1] if index >= n_slots else [0]))
        arrived_ps = max(sent[index] + arrival_ps(64), arrived_ps + drain_ps(64) if index else 0)
        freed.append(max(arrived_ps, freed[-1] if freed else first_recv_ps) + RETURN_PS)
    return sent, freed


@pytest.mark.ideal
@pytest.mark.parametrize("n_slots", [1, 2, 8])
@pytest.mark.parametrize("first_recv_ps", [0, 40_000, 1_000_000])
def test_a_sender_waits_exactly_until_the_credit(n_slots: int, first_recv_ps: int) -> None:
    """As many messages as slots leave at once, each further one in the step in which a credit arrives."""
    bench = pair_bench({"defaults.n_slots": n_slots})
    count = 2 * n_slots + 3
    run_messages(bench, [64] * count, first_recv_ps)
    sent, freed = hand_times(count, n_slots, first_recv_ps)
    assert [r.end_ps for r in bench.records("ipcq.send")] == sent
    assert [r.end_ps for r in bench.records("ipcq.recv")] == freed


@pytest.mark.ideal
def test_the_first_wait_by_hand() -> None:
    """Two slots: the third send leaves when the first message, arrived at 17,550, has been taken at 40,000 and its
    credit has come, at 55,800.
    """
    bench = pair_bench({"defaults.n_slots": 2})
    run_messages(bench, [64] * 3, 40_000)
    assert [r.end_ps for r in bench.records("ipcq.send")] == [0, 0, 55_800]


@settings(max_examples=40)
@given(
    st.sampled_from([1, 2, 4, 8]),
    st.lists(st.integers(1, 64).map(lambda words: 4 * words), min_size=1, max_size=20),
    st.integers(0, 200_000),
)
def test_messages_arrive_whole_and_in_order(n_slots: int, sizes: list[int], first_recv_ps: int) -> None:
    bench = pair_bench({"defaults.n_slots": n_slots, "defaults.slot_size": 256})
    assert run_messages(bench, sizes, first_recv_ps) == [[i] * (n // 4) for i, n in enumerate(sizes)]
    assert pointers(bench) == (len(sizes),) * 4


# --- latches and snapshots ------------------------------------------------------------------------------------


def test_received_bytes_never_change() -> None:
    """One slot, three messages: each overwrites the last one's slot, and the handles keep what they were."""
    bench = pair_bench({"defaults.n_slots": 1})
    assert run_messages(bench, [64] * 3, 0) == [[0] * 16, [1] * 16, [2] * 16]
    slot = bench.queue(1, 0, "W").my_rx_base_pa
    assert bench.sip.memory.read(slot, 4) == (2).to_bytes(4, "little")


def test_received_bytes_cannot_be_written() -> None:
    bench = pair_bench()
    got: list[TensorHandle] = []
    bench.kernel(0, 0, lambda tl: send_i32(tl, tcm(0, 0)))
    bench.kernel(1, 0, lambda tl: got.append(tl.recv("W", 16, "i32")))
    bench.run()
    with pytest.raises(ValueError, match="read-only"):
        got[0].array[0] = 1


def test_the_source_may_be_overwritten_after_the_send() -> None:
    """In the same step and later, long before the message arrives."""
    bench = pair_bench()
    put(bench, hbm(0, 0), [7] * 16, "<i4")
    got: list[TensorHandle] = []

    def sender(tl: TL) -> None:
        send_i32(tl, hbm(0, 0))
        put(bench, hbm(0, 0), [8] * 16, "<i4")
        send_i32(tl, hbm(0, 0))
        bench.pause(0, 0, 100)
        put(bench, hbm(0, 0), [9] * 16, "<i4")

    bench.kernel(0, 0, sender)
    bench.kernel(1, 0, lambda tl: got.extend(tl.recv("W", 16, "i32") for _ in range(2)))
    bench.run()
    assert [handle.array[0] for handle in got] == [7, 8]


@pytest.mark.ideal
def test_a_blocked_send_reads_its_source_when_it_resumes() -> None:
    """The snapshot is of the step that increments my_head, 55,800 ps; the source changes at 55,799 and 55,801."""
    bench = pair_bench({"defaults.n_slots": 1})
    got: list[TensorHandle] = []
    for time_ps, value in ((0, 1), (1, 2), (55_799, 3), (55_801, 4)):
        bench.engine.at(time_ps, lambda v=value: put(bench, tcm(0, 0), [v] * 16, "<i4"))  # type: ignore[misc]
    bench.kernel(0, 0, lambda tl: [send_i32(tl, tcm(0, 0)) for _ in range(2)])

    def receiver(tl: TL) -> None:
        bench.pause(1, 0, 40_000)
        got.extend(tl.recv("W", 16, "i32") for _ in range(2))

    bench.kernel(1, 0, receiver)
    bench.run()
    assert [handle.array[0] for handle in got] == [1, 3]


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


def ring_of_two() -> Bench:
    table = {0: {"E": 1, "W": 1}, 1: {"E": 0, "W": 0}}
    return Bench(WiredPlan(config(ONE_SIP), [PePlace(0, 0, 0), PePlace(0, 1, 0)], table))


def test_two_directions_to_one_peer_are_distinguished_by_the_address() -> None:
    """ADR-0025 D2 and D3: what is sent E is received from W, and its credit frees E."""
    bench = ring_of_two()
    got: list[TensorHandle] = []

    def sender(tl: TL) -> None:
        tl.send("W", src_addr=tcm(0, 64), shape=16, dtype="i32")
        tl.send("E", src_addr=tcm(0, 0), shape=16, dtype="i32")

    put(bench, tcm(0, 0), [5] * 32, "<i4")
    put(bench, tcm(0, 64), [6] * 16, "<i4")
    bench.kernel(0, 0, sender)
    bench.kernel(1, 0, lambda tl: got.append(tl.recv("W", 16, "i32")))
    bench.run()
    assert got[0].array[0] == 5
    east, west = bench.queue(0, 0, "E"), bench.queue(0, 0, "W")
    assert (east.my_head, east.peer_tail_cache) == (1, 1)
    assert (west.my_head, west.peer_tail_cache) == (1, 0)
    assert bench.queue(1, 0, "E").peer_head_cache == 1


def one_way_ring() -> Bench:
    places = [PePlace(0, 0, pe) for pe in range(3)]
    return Bench(WiredPlan(config(ONE_SIP), places, {rank: {"E": (rank + 1) % 3} for rank in range(3)}))


def test_a_unidirectional_ring_passes_a_value_on() -> None:
    """Received from W, which no PE can send to."""
    bench = one_way_ring()
    put(bench, tcm(0, 0), [3] * 4, "<i4")
    last: list[TensorHandle] = []

    def kernel(tl: TL) -> None:
        if tl.program_id(0) == 0:
            tl.send("E", src_addr=tcm(0, 0), shape=4, dtype="i32")
            last.append(tl.recv("W", 4, "i32"))
        else:
            tl.send("E", tl.recv("W", 4, "i32"))

    for pe in range(3):
        bench.kernel(0, pe, kernel)
    bench.run()
    assert last[0].array.tolist() == [3] * 4


# --- refusals -------------------------------------------------------------------------------------------------


def error_of(bench: Bench, kernel: Any, kind: type[Exception], pe: int = 0) -> str:
    bench.kernel(0, pe, kernel)
    with pytest.raises(kind) as caught:
        bench.run()
    return str(caught.value)


def test_a_direction_that_is_not_installed_raises() -> None:
    """F1, for send and recv, and for sending into a receive-only ring."""
    north = error_of(pair_bench(), lambda tl: tl.recv("N", 4, "i32"), IpcqInvalidDirection)
    assert north.startswith("direction 'N' is not installed; installed: E; algorithms.")
    west = error_of(one_way_ring(), lambda tl: tl.send("W", src_addr=0, shape=4, dtype="i32"), IpcqInvalidDirection)
    assert west.startswith("direction 'W' is not installed for sending; installed: E; algorithms.")
    lonely = error_of(pair_bench(), lambda tl: tl.recv("E", 4, "i32"), IpcqInvalidDirection, pe=3)
    assert lonely.startswith("direction 'E' is not installed; installed: none; algorithms.")


def test_a_message_larger_than_a_slot_raises() -> None:
    """By one element; a full slot is allowed."""
    run_messages(pair_bench(), [4096], 0)
    says = error_of(pair_bench(), lambda tl: send_i32(tl, 0, 1025), IpcqMessageTooLarge)
    assert says == "a send of 4100 bytes E does not fit a slot of 4096; send it in chunks, or raise slot_size"


def mismatch(strict: bool, dtype: str, shape: tuple[int, ...]) -> Bench:
    bench = pair_bench({"defaults.strict_validation": strict})
    bench.kernel(0, 0, lambda tl: tl.send("E", src_addr=0, shape=(4, 4), dtype="f32"))
    bench.kernel(1, 0, lambda tl: tl.recv("W", shape, dtype))
    return bench


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("dtype", "shape"), [("f32", (4, 5)), ("f32", (3, 5)), ("f16", (4, 4))])
def test_a_size_mismatch_always_raises(strict: bool, dtype: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(IpcqTypeMismatch) as caught:
        mismatch(strict, dtype, shape).run()
    nbytes = shape[0] * shape[1] * {"f32": 4, "f16": 2}[dtype]
    assert str(caught.value) == (
        f"recv W expects {dtype}{list(shape)} ({nbytes} bytes), but the message is f32[4, 4] (64 bytes); "
        f"make send and recv agree"
    )


@pytest.mark.parametrize(("dtype", "shape"), [("i32", (4, 4)), ("f16", (8, 4)), ("f32", (16, 1)), ("f32", (2, 8))])
def test_a_type_or_shape_mismatch_raises_under_strict_validation(dtype: str, shape: tuple[int, ...]) -> None:
    """F2: refused under ``strict_validation``, else the bytes are read anew."""
    mismatch(False, dtype, shape).run()
    with pytest.raises(IpcqTypeMismatch, match=r"but the message is f32\[4, 4\] \(64 bytes\)"):
        mismatch(True, dtype, shape).run()


def token(bench: Bench, address: int, seq: int) -> IpcqDmaToken:
    return IpcqDmaToken(address, seq, 0, 0, 0, "E", b"1234", "i32", (1,))


def test_impossible_arrivals_raise_named_errors() -> None:
    """I2: out of order; an address in no ring, just below and just above it; a credit for an unknown ring."""
    bench = pair_bench()
    ipcq, base = bench.ipcq(1, 0), bench.queue(1, 0, "W").my_rx_base_pa
    with pytest.raises(InvariantViolation, match=r"I2: message 1 arrived in direction W of .* when 0 was next"):
        ipcq.arrive(token(bench, base, 1))
    for address in (base - 1, base + 8 * 4096, tcm(1, 14 * MIB - 4)):
        with pytest.raises(InvariantViolation, match="which has no ring there"):
            ipcq.arrive(token(bench, address, 0))
    with pytest.raises(InvariantViolation, match=r"arrived at .* which sends to no such ring"):
        ipcq.credit(IpcqCreditMetadata(1, base + 1, 0, 0, 0, "E"))


def test_credits_may_overtake_each_other() -> None:
    """The tail only ever moves on, to the consumer's number."""
    bench = pair_bench()
    bench.kernel(0, 0, lambda tl: [send_i32(tl, tcm(0, 0)) for _ in range(3)])
    bench.run()
    sender, base = bench.ipcq(0, 0), bench.queue(1, 0, "W").my_rx_base_pa
    for seq in (3, 1):
        sender.credit(IpcqCreditMetadata(seq, base, 0, 1, 0, "W"))
    assert bench.queue(0, 0, "E").peer_tail_cache == 3
