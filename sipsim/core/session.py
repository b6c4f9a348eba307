"""Conservative synchronisation of one SIP: receives grants and packets, sends reports and packets. Pure.

A packet is *taken* when it is received, *held* until the window that covers its arrival, and *injected* just before
that window, together with all other packets that arrive before the horizon, in canonical order. So the result depends
neither on the timing of the mail nor on the size of grants.

All packets of a window to one peer are sent as one batch, before the report that counts them. No SIP may run to the
packets' arrivals before that report, so earlier sending would only cost frames. A batch that reaches ``BATCH_BYTES`` is
sent at once, while the simulation continues.
"""

import heapq
import struct
from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Protocol

from broker.channels import least_chains, out_channels
from broker.ids import MAX_PS, Channel, pair_delays_ps
from broker.wire import Grant, PacketBatch, Report
from sipsim.core.engine import ARRIVAL, Engine
from sipsim.core.errors import InvariantViolation, NondeterministicReplay
from sipsim.core.streams import InStreams, OutStreams

Packet = tuple[int, int, bytes]
"""Channel, arrival in ps, body."""
Ps = int
EVENTS_BETWEEN_POLLS = 4096
BATCH_BYTES = 64 * 1024
PACKET_OVERHEAD_BYTES = 16


class Model(Protocol):
    """Simulated system of a session."""

    def receive(self, channel: int, body: bytes) -> None:
        """Handle a packet that arrives on ``channel`` now."""

    def waiting(self) -> int:
        """Return the number of kernels and scripts that wait."""

    def next_send_bound_ps(self, next_ps: Ps) -> Ps:
        """Return a lower bound on the next send time if no packet arrives (``Report.promise_ps``).

        ``next_ps``: the first local event. A packet sent at t arrives at t plus the pair's least delay, or later.
        """


class _Outgoing:
    """Batch that collects packets for one peer; ``first``: the number of the first packet."""

    __slots__ = ("first", "nbytes", "packets")

    def __init__(self, first: int) -> None:
        self.first = first
        self.nbytes = 0
        self.packets: list[tuple[int, Ps, bytes]] = []


class Session:
    """Synchronisation state of one SIP. The SIP runs between ``grant`` and the report that ``advance`` returns.

    ``reaction_ps``: the least time from an arrival to a send that the arrival causes (``broker.sync.timesync``).
    ``reactions_ps``: the reactions of all SIPs, necessary for far packets only. ``costs`` returns the host time of a
    window for the report: (running, sending). If ranks can be restarted, call :meth:`check_replay` first.
    """

    def __init__(
        self,
        rank: int,
        engine: Engine,
        channels: list[Channel],
        send: Callable[[int, PacketBatch], None],
        reaction_ps: Ps = 0,
        reactions_ps: Sequence[Ps] = (),
    ) -> None:
        self.rank = rank
        self.engine = engine
        self._channels = channels
        self._channels_from: dict[int, set[int]] = {}
        for number, (src, dst, _, _) in enumerate(channels):
            if dst == rank:
                self._channels_from.setdefault(src, set()).add(number)
        self._pair_delay_ps = {dst: delay for (src, dst), delay in pair_delays_ps(channels).items() if src == rank}
        self._send = send
        self._out = OutStreams()
        self._outgoing: dict[int, _Outgoing] = {}
        self._replay: ReplayChecker | None = None
        self._in = InStreams()
        self._held: list[tuple[Ps, int, int, int, bytes]] = []
        self._grant: Grant | None = None
        self._reached_ps: Ps = 0
        self._reaction_ps = reaction_ps
        self._reactions_ps = reactions_ps
        self._far_channel = len(channels)
        self._promise_ps: Ps = 0
        self._send_bound_ps: Ps = 0
        self.model: Model | None = None
        self.costs: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self.grants = 0

    def check_replay(self, logged: dict[int, list[bytes]]) -> None:
        """Compare replayed packets from now on. ``logged``: by destination, fingerprints of the packets sent before."""
        self._replay = ReplayChecker(self.rank, logged)
        self._out = OutStreams({dst: len(packets) for dst, packets in logged.items()})

    @property
    def reached_ps(self) -> Ps:
        """The time in ps before which this SIP has run all events, and so has sent all packets."""
        return self._reached_ps

    @property
    def packets_sent(self) -> int:
        return sum(self._out.counts.values())

    @property
    def packets_taken(self) -> int:
        return sum(self._in.counts.values())

    @property
    def packets_arrived(self) -> int:
        """The number of taken packets that have arrived by the current simulated time. O(n): visits all events."""
        return self.packets_taken - len(self._held) - self.engine.arrivals

    def emit(self, channel: int, arrival_ps: Ps, body: bytes) -> None:
        """Send a packet that arrives at ``arrival_ps``.

        Raises:
            InvariantViolation: when the packet would arrive earlier than the channel's lookahead or a promise allows.
        """
        spec = self._channels[channel]
        src, dst, delay_ps, _ = spec
        if type(arrival_ps) is not int:
            raise InvariantViolation(f"a packet on channel {spec.name} would arrive at {arrival_ps!r}; must be int ps")
        if src != self.rank or arrival_ps < self.engine.now_ps + delay_ps:
            raise InvariantViolation(
                f"a packet on channel {spec.name} at {self.engine.now_ps} ps would arrive at {arrival_ps} ps; "
                f"only SIP {src} sends on that channel, at least {delay_ps} ps before an arrival"
            )
        if arrival_ps < self._send_bound_ps + self._pair_delay_ps[dst]:
            raise InvariantViolation(
                f"a packet on channel {spec.name} at {self.engine.now_ps} ps would arrive at {arrival_ps} ps, "
                f"but SIP {self.rank} has promised to send nothing before {self._send_bound_ps} ps"
            )
        self._put(dst, channel, arrival_ps, body)

    def emit_far(self, dst: int, arrival_ps: Ps, body: bytes) -> None:
        """Send a *far packet*: to a SIP without a channel from this SIP. The last byte arrives at ``arrival_ps``.

        The arrival must be at least ``D`` after the earliest time at which this SIP could send a packet on a channel.
        ``D`` is the least delay, with reactions, of any chain of channels to that SIP. The earliest time is the present
        time or, if later, the lesser of the promise and the window's first arrival plus the reaction. The proof in
        ``broker.sync.timesync`` adds up the delays and reactions of a chain of causes. A far packet from m to j counts
        there as one channel of delay ``D[m][j]``, and ``D[k][m] + R[m] + D[m][j] >= D[k][j]``. So the broker's bounds
        also hold for far packets. These are numbered, counted, logged and replayed in the stream of their pair of SIPs.
        In the canonical order they follow the packets of all channels with the same sender and arrival.

        Raises:
            InvariantViolation: when the packet would arrive earlier than the chain of channels or a promise allows.
        """
        delay_ps = self._chain_delays_ps[dst]
        sent_ps = max(self.engine.now_ps, self._send_bound_ps)
        if delay_ps is None or type(arrival_ps) is not int or arrival_ps < sent_ps + delay_ps:
            raise InvariantViolation(
                f"a far packet from SIP {self.rank} to SIP {dst} at {self.engine.now_ps} ps would arrive at "
                f"{arrival_ps!r} ps; must arrive at least {delay_ps} ps after {sent_ps} ps"
            )
        self._put(dst, self._far_channel, arrival_ps, body)

    @cached_property
    def _chain_delays_ps(self) -> list[Ps | None]:
        """The least delay of a chain of channels from this SIP, in ps, by destination; None if no chain exists."""
        return least_chains(self.rank, out_channels(len(self._reactions_ps), self._channels), self._reactions_ps)[0]

    def _put(self, dst: int, channel: int, arrival_ps: Ps, body: bytes) -> None:
        seq = self._out.number(dst, arrival_ps)
        if self._replay is not None and self._replay.has_sent(dst, seq, (channel, arrival_ps, body)):
            return
        outgoing = self._outgoing.get(dst)
        if outgoing is None:
            outgoing = self._outgoing[dst] = _Outgoing(seq)
        outgoing.packets.append((channel, arrival_ps, body))
        outgoing.nbytes += len(body) + PACKET_OVERHEAD_BYTES
        if outgoing.nbytes >= BATCH_BYTES:
            self._send_batch(dst)

    def take(self, batch: PacketBatch) -> None:
        """Take received packets and hold them until their window. Duplicates are dropped.

        Raises:
            LostPacket: when packets before the batch are missing.
            InvariantViolation: for a channel that does not lead from the sender to this SIP.
        """
        src, packets = batch.src, batch.packets
        duplicates = self._in.accept(src, batch.first, len(packets))
        if self._replay is not None:
            self._replay.note_taken(src, batch.first, packets)
        expected = self._channels_from.get(src, ())
        for index, (channel, arrival_ps, body) in enumerate(packets):
            if channel not in expected and channel != self._far_channel:
                what = f"a packet from SIP {src} on channel {channel}"
                raise InvariantViolation(f"{what}, which does not lead from that SIP to SIP {self.rank}")
            if index >= duplicates:
                heapq.heappush(self._held, (arrival_ps, src, channel, batch.first + index, body))

    def grant(self, grant: Grant) -> None:
        """Accept the grant of a window, which can begin when :meth:`is_ready` is true."""
        self._grant = grant
        self.grants += 1

    def return_grant(self) -> Report:
        """Drop the grant without running the window, and return a report of the unchanged state."""
        self._grant = None
        return self.report()

    @property
    def is_granted(self) -> bool:
        """Whether there is a grant whose window has not been run."""
        return self._grant is not None

    def is_ready(self) -> bool:
        """Whether there is a grant and every packet that it requires has been taken."""
        if self._grant is None:
            return False
        counts = self._in.counts
        for source, count in self._grant.need:  # noqa: SIM110 - a generator would cost more than the loop
            if counts.get(source, 0) < count:
                return False
        return True

    def begin(self) -> None:
        """Inject the packets that arrive before the horizon. Call once when ready, then :meth:`advance`."""
        assert self._grant is not None
        horizon = self._grant.horizon_ps
        model, engine, held = self.model, self.engine, self._held
        assert model is not None
        self._send_bound_ps = self._promise_ps
        reached_ps = max(self._reached_ps, engine.now_ps)
        if held and (horizon is None or held[0][0] < horizon):
            self._send_bound_ps = min(self._promise_ps, held[0][0] + self._reaction_ps)
        while held and (horizon is None or held[0][0] < horizon):
            arrival_ps, src, channel, _seq, body = heapq.heappop(held)
            if arrival_ps < reached_ps:
                late = f"was taken after SIP {self.rank} had run to {reached_ps} ps"
                raise InvariantViolation(f"a packet from SIP {src} for {arrival_ps} ps {late}")
            engine.at(arrival_ps, lambda c=channel, b=body: model.receive(c, b), ARRIVAL)  # type: ignore[misc]

    def advance(self, divisor: int = 1) -> Report | None:
        """Run a number of events of the window; return the report if the horizon is reached, else None.

        ``divisor`` reduces this number, for slow events between which the caller must poll.
        """
        assert self._grant is not None
        horizon_ps = self._grant.horizon_ps
        if not self.engine.run_before(horizon_ps, max(EVENTS_BETWEEN_POLLS // divisor, 1)):
            return None
        self._reached_ps = max(self._reached_ps, self.engine.now_ps + 1 if horizon_ps is None else horizon_ps)
        self._grant = None
        return self.report()

    def report(self) -> Report:
        """Send all unsent batches; return the report of the current state, with the counts that have changed."""
        model = self.model
        assert model is not None
        for dst in list(self._outgoing):
            self._send_batch(dst)
        next_ps = self.engine.next_ps()
        self._promise_ps = MAX_PS if next_ps is None else model.next_send_bound_ps(next_ps)
        if type(self._promise_ps) is not int:
            raise InvariantViolation(f"SIP {self.rank} promised {self._promise_ps!r} as next send; must be int ps")
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

    def _send_batch(self, dst: int) -> None:
        outgoing = self._outgoing.pop(dst)
        self._send(dst, PacketBatch(self.rank, outgoing.first, tuple(outgoing.packets)))


FINGERPRINT_BYTES = 8
_KEY = struct.Struct(">IQ")


def fingerprint(packet: Packet) -> bytes:
    """Return a 64-bit hash of a packet: BLAKE2b of its channel, arrival and body."""
    channel, arrival_ps, body = packet
    return blake2b(body, digest_size=FINGERPRINT_BYTES, key=_KEY.pack(channel, arrival_ps)).digest()


class ReplayChecker:
    """Comparison of the packets of a restarted SIP with the packets sent before the restart. Pure.

    If they differ, the program is not deterministic and recovery is impossible. The sender ``rank`` compares with its
    packet log, a receiver with the packets that it has taken.

    ``logged``: by destination, the fingerprints of all packets in the packet log of ``rank``.
    """

    def __init__(self, rank: int, logged: dict[int, list[bytes]]) -> None:
        self._rank = rank
        self._logged = logged
        self._taken: dict[int, bytearray] = {}

    def has_sent(self, dst: int, number: int, packet: Packet) -> bool:
        """Whether this packet was sent before a restart and need not be sent again.

        Raises:
            NondeterministicReplay: when a different packet was sent under this number.
        """
        logged = self._logged.get(dst)
        if logged is None or number >= len(logged):
            return False
        if fingerprint(packet) != logged[number]:
            raise _differs(self._rank, number, dst, packet)
        return True

    def note_taken(self, src: int, first: int, packets: Sequence[Packet]) -> None:
        """Record consecutive packets from ``src``, numbered from ``first`` on; compare repeated packets.

        Raises:
            NondeterministicReplay: when a packet differs from the packet taken before with the same number.
        """
        taken = self._taken.setdefault(src, bytearray())
        for number, packet in enumerate(packets, first):
            offset, digest = number * FINGERPRINT_BYTES, fingerprint(packet)
            if offset == len(taken):
                taken += digest
            elif digest != taken[offset : offset + FINGERPRINT_BYTES]:
                raise _differs(src, number, self._rank, packet)


def _differs(src: int, number: int, dst: int, packet: Packet) -> NondeterministicReplay:
    return NondeterministicReplay(
        f"SIP {src} was started again and sent packet {number} to SIP {dst} (arrival {packet[1]} ps) differently than "
        f"before; make its program deterministic: no wall clock, unseeded randomness, set order or outside state"
    )
