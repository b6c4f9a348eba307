"""A SIP as a member of conservative time: grants and packets in, reports and packets out. No sockets, no hardware.

The rules are those of DESIGN section 4. A packet is *taken* when it comes off its channel, *held* until
the run that covers its arrival, and *injected* just before that run, all that arrive before the horizon
at once and in canonical order. So neither the timing of the mail nor the size of grants can be seen in
the result.

What a window sends to one peer leaves as one parcel, before the report that counts it: nobody may run to its
arrival before that report, so an earlier parcel would only be another frame. A parcel that has grown large leaves
at once and overlaps with the simulation.
"""

import heapq
from collections.abc import Callable
from typing import Protocol

from broker.ids import MAX_PS, Channel, pair_delays_ps
from broker.mail.streams import InStreams, OutStreams
from broker.wire import Grant, PacketBatch, Report
from sipsim.engine import ARRIVAL, Engine
from sipsim.errors import InvariantViolation
from sipsim.recovery.replay_checker import ReplayChecker

Ps = int
EVENTS_BETWEEN_LOOKS = 4096
PARCEL_BYTES = 64 * 1024
PACKET_OVERHEAD_BYTES = 16


class Model(Protocol):
    """What a session simulates: it receives packets and says how many of its kernels and scripts wait."""

    def receive(self, channel: int, body: bytes) -> None:
        """A packet's last byte arrives on ``channel``, now."""

    def waiting(self) -> int:
        """Kernels and scripts that wait for something."""

    def next_send_bound_ps(self, next_ps: Ps) -> Ps:
        """By local events alone, the first of which is at ``next_ps``: a bound on what is sent (``Report.promise_ps``).

        Sent at ``t`` means: arrives ``t`` plus the least delay of the pair's channels later, or after that.
        """


class _Outgoing:
    """A parcel to one peer that has not left yet."""

    __slots__ = ("first", "nbytes", "packets")

    def __init__(self, first: int) -> None:
        self.first = first
        self.nbytes = 0
        self.packets: list[tuple[int, Ps, bytes]] = []


class Session:
    """One SIP's side of the synchronisation. Between ``grant`` and the report that ``advance`` returns, it runs.

    ``reaction_ps``: from an arrival to a sending that it causes, at least so long; see ``broker.sync.timesync``.
    ``costs`` tells the host time of a window, running and sending, for its report. A SIP that may have to be brought
    back calls :meth:`remember` before anything else.
    """

    def __init__(
        self,
        rank: int,
        engine: Engine,
        channels: list[Channel],
        post: Callable[[int, PacketBatch], None],
        reaction_ps: Ps = 0,
    ) -> None:
        self.rank = rank
        self.engine = engine
        self._channels = channels
        self._ways_from: dict[int, set[int]] = {}
        for number, (src, dst, _, _) in enumerate(channels):
            if dst == rank:
                self._ways_from.setdefault(src, set()).add(number)
        self._pair_delay_ps = {dst: delay for (src, dst), delay in pair_delays_ps(channels).items() if src == rank}
        self._post = post
        self._out = OutStreams()
        self._outgoing: dict[int, _Outgoing] = {}
        self._memory: ReplayChecker | None = None
        self._in = InStreams()
        self._held: list[tuple[Ps, int, int, int, bytes]] = []
        self._grant: Grant | None = None
        self._reached_ps: Ps = 0
        self._reaction_ps = reaction_ps
        self._promise_ps: Ps = 0
        self._sends_ps: Ps = 0
        self.model: Model | None = None
        self.costs: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self.grants = 0

    def remember(self, logged: dict[int, list[bytes]]) -> None:
        """From now on compare what comes or is made again. ``logged``: fingerprints of what predecessors sent."""
        self._memory = ReplayChecker(self.rank, logged)
        self._out = OutStreams({dst: len(packets) for dst, packets in logged.items()})

    @property
    def reached_ps(self) -> Ps:
        """Everything that this SIP sends before this time it has sent."""
        return self._reached_ps

    @property
    def packets_sent(self) -> int:
        return sum(self._out.counts.values())

    @property
    def packets_taken(self) -> int:
        return sum(self._in.counts.values())

    def emit(self, channel: int, arrival_ps: Ps, body: bytes) -> None:
        """Send a packet whose last byte arrives at ``arrival_ps``.

        Raises:
            InvariantViolation: when it would arrive sooner than the channel's lookahead or a promise allows.
        """
        spec = self._channels[channel]
        src, dst, delay_ps, _ = spec
        if src != self.rank or arrival_ps < self.engine.now_ps + delay_ps:
            raise InvariantViolation(
                f"a packet on channel {spec.name} at {self.engine.now_ps} ps would arrive at {arrival_ps} ps, "
                f"within its lookahead of {spec.delay_ps} ps"
            )
        if arrival_ps < self._sends_ps + self._pair_delay_ps[dst]:
            raise InvariantViolation(
                f"a packet on channel {spec.name} at {self.engine.now_ps} ps would arrive at {arrival_ps} ps, "
                f"but SIP {self.rank} let the broker count on sending nothing before {self._sends_ps} ps"
            )
        seq = self._out.number(dst, arrival_ps)
        if self._memory is not None and self._memory.has_sent(dst, seq, (channel, arrival_ps, body)):
            return
        outgoing = self._outgoing.get(dst)
        if outgoing is None:
            outgoing = self._outgoing[dst] = _Outgoing(seq)
        outgoing.packets.append((channel, arrival_ps, body))
        outgoing.nbytes += len(body) + PACKET_OVERHEAD_BYTES
        if outgoing.nbytes >= PARCEL_BYTES:
            self._post_parcel(dst)

    def take(self, parcel: PacketBatch) -> None:
        """Packets came off their channels. Duplicates are dropped; a gap raises ``LostPacket``."""
        src, packets = parcel.src, parcel.packets
        known = self._in.accept(src, parcel.first, len(packets))
        if self._memory is not None:
            self._memory.note_taken(src, parcel.first, packets)
        ways = self._ways_from.get(src, ())
        for index, (channel, arrival_ps, body) in enumerate(packets):
            if channel not in ways:
                what = f"a packet from SIP {src} on channel {channel}"
                raise InvariantViolation(f"{what}, which does not lead from there to SIP {self.rank}")
            if index >= known:
                heapq.heappush(self._held, (arrival_ps, src, channel, parcel.first + index, body))

    def grant(self, grant: Grant) -> None:
        """The broker lets this SIP run."""
        self._grant = grant
        self.grants += 1

    def withdraw(self) -> Report:
        """Give the grant back without having run."""
        self._grant = None
        return self.report()

    @property
    def is_granted(self) -> bool:
        """Whether there is a grant that has not been run."""
        return self._grant is not None

    def is_ready(self) -> bool:
        """Whether there is a grant and every packet that it counts on has been taken."""
        if self._grant is None:
            return False
        counts = self._in.counts
        for source, count in self._grant.need:  # noqa: SIM110 - a generator would cost more than all the rest
            if counts.get(source, 0) < count:
                return False
        return True

    def begin(self) -> None:
        """Inject what arrives before the horizon. Call once when ready, then :meth:`advance` until it reports."""
        assert self._grant is not None
        horizon = self._grant.horizon_ps
        model, engine, held = self.model, self.engine, self._held
        assert model is not None
        self._sends_ps = self._promise_ps
        reached_ps = max(self._reached_ps, engine.now_ps)
        if held and (horizon is None or held[0][0] < horizon):
            self._sends_ps = min(self._promise_ps, held[0][0] + self._reaction_ps)
        while held and (horizon is None or held[0][0] < horizon):
            arrival_ps, src, channel, _seq, body = heapq.heappop(held)
            if arrival_ps < reached_ps:
                raise InvariantViolation(
                    f"a packet from SIP {src} for {arrival_ps} ps came when SIP {self.rank} had reached {reached_ps} ps"
                )
            engine.at(arrival_ps, lambda c=channel, b=body: model.receive(c, b), ARRIVAL)  # type: ignore[misc]

    def advance(self, shorter: int = 1) -> Report | None:
        """Run some events of the granted window; the report once its horizon is reached, else None.

        ``shorter``: by which factor less than usual, where events are slow and somebody wants to look in between.
        """
        assert self._grant is not None
        horizon_ps = self._grant.horizon_ps
        if not self.engine.run_before(horizon_ps, max(EVENTS_BETWEEN_LOOKS // shorter, 1)):
            return None
        self._reached_ps = max(self._reached_ps, self.engine.now_ps + 1 if horizon_ps is None else horizon_ps)
        self._grant = None
        return self.report()

    def report(self) -> Report:
        """Send what is still here, and say what the broker must know now. News are told once."""
        model = self.model
        assert model is not None
        for dst in list(self._outgoing):
            self._post_parcel(dst)
        next_ps = self.engine.next_ps()
        self._promise_ps = MAX_PS if next_ps is None else model.next_send_bound_ps(next_ps)
        return Report(
            self.engine.now_ps,
            next_ps,
            self._held[0][0] if self._held else None,
            self._out.news(),
            self._in.news(),
            model.waiting(),
            self._promise_ps,
            *self.costs(),
        )

    def _post_parcel(self, dst: int) -> None:
        outgoing = self._outgoing.pop(dst)
        self._post(dst, PacketBatch(self.rank, outgoing.first, tuple(outgoing.packets)))
