"""A SIP as a member of conservative time: grants and packets in, reports and packets out. No sockets, no hardware.

The rules are those of DESIGN section 4. A packet is *taken* when it comes off its channel, *held* until
the run that covers its arrival, and *injected* just before that run, all that arrive before the horizon
at once and in canonical order. So neither the timing of the mail nor the size of grants can be seen in
the result.
"""

import heapq
from collections.abc import Callable
from typing import Protocol

from broker.streams import InStreams, OutStreams
from broker.wire import Channel, Grant, Packet, Report
from sipsim.engine import ARRIVAL, Engine
from sipsim.errors import InvariantViolation

Ps = int
EVENTS_BETWEEN_LOOKS = 4096


class Model(Protocol):
    """What a session simulates: it receives packets and says how many of its kernels and scripts wait."""

    def receive(self, channel: int, body: bytes) -> None:
        """A packet's last byte arrives on ``channel``, now."""

    def waiting(self) -> int:
        """Kernels and scripts that wait for something."""


class Session:
    """One SIP's side of the synchronisation. Between ``grant`` and the report that ``advance`` returns, it runs."""

    def __init__(self, rank: int, engine: Engine, channels: list[Channel], post: Callable[[int, Packet], None]) -> None:
        self.rank = rank
        self.engine = engine
        self._channels = channels
        self._post = post
        self._out = OutStreams()
        self._in = InStreams()
        self._held: list[tuple[Ps, int, int, int, bytes]] = []
        self._grant: Grant | None = None
        self._reached_ps: Ps = 0
        self.model: Model | None = None
        self.grants = 0

    @property
    def packets_sent(self) -> int:
        return sum(self._out.counts.values())

    @property
    def packets_taken(self) -> int:
        return sum(self._in.counts.values())

    def emit(self, channel: int, arrival_ps: Ps, body: bytes) -> None:
        """Send a packet whose last byte arrives at ``arrival_ps``; it leaves at once.

        Raises:
            InvariantViolation: when it would arrive sooner than the channel's lookahead allows.
        """
        spec = self._channels[channel]
        if spec.src != self.rank or arrival_ps < self.engine.now_ps + spec.delay_ps:
            raise InvariantViolation(
                f"a packet on channel {spec.name} at {self.engine.now_ps} ps would arrive at {arrival_ps} ps, "
                f"within its lookahead of {spec.delay_ps} ps"
            )
        seq = self._out.number(spec.dst, arrival_ps)
        self._post(spec.dst, Packet(self.rank, channel, seq, arrival_ps, body))

    def take(self, packet: Packet) -> None:
        """A packet came off its channel. Duplicates are dropped; a gap raises ``LostPacket``."""
        if self._in.accept(packet.src, packet.seq):
            heapq.heappush(self._held, (packet.arrival_ps, packet.src, packet.channel, packet.seq, packet.body))

    def grant(self, grant: Grant) -> None:
        """The broker lets this SIP run."""
        self._grant = grant
        self.grants += 1

    def is_ready(self) -> bool:
        """Whether there is a grant and every packet that it counts on has been taken."""
        if self._grant is None:
            return False
        counts = self._in.counts
        return all(counts.get(source, 0) >= count for source, count in self._grant.need)

    def begin(self) -> None:
        """Inject what arrives before the horizon. Call once when ready, then :meth:`advance` until it reports."""
        assert self._grant is not None
        horizon = self._grant.horizon_ps
        model, engine, held = self.model, self.engine, self._held
        assert model is not None
        while held and (horizon is None or held[0][0] < horizon):
            arrival_ps, src, channel, _seq, body = heapq.heappop(held)
            if arrival_ps < self._reached_ps:
                raise InvariantViolation(
                    f"a packet from SIP {src} for {arrival_ps} ps came "
                    f"when SIP {self.rank} had reached {self._reached_ps} ps"
                )
            engine.at(arrival_ps, lambda c=channel, b=body: model.receive(c, b), ARRIVAL)  # type: ignore[misc]

    def advance(self) -> Report | None:
        """Run some events of the granted window; the report once its horizon is reached, else None."""
        assert self._grant is not None
        horizon_ps = self._grant.horizon_ps
        if not self.engine.run_before(horizon_ps, EVENTS_BETWEEN_LOOKS):
            return None
        self._reached_ps = max(self._reached_ps, self.engine.now_ps + 1 if horizon_ps is None else horizon_ps)
        self._grant = None
        return self.report()

    def report(self) -> Report:
        """What the broker must know now. News are told once."""
        assert self.model is not None
        return Report(
            now_ps=self.engine.now_ps,
            next_ps=self.engine.next_ps(),
            held_ps=self._held[0][0] if self._held else None,
            sent=tuple((n.dst, n.packets, n.least_arrival_ps) for n in self._out.news()),
            taken=self._in.news(),
            waiting=self.model.waiting(),
        )
