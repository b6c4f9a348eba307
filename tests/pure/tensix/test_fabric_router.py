"""The router with a link and a NoC that note what they are told: times of visits by hand, and their events."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from sipsim.chips.api.chip import CHIPS
from sipsim.chips.config import load
from sipsim.chips.tensix.chip import TensixKind
from sipsim.chips.tensix.fabric.channels import ReceiverChannel, Ring, SenderChannel, SlotCredits
from sipsim.chips.tensix.fabric.layout import RouterLayout, Shape
from sipsim.chips.tensix.fabric.packet import LONG_BYTES, Direction, Route, pack, write_to
from sipsim.chips.tensix.fabric.router import CREDITS, NOWHERE, CostsPs, FabricProtocol, Router, in_turn
from sipsim.chips.tensix.memory import TileMemory
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.params import ChipParams, RouterCosts
from sipsim.chips.tensix.results import TileLog
from sipsim.config.load import parse_set
from sipsim.core.engine import Engine
from sipsim.core.errors import InvariantViolation
from sipsim.records.oplog import OpLog

LOOK, ROUND = 10_000, 120_000
COSTS = RouterCosts(round_ns=120, look_ns=10, send_ns=20, sent_ns=30, credit_ns=45, forward_ns=35,
                    further_ns=40, completion_ns=25, ack_ns=100)  # fmt: skip
LOCAL, ONWARD, BOTH = Direction.W, Direction.E, Direction.W | Direction.E
"""What a packet that has come from the west has in its route: write here, forward, or both."""
WIRE = 300_000
NOBODY = (0,) * 6


class Notes:
    """A link on which a packet takes the wire for ``WIRE``, and a NoC whose writes arrive when the test says so."""

    def __init__(self, core: Core, engine: Engine) -> None:
        self.core = core
        self.engine = engine
        self.told: list[tuple[Any, ...]] = []
        self.arrivals: dict[int, list[Callable[[int], None]]] = {}
        self._memories: dict[Core, TileMemory] = {}
        self._free_ps = 0
        self.log = TileLog(OpLog(), engine)

    def memory(self, core: Core) -> TileMemory:
        return self._memories.setdefault(core, TileMemory(f"tile {core}", 2**16))

    def clear(self, core: Core, address: int, nbytes: int) -> None:
        self.memory(core).clear(address, nbytes)

    def all_started_ps(self, now_ps: int) -> int:
        return max(now_ps, self._free_ps)

    def send_at(self, at_ps: int, _address: int, data: bytes, _stored_bytes: int, _origin: object = None) -> None:
        self._free_ps = at_ps + WIRE
        self.told.append(("packet", data[4], at_ps))

    def send_between(self, at_ps: int, _address: int, data: bytes) -> None:
        _, _, *counts = CREDITS.unpack(data)
        self.told.append(("credits", sum(counts[:6]), sum(counts[6:]), at_ps))

    def deliver(self, _src: Core, _core: Core, _to: int, data: bytes, _by: str, delay_ps: int, arrived: Any) -> None:
        number = data[-1]
        self.arrivals.setdefault(number, []).append(arrived)
        self.told.append(("write", number, self.engine.now_ps + delay_ps))

    def receivers(self, first: Core, last: Core) -> list[Core]:
        return [first, last]

    def passed_on(self) -> set[int]:
        return {each[1] for each in self.told if each[0] == "write"}

    def acknowledge(self, number: int) -> None:
        for arrived in self.arrivals.pop(number):
            arrived(self.engine.now_ps)


def resolved_chip() -> ChipParams:
    """The parameters of a wormhole."""
    kind = CHIPS.get("wormhole")
    assert isinstance(kind, TensixKind)
    return kind.params(load(overrides=[parse_set("system.chip=wormhole")]))


def layout_of(slots: int) -> RouterLayout:
    """Two sender channels of so many slots, and a receiver of eight."""
    return RouterLayout(0, Shape((slots, slots), (8,), 16, LONG_BYTES, 0))


def made(
    hops: Sequence[Direction] = (), needs_bubble: bool = False, is_acked: bool = False, transaction_ids: int = 4
) -> tuple[Router, Notes]:
    """Sender channels of four slots, a receiver with one way on, into a channel of two slots. Packets lie in the
    receiver's slots, and it has heard of none.
    """
    fabric = replace(resolved_chip().fabric, transaction_ids=transaction_ids)
    protocol = FabricProtocol(b"", is_acked, needs_bubble, fabric, CostsPs.of(COSTS))
    engine = Engine()
    notes: Any = Notes(Core(9, 0), engine)
    beyond: Any = Notes(Core(7, 0), engine)
    for number, hop in enumerate(hops):
        header = pack(Route((hop,), Direction.E, None), write_to(Core(1, 1), 0x1000), 1, is_short=False)
        address = layout_of(4).receiver(0).address(number)
        notes.memory(notes.core).write(address, header + bytes([number]), 0, "a test")
    fars = [SlotCredits("far", Ring(0, 4, 64))]
    router = Router("router", Direction.W, layout_of(4), fars, protocol, notes, notes)
    onward = Router("onward", Direction.E, layout_of(2), fars, protocol, beyond, beyond)
    router.join(router.receivers[0], onward, onward.senders[1])
    router.is_open = True
    return router, notes


def come(router: Router) -> None:
    """A packet has come over the link; it lies in its slot."""
    router.receivers[0].arrived += 1
    router.receivers[0].origins.append(NOWHERE)
    router.wake()


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
    fars = [SlotCredits(f"far {vc}", Ring(0, 4, 16)) for vc in range(2)]
    senders = [SenderChannel(f"sender {number}", number, Ring(0, 4, 16), fars[number // 2], 1) for number in range(3)]
    receivers = [ReceiverChannel(f"receiver {vc}", vc, Ring(0, 4, 16)) for vc in range(2)]
    names = [channel.name for channel in in_turn(senders, receivers)]
    assert names == ["sender 0", "receiver 0", "sender 1", "receiver 1", "sender 2"]


def test_channels_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Notes, "all_started_ps", lambda _self, now_ps: now_ps)
    router, notes = made()
    for channel in router.senders * 2:
        router.packet_written(channel)
    run_to(notes, 10**9)
    assert [number for _, number, _ in notes.told] == [0, 1, 0, 1]


@pytest.mark.parametrize(("needs_bubble", "sent"), [(False, 4), (True, 3)])
def test_a_bubble_leaves_a_slot_free(needs_bubble: bool, sent: int) -> None:
    router, notes = made(needs_bubble=needs_bubble)
    for _ in range(4):
        router.packet_written(router.senders[0])
    run_to(notes, 10**9)
    assert len(notes.told) == sent
    router.credits_arrived(0, (1, 0, 0, 0, 0, 0), NOBODY)
    run_to(notes, 2 * 10**9)
    assert len(notes.told) == 4, "a completion makes room"


def test_a_slot_is_told_free_by_a_completion_or_by_an_ack() -> None:
    freed = {}
    for is_acked in (False, True):
        router, notes = made(is_acked=is_acked)
        router.senders[0].return_credits = lambda count, at_ps, notes=notes: notes.told.append(("free", count, at_ps))  # type: ignore[misc]
        router.packet_written(router.senders[0])
        run_to(notes, 10**6)
        router.credits_arrived(0, NOBODY, (1, 0, 0, 0, 0, 0))
        run_to(notes, 2 * 10**6)
        freed[is_acked] = [each for each in notes.told if each[0] == "free"]
        assert router.senders[0].far.free == 3, "an ack gives no slot of the far end back"
    assert freed[False] == []
    assert len(freed[True]) == 1


def test_more_completions_than_packets_are_an_error() -> None:
    router, _ = made()
    with pytest.raises(InvariantViolation, match="1 of 0 packets sent to far were reported as completed"):
        router.credits_arrived(0, (1, 0, 0, 0, 0, 0), NOBODY)


@pytest.mark.parametrize(("hop", "commands"), [(LOCAL, 1), (ONWARD, 1), (BOTH, 2)])
def test_a_packet_that_has_come_by_hand(hop: Direction, commands: int) -> None:
    """It is passed on, and completed by a later visit, when its writes have left."""
    router, notes = made([hop])
    notes.engine.at(0, lambda: come(router))
    run_to(notes, 10**6)
    passed_ps = 2 * LOOK + 35_000
    assert notes.told == [("write", 0, passed_ps + 40_000 * number) for number in range(commands)]
    notes.engine.at(10**6, lambda: notes.acknowledge(0))
    run_to(notes, 10**9)
    end_ps = passed_ps + (commands - 1) * 40_000
    begin_ps = end_ps + 2 * LOOK + ROUND
    while begin_ps < 10**6:
        begin_ps += ROUND + 3 * LOOK
    assert notes.told[commands:] == [("credits", 1, 0, begin_ps + LOOK + 25_000)]
    assert notes.engine.events == 4


def test_a_first_level_ack_goes_out_before_the_packet_is_passed_on() -> None:
    router, notes = made([LOCAL], is_acked=True)
    come(router)
    run_to(notes, 10**6)
    assert notes.told == [("credits", 0, 1, 2 * LOOK + 100_000), ("write", 0, 2 * LOOK + 100_000 + 35_000)]


def test_an_acked_packet_waits_without_room_and_is_acked_all_the_same() -> None:
    router, notes = made([ONWARD] * 3, is_acked=True)
    for _ in range(3):
        come(router)
    run_to(notes, 10**8)
    assert sum(each[2] for each in notes.told if each[0] == "credits") == 3
    assert len(notes.passed_on()) == 2, "two slots are there"


def test_a_multicast_waits_for_room_with_its_local_write() -> None:
    router, notes = made([BOTH] * 3)
    for _ in range(3):
        come(router)
    run_to(notes, 10**8)
    assert notes.passed_on() == {0, 1}
    router.receivers[0].downstream[Direction.E].returned += 1
    router.wake()
    run_to(notes, 2 * 10**8)
    assert notes.passed_on() == {0, 1, 2}


@pytest.mark.parametrize("transaction_ids", [1, 3])
def test_so_many_packets_are_passed_on_as_there_are_transaction_ids(transaction_ids: int) -> None:
    router, notes = made([LOCAL] * 5, transaction_ids=transaction_ids)
    for _ in range(5):
        come(router)
    run_to(notes, 10**8)
    assert len(notes.told) == transaction_ids
    notes.acknowledge(0)
    run_to(notes, 2 * 10**8)
    assert len(notes.passed_on()) == transaction_ids + 1


def test_slots_are_completed_in_order() -> None:
    router, notes = made([LOCAL] * 2)
    come(router)
    come(router)
    run_to(notes, 10**7)
    notes.acknowledge(1)
    run_to(notes, 2 * 10**7)
    assert not [each for each in notes.told if each[0] == "credits"], "the first has not left"
    notes.acknowledge(0)
    run_to(notes, 3 * 10**7)
    assert [each[1] for each in notes.told if each[0] == "credits"] == [2]


@pytest.mark.parametrize("pause_ps", [10**6, 10**10])
def test_looks_cost_no_events(pause_ps: int) -> None:
    router, notes = made()
    for number in range(4):
        notes.engine.at(number * pause_ps, lambda: router.packet_written(router.senders[0]))
    run_to(notes, 10**12)
    assert notes.engine.events == 8
