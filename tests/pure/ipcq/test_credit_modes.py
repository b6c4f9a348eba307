"""``credit_return_mode`` fabric and piggyback, in picoseconds; the pair and its times are those of ``pair_times``.

Message 0 of 64 B arrives at 17,550 ps; receivers start at 20,000.
"""

from collections.abc import Callable

import pytest
from hardware import ONE_SIP, Bench, WiredPlan, config, pair_bench, tcm
from msgspec.structs import replace
from pair_times import (
    IPCQ_PS,
    PE_PS,
    RETURN_PS,
    WAY_PS,
    arrival_ps,
    credits_of,
    drain_ps,
    note_credits,
    queue_bench,
    recv_i32,
    send_i32,
)
from wire_packets import credit, message_from

from sipsim.chips.ahbm.collectives.queue_pairs import PePlace
from sipsim.chips.ahbm.ipcq.messages import CreditFrame, WireCredit
from sipsim.chips.ahbm.tl.language import TL
from sipsim.fabric.links.frames import Packet, decode, encode

START_PS = 20_000
OUT_PS = IPCQ_PS + PE_PS + drain_ps(16)
"""PE_IPCQ's cycle and the PE's, and 16 B on the wire out of the PE."""


def run(bench: Bench, sends: int, receiver: Callable[[TL], object], start_ps: int = START_PS) -> list[tuple[int, int]]:
    return credits_of(bench, sends, receiver, start_ps)


# --- fabric ---------------------------------------------------------------------------------------------------


@pytest.mark.ideal
@pytest.mark.parametrize(("kind", "credit_bytes"), [("tcm", 16), ("hbm", 1), ("sram", 64)])
def test_recv_ends_when_the_credit_has_left_the_pe(credit_bytes: int, kind: str) -> None:
    """The credit arrives as on its own wire: at the PE, for rings in any memory."""
    start_ps = 60_000
    slots = {"n_slots": 1, "ipcq_credit_size_bytes": credit_bytes, "buffer_kind": kind, "credit_return_mode": "fabric"}
    dear = {"hbm.overhead_ns": 7, "sram.overhead_ns": 7}
    bench = pair_bench({**dear, **{f"defaults.{name}": value for name, value in slots.items()}})
    back_ps = start_ps + IPCQ_PS + WAY_PS + drain_ps(credit_bytes)
    assert run(bench, 2, recv_i32, start_ps) == [(back_ps, 1)]
    assert bench.ends("ipcq.recv") == [start_ps + IPCQ_PS + PE_PS + drain_ps(credit_bytes)]
    assert bench.ends("ipcq.send") == [0, back_ps]


def answer_first(tl: TL) -> None:
    """4096 B back to the sender, and then a receive: the wire out of the PE is taken for 64 ns from 22,000 on."""
    tl.send("W", src_addr=tcm(1, 0), shape=1024, dtype="i32")
    recv_i32(tl)


@pytest.mark.ideal
def test_a_credit_and_its_recv_wait_behind_data() -> None:
    """The head of the credit reaches the edge at 22,000, and leaves at 86,000. On its own wire it arrives at 35,800."""
    bench = queue_bench(credit_return_mode="fabric", virtual_channels=False)
    seen = run(bench, 1, answer_first)
    assert bench.ends("ipcq.recv")[0] == 86_000 + drain_ps(16)
    assert seen == [(86_000 + WAY_PS - PE_PS + drain_ps(16), 1)]
    free = queue_bench(credit_return_mode="fast_path", virtual_channels=False)
    assert run(free, 1, answer_first) == [(START_PS + RETURN_PS, 1)]


@pytest.mark.ideal
def test_data_waits_behind_a_credit() -> None:
    """The credit has the edge out of the PE from 22,000 for 250 ps; a message of 64 B whose head arrives 100 ps later
    waits 150 ps, and stays behind it: each edge on the way serves the credit first.
    """
    bench = queue_bench(credit_return_mode="fabric", virtual_channels=False)

    def sender(tl: TL) -> None:
        send_i32(tl, tcm(0, 0))
        tl.recv("E", 16, "i32")

    def receiver(tl: TL) -> None:
        future = tl.recv_async("W", 16, "i32")
        bench.pause(1, 0, 100)
        tl.send("W", src_addr=tcm(1, 0), shape=16, dtype="i32")
        tl.wait(future)

    assert credits_of(bench, sender, receiver, START_PS) == [(START_PS + RETURN_PS, 1)]
    assert bench.ends("ipcq.recv")[1] == START_PS + 100 + arrival_ps(64) + 150 + OUT_PS


@pytest.mark.ideal
def test_a_pe_may_be_its_own_neighbour() -> None:
    """A ring of one: the credit has no edge to leave by."""
    for mode, end_ps in (("fast_path", 5_000), ("fabric", 5_000), ("piggyback", 3_000)):
        settings = {**ONE_SIP, "defaults.credit_return_mode": mode, "defaults.n_slots": 1}
        bench = Bench(WiredPlan(config(settings), [PePlace(0, 0, 0)], {0: {"E": 0}}))

        def kernel(tl: TL) -> None:
            send_i32(tl, tcm(0, 0))
            tl.recv("E", 16, "i32")
            send_i32(tl, tcm(0, 0))

        bench.kernel(0, 0, kernel)
        bench.run()
        assert bench.ends("ipcq.recv")[0] == end_ps, mode


# --- piggyback ------------------------------------------------------------------------------------------------

WAIT_PS = 100_000
PIGGYBACK = {**ONE_SIP, "defaults.credit_return_mode": "piggyback"}


@pytest.mark.ideal
def test_a_credit_is_piggybacked_on_the_next_message() -> None:
    """recv returns at once; the credit arrives with the answer, and none is sent alone later."""
    bench = queue_bench(credit_return_mode="piggyback", n_slots=1)

    def receiver(tl: TL) -> None:
        recv_i32(tl)
        bench.pause(1, 0, 5_000)
        tl.send("W", src_addr=tcm(1, 0), shape=16, dtype="i32")

    seen = run(bench, 2, receiver)
    assert bench.ends("ipcq.recv")[0] == START_PS
    ridden_ps = START_PS + 5_000 + arrival_ps(64)
    assert seen == [(ridden_ps, 1)]
    assert bench.ends("ipcq.send") == [0, START_PS + 5_000, ridden_ps]


@pytest.mark.ideal
@pytest.mark.parametrize("wait_ns", [0, 100, 250])
def test_a_credit_without_a_message_is_sent_alone(wait_ns: int) -> None:
    """After ``piggyback_wait_ns``, over the fabric, with its own 16 B."""
    bench = queue_bench(credit_return_mode="piggyback", n_slots=1, piggyback_wait_ns=wait_ns)
    seen = run(bench, 2, recv_i32)
    assert seen == [(START_PS + wait_ns * 1000 + RETURN_PS, 1)]


@pytest.mark.ideal
def test_credits_of_one_ring_are_sent_as_one() -> None:
    """Three receives at 20,000, 50,000 and 119,000 ps: one credit for all, a wait after the first of them. Another at
    121,000 waits anew.
    """
    bench = queue_bench(credit_return_mode="piggyback")

    def receiver(tl: TL) -> None:
        recv_i32(tl)
        for pause_ps in (30_000, 69_000, 2_000):
            bench.pause(1, 0, pause_ps)
            recv_i32(tl)

    assert run(bench, 4, receiver) == [
        (START_PS + WAIT_PS + RETURN_PS, 3),
        (START_PS + 101_000 + WAIT_PS + RETURN_PS, 4),
    ]


@pytest.mark.ideal
def test_the_wait_restarts_after_a_piggyback() -> None:
    """A credit is piggybacked at 21,000; the next one is of 30,000 and is sent at 130,000, not at 120,000."""
    bench = queue_bench(credit_return_mode="piggyback")

    def receiver(tl: TL) -> None:
        recv_i32(tl)
        bench.pause(1, 0, 1_000)
        tl.send("W", src_addr=tcm(1, 0), shape=16, dtype="i32")
        bench.pause(1, 0, 9_000)
        recv_i32(tl)

    assert run(bench, 2, receiver) == [(21_000 + arrival_ps(64), 1), (30_000 + WAIT_PS + RETURN_PS, 2)]


def test_a_message_carries_the_credits_of_all_rings_of_its_peer() -> None:
    """Two directions to one peer: a message sent W carries the credits of both, and each frees its own ring."""
    table = {0: {"E": 1, "W": 1}, 1: {"E": 0, "W": 0}}
    bench = Bench(WiredPlan(config(PIGGYBACK), [PePlace(0, 0, 0), PePlace(0, 1, 0)], table))

    def sender(tl: TL) -> None:
        for direction in "EEW":
            tl.send(direction, src_addr=tcm(0, 0), shape=16, dtype="i32")

    def receiver(tl: TL) -> None:
        for direction in "WEW":
            tl.recv(direction, 16, "i32")
        tl.send("W", src_addr=tcm(1, 0), shape=16, dtype="i32")

    seen = credits_of(bench, sender, receiver)
    assert bench.queue(0, 0, "E").peer_tail_cache == 2
    assert bench.queue(0, 0, "W").peer_tail_cache == 1
    assert sorted(seen) == [(seen[0][0], 1), (seen[0][0], 2)], "in one step, and nothing went alone"


def test_a_credit_is_not_piggybacked_to_another_peer() -> None:
    """What PE 0 has to give back to PE 1 does not go with a message to PE 2."""
    table = {0: {"a": 1, "b": 2}, 1: {"a": 0}, 2: {"b": 0}}
    bench = Bench(WiredPlan(config(PIGGYBACK), [PePlace(0, 0, pe) for pe in range(3)], table))
    to_1, to_2 = note_credits(bench, bench.ipcq(0, 1)), note_credits(bench, bench.ipcq(0, 2))
    bench.kernel(0, 0, lambda tl: tl.send("b", tl.recv("a", 16, "i32")))
    bench.kernel(0, 1, lambda tl: tl.send("a", src_addr=tcm(0, 0, 1), shape=16, dtype="i32"))
    bench.run()
    assert to_2 == []
    ((time_ps, number),) = to_1
    assert number == 1
    assert time_ps > WAIT_PS


@pytest.mark.ideal
def test_a_stale_credit_does_not_resume_a_send() -> None:
    """A credit sent alone is overtaken by a later, piggybacked one: it frees nothing, and the send stays blocked."""
    bench = queue_bench(credit_return_mode="fast_path", n_slots=1)
    sender, base = bench.ipcq(0, 0), bench.queue(1, 0, "W").my_rx_base_pa
    bench.engine.at(19_000, lambda: sender.credit(credit(0, base, (0, 1, 0), "W")))
    run(bench, 2, recv_i32)
    assert bench.ends("ipcq.send") == [0, START_PS + RETURN_PS]


# --- on the wire ----------------------------------------------------------------------------------------------

CREDIT = credit(7, 2**60 + 5, (1, 2, 3), "global_E")
MESSAGE = message_from(
    *((1, 2, 3), 2**61, 9, b"abcd"),
    **{"dst_sip": 1, "nbytes": 64, "span_ps": 1_000, "cube": 2, "pe": 3, "dtype": "f32", "shape": (1, 1)},
    **{"sent_ps": 12_345, "credits": (CREDIT, replace(CREDIT, consumer_seq=8))},
)


@pytest.mark.parametrize(
    "packet",
    [
        MESSAGE,
        replace(MESSAGE, span_ps=0, credits=()),
        CreditFrame(1, 16, 250, 0, 0, cube=2, pe=3, credit=CREDIT),
        WireCredit(cube=2, pe=3, credit=CREDIT),
    ],
)
def test_a_packet_survives_encoding(packet: Packet) -> None:
    there = decode(encode(packet))
    assert there == packet
    assert type(there) is type(packet)
