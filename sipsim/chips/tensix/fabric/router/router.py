"""The router of an Ethernet core: one server that looks at all its channels in turn.

A look that finds nothing takes ``look_ns``; a visit that finds work takes that and the costs of its work
(``RouterCosts``), and its commands go out within it. One packet a visit. Looks that find nothing cost no event: where
the loop stands follows from the time, and what becomes ready is told. Order of the loop: :func:`in_turn`
(fabric_erisc_router.cpp). A visit sees what is there when its look begins.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from sipsim.chips.tensix.fabric.channels import FarReceiver, Handled, ReceiverChannel, SenderChannel
from sipsim.chips.tensix.fabric.packet import Hop, Way
from sipsim.chips.tensix.fabric.polling_loop import Loop
from sipsim.chips.tensix.params import RouterCosts
from sipsim.core.engine import Engine
from sipsim.core.errors import InvariantViolation
from sipsim.core.units import ns_to_ps

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
    """``name``: unique over the run. ``own``: the way of its link. ``senders`` and ``receivers`` by number and virtual
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
