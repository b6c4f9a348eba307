"""``recv_async`` and ``wait``, ``recv`` without a direction, and ``copy_to_dst``, in picoseconds.

The pair and its times are those of ``pair_times``; a hub has three neighbours, each in a PE of its own cube.
"""

from typing import Any

import pytest
from hardware import ONE_SIP, Bench, WiredPlan, config, hbm, pair_bench, tcm
from pair_times import RETURN_PS, arrival_ps, load_ps, put, recv_i32, send_i32, store_ps

from sipsim.ccl.install import PePlace
from sipsim.errors import IpcqInvalidDirection, IpcqTypeMismatch, KernelError, MemoryAccessError
from sipsim.tl.futures import RecvFuture
from sipsim.tl.language import TL
from sipsim.topology.address import PhysAddr

HERE_PS = arrival_ps(64)
"""A message of 64 B that is sent at 0 arrives at 17,550; the next one a drain, 1,000 ps, later."""
Kernel = Any
WAITS = "tl.wait takes what tl.recv_async, load_async, store_async or gemm_async returned"


def bench_of(**defaults: object) -> Bench:
    return pair_bench({f"defaults.{name}": value for name, value in defaults.items()})


def run_pair(bench: Bench, count: int, receiver: Kernel) -> Bench:
    """Send ``count`` messages of 64 B, each full of its own number, without pause; run ``receiver`` from 0 on."""

    def sender(tl: TL) -> None:
        for index in range(count):
            put(bench, tcm(0, 0), [index] * 16, "<i4")
            send_i32(tl, tcm(0, 0))

    bench.kernel(0, 0, sender)
    bench.kernel(1, 0, receiver)
    bench.run()
    return bench


def received(bench: Bench) -> list[int]:
    """When each receive ended."""
    return [record.end_ps for record in bench.records("ipcq.recv")]


# --- futures --------------------------------------------------------------------------------------------------


@pytest.mark.ideal
def test_futures_return_their_slots_while_the_kernel_runs() -> None:
    """Two receives one after the other need two credits' time; two futures need one, and the second message's drain."""
    run_pair(one := bench_of(), 2, lambda tl: [recv_i32(tl) for _ in range(2)])
    assert received(one) == [HERE_PS + RETURN_PS, HERE_PS + 2 * RETURN_PS]

    def at_once(tl: TL) -> None:
        futures = [tl.recv_async("W", 16, "i32") for _ in range(2)]
        assert [tl.wait(future).array[0] for future in futures] == [0, 1]

    run_pair(two := bench_of(), 2, at_once)
    assert received(two) == [HERE_PS + RETURN_PS, HERE_PS + 1_000 + RETURN_PS]
    assert [record.start_ps for record in two.records("ipcq.recv")] == [0, 0], "as they were posted"


@pytest.mark.parametrize("mode", ["fast_path", "fabric", "piggyback"])
def test_futures_may_be_waited_for_in_any_order(mode: str) -> None:
    """Receives of a direction are served in the order of their posts; ``recv`` comes after the futures."""
    seen: list[int] = []

    def receiver(tl: TL) -> None:
        futures = [tl.recv_async("W", 16, "i32") for _ in range(3)]
        seen.append(recv_i32(tl)[0])
        seen.extend(int(tl.wait(futures[index]).array[0]) for index in (2, 0, 1))

    run_pair(bench_of(n_slots=2, credit_return_mode=mode), 4, receiver)
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

    run_pair(bench := bench_of(), 1, receiver)
    assert asked == [(HERE_PS, False), (33_349, False), (33_350, True)]


def test_a_future_keeps_its_message_while_its_slot_is_written_again() -> None:
    """One slot, three messages, waited for long after the last."""
    seen: list[int] = []

    def receiver(tl: TL) -> None:
        futures = [tl.recv_async("W", 16, "i32") for _ in range(3)]
        bench.pause(1, 0, 10**6)
        seen.extend(int(tl.wait(future).array[0]) for future in futures)

    run_pair(bench := bench_of(n_slots=1), 3, receiver)
    assert seen == [0, 1, 2]


@pytest.mark.ideal
def test_an_arrived_message_is_taken_when_the_receive_is_posted() -> None:
    """At 50,000, by ``recv_async``: its credit is out at 65,800, whenever it is waited for."""

    def receiver(tl: TL) -> None:
        bench.pause(1, 0, 50_000)
        future = tl.recv_async("W", 16, "i32")
        bench.pause(1, 0, 30_000)
        tl.wait(future)

    run_pair(bench := bench_of(), 1, receiver)
    assert received(bench) == [50_000 + RETURN_PS]


def test_waiting_again_gives_the_same_handle() -> None:
    def receiver(tl: TL) -> None:
        future = tl.recv_async("W", 16, "i32")
        assert tl.wait(future) is tl.wait(future)

    run_pair(bench_of(buffer_kind="hbm"), 1, receiver)


def fails(receiver: Kernel, kind: type[Exception], bench: Bench | None = None, count: int = 1) -> str:
    with pytest.raises(kind) as caught:
        run_pair(bench or bench_of(), count, receiver)
    return str(caught.value)


def test_invalid_waits_raise() -> None:
    """No future, one that never was posted, and one of another PE."""
    assert fails(lambda tl: tl.wait(None), KernelError) == f"{WAITS}, not None"  # type: ignore[arg-type]
    assert fails(lambda tl: tl.wait([]), KernelError) == f"{WAITS}, not []"  # type: ignore[arg-type]
    bench, theirs = pair_bench(), list[RecvFuture]()

    def owner(tl: TL) -> None:
        theirs.append(tl.recv_async("E", 16, "i32"))
        tl.wait(theirs[0])

    bench.kernel(0, 0, owner)

    def thief(tl: TL) -> None:
        bench.pause(1, 0, 1_000)
        tl.wait(theirs[0])

    bench.kernel(1, 0, thief)
    with pytest.raises(
        KernelError, match=r"^tl\.wait on PE 0\.1\.0 was given a future of another PE; wait for it there$"
    ):
        bench.run()


def test_invalid_recv_asyncs_raise() -> None:
    """At once, not when it is waited for."""
    assert "direction 'N' is not installed" in fails(lambda tl: tl.recv_async("N", 16, "i32"), IpcqInvalidDirection)
    assert "direction None is not" in fails(lambda tl: tl.recv_async(None, 16, "i32"), IpcqInvalidDirection)  # type: ignore[arg-type]
    assert "needs the shape" in fails(lambda tl: tl.recv_async("W"), KernelError)
    assert "dtype None is not known" in fails(lambda tl: tl.recv_async("W", 16), KernelError)


def test_wait_raises_on_a_size_mismatch() -> None:
    def receiver(tl: TL) -> None:
        future = tl.recv_async("W", 15, "i32")
        bench.pause(1, 0, 10**6)
        tl.wait(future)

    says = fails(receiver, IpcqTypeMismatch, bench := bench_of())
    assert says.startswith("recv W expects i32[15] (60 bytes), but the message is i32[16] (64 bytes)")


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
    bench.kernel(0, 0, middle)
    bench.run()


def take(tl: TL, count: int, seen: list[str]) -> None:
    for _ in range(count):
        sender = tl.recv(shape=16, dtype="i32").array[0]
        assert tl.last_polled_dir == WAYS[sender - 1]
        seen.append(WAYS[sender - 1])


@pytest.mark.parametrize("mode", ["fast_path", "fabric", "piggyback"])
def test_directions_are_served_in_turn(mode: str) -> None:
    """All directions have messages: the search starts after the last one. A recv by name does not move it."""
    seen: list[str] = []

    def middle(tl: TL) -> None:
        assert tl.last_polled_dir is None
        bench.pause(0, 0, 10**6)
        take(tl, 4, seen)
        tl.recv("c", 16, "i32")
        take(tl, 3, seen)

    run_hub(bench := hub(credit_return_mode=mode), (4, 4, 4), middle)
    assert "".join(seen) == "abcabca"


def test_a_direction_without_messages_is_passed_over() -> None:
    """Fairness is weak: an empty direction is not waited for."""
    seen: list[str] = []

    def middle(tl: TL) -> None:
        bench.pause(0, 0, 10**6)
        take(tl, 6, seen)

    run_hub(bench := hub(), (1, 0, 5), middle)
    assert "".join(seen) == "accccc"


def test_a_busy_direction_does_not_starve_the_others() -> None:
    """One direction always has a message, two have a few: none waits for more than two others."""
    seen: list[str] = []

    def middle(tl: TL) -> None:
        bench.pause(0, 0, 10**6)
        take(tl, 14, seen)

    run_hub(bench := hub(n_slots=2), (2, 10, 2), middle)
    assert "".join(seen[:6]) == "abcabc"
    assert set(seen[6:]) == {"b"}


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
    order: list[tuple[str, int]] = []

    def middle(tl: TL) -> None:
        future = tl.recv_async("a", 16, "i32")
        take(tl, 1, seen := list[str]())
        order.append((seen[0], bench.queue(0, 0, "a").my_tail))
        tl.wait(future)

    run_hub(bench := hub(), (2, 0, 0), middle)
    assert order == [("a", 2)]
    assert [record.fields["consumer_seq"] for record in bench.records("ipcq.recv")] == [1, 2]


@pytest.mark.parametrize("mode", ["fast_path", "piggyback"])
def test_recv_without_a_direction_skips_a_direction_that_copies(mode: str) -> None:
    """The only message of a is being copied to HBM; b has one a little later, which is taken."""
    seen: list[str] = []

    def middle(tl: TL) -> None:
        bench.pause(0, 0, 50_000)
        future = tl.recv_async("a", 16, "i32", dst_addr=hbm(0, 0), dst_space="hbm")
        take(tl, 1, seen)
        tl.wait(future)

    bench = hub(credit_return_mode=mode)

    def late(tl: TL) -> None:
        bench.pause(0, 2, 50_500)
        tl.send("up", src_addr=tcm(0, 0, 2), shape=16, dtype="i32")

    put(bench, tcm(0, 0, 2), [2] * 16, "<i4")
    put(bench, tcm(0, 0, 1), [1] * 16, "<i4")
    bench.kernel(0, 1, lambda tl: tl.send("up", src_addr=tcm(0, 0, 1), shape=16, dtype="i32"))
    bench.kernel(0, 2, late)
    bench.kernel(0, 0, middle)
    bench.run()
    assert seen == ["b"]


def test_recv_without_a_direction_resumes_at_the_end_of_a_copy() -> None:
    """a has two messages, the first is copied for a future: the second is free to take at the end of the copy."""
    seen: list[str] = []

    def middle(tl: TL) -> None:
        bench.pause(0, 0, 50_000)
        future = tl.recv_async("a", 16, "i32", dst_addr=hbm(0, 0), dst_space="hbm")
        take(tl, 1, seen)
        tl.wait(future)

    run_hub(bench := hub(), (2, 0, 0), middle)
    assert seen == ["a"]


def test_a_resumed_kernel_leaves_the_message_of_the_next_future() -> None:
    """Piggyback: the end of the first future's copy lets the kernel go in that very step, while the second future still
    has its message before it. A ``recv`` of a gets the third, and one without a direction nothing of a before that.
    """
    for by_name in (True, False):
        seen: list[str] = []

        def middle(tl: TL, by_name: bool = by_name, seen: list[str] = seen) -> None:
            bench.pause(0, 0, 50_000)
            first = tl.recv_async("a", 16, "i32", dst_addr=hbm(0, 0), dst_space="hbm")
            second = tl.recv_async("a", 16, "i32", dst_addr=hbm(0, 64), dst_space="hbm")
            tl.wait(first)
            if by_name:
                tl.recv("a", 16, "i32")
            else:
                take(tl, 1, seen)
            tl.wait(second)
            assert second.received is not None
            assert second.received.consumer_seq == 2

        run_hub(bench := hub(credit_return_mode="piggyback"), (2, 1, 0) if not by_name else (3, 0, 0), middle)
        assert seen == ([] if by_name else ["b"])


def test_a_pe_without_directions_cannot_receive() -> None:
    bench = pair_bench()
    bench.kernel(0, 5, lambda tl: tl.recv(shape=16, dtype="i32"))
    with pytest.raises(IpcqInvalidDirection, match="needs a direction that receives"):
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
    bench = bench_of(buffer_kind=ring, n_slots=1)

    def receiver(tl: TL) -> None:
        bench.pause(1, 0, 100_000)
        assert recv_i32(tl, dst_addr=address, dst_space=to) == [0] * 16
        assert bench.sip.memory.read(address, 64) == bytes(64)
        assert recv_i32(tl, dst_addr=address, dst_space=to) == [1] * 16
        assert bench.sip.memory.read(address, 4) == (1).to_bytes(4, "little")

    run_pair(bench, 2, receiver)
    copied_ps = 100_000 + load_ps(ring) + store_ps(to)
    first, _second = bench.records("ipcq.recv")
    assert first.end_ps == copied_ps + RETURN_PS
    assert [r.end_ps for r in bench.records("ipcq.send")] == [0, copied_ps + RETURN_PS]
    assert first.fields["recv_mode"] == "copy_to_dst"


def test_futures_copy_in_order() -> None:
    """Two messages to one address: the later one stays."""
    address = address_of("hbm")

    def receiver(tl: TL) -> None:
        futures = [tl.recv_async("W", 16, "i32", dst_addr=address) for _ in range(2)]
        tl.wait(futures[1])
        assert bench.sip.memory.read(address, 4) == (1).to_bytes(4, "little")
        tl.wait(futures[0])

    run_pair(bench := bench_of(), 2, receiver)


@pytest.mark.ideal
def test_a_message_of_another_size_is_not_copied() -> None:
    """A larger one would be written over what lies behind."""
    address = address_of("tcm")
    bench = bench_of()
    put(bench, address, [9] * 32, "<i4")
    says = fails(lambda tl: tl.recv("W", 8, "i32", dst_addr=address), IpcqTypeMismatch, bench)
    assert "expects i32[8] (32 bytes), but the message is i32[16] (64 bytes)" in says
    assert bench.sip.memory.read(address, 128) == (9).to_bytes(4, "little") * 32
    edge = PhysAddr(0, 1, 0, "tcm", 16 * 2**20 - 32).encode()
    fails(lambda tl: tl.recv("W", 8, "i32", dst_addr=edge), IpcqTypeMismatch)


@pytest.mark.parametrize(
    ("more", "kind", "says"),
    [
        ({"dst_space": "hbm"}, KernelError, "dst_space without dst_addr"),
        ({"dst_addr": tcm(1, 0), "dst_space": "hbm"}, KernelError, "is not in space hbm"),
        ({"dst_addr": tcm(1, 0), "dst_space": "l2"}, KernelError, "space 'l2' is not known; allowed: tcm, hbm, sram"),
        ({"dst_addr": tcm(1, 16 * 2**20 - 60)}, MemoryAccessError, "outside its memory"),
        ({"dst_addr": tcm(1, 0, sip=1)}, MemoryAccessError, "is not a memory of SIP 0"),
    ],
)
def test_invalid_copy_destinations_raise(more: dict[str, Any], kind: type[Exception], says: str) -> None:
    """Refused before anything is taken."""
    bench = bench_of()
    assert says in fails(lambda tl: tl.recv("W", 16, "i32", **more), kind, bench)
    assert bench.queue(1, 0, "W").my_tail == 0
