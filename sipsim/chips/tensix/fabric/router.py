"""The router of an Ethernet core: one server that looks at all its channels in turn (fabric_erisc_router.cpp)."""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Final, NamedTuple

from sipsim.chips.tensix.ethernet import Transmitter
from sipsim.chips.tensix.fabric.channels import Handled, ReceiverChannel, SenderChannel, SlotCredits
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
    target_of,
)
from sipsim.chips.tensix.fabric.polling_loop import Loop
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.params import FabricParams, RouterCosts
from sipsim.chips.tensix.tiles import Tiles
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


class FabricProtocol(NamedTuple):
    """What the routers of a fabric on one chip have in common. ``hello``: what both ends of a link must agree on.

    ``is_acked``: receivers send first-level acknowledgements. ``needs_bubble``: a worker's packet needs two free slots
    at the far end. ``params``: those of every fabric; ``costs``: of this one.
    """

    hello: bytes
    is_acked: bool
    needs_bubble: bool
    params: FabricParams
    costs: Costs


class Flush(NamedTuple):
    """An increment that goes out at ``at_ps``, and behind the writes of the packets ``behind``."""

    target: Target
    handled: Handled
    behind: tuple[Handled, ...]
    at_ps: Ps


class Router:
    """The router at the link that leaves by ``way``: a loop over its channels, in the order of :func:`in_turn`.

    A look that finds nothing takes ``look_ns``; a visit that finds work takes that and the costs of its work
    (``RouterCosts``), and its commands go out within it. One packet a visit. Looks that find nothing cost no event:
    where the loop stands follows from the time, and what becomes ready calls :meth:`wake`. A visit sees what is there
    when its look begins.

    ``name``: unique over the run. ``fars``: the receivers at the far end, by virtual channel. ``transmitter``: of its
    link; the router runs on the core of that.
    """

    def __init__(
        self,
        name: str,
        way: Way,
        layout: Layout,
        fars: Sequence[SlotCredits],
        protocol: FabricProtocol,
        transmitter: Transmitter,
        tiles: Tiles,
    ) -> None:
        self.name = name
        self.way = way
        self.layout = layout
        self.fars = fars
        self.core = transmitter.core
        self.is_open = False
        self.senders = [self._sender(number, protocol) for number in range(len(layout.shape.senders))]
        self.receivers = [ReceiverChannel(f"{name} receiver {vc}", vc, layout.receiver(vc)) for vc in range(len(fars))]
        self.connection = Connection(f"{name} sender 0", self.senders[0], self._to_worker)
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
        self._loops = [Loop(part, look, around, self._ready_ps, self._visit, self._engine) for part in parts]
        self._loop_of = {id(channel): loop for part, loop in zip(parts, self._loops, strict=True) for channel in part}
        self._hops: dict[tuple[int, int], tuple[int, Hop]] = {}
        self._onward: dict[tuple[int, Way], tuple[Router, SenderChannel]] = {}
        self._flushes: dict[int, Flush] = {}
        self._watch()

    def _sender(self, number: int, protocol: FabricProtocol) -> SenderChannel:
        passing = (len(self.layout.shape.senders) - 1) // len(self.fars)
        far = self.fars[(number - 1) // passing if number else 0]
        needed = 2 if number == 0 and protocol.needs_bubble else 1
        return SenderChannel(f"{self.name} sender {number}", number, self.layout.sender(number), far, needed)

    def _watch(self) -> None:
        """Hear of what is written into its words and rings, which are its own from now on."""
        layout, memory = self.layout, self._memory
        memory.clear(layout.connection, CONNECTION_BYTES)
        memory.kept = range(layout.base, layout.end)
        memory.watch(layout.hello, self._hello)
        memory.watch(layout.credits, self._credits)
        memory.watch(layout.connection, self._connection_word)
        for receiver in self.receivers:
            for address in receiver.ring.addresses():
                memory.watch(address, partial(self._packet_arrived, receiver))
        for address in self.senders[0].ring.addresses():
            memory.watch(address, partial(self._written_by_worker, address))

    def join(self, receiver: ReceiverChannel, other: "Router", channel: SenderChannel) -> None:
        """Have a receiver here forward into a sender channel of another router of this chip."""
        slots = receiver.downstream[other.way] = SlotCredits(channel.name, channel.ring)
        self._onward[receiver.vc, other.way] = other, channel

        def is_free(count: int, at_ps: Ps) -> None:
            def told() -> None:
                slots.returned += count
                self.wake()

            self._tiles.tell(other.core, self.core, max(at_ps - self._engine.now_ps, 0), told)

        channel.tell_free = is_free

    def say_hello(self) -> None:
        """Tell the far end what this one is; it may have done so before."""
        stored_bytes = self._protocol.params.copy_bytes
        self._transmitter.send_at(self._engine.now_ps, self.layout.hello, self._protocol.hello, stored_bytes)
        if self._memory.read(self.layout.hello, len(GREETING)) == GREETING:
            self._hello()

    # --- facts ----------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something may be ready."""
        for loop in self._loops:
            loop.wake()

    def packet_written(self, channel: SenderChannel) -> None:
        """By the upstream of a sender channel."""
        channel.written += 1
        self.wake()

    def _packet_arrived(self, channel: ReceiverChannel, _writer: str) -> None:
        channel.arrived += 1
        self.wake()

    def _hello(self, _writer: str = "") -> None:
        """The far end is there: packets may be sent."""
        here, there = self._protocol.hello, self._memory.read(self.layout.hello, HELLO_BYTES)
        if there != here:
            own, other = (each.removeprefix(GREETING).decode(errors="replace").rstrip() for each in (here, there))
            what = "both ends of its link must be of one fabric"
            raise KernelMisuse(f"{self.name}: {what}; here is {own}, there {other}")
        self.is_open = True
        self.wake()

    def _credits(self, _writer: str) -> None:
        vc, _, *counts = CREDITS.unpack(self._memory.read(self.layout.credits, CREDITS.size))
        if vc >= len(self.fars):
            raise KernelMisuse(f"{self.name}: what was written into its words for credits is none; {NOT_YOURS}")
        self.credits_arrived(vc, counts[:MOST_SENDERS], counts[MOST_SENDERS:])

    def credits_arrived(self, vc: int, completed: Sequence[int], acked: Sequence[int]) -> None:
        """From the far end, by sender channel."""
        for channel, n_completed, n_acked in zip(self.senders, completed, acked, strict=False):
            channel.credits += n_acked if self._is_acked else n_completed
        far = self.fars[vc]
        far.returned += sum(completed)
        if far.returned > far.used:
            told = f"{far.returned} of {far.used} packets that were sent to {far.name} are told as completed"
            raise InvariantViolation(f"{self.name}: {told}")
        self.wake()

    def _connection_word(self, _writer: str) -> None:
        self.connection.told(self._memory.read(self.layout.connection, 16))

    def _written_by_worker(self, address: int, _writer: str) -> None:
        self.connection.written(address)
        shape = self.layout.shape
        check_header(self._memory.read(address, shape.header_bytes), shape.payload_bytes, self._tiles.problem_of)
        self.packet_written(self.senders[0])

    # --- visits ---------------------------------------------------------------------------------------------------

    def _ready_ps(self, channel: Channel, begin_ps: Ps) -> Ps | None:
        """From when on a visit of a channel finds work, not before ``begin_ps``, as far as is known now."""
        if isinstance(channel, SenderChannel):
            if channel.credits:
                return begin_ps
            return self._transmitter.all_started_ps(begin_ps) if self.is_open and channel.may_send else None
        if self._may_handle(channel) or (self._is_acked and channel.acked < channel.arrived):
            return begin_ps
        completes_ps = channel.completes_ps
        return None if completes_ps is None else max(completes_ps, begin_ps)

    def _may_handle(self, channel: ReceiverChannel) -> bool:
        """Whether there is a packet, and a free slot on each way on: it is written here and forwarded in one step."""
        if channel.handled >= channel.arrived or len(channel.open) >= self._protocol.params.transaction_ids:
            return False
        ways, downstream = self.look_into(channel, channel.handled).ways, channel.downstream
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
            channel.tell_free(channel.credits, time_ps)
            channel.freed += channel.credits
            channel.credits = 0
        if self.is_open and channel.may_send and self._transmitter.all_started_ps(time_ps) <= time_ps:
            time_ps += costs.send
            self._send_packet(channel, time_ps)
            channel.sent += 1
            channel.far.used += 1
            time_ps += costs.sent
        self._loop_of[id(channel)].go_on(time_ps)

    def _visit_receiver(self, channel: ReceiverChannel, time_ps: Ps) -> None:
        costs = self._costs
        if self._is_acked and channel.acked < channel.arrived:
            time_ps += costs.ack
            sender = self.look_into(channel, channel.acked).sender
            channel.acked += 1
            self.send_credits(channel.vc, NONE, _at(sender, 1), time_ps)
        if self._may_handle(channel):
            hop = self.look_into(channel, channel.handled)
            handled = Handled(channel, hop.sender)
            end_ps = self._pass_on(channel, hop, handled, time_ps + costs.forward)
            channel.open.append(handled)
            channel.handled += 1
            if end_ps is None:
                return
            time_ps = end_ps
        self._end_receiver(channel, time_ps)

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
            self.send_credits(channel.vc, completed, NONE, time_ps)
        self._loop_of[id(channel)].go_on(time_ps)

    # --- what visits do ---------------------------------------------------------------------------------------------

    def _send_packet(self, channel: SenderChannel, at_ps: Ps) -> None:
        """Send the channel's oldest packet that was not sent into the next slot of its far receiver."""
        shape, address = self.layout.shape, channel.ring.address(channel.sent)
        header = self._memory.read(address, shape.header_bytes)
        payload = self._memory.read(address + shape.header_bytes, words(nbytes_of(header)))
        data = set_sender(header, channel.number) + payload + bytes(shape.suffix_bytes)
        to = channel.far.ring.address(channel.far.used)
        self._transmitter.send_at(at_ps, to, data, self._protocol.params.copy_bytes)

    def send_credits(self, vc: int, completed: Sequence[int], acked: Sequence[int], at_ps: Ps) -> None:
        """Tell the far end's senders: slots completed and acknowledged, by sender channel."""
        data = CREDITS.pack(vc, 0, *completed, *acked)
        self._transmitter.send_between(at_ps, self.layout.credits, data)

    def look_into(self, channel: ReceiverChannel, number: int) -> Hop:
        """What is to be done with packet ``number`` of a receiver."""
        slot = channel.vc, number % channel.ring.slots
        looked = self._hops.get(slot)
        if looked is None or looked[0] != number:
            header = self._memory.read(channel.ring.address(number), self.layout.shape.header_bytes)
            hop = next_hop(header, self.way)
            if hop.sender >= len(self.layout.shape.senders):
                raise KernelMisuse(f"a packet at {channel.name} is of no router: {header.hex()}; {NOT_YOURS}")
            if not hop.ways and not hop.is_local:
                raise KernelMisuse(f"a packet at {channel.name} has no route on: {header.hex()}")
            for way in hop.ways:
                if way not in channel.downstream:
                    what = f"the route of a packet leads {way.name} from {channel.name}, where the fabric has no link"
                    raise KernelMisuse(f"{what}; give it fewer hops")
            looked = self._hops[slot] = number, hop
        return looked[1]

    def _pass_on(self, channel: ReceiverChannel, hop: Hop, handled: Handled, at_ps: Ps) -> Ps | None:
        """Write and forward its oldest packet that was not handled: the first command at ``at_ps``, and each further
        one after its cost.

        Returns:
            When the last command is out; None if the router waits until a write of the packet has arrived.
        """
        address, further_ps = channel.ring.address(channel.handled), self._costs.further
        payload = self._memory.read(address + len(hop.header), nbytes_of(hop.header))
        commands = 0
        for way in hop.ways:
            slots, (other, into) = channel.downstream[way], self._onward[channel.vc, way]
            to = slots.ring.address(slots.used)
            slots.used += 1
            written = partial(other.packet_written, into)
            self._write(other.core, to, hop.header + payload, at_ps + commands * further_ps, handled, written)
            commands += 1
        if not hop.is_local:
            return at_ps + (commands - 1) * further_ps
        return self._finish(target_of(hop.header), payload, at_ps + commands * further_ps, handled)

    def _finish(self, target: Target, payload: bytes, at_ps: Ps, handled: Handled) -> Ps | None:
        """The packet's command on this chip; returns as :meth:`_pass_on`."""
        further_ps = self._costs.further
        for core, address, nbytes in places(target, len(payload)):
            if self._tiles.memory(core).is_kept(address, nbytes):
                what = f"a packet for {nbytes} B at 0x{address:x} of core {core} came to {self.name}"
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
        self._end_receiver(handled.receiver, max(handled.left_ps, least_ps))

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
            self._end_receiver(self._flushes.pop(vc).handled.receiver, end_ps)

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
        written: Callable[[], None] | None = None,
    ) -> None:
        handled.writes += 1

        def arrived(acknowledged_ps: Ps) -> None:
            handled.writes -= 1
            handled.left_ps = max(handled.left_ps, acknowledged_ps)
            if written is not None:
                written()
            if handled.receiver.vc in self._flushes:
                self._go_on(handled.receiver.vc)
            self.wake()

        self._tiles.deliver(self.core, core, address, data, self.name, at_ps - self._engine.now_ps, arrived)

    def _increment(self, target: Target, at_ps: Ps) -> None:
        delay_ps, at = at_ps - self._engine.now_ps, (target.increment_core, target.increment_address)
        self._tiles.deliver_increment(self.core, *at, target.value, delay_ps, is_behind_writes=True)

    def _to_worker(self, core: Core, address: int, value: int, at_ps: Ps) -> None:
        self._tiles.deliver_increment(self.core, core, address, value, max(at_ps - self._engine.now_ps, 0))


def in_turn(senders: Sequence[SenderChannel], receivers: Sequence[ReceiverChannel]) -> list[Channel]:
    """The order of the loop: the worker's sender channel, then of each virtual channel the receiver, and the senders
    that others fill.
    """
    found: list[Channel] = [senders[0]]
    passing = (len(senders) - 1) // len(receivers)
    for vc, receiver in enumerate(receivers):
        found += [receiver, *senders[1 + vc * passing : 1 + (vc + 1) * passing]]
    return found


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
            if far.used != far.returned:
                yield f"{router.name} has sent {far.used} packets to {far.name}, and {far.returned} were completed"


def _unsettled_sender(sender: SenderChannel) -> Iterator[str]:
    if sender.written != sender.sent:
        yield f"{sender.name} has {sender.written - sender.sent} packets that were not sent"
    elif sender.freed != sender.sent:
        yield f"{sender.name} has sent {sender.sent} packets, and {sender.freed} of their slots were told free"


def _lacking(router: Router, receiver: ReceiverChannel) -> SlotCredits | None:
    """The ring without room that the oldest packet of a receiver waits for."""
    if receiver.handled >= receiver.arrived:
        return None
    slots = (receiver.downstream[way] for way in router.look_into(receiver, receiver.handled).ways)
    return next((each for each in slots if each.free <= 0), None)


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
