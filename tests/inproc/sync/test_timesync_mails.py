"""No kind of mail between processes may change a result: random systems over real sockets, in one thread.

The loops are the real ones, ``run_broker`` and ``run_client``, each in a greenlet; where one would block in the kernel,
it switches to another one that is ready, in a seeded order. So a wait that never ends is found at once, and no test
sleeps. Both kinds must give the reference's traces. Varied are the sizes of batches, of packets and of the pieces that
a frame travels in, and actors that run only when no other one can, so that their queues fill.

Not a test of processes or of speed. ``tests/mutants.toml`` has bugs of Unix mail; ZeroMQ's sockets are not ours.

A mail's close gives up after some seconds in production; here it waits for as long as any actor can go on, so that
frames left at the end of a good run are a stall.
"""

import os
import random
import select
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
import pytest
import zmq
from greenlet import GreenletExit, getcurrent, greenlet
from random_systems import Automaton, Outcome, System, first_difference, random_system, reference

from broker import process as broker_process
from broker.ids import BROKER, PROTOCOL
from broker.mail import unix as unix_mail
from broker.mail.kinds import MAIL_KINDS
from broker.mail.zmq import ZmqBroker, ZmqSipMail
from broker.process import run_broker
from broker.wire import (
    BadFrame,
    Deadlock,
    Failed,
    Finished,
    Join,
    RankFailed,
    RankResult,
    StatusRequest,
    decode_for_launcher,
    encode,
)
from sipsim.core import session as session_module
from sipsim.core.engine import Engine
from sipsim.core.session import Session
from sipsim.node import process as sip_process
from sipsim.node.client import SyncClient
from sipsim.node.process import run_client
from sipsim.node.sip_node import SipProcessSpec

SYSTEMS = 40
PATIENCE_MS = {"unix": 0, "zmq": 10_000}
"""A Unix socket delivers at once; ZeroMQ has threads."""


class Caught(AssertionError):
    """A stall, a failed rank or a wrong end of a run."""


NAMED_FAILURES = (Caught, BadFrame)


# --- one thread -----------------------------------------------------------------------------------------------

Sources = list[tuple[Any, int]]


class Stage:
    """Resumes one ready actor at a time; those in ``shy`` only when no other one is ready."""

    def __init__(self, seed: int, patience_ms: int) -> None:
        self._rng = random.Random(seed)
        self._patience_ms = patience_ms
        self._awaits: dict[greenlet, Sources] = {}
        self.shy: set[greenlet] = set()
        self._always = os.pipe()
        self.soon: Sources = [(self._always[1], zmq.POLLOUT)]

    def add(self, play: Callable[[], Any], shy: bool = False) -> None:
        """Add an actor; it runs at once until its first wait."""
        actor = greenlet(play)
        self._awaits[actor] = []
        if shy:
            self.shy.add(actor)
        self._continue(actor)

    def pause(self, sources: Sources) -> None:
        """Called by an actor: wait until one of ``sources`` is ready and its turn comes."""
        actor = getcurrent()
        self._awaits[actor] = sources
        actor.parent.switch()

    def turn(self) -> None:
        """Called by an actor: sometimes switch to others, which make room meanwhile."""
        if getcurrent() in self._awaits and self._rng.random() < 0.2:
            self.pause(self.soon)

    def play(self) -> None:
        """Until every actor has ended."""
        while self._awaits:
            ready = [actor for actor, sources in self._awaits.items() if zmq.zmq_poll(sources, 0)]
            bold = [actor for actor in ready if actor not in self.shy]
            if ready:
                self._continue(self._rng.choice(bold or ready))
            elif not zmq.zmq_poll([source for all_of in self._awaits.values() for source in all_of], self._patience_ms):
                raise Caught(f"stall: {len(self._awaits)} wait for frames that are never sent")

    def clear(self) -> None:
        """End the actors that have not ended."""
        for actor in list(self._awaits):
            actor.throw(GreenletExit)
        for end in self._always:
            os.close(end)

    def _continue(self, actor: greenlet) -> None:
        actor.switch()
        if actor.dead:
            del self._awaits[actor]


class _Select:
    """The part of the module ``select`` that ``broker.mail.unix`` uses; waits are pauses."""

    POLLIN, POLLOUT = select.POLLIN, select.POLLOUT

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def poll(self) -> "_Poll":
        return _Poll(self._stage)


class _Poll:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._real = select.poll()
        self._sources: dict[int, tuple[int, int]] = {}

    def register(self, end: Any, events: int) -> None:
        self._real.register(end, events)
        self._sources[end.fileno()] = end.fileno(), zmq.POLLIN if events == select.POLLIN else zmq.POLLOUT

    def unregister(self, end: Any) -> None:
        self._real.unregister(end)
        del self._sources[end.fileno()]

    def poll(self, _timeout_ms: float | None = None) -> list[tuple[int, int]]:
        self._stage.pause(list(self._sources.values()))
        return self._real.poll(0)


def _pause_before(
    patch: pytest.MonkeyPatch, kind: type, method: str, stage: Stage, sources: Callable[..., Sources]
) -> None:
    real = getattr(kind, method)

    def waiting(self: Any, *args: Any, **options: Any) -> Any:
        awaited = sources(self, *args)
        if awaited:
            stage.pause(awaited)
        return real(self, *args, **options)

    patch.setattr(kind, method, waiting)


def _no_real_waits(patch: pytest.MonkeyPatch, stage: Stage) -> None:
    """Pause wherever the mails would wait in the kernel."""
    patch.setattr(unix_mail, "select", _Select(stage))
    _pause_before(patch, unix_mail._End, "send", stage, lambda *_: stage.turn() or [])
    in_piece = unix_mail._Receiver, "_piece"
    _pause_before(patch, *in_piece, stage, lambda receiver, flags: [] if flags else [(receiver, zmq.POLLIN)])
    control = lambda mail: (mail._broker.socket, zmq.POLLIN)  # noqa: E731
    data = lambda mail: (mail._server.socket, zmq.POLLIN)  # noqa: E731
    _pause_before(patch, ZmqSipMail, "recv_control", stage, lambda mail: [control(mail)])
    _pause_before(patch, ZmqSipMail, "recv_data", stage, lambda mail: [data(mail), control(mail)])
    _pause_before(patch, ZmqBroker, "receive", stage, lambda mail: [data(mail)])


# --- a run ----------------------------------------------------------------------------------------------------


class Weather(NamedTuple):
    """Conditions that must not matter. ``padding``: useless bytes in every packet and in the outcome of every SIP."""

    piece_bytes: int
    parcel_bytes: int
    padding: int
    looks: int
    shy: tuple[int, ...]


def random_weather(system: System) -> Weather:
    """Long frames, or short pieces; shy actors, perhaps the broker."""
    rng = random.Random(system.seed)
    piece_bytes, padding = rng.choice(((unix_mail.PIECE_BYTES, 0), (5, 0), (40, 100), (unix_mail.PIECE_BYTES, 150_000)))
    shy = rng.sample(range(BROKER, system.size), rng.choice((0, 1, 1, 2)))
    return Weather(piece_bytes, rng.choice((1, 60, 2**16)), padding, rng.choice((1, 3, 4096)), tuple(shy))


class Player(SyncClient):
    """The real sync client, with an automaton to simulate. It is its session's model and its device's world."""

    def __init__(self, rank: int, system: System, padding: int, endpoint: str, *ends: Any) -> None:
        super().__init__(rank, *ends)
        self._endpoint = endpoint
        self.engine = Engine()
        reaction_ps = system.habits[rank].reaction_ps
        reactions = system.reactions_ps
        self.session = Session(rank, self.engine, system.channels, self.send_batch, reaction_ps, reactions)
        self.session.model = self
        self.at = self.engine.at
        self._padding = bytes(padding)
        self._size = system.size
        self.device = Automaton(rank, system, self)

    def identity(self) -> Join:
        return Join(PROTOCOL, self.rank, self._size, "v", "plan", 1, "here", self._endpoint)

    def start_program(self) -> None:
        self.device.begin()

    def outcome(self) -> bytes:
        return msgspec.msgpack.encode((self.device.trace, self.device.waiting(), self._padding))

    def dump_waiting(self) -> bytes:
        return b"dump of %d" % self.rank + self._padding

    def failure(self, error: Exception) -> Failed:
        return Failed("internal", f"{type(error).__name__}: {error}", "", self.engine.now_ps)

    def receive(self, channel: int, body: bytes) -> None:
        self.device.receive(channel, body[:2])

    def waiting(self) -> int:
        return self.device.waiting()

    def next_send_bound_ps(self, _next_ps: int) -> int:
        return self.device.next_send_bound_ps()

    def now_ps(self) -> int:
        return self.engine.now_ps

    def emit(self, channel: int, arrival_ps: int, body: bytes) -> None:
        self.session.emit(channel, arrival_ps, body + self._padding)

    def emit_far(self, dst: int, arrival_ps: int, body: bytes) -> None:
        self.session.emit_far(dst, arrival_ps, body + self._padding)

    def host(self, action: Callable[[], None]) -> None:
        action()


class _NoAffinity:
    """Leaves the processors of this process alone."""

    def __init__(self, _shared_cpu: int, preempts: bool = False) -> None:
        pass

    def colocate(self, _together: bool) -> None:
        pass


class _Run:
    """One run of a system over one kind of mail; ``received``: the messages at the launcher's end."""

    def __init__(self, system: System, kind: str, weather: Weather, folder: str) -> None:
        self.system = system
        self.weather = weather
        self.kind = MAIL_KINDS[kind]
        self.stage = Stage(system.seed, PATIENCE_MS[kind])
        self.received: list[Any] = []
        self._broker = self.kind.local(f"{folder}/broker")
        self._sips = [self.kind.local(f"{folder}/sip-{rank}") for rank in range(system.size)]
        self._mails: list[Any] = []

    def play(self) -> Outcome:
        size, shy = self.system.size, self.weather.shy
        channels, reactions_ps = self.system.channels, self.system.reactions_ps
        self.stage.add(lambda: run_broker(self._broker, size, channels, reactions_ps), BROKER in shy)
        self.stage.add(self._launcher)
        for rank in range(size):
            self.stage.add(lambda r=rank: self._sip(r), rank in shy)
        self.stage.play()
        return self._outcome()

    def kind_that_remembers(self, _endpoint: str) -> Any:
        """In place of ``mail_for``: records what is opened, so that it is closed in any case."""
        return self.kind._replace(
            sip=lambda *args: self._remember(self.kind.sip(*args)),
            broker=lambda *args: self._remember(self.kind.broker(*args)),
        )

    def close(self) -> None:
        """Release everything, in any state."""
        self.stage.clear()
        for mail in self._mails:
            if hasattr(mail, "_sockets"):
                mail._sockets.close(0)
                continue
            for receiver in ("_receiver", "_data"):
                if hasattr(mail, receiver):
                    getattr(mail, receiver).close()
            mail._close_senders(0.0)

    def _remember(self, mail: Any) -> Any:
        self._mails.append(mail)
        return mail

    def _sip(self, rank: int) -> None:
        system, padding, endpoint = self.system, self.weather.padding, self._sips[rank]
        spec = SipProcessSpec(rank=rank, broker=self._broker, endpoint=endpoint, shared_cpu_seed=0)
        run_client(spec, lambda *ends: Player(rank, system, padding, endpoint, *ends))

    def _launcher(self) -> None:
        mail: Any = self._remember(self.kind.launcher(self._broker))
        mail.send(BROKER, encode(StatusRequest()))
        while not any(isinstance(message, Finished) for message in self.received):
            self.stage.pause(self.stage.soon if mail.unsent else [(mail.pollable, zmq.POLLIN)])
            self.received += map(decode_for_launcher, mail.receive_waiting())
        mail.close()

    def _outcome(self) -> Outcome:
        for message in self.received:
            if isinstance(message, RankFailed):
                raise Caught(f"SIP {message.rank} failed: {message.message}")
        blobs = {m.rank: msgspec.msgpack.decode(m.blob) for m in self.received if isinstance(m, RankResult)}
        traces = [[tuple(event) for event in blobs[rank][0]] for rank in range(self.system.size)]
        waiting = [blobs[rank][1] for rank in range(self.system.size)]
        if any(waiting) != any(isinstance(message, Deadlock) for message in self.received):
            raise Caught(f"waiting {waiting}, and the launcher received {self.received}")
        return Outcome(traces, waiting)


@contextmanager
def _patched(run: _Run) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        _no_real_waits(patch, run.stage)
        patch.setattr(unix_mail, "PIECE_BYTES", run.weather.piece_bytes)
        patch.setattr(session_module, "BATCH_BYTES", run.weather.parcel_bytes)
        patch.setattr(session_module, "EVENTS_BETWEEN_POLLS", run.weather.looks)
        for process in (broker_process, sip_process):
            patch.setattr(process, "mail_for", run.kind_that_remembers)
            patch.setattr(process, "CpuAffinity", _NoAffinity)
        yield


def through_sockets(system: System, kind: str) -> Outcome:
    """The traces and waiting kernels of one run.

    Raises:
        Caught: when the run stalls or ends in the wrong way.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = _Run(system, kind, random_weather(system), folder)
        with _patched(run):
            try:
                return run.play()
            finally:
                run.close()


# --- tests ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MAIL_KINDS)
def test_real_sockets_equal_the_reference(kind: str) -> None:
    for seed in range(SYSTEMS):
        system = random_system(seed)
        try:
            difference = first_difference(through_sockets(system, kind), reference(system))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        assert difference is None, f"seed {seed}: {difference}"


def test_queues_fill_and_frames_travel_in_pieces() -> None:
    """The systems reach both cases, to the broker and from it: no room at a receiver, and frames in pieces."""
    counts = {"no room for data": 0, "no room for a report": 0, "in pieces": 0}
    flush, send = unix_mail._Sender.flush, unix_mail._Sender.send

    def counting_flush(sender: unix_mail._Sender) -> bool:
        sent = flush(sender)
        to_broker = sender._socket.getpeername().endswith("/broker") if not sent else False
        counts["no room for a report" if to_broker else "no room for data"] += not sent
        return sent

    def counting_send(sender: unix_mail._Sender, frame: bytes) -> bool:
        counts["in pieces"] += len(frame) > unix_mail.PIECE_BYTES
        return send(sender, frame)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unix_mail._Sender, "flush", counting_flush)
        patch.setattr(unix_mail._Sender, "send", counting_send)
        for seed in range(SYSTEMS):
            through_sockets(random_system(seed), "unix")
    assert min(counts.values()) > SYSTEMS, counts
