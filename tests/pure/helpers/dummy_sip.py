"""A SIP without hardware on a clock of its own, and a mail that keeps what is sent."""

from collections.abc import Callable

from broker.ids import BROKER, Channel
from broker.wire import Failed, Join, Message, Start, decode_for_broker, decode_for_sip, encode
from sipsim.core.engine import Engine
from sipsim.core.session import Session
from sipsim.node.client import SyncClient

CHANNELS = [Channel(0, 1, 10, "out"), Channel(1, 0, 10, "in")]
START = Start(("a", "b"))
SEND_NS, RUN_NS = 7, 100
"""Cost on the fake clock of sending a frame, and of an event."""


class Clock:
    """Host time that is advanced by the test only."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000

    def __call__(self) -> int:
        return self.now_ns


class Outbox:
    """A mail that keeps what is sent, at ``SEND_NS`` each."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.connected: tuple[str, ...] = ()
        self.to_broker: list[Message] = []
        self.to_peers: list[tuple[int, Message]] = []

    def connect_peers(self, endpoints: tuple[str, ...]) -> None:
        self.connected = endpoints

    def send(self, to: int, frame: bytes) -> None:
        self.clock.now_ns += SEND_NS
        if to == BROKER:
            self.to_broker.append(decode_for_broker(frame))
        else:
            self.to_peers.append((to, decode_for_sip(frame)))


class Dummy(SyncClient):
    """SIP 0 of ``CHANNELS``: ``program`` is (time, packets sent then); each event costs ``RUN_NS``."""

    def __init__(self, clock: Clock, interrupted: Callable[[], bool] = lambda: False) -> None:
        self.clock, self.mail, self.moves = clock, Outbox(clock), []
        super().__init__(0, self.mail, interrupted, self.moves.append)
        self.engine = Engine()
        self.session = Session(0, self.engine, CHANNELS, self.send_batch)
        self.session.model = self
        self.program: list[tuple[int, int]] = []
        self.received: list[tuple[int, bytes]] = []

    def identity(self) -> Join:
        return Join(2, 0, 2, "1", "d", 1, "h", "e")

    def start_program(self) -> None:
        self.clock.now_ns += RUN_NS
        for time_ps, packets in self.program:
            self.engine.at(time_ps, lambda n=packets: self.act(n))

    def act(self, packets: int) -> None:
        self.clock.now_ns += RUN_NS
        for _ in range(packets):
            self.session.emit(0, self.engine.now_ps + 10, b"x")

    def outcome(self) -> bytes:
        return b"outcome"

    def dump_waiting(self) -> bytes:
        return b"dump"

    def failure(self, error: Exception) -> Failed:
        return Failed("k", repr(error), "", self.engine.now_ps)

    def receive(self, channel: int, body: bytes) -> None:
        self.received.append((channel, body))

    def waiting(self) -> int:
        return 0

    def next_send_bound_ps(self, next_ps: int) -> int:
        return next_ps

    def gets(self, *messages: Message) -> list[Message]:
        """The messages to the broker that these cause."""
        before = len(self.mail.to_broker)
        for message in messages:
            self.handle(encode(message))
        return self.mail.to_broker[before:]
