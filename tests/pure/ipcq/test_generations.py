"""Queue pairs that are made and closed while time runs, on one SIP: names, early messages, credits after the close.

The pair and its times are those of ``pair_times``.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hardware import Bench, pair_bench, tcm
from later import ABOVE, later
from pair_times import arrival_ps, put

from sipsim.chips.ahbm.address import PePlace, PhysAddr
from sipsim.chips.ahbm.ipcq.generations import ClosedGenerations
from sipsim.chips.ahbm.tl.language import TL
from sipsim.core.errors import CollectiveMismatch, InvariantViolation, IpcqInUse, IpcqInvalidDirection

PAIR = [PePlace(0, 0, 0), PePlace(0, 1, 0)]
TABLE = {0: {"E": 1}, 1: {"W": 0}}
MODES = ("fast_path", "fabric", "piggyback", "auto")


def part(bench: Bench, generation: int, place: PePlace) -> None:
    """Install one PE's part of a generation, as its own rank would."""
    entries = later(bench.plan, PAIR, TABLE)[place]
    bench.ipcq(place.cube, place.pe).install(generation, entries, PAIR.index(place), len(PAIR))


def whole(bench: Bench, generation: int) -> None:
    bench.sip.install(generation, later(bench.plan, PAIR, TABLE), PAIR)


def kernel(bench: Bench, place: PePlace, body: Callable[[TL], object], generation: int = 1, call: str = "") -> None:
    bench.ipcq(place.cube, place.pe).use(generation, call)
    bench.kernel(place.cube, place.pe, body)


def send(*counts: int) -> Callable[[TL], object]:
    return lambda tl: [tl.send("E", src_addr=tcm(0, 0), shape=count, dtype="i32") for count in counts]


def receive(got: list[Any], *counts: int, way: str | None = "W") -> Callable[[TL], object]:
    return lambda tl: got.extend(tl.recv(way, count, "i32").array.tolist() for count in counts)


def exchange(bench: Bench, generation: int, *counts: int) -> list[Any]:
    """What one PE of the pair sends and the other receives."""
    got: list[Any] = []
    kernel(bench, PAIR[0], send(*counts), generation)
    kernel(bench, PAIR[1], receive(got, *counts), generation)
    bench.run()
    return got


# --- names and places -----------------------------------------------------------------------------------------


@pytest.mark.ideal
@pytest.mark.parametrize("kind", ["tcm", "hbm", "sram"])
def test_a_kernel_names_the_queue_pairs_of_its_generation(kind: str) -> None:
    """By short names; logs have the full ones. Rings lie in the TCM whatever the plan's do, and times follow."""
    bench = pair_bench({"defaults.buffer_kind": kind})
    put(bench, tcm(0, 0), range(16), "<i4")
    whole(bench, 3)
    got: list[Any] = []

    def first(tl: TL) -> None:
        got.append((tl.rank(), tl.world_size(), tl.has_direction("E"), tl.has_direction("W"), tl.ipcq_slots("E")))
        send(16)(tl)

    kernel(bench, PAIR[0], first, 3)
    kernel(bench, PAIR[1], receive(got, 16, way=None), 3)
    bench.run()
    assert got == [(0, 2, True, False, (8, 4096)), list(range(16))]
    (sent,), (taken,) = bench.records("ipcq.send"), bench.records("ipcq.recv")
    assert (sent.fields["dir"], taken.fields["dir"]) == ("E#3", "W#3")
    assert PhysAddr.decode(sent.fields["addr"]).space == sent.fields["space"] == "tcm"
    assert bench.ipcq(1, 0).last_polled_dir == "W"
    assert bench.ipcq(1, 0).every["W#3"].freed_ps == arrival_ps(64, "tcm")
    assert bench.ipcq(1, 0).queues["W"].my_tail == 1, "of the generation in use"
    bench.ipcq(1, 0).use()
    assert bench.ipcq(1, 0).queues["W"].my_tail == 0, "of the plan"


def test_the_generations_of_a_pe_do_not_mix() -> None:
    """Two are there at a time, with the plan's; a receive without a direction takes none but its kernel's own."""
    bench = pair_bench()
    put(bench, tcm(0, 0), range(16), "<i4")
    whole(bench, 1)
    bench.sip.install(2, later(bench.plan, PAIR, TABLE, 2**19 + 2**17), PAIR)
    got: list[Any] = []
    for generation, count in ((0, 1), (1, 2), (2, 3)):
        kernel(bench, PAIR[0], send(count), generation)
        bench.run()
    for generation, count in ((2, 3), (0, 1), (1, 2)):
        kernel(bench, PAIR[1], receive(got, count, way=None), generation)
        bench.run()
    assert [len(each) for each in got] == [3, 1, 2]


def test_a_direction_that_a_generation_lacks_is_refused_with_its_name() -> None:
    bench = pair_bench()
    whole(bench, 7)
    kernel(bench, PAIR[1], send(1), 7)
    with pytest.raises(IpcqInvalidDirection, match="'E' is not installed; installed in generation 7: W"):
        bench.run()


def test_a_number_is_used_once() -> None:
    """And a kernel cannot run with one that is closed or not installed."""
    bench = pair_bench()
    whole(bench, 2)
    for _ in range(2):
        with pytest.raises(InvariantViolation, match="generation 2 is or was in use"):
            whole(bench, 2)
        if 2 in bench.sip.generations.live:
            bench.sip.close(2)
    for number, state in ((2, "closed"), (3, "not installed")):
        with pytest.raises(InvariantViolation, match=f"generation {number} cannot be closed: rank 0 has not"):
            bench.sip.close(number)
        with pytest.raises(InvariantViolation, match=f"cannot run with generation {number}, which is {state} at"):
            bench.ipcq(0, 0).use(number)
    with pytest.raises(InvariantViolation, match="generation 0 is or was in use"):
        whole(bench, 0)


RING = 8 * 4096
OVERLAPS = {"the same": (ABOVE, 1), "its last byte": (ABOVE + RING - 1, 1), "its first byte": (ABOVE + 1 - RING, 1)}
OVERLAPS |= {"a ring of the plan": (RING - 1, 0)}


@pytest.mark.parametrize("case", OVERLAPS)
def test_rings_of_live_generations_do_not_overlap(case: str) -> None:
    """Beside each other they may lie; and where one lay that is closed."""
    above, other = OVERLAPS[case]
    bench = pair_bench()
    assert {(entry.n_slots * entry.slot_size) for entry in bench.plan.entries[PAIR[0]]} == {RING}
    whole(bench, 1)
    bench.sip.install(2, later(bench.plan, PAIR, TABLE, ABOVE + RING), PAIR)
    bench.sip.close(2)
    told = f"a ring of generation 3 overlaps a ring of generation {other} on rank 0 cube 0 PE 0"
    with pytest.raises(InvariantViolation, match=told):
        bench.sip.install(3, later(bench.plan, PAIR, TABLE, above), PAIR)
    bench.sip.install(4, later(bench.plan, PAIR, TABLE, ABOVE + RING), PAIR)
    bench.sip.close(1)
    whole(bench, 5)


@pytest.mark.parametrize("mmu", [{"virtual_rings": True}, {"virtual_rings": False}], ids=str)
def test_rings_of_later_generations_are_mapped_and_unmapped(mmu: dict[str, Any]) -> None:
    """Where rings have virtual addresses, the sender's MMU translates those of each generation by themselves."""
    bench = pair_bench({"pe_mmu": {"page_KiB": 64, "tlb_entries": 4, "walk_ns": 50, **mmu}})
    for generation in (1, 2):
        whole(bench, generation)
        assert bench.ipcq(0, 0).every[f"E#{generation}"].has_va is mmu["virtual_rings"]
        assert len(exchange(bench, generation, 4)) == 1
        bench.sip.close(generation)


# --- early messages -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_messages_that_come_before_their_generation_are_delivered_by_its_install(mode: str) -> None:
    """In order, and not before; the PE need not exist."""
    bench = pair_bench({"defaults.credit_return_mode": mode})
    put(bench, tcm(0, 0), range(16), "<i4")
    part(bench, 1, PAIR[0])
    kernel(bench, PAIR[0], send(3, 1, 2))
    bench.run()
    (held,) = bench.ipcq(1, 0).generations.unread()
    assert (held.sender, held.sender_direction, held.messages) == ((0, 0, 0), "E#1", 3)
    assert held.receiver_direction == "generation 1, not installed"
    part(bench, 1, PAIR[1])
    assert bench.ipcq(1, 0).every["W#1"].peer_head_cache == 3
    got: list[Any] = []
    kernel(bench, PAIR[1], receive(got, 3, 1, 2))
    bench.run()
    assert [len(each) for each in got] == [3, 1, 2]
    assert bench.ipcq(0, 0).every["E#1"].peer_tail_cache == 3


def test_credits_with_an_early_message_are_not_held() -> None:
    """Piggybacked credits may be of another generation, whose sender waits for them."""
    bench = pair_bench({"defaults.credit_return_mode": "piggyback", "defaults.piggyback_wait_ns": 10**6})
    kernel(bench, PAIR[0], send(1), 0)
    kernel(bench, PAIR[1], receive([], 1), 0)
    bench.engine.run_before(10**6, 10**6)
    assert bench.queue(0, 0, "E").peer_tail_cache == 0
    part(bench, 1, PAIR[1])
    kernel(bench, PAIR[1], lambda tl: tl.send("W", src_addr=tcm(1, 0), shape=1, dtype="i32"))
    bench.engine.run_before(2 * 10**6, 10**6)
    assert bench.queue(0, 0, "E").peer_tail_cache == 1
    assert [each.messages for each in bench.ipcq(0, 0).generations.unread()] == [1]


# --- closing --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "body", "closed", "what"),
    [
        (PAIR[0], send(1), PAIR[1], "W#1 of rank 0 cube 1 PE 0 is closed while its ring holds 1 message that"),
        (PAIR[1], receive([], 1), PAIR[1], "W#1 of rank 0 cube 1 PE 0 is closed while a receive is posted"),
        (PAIR[1], receive([], 1, way=None), PAIR[1], "W#1 of rank 0 cube 1 PE 0 is closed while a receive is posted"),
        (PAIR[0], send(*[1] * 9), PAIR[0], "E#1 of rank 0 cube 0 PE 0 is closed while a send waits"),
    ],
    ids=["unread", "posted", "posted to any", "a send waits"],
)
def test_a_generation_in_use_is_not_closed(
    place: PePlace, body: Callable[[TL], object], closed: PePlace, what: str
) -> None:
    bench = pair_bench()
    whole(bench, 1)
    kernel(bench, place, body)
    bench.run()
    with pytest.raises(IpcqInUse, match=what):
        bench.ipcq(closed.cube, closed.pe).close(1)
    with pytest.raises(IpcqInUse):
        bench.sip.close(1)
    assert not any(each.is_closed for pe in bench.sip.pes_in_use() for each in pe.ipcq.generations.live.values())


@pytest.mark.parametrize("mode", MODES)
def test_a_closed_generation_is_known_until_its_last_credit(mode: str) -> None:
    bench = pair_bench({"defaults.credit_return_mode": mode})
    whole(bench, 1)
    kernel(bench, PAIR[0], send(1, 1))
    bench.run()
    bench.ipcq(0, 0).close(1)
    assert "E#1" in bench.ipcq(0, 0).every
    got: list[Any] = []
    kernel(bench, PAIR[1], receive(got, 1, 1))
    bench.run()
    assert list(bench.ipcq(0, 0).every) == ["E"]
    assert list(bench.ipcq(0, 0).generations.live) == [0]
    bench.ipcq(1, 0).close(1)
    assert list(bench.ipcq(1, 0).generations.live) == [0]


@pytest.mark.ideal
@pytest.mark.parametrize("mode", MODES)
def test_the_same_addresses_serve_a_later_generation(mode: str) -> None:
    """Its first message comes while the receiver has not closed the earlier one; numbers begin at 0 again, and credits
    of the one are none of the other.
    """
    bench = pair_bench({"defaults.credit_return_mode": mode}, replays=True)
    part(bench, 1, PAIR[0])
    part(bench, 1, PAIR[1])
    got: list[Any] = []
    kernel(bench, PAIR[0], send(1, 2))
    bench.engine.run_before(1_000, 100)
    assert bench.ipcq(0, 0).every["E#1"].my_head == 2
    bench.ipcq(0, 0).close(1)
    part(bench, 2, PAIR[0])
    kernel(bench, PAIR[0], send(3, 4), 2)
    bench.engine.run_before(2_000, 100)
    assert bench.ipcq(1, 0).every["W#1"].peer_head_cache == 0, "all are on their way"
    bench.run()
    kernel(bench, PAIR[1], receive(got, 1, 2), 1)
    bench.run()
    assert bench.ipcq(0, 0).every["E#2"].peer_tail_cache == 0
    bench.ipcq(1, 0).close(1)
    part(bench, 2, PAIR[1])
    kernel(bench, PAIR[1], receive(got, 3, 4), 2)
    bench.run()
    assert [len(each) for each in got] == [1, 2, 3, 4]
    assert bench.ipcq(0, 0).every["E#2"].peer_tail_cache == 2
    verdict = bench.sip.verdict()
    assert verdict is not None
    assert (verdict.difference, verdict.races, verdict.stopped) == (None, 0, "")


def test_what_comes_for_a_generation_that_is_gone_is_refused_by_name() -> None:
    """A message, and a credit."""
    bench = pair_bench()
    whole(bench, 4)
    came: list[Any] = []
    sender, receiver = bench.ipcq(0, 0), bench.ipcq(1, 0)
    arrive, credit = receiver.arrive, sender.credit
    receiver.arrive = lambda token: came.append(token) or arrive(token)  # type: ignore[func-returns-value,method-assign]
    sender.credit = lambda each: came.append(each) or credit(each)  # type: ignore[func-returns-value,method-assign]
    exchange(bench, 4, 1)
    bench.sip.close(4)
    message, returned = came
    with pytest.raises(
        InvariantViolation, match=r"of generation 4 from E#4 of rank 0 cube 0 PE 0 arrived at .* closed"
    ):
        arrive(message)
    with pytest.raises(InvariantViolation, match="of generation 4 from W#4 of rank 0 cube 1 PE 0 arrived at"):
        credit(returned)


def test_nothing_grows_by_a_thousand_generations() -> None:
    """Neither what a SIP keeps by generation nor by queue pair, checker and paths included."""
    bench = pair_bench()
    sizes = []
    for generation in range(1, 1001):
        whole(bench, generation)
        exchange(bench, generation, 1)
        bench.sip.close(generation)
        for pe in bench.sip.pes_in_use():
            pe.ipcq.use()
        bench.sip.tasks.clear()
        sizes.append(_kept(bench))
    assert sizes[0] == sizes[-1]


def _kept(bench: Bench) -> list[int]:
    sip = bench.sip
    kept: list[Any] = [sip.generations.live, sip.generations.closed, sip.messages._paths, sip.ipcqs]
    assert sip.checker is not None
    kept += [sip.checker._counts, sip.fabric.use()]
    for pe in sip.pes_in_use():
        held = pe.ipcq.generations
        kept += [held.live, held.queues, held._early, pe.ipcq.queues]
    return [len(each) for each in kept]


@pytest.mark.parametrize(
    ("numbers", "ranges"),
    [([1, 2, 3], 1), ([3, 1, 2], 1), ([2, 4, 6], 3), ([6, 2, 4, 3, 5], 1), ([9, 1, 8, 2], 2), ([5], 1)],
)
def test_closed_numbers_are_ranges(numbers: list[int], ranges: int) -> None:
    closed = ClosedGenerations()
    for number in numbers:
        closed.add(number)
    assert [each for each in range(12) if each in closed] == sorted(numbers)
    assert len(closed) == ranges


# --- calls ----------------------------------------------------------------------------------------------------

ONE, OTHER = "all_reduce #3 of 1024 f16 (sum, ring)", "all_gather #3 of 512 f16 (ring)"


@pytest.mark.parametrize(("sender", "receiver"), [(ONE, ONE), ("", ONE), (OTHER, ""), ("", "")])
def test_messages_of_one_call_or_of_none_are_taken(sender: str, receiver: str) -> None:
    bench = pair_bench()
    got: list[Any] = []
    kernel(bench, PAIR[0], send(2), 0, sender)
    kernel(bench, PAIR[1], receive(got, 2), 0, receiver)
    bench.run()
    assert len(got) == 1


@pytest.mark.parametrize("count", [2, 5])
def test_a_message_of_another_call_names_both(count: int) -> None:
    """Before its size is looked at."""
    bench = pair_bench()
    kernel(bench, PAIR[0], send(2), 0, ONE)
    kernel(bench, PAIR[1], receive([], count), 0, OTHER)
    with pytest.raises(CollectiveMismatch) as caught:
        bench.run()
    assert str(caught.value).startswith(f"rank 0 called {ONE}, rank 0 called {OTHER}; every rank must make the same")
