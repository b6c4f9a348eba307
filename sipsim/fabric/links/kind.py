"""Link kinds and their ports: bytes on the wire for a payload, bandwidth, latency, and the near end of a link.

A kind is a frozen struct of parameters, against which ``links.yaml`` is checked, with one method, ``wire_bytes``. If a
kind needs a special port class, :meth:`AnyLinkKind.open` returns it. The kind computes the values that the broker needs
before any port exists: ``lookahead_ps``, ``reaction_ps``, ``answer_ps``. A new kind is one new module, named in
``LINK_KINDS``.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import msgspec
from msgspec import Meta

from broker.ids import MAX_PS
from sipsim.config.schema import Resolved, Section
from sipsim.core.engine import Engine
from sipsim.core.registry import Registry
from sipsim.core.units import drain_ps, gbytes_per_s_to_bps, ns_to_ps
from sipsim.fabric.graph import Done, Edge, Node, Route, link_edge
from sipsim.fabric.links.frames import Frame, Packet, Small, Tail, encode, packet_kind
from sipsim.fabric.links.outages import Crossing, Loss, Losses, Outage, OutageUse, Retransmitter, joined_loss
from sipsim.fabric.transport import Train, Transport
from sipsim.topology.links import SipLink, link_presets

if TYPE_CHECKING:
    from sipsim.fabric.buffered.fabric import BufferedFabric


@packet_kind
class LinkCredit(Packet, tag=9):
    """Credit of a link's finite buffer: ``places`` of a virtual channel are free at the port that sends the credit."""

    vc: Small
    places: Small


class FarCredits:
    """Credits of a port for the finite buffers at both ends of its link (:mod:`sipsim.fabric.buffered.fabric`).

    A credit is a message of ``PortContext.credit_bytes`` that competes for the link with the frames of its virtual
    channel, and takes no place. A port sends a credit as soon as a frame has left the buffer, and a waiting frame as
    soon as a credit arrives. So such a port may answer an arrival at once (``SipNetwork.answers_ps``).

    ``announce()`` returns the number of a credit that may be sent from now on; ``send(credit, number)`` sends it.
    """

    def __init__(
        self,
        link: Edge,
        buffers: "BufferedFabric",
        announce: Callable[[], int],
        send: Callable[[LinkCredit, int], None],
    ) -> None:
        self._link = link
        self._buffers = buffers
        self.announce = announce
        self._send = send
        buffers.join(link, self)

    def left(self, number: int, vc: int, places: int) -> None:
        """Send a credit for a frame that has left the buffer of this port."""
        self._send(LinkCredit(vc, places), number)

    def take(self, credit: LinkCredit) -> bool:
        """Take a credit of the far end; return False for a credit that the far end cannot have sent."""
        return self._buffers.credit(self._link, credit.vc, credit.places)


Ps = int


class PortContext(NamedTuple):
    """Node and link of a port, and the parts of its SIP that the port uses.

    ``channel``: the number of the link's channel. ``far_sip``: the SIP at the link's far end. ``emit(channel,
    arrival_ps, body)`` sends a packet. ``on_frame(node, frame)`` starts the transfer of a frame that arrives at the
    port's node, and returns the transfer. ``credit_bytes``: the size of a credit for the link's finite buffer.
    """

    node: Node
    channel: int
    far_sip: int
    engine: Engine
    fabric: Transport
    emit: Callable[[int, Ps, bytes], None]
    on_frame: Callable[[Node, Frame], Any]
    chunk_bytes: int
    credit_bytes: int = 0
    link_name: str = ""
    outages: tuple[Outage, ...] = ()


class _Arrival:
    """Frame whose first packet has arrived: its transfer, when its first byte arrived, and the port's delay of it."""

    __slots__ = ("delay_ps", "has_ended", "head_ps", "transfer")

    def __init__(self, delay_ps: Ps = 0) -> None:
        self.delay_ps = delay_ps
        self.transfer: Any = None
        self.head_ps: Ps = 0
        self.has_ended = False


class _PartlySent(NamedTuple):
    """Frame whose first packet is sent: when that packet would arrive without outages, and its loss, if any."""

    first_ps: Ps
    loss: Loss | None


class Port:
    """Near end of a link between SIPs, for frames that leave by the link and frames that arrive from it.

    The link is the last edge of the transfer that brings a frame to the port.

    A frame is *sent* when its last byte leaves its source (with finite buffers: when its last packet starts on the
    link); it arrives with its last byte. A frame of several packets (``LinkKind.first_bytes``) is sent twice: as a
    :class:`~sipsim.fabric.links.frames.Frame` when its first packet leaves its source, so that it shares the edges of
    the far SIP while it arrives, and as a ``Tail`` when its last byte leaves. Outages of the link may delay both; a
    frame that has lost packets has no ``Tail``, as the run ends. A port class that overrides :meth:`leave`, and SIPs
    with finite buffers, send each frame once. A link kind with other rules returns a subclass from ``LinkKind.open``.
    Such a port may send later, but

    * no packet arrives sooner than the channel's lookahead after it was sent (``LinkKind.lookahead_ps``);
    * nothing is sent before :meth:`earliest_send_ps`; packets that the port's events will send are announced;
    * a packet that the port sends because of an arrival leaves no sooner than ``LinkKind.answer_ps`` later;
    * frames of one virtual channel arrive in the order of their calls of :meth:`send`.

    ``Session.emit`` ends a run that violates one of the first three rules. PE_IPCQ ends a run that violates the fourth
    within a queue pair. Credits on a separate wire and control packets of the barrier do not pass a port.

    ``bytes_sent``, ``credit_bytes``: bytes of data, and of frames without data, sent so far. ``port_frames``: types of
    frames that ports send each other (:meth:`send_own`), such as acknowledgements. These have no delivery; a subclass
    handles them in :meth:`receive`.
    """

    port_frames: ClassVar[tuple[type, ...]] = ()

    def __init__(self, link: "AnyLinkKind", context: PortContext) -> None:
        self.link = link
        self.node = context.node
        self.bytes_sent = 0
        self.credit_bytes = 0
        self._context = context
        self._under_way: dict[Train, int] = {}
        self._announced: dict[int, Ps] = {}
        self._partly_sent: dict[int, _PartlySent] = {}
        self._arriving: dict[int, _Arrival] = {}
        self._count = 0
        self._own_route = Route(
            self.node, 0, (link_edge(str(self.node.place), link.latency_ps, link.bandwidth_bps, link),)
        )
        self._retransmitter: Retransmitter | None = None
        if context.outages:
            self._retransmitter = Retransmitter(
                link.latency_ps, link.bandwidth_bps, context.outages, again=link.sends_again
            )
        self._sends_twice = type(self).leave is Port.leave
        self._losses = Losses(context.link_name, context.engine)
        self.far_credits: FarCredits | None = None
        buffers = context.fabric.far_buffers
        if buffers is not None:
            self.far_credits = FarCredits(self._own_route.edges[0], buffers, self._announce_now, self._send_credit)

    def earliest_send_ps(self, next_ps: Ps) -> Ps:
        """Return a time before which no announced packet is sent. ``next_ps``: the next local event. Packets that are
        not announced leave at least the SIP's egress later; a port that can send them sooner returns less.

        The bound for a frame under way is when its first packet, or last byte, leaves the source if no other transfer
        delays it. So the bound holds whatever the fabric decides later.
        """
        if not (self._under_way or self._announced):
            return MAX_PS
        now_ps = self._context.engine.now_ps
        least = [train.least_mail_ps(now_ps) for train in self._under_way]
        return min([*least, *self._announced.values()])

    def send(
        self, frame: Frame, route: Route, train: Any, delay_ps: Ps = 0, left: Done | None = None, is_fed: bool = False
    ) -> Any:
        """Start the transfer of a frame over ``route`` to the link's end, after the earlier frames of ``train``. The
        port calls :meth:`leave` when the frame is sent.

        ``left``, ``is_fed``, and the returned value: see ``FlowFabric.start``.
        """
        nbytes, data_bytes = frame.nbytes, frame.data_bytes
        if data_bytes:
            self.bytes_sent += data_bytes
        else:
            self.credit_bytes += nbytes
        self._note_under_way(train)
        self._count += 1
        sent, first = partial(self._sent, frame, self._count, train), None
        if self._sends_twice and type(frame) not in self.port_frames:
            first = partial(self._first_sent, frame, self._count)
        start = self._context.fabric.start
        return start(train, route, nbytes, sent, left, delay_ps, frame.span_ps, None, is_fed, first)

    def _note_under_way(self, train: Any) -> None:
        self._under_way[train] = self._under_way.get(train, 0) + 1

    def _note_sent(self, train: Any) -> None:
        remaining = self._under_way[train] - 1
        if remaining:
            self._under_way[train] = remaining
        else:
            del self._under_way[train]

    def _first_sent(self, frame: Frame, number: int, head_ps: Ps, first_ps: Ps, least_tail_ps: Ps) -> None:
        """Send the first of several packets now. It arrives at ``first_ps``, or later because of outages."""
        first = self._crossing(frame.nbytes, slice(1), head_ps, first_ps)
        self._partly_sent[number] = _PartlySent(first_ps, first.loss)
        if first.loss is None:
            self._emit(frame, first, number, max(least_tail_ps - first.end_ps, 0))

    def _sent(self, frame: Frame, number: int, train: Any, head_ps: Ps, tail_ps: Ps) -> None:
        self._note_sent(train)
        first = self._partly_sent.pop(number, None)
        if first is None:
            self.leave(frame, head_ps, tail_ps)
            return
        rest = self._crossing(frame.nbytes, slice(1, None), first.first_ps, tail_ps)
        if not self._has_lost(frame.nbytes, frame, first.loss, rest.loss):
            self._context.emit(self._context.channel, rest.end_ps, encode(Tail(number)))

    def leave(self, frame: Frame, head_ps: Ps, tail_ps: Ps) -> None:
        """Send a frame as a whole. ``head_ps``, ``tail_ps``: when head and tail arrive at the far end."""
        whole = self._crossing(frame.nbytes, slice(None), head_ps, tail_ps)
        if not self._has_lost(frame.nbytes, frame, whole.loss):
            self._emit(frame, whole)

    def _emit(self, frame: Frame, crossing: Crossing, number: int = 0, rest_ps: Ps = 0) -> None:
        frame.span_ps = crossing.end_ps - crossing.start_ps
        frame.frame_number, frame.frame_rest_ps = number, rest_ps
        self._context.emit(self._context.channel, crossing.end_ps, encode(frame))

    def outages_used(self) -> tuple[OutageUse, ...]:
        """Return the cost so far of each outage of the link, in the direction away from this port."""
        return () if self._retransmitter is None else self._retransmitter.used(self._context.link_name)

    def _crossing(self, nbytes: int, part: slice, head_ps: Ps, tail_ps: Ps) -> Crossing:
        """Return the arrival times of a part of a frame's packets: ``head_ps`` to ``tail_ps``, delayed by outages."""
        if self._retransmitter is None:
            return Crossing(head_ps, head_ps, tail_ps)
        latency_ps = self.link.latency_ps
        packets = self.link.packets(nbytes)[part]
        sent = self._retransmitter.schedule(head_ps - latency_ps, tail_ps - latency_ps, packets)
        return sent._replace(start_ps=sent.start_ps + latency_ps, end_ps=sent.end_ps + latency_ps)

    def _has_lost(self, nbytes: int, packet: Packet, *losses: Loss | None) -> bool:
        """Return whether a frame or credit has lost packets; if so, note the loss, which ends the run."""
        loss = joined_loss([each for each in losses if each is not None])
        if loss is not None:
            self._losses.add(loss, nbytes, packet)
        return loss is not None

    def send_own(self, frame: Frame, nbytes: int, vc: int) -> None:
        """Send a frame of ``nbytes``, of a type in :attr:`port_frames`, to the port at the link's far end.

        The frame competes only for the link, in virtual channel ``vc``. If a port answers arrivals with such frames, it
        may answer at once, so the ``answer_ps`` of its link kind is 0.
        """
        frame.dst_sip, frame.nbytes = self._context.far_sip, nbytes
        self.send(frame, self._own_route, self._own_train(vc))

    def _own_train(self, vc: int) -> Any:
        return self._context.fabric.train((self.node, "port"), vc)

    def _send_credit(self, credit: LinkCredit, number: int) -> None:
        """Send the far port a credit for places in the buffer at this port."""
        context, train = self._context, self._own_train(credit.vc)
        nbytes, body = context.credit_bytes, encode(credit)
        self.credit_bytes += nbytes
        del self._announced[number]

        def leave(head_ps: Ps, tail_ps: Ps) -> None:
            self._note_sent(train)
            whole = self._crossing(nbytes, slice(None), head_ps, tail_ps)
            if not self._has_lost(nbytes, credit, whole.loss):
                context.emit(context.channel, whole.end_ps, body)

        self._note_under_way(train)
        context.fabric.start(train, self._own_route, nbytes, leave)

    def receive(self, frame: Frame) -> None:
        """Take a frame whose last byte, or with a ``frame_number`` whose first packet, arrives from the far end now."""
        now_ps = self._context.engine.now_ps
        frame.span_ps -= min(self.link.stored_ps(frame.nbytes), frame.span_ps)
        # ``on_frame`` may pass the frame to the next port, which overwrites these fields, so they are read first.
        number, head_ps, tail_ps = frame.frame_number, now_ps - frame.span_ps, now_ps + frame.frame_rest_ps
        transfer = self._context.on_frame(self.node, frame)
        if number:
            arrival = self._arriving.setdefault(number, _Arrival())
            arrival.transfer, arrival.head_ps = transfer, head_ps
            self._context.fabric.feed(transfer, head_ps, tail_ps)

    def pass_on(self, frame: Frame, delay_ps: Ps) -> None:
        """Forward an arriving frame after ``delay_ps``. For port classes that override :meth:`receive`."""
        if frame.frame_number:
            self._arriving[frame.frame_number] = _Arrival(delay_ps)
        self._later(delay_ps, partial(Port.receive, self, frame))

    def is_arriving(self, number: int) -> bool:
        """Whether the first packet of a frame has arrived, and its transfer still waits for the last byte."""
        return number in self._arriving

    def may_end(self, number: int) -> bool:
        """Whether the first packet of a frame has arrived, and its last byte has not."""
        return number in self._arriving and not self._arriving[number].has_ended

    def receive_tail(self, tail: Tail) -> None:
        """Take the last byte of a frame whose first packet has arrived."""
        arrival = self._arriving[tail.number]
        arrival.has_ended = True
        if arrival.delay_ps:
            self._later(arrival.delay_ps, partial(self._end_arrival, tail.number))
        else:
            self._end_arrival(tail.number)

    def _end_arrival(self, number: int) -> None:
        now_ps, arrival = self._context.engine.now_ps, self._arriving.pop(number)
        self._context.fabric.feed(arrival.transfer, arrival.head_ps, now_ps, now_ps)

    def _later(self, delay_ps: Ps, call: Callable[[], None]) -> None:
        """Schedule a call after ``delay_ps``, and announce the packets that the call sends."""
        engine = self._context.engine
        number = self._announce(engine.now_ps + delay_ps)

        def run() -> None:
            del self._announced[number]
            call()

        engine.at(engine.now_ps + delay_ps, run)

    def _announce_now(self) -> int:
        return self._announce(self._context.engine.now_ps)

    def _announce(self, earliest_ps: Ps) -> int:
        self._count += 1
        self._announced[self._count] = earliest_ps
        return self._count


PACKET_BYTES = 256
"""Payload of a link packet, for kinds that define no other size (ADR-0023 D19)."""


class LatencyPart(NamedTuple):
    """Part of a link's latency: ``part`` names it among all links, ``what`` within one link (empty for the only part);
    ``key`` is its parameter, ``ps`` its time.
    """

    part: str
    what: str
    key: str
    ps: int


class AnyLinkKind(Section, frozen=True):
    """Base class of link kinds. Subclasses add framing and the parts of the latency.

    The latency must be positive: without lookahead SIPs cannot be simulated in parallel, and a link's lookahead is the
    latency plus the least time to the link (:meth:`lookahead_ps`).
    """

    bandwidth_GBps: Annotated[float, Meta(ge=1e-9, le=1e6)]

    def latency_parts(self) -> tuple[LatencyPart, ...]:
        """Return the parts of the latency, for ``--explain`` and ``ahbm-probe``."""
        raise NotImplementedError

    def wire_bytes(self, payload_bytes: int) -> int:
        """Return the bytes on the wire for a payload of ``payload_bytes`` (at least 1): a whole number, at least the
        payload, that does not decrease when the payload grows.
        """
        raise NotImplementedError

    def first_bytes(self, payload_bytes: int) -> int:
        """Return the bytes on the wire of a payload's first packet: from ``wire_bytes(1)`` to ``wire_bytes`` of the
        payload. When that packet arrives, the far SIP learns of the frame (:class:`Port`).
        """
        return self.wire_bytes(min(payload_bytes, PACKET_BYTES))

    def stored_ps(self, payload_bytes: int) -> int:
        """Return the time, in ps, for which the port after the link delays a frame's head, to store the first bytes.

        The tail is not delayed, so a frame shorter than this time continues when its tail arrives.
        """
        return 0

    @property
    def is_die_to_die(self) -> bool:
        """Whether the link connects dies, perhaps through retimers, so that other wires, such as for credits, may run
        beside it. Ethernet has only the wires of its frames.
        """
        return False

    @property
    def may_go_down(self) -> bool:
        """Whether such links may have outages (:mod:`sipsim.fabric.links.outages`)."""
        return False

    @property
    def sends_again(self) -> bool:
        """Whether packets that an outage has lost are sent again (go-back-N), or the run ends with ``LinkLoss``."""
        return True

    def packets(self, payload_bytes: int) -> list[int]:
        """Return the bytes on the wire of each packet of a payload: :meth:`first_bytes` for the first one, and
        :meth:`wire_bytes` in sum.
        """
        first_bytes = self.first_bytes(payload_bytes)
        rest_bytes = self.wire_bytes(payload_bytes) - first_bytes
        return [first_bytes, rest_bytes] if rest_bytes else [first_bytes]

    @property
    def answer_ps(self) -> int | None:
        """The least time, in ps, from an arrival at the port to a packet by which the port itself answers.

        None if the port never answers.
        """
        return None

    def open(self, context: PortContext) -> Port:
        """Return the port of a SIP at the near end of such a link."""
        return Port(self, context)

    @property
    def latency_ps(self) -> int:
        """The latency of a head, in ps: the sum of :meth:`latency_parts`."""
        return sum(part.ps for part in self.latency_parts())

    @property
    def bandwidth_bps(self) -> int:
        """Bytes per second, in each direction."""
        return gbytes_per_s_to_bps(self.bandwidth_GBps)

    def drain_ps(self, payload_bytes: int) -> int:
        """Return the time, in ps, for which a payload keeps the wire busy, framing included."""
        return drain_ps(self.wire_bytes(payload_bytes), self.bandwidth_bps)

    def least_chunk_ps(self, chunk_bytes: int) -> int:
        """Return the least time, in ps, for which a frame's last chunk of ``chunk_bytes`` is on the wire."""
        return drain_ps(min(self.wire_bytes(1), chunk_bytes), self.bandwidth_bps)

    def lookahead_ps(self, way_ps: int) -> int:
        """Return the least time, in ps, from the sending of a frame to its arrival. ``way_ps``: the least time from the
        source to the link (``SipNetwork.least_path_ps``).
        """
        return self.latency_ps + way_ps

    def reaction_ps(self, path_ps: int) -> int:
        """Return the least time, in ps, from an arrival at another port to a packet on this link that the arrival
        causes. ``path_ps``: the time between the two ports, without what :meth:`lookahead_ps` counts.
        """
        return path_ps


class LinkKind(AnyLinkKind, frozen=True):
    """Link kind with a single latency. Subclasses add framing."""

    latency_ns: Annotated[float, Meta(ge=0.001, le=1e9)]

    def latency_parts(self) -> tuple[LatencyPart, ...]:
        return (LatencyPart("latency of links", "", "latency_ns", ns_to_ps(self.latency_ns)),)


LINK_KINDS: Registry[type[AnyLinkKind]] = Registry(
    "link kind",
    {"sipsim.fabric.links.ethernet": ("ethernet",), "sipsim.fabric.links.ucie": ("ucie",)},
    classes_of=AnyLinkKind,
)


def link_of_preset(resolved: Resolved, name: str) -> AnyLinkKind:
    """Return the link kind of a preset of ``links.yaml``, with the preset's parameters."""
    with resolved.reads.apart():
        params = resolved.links.links[name].params
    kind = msgspec.convert(params, LINK_KINDS.get(resolved.links.links[name].kind))
    return resolved.reads.watched(kind, ("links", name, "params"))


def links_in_use(resolved: Resolved, links: list[SipLink]) -> list[AnyLinkKind]:
    """Return the link kind of each directed link."""
    presets = link_presets(resolved.topology.system.sips, links)
    kinds = {name: link_of_preset(resolved, name) for name in presets}
    return [kinds[name] for name in presets]
