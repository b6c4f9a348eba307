"""Router on an Ethernet core, which polls the router's channels in turn (fabric_erisc_router.cpp of tt-metal)."""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Final, NamedTuple

from sipsim.chips.tensix.eth_dataflow import SYNC
from sipsim.chips.tensix.ethernet import Transmitter
from sipsim.chips.tensix.fabric.channels import PacketInFlight, ReceiverChannel, Ring, SenderChannel, SlotCredits
from sipsim.chips.tensix.fabric.connection import CONNECTION_BYTES, WorkerConnection
from sipsim.chips.tensix.fabric.layout import HANDSHAKE_BYTES, RouterLayout, words
from sipsim.chips.tensix.fabric.packet import (
    Direction,
    Hop,
    NocCommand,
    Target,
    check_header,
    nbytes_of,
    next_hop,
    places,
    set_sender,
    target_of,
)
from sipsim.chips.tensix.fabric.polling_loop import PollingLoop
from sipsim.chips.tensix.fabric.termination import NOTICE, LostPacket, Notice, Origin, Signal, Termination
from sipsim.chips.tensix.memory import FAR_END
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.params import FabricParams, RouterCosts
from sipsim.chips.tensix.tiles import Tiles
from sipsim.core.errors import InvariantViolation, KernelMisuse
from sipsim.core.units import ns_to_ps
from sipsim.records.dump import BlockedResource

Ps = int
Channel = SenderChannel | ReceiverChannel
MOST_SENDERS = 6
"""The most sender channels of a router: the worker's, and per virtual channel the channels that receivers fill."""
NONE = (0,) * MOST_SENDERS


class CostsPs(NamedTuple):
    """Costs of a router, as :class:`~sipsim.chips.tensix.params.RouterCosts`, but in ps."""

    round: Ps
    look: Ps
    send: Ps
    sent: Ps
    credit: Ps
    forward: Ps
    further: Ps
    completion: Ps
    ack: Ps

    @classmethod
    def of(cls, costs: RouterCosts) -> "CostsPs":
        """Convert costs from ns to ps."""
        return cls(*(ns_to_ps(getattr(costs, f"{name}_ns")) for name in cls._fields))


CREDITS: Final = struct.Struct(f"<BB{MOST_SENDERS}B{MOST_SENDERS}Bxx")
"""Virtual channel, a reserved byte, slots completed per sender channel, slots acknowledged per sender channel."""
NOT_YOURS: Final = "kernels may write only into slots and the words of connections"
NOWHERE: Final = Origin(0, 0, 0, 0)
STATISTICS: Final = struct.Struct("<IIQQ")
"""Statistics region: packets committed locally, packets forwarded, their payload in bytes, time of this read in ps."""
HANDSHAKE_PREFIX: Final = b"fabric "
"""The first bytes of a handshake."""


def handshake_of(agreed: str) -> bytes:
    """Return the bytes of a handshake. A text that is too long is cut, and a hash of the whole text is appended."""
    data = HANDSHAKE_PREFIX + agreed.encode()
    if len(data) > HANDSHAKE_BYTES:
        cut = f"... {sha256(data).hexdigest()[:8]}".encode()
        data = data[: HANDSHAKE_BYTES - len(cut)] + cut
    return data.ljust(HANDSHAKE_BYTES)


class FabricProtocol(NamedTuple):
    """Common settings of a fabric's routers on one chip. ``handshake``: the text that must be equal at both ends of a
    link.

    ``is_acked``: whether receivers send first-level acknowledgements. ``needs_bubble``: whether a worker's packet needs
    two free slots at the far end. ``params``: the chip's fabric parameters; ``costs``: the costs of this fabric.
    ``is_first``: as :attr:`~sipsim.chips.tensix.params.RevisionParams.is_first`.
    """

    handshake: bytes
    is_acked: bool
    needs_bubble: bool
    params: FabricParams
    costs: CostsPs
    is_first: bool = False


class Flush(NamedTuple):
    """Increment that leaves at ``at_ps``, or later once all writes of the packets in ``behind`` are acknowledged."""

    target: Target
    handled: PacketInFlight
    behind: tuple[PacketInFlight, ...]
    at_ps: Ps


class Statistics(NamedTuple):
    """Counts of a router since its start: packets that it ``committed`` on its chip and ``forwarded``, a multicast both
    ways, and their payload in bytes, at ``time_ps``.
    """

    committed: int
    forwarded: int
    nbytes: int
    time_ps: Ps

    def gbps_since(self, earlier: "Statistics") -> float:
        """Return the live throughput since an earlier read in Gb/s, 0 if no time has passed."""
        elapsed_ps = self.time_ps - earlier.time_ps
        return 8000 * (self.nbytes - earlier.nbytes) / elapsed_ps if elapsed_ps else 0.0


class Router:
    """Router at the link in direction ``way``: a polling loop over channels, in the order of :func:`in_turn`.

    A poll that finds nothing takes ``look_ns``; a visit that finds work takes ``look_ns`` plus the costs of the work
    (``RouterCosts``), and the visit's commands leave within this time. A visit sends one packet. Polls that find
    nothing need no simulation event: the loop's position is computed from the time, and a change that may make a
    channel ready calls :meth:`wake`. A visit sees the state at the beginning of the poll.

    ``name``: unique in the run. ``fars``: credits for the far end's receivers, by virtual channel. ``transmitter``: the
    sending end of the router's link. ``rank``: of the chip.

    ``termination``: set by the fabric before any signal. ``signal``: the termination signal. ``is_stopped``: whether
    the immediate signal has stopped the loops, so that packets are dropped and added to ``lost``. ``has_said_end``,
    ``far_words``, ``is_cut``: whether END was sent, the credit messages that the far end's END announced, and whether
    the far end stopped immediately. ``is_released``: whether core, L1 and link are free again.
    """

    termination: Termination

    def __init__(
        self,
        name: str,
        way: Direction,
        layout: RouterLayout,
        fars: Sequence[SlotCredits],
        protocol: FabricProtocol,
        transmitter: Transmitter,
        tiles: Tiles,
        rank: int = 0,
    ) -> None:
        self.name = name
        self.rank = rank
        self.way = way
        self.layout = layout
        self.fars = fars
        self.core = transmitter.core
        self.is_open = False
        self.signal = Signal.KEEP_RUNNING
        self.is_stopped = self.has_said_end = self.is_released = self.is_cut = False
        self.far_words: int | None = None
        self.lost: list[tuple[Origin, bytes, bool, str]] = []
        self._words_sent = self._words_received = 0
        self._told = [0] * MOST_SENDERS, [0] * MOST_SENDERS
        self._has_next_handshake = False
        self._committed = self._forwarded = self._handled_bytes = 0
        self._last_ps: Ps = 0
        self.senders = [self._sender(number, protocol) for number in range(len(layout.shape.senders))]
        self.receivers = [ReceiverChannel(f"{name} receiver {vc}", vc, layout.receiver(vc)) for vc in range(len(fars))]
        has_answer = not protocol.is_first
        self.connection = WorkerConnection(f"{name} sender 0", self.senders[0], self._to_worker, has_answer)
        self._protocol = protocol
        self._is_acked = protocol.is_acked
        self._costs = protocol.costs
        self._transmitter = transmitter
        self._tiles = tiles
        self._engine = tiles.engine
        self._memory = tiles.memory(self.core)
        channels = in_turn(self.senders, self.receivers)
        parts = [channels] if protocol.params.one_server else [[channel] for channel in channels]
        look, around = self._costs.look, self._costs.round
        self._loops = [PollingLoop(part, look, around, self._ready_ps, self._visit, self._engine) for part in parts]
        self._loop_of = {id(channel): loop for part, loop in zip(parts, self._loops, strict=True) for channel in part}
        self._hops: dict[tuple[int, int], tuple[int, Hop]] = {}
        self._onward: dict[tuple[int, Direction], tuple[Router, SenderChannel]] = {}
        self._flushes: dict[int, Flush] = {}
        self._watch()

    def _sender(self, number: int, protocol: FabricProtocol) -> SenderChannel:
        passing = (len(self.layout.shape.senders) - 1) // len(self.fars)
        far = self.fars[(number - 1) // passing if number else 0]
        needed = 2 if number == 0 and protocol.needs_bubble else 1
        return SenderChannel(f"{self.name} sender {number}", number, self.layout.sender(number), far, needed)

    def _watch(self) -> None:
        """Watch writes into the router's words and rings, and reserve these addresses."""
        layout, memory = self.layout, self._memory
        self._tiles.clear(self.core, layout.connection, CONNECTION_BYTES)
        self._tiles.clear(self.core, layout.termination, NOTICE.size)
        memory.reserved, memory.signal_at = range(layout.base, layout.end), layout.termination
        at = layout.statistics
        memory.statistics = range(at, at + STATISTICS.size)
        memory.refresh = self._refresh_statistics
        notes: dict[int, Callable[[str], None]] = {
            layout.handshake: self._handshake_arrived,
            layout.credits: self._credits,
            layout.connection: self._connection_word,
            layout.termination: self._signal_written,
            layout.notice: self._notice_arrived,
        }
        is_first = self._protocol.is_first
        for receiver in self.receivers:
            ring, arrived = receiver.ring, partial(self._packet_arrived, receiver)
            notes |= {_sync_of(each, ring) if is_first else each: arrived for each in ring.addresses()}
        notes |= {each: partial(self._written_by_worker, each) for each in self.senders[0].ring.addresses()}
        if is_first:
            for sender in self.senders:
                words_at = [_sync_of(each, sender.ring) for each in sender.ring.addresses()]
                notes |= {each: partial(self._sync_arrived, sender, each) for each in words_at}
        for address, note in notes.items():
            memory.watch(address, note)
        self._watched = list(notes)

    def join(self, receiver: ReceiverChannel, other: "Router", channel: SenderChannel) -> None:
        """Let a receiver of this router forward into a sender channel of another router of this chip."""
        slots = receiver.downstream[other.way] = SlotCredits(channel.name, channel.ring)
        self._onward[receiver.vc, other.way] = other, channel

        def is_free(count: int, at_ps: Ps) -> None:
            def returned() -> None:
                slots.returned += count
                self.wake()

            self._tiles.notify(other.core, self.core, max(at_ps - self._engine.now_ps, 0), returned)

        channel.return_credits = is_free

    def send_handshake(self) -> None:
        """Send the handshake to the far end, and open the router if the far end's handshake has already arrived."""
        stored_bytes = self._protocol.params.copy_bytes
        self._transmitter.send_at(self._engine.now_ps, self.layout.handshake, self._protocol.handshake, stored_bytes)
        if self._memory.read(self.layout.handshake, len(HANDSHAKE_PREFIX)) == HANDSHAKE_PREFIX:
            self._handshake_arrived()

    # --- facts ----------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Wake the polling loops, as a channel may have become ready."""
        for loop in self._loops:
            loop.wake()
        self._plan_end()

    def _plan_end(self) -> None:
        """Let a terminating fabric look at this router, whose state has changed."""
        if self.signal:
            self.termination.plan()

    def packet_written(self, channel: SenderChannel, origin: Origin = NOWHERE) -> None:
        """Count a packet that the upstream of a sender channel has written."""
        channel.written += 1
        channel.origins.append(origin)
        if self.is_stopped:
            self._drop_unsent(channel)
        self.wake()

    def _packet_arrived(self, channel: ReceiverChannel, writer: str) -> None:
        """Count a packet that is whole in a receiver's slot. In the first revision a packet is whole when
        its sync word arrives. The router's own later write, which clears that word, does not count.
        """
        if self._protocol.is_first and writer is not FAR_END:
            return
        channel.arrived += 1
        channel.origins.append(Origin(*(self._memory.last_origin or NOWHERE)))
        if self.is_stopped:
            self._drop_unhandled(channel)
        self.wake()

    def _handshake_arrived(self, _writer: str = "") -> None:
        """Open the router for packets, as the far end's handshake has arrived. A handshake behind the far end's END is
        for the next user of the core.
        """
        if self.far_words is not None:
            self._has_next_handshake = True
            return
        local, remote = self._protocol.handshake, self._memory.read(self.layout.handshake, HANDSHAKE_BYTES)
        if remote != local:
            cut = len(HANDSHAKE_PREFIX)
            this_end, far_end = (each[cut:].decode(errors="replace").rstrip() for each in (local, remote))
            what = "both ends of its link must belong to the same fabric"
            raise KernelMisuse(f"{self.name}: {what}; this end has {this_end}, the far end {far_end}")
        self.is_open = True
        self.wake()

    def _signal_written(self, _writer: str) -> None:
        self.termination.signal(self, self._memory.word(self.layout.termination))

    def _notice_arrived(self, _writer: str) -> None:
        self.termination.notice(self, self._memory.read(self.layout.notice, NOTICE.size))

    def _credits(self, _writer: str) -> None:
        self._words_received += 1
        vc, _, *counts = CREDITS.unpack(self._memory.read(self.layout.credits, CREDITS.size))
        if vc >= len(self.fars):
            raise KernelMisuse(f"{self.name}: the bytes written into the words for credits are no credits; {NOT_YOURS}")
        self.credits_arrived(vc, counts[:MOST_SENDERS], counts[MOST_SENDERS:])

    def _sync_arrived(self, channel: SenderChannel, address: int, writer: str) -> None:
        """Take the sync word of a slot: the first-level acknowledgement of its packet, or the second-level one."""
        if writer is FAR_END:
            self._words_received += 1
            _, ack, number, _ = SYNC.unpack(self._memory.read(address, SYNC.size))
            counts = _at(number, 1)
            self.credits_arrived(0, *((NONE, counts) if ack else (counts, NONE)))

    def credits_arrived(self, vc: int, completed: Sequence[int], acked: Sequence[int]) -> None:
        """Count the far end's credits: slots completed and acknowledged, each by sender channel."""
        for channel, n_completed, n_acked in zip(self.senders, completed, acked, strict=False):
            channel.credits += n_acked if self._is_acked else n_completed
        far = self.fars[vc]
        far.returned += sum(completed)
        if far.returned > far.used:
            what = f"{far.returned} of {far.used} packets sent to {far.name} were reported as completed"
            raise InvariantViolation(f"{self.name}: {what}")
        self.wake()

    def _connection_word(self, _writer: str) -> None:
        self.connection.words_written(self._memory.read(self.layout.connection, 16))
        self._plan_end()

    def _written_by_worker(self, address: int, _writer: str) -> None:
        self.connection.header_written(address)
        shape = self.layout.shape
        header, tiles = self._memory.read(address, shape.header_bytes), self._tiles
        check_header(header, shape.payload_bytes, tiles.problem_of, tiles.receivers)
        channel, worker = self.senders[0], self.connection.worker
        assert worker is not None
        self.packet_written(channel, Origin(self.rank, *worker, channel.written))

    @property
    def statistics(self) -> Statistics:
        """The statistics now, as a read of the region from ``layout.statistics`` on gives them (:data:`STATISTICS`)."""
        return Statistics(self._committed, self._forwarded, self._handled_bytes, self._engine.now_ps)

    def _refresh_statistics(self) -> None:
        at, data, replay = self.layout.statistics, STATISTICS.pack(*self.statistics), self._tiles.log.replay
        self._memory.put(at, data)
        if replay is not None:
            replay.stored(self.core, at, data)

    # --- termination --------------------------------------------------------------------------------------------------

    @property
    def packets_sent(self) -> int:
        """The number of packets sent over the link."""
        return sum(far.used for far in self.fars)

    @property
    def is_in_use(self) -> bool:
        """Whether a worker is connected, or writes of packets or waiting increments are under way."""
        is_writing = any(each.writes for receiver in self.receivers for each in receiver.open)
        return self.connection.worker is not None or is_writing or bool(self._flushes)

    @property
    def is_drained(self) -> bool:
        """Whether the router is open and has no packet, missing credit or connected worker."""
        downstream = [slots for receiver in self.receivers for slots in receiver.downstream.values()]
        return (
            self.is_open
            and self.connection.worker is None
            and all(each.written == each.sent == each.freed and not each.credits for each in self.senders)
            and all(each.used == each.returned for each in (*self.fars, *downstream))
            and all(each.arrived == each.completed for each in self.receivers)
        )

    @property
    def has_ended(self) -> bool:
        """Whether END was sent, and END and all credit messages of the far end have arrived."""
        return self.has_said_end and self._words_received == self.far_words

    def send_notice(self, notice: Notice) -> None:
        """Send a notice of the termination to the far end, after all commands of earlier visits."""
        data, at_ps = NOTICE.pack(notice, self._words_sent), max(self._last_ps, self._engine.now_ps)
        self._transmitter.send_at(at_ps, self.layout.notice, data, self._protocol.params.copy_bytes)

    def stop(self) -> None:
        """Stop at once: packets that were not sent or handled are lost. Workers get credits for dropped packets."""
        if self.is_stopped:
            return
        self.is_stopped = True
        for loop in self._loops:
            loop.stop()
        for sender in self.senders:
            self._drop_unsent(sender)
        for receiver in self.receivers:
            self._drop_unhandled(receiver)

    def release(self) -> None:
        """Free the core, its L1 and the link for other programs."""
        self.is_released = True
        memory = self._memory
        for address in self._watched:
            memory.unwatch(address)
        memory.reserved, memory.signal_at, memory.refresh = range(0), -1, None
        if not self._has_next_handshake:
            self._tiles.clear(self.core, self.layout.handshake, HANDSHAKE_BYTES)

    def lost_packets(self, ranks_of: Callable[[bytes, Direction, bool], tuple[int, ...]]) -> list[LostPacket]:
        """Return the packets that the immediate signal has dropped, in order. ``ranks_of(header, way, has_arrived)``:
        ranks to which a header leads that has arrived over the link ``way``, or was not sent over this link.
        """
        return [
            LostPacket(origin, ranks_of(header, self.way, has_arrived), tuple(self._places(header)), at)
            for origin, header, has_arrived, at in self.lost
        ]

    def _places(self, header: bytes) -> list[tuple[Core, int, int]]:
        return places(target_of(header), nbytes_of(header), self._tiles.receivers)

    def _drop_unsent(self, channel: SenderChannel) -> None:
        for number in range(channel.sent, channel.written):
            header = self._memory.read(channel.ring.address(number), self.layout.shape.header_bytes)
            self.lost.append((channel.origins.popleft(), header, False, channel.name))
        count = channel.written - channel.freed
        channel.sent = channel.freed = channel.written
        channel.credits = 0
        if count:
            channel.return_credits(count, self._engine.now_ps)

    def _drop_unhandled(self, channel: ReceiverChannel) -> None:
        for number in range(channel.handled, channel.arrived):
            header = self._memory.read(channel.ring.address(number), self.layout.shape.header_bytes)
            self.lost.append((channel.origins.popleft(), header, True, channel.name))
        channel.handled = channel.arrived

    # --- visits ---------------------------------------------------------------------------------------------------

    def _ready_ps(self, channel: Channel, begin_ps: Ps) -> Ps | None:
        """Return the first time, from ``begin_ps`` on, at which a visit to a channel finds work; None if unknown."""
        if isinstance(channel, SenderChannel):
            if channel.credits:
                return begin_ps
            return self._transmitter.all_started_ps(begin_ps) if self.is_open and channel.may_send else None
        if self._may_handle(channel) or (self._is_acked and channel.acked < channel.arrived):
            return begin_ps
        completes_ps = channel.completes_ps
        return None if completes_ps is None else max(completes_ps, begin_ps)

    def _may_handle(self, channel: ReceiverChannel) -> bool:
        """Whether the receiver has a packet to handle, and each onward direction of the packet has a free slot."""
        if channel.handled >= channel.arrived or len(channel.open) >= self._protocol.params.transaction_ids:
            return False
        ways, downstream = self.peek_header(channel, channel.handled).ways, channel.downstream
        return not ways or all(downstream[way].free > 0 for way in ways)

    def _visit(self, channel: Channel, time_ps: Ps) -> None:
        if isinstance(channel, SenderChannel):
            self._visit_sender(channel, time_ps)
        else:
            self._visit_receiver(channel, time_ps)

    def _visit_sender(self, channel: SenderChannel, time_ps: Ps) -> None:
        costs = self._costs
        if channel.credits:
            time_ps += costs.credit
            channel.return_credits(channel.credits, time_ps)
            channel.freed += channel.credits
            channel.credits = 0
        if self.is_open and channel.may_send and self._transmitter.all_started_ps(time_ps) <= time_ps:
            time_ps += costs.send
            time_ps = self._send_packet(channel, time_ps)
            channel.sent += 1
            channel.far.used += 1
            time_ps += costs.sent
        self._loop_of[id(channel)].end_visit(time_ps)
        self._plan_end()

    def _visit_receiver(self, channel: ReceiverChannel, time_ps: Ps) -> None:
        costs = self._costs
        if self._is_acked and channel.acked < channel.arrived:
            time_ps += costs.ack
            self._send_ack(channel, time_ps)
            channel.acked += 1
        if self._may_handle(channel):
            hop = self.peek_header(channel, channel.handled)
            sender = self._sender_of(channel, channel.handled)
            handled = PacketInFlight(channel, sender, channel.origins.popleft())
            end_ps = self._forward_or_write(channel, hop, handled, time_ps + costs.forward)
            channel.open.append(handled)
            channel.handled += 1
            if end_ps is None:
                return
            time_ps = end_ps
        self._end_receiver(channel, time_ps)

    def _end_receiver(self, channel: ReceiverChannel, time_ps: Ps) -> None:
        """Report to the far end all slots whose packets have left, in order."""
        if self.is_stopped:
            return
        completes_ps = channel.completes_ps
        if completes_ps is not None and completes_ps <= time_ps:
            time_ps += self._costs.completion
            completed = [0] * MOST_SENDERS
            while completes_ps is not None and completes_ps <= time_ps:
                handled = channel.open.popleft()
                if handled.writes:
                    what = f"{handled.writes} NoC writes of its packet have not arrived"
                    raise InvariantViolation(f"a slot of {channel.name} is reported free, but {what}")
                completed[handled.sender] += 1
                self._clear_sync(channel, channel.completed)
                channel.completed += 1
                completes_ps = channel.completes_ps
            self.send_credits(channel.vc, completed, NONE, time_ps)
        self._loop_of[id(channel)].end_visit(time_ps)
        self._plan_end()

    # --- actions of visits --------------------------------------------------------------------------------------------

    def _send_packet(self, channel: SenderChannel, at_ps: Ps) -> Ps:
        """Send the channel's oldest unsent packet into the next slot of the receiver at the far end. In the first
        revision, the slot's sync word follows: in the same command, or, if bytes of the slot are not sent, in another.

        Returns:
            The time of the last command.
        """
        shape, address = self.layout.shape, channel.ring.address(channel.sent)
        header = self._memory.read(address, shape.header_bytes)
        payload = self._memory.read(address + shape.header_bytes, words(nbytes_of(header)))
        if self._tiles.log.replay is not None:
            self._tiles.log.replay.loaded(self.core, address, header + payload)
        to, origin = channel.far.ring.address(channel.far.used), channel.origins.popleft()
        copy_bytes = self._protocol.params.copy_bytes
        if not self._protocol.is_first:
            data = set_sender(header, channel.number) + payload
        else:
            data, sync_at = header + payload, _sync_of(to, channel.far.ring)
            sync = SYNC.pack(len(data), 0, channel.number, 0)
            self._tiles.store(self.core, _sync_of(address, channel.ring), sync, self.name)
            if sync_at == to + len(data):
                data += sync
            else:
                self._transmitter.send_at(at_ps, to, data, copy_bytes, origin)
                at_ps += self._costs.send
                to, data = sync_at, sync
        self._last_ps = max(self._last_ps, at_ps)
        self._transmitter.send_at(at_ps, to, data, copy_bytes, origin)
        return at_ps

    def send_credits(self, vc: int, completed: Sequence[int], acked: Sequence[int], at_ps: Ps) -> None:
        """Report to the far end's senders the slots completed and acknowledged, by sender channel."""
        if self._protocol.is_first:
            for number, count in enumerate(completed):
                for _ in range(count):
                    self._send_sync(number, 0, at_ps)
            return
        data = CREDITS.pack(vc, 0, *completed, *acked)
        self._words_sent += 1
        self._last_ps = max(self._last_ps, at_ps)
        self._transmitter.send_between(at_ps, self.layout.credits, data)

    def _send_ack(self, channel: ReceiverChannel, at_ps: Ps) -> None:
        """Acknowledge the receiver's oldest packet that is not acknowledged."""
        sender = self._sender_of(channel, channel.acked)
        if self._protocol.is_first:
            self._send_sync(sender, self._sync(channel, channel.acked)[0], at_ps)
        else:
            self.send_credits(channel.vc, NONE, _at(sender, 1), at_ps)

    def _sender_of(self, channel: ReceiverChannel, number: int) -> int:
        """Return the sender channel of the far end that has sent packet ``number`` of a receiver."""
        if not self._protocol.is_first:
            sender = self.peek_header(channel, number).sender
        else:
            sender = self._sync(channel, number)[2]
        if sender >= len(self.layout.shape.senders):
            what = f"a packet at {channel.name} names sender channel {sender}, and was sent by no router"
            raise KernelMisuse(f"{what}; {NOT_YOURS}")
        return sender

    def _sync(self, channel: ReceiverChannel, number: int) -> tuple[int, ...]:
        at = _sync_of(channel.ring.address(number), channel.ring)
        return SYNC.unpack(self._memory.read(at, SYNC.size))

    def _clear_sync(self, channel: ReceiverChannel, number: int) -> None:
        """Clear ``bytes_sent`` and ``receiver_ack`` of a receiver's slot, which is free now."""
        if self._protocol.is_first:
            sender, at = self._sync(channel, number)[2], _sync_of(channel.ring.address(number), channel.ring)
            self._tiles.store(self.core, at, SYNC.pack(0, 0, sender, 0), self.name)

    def _send_sync(self, number: int, bytes_sent: int, at_ps: Ps) -> None:
        """Send the sync word of a slot back to the slot of sender channel ``number``, behind all earlier commands: as
        first-level acknowledgement with the packet's ``bytes_sent``, or as second-level one with
        ``bytes_sent`` 0. The two leave from two addresses.
        """
        is_ack = bool(bytes_sent)
        told = self._told[is_ack]
        ring = self.layout.sender(number)
        address = _sync_of(ring.address(told[number]), ring)
        told[number] += 1
        self._words_sent += 1
        self._last_ps = max(self._last_ps, at_ps)
        data = SYNC.pack(bytes_sent, is_ack, number, 0)
        self._transmitter.send_at(at_ps, address, data, self._protocol.params.copy_bytes)

    def peek_header(self, channel: ReceiverChannel, number: int) -> Hop:
        """Return the router's work for packet ``number`` of a receiver."""
        slot = channel.vc, number % channel.ring.slots
        peeked = self._hops.get(slot)
        if peeked is None or peeked[0] != number:
            header = self._memory.read(channel.ring.address(number), self.layout.shape.header_bytes)
            hop = next_hop(header, self.way)
            if not hop.ways and not hop.is_local:
                raise KernelMisuse(f"a packet at {channel.name} has no onward route: {header.hex()}")
            for way in hop.ways:
                if way not in channel.downstream:
                    what = f"the route of a packet leads {way.name} from {channel.name}, where the fabric has no link"
                    raise KernelMisuse(f"{what}; give the packet fewer hops")
            peeked = self._hops[slot] = number, hop
        return peeked[1]

    def _forward_or_write(self, channel: ReceiverChannel, hop: Hop, handled: PacketInFlight, at_ps: Ps) -> Ps | None:
        """Write and forward the receiver's oldest unhandled packet, whose decoded header is ``hop``. The first command
        is issued at ``at_ps``, each further command ``further_ns`` later.

        Returns:
            The time of the last command; None if the router waits until a write of the packet has arrived.
        """
        address, further_ps = channel.ring.address(channel.handled), self._costs.further
        payload = self._memory.read(address + len(hop.header), nbytes_of(hop.header))
        if self._tiles.log.replay is not None:
            self._tiles.log.replay.loaded(self.core, address + len(hop.header), payload)
        commands = 0
        self._committed += hop.is_local
        self._forwarded += bool(hop.ways)
        self._handled_bytes += len(payload)
        for way in hop.ways:
            slots, (other, into) = channel.downstream[way], self._onward[channel.vc, way]
            to = slots.ring.address(slots.used)
            slots.used += 1
            written = partial(other.packet_written, into, handled.origin)
            self._write([other.core], to, hop.header + payload, at_ps + commands * further_ps, handled, written)
            commands += 1
        if not hop.is_local:
            return at_ps + (commands - 1) * further_ps
        return self._finish(target_of(hop.header), payload, at_ps + commands * further_ps, handled)

    def _finish(self, target: Target, payload: bytes, at_ps: Ps, handled: PacketInFlight) -> Ps | None:
        """Execute the packet's command on this chip. Return the same as :meth:`_forward_or_write`."""
        further_ps = self._costs.further
        tiles = places(target, len(payload), self._tiles.receivers)
        for core, address, nbytes in tiles:
            if self._tiles.memory(core).is_reserved(address, nbytes):
                what = f"a packet for {nbytes} B at 0x{address:x} of core {core} arrived at {self.name}"
                raise KernelMisuse(f"{what}, but these bytes belong to a router of the fabric; {NOT_YOURS}")
        if target.command is NocCommand.INCREMENT:
            if target.is_flushed:
                return self._increment_flushed(target, at_ps, handled)
            self._increment(target, at_ps)
            return at_ps
        if target.command in (NocCommand.WRITE, NocCommand.MULTICAST):
            cores = [core for core, _, _ in tiles]
            written = partial(self._flushed, handled, at_ps) if self._protocol.is_first else None
            self._write(cores, target.address, payload, at_ps, handled, written)
            return None if written else at_ps
        if target.command is NocCommand.SCATTER:
            first, rest = payload[: target.first_bytes], payload[target.first_bytes :]
            self._write([target.core], target.address, first, at_ps, handled)
            self._write([target.increment_core], target.increment_address, rest, at_ps + further_ps, handled)
            return at_ps + further_ps
        increment_ps = at_ps + further_ps
        if target.is_flushed:
            return self._finish_flushed(target, payload, at_ps, increment_ps, handled)
        if target.core == target.increment_core:
            # One path of the NoC keeps the order.
            self._write([target.core], target.address, payload, at_ps, handled)
            self._increment(target, increment_ps)
        else:
            written = partial(self._raise, target, increment_ps)
            self._write([target.core], target.address, payload, at_ps, handled, written)
        return increment_ps

    def _finish_flushed(
        self, target: Target, payload: bytes, at_ps: Ps, increment_ps: Ps, handled: PacketInFlight
    ) -> Ps | None:
        """Write the payload; the increment leaves after this write and the open writes of earlier packets."""
        has_open = any(each.writes for each in handled.receiver.open)
        if has_open or target.core != target.increment_core:
            self._write([target.core], target.address, payload, at_ps, handled)
            return self._increment_flushed(target, increment_ps, handled)
        # One path of the NoC keeps the order of both, so the flush only delays the router.
        written = partial(self._flushed, handled, increment_ps)
        self._write([target.core], target.address, payload, at_ps, handled, written)
        self._increment(target, increment_ps)
        return None

    def _flushed(self, handled: PacketInFlight, least_ps: Ps) -> None:
        """End the receiver's visit after the write of a packet has arrived and was acknowledged."""
        self._end_receiver(handled.receiver, max(handled.left_ps, least_ps))

    def _increment_flushed(self, target: Target, at_ps: Ps, handled: PacketInFlight) -> Ps | None:
        """Increment after all open writes of the receiver, including the writes of earlier packets."""
        receiver = handled.receiver
        flush = Flush(target, handled, (*receiver.open, handled), at_ps)
        end_ps = self._flush(flush)
        if end_ps is None:
            self._flushes[receiver.vc] = flush
        return end_ps

    def _flush(self, flush: Flush) -> Ps | None:
        """Issue the increment and return its time if all earlier writes are acknowledged; else return None."""
        if any(each.writes for each in flush.behind):
            return None
        at_ps = max(flush.at_ps, *(each.left_ps for each in flush.behind))
        self._increment(flush.target, at_ps)
        return at_ps

    def _retry_flush(self, vc: int) -> None:
        """Try a waiting flush of virtual channel ``vc`` again, as a write of a packet has arrived."""
        end_ps = self._flush(self._flushes[vc])
        if end_ps is not None:
            self._end_receiver(self._flushes.pop(vc).handled.receiver, end_ps)

    def _raise(self, target: Target, increment_ps: Ps) -> None:
        """Increment a word of one tile after the packet's write to another tile has arrived."""
        self._increment(target, max(increment_ps, self._engine.now_ps))

    def _write(
        self,
        cores: Sequence[Core],
        address: int,
        data: bytes,
        at_ps: Ps,
        handled: PacketInFlight,
        written: Callable[[], None] | None = None,
    ) -> None:
        """Write bytes of a packet to the same address of one or more tiles. ``written``: called when all have them."""
        handled.writes += len(cores)
        missing = len(cores)

        def arrived(acknowledged_ps: Ps) -> None:
            nonlocal missing
            missing -= 1
            handled.writes -= 1
            handled.left_ps = max(handled.left_ps, acknowledged_ps)
            if written is not None and not missing:
                written()
            if handled.receiver.vc in self._flushes:
                self._retry_flush(handled.receiver.vc)
            self.wake()

        delay_ps = at_ps - self._engine.now_ps
        self._tiles.deliver(self.core, tuple(cores), address, data, self.name, delay_ps, arrived)

    def _increment(self, target: Target, at_ps: Ps) -> None:
        delay_ps, word = at_ps - self._engine.now_ps, (target.increment_core, target.increment_address)
        self._tiles.deliver_increment(self.core, *word, target.value, delay_ps, is_behind_writes=True)

    def _to_worker(self, core: Core, address: int, value: int, at_ps: Ps) -> None:
        self._tiles.deliver_increment(self.core, core, address, value, max(at_ps - self._engine.now_ps, 0))


def in_turn(senders: Sequence[SenderChannel], receivers: Sequence[ReceiverChannel]) -> list[Channel]:
    """Return the channels in the order of the polling loop: the worker's sender channel, then per virtual channel the
    receiver channel and the sender channels that other receivers fill.
    """
    channels: list[Channel] = [senders[0]]
    passing = (len(senders) - 1) // len(receivers)
    for vc, receiver in enumerate(receivers):
        channels += [receiver, *senders[1 + vc * passing : 1 + (vc + 1) * passing]]
    return channels


def _sync_of(slot: int, ring: Ring) -> int:
    """Return the address of a slot's sync word."""
    return slot + ring.slot_bytes - SYNC.size


def _at(sender: int, count: int) -> Sequence[int]:
    """Return ``count`` for one sender channel and 0 for the others."""
    return [count if each == sender else 0 for each in range(MOST_SENDERS)]


def blocked(routers: Iterable[Router], muxed: Iterable[SenderChannel] = ()) -> Iterator[BlockedResource]:
    """Yield each channel whose packets cannot move, with the full channel ahead. ``muxed``: the channels of muxes."""
    for channel in muxed:
        if channel.sent < channel.written:
            text = f"{channel.written - channel.sent} of its {channel.ring.slots} slots hold packets"
            yield BlockedResource(channel.name, channel.far.name, f"{text} that the mux has not sent")
    for router in routers:
        for sender in router.senders:
            if _is_stuck(router, sender):
                yield BlockedResource(sender.name, sender.far.name, _reason_not_sent(router, sender))
        for receiver in router.receivers:
            lacking = _lacking(router, receiver)
            if lacking is not None:
                held = receiver.arrived - receiver.completed
                text = f"{held} of its {receiver.ring.slots} slots hold packets, the first for {lacking.name}"
                yield BlockedResource(receiver.name, lacking.name, f"{text}, which has no free slot")


def unsettled(routers: Iterable[Router], muxed: Iterable[SenderChannel] = ()) -> Iterator[str]:
    """Yield a line for each channel that still has packets, or awaits credits, at the end of the run."""
    for channel in muxed:
        yield from _unsettled_sender(channel)
    for router in routers:
        for sender in router.senders:
            yield from _unsettled_sender(sender)
        for receiver in router.receivers:
            if receiver.arrived != receiver.completed:
                yield f"{receiver.name} has received {receiver.arrived} packets, and completed {receiver.completed}"
        for far in router.fars:
            if far.used != far.returned:
                yield f"{router.name} has sent {far.used} packets to {far.name}, and {far.returned} were completed"


def _unsettled_sender(sender: SenderChannel) -> Iterator[str]:
    if sender.written != sender.sent:
        yield f"{sender.name} has {sender.written - sender.sent} packets that were not sent"
    elif sender.freed != sender.sent:
        yield f"{sender.name} has sent {sender.sent} packets, and {sender.freed} of their slots were reported free"


def _lacking(router: Router, receiver: ReceiverChannel) -> SlotCredits | None:
    """Return the credits of the full ring for which the oldest packet of a receiver waits, or None."""
    if receiver.handled >= receiver.arrived:
        return None
    slots = (receiver.downstream[way] for way in router.peek_header(receiver, receiver.handled).ways)
    return next((each for each in slots if each.free <= 0), None)


def _is_stuck(router: Router, sender: SenderChannel) -> bool:
    """Whether the sender's packets cannot be sent, or packets that the far end has not completed fill the ring."""
    if sender.sent < sender.written:
        return not router.is_open or sender.far.free < sender.needed
    return 0 < sender.ring.slots <= sender.written - sender.freed


def _reason_not_sent(router: Router, sender: SenderChannel) -> str:
    if not router.is_open:
        return "the far end of the link has not opened the fabric"
    unsent, unfreed = sender.written - sender.sent, sender.sent - sender.freed
    held = f"of its {sender.ring.slots} slots {unsent} hold packets to be sent and {unfreed} packets that are not"
    return f"{held} completed, and {sender.far.free} slots are free at the far end"
