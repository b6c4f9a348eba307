"""The router with a machine that notes what it is told: order and times of visits by hand, and their events."""

from collections.abc import Sequence
from typing import Any

import pytest

from sipsim.chips.tensix.fabric.channels import Downstream, FarReceiver, Handled, ReceiverChannel, Ring, SenderChannel
from sipsim.chips.tensix.fabric.packet import Hop, Way
from sipsim.chips.tensix.fabric.router import Arrived, Router, in_turn
from sipsim.chips.tensix.params import RouterCosts
from sipsim.core.engine import Engine
from sipsim.core.errors import InvariantViolation

LOOK, ROUND = 10_000, 120_000
COSTS = RouterCosts(round_ns=120, look_ns=10, send_ns=20, sent_ns=30, credit_ns=45, forward_ns=35,
                    further_ns=40, completion_ns=25, ack_ns=100)  # fmt: skip
LOCAL, ONWARD, BOTH = (True, ()), (False, (Way.E,)), (True, (Way.E,))
WIRE = 300_000


class Notes:
    """A machine on which a packet takes the wire for ``WIRE``, and writes are acknowledged when the test says so."""

    def __init__(self, engine: Engine, hops: Sequence[tuple[bool, tuple[Way, ...]]] = ()) -> None:
        self.engine = engine
        self.told: list[tuple[Any, ...]] = []
        self.handled: list[Handled] = []
        self._hops = [Hop(is_local, ways, b"") for is_local, ways in hops]
        self._free_ps = 0

    def wire_free_ps(self, now_ps: int) -> int:
        return max(now_ps, self._free_ps)

    def send_packet(self, channel: SenderChannel, at_ps: int) -> None:
        self._free_ps = at_ps + WIRE
        self.told.append(("packet", channel.number, at_ps))

    def send_credits(self, vc: int, completed: Sequence[int], acked: Sequence[int], at_ps: int) -> None:
        self.told.append(("credits", sum(completed), sum(acked), at_ps))

    def look_into(self, channel: ReceiverChannel, number: int) -> Arrived:
        return Arrived(self._hops[number], 0)

    def pass_on(self, channel: ReceiverChannel, arrived: Arrived, handled: Handled, at_ps: int, further_ps: int) -> int:
        handled.writes = len(arrived.hop.ways) + arrived.hop.is_local
        self.handled.append(handled)
        self.told.append(("pass on", arrived.hop.is_local, len(arrived.hop.ways), at_ps))
        return at_ps + (handled.writes - 1) * further_ps

    def acknowledge(self, router: Router, number: int) -> None:
        self.handled[number].writes = 0
        self.handled[number].left_ps = self.engine.now_ps
        router.wake()


def made(
    hops: Sequence[tuple[bool, tuple[Way, ...]]] = (), needed: int = 1, is_acked: bool = False, transaction_ids: int = 4
) -> tuple[Router, Notes]:
    """Two sender channels of four slots, a receiver with one way on, into a channel of two slots."""
    engine = Engine()
    far = FarReceiver("far", Ring(0, 4, 64))
    senders = [SenderChannel(f"sender {number}", number, Ring(0, 4, 64), far, needed) for number in (0, 1)]
    receiver = ReceiverChannel("receiver", 0, Ring(0, 8, 64))
    receiver.downstream[Way.E] = Downstream(SenderChannel("onward", 1, Ring(0, 2, 64), far, 1))
    router = Router("router", Way.W, senders, [receiver], [far], COSTS, is_acked, transaction_ids, True, True, engine)
    notes = Notes(engine, hops)
    router.machine = notes
    router.is_open = True
    return router, notes


def run_to(notes: Notes, time_ps: int) -> None:
    notes.engine.run_before(time_ps, 10**6)


def test_a_packet_of_a_worker_by_hand() -> None:
    """Looks of channels 0, 1, 2 begin at 0, 10, 20 ns, and those of the next round at 150 ns."""
    router, notes = made()
    notes.engine.at(5_000, lambda: router.packet_written(router.senders[0]))
    run_to(notes, 10**9)
    turn = ROUND + 3 * LOOK
    assert notes.told == [("packet", 0, turn + LOOK + 20_000)]
    assert notes.engine.events == 2, "its coming, and the visit"


def test_the_wire_is_waited_for() -> None:
    router, notes = made()
    router.packet_written(router.senders[0])
    router.packet_written(router.senders[1])
    run_to(notes, 10**9)
    (_, first, first_ps), (_, second, second_ps) = notes.told
    assert (first, first_ps, second) == (0, LOOK + 20_000, 1)
    # Sender 1 is the third of the loop; its visit comes at the first look at which the wire is free.
    begin_ps = first_ps + 30_000 + LOOK
    while begin_ps < first_ps + WIRE:
        begin_ps += ROUND + 3 * LOOK
    assert second_ps == begin_ps + LOOK + 20_000


def test_the_order_of_the_loop_with_two_virtual_channels() -> None:
    """Source: fabric_erisc_router.cpp: worker, receiver 0, sender 1, receiver 1, sender 2."""
    fars = [FarReceiver(f"far {vc}", Ring(0, 4, 16)) for vc in range(2)]
    senders = [SenderChannel(f"sender {number}", number, Ring(0, 4, 16), fars[number // 2], 1) for number in range(3)]
    receivers = [ReceiverChannel(f"receiver {vc}", vc, Ring(0, 4, 16)) for vc in range(2)]
    names = [channel.name for channel in in_turn(senders, receivers)]
    assert names == ["sender 0", "receiver 0", "sender 1", "receiver 1", "sender 2"]


def test_channels_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Notes, "wire_free_ps", lambda _self, now_ps: now_ps)
    router, notes = made()
    for channel in router.senders * 2:
        router.packet_written(channel)
    run_to(notes, 10**9)
    assert [number for _, number, _ in notes.told] == [0, 1, 0, 1]


@pytest.mark.parametrize(("needed", "sent"), [(1, 4), (2, 3)])
def test_a_bubble_leaves_a_slot_free(needed: int, sent: int) -> None:
    router, notes = made(needed=needed)
    for _ in range(4):
        router.packet_written(router.senders[0])
    run_to(notes, 10**9)
    assert len(notes.told) == sent
    router.credits_arrived(0, (1, 0, 0, 0, 0, 0), (0,) * 6)
    run_to(notes, 2 * 10**9)
    assert len(notes.told) == 4, "a completion makes room"


def test_a_slot_is_told_free_by_a_completion_or_by_an_ack() -> None:
    freed = {}
    for is_acked in (False, True):
        router, notes = made(is_acked=is_acked)
        router.senders[0].tell_free = lambda count, at_ps, notes=notes: notes.told.append(("free", count, at_ps))  # type: ignore[misc]
        router.packet_written(router.senders[0])
        run_to(notes, 10**6)
        router.credits_arrived(0, (0,) * 6, (1, 0, 0, 0, 0, 0))
        run_to(notes, 2 * 10**6)
        freed[is_acked] = [each for each in notes.told if each[0] == "free"]
        assert router.senders[0].far.free == 3, "an ack gives no slot of the far end back"
    assert freed[False] == []
    assert len(freed[True]) == 1


def test_more_completions_than_packets_are_an_error() -> None:
    router, _ = made()
    with pytest.raises(InvariantViolation, match="1 of 0 packets that were sent to far are told as completed"):
        router.credits_arrived(0, (1, 0, 0, 0, 0, 0), (0,) * 6)


@pytest.mark.parametrize(("hop", "commands"), [(LOCAL, 1), (ONWARD, 1), (BOTH, 2)])
def test_a_packet_that_has_come_by_hand(hop: tuple[bool, tuple[Way, ...]], commands: int) -> None:
    """It is passed on, and completed by a later visit, when its writes have left."""
    router, notes = made([hop])
    notes.engine.at(0, lambda: router.packet_arrived(0))
    run_to(notes, 10**6)
    passed_ps = 2 * LOOK + 35_000
    assert notes.told == [("pass on", hop[0], len(hop[1]), passed_ps)]
    notes.engine.at(10**6, lambda: notes.acknowledge(router, 0))
    run_to(notes, 10**9)
    end_ps = passed_ps + (commands - 1) * 40_000
    begin_ps = end_ps + 2 * LOOK + ROUND
    while begin_ps < 10**6:
        begin_ps += ROUND + 3 * LOOK
    assert notes.told[1:] == [("credits", 1, 0, begin_ps + LOOK + 25_000)]
    assert notes.engine.events == 4


def test_a_first_level_ack_goes_out_before_the_packet_is_passed_on() -> None:
    router, notes = made([LOCAL], is_acked=True)
    router.packet_arrived(0)
    run_to(notes, 10**6)
    assert notes.told == [("credits", 0, 1, 2 * LOOK + 100_000), ("pass on", True, 0, 2 * LOOK + 100_000 + 35_000)]


def test_an_acked_packet_waits_without_room_and_is_acked_all_the_same() -> None:
    router, notes = made([ONWARD] * 3, is_acked=True)
    for _ in range(3):
        router.packet_arrived(0)
    run_to(notes, 10**8)
    assert sum(each[2] for each in notes.told if each[0] == "credits") == 3
    assert sum(each[0] == "pass on" for each in notes.told) == 2, "two slots are there"


def test_a_multicast_waits_for_room_with_its_local_write() -> None:
    router, notes = made([BOTH] * 3)
    for _ in range(3):
        router.packet_arrived(0)
    run_to(notes, 10**8)
    assert len(notes.told) == 2
    router.receivers[0].downstream[Way.E].freed += 1
    router.wake()
    run_to(notes, 2 * 10**8)
    assert len(notes.told) == 3


@pytest.mark.parametrize("transaction_ids", [1, 3])
def test_so_many_packets_are_passed_on_as_there_are_transaction_ids(transaction_ids: int) -> None:
    router, notes = made([LOCAL] * 5, transaction_ids=transaction_ids)
    for _ in range(5):
        router.packet_arrived(0)
    run_to(notes, 10**8)
    assert len(notes.told) == transaction_ids
    notes.acknowledge(router, 0)
    run_to(notes, 2 * 10**8)
    assert sum(each[0] == "pass on" for each in notes.told) == transaction_ids + 1


def test_slots_are_completed_in_order() -> None:
    router, notes = made([LOCAL] * 2)
    router.packet_arrived(0)
    router.packet_arrived(0)
    run_to(notes, 10**7)
    notes.acknowledge(router, 1)
    run_to(notes, 2 * 10**7)
    assert not [each for each in notes.told if each[0] == "credits"], "the first has not left"
    notes.acknowledge(router, 0)
    run_to(notes, 3 * 10**7)
    assert [each[1] for each in notes.told if each[0] == "credits"] == [2]


@pytest.mark.parametrize("pause_ps", [10**6, 10**10])
def test_looks_cost_no_events(pause_ps: int) -> None:
    router, notes = made()
    for number in range(4):
        notes.engine.at(number * pause_ps, lambda: router.packet_written(router.senders[0]))
    run_to(notes, 10**12)
    assert notes.engine.events == 8
