"""Impossible facts in any order and from any sender: the hub never raises, and returns messages.

Most facts of each sequence are those of a run of three ranks, so that many phases are reached.
"""

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from mangle import with_value_changed

from broker import wire
from broker.hub import Hub, Phase
from broker.ids import BROKER, LAUNCHER, PROTOCOL, Channel, address_of
from broker.wire import BadFrame, ToBroker

SIZE = 3
RING = [Channel(rank, (rank + 1) % SIZE, 10, f"c{rank}") for rank in range(SIZE)]
SENDERS = [0, 1, 2, 0, 1, 2, 0, 1, 2, LAUNCHER, BROKER, 3, 4095, address_of(1, 1), address_of(2, 1023)]


def join(rank: int, incarnation: int = 0) -> wire.Join:
    return wire.Join(PROTOCOL, rank, SIZE, "1", "d", 4, "h", f"ipc://{rank}.{incarnation}", incarnation)


def facts(rank: int, dice: random.Random) -> list[ToBroker]:
    """Facts that a process of that rank, or the launcher, may send."""
    other, incarnation = dice.randrange(SIZE), dice.randrange(2)
    now_ps = dice.randrange(100)
    idle = wire.Report(now_ps, None, None, (), (), dice.randrange(2))
    busy = wire.Report(now_ps, now_ps + 5, None, ((other, 1, now_ps + 20),), ((other, 1),), 1, now_ps)
    sent: list[ToBroker] = [
        join(rank, incarnation),
        idle,
        busy,
        wire.Progress(5, 1),
        wire.ConnectionLost(other, "tcp://a:1", "why"),
    ]
    sent += [wire.Dump(b"d"), wire.Result(b"r", False), wire.Failed("exception", "m", "", 5), wire.Lost(other, "why")]
    sent += [wire.Restart(other, incarnation), wire.Stop("why"), wire.StatusRequest(), wire.SyncRequest()]
    return [*sent, idle, busy]


def spoilt(message: ToBroker, dice: random.Random) -> ToBroker:
    """Another message of the protocol, a value in it changed."""
    for _ in range(5):
        try:
            return wire.decode_for_broker(with_value_changed(wire.encode(message), dice) or b"")
        except BadFrame:
            continue
    return message


def run_of(seed: int) -> Phase:
    """Tell a hub a sequence of facts; the phase that it has come to."""
    dice = random.Random(seed)
    hub = Hub(SIZE, RING)
    if dice.random() < 0.9:
        for rank in range(SIZE):
            hub.handle(rank, join(rank))
    for now_ns in range(dice.randrange(40)):
        sender = dice.choice(SENDERS)
        message = dice.choice(facts(max(sender, 0) % 4096, dice))
        message = spoilt(message, dice) if dice.random() < 0.3 else message
        for to, answer in hub.handle(sender, message, now_ns):
            assert to == LAUNCHER or to >= 0
            wire.encode(answer)
            if isinstance(answer, wire.PeerLost):
                assert max(answer.rank, answer.peer) < SIZE, "the launcher has no books of others"
    return hub.phase


def test_the_hub_never_raises() -> None:
    reached: Counter[Phase] = Counter()

    @settings(derandomize=True, database=None, max_examples=400)
    @given(st.integers(0, 2**32))
    def check(seed: int) -> None:
        reached[run_of(seed)] += 1

    check()
    assert len(reached) > 3, reached
