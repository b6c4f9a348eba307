"""``tl.send`` from an address, of a handle in a slot, in flits, and against rings of all sizes, in picoseconds.

The pair and its times are those of ``pair_times``.
"""

from typing import Any

import numpy as np
import pytest
from hardware import ONE_SIP, Bench, WiredPlan, config, hbm, pair_bench, tcm
from pair_times import (
    IPCQ_PS,
    NEAR_PS,
    PE_PS,
    READ_PS,
    RETURN_PS,
    WAY_PS,
    WRITE_PS,
    arrival_ps,
    drain_ps,
    load_ps,
    math_ps,
    near_fetch_ps,
    put,
    queue_bench,
    recv_i32,
    run_pair,
    send_i32,
    store_ps,
)

from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.collectives.queue_pairs import PePlace
from sipsim.chips.ahbm.ipcq.messages import Message
from sipsim.chips.ahbm.tl.language import TL
from sipsim.chips.ahbm.tl.values import Pointer, TensorHandle
from sipsim.core.dtypes import DTYPES
from sipsim.core.errors import AhbmError, IpcqMessageTooLarge, KernelError, MemoryAccessError

FAR_OFFSET = 8 * 2**20
"""An offset in the SRAM outside the rings."""


def sram(cube: int, offset: int = FAR_OFFSET) -> int:
    return PhysAddr(0, cube, 0, "sram", offset).encode()


def note_arrivals(bench: Bench, cube: int = 1, pe: int = 0) -> list[tuple[int, int]]:
    """From now on: (time, first element) of each message that arrives at a PE."""
    seen: list[tuple[int, int]] = []
    ipcq = bench.ipcq(cube, pe)
    arrive = ipcq.arrive

    def noted(message: Message) -> None:
        seen.append((bench.engine.now_ps, int.from_bytes(message.data[:4], "little")))
        arrive(message)

    ipcq.arrive = noted  # type: ignore[method-assign]
    return seen


def run(bench: Bench, sender: Any) -> list[tuple[int, int]]:
    seen = note_arrivals(bench)
    bench.kernel(0, 0, sender)
    bench.run()
    return seen


# --- from an address ------------------------------------------------------------------------------------------

FETCH_PS = {
    "its own TCM": (tcm(0, 0), 0),
    "its own HBM": (hbm(0, 0), near_fetch_ps("hbm")),
    "its own SRAM": (sram(0), near_fetch_ps("sram")),
    "the neighbour's HBM": (hbm(1, 0), WAY_PS + drain_ps(16) + READ_PS["hbm"] + WAY_PS - PE_PS),
    "the neighbour's TCM": (tcm(1, 0), WAY_PS + drain_ps(16) + READ_PS["tcm"] + WAY_PS - PE_PS),
    # Down one router of the cube and back, where PEs 0 and 4 are one above the other.
    "the TCM of a PE beside": (tcm(0, 0, 4), 4_350 + drain_ps(16) + READ_PS["tcm"] + 4_350 - PE_PS),
}


@pytest.mark.ideal
@pytest.mark.parametrize("place", FETCH_PS)
def test_a_message_is_fetched_first(place: str) -> None:
    """A command to the memory, its read, and the route to the PE, which the bytes pass without a stop: one drain.

    The send returns at once.
    """
    address, fetch_ps = FETCH_PS[place]
    bench = pair_bench()
    put(bench, address, range(100, 100 + 1024), "<i4")
    assert run(bench, lambda tl: send_i32(tl, address, 1024)) == [(arrival_ps(4096) + fetch_ps, 100)]
    (record,) = bench.records("ipcq.send")
    assert (record.start_ps, record.end_ps) == (0, 0)


def two_sends(
    bench: Bench, first: int, second: int, counts: tuple[int, int], pause_ps: int = 0
) -> list[tuple[int, int]]:
    put(bench, first, [1] * counts[0], "<i4")
    put(bench, second, [2] * counts[1], "<i4")

    def sender(tl: TL) -> None:
        send_i32(tl, first, counts[0])
        if pause_ps:
            bench.pause(0, 0, pause_ps)
        send_i32(tl, second, counts[1])

    return run(bench, sender)


@pytest.mark.ideal
@pytest.mark.parametrize(("first", "second"), [("hbm", "tcm"), ("hbm", "sram"), ("sram", "tcm"), ("hbm", "hbm")])
def test_a_message_does_not_overtake_one_that_is_fetched(first: str, second: str) -> None:
    """It leaves the PE right behind the fetched one's last byte, and arrives a drain after it."""
    address = {"tcm": tcm(0, 4096), "hbm": hbm(0, 4096), "sram": sram(0)}
    first_ps = arrival_ps(256) + near_fetch_ps(first)
    bench = pair_bench()
    seen = two_sends(bench, address[first], tcm(0, 0) if second == "tcm" else address[second] + 4096, (64, 16))
    assert seen == [(first_ps, 1), (first_ps + drain_ps(64), 2)]


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("count", "tail_ps", "pause_ps"),
    [
        *((1024, 620_200, pause_ps) for pause_ps in (5_000, 300_000, 590_000, 610_000, 620_000, 10**6)),
        *((64, 140_200, pause_ps) for pause_ps in (105_000, 107_000, 110_000, 130_000, 139_000)),
    ],
)
def test_a_message_does_not_use_the_gaps_of_a_slow_fetch(count: int, tail_ps: int, pause_ps: int) -> None:
    """From an HBM of 8 GB/s the bytes of the first come with gaps between them, from 108,200 ps on; a small message
    that is sent meanwhile is at hand, and waits for the last of them. Once a fetched message is through, nothing is
    left behind.
    """
    bench = pair_bench({"hbm.bandwidth_GBps": 8})
    assert tail_ps == IPCQ_PS + NEAR_PS + 2_000 + 99_000 + NEAR_PS + 4 * count * 125
    first_ps = tail_ps + WAY_PS - PE_PS + WRITE_PS["tcm"]
    seen = two_sends(bench, hbm(0, 0), tcm(0, 0), (count, 16), pause_ps)
    assert seen == [(first_ps, 1), (max(first_ps + drain_ps(64), pause_ps + arrival_ps(64)), 2)]


@pytest.mark.ideal
@pytest.mark.parametrize("ahead", [1, 4])
def test_a_fetched_message_does_not_overtake_those_that_wait_for_the_tcm(ahead: int) -> None:
    """At 8 GB/s the TCM gives out 1 KiB in 128,000 ps, so that the last of those ahead leaves long after the fetch; the
    peer's takes in 64 B in 8,000 ps.
    """
    bench = pair_bench({"tcm.kind": "tcm_ports", "tcm.params": {"bandwidth_GBps": 8}})
    put(bench, tcm(0, 0), [1] * 256, "<i4")
    put(bench, hbm(0, 0), [2] * 16, "<i4")

    def sender(tl: TL) -> None:
        for _ in range(ahead):
            send_i32(tl, tcm(0, 0), 256)
        send_i32(tl, hbm(0, 0), 16)

    seen = run(bench, sender)
    assert [value for _, value in seen] == [1] * ahead + [2]
    assert seen[-1][0] == arrival_ps(64) + ahead * 128_000 + 8_000


@pytest.mark.ideal
def test_pe_dma_keeps_one_order_for_all_peers() -> None:
    """PE_DMA keeps one order: a message for another peer waits for a fetch too."""
    places = [PePlace(0, 0, 0), PePlace(0, 1, 0), PePlace(0, 0, 4)]
    bench = Bench(WiredPlan(config(ONE_SIP), places, {0: {"E": 1, "S": 2}, 1: {"W": 0}, 2: {"N": 0}}))
    east, south = note_arrivals(bench), note_arrivals(bench, 0, 4)

    def sender(tl: TL) -> None:
        send_i32(tl, hbm(0, 0))
        tl.send("S", src_addr=tcm(0, 0), shape=16, dtype="i32")

    bench.kernel(0, 0, sender)
    bench.run()
    fetched_ps = IPCQ_PS + PE_PS + near_fetch_ps("hbm") + drain_ps(64)
    assert east[0][0] == fetched_ps + WAY_PS - PE_PS + WRITE_PS["tcm"]
    assert south[0][0] == fetched_ps + 4_350 - PE_PS + drain_ps(64) + WRITE_PS["tcm"]


# --- what it may be given -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"shape": 16, "dtype": "i32"},
        {"shape": (4, 4), "dtype": "i32"},
        {"nbytes": 64, "dtype": "i32"},
        {"nbytes": 64, "shape": 16, "dtype": "i32"},
        {"shape": 16, "dtype": "i32", "space": "hbm"},
    ],
    ids=str,
)
def test_forms_of_a_source_address(given: dict[str, Any]) -> None:
    bench, got = pair_bench(), list[int]()
    put(bench, hbm(0, 0), range(16), "<i4")
    run_pair(bench, lambda tl: tl.send("E", src_addr=hbm(0, 0), **given), lambda tl: got.extend(recv_i32(tl)))
    assert got == list(range(16))
    typed = run_pair(pair_bench(), lambda tl: tl.send("E", src_addr=Pointer(hbm(0, 0), DTYPES["f16"]), nbytes=64))
    assert [typed.records("ipcq.send")[0].fields[name] for name in ("dtype", "shape", "nbytes")] == ["f16", "32", 64]


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ({}, KernelError, "needs a handle, or src_addr and shape"),
        ({"src": [1, 2]}, KernelError, "takes a handle, not list; give addresses as src_addr="),
        ({"src": hbm(0, 0)}, KernelError, "takes a handle, not int; give addresses as src_addr="),
        ({"src": "handle", "src_addr": hbm(0, 0)}, KernelError, "not both"),
        ({"src": "handle", "shape": 4}, KernelError, "not both"),
        ({"src_addr": hbm(0, 0), "shape": 16}, KernelError, "has no type; give dtype="),
        ({"src_addr": hbm(0, 0), "shape": 0, "dtype": "i32"}, KernelError, "shape 0 is not a shape"),
        ({"src_addr": hbm(0, 0), "nbytes": 0, "dtype": "i32"}, KernelError, "nbytes=0 is not a size"),
        ({"src_addr": hbm(0, 0), "nbytes": "64", "dtype": "i32"}, KernelError, "nbytes='64' is not a size"),
        ({"src_addr": hbm(0, 0), "nbytes": 6, "dtype": "i32"}, KernelError, r"nbytes=6 does not agree with i32\[1\]"),
        ({"src_addr": hbm(0, 0), "shape": 16, "dtype": "i7"}, KernelError, "dtype 'i7' is not known"),
        ({"src_addr": hbm(0, 0), "shape": 16, "dtype": "i32", "space": "tcm"}, KernelError, "is not in space tcm"),
        ({"src_addr": hbm(0, 0), "shape": 16, "dtype": "i32", "space": "l2"}, KernelError, "space 'l2' is not known"),
        (
            {"src_addr": hbm(0, 0), "shape": 1025, "dtype": "i32"},
            IpcqMessageTooLarge,
            "4100 bytes in direction E does not fit",
        ),
        ({"src_addr": hbm(0, 2**31 - 60), "shape": 16, "dtype": "i32"}, MemoryAccessError, "outside the memory"),
        ({"src_addr": hbm(0, 0, sip=1), "shape": 16, "dtype": "i32"}, MemoryAccessError, "is not a memory of SIP 0"),
    ],
    ids=str,
)
def test_invalid_sends_raise(given: dict[str, Any], kind: type[AhbmError], says: str) -> None:
    """At the call, by name, and nothing has been sent."""
    bench = pair_bench()
    handle = TensorHandle(TL(bench.sip.pe(0, 0), lambda a, _n: a), np.zeros(4, "<i4"), DTYPES["i32"])
    if given.get("src") == "handle":
        given = {**given, "src": handle}
    bench.kernel(0, 0, lambda tl: tl.send("E", **given))
    with pytest.raises(kind, match=says):
        bench.run()
    assert bench.queue(0, 0, "E").my_head == 0


# --- handles that lie in a slot -------------------------------------------------------------------------------


def slot_fetch_ps(kind: str) -> int:
    return 0 if kind == "tcm" else load_ps(kind)


def with_a_received_handle(kind: str, body: Any) -> list[tuple[int, int]]:
    """PE 0 of cube 1 receives 64 B and runs ``body(tl, handle, since)``; ``since()`` is the time since its last call.

    What arrives at the sender.
    """
    bench = queue_bench(buffer_kind=kind)
    seen = note_arrivals(bench, 0, 0)

    def receiver(tl: TL) -> None:
        handle = tl.recv("W", 16, "i32")
        asked = [bench.engine.now_ps]

        def since() -> int:
            asked.append(bench.engine.now_ps)
            return asked[-1] - asked[-2]

        body(tl, handle, since)

    run_pair(bench, 1, receiver)
    return seen


USES: dict[str, tuple[Any, int]] = {
    "an operand": (lambda tl, handle, ones: handle + ones, math_ps()),
    "the other operand": (lambda tl, handle, ones: ones + handle, math_ps()),
    "a store": (lambda tl, handle, ones: tl.store(hbm(1, 0), handle), store_ps("hbm")),
}


@pytest.mark.ideal
@pytest.mark.parametrize("kind", ["tcm", "hbm", "sram"])
@pytest.mark.parametrize("name", USES)
def test_a_slot_is_read_when_its_values_are_first_used(kind: str, name: str) -> None:
    """Once: the second use finds them in the PE."""
    use, time_ps = USES[name]

    def body(tl: TL, handle: TensorHandle, since: Any) -> None:
        ones = TensorHandle(tl, np.ones(16, "<i4"), DTYPES["i32"])
        for fetch_ps in (slot_fetch_ps(kind), 0):
            use(tl, handle, ones)
            assert since() == fetch_ps + time_ps

    with_a_received_handle(kind, body)


@pytest.mark.ideal
@pytest.mark.parametrize("kind", ["tcm", "hbm", "sram"])
@pytest.mark.parametrize("used", [False, True])
def test_a_send_forwards_a_slot(kind: str, used: bool) -> None:
    """The send returns at once; PE_DMA fetches the slot, unless the values are in the PE by now. It does not bring them
    there: they are read when they are used.
    """
    received_ps = arrival_ps(64, kind) + RETURN_PS
    use_ps = slot_fetch_ps(kind) + math_ps()

    def body(tl: TL, handle: TensorHandle, since: Any) -> None:
        if used:
            _ = handle + handle
            assert since() == use_ps
        tl.send("W", handle)
        assert since() == 0
        _ = handle + handle
        # PE_DMA fetches it a cycle of PE_IPCQ later, which is as long as its drain: neither waits for the other.
        assert since() == (math_ps() if used else use_ps)

    if used:
        fetch_ps, sent_ps = 0, received_ps + use_ps
    else:
        fetch_ps, sent_ps = 0 if kind == "tcm" else near_fetch_ps(kind), received_ps
    ((arrived_ps, _),) = with_a_received_handle(kind, body)
    assert arrived_ps == sent_ps + fetch_ps + arrival_ps(64, kind)


# --- flits ----------------------------------------------------------------------------------------------------


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("nbytes", "flits"), [(4, 1), (52, 1), (56, 2), (112, 2), (116, 3), (172, 3), (176, 4), (4096, 1 + 68)]
)
def test_a_message_fills_flits(nbytes: int, flits: int) -> None:
    """52 B in the first, 60 in each further one, 64 on the wire."""
    bench = queue_bench(hw_strict=True)
    seen = run(bench, lambda tl: send_i32(tl, tcm(0, 0), nbytes // 4))
    assert [time_ps for time_ps, _ in seen] == [arrival_ps(64 * flits)]


@pytest.mark.ideal
def test_a_fetch_fills_plain_flits() -> None:
    """56 B are one flit to the PE, from an HBM of 8 GB/s, and two from the PE."""
    bench = pair_bench({"defaults.hw_strict": True, "hbm.bandwidth_GBps": 8})
    seen = run(bench, lambda tl: send_i32(tl, hbm(0, 0), 14))
    fetch_ps = NEAR_PS + 2_000 + READ_PS["hbm"] + NEAR_PS + 8_000
    assert [time_ps for time_ps, _ in seen] == [IPCQ_PS + fetch_ps + WAY_PS - PE_PS + WRITE_PS["tcm"]]


@pytest.mark.ideal
@pytest.mark.parametrize(("nbytes", "flits"), [(4, 1), (60, 1), (64, 2), (120, 2), (124, 3), (4096, 69)])
def test_loads_and_stores_fill_flits_of_their_own(nbytes: int, flits: int) -> None:
    """60 B each, without a message's metadata; commands and acknowledgements are headers of 16 B."""
    bench = queue_bench(hw_strict=True)
    run_pair(bench, lambda tl: tl.store(hbm(0, 0), tl.load(hbm(0, 0), nbytes // 4, "i32")))
    loaded_ps = load_ps("hbm", 64 * flits)
    assert [*bench.ends("dma_read"), *bench.ends("dma_write")] == [loaded_ps, loaded_ps + store_ps("hbm", 64 * flits)]


@pytest.mark.ideal
def test_credits_are_headers() -> None:
    bench = run_pair(queue_bench(hw_strict=True), 1, recv_i32)
    assert bench.ends("ipcq.recv") == [arrival_ps(128) + RETURN_PS]


# --- rings of all sizes ---------------------------------------------------------------------------------------


def hand_times(count: int, nbytes: int, n_slots: int, late_ps: int, blocked_ps: int) -> tuple[list[int], list[int]]:
    """When each send and recv returns: sends wait for the credit of the message that has their slot, messages are a
    drain apart at least, recv takes one after the other and blocks for ``blocked_ps``."""
    sent: list[int] = []
    credited: list[int] = []
    ended: list[int] = []
    arrived_ps = 0
    for index in range(count):
        sent.append(max(sent[-1] if sent else 0, credited[index - n_slots] if index >= n_slots else 0))
        arrived_ps = max(sent[index] + arrival_ps(nbytes), arrived_ps + drain_ps(nbytes) if index else 0)
        taken_ps = max(arrived_ps, ended[-1] if ended else late_ps)
        credited.append(taken_ps + RETURN_PS)
        ended.append(taken_ps + blocked_ps)
    return sent, ended


@pytest.mark.ideal
@pytest.mark.parametrize("n_slots", [1, 2, 8, 64])
@pytest.mark.parametrize(("nbytes", "late_ps"), [(4, 0), (64, 40_000), (1024, 0), (4096, 1_000_000)])
@pytest.mark.parametrize(("mode", "blocked_ps"), [("fast_path", RETURN_PS), ("fabric", IPCQ_PS + PE_PS + drain_ps(16))])
def test_as_fast_as_slots_wires_and_credits_allow(
    n_slots: int, nbytes: int, late_ps: int, mode: str, blocked_ps: int
) -> None:
    """A hundred messages through rings of 1 to 64 slots, each send and receive by hand."""
    bench = pair_bench({"defaults.n_slots": n_slots, "defaults.credit_return_mode": mode, "tcm_layout.ipcq_MiB": 2})

    def sender(tl: TL) -> None:
        for _ in range(100):
            send_i32(tl, tcm(0, 0), nbytes // 4)

    run_pair(bench, sender, lambda tl: [recv_i32(tl, nbytes // 4) for _ in range(100)], late_ps)
    assert (bench.ends("ipcq.send"), bench.ends("ipcq.recv")) == hand_times(100, nbytes, n_slots, late_ps, blocked_ps)
