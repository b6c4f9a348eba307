"""``recv_async`` and ``wait``, ``recv`` without a direction, and ``copy_to_dst``, in picoseconds.

The pair and its times are those of ``pair_times``; a hub has three neighbours, each in a PE of its own cube.
"""

from typing import Any

import pytest
from hardware import ONE_SIP, Bench, WiredPlan, config, hbm, pair_bench, tcm
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pair_times import RETURN_PS, arrival_ps, load_ps, put, queue_bench, recv_i32, run_pair, store_ps

from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.collectives.queue_pairs import PePlace
from sipsim.chips.ahbm.tl.futures import RecvFuture
from sipsim.chips.ahbm.tl.language import TL
from sipsim.core.errors import IpcqInvalidDirection, IpcqTypeMismatch, KernelError, MemoryAccessError

HERE_PS = arrival_ps(64)
"""A message of 64 B that is sent at 0 arrives at 17,550; the next one a drain, 1,000 ps, later."""
Kernel = Any
WAITS = "tl.wait takes a future of tl.recv_async, load_async, store_async or gemm_async"


# --- futures --------------------------------------------------------------------------------------------------


def two_futures(tl: TL) -> None:
    futures = [tl.recv_async("W", 16, "i32") for _ in range(2)]
    assert [tl.wait(future).array[0] for future in futures] == [0, 1]


@pytest.mark.ideal
def test_futures_return_their_slots_while_the_kernel_runs() -> None:
    """Two receives one after the other need two credits' time; two futures need one, and the second message's drain."""
    one = run_pair(pair_bench(), 2, lambda tl: [recv_i32(tl) for _ in range(2)])
    assert one.ends("ipcq.recv") == [HERE_PS + RETURN_PS, HERE_PS + 2 * RETURN_PS]
    two = run_pair(pair_bench(), 2, two_futures)
    assert two.ends("ipcq.recv") == [HERE_PS + RETURN_PS, HERE_PS + 1_000 + RETURN_PS]
    assert [record.start_ps for record in two.records("ipcq.recv")] == [0, 0], "as they were posted"


def test_futures_may_be_waited_for_in_any_order() -> None:
    """Receives of a direction are served in the order of their posts; ``recv`` comes after the futures."""
    seen: list[int] = []

    def receiver(tl: TL) -> None:
        futures = [tl.recv_async("W", 16, "i32") for _ in range(3)]
        seen.append(recv_i32(tl)[0])
        seen.extend(int(tl.wait(futures[index]).array[0]) for index in (2, 0, 1))

    run_pair(queue_bench(n_slots=2), 4, receiver)
    assert seen == [3, 2, 0, 1]


@pytest.mark.ideal
def test_is_completed_is_whether_wait_would_not_block() -> None:
    """False until the credit is out: 33,350."""
    asked: list[tuple[int, bool]] = []

    def receiver(tl: TL) -> None:
        future = tl.recv_async("W", 16, "i32")
        for pause_ps in (HERE_PS, RETURN_PS - 1, 1):
            bench.pause(1, 0, pause_ps)
            asked.append((bench.engine.now_ps, future.is_completed()))
        before_ps = bench.engine.now_ps
        tl.wait(future)
        assert bench.engine.now_ps == before_ps

    run_pair(bench := queue_bench(), 1, receiver)
    assert asked == [(HERE_PS, False), (33_349, False), (33_350, True)]


def test_a_future_keeps_its_message_while_its_slot_is_written_again() -> None:
    """One slot, three messages, waited for long after the last."""
    seen: list[int] = []

    def receiver(tl: TL) -> None:
        futures = [tl.recv_async("W", 16, "i32") for _ in range(3)]
        bench.pause(1, 0, 10**6)
        seen.extend(int(tl.wait(future).array[0]) for future in futures)

    run_pair(bench := queue_bench(n_slots=1), 3, receiver)
    assert seen == [0, 1, 2]


@pytest.mark.ideal
def test_an_arrived_message_is_taken_when_the_receive_is_posted() -> None:
    """At 50,000, by ``recv_async``: its credit is out at 65,800, whenever it is waited for, and again."""

    def receiver(tl: TL) -> None:
        future = tl.recv_async("W", 16, "i32")
        bench.pause(1, 0, 30_000)
        assert tl.wait(future) is tl.wait(future)

    run_pair(bench := pair_bench(), 1, receiver, 50_000)
    assert bench.ends("ipcq.recv") == [50_000 + RETURN_PS]


def fails(receiver: Kernel, kind: type[Exception], bench: Bench | None = None) -> str:
    with pytest.raises(kind) as caught:
        run_pair(bench or pair_bench(), 1, receiver)
    return str(caught.value)


def test_invalid_waits_raise() -> None:
    """No future, and one of another PE."""
    assert fails(lambda tl: tl.wait(None), KernelError) == f"{WAITS}, not None"
    bench, theirs = pair_bench(), list[RecvFuture]()

    def owner(tl: TL) -> None:
        theirs.append(tl.recv_async("E", 16, "i32"))
        tl.wait(theirs[0])

    with pytest.raises(KernelError, match=r"^tl\.wait on PE 0\.1\.0 got a future of another PE; "):
        run_pair(bench, owner, lambda tl: tl.wait(theirs[0]), 1_000)


def test_invalid_recv_asyncs_raise() -> None:
    """At once, not when it is waited for."""
    assert "direction 'N' is not installed" in fails(lambda tl: tl.recv_async("N", 16, "i32"), IpcqInvalidDirection)
    assert "direction None is not" in fails(lambda tl: tl.recv_async(None, 16, "i32"), IpcqInvalidDirection)
    assert "needs shape= and dtype=" in fails(lambda tl: tl.recv_async("W"), KernelError)
    assert "dtype None is not known" in fails(lambda tl: tl.recv_async("W", 16), KernelError)


# --- without a direction --------------------------------------------------------------------------------------

WAYS = ("a", "b", "c")


def hub(**defaults: object) -> Bench:
    """PE 0, and its neighbours a, b and c: PEs 1, 2 and 3 of the same cube."""
    settings = {**ONE_SIP, **{f"defaults.{name}": value for name, value in defaults.items()}}
    table = {0: {way: rank for rank, way in enumerate(WAYS, 1)}} | {rank: {"up": 0} for rank in (1, 2, 3)}
    return Bench(WiredPlan(config(settings), [PePlace(0, 0, pe) for pe in range(4)], table))


def run_hub(bench: Bench, counts: tuple[int, int, int], middle: Kernel) -> None:
    """Each neighbour sends messages, full of its number, without pause."""

    def sender(count: int, pe: int) -> Kernel:
        put(bench, tcm(0, 0, pe), [pe] * 16, "<i4")
        return lambda tl: [tl.send("up", src_addr=tcm(0, 0, pe), shape=16, dtype="i32") for _ in range(count)]

    for pe, count in enumerate(counts, 1):
        bench.kernel(0, pe, sender(count, pe))
    ended: list[bool] = []
    bench.kernel(0, 0, lambda tl: (middle(tl), ended.append(True)))
    bench.run()
    assert ended


def take(tl: TL, count: int, seen: list[str]) -> None:
    for _ in range(count):
        sender = tl.recv(shape=16, dtype="i32").array[0]
        assert tl.last_polled_dir == WAYS[sender - 1]
        seen.append(WAYS[sender - 1])


@settings(max_examples=40)
@given(
    st.sampled_from(["fast_path", "fabric", "piggyback"]),
    st.tuples(*[st.integers(0, 8)] * 3),
    st.lists(st.sampled_from([None, None, *WAYS]), max_size=24),
)
@example("fast_path", (4, 4, 4), [None, None, None, None, "c", None, None, None])
@example("fast_path", (1, 0, 5), [None] * 6)
def test_directions_are_served_in_turn(mode: str, counts: tuple[int, int, int], steps: list[str | None]) -> None:
    """The search starts after the direction that was served last, and passes over those without messages. A recv by
    name does not move it.
    """
    left, last, expected = dict(zip(WAYS, counts, strict=True)), WAYS[-1], list[str]()
    for step in steps:
        following = WAYS[WAYS.index(last) + 1 :] + WAYS[: WAYS.index(last) + 1]
        way = step or next((each for each in following if left[each]), None)
        if way is None or not left[way]:
            break
        left[way] -= 1
        last = last if step else way
        expected.append(way)
    seen: list[str] = []

    def middle(tl: TL) -> None:
        assert tl.last_polled_dir is None
        bench.pause(0, 0, 10**6)
        for step in steps[: len(expected)]:
            take(tl, 1, seen) if step is None else seen.append(WAYS[tl.recv(step, 16, "i32").array[0] - 1])

    run_hub(bench := hub(credit_return_mode=mode), counts, middle)
    assert seen == expected


@pytest.mark.ideal
def test_recv_without_a_direction_returns_the_first_arrival() -> None:
    """From PE 3 alone, later than the receive: at the very arrival."""
    seen: list[str] = []
    run_hub(bench := hub(), (0, 0, 1), lambda tl: take(tl, 1, seen))
    (record,) = bench.records("ipcq.recv")
    assert seen == ["c"]
    assert record.fields["dir"] == "c"
    queue = bench.queue(0, 0, "c")
    assert queue.my_tail == queue.peer_head_cache == 1
    # Three pitches of 2.5 mm, two ends of 0.5 mm, two PEs, four routers; the write.
    arrived_ps = 1_000 + 850 + 2_000 + 4_000 + 1_000 + 1_000
    assert (record.start_ps, record.end_ps) == (0, arrived_ps + 1_000 + 850 + 2_000 + 4_000 + 250)


def test_recv_without_a_direction_leaves_messages_of_futures() -> None:
    """A future has the first message of a; the receive without a direction gets the second, later one."""
    tails: list[int] = []

    def middle(tl: TL) -> None:
        future = tl.recv_async("a", 16, "i32")
        take(tl, 1, [])
        tails.append(bench.queue(0, 0, "a").my_tail)
        tl.wait(future)

    run_hub(bench := hub(), (2, 0, 0), middle)
    assert tails == [2]
    assert [record.fields["consumer_seq"] for record in bench.records("ipcq.recv")] == [1, 2]


@pytest.mark.parametrize("mode", ["fast_path", "piggyback"])
@pytest.mark.parametrize(("counts", "served"), [((1, 1, 0), "b"), ((2, 1, 0), "b"), ((2, 0, 0), "a")])
def test_recv_without_a_direction_skips_a_direction_that_copies(
    mode: str, counts: tuple[int, int, int], served: str
) -> None:
    """The first message of a is being copied to HBM: b's is taken; else the second of a, at the end of the copy."""
    seen: list[str] = []

    def middle(tl: TL) -> None:
        bench.pause(0, 0, 50_000)
        future = tl.recv_async("a", 16, "i32", dst_addr=hbm(0, 0), dst_space="hbm")
        take(tl, 1, seen)
        assert future.is_completed() == (served == "a")
        tl.wait(future)

    run_hub(bench := hub(credit_return_mode=mode), counts, middle)
    assert seen == [served]


@pytest.mark.parametrize(("counts", "way"), [((3, 0, 0), "a"), ((2, 1, 0), None)])
def test_a_resumed_kernel_leaves_the_message_of_the_next_future(counts: tuple[int, int, int], way: str | None) -> None:
    """Piggyback: the end of the first future's copy lets the kernel go in that very step, while the second future still
    has its message before it. A ``recv`` of a gets the third, and one without a direction nothing of a before that.
    """

    def middle(tl: TL) -> None:
        bench.pause(0, 0, 50_000)
        first, second = (tl.recv_async("a", 16, "i32", dst_addr=hbm(0, at), dst_space="hbm") for at in (0, 64))
        tl.wait(first)
        assert tl.recv(way, 16, "i32").array[0] == (1 if way else 2)
        tl.wait(second)
        assert second.completion.value is not None
        assert second.completion.value.consumer_seq == 2

    run_hub(bench := hub(credit_return_mode="piggyback"), counts, middle)


def test_a_pe_without_directions_cannot_receive() -> None:
    bench = pair_bench()
    bench.kernel(0, 5, lambda tl: tl.recv(shape=16, dtype="i32"))
    with pytest.raises(IpcqInvalidDirection, match="no direction is installed for receiving"):
        bench.run()


# --- copies ---------------------------------------------------------------------------------------------------


def address_of(kind: str) -> int:
    return PhysAddr(0, 1, 0, kind, 4096 if kind != "sram" else 8 * 2**20).encode()


@pytest.mark.ideal
@pytest.mark.parametrize("ring", ["tcm", "hbm", "sram"])
@pytest.mark.parametrize("to", ["tcm", "hbm", "sram"])
def test_a_slot_is_free_when_it_has_been_copied(ring: str, to: str) -> None:
    """One slot: a read of the slot, an acknowledged write, and then the credit, the next message and the end."""
    address = address_of(to)
    bench = queue_bench(buffer_kind=ring, n_slots=1)

    def receiver(tl: TL) -> None:
        assert recv_i32(tl, dst_addr=address, dst_space=to) == [0] * 16
        assert bench.sip.memory.read(address, 64) == bytes(64)
        assert recv_i32(tl, dst_addr=address, dst_space=to) == [1] * 16
        assert bench.sip.memory.read(address, 4) == (1).to_bytes(4, "little")

    run_pair(bench, 2, receiver, 100_000)
    copied_ps = 100_000 + load_ps(ring) + store_ps(to)
    first, _second = bench.records("ipcq.recv")
    assert first.end_ps == copied_ps + RETURN_PS
    assert bench.ends("ipcq.send") == [0, copied_ps + RETURN_PS]
    assert first.fields["recv_mode"] == "copy_to_dst"


def test_futures_copy_in_order() -> None:
    """Two messages to one address: the later one stays."""
    address = address_of("hbm")

    def receiver(tl: TL) -> None:
        futures = [tl.recv_async("W", 16, "i32", dst_addr=address) for _ in range(2)]
        tl.wait(futures[1])
        assert bench.sip.memory.read(address, 4) == (1).to_bytes(4, "little")
        tl.wait(futures[0])

    run_pair(bench := queue_bench(), 2, receiver)


@pytest.mark.ideal
def test_a_message_of_another_size_is_not_copied() -> None:
    """A larger one would be written over what lies behind."""
    address = address_of("tcm")
    bench = queue_bench()
    put(bench, address, [9] * 32, "<i4")
    says = fails(lambda tl: tl.recv("W", 8, "i32", dst_addr=address), IpcqTypeMismatch, bench)
    assert "expects i32[8] (32 bytes), but the message is i32[16] (64 bytes)" in says
    assert bench.sip.memory.read(address, 128) == (9).to_bytes(4, "little") * 32
    edge = PhysAddr(0, 1, 0, "tcm", 16 * 2**20 - 32).encode()
    fails(lambda tl: tl.recv("W", 8, "i32", dst_addr=edge), IpcqTypeMismatch)


@pytest.mark.parametrize(
    ("more", "kind", "says"),
    [
        ({"dst_space": "hbm"}, KernelError, "dst_space= without dst_addr="),
        ({"dst_addr": tcm(1, 0), "dst_space": "hbm"}, KernelError, "is not in space hbm"),
        ({"dst_addr": tcm(1, 0), "dst_space": "l2"}, KernelError, "space 'l2' is not known; allowed: tcm, hbm, sram"),
        ({"dst_addr": tcm(1, 16 * 2**20 - 60)}, MemoryAccessError, "outside the memory"),
        ({"dst_addr": tcm(1, 0, sip=1)}, MemoryAccessError, "is not a memory of SIP 0"),
    ],
)
def test_invalid_copy_destinations_raise(more: dict[str, Any], kind: type[Exception], says: str) -> None:
    """Refused before anything is taken."""
    bench = queue_bench()
    assert says in fails(lambda tl: tl.recv("W", 16, "i32", **more), kind, bench)
    assert bench.queue(1, 0, "W").my_tail == 0
