"""Link kinds and their ports: bytes on the wire for a payload, bandwidth, latency, and the near end of a link.

A kind is a frozen struct of parameters (so that ``links.yaml`` is checked against it) with one method, ``wire_bytes``,
and its own port class if it needs one (:meth:`AnyLinkKind.open`). The kind gives the values that the broker needs
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
    """Credit: ``places`` of a virtual channel are free in the buffer at the end of the link to the credit's sender."""

    vc: Small
    places: Small


class FarCredits:
    """Side of a port in the finite buffers at the ends of its link (:mod:`sipsim.fabric.buffered.fabric`).

    A credit is a message of ``PortContext.credit_bytes`` that competes for the link with the frames of its virtual
    channel, and takes no place. It leaves as soon as a frame has left the buffer, so a port that returns credits may
    answer an arrival at once (``SipNetwork.answers_ps``), as may a frame that waits for credits.

    ``announce()`` numbers a credit that may be sent from now on; ``send(credit, number)`` sends it.
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
        """Send a credit, as a frame has left the buffer of this port."""
        self._send(LinkCredit(vc, places), number)

    def take(self, credit: LinkCredit) -> bool:
        """Take a credit of the far end; False for a credit that it cannot have sent."""
        return self._buffers.credit(self._link, credit.vc, credit.places)


Ps = int


class PortContext(NamedTuple):
    """Place of a port, and the parts of its SIP that it uses.

    ``channel``: its number among the run's channels. ``far_sip``: the SIP at the end of its link. ``emit(channel,
    arrival_ps, body)`` sends a packet; ``on_frame(node, frame)`` starts the transfer of a frame that arrives at the
    port's node, and returns it. ``credit_bytes``: the size of a credit for the link's finite buffer. ``link_name``,
    ``outages``: of its link.
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
    """Frame whose first packet has arrived: its transfer, when its first byte arrived, and its delay here."""

    __slots__ = ("has_ended", "head_ps", "held_ps", "transfer")

    def __init__(self, held_ps: Ps = 0) -> None:
        self.held_ps = held_ps
        self.transfer: Any = None
        self.head_ps: Ps = 0
        self.has_ended = False


class _Begun(NamedTuple):
    """Frame whose first packet is sent: when that would arrive without outages, and packets that it lost."""

    first_ps: Ps
    loss: Loss | None


class Port:
    """Near end of a link between SIPs: frames leave by it, and frames of the far end arrive at it.

    The link is the last edge of the transfer that brings a frame to the port.

    A frame is *sent* when its last byte leaves its source (with finite buffers: when its last packet starts on the
    link); it arrives with its last byte. A frame of several packets (``LinkKind.first_bytes``) is sent twice: as a
    :class:`~sipsim.fabric.links.frames.Frame` when its first packet leaves its source, so that it shares the edges of
    the far SIP as it arrives, and as a ``Tail`` when its last byte does. Outages of the link may delay both; a frame
    that has lost packets has no ``Tail``, as the run ends. A port class with its own :meth:`leave`, and SIPs with
    finite buffers, send each frame once. A link kind with other rules returns its own port class from
    ``LinkKind.open``. It may send later, but

    * no packet arrives sooner than the channel's lookahead after it was sent (``LinkKind.lookahead_ps``);
    * nothing is sent before :meth:`earliest_send_ps`; packets that its own events will send or forward are announced;
    * a packet that it sends because of an arrival leaves no sooner than ``LinkKind.answer_ps`` later;
    * frames of one virtual channel arrive in the order in which they were handed to :meth:`send`.

    ``Session.emit`` ends a run that violates one of the first three, PE_IPCQ one that violates the fourth within a
    queue pair. Credits on a separate wire and control packets of the barrier are no frames and do not pass a port.

    ``bytes_sent``: of data, so far; ``credit_bytes``: of frames without data. ``port_frames``: types of frames that
    ports send each other (:meth:`send_own`), such as acknowledgements. They have no delivery: :meth:`receive` handles
    them.
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
        self._begun: dict[int, _Begun] = {}
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
            self.far_credits = FarCredits(self._own_route.edges[0], buffers, self._note_now, self._send_credit)

    def earliest_send_ps(self, next_ps: Ps) -> Ps:
        """Return a time before which nothing that was announced is sent. ``next_ps``: the next local event, from which
        on a SIP may send unannounced packets, after its egress; a port that needs less time for that returns less.

        An announced frame is not sent before its first packet, or last byte, could have left its source alone. That
        holds for every later decision of the fabric.
        """
        if not (self._under_way or self._announced):
            return MAX_PS
        now_ps = self._context.engine.now_ps
        least = [train.least_mail_ps(now_ps) for train in self._under_way]
        return min([*least, *self._announced.values()])

    def send(
        self, frame: Frame, route: Route, train: Any, delay_ps: Ps = 0, left: Done | None = None, is_fed: bool = False
    ) -> Any:
        """Bring a frame over ``route`` to the link's end, after the earlier frames of ``train``; :meth:`leave` when it
        is sent.

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
        left = self._under_way[train] - 1
        if left:
            self._under_way[train] = left
        else:
            del self._under_way[train]

    def _first_sent(self, frame: Frame, number: int, head_ps: Ps, first_ps: Ps, least_tail_ps: Ps) -> None:
        """Send the first packet of several now; it arrives at ``first_ps``, or later after an outage."""
        found = self._crossing(frame.nbytes, slice(1), head_ps, first_ps)
        self._begun[number] = _Begun(first_ps, found.loss)
        if found.loss is None:
            self._emit(frame, found, number, max(least_tail_ps - found.end_ps, 0))

    def _sent(self, frame: Frame, number: int, train: Any, head_ps: Ps, tail_ps: Ps) -> None:
        self._note_sent(train)
        begun = self._begun.pop(number, None)
        if begun is None:
            self.leave(frame, head_ps, tail_ps)
            return
        rest = self._crossing(frame.nbytes, slice(1, None), begun.first_ps, tail_ps)
        if not self._has_lost(frame.nbytes, frame, begun.loss, rest.loss):
            self._context.emit(self._context.channel, rest.end_ps, encode(Tail(number)))

    def leave(self, frame: Frame, head_ps: Ps, tail_ps: Ps) -> None:
        """Send a frame that is sent once: its head and tail arrive at the far end at these times."""
        whole = self._crossing(frame.nbytes, slice(None), head_ps, tail_ps)
        if not self._has_lost(frame.nbytes, frame, whole.loss):
            self._emit(frame, whole)

    def _emit(self, frame: Frame, crossing: Crossing, number: int = 0, rest_ps: Ps = 0) -> None:
        frame.span_ps = crossing.end_ps - crossing.start_ps
        frame.frame_number, frame.frame_rest_ps = number, rest_ps
        self._context.emit(self._context.channel, crossing.end_ps, encode(frame))

    def outages_used(self) -> tuple[OutageUse, ...]:
        """Return the cost of each outage of its link so far, in this direction."""
        return () if self._retransmitter is None else self._retransmitter.used(self._context.link_name)

    def _crossing(self, nbytes: int, some: slice, head_ps: Ps, tail_ps: Ps) -> Crossing:
        """Return the times of some packets of a frame that arrive from ``head_ps`` to ``tail_ps`` without outages."""
        if self._retransmitter is None:
            return Crossing(head_ps, head_ps, tail_ps)
        latency_ps = self.link.latency_ps
        packets = self.link.packets(nbytes)[some]
        found = self._retransmitter.schedule(head_ps - latency_ps, tail_ps - latency_ps, packets)
        return found._replace(start_ps=found.start_ps + latency_ps, end_ps=found.end_ps + latency_ps)

    def _has_lost(self, nbytes: int, packet: Packet, *losses: Loss | None) -> bool:
        """Whether a frame or credit has lost packets, which ends the run."""
        loss = joined_loss([each for each in losses if each is not None])
        if loss is not None:
            self._losses.add(loss, nbytes, packet)
        return loss is not None

    def send_own(self, frame: Frame, nbytes: int, vc: int) -> None:
        """Send a frame of ``nbytes`` and of :attr:`port_frames` to the port at the link's far end.

        The frame competes for the link, in virtual channel ``vc``, with the frames that pass it, and for nothing else.
        A port that answers an arrival with such a frame may answer at once, so its kind's ``answer_ps`` is 0.
        """
        frame.dst_sip, frame.nbytes = self._context.far_sip, nbytes
        self.send(frame, self._own_route, self._own_train(vc))

    def _own_train(self, vc: int) -> Any:
        return self._context.fabric.train((self.node, "port"), vc)

    def _send_credit(self, credit: LinkCredit, number: int) -> None:
        """Send a credit for places in this end's buffer to the port at the far end."""
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
        """Take a frame that arrives now from the far end: its last byte, or its first packet (``frame_number``)."""
        now_ps = self._context.engine.now_ps
        frame.span_ps -= min(self.link.stored_ps(frame.nbytes), frame.span_ps)
        # Read the header before ``on_frame``, which may hand the frame to the next port: that port overwrites it.
        number, head_ps, tail_ps = frame.frame_number, now_ps - frame.span_ps, now_ps + frame.frame_rest_ps
        transfer = self._context.on_frame(self.node, frame)
        if number:
            arrival = self._arriving.setdefault(number, _Arrival())
            arrival.transfer, arrival.head_ps = transfer, head_ps
            self._context.fabric.feed(transfer, head_ps, tail_ps)

    def pass_on(self, frame: Frame, delay_ps: Ps) -> None:
        """Forward an arriving frame in ``delay_ps``; other ports call it in :meth:`receive`."""
        if frame.frame_number:
            self._arriving[frame.frame_number] = _Arrival(delay_ps)
        self._later(delay_ps, partial(Port.receive, self, frame))

    def is_arriving(self, number: int) -> bool:
        """Whether the first packet of a frame has arrived, and its transfer does not know its last byte yet."""
        return number in self._arriving

    def may_end(self, number: int) -> bool:
        """Whether the first packet of a frame has arrived, and its last byte has not."""
        return number in self._arriving and not self._arriving[number].has_ended

    def receive_tail(self, tail: Tail) -> None:
        """Take the last byte of a frame whose first packet has arrived."""
        arrival = self._arriving[tail.number]
        arrival.has_ended = True
        if arrival.held_ps:
            self._later(arrival.held_ps, partial(self._end_arrival, tail.number))
        else:
            self._end_arrival(tail.number)

    def _end_arrival(self, number: int) -> None:
        now_ps, arrival = self._context.engine.now_ps, self._arriving.pop(number)
        self._context.fabric.feed(arrival.transfer, arrival.head_ps, now_ps, now_ps)

    def _later(self, delay_ps: Ps, call: Callable[[], None]) -> None:
        """Call in ``delay_ps``; packets that the call sends are announced."""
        engine = self._context.engine
        number = self._note(engine.now_ps + delay_ps)

        def go_on() -> None:
            del self._announced[number]
            call()

        engine.at(engine.now_ps + delay_ps, go_on)

    def _note_now(self) -> int:
        return self._note(self._context.engine.now_ps)

    def _note(self, earliest_ps: Ps) -> int:
        self._count += 1
        self._announced[self._count] = earliest_ps
        return self._count


PACKET_BYTES = 256
"""The payload of a packet, for kinds that define no other (ADR-0023 D19)."""


class LatencyPart(NamedTuple):
    """Part of a link's latency: its names among all links and within one (empty: all), its parameter, its time."""

    part: str
    what: str
    key: str
    ps: int


class AnyLinkKind(Section, frozen=True):
    """Parameters of every link. Subclasses add their framing and the parts of their latency.

    The latency must be positive: a link's lookahead, without which SIPs cannot run in parallel, is the latency plus the
    least path to the link (:meth:`lookahead_ps`).
    """

    bandwidth_GBps: Annotated[float, Meta(ge=1e-9, le=1e6)]

    def latency_parts(self) -> tuple[LatencyPart, ...]:
        """Return the parts of the latency, for ``--explain`` and ``ahbm-probe``."""
        raise NotImplementedError

    def wire_bytes(self, payload_bytes: int) -> int:
        """Return the bytes on the wire for a payload of ``payload_bytes`` (at least 1): a whole number, not less than
        the payload, which does not decrease with it.
        """
        raise NotImplementedError

    def first_bytes(self, payload_bytes: int) -> int:
        """Return the bytes on the wire of the first packet of a payload, from ``wire_bytes(1)`` to all. When that
        packet arrives, the far SIP learns of the frame (:class:`Port`).
        """
        return self.wire_bytes(min(payload_bytes, PACKET_BYTES))

    def stored_ps(self, payload_bytes: int) -> int:
        """Return the time for which the port after the link delays the head of a frame, in ps: until it has stored
        enough.

        The tail is not delayed, so a frame shorter than the store continues at once when its tail arrives.
        """
        return 0

    @property
    def is_die_to_die(self) -> bool:
        """Whether the link joins dies, also through retimers, so that separate wires may run beside it, such as a
        credit's. Ethernet has only the wires of its frames.
        """
        return False

    @property
    def may_go_down(self) -> bool:
        """Whether such links may have outages (:mod:`sipsim.fabric.links.outages`)."""
        return False

    @property
    def sends_again(self) -> bool:
        """Whether packets that an outage has lost are sent again (go-back-N); else the run ends with ``LinkLoss``."""
        return True

    def packets(self, payload_bytes: int) -> list[int]:
        """Return the bytes on the wire of each packet of a payload: first :meth:`first_bytes`, in sum
        :meth:`wire_bytes`.
        """
        first_bytes = self.first_bytes(payload_bytes)
        rest_bytes = self.wire_bytes(payload_bytes) - first_bytes
        return [first_bytes, rest_bytes] if rest_bytes else [first_bytes]

    @property
    def answer_ps(self) -> int | None:
        """The least time, in ps, from an arrival at the port to a packet that the port itself sends because of it.

        None: the port sends none.
        """
        return None

    def open(self, context: PortContext) -> Port:
        """Make the port of a SIP at the near end of such a link."""
        return Port(self, context)

    @property
    def latency_ps(self) -> int:
        return sum(part.ps for part in self.latency_parts())

    @property
    def bandwidth_bps(self) -> int:
        """Bytes per second, in each direction."""
        return gbytes_per_s_to_bps(self.bandwidth_GBps)

    def drain_ps(self, payload_bytes: int) -> int:
        """Return the time that the wire is busy with a payload of ``payload_bytes``, framing included."""
        return drain_ps(self.wire_bytes(payload_bytes), self.bandwidth_bps)

    def least_chunk_ps(self, chunk_bytes: int) -> int:
        """Return the least time of a frame's last chunk on the wire."""
        return drain_ps(min(self.wire_bytes(1), chunk_bytes), self.bandwidth_bps)

    def lookahead_ps(self, way_ps: int) -> int:
        """Return the least time from sending a frame to its arrival, in ps; ``way_ps``: the least time to the link,
        plus that of the part of the frame that passes later (``SipNetwork.least_path_ps``).
        """
        return self.latency_ps + way_ps

    def reaction_ps(self, path_ps: int) -> int:
        """Return the least time from an arrival at another port to a packet on this link that it causes; ``path_ps``:
        the time between the ports that the lookahead does not count.
        """
        return path_ps


class LinkKind(AnyLinkKind, frozen=True):
    """Link with one latency. Subclasses add their framing."""

    latency_ns: Annotated[float, Meta(ge=0.001, le=1e9)]

    def latency_parts(self) -> tuple[LatencyPart, ...]:
        return (LatencyPart("latency of links", "", "latency_ns", ns_to_ps(self.latency_ns)),)


LINK_KINDS: Registry[type[AnyLinkKind]] = Registry(
    "link kind",
    {"sipsim.fabric.links.ethernet": ("ethernet",), "sipsim.fabric.links.ucie": ("ucie",)},
    classes_of=AnyLinkKind,
)


def link_of_preset(resolved: Resolved, name: str) -> AnyLinkKind:
    """Return the link kind of a preset of ``links.yaml``, with its parameters."""
    with resolved.reads.apart():
        params = resolved.links.links[name].params
    made = msgspec.convert(params, LINK_KINDS.get(resolved.links.links[name].kind))
    return resolved.reads.watched(made, ("links", name, "params"))


def links_in_use(resolved: Resolved, links: list[SipLink]) -> list[AnyLinkKind]:
    """Return the link kind of each directed link."""
    presets = link_presets(resolved.topology.system.sips, links)
    kinds = {name: link_of_preset(resolved, name) for name in presets}
    return [kinds[name] for name in presets]
