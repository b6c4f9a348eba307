"""The router of an Ethernet core: one server that looks at all its channels in turn (fabric_erisc_router.cpp)."""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Final, NamedTuple, Protocol

from sipsim.chips.tensix.ethernet import Transmitter
from sipsim.chips.tensix.fabric.channels import FarReceiver, Handled, ReceiverChannel, SenderChannel
from sipsim.chips.tensix.fabric.connection import CONNECTION_BYTES, Connection
from sipsim.chips.tensix.fabric.layout import HELLO_BYTES, Layout, words
from sipsim.chips.tensix.fabric.packet import (
    Command,
    Hop,
    Target,
    Way,
    check_header,
    nbytes_of,
    next_hop,
    places,
    set_sender,
    unpack,
)
from sipsim.chips.tensix.fabric.polling_loop import Loop
from sipsim.chips.tensix.memory import TileMemory
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.params import RouterCosts
from sipsim.chips.tensix.tiles import Tiles
from sipsim.core.engine import Engine
from sipsim.core.errors import InvariantViolation, KernelMisuse
from sipsim.core.units import ns_to_ps
from sipsim.records.dump import BlockedResource

Ps = int
Channel = SenderChannel | ReceiverChannel
MOST_SENDERS = 6
"""Of a router: a worker's and those of other receivers, on all virtual channels."""
NONE = (0,) * MOST_SENDERS


class Costs(NamedTuple):
    """``RouterCosts`` in ps."""

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
    def of(cls, costs: RouterCosts) -> "Costs":
        """In ps."""
        return cls(*(ns_to_ps(getattr(costs, f"{name}_ns")) for name in cls._fields))


class Arrived(NamedTuple):
    """A packet in a receiver's slot: what is to be done with it, and the sender channel that it came from."""

    hop: Hop
    sender: int


class Machine(Protocol):
    """What a router does things with: its link, the NoC of its chip, its memory."""

    def wire_free_ps(self, now_ps: Ps) -> Ps:
        """When the transmit queue takes a packet."""

    def send_packet(self, channel: SenderChannel, at_ps: Ps) -> None:
        """Send the channel's oldest packet that was not sent into the next slot of its far receiver."""

    def send_credits(self, vc: int, completed: Sequence[int], acked: Sequence[int], at_ps: Ps) -> None:
        """Tell the far end's senders: slots completed and acknowledged, by sender channel."""

    def look_into(self, channel: ReceiverChannel, number: int) -> Arrived:
        """Packet ``number`` of a receiver."""

    def pass_on(
        self, channel: ReceiverChannel, arrived: Arrived, handled: Handled, at_ps: Ps, further_ps: Ps
    ) -> Ps | None:
        """Write and forward its oldest packet that was not handled: the first command at ``at_ps``, each further one
        ``further_ps`` later.

        Returns:
            When the last command is out; None if the router waits until :meth:`Router.resume` is called.
        """


class Router:
    """The loop of a router over its channels, in the order of :func:`in_turn`.

    A look that finds nothing takes ``look_ns``; a visit that finds work takes that and the costs of its work
    (``RouterCosts``), and its commands go out within it. One packet a visit. Looks that find nothing cost no event:
    where the loop stands follows from the time, and what becomes ready calls :meth:`wake`. A visit sees what is there
    when its look begins.

    ``name``: unique over the run. ``own``: the way of its link. ``senders`` and ``receivers`` by number and virtual
    channel, ``fars``: the receivers at the far end. ``is_acked``: receivers send first-level acknowledgements.
    ``transaction_ids``: packets of a receiver whose NoC writes may be on their way. ``has_one_server``: else each
    channel has a processor of its own. ``couples_multicasts``: a packet is written and forwarded in one step.
    """

    machine: Machine

    def __init__(
        self,
        name: str,
        own: Way,
        senders: Sequence[SenderChannel],
        receivers: Sequence[ReceiverChannel],
        fars: Sequence[FarReceiver],
        costs: RouterCosts,
        is_acked: bool,
        transaction_ids: int,
        has_one_server: bool,
        couples_multicasts: bool,
        engine: Engine,
    ) -> None:
        self.name = name
        self.own = own
        self.senders = senders
        self.receivers = receivers
        self.fars = fars
        self.is_acked = is_acked
        self._costs = Costs.of(costs)
        self._transaction_ids = transaction_ids
        self._couples_multicasts = couples_multicasts
        self._engine = engine
        channels = in_turn(senders, receivers)
        parts = [channels] if has_one_server else [[channel] for channel in channels]
        look, around = self._costs.look, self._costs.round
        self._loops = [Loop(part, look, around, self._ready_ps, self._visit, engine) for part in parts]
        self._loop_of = {id(channel): loop for part, loop in zip(parts, self._loops, strict=True) for channel in part}
        self.is_open = False

    # --- facts ----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """The far end is there: packets may be sent."""
        self.is_open = True
        self.wake()

    def packet_arrived(self, vc: int) -> None:
        """Over the link."""
        self.receivers[vc].arrived += 1
        self.wake()

    def packet_written(self, channel: SenderChannel) -> None:
        """By the upstream of a sender channel."""
        channel.written += 1
        self.wake()

    def credits_arrived(self, vc: int, completed: Sequence[int], acked: Sequence[int]) -> None:
        """From the far end, by sender channel."""
        for channel, n_completed, n_acked in zip(self.senders, completed, acked, strict=False):
            channel.credits += n_acked if self.is_acked else n_completed
        far = self.fars[vc]
        far.completed += sum(completed)
        if far.completed > far.sent:
            told = f"{far.completed} of {far.sent} packets that were sent to {far.name} are told as completed"
            raise InvariantViolation(f"{self.name}: {told}")
        self.wake()

    def wake(self) -> None:
        """Something may be ready."""
        for loop in self._loops:
            loop.wake()

    def resume(self, handled: Handled, time_ps: Ps) -> None:
        """What the visit of a packet's receiver waited for comes at ``time_ps``."""
        self._end_receiver(handled.receiver, time_ps)

    # --- visits ---------------------------------------------------------------------------------------------------

    def _ready_ps(self, channel: Channel, begin_ps: Ps) -> Ps | None:
        """From when on a visit of a channel finds work, not before ``begin_ps``, as far as is known now."""
        if isinstance(channel, SenderChannel):
            if channel.credits:
                return begin_ps
            return self.machine.wire_free_ps(begin_ps) if self.is_open and channel.may_send else None
        if self._may_handle(channel) or (self.is_acked and channel.acked < channel.arrived):
            return begin_ps
        completes_ps = channel.completes_ps
        return None if completes_ps is None else max(completes_ps, begin_ps)

    def _may_handle(self, channel: ReceiverChannel) -> bool:
        if channel.handled >= channel.arrived or len(channel.open) >= self._transaction_ids:
            return False
        hop = self.machine.look_into(channel, channel.handled).hop
        return _has_room(channel, hop) or self._may_write_ahead(channel, hop)

    def _may_write_ahead(self, channel: ReceiverChannel, hop: Hop) -> bool:
        """Whether a multicast may be written here before there is room to forward it."""
        return hop.is_local and not self._couples_multicasts and channel.ahead is None

    def _visit(self, channel: Channel, time_ps: Ps) -> None:
        if isinstance(channel, SenderChannel):
            self._visit_sender(channel, time_ps)
        else:
            self._visit_receiver(channel, time_ps)

    def _visit_sender(self, channel: SenderChannel, time_ps: Ps) -> None:
        costs = self._costs
        if channel.credits:
            time_ps += costs.credit
            channel.tell_free(channel.credits, time_ps)
            channel.freed += channel.credits
            channel.credits = 0
        if self.is_open and channel.may_send and self.machine.wire_free_ps(time_ps) <= time_ps:
            time_ps += costs.send
            self.machine.send_packet(channel, time_ps)
            channel.sent += 1
            channel.far.sent += 1
            time_ps += costs.sent
        self._loop_of[id(channel)].go_on(time_ps)

    def _visit_receiver(self, channel: ReceiverChannel, time_ps: Ps) -> None:
        costs = self._costs
        if self.is_acked and channel.acked < channel.arrived:
            time_ps += costs.ack
            sender = self.machine.look_into(channel, channel.acked).sender
            channel.acked += 1
            self.machine.send_credits(channel.vc, NONE, _at(sender, 1), time_ps)
        if self._may_handle(channel):
            end_ps = self._handle(channel, time_ps + costs.forward)
            if end_ps is None:
                return
            time_ps = end_ps
        self._end_receiver(channel, time_ps)

    def _handle(self, channel: ReceiverChannel, time_ps: Ps) -> Ps | None:
        """Write and forward the oldest packet, or write it ahead; when that is done, None if it must be waited for."""
        arrived = self.machine.look_into(channel, channel.handled)
        handled, ahead = Handled(channel, arrived.sender), channel.ahead
        hop, has_room = arrived.hop, _has_room(channel, arrived.hop)
        if ahead is not None:
            handled, hop, channel.ahead = ahead, hop._replace(is_local=False), None
        elif not has_room:
            hop, channel.ahead = hop._replace(ways=()), handled
        for way in hop.ways:
            channel.downstream[way].forwarded += 1
        further_ps = self._costs.further
        end_ps = self.machine.pass_on(channel, arrived._replace(hop=hop), handled, time_ps, further_ps)
        if has_room:
            channel.open.append(handled)
            channel.handled += 1
        return end_ps

    def _end_receiver(self, channel: ReceiverChannel, time_ps: Ps) -> None:
        """Tell the far end of all slots whose packets have left, in order."""
        completes_ps = channel.completes_ps
        if completes_ps is not None and completes_ps <= time_ps:
            time_ps += self._costs.completion
            completed = [0] * MOST_SENDERS
            while completes_ps is not None and completes_ps <= time_ps:
                handled = channel.open.popleft()
                if handled.writes:
                    what = f"{handled.writes} NoC writes of its packet have not arrived"
                    raise InvariantViolation(f"a slot of {channel.name} is told free, and {what}")
                completed[handled.sender] += 1
                channel.completed += 1
                completes_ps = channel.completes_ps
            self.machine.send_credits(channel.vc, completed, NONE, time_ps)
        self._loop_of[id(channel)].go_on(time_ps)


def in_turn(senders: Sequence[SenderChannel], receivers: Sequence[ReceiverChannel]) -> list[Channel]:
    """The order of the loop: the worker's sender channel, then of each virtual channel the receiver, and the senders
    that others fill.
    """
    found: list[Channel] = [senders[0]]
    passing = (len(senders) - 1) // len(receivers)
    for vc, receiver in enumerate(receivers):
        found += [receiver, *senders[1 + vc * passing : 1 + (vc + 1) * passing]]
    return found


def _has_room(channel: ReceiverChannel, hop: Hop) -> bool:
    """Whether a packet can be forwarded."""
    downstream = channel.downstream
    return not hop.ways or all(downstream[way].free > 0 for way in hop.ways)


def _at(sender: int, count: int) -> Sequence[int]:
    """``count`` for one of the sender channels."""
    return [count if each == sender else 0 for each in range(MOST_SENDERS)]


def blocked(routers: Iterable[Router], muxed: Iterable[SenderChannel] = ()) -> Iterator[BlockedResource]:
    """The channels that hold packets which cannot go on, with the channels that have no room for them. ``muxed``: the
    channels of muxes.
    """
    for channel in muxed:
        if channel.sent < channel.written:
            text = f"{channel.written - channel.sent} of its {channel.ring.slots} slots hold packets"
            yield BlockedResource(channel.name, channel.far.name, f"{text} that the mux has not sent")
    for router in routers:
        for sender in router.senders:
            if _is_stuck(router, sender):
                yield BlockedResource(sender.name, sender.far.name, _why_not_sent(router, sender))
        for receiver in router.receivers:
            lacking = _lacking(router, receiver)
            if lacking is not None:
                held = receiver.arrived - receiver.completed
                text = f"{held} of its {receiver.ring.slots} slots hold packets, the first for {lacking.name}"
                yield BlockedResource(receiver.name, lacking.name, f"{text}, which has no free slot")


def unsettled(routers: Iterable[Router], muxed: Iterable[SenderChannel] = ()) -> Iterator[str]:
    """Where packets or credits are missing once all is quiet: a line each."""
    for channel in muxed:
        yield from _unsettled_sender(channel)
    for router in routers:
        for sender in router.senders:
            yield from _unsettled_sender(sender)
        for receiver in router.receivers:
            if receiver.arrived != receiver.completed:
                yield f"{receiver.name} has taken {receiver.arrived} packets, and completed {receiver.completed}"
        for far in router.fars:
            if far.sent != far.completed:
                yield f"{router.name} has sent {far.sent} packets to {far.name}, and {far.completed} were completed"


def _unsettled_sender(sender: SenderChannel) -> Iterator[str]:
    if sender.written != sender.sent:
        yield f"{sender.name} has {sender.written - sender.sent} packets that were not sent"
    elif sender.freed != sender.sent:
        yield f"{sender.name} has sent {sender.sent} packets, and {sender.freed} of their slots were told free"


def _lacking(router: Router, receiver: ReceiverChannel) -> SenderChannel | None:
    """The channel without room that the oldest packet of a receiver waits for."""
    if receiver.handled >= receiver.arrived:
        return None
    ways = router.machine.look_into(receiver, receiver.handled).hop.ways
    full = (receiver.downstream[way] for way in ways if receiver.downstream[way].free <= 0)
    return next((each.channel for each in full), None)


def _is_stuck(router: Router, sender: SenderChannel) -> bool:
    """Whether its packets cannot be sent, or its slots are all taken by packets that were."""
    if sender.sent < sender.written:
        return not router.is_open or sender.far.free < sender.needed
    return 0 < sender.ring.slots <= sender.written - sender.freed


def _why_not_sent(router: Router, sender: SenderChannel) -> str:
    if not router.is_open:
        return "the far end of the link has not opened the fabric"
    unsent, unfreed = sender.written - sender.sent, sender.sent - sender.freed
    held = f"of its {sender.ring.slots} slots {unsent} hold packets to be sent and {unfreed} packets that are not"
    return f"{held} completed, and {sender.far.free} slots are free at the far end"


CREDITS: Final = struct.Struct(f"<BB{MOST_SENDERS}B{MOST_SENDERS}Bxx")
"""Virtual channel, a byte that is kept, and by sender channel slots completed and slots acknowledged."""

NOT_YOURS: Final = "kernels write into slots and the words of connections alone"
GREETING: Final = b"fabric "
"""How a hello begins."""


def hello_of(contract: str) -> bytes:
    """A hello: what does not fit is cut off, and a hash of all stands for it."""
    told = GREETING + contract.encode()
    if len(told) > HELLO_BYTES:
        cut = f"... {sha256(told).hexdigest()[:8]}".encode()
        told = told[: HELLO_BYTES - len(cut)] + cut
    return told.ljust(HELLO_BYTES)


def _nothing() -> None:
    """Nobody waits for a write."""


class Flush(NamedTuple):
    """An increment that goes out at ``at_ps``, and behind the writes of the packets ``behind``."""

    target: Target
    handled: Handled
    behind: tuple[Handled, ...]
    at_ps: Ps


class RouterMachine:
    """What the router on tile ``core`` works on: the link and the memory of its Ethernet core, and the NoC of its chip.

    ``contract``: what both ends of the link must agree on, as text. ``stored_bytes``: of a packet, in each Ethernet
    subsystem.
    """

    def __init__(
        self,
        router: Router,
        core: Core,
        layout: Layout,
        contract: str,
        tiles: Tiles,
        transmitter: Transmitter,
        engine: Engine,
        stored_bytes: int,
    ) -> None:
        self.router = router
        self.core = core
        self.layout = layout
        self._contract = hello_of(contract)
        self._tiles = tiles
        self._memory: TileMemory = tiles.memory(core)
        self._transmitter = transmitter
        self._engine = engine
        self._stored_bytes = stored_bytes
        self._looked: dict[tuple[int, int], tuple[int, Arrived]] = {}
        self._neighbours: dict[Way, RouterMachine] = {}
        self._flushes: dict[int, Flush] = {}
        self.connection = Connection(f"{router.name} sender 0", router.senders[0], self._to_worker)
        self._notes: dict[int, Callable[[], None]] = {
            layout.hello: self._hello,
            layout.credits: self._credits,
            layout.connection: self._connection_word,
        }
        for receiver in router.receivers:
            arrived = partial(router.packet_arrived, receiver.vc)
            self._notes |= dict.fromkeys(receiver.ring.addresses(), arrived)
        for address in router.senders[0].ring.addresses():
            self._notes[address] = partial(self._written_by_worker, address)
        self._memory.clear(layout.connection, CONNECTION_BYTES)
        self._memory.watchers.append(self._note)
        self._memory.kept = range(layout.base, layout.end)
        router.machine = self

    def join(self, onward: Way, other: "RouterMachine") -> None:
        """Receivers here forward into sender channels of another router of this chip, whose link leads ``onward``."""
        self._neighbours[onward] = other

    def say_hello(self) -> None:
        """Tell the far end what this one is; it may have done so before."""
        self._transmitter.send_at(self._engine.now_ps, self.layout.hello, self._contract, self._stored_bytes)
        if self._memory.read(self.layout.hello, len(GREETING)) == GREETING:
            self._hello()

    # --- what a router does ---------------------------------------------------------------------------------------

    def wire_free_ps(self, now_ps: Ps) -> Ps:
        return self._transmitter.all_started_ps(now_ps)

    def send_packet(self, channel: SenderChannel, at_ps: Ps) -> None:
        shape, address = self.layout.shape, channel.ring.address(channel.sent)
        header = self._memory.read(address, shape.header_bytes)
        payload = self._memory.read(address + shape.header_bytes, words(nbytes_of(header)))
        data = set_sender(header, channel.number) + payload + bytes(shape.suffix_bytes)
        self._transmitter.send_at(at_ps, channel.far.ring.address(channel.far.sent), data, self._stored_bytes)

    def send_credits(self, vc: int, completed: Sequence[int], acked: Sequence[int], at_ps: Ps) -> None:
        data = CREDITS.pack(vc, 0, *completed, *acked)
        self._transmitter.send_between(at_ps, self.layout.credits, data)

    def look_into(self, channel: ReceiverChannel, number: int) -> Arrived:
        slot = channel.vc, number % channel.ring.slots
        looked = self._looked.get(slot)
        if looked is None or looked[0] != number:
            header = self._memory.read(channel.ring.address(number), self.layout.shape.header_bytes)
            if header[4] >= len(self.layout.shape.senders):
                raise KernelMisuse(f"a packet at {channel.name} is of no router: {header.hex()}; {NOT_YOURS}")
            hop = self._hop_of(header, channel)
            for way in hop.ways:
                if way not in channel.downstream:
                    what = f"the route of a packet leads {way.name} from {channel.name}, where the fabric has no link"
                    raise KernelMisuse(f"{what}; give it fewer hops")
            looked = self._looked[slot] = number, Arrived(hop, header[4])
        return looked[1]

    def _hop_of(self, header: bytes, channel: ReceiverChannel) -> Hop:
        hop = next_hop(header, self.router.own)
        if not hop.ways and not hop.is_local:
            raise KernelMisuse(f"a packet at {channel.name} has no route on: {header.hex()}")
        return hop

    def pass_on(
        self, channel: ReceiverChannel, arrived: Arrived, handled: Handled, at_ps: Ps, further_ps: Ps
    ) -> Ps | None:
        address, hop = channel.ring.address(channel.handled), arrived.hop
        nbytes = nbytes_of(hop.header)
        payload = self._memory.read(address + len(hop.header), nbytes)
        commands = 0
        for way in hop.ways:
            downstream, other = channel.downstream[way], self._neighbours[way]
            to = downstream.channel.ring.address(downstream.forwarded - 1)
            written = partial(other.router.packet_written, downstream.channel)
            self._write(other.core, to, hop.header + payload, at_ps + commands * further_ps, handled, written)
            commands += 1
        if not hop.is_local:
            return at_ps + (commands - 1) * further_ps
        return self._finish(unpack(hop.header).target, payload, at_ps + commands * further_ps, further_ps, handled)

    def _finish(self, target: Target, payload: bytes, at_ps: Ps, further_ps: Ps, handled: Handled) -> Ps | None:
        """The packet's command on this chip."""
        for core, address, nbytes in places(target, len(payload)):
            if self._tiles.memory(core).is_kept(address, nbytes):
                what = f"a packet for {nbytes} B at 0x{address:x} of core {core} came to {self.router.name}"
                raise KernelMisuse(f"{what}, and a router of the fabric has these; {NOT_YOURS}")
        if target.command is Command.INCREMENT:
            if target.is_flushed:
                return self._increment_flushed(target, at_ps, handled)
            self._increment(target, at_ps)
            return at_ps
        if target.command is Command.WRITE:
            self._write(target.core, target.address, payload, at_ps, handled)
            return at_ps
        if target.command is Command.SCATTER:
            first, rest = payload[: target.first_bytes], payload[target.first_bytes :]
            self._write(target.core, target.address, first, at_ps, handled)
            self._write(target.increment_core, target.increment_address, rest, at_ps + further_ps, handled)
            return at_ps + further_ps
        increment_ps = at_ps + further_ps
        if target.is_flushed:
            return self._finish_flushed(target, payload, at_ps, increment_ps, handled)
        if target.core == target.increment_core:
            # One way of the NoC keeps the order.
            self._write(target.core, target.address, payload, at_ps, handled)
            self._increment(target, increment_ps)
        else:
            written = partial(self._raise, target, increment_ps)
            self._write(target.core, target.address, payload, at_ps, handled, written)
        return increment_ps

    def _finish_flushed(
        self, target: Target, payload: bytes, at_ps: Ps, increment_ps: Ps, handled: Handled
    ) -> Ps | None:
        """Write the payload; the increment goes out behind it and behind what packets before it have open."""
        has_open = any(each.writes for each in handled.receiver.open)
        if has_open or target.core != target.increment_core:
            self._write(target.core, target.address, payload, at_ps, handled)
            return self._increment_flushed(target, increment_ps, handled)
        # One way of the NoC keeps the order of both, so that the flush only keeps the router.
        written = partial(self._flushed, handled, increment_ps)
        self._write(target.core, target.address, payload, at_ps, handled, written)
        self._increment(target, increment_ps)
        return None

    def _flushed(self, handled: Handled, least_ps: Ps) -> None:
        """The write of a packet has arrived; the router goes on when that was acknowledged."""
        self.router.resume(handled, max(handled.left_ps, least_ps))

    def _increment_flushed(self, target: Target, at_ps: Ps, handled: Handled) -> Ps | None:
        """Behind all writes of its receiver that are open, those of packets before it, too."""
        receiver = handled.receiver
        flush = Flush(target, handled, (*receiver.open, handled), at_ps)
        end_ps = self._flush(flush)
        if end_ps is None:
            self._flushes[receiver.vc] = flush
        return end_ps

    def _flush(self, flush: Flush) -> Ps | None:
        """Issue the increment when all writes before it are acknowledged: when that is, None if it is not known."""
        if any(each.writes for each in flush.behind):
            return None
        at_ps = max(flush.at_ps, *(each.left_ps for each in flush.behind))
        self._increment(flush.target, at_ps)
        return at_ps

    def _go_on(self, vc: int) -> None:
        """A write of a receiver has arrived, for which a flush may wait."""
        end_ps = self._flush(self._flushes[vc])
        if end_ps is not None:
            self.router.resume(self._flushes.pop(vc).handled, end_ps)

    def _raise(self, target: Target, increment_ps: Ps) -> None:
        """The write has arrived on another tile than the increment's, which comes behind it."""
        self._increment(target, max(increment_ps, self._engine.now_ps))

    def _write(
        self,
        core: Core,
        address: int,
        data: bytes,
        at_ps: Ps,
        handled: Handled,
        written: Callable[[], None] = _nothing,
    ) -> None:
        handled.writes += 1

        def arrived(acknowledged_ps: Ps) -> None:
            handled.writes -= 1
            handled.left_ps = max(handled.left_ps, acknowledged_ps)
            written()
            if handled.receiver.vc in self._flushes:
                self._go_on(handled.receiver.vc)
            self.router.wake()

        self._tiles.deliver(self.core, core, address, data, self.router.name, at_ps - self._engine.now_ps, arrived)

    def _increment(self, target: Target, at_ps: Ps) -> None:
        delay_ps, at = at_ps - self._engine.now_ps, (target.increment_core, target.increment_address)
        self._tiles.deliver_increment(self.core, *at, target.value, delay_ps, is_behind_writes=True)

    # --- what is written into its memory --------------------------------------------------------------------------

    def _note(self, address: int, _nbytes: int, _writer: str) -> None:
        found = self._notes.get(address)
        if found is not None:
            found()

    def _hello(self) -> None:
        told = self._memory.read(self.layout.hello, HELLO_BYTES)
        if told != self._contract:
            here, there = (
                each.removeprefix(GREETING).decode(errors="replace").rstrip() for each in (self._contract, told)
            )
            what = "both ends of its link must be of one fabric"
            raise KernelMisuse(f"{self.router.name}: {what}; here is {here}, there {there}")
        self.router.open()

    def _credits(self) -> None:
        vc, _, *counts = CREDITS.unpack(self._memory.read(self.layout.credits, CREDITS.size))
        if vc >= len(self.router.fars):
            raise KernelMisuse(f"{self.router.name}: what was written into its words for credits is none; {NOT_YOURS}")
        self.router.credits_arrived(vc, counts[:MOST_SENDERS], counts[MOST_SENDERS:])

    def _connection_word(self) -> None:
        self.connection.told(self._memory.read(self.layout.connection, 16))

    def _written_by_worker(self, address: int) -> None:
        self.connection.written(address)
        shape = self.layout.shape
        check_header(self._memory.read(address, shape.header_bytes), shape.payload_bytes, self._tiles.problem_of)
        self.router.packet_written(self.router.senders[0])

    def _to_worker(self, core: Core, address: int, value: int, at_ps: Ps) -> None:
        self._tiles.deliver_increment(self.core, core, address, value, max(at_ps - self._engine.now_ps, 0))
