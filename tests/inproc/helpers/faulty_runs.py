"""A whole system in one process under faults: hub, clients and packet logs are real, mail and launcher the test's.

Messages arrive in any order that keeps each pair's own, some twice. Processes are killed between messages and within a
window, alone or a whole host with its logs, before they have joined and after they have answered; others stop for a
while; the last record of a log may be half written, or a bit of any record flipped. The launcher notices an exit late,
and its ``Restart`` may arrive after the new process's ``Join``. Everything may be killed at once and resumed. Not a
test.
"""

import random
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from random_systems import Automaton, Outcome, System

from broker.hub import Hub, Phase
from broker.ids import BROKER, LAUNCHER, PROTOCOL, address_of, split_address
from broker.mail.inproc import Sent, ShuffledInprocMail
from broker.wire import (
    Deadlock,
    Failed,
    Join,
    Message,
    RankFailed,
    RankResult,
    Restart,
    decode_for_broker,
    decode_for_launcher,
    encode,
)
from sipsim.core import session as session_module
from sipsim.core.engine import Engine
from sipsim.core.errors import Halt
from sipsim.core.session import Session
from sipsim.node.client import SyncClient
from sipsim.node.packet_log import PacketLog

MOST_STEPS = 60_000
DEADLOCK = Outcome([], [1])


class Caught(AssertionError):
    """A stall, a failed rank or a run without an end."""


class Killed(Halt):
    """The process was killed within a window."""


class Faults(NamedTuple):
    """The faults of one run. Chances are per step or message; ``kills`` is the greatest number of killed processes."""

    seed: int
    kills: int
    often: float
    mid_window: float
    host: float
    resume: float
    twice: float
    torn: float
    still: float
    keep_logs: bool
    looks: int
    parcel_bytes: int


def random_faults(seed: int) -> Faults:
    """From no fault to many."""
    rng = random.Random(seed * 31 + 1)
    return Faults(
        seed,
        kills=rng.choice((0, 1, 2, 3, 6, 10)),
        often=rng.choice((0.003, 0.01, 0.05, 0.3)),
        mid_window=rng.choice((0.0, 0.02, 0.2)),
        host=rng.choice((0.0, 0.5, 0.8)),
        resume=rng.choice((0.0, 0.0, 0.01)),
        twice=rng.choice((0.0, 0.1, 0.5)),
        torn=rng.choice((0.0, 0.5, 1.0)),
        still=rng.choice((0.0, 0.02)),
        keep_logs=rng.random() < 0.4,
        looks=rng.choice((1, 3, 4096)),
        parcel_bytes=rng.choice((1, 60, 2**16)),
    )


class FaultyMail(ShuffledInprocMail):
    """Mail to processes that run, have exited or are stopped; batches may arrive twice."""

    def __init__(self, seed: int, twice: float) -> None:
        super().__init__(seed)
        self.alive: set[int] = set()
        self.stopped: set[int] = set()
        self._twice = twice

    def send(self, sender: int, to: int, frame: bytes) -> None:
        if to < 0 or to in self.alive:
            super().send(sender, to, frame)
            if sender >= 0 and to >= 0 and self._random.random() < self._twice:
                super().send(sender, to, frame)

    def died(self, address: int) -> None:
        """Nothing reaches it any more; its last frames may never have left its process."""
        self.alive.discard(address)
        for (sender, to), queue in self._pairs.items():
            if to == address:
                queue.clear()
            elif sender == address:
                left = self._random.randint(0, len(queue))
                while len(queue) > left:
                    queue.pop()

    def next(self) -> Sent | None:
        waiting = [pair for pair, queue in self._pairs.items() if queue and pair[1] not in self.stopped]
        if not waiting:
            return None
        pair = self._random.choice(waiting)
        return *pair, self._pairs[pair].popleft()


class FaultyEndpoint:
    """The mail of one process; a peer's endpoint holds the address of its present incarnation."""

    def __init__(self, mail: FaultyMail, sender: int) -> None:
        self._mail = mail
        self._sender = sender
        self._peers: list[str] = []

    def connect_peers(self, endpoints: tuple[str, ...]) -> None:
        self._peers = list(endpoints)

    def reconnect_peer(self, rank: int, incarnation: int, endpoint: str) -> None:
        assert endpoint == f"at {address_of(rank, incarnation)}"
        self._peers[rank] = endpoint

    def send(self, to: int, frame: bytes) -> None:
        address = to if to == BROKER else int(self._peers[to].removeprefix("at "))
        self._mail.send(self._sender, address, frame)


class Player(SyncClient):
    """The real sync client, with an automaton to simulate. It is its session's model and its device's world."""

    def __init__(self, address: int, system: System, run: "FaultyRun") -> None:
        rank, self._incarnation = split_address(address)
        super().__init__(rank, FaultyEndpoint(run.mail, address), run.looked)
        self.address = address
        self._size = system.size
        self.engine = Engine()
        reaction_ps = system.habits[rank].reaction_ps
        reactions = system.reactions_ps
        self.session = Session(rank, self.engine, system.channels, self.send_batch, reaction_ps, reactions)
        self.session.model = self
        self.at = self.engine.at
        self.emit = self.session.emit
        self.emit_far = self.session.emit_far
        self.device = Automaton(rank, system, self)
        self.log = PacketLog(str(run.folder), rank, "plan")

    def identity(self) -> Join:
        return Join(PROTOCOL, self.rank, self._size, "v", "plan", 1, "here", f"at {self.address}", self._incarnation)

    def start_program(self) -> None:
        self.device.begin()

    def outcome(self) -> bytes:
        return msgspec.msgpack.encode((self.device.trace, self.device.waiting()))

    def dump_waiting(self) -> bytes:
        return b"dump of %d" % self.rank

    def failure(self, error: Exception) -> Failed:
        return Failed("internal", f"{type(error).__name__}: {error}", "", self.engine.now_ps)

    def receive(self, channel: int, body: bytes) -> None:
        self.device.receive(channel, body)

    def waiting(self) -> int:
        return self.device.waiting()

    def next_send_bound_ps(self, _next_ps: int) -> int:
        return self.device.next_send_bound_ps()

    def now_ps(self) -> int:
        return self.engine.now_ps

    def host(self, action: Any) -> None:
        action()


class FaultyRun:
    """One run. ``received``: the messages at the launcher; ``restarts`` and ``resumes``: how many there were."""

    def __init__(self, system: System, faults: Faults, folder: Path) -> None:
        self._system = system
        self._faults = faults
        self.folder = folder
        self._rng = random.Random(faults.seed * 17 + 3)
        self._kills = faults.kills
        self.restarts = self.resumes = 0
        self._begin()

    def _begin(self) -> None:
        """Start everything; the logs are kept."""
        system = self._system
        self.mail = FaultyMail(self._rng.randrange(2**32), self._faults.twice)
        self.hub = Hub(system.size, system.channels, system.reactions_ps)
        self.received: list[Message] = []
        self.players: dict[int, Player] = {}
        self._incarnations = [0] * system.size
        self._exited: deque[tuple[int, int]] = deque()
        for rank in range(system.size):
            self._start(rank)

    def play(self) -> None:
        """To the end.

        Raises:
            Caught: for a stall, a failed rank, or a run without an end.
        """
        for _ in range(MOST_STEPS):
            self._inject_faults()
            moved = self._deliver()
            out = self.hub.decide() if not moved or self._rng.random() < 0.5 else []
            self._forward(out)
            if self.hub.phase is Phase.DONE and not self._exited and all(p.done for p in self.players.values()):
                return
            if not moved and not out and not self._restart_next():
                raise Caught(f"stall: no message is left; the run is {self.hub.phase.value}")
        raise Caught("the run does not come to an end")

    def looked(self) -> bool:
        """Called by a client within its window."""
        if self._kills and self._rng.random() < self._faults.mid_window:
            raise Killed
        return False

    # Faults.

    def _inject_faults(self) -> None:
        rng, faults = self._rng, self._faults
        self.mail.stopped = {a for a in self.mail.stopped if rng.random() < 0.9}
        if self.players and rng.random() < faults.still:
            self.mail.stopped.add(rng.choice(list(self.players.values())).address)
        if self._kills and self.players and self.hub.phase is not Phase.DONE and rng.random() < faults.often:
            if rng.random() < faults.resume * 10:
                self._resume()
                return
            ranks = sorted(self.players)
            many = rng.random() < faults.host
            victims = rng.sample(ranks, rng.randint(1, len(ranks))) if many else [rng.choice(ranks)]
            for rank in victims:
                self._kill(rank, with_log=many)

    def _kill(self, rank: int, with_log: bool = False) -> None:
        self._kills = max(self._kills - 1, 0)
        player = self.players.pop(rank)
        self.mail.died(player.address)
        self._lose_log(player, with_log)
        self._incarnations[rank] += 1
        self.restarts += 1
        self._exited.append((rank, self._incarnations[rank]))

    def _lose_log(self, player: Player, entirely: bool) -> None:
        log: Any = player.log
        log._unwritten.clear()
        log._mark_ps = None
        log.close()
        if entirely and not self._faults.keep_logs:
            log._path.unlink()
        elif self._rng.random() < self._faults.torn:
            data = log._path.read_bytes()
            header = len(log._header)
            if self._rng.random() < 0.5 or len(data) <= header:
                log._path.write_bytes(data[: len(data) - self._rng.randint(0, min(len(data), 60))])
            else:
                at = self._rng.randrange(header, len(data))
                log._path.write_bytes(data[:at] + bytes([data[at] ^ 1 << self._rng.randrange(8)]) + data[at + 1 :])

    def _resume(self) -> None:
        """Launcher, broker and all SIPs are killed; a new launcher finds the logs."""
        for player in self.players.values():
            self._lose_log(player, entirely=False)
        self._kills = max(self._kills - 1, 0)
        self.resumes += 1
        self._begin()

    def _restart_next(self) -> bool:
        """The launcher notices an exit, sends ``Restart`` and starts a process, whose ``Join`` may arrive first."""
        if not self._exited:
            return bool(self.mail.stopped)
        rank, incarnation = self._exited.popleft()
        self.mail.send(LAUNCHER, BROKER, encode(Restart(rank, incarnation)))
        self._start(rank)
        return True

    def _start(self, rank: int) -> None:
        address = address_of(rank, self._incarnations[rank])
        self.mail.alive.add(address)
        player = self.players[rank] = Player(address, self._system, self)
        player.join()

    # Mail.

    def _deliver(self) -> bool:
        if self._exited and self._rng.random() < 0.2:
            return self._restart_next()
        found = self.mail.next()
        if found is None:
            return False
        sender, to, frame = found
        if to == BROKER:
            self._forward(self.hub.take(sender, decode_for_broker(frame)))
            return True
        player = self.players.get(split_address(to)[0])
        if player is not None and player.address == to:
            try:
                player.handle(frame)
            except Killed:
                self._kill(player.rank)
        return True

    def _forward(self, out: list[tuple[int, Message]]) -> None:
        for to, message in out:
            if to != LAUNCHER:
                self.mail.send(BROKER, to, encode(message))
                continue
            received = decode_for_launcher(encode(message))
            if isinstance(received, RankFailed):
                raise Caught(f"SIP {received.rank} failed: {received.message}")
            self.received.append(received)


def play(system: System, faults: Faults, folder: Path) -> tuple[Outcome, FaultyRun]:
    """The outcome of a system under faults.

    Raises:
        Caught: when the run stalls, fails, or ends in the wrong way.
    """
    usual = session_module.EVENTS_BETWEEN_POLLS, session_module.BATCH_BYTES
    session_module.EVENTS_BETWEEN_POLLS, session_module.BATCH_BYTES = faults.looks, faults.parcel_bytes
    run = FaultyRun(system, faults, folder)
    try:
        run.play()
    finally:
        session_module.EVENTS_BETWEEN_POLLS, session_module.BATCH_BYTES = usual
        for player in run.players.values():
            assert player.log is not None
            player.log.close()
    return _outcome(system, run), run


def _outcome(system: System, run: FaultyRun) -> Outcome:
    """A deadlock is final; SIPs that are killed after it need not answer."""
    if any(isinstance(message, Deadlock) for message in run.received):
        return DEADLOCK
    sent = [message for message in run.received if isinstance(message, RankResult)]
    if {message.rank for message in sent} != set(range(system.size)) or any(message.partial for message in sent):
        raise Caught(f"the launcher received {run.received[-3:]}")
    results: dict[int, Any] = {message.rank: msgspec.msgpack.decode(message.blob) for message in sent}
    traces = [[tuple(entry) for entry in results[rank][0]] for rank in range(system.size)]
    return Outcome(traces, [results[rank][1] for rank in range(system.size)])
