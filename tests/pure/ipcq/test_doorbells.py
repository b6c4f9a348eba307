"""``head_update: doorbell`` (ADR-0023 D23), in picoseconds: data, their acknowledgement, and then the doorbell.

The pair and its times are those of ``pair_times``: message 0 of 64 B is in its slot at 17,550 ps. Its acknowledgement
passes no PE_IPCQ, and the doorbell does.
"""

from typing import NamedTuple

import pytest
from doorbells import DOORBELLS
from hardware import ONE_SIP, Bench, config, hbm, pair_bench, tcm
from pair_times import IPCQ_PS, PE_PS, WAY_PS, arrival_ps, drain_ps, put, recv_i32, run_pair, send_i32

from sipsim.chips.ahbm.ipcq.messages import Acknowledgement, Doorbell, WireFormat
from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.ahbm.tl.language import TL
from sipsim.core.errors import ConfigError, InvariantViolation, IpcqInUse
from sipsim.fabric.links.frames import UNSENT

ACK_PS = WAY_PS + drain_ps(16)
BELL_PS = IPCQ_PS + WAY_PS + drain_ps(16)
CREDIT_OUT_PS = IPCQ_PS + PE_PS + drain_ps(16)
"""From the step in which recv takes a message until the message's credit has left the PE: the end of recv."""


def doorbell_bench(**defaults: object) -> Bench:
    return pair_bench({**DOORBELLS, **{f"defaults.{name}": value for name, value in defaults.items()}})


class Seen(NamedTuple):
    """State of the receiver after an event."""

    now_ps: int
    in_slots: int
    pointer: int


def watched(bench: Bench) -> list[Seen]:
    """Run to the end; the state after each event in which messages in slots, or the pointer, have changed."""
    queue, seen = bench.queue(1, 0, "W"), [Seen(0, 0, 0)]
    while bench.step():
        now = Seen(bench.engine.now_ps, queue.peer_head_cache + len(queue.landed), queue.peer_head_cache)
        if now[1:] != seen[-1][1:]:
            seen.append(now)
    return seen[1:]


def two_sends(tl: TL) -> None:
    for _ in range(2):
        send_i32(tl, tcm(0, 0))


@pytest.mark.ideal
def test_the_pointer_moves_a_round_trip_after_the_data() -> None:
    bench = doorbell_bench()
    bench.kernel(0, 0, lambda tl: send_i32(tl, tcm(0, 0)))
    data_ps = arrival_ps(64)
    assert watched(bench) == [Seen(data_ps, 1, 0), Seen(data_ps + ACK_PS + BELL_PS, 1, 1)]


@pytest.mark.ideal
def test_a_second_message_leaves_before_the_first_doorbell() -> None:
    """1 ns behind the first, for 64 B; its doorbell likewise, and both pointers move once each."""
    bench = doorbell_bench()
    bench.kernel(0, 0, two_sends)
    data_ps, moved_ps = arrival_ps(64), arrival_ps(64) + ACK_PS + BELL_PS
    assert watched(bench) == [
        *(Seen(data_ps, 1, 0), Seen(data_ps + 1_000, 2, 0)),
        *(Seen(moved_ps, 2, 1), Seen(moved_ps + 1_000, 2, 2)),
    ]


@pytest.mark.ideal
@pytest.mark.parametrize("kind", ["tcm", "hbm", "sram"])
def test_recv_ends_when_its_credit_has_left(kind: str) -> None:
    """The way from the ports of HBM and SRAM is as long as that from the PE."""
    bench = doorbell_bench(buffer_kind=kind)
    run_pair(bench, 1, recv_i32)
    (ended_ps,) = bench.ends("ipcq.recv")
    assert ended_ps == arrival_ps(64, kind) + ACK_PS + BELL_PS + CREDIT_OUT_PS


@pytest.mark.ideal
def test_a_poll_sees_the_doorbell_and_not_the_data() -> None:
    bench = doorbell_bench(backpressure="poll", poll_interval_ns=10)
    run_pair(bench, 1, recv_i32)
    moved_ps = arrival_ps(64) + ACK_PS + BELL_PS
    assert bench.ends("ipcq.recv") == [-(-moved_ps // 10_000) * 10_000 + CREDIT_OUT_PS]


@pytest.mark.ideal
def test_the_source_may_be_another_memory_and_is_read_at_the_send() -> None:
    bench = doorbell_bench(n_slots=2)
    sent = [[index] * 16 for index in range(5)]

    def send(tl: TL) -> None:
        for values in sent:
            put(bench, hbm(0, 0), values, "<i4")
            send_i32(tl, hbm(0, 0))

    got: list[list[int]] = []
    run_pair(bench, send, lambda tl: got.extend(recv_i32(tl) for _ in sent))
    assert got == sent


def test_data_of_a_doorbell_travel_without_metadata() -> None:
    """52 B of payload in the first flit with metadata, 60 B without."""
    with_head, without = (
        WireFormat(Plan(config({**ONE_SIP, "defaults.hw_strict": True, **more})).ipcq) for more in ({}, DOORBELLS)
    )
    sizes = (52, 53, 60, 61, 4096)
    assert [with_head.message_bytes(size) for size in sizes] == [64, 128, 128, 128, 64 * 69]
    assert [without.message_bytes(size) for size in sizes] == [64, 64, 64, 128, 64 * 69]


def notice(kind: type[Acknowledgement] | type[Doorbell], bench: Bench, seq: int, place: tuple[int, int, int]):  # type: ignore[no-untyped-def]
    peer = bench.queue(0, 0, "E").peer
    return kind(*UNSENT, 0, 0, peer.rx_base_pa + seq * peer.slot_size, seq, 0, "E", *place)


def test_a_doorbell_before_its_message_is_refused() -> None:
    bench = doorbell_bench()
    bench.kernel(0, 0, two_sends)
    bell = notice(Doorbell, bench, 1, (0, 0, 0))
    with pytest.raises(InvariantViolation, match=r"I6: a doorbell for message 1 .* no message waits"):
        bench.ipcq(1, 0).ring(bell)
    while not bench.queue(1, 0, "W").landed:
        assert bench.step()
    with pytest.raises(InvariantViolation, match=r"I6: a doorbell for message 1 .* message 0 waits"):
        bench.ipcq(1, 0).ring(bell)


def test_an_acknowledgement_of_no_message_is_refused() -> None:
    bench = doorbell_bench()
    with pytest.raises(InvariantViolation, match=r"message 0 of E was acknowledged to \(0, 0, 0\)"):
        bench.ipcq(0, 0).acknowledged(notice(Acknowledgement, bench, 0, (0, 1, 0)))


def test_a_message_that_waits_for_its_doorbell_keeps_its_ring_open() -> None:
    bench = doorbell_bench()
    bench.kernel(0, 0, lambda tl: send_i32(tl, tcm(0, 0)))
    while not bench.queue(1, 0, "W").landed:
        assert bench.step()
    with pytest.raises(IpcqInUse, match="its ring holds 1 message "):
        bench.ipcq(1, 0).check_idle(0)


def test_egress_is_that_of_acknowledgements() -> None:
    """They pass no PE_IPCQ: with a controller of 500 ns they are all that could leave soon."""
    slow = {"pe_ipcq.overhead_ns": 500, "defaults.credit_return_mode": "fabric", "algorithms": DOORBELLS["algorithms"]}
    egress_ps = {
        head: Plan(config({**slow, "defaults.head_update": head})).egress_ps[0] for head in ("piggyback", "doorbell")
    }
    assert egress_ps["piggyback"] - egress_ps["doorbell"] == 500_000
    assert egress_ps["doorbell"] > 0


@pytest.mark.parametrize("path", ["defaults.credit_return_mode", "algorithms.ring.credit_return_mode"])
def test_no_credit_travels_with_a_data_write(path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config({**DOORBELLS, path: "piggyback"})
    assert path in str(caught.value)
    assert "defaults.head_update" in str(caught.value)
