"""Random systems through the real hub, sessions and engines, under the worst mail and grants that are legal.

Not a test, and not how a run is driven in production. Every message travels as bytes, in a shuffled order; grants are
cut short and carry random advice on placement; batches are sent early or with the report, and may be repeated within
a longer one; clients wait, run a few events at a time, stop in host code, take packets early or late, and promise less
than they could. ``Parts`` is where a test plants a bug.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace
from random_systems import Automaton, Outcome, System

from broker.hub import Hub, Phase
from broker.ids import BROKER, LAUNCHER, MAX_PS, PROTOCOL
from broker.mail.inproc import ShuffledInprocMail
from broker.wire import (
    Abort,
    Deadlock,
    Dump,
    DumpRequest,
    End,
    Finished,
    Grant,
    Join,
    Message,
    PacketBatch,
    RankFailed,
    RankResult,
    Report,
    Result,
    Start,
    decode_for_broker,
    decode_for_launcher,
    decode_for_sip,
    encode,
)
from sipsim.core import session as session_module
from sipsim.core.engine import Engine
from sipsim.core.session import Session

MOST_STEPS = 6_000
"""The longest run of the systems takes 1,372."""
LATE_PS = 2**40
"""Later than any run gets."""


class Caught(AssertionError):
    """A stall, an idle grant, an early end or a failed rank."""


class PacedEngine(Engine):
    """The real engine, stepped a few events at a time, and stopped while host code runs."""

    def __init__(self) -> None:
        super().__init__()
        self.pace = 1
        self.host_code: Callable[[], None] | None = None

    def run_before(self, horizon_ps: int | None, most_events: int) -> bool:
        for _ in range(min(self.pace, most_events)):
            if self.host_code is not None:
                return False
            if super().run_before(horizon_ps, 1):
                return self.host_code is None
        return False


class _Inside:
    """The world of a device inside a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._engine = session.engine
        self.at = self._engine.at
        self.emit = session.emit
        self.emit_far = session.emit_far

    def now_ps(self) -> int:
        return self._engine.now_ps

    def host(self, action: Callable[[], None]) -> None:
        assert isinstance(self._engine, PacedEngine)
        assert self._engine.host_code is None
        self._engine.host_code = action


class SyncClient:
    """One SIP's process: receives mail, and takes one step a turn after a random delay. It is its session's model."""

    def __init__(self, rank: int, system: System, mail: ShuffledInprocMail, parts: "Parts") -> None:
        self.rank = rank
        self._rng = rng = random.Random(system.seed * 8 + rank)
        self._mail = mail
        self.engine = PacedEngine()
        self.engine.pace = rng.choice((1, 2, 3, 50))
        reactions = system.reactions_ps
        self.session = parts.session(rank, self.engine, system.channels, self._send_batch, reactions[rank], reactions)
        self.device = Automaton(rank, system, _Inside(self.session))
        self.session.model = self
        self.session.costs = lambda: (rng.choice((0, 300, 10**6)), rng.randrange(300))
        self._slow = rng.choice(((0,), (0, 0, 0, 3), (0, 2, 9), (0, 0, 30)))
        self._eager = rng.choice((0.0, 0.3, 1.0))
        self._promises = rng.choice((0.0, 0.5, 0.7, 1.0))
        self._less_promise_ps = rng.choice(((0,), (0, 0, 0, 1, 5, 60)))
        self._parcel_bytes = rng.choice(((2**16,), (1,), (1, 40, 60, 2**16)))
        self._repeats = rng.choice((0.0, 0.0, 0.3))
        self._inbox: dict[int, deque[PacketBatch]] = {}
        self._latest: dict[int, PacketBatch] = {}
        self._taken: dict[int, int] = {}
        self._patience = 0
        self._need: tuple[tuple[int, int], ...] | None = None
        self._runs = False
        self.owes_first_report = False
        self.ended: Message | None = None

    # The interface of a session's model.

    def receive(self, channel: int, body: bytes) -> None:
        self.device.receive(channel, body)

    def waiting(self) -> int:
        return self.device.waiting()

    def next_send_bound_ps(self, next_ps: int) -> int:
        """Sometimes less than it could promise, and less than the time of its next event."""
        next_send_bound_ps = self.device.next_send_bound_ps()
        assert next_send_bound_ps >= next_ps
        return _less(next_send_bound_ps, self._rng.choice(self._less_promise_ps))

    # Mail.

    def send(self, message: Message) -> None:
        self._mail.send(self.rank, BROKER, encode(message))

    def _send_batch(self, dst: int, parcel: PacketBatch) -> None:
        self._mail.send(parcel.src, dst, encode(parcel))

    def deliver(self, frame: bytes) -> None:
        message = decode_for_sip(frame)
        match message:
            case PacketBatch():
                self._inbox.setdefault(message.src, deque()).append(self._perhaps_again(message))
                if self._rng.random() < self._eager:
                    self._take(message.src, None)
            case Grant():
                self.session.grant(message)
                self._need = message.need
                self._dawdle()
            case Start():
                self.owes_first_report = True
                self._dawdle()
            case DumpRequest():
                self.ended = message
                self.send(Dump(b"dump of %d" % self.rank))
            case End() | Abort():
                self.ended = self.ended or message
                self.send(Result(b"result of %d" % self.rank, isinstance(message, Abort)))
            case _:
                raise Caught(f"SIP {self.rank} was sent {message}")

    def _perhaps_again(self, parcel: PacketBatch) -> PacketBatch:
        """Sometimes with the packets of the batch before it once more, as mail would that resends."""
        before = self._latest.get(parcel.src)
        self._latest[parcel.src] = parcel
        if before is None or self._rng.random() >= self._repeats:
            return parcel
        return replace(parcel, first=before.first, packets=before.packets + parcel.packets)

    # Turns.

    def turn(self) -> bool:
        """Take the next step if there is one and its delay has passed; whether there is one."""
        if not (self.owes_first_report or self._runs or self.engine.host_code or self._need is not None):
            return False
        if self._patience:
            self._patience -= 1
            return True
        return self._act()

    def _act(self) -> bool:
        session_module.BATCH_BYTES = self._rng.choice(self._parcel_bytes)
        if self.owes_first_report:
            self.owes_first_report = False
            self.device.begin()
            self.send(self.promising(self.session.report()))
        elif self.engine.host_code:
            self.finish_host_code()
        elif self._runs:
            self._advance()
        else:
            return self._begin_if_ready()
        return True

    def finish_host_code(self) -> None:
        action, self.engine.host_code = self.engine.host_code, None
        assert action is not None
        action()

    def _advance(self) -> None:
        report = self.session.advance()
        self._dawdle()
        if report is not None:
            self._runs = False
            self.send(self.promising(report))

    def _begin_if_ready(self) -> bool:
        assert self._need is not None
        for source, count in self._need:
            self._take(source, count)
        if not self.session.is_ready():
            return False
        self._need = None
        self.session.begin()
        self._runs = True
        self._dawdle()
        return True

    def promising(self, report: Report) -> Report:
        """Sometimes without its promise, or with a smaller one. The session keeps its own."""
        if self._rng.random() < self._promises:
            return report
        less_ps = self._rng.choice((None, None, 5, MAX_PS))
        if less_ps is None or report.promise_ps is None:
            return replace(report, promise_ps=None)
        return replace(report, promise_ps=_less(report.promise_ps, less_ps))

    def _take(self, source: int, count: int | None) -> None:
        inbox = self._inbox.get(source)
        while inbox and (count is None or self._taken.get(source, 0) < count):
            parcel = inbox.popleft()
            self._taken[source] = parcel.first + len(parcel.packets)
            self.session.take(parcel)

    def _dawdle(self) -> None:
        self._patience = self._rng.choice(self._slow)


def _less(promise_ps: int, by_ps: int) -> int:
    """A smaller promise. For never, a time that no run reaches, yet far below the greatest representable one."""
    return max(0, min(promise_ps, LATE_PS if by_ps else MAX_PS) - by_ps)


class Parts(NamedTuple):
    """The parts of a run; ``tamper`` may change the hub."""

    session: type[Session] = Session
    tamper: Callable[[Hub, System], None] = lambda _hub, _system: None


class _Run:
    def __init__(self, system: System, parts: Parts) -> None:
        self._rng = random.Random(system.seed + 7)
        self._chop = self._rng.choice((0.0, 0.4, 0.9))
        self._hasty = self._rng.choice((1.0, 0.5, 0.1))
        self.hub = Hub(system.size, system.channels, system.reactions_ps)
        parts.tamper(self.hub, system)
        self._mail = ShuffledInprocMail(system.seed)
        self.clients = [SyncClient(rank, system, self._mail, parts) for rank in range(system.size)]
        self.received: list[Any] = []

    def play(self) -> None:
        for p in self.clients:
            p.send(Join(PROTOCOL, p.rank, len(self.clients), "v", "plan", 1, "here", f"inproc://{p.rank}"))
        for _ in range(MOST_STEPS):
            delivered = self._deliver()
            decided = self._decide(at_once=not delivered)
            acted = [p.turn() for p in self.clients]
            if self.hub.phase is Phase.DONE:
                return
            if not delivered and not decided and not any(acted):
                raise Caught("stall: no message is left and no SIP has an event")
        raise Caught("the run does not come to an end")

    def _deliver(self) -> bool:
        found = self._mail.next()
        if found is None:
            return False
        sender, to, frame = found
        if to != BROKER:
            self.clients[to].deliver(frame)
            return True
        for destination, message in self.hub.take(sender, decode_for_broker(frame)):
            self._forward(destination, message)
        return True

    def _decide(self, at_once: bool) -> bool:
        """The broker decides now, or waits for more reports; whether it sent anything."""
        if at_once or self._rng.random() < self._hasty:
            decided = self.hub.decide()
            for destination, message in decided:
                self._forward(destination, message)
            return bool(decided)
        return False

    def _forward(self, to: int, message: Message) -> None:
        if to == LAUNCHER:
            received = decode_for_launcher(encode(message))
            if isinstance(received, RankFailed):
                raise Caught(f"SIP {received.rank} failed: {received.message}")
            self.received.append(received)
        elif isinstance(message, Grant):
            self._mail.send(BROKER, to, encode(self._chopped(to, message)))
        else:
            self._mail.send(BROKER, to, encode(message))

    def _chopped(self, to: int, grant: Grant) -> Grant:
        start_ps, horizon_ps = self.hub.timesync.next_event_bound_ps(to), grant.horizon_ps
        assert start_ps is not None
        if horizon_ps is not None and horizon_ps <= start_ps:
            raise Caught(f"SIP {to} acts at {start_ps} ps and was granted {horizon_ps} ps: nothing to run")
        colocate = self._rng.random() < 0.5
        if self._rng.random() >= self._chop:
            return replace(grant, colocate=colocate)
        room_ps = 30 if horizon_ps is None else min(30, horizon_ps - start_ps)
        return Grant(start_ps + self._rng.randint(1, room_ps), grant.need, colocate)


def simulate(system: System, parts: Parts = Parts()) -> Outcome:  # noqa: B008 - immutable
    """The traces of one run; checks how the run ends as well.

    Raises:
        Caught: when the run stalls, ends in the wrong way, or breaks an observable rule.
    """
    run = _Run(system, parts)
    usual_bytes = session_module.BATCH_BYTES
    try:
        run.play()
    finally:
        session_module.BATCH_BYTES = usual_bytes
    devices = [p.device for p in run.clients]
    waiting = [d.waiting() for d in devices]
    _check_the_end(run, waiting)
    return Outcome([d.trace for d in devices], waiting)


def _check_the_end(run: _Run, waiting: list[int]) -> None:
    size = len(run.clients)
    deadlocked = any(waiting)
    for p in run.clients:
        if not isinstance(p.ended, DumpRequest if deadlocked else End):
            raise Caught(f"waiting {waiting}, but SIP {p.rank} was sent {p.ended}")
        if p.owes_first_report or p.engine.host_code:
            raise Caught(f"the run ended while SIP {p.rank} was in host code")
    results = {RankResult(rank, b"result of %d" % rank, deadlocked) for rank in range(size)}
    dumps = Deadlock(tuple(b"dump of %d" % rank for rank in range(size)))
    if {t for t in run.received if isinstance(t, RankResult)} != results or (dumps in run.received) != deadlocked:
        raise Caught(f"the launcher received {run.received}")
    totals = run.received[-1]
    if not isinstance(totals, Finished) or totals.grants != sum(p.session.grants for p in run.clients):
        raise Caught(f"the totals {totals} do not add up")
