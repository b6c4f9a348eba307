"""The near end of a link between SIPs: frames leave by it, and those of the far end arrive at it."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from broker.ids import MAX_PS
from sipsim.core.engine import Engine
from sipsim.core.errors import InvariantViolation
from sipsim.fabric.graph.graph import Node, Route, link_edge
from sipsim.fabric.links.frames import Frame, encode
from sipsim.fabric.links.kind.far_credits import FarCredits, LinkCredit
from sipsim.fabric.links.outages.links_outages import Outage, Retransmitter
from sipsim.fabric.links.outages.losses import Losses
from sipsim.fabric.links.outages.record_outages import OutageUse
from sipsim.fabric.transport.transport import Transport

if TYPE_CHECKING:
    from sipsim.fabric.links.kind.base import AnyLinkKind

Ps = int
MOST_KEPT = 4096
"""Of sizes, the least times to the link that a port keeps."""


class PortContext(NamedTuple):
    """Where a port is, and the parts of its SIP that it uses.

    ``channel``: its number among the run's channels. ``far_sip``: where its link ends.
    ``emit(channel, arrival_ps, body)`` sends a packet; ``on_frame(node, frame)`` takes a frame that has arrived at the
    port's node. ``credit_bytes``: of what gives places in the link's finite buffer back. ``link_name``, ``outages``:
    of its link.
    """

    node: Node
    channel: int
    far_sip: int
    engine: Engine
    fabric: Transport
    emit: Callable[[int, Ps, bytes], None]
    on_frame: Callable[[Node, Frame], None]
    chunk_bytes: int
    credit_bytes: int = 0
    link_name: str = ""
    outages: tuple[Outage, ...] = ()


class Port:
    """A port whose link is the last edge of the transfer that brings a frame to it.

    A frame is *sent* when its last chunk starts on the link; it arrives with its last byte. A link kind with other
    rules returns a port of its own from ``LinkKind.open``. It may send later, but

    * no packet arrives sooner than the channel's lookahead after it was sent (``LinkKind.lookahead_ps``);
    * nothing is sent before :meth:`earliest_send_ps`; what it will send or pass on by events of its own is announced;
    * what it sends because something arrived comes no sooner than ``LinkKind.answer_ps`` later;
    * frames of one virtual channel arrive in the order in which they were handed to :meth:`send`.

    ``Session.emit`` ends a run that breaks one of the first three, PE_IPCQ one that breaks the fourth within a queue
    pair. Credits on their own wire and control packets of the barrier are no frames and do not pass a port.

    ``bytes_sent``: of data, so far; ``credit_bytes``: of frames without data. ``own_payloads``: types of payloads that
    ports send each other (:meth:`send_own`), such as acknowledgements. They need a codec and no delivery:
    :meth:`receive` takes them, and nothing else looks at them.
    """

    own_payloads: ClassVar[tuple[type, ...]] = ()

    def __init__(self, link: "AnyLinkKind", context: PortContext) -> None:
        self.link = link
        self.node = context.node
        self.bytes_sent = 0
        self.credit_bytes = 0
        self._context = context
        self._least_chunk_ps = link.least_chunk_ps(context.chunk_bytes)
        self._least_ways: dict[tuple[Node, int], Ps] = {}
        self._announced: dict[int, Ps] = {}
        self._count = 0
        self._own_way = Route(
            self.node, 0, (link_edge(str(self.node.place), link.latency_ps, link.bandwidth_bps, link),)
        )
        self._retransmitter: Retransmitter | None = None
        if context.outages:
            self._retransmitter = Retransmitter(
                link.latency_ps, link.bandwidth_bps, context.outages, again=link.sends_again
            )
        self._losses = Losses(context.link_name, context.engine)
        self.far_credits: FarCredits | None = None
        buffers = context.fabric.far_buffers
        if buffers is not None:
            self.far_credits = FarCredits(self._own_way.edges[0], buffers, self.announce_transit, self._send_credit)

    def earliest_send_ps(self, next_ps: Ps) -> Ps:
        """Nothing that was announced is sent before this. ``next_ps``: the next local event, from which on a SIP may
        send what is not announced, after its egress; a port that needs less time for that returns less.

        What is announced is not sent before its head could reach the link if nothing else were there, nor, with a
        longer frame, before all but a least chunk of it could be through. That holds whatever the fabric plans again
        later.
        """
        return min(self._announced.values(), default=MAX_PS)

    def announce(self, way: Route, nbytes: int, delay_ps: Ps) -> int:
        """The number for :meth:`send` of a frame that will start on ``way``, to the link's end, after ``delay_ps``."""
        key = way.start, nbytes
        least_ps = self._least_ways.get(key)
        if least_ps is None:
            if len(self._least_ways) >= MOST_KEPT:
                self._least_ways.clear()
            if self.link.wire_bytes(nbytes) < nbytes:
                what = f"{type(self.link).__name__}.wire_bytes({nbytes}) is {self.link.wire_bytes(nbytes)}"
                raise InvariantViolation(f"{what}; a frame is no shorter than what it carries")
            head_ps = way.head_ps() - self.link.latency_ps
            least_ps = self._least_ways[key] = head_ps + self.link.drain_ps(nbytes) - self._least_chunk_ps
        return self._note(self._context.engine.now_ps + delay_ps + least_ps)

    def announce_transit(self) -> int:
        """The number for :meth:`send` of a frame that has arrived at another port."""
        return self._note(self._context.engine.now_ps)

    def send(self, frame: Frame, way: Route, vc: int, number: int, delay_ps: Ps = 0) -> None:
        """Bring a frame that was announced over ``way``, in virtual channel ``vc``; :meth:`leave` when it is sent."""
        context, nbytes = self._context, frame[1]
        data_bytes = frame[3].data_bytes
        if data_bytes:
            self.bytes_sent += data_bytes
        else:
            self.credit_bytes += nbytes
        lead_ps = self.link.latency_ps + self.link.last_chunk_ps(nbytes, context.chunk_bytes)
        leave = partial(self.leave, frame, number)
        context.fabric.start(way, nbytes, leave, vc, lead_ps, delay_ps, frame[2])

    def leave(self, frame: Frame, number: int, head_ps: Ps, tail_ps: Ps) -> None:
        """A frame is sent now: its head and tail arrive at the far end at these times."""
        del self._announced[number]
        if self._retransmitter is not None:
            crossing = self._crossing(frame[1], head_ps, tail_ps, frame[3])
            if crossing is None:
                return
            head_ps, tail_ps = crossing
        body = encode(Frame(frame[0], frame[1], tail_ps - head_ps, frame[3]))
        self._context.emit(self._context.channel, tail_ps, body)

    def outages_used(self) -> tuple[OutageUse, ...]:
        """What each outage of its link has cost so far, this way."""
        return () if self._retransmitter is None else self._retransmitter.used(self._context.link_name)

    def _crossing(self, nbytes: int, head_ps: Ps, tail_ps: Ps, payload: Any) -> tuple[Ps, Ps] | None:
        """When the head and the tail of a frame arrive over a link with outages; None if it is lost."""
        assert self._retransmitter is not None
        latency_ps = self.link.latency_ps
        packets = self.link.packets(nbytes)
        found = self._retransmitter.schedule(head_ps - latency_ps, tail_ps - latency_ps, packets)
        if found.loss is not None:
            self._losses.add(found.loss, nbytes, payload)
            return None
        return found.start_ps + latency_ps, found.end_ps + latency_ps

    def send_own(self, payload: Any, nbytes: int, vc: int) -> None:
        """Send a payload of ``nbytes`` and of :attr:`own_payloads` to the port at the link's far end.

        It competes for the link, in virtual channel ``vc``, with the frames that pass it, and for nothing else. A port
        that answers an arrival so may answer at once, so its kind's ``answer_ps`` is 0.
        """
        frame = Frame(self._context.far_sip, nbytes, 0, payload)
        self.send(frame, self._own_way, vc, self.announce_transit())

    def _send_credit(self, credit: LinkCredit, number: int) -> None:
        """Give places in this end's buffer back to the port at the far end."""
        context = self._context
        nbytes, body = context.credit_bytes, encode(credit)
        self.credit_bytes += nbytes

        def leave(head_ps: Ps, tail_ps: Ps) -> None:
            del self._announced[number]
            if self._retransmitter is not None:
                crossing = self._crossing(nbytes, head_ps, tail_ps, credit)
                if crossing is None:
                    return
                tail_ps = crossing[1]
            context.emit(context.channel, tail_ps, body)

        lead_ps = self.link.latency_ps + self.link.last_chunk_ps(nbytes, context.chunk_bytes)
        context.fabric.start(self._own_way, nbytes, leave, credit.vc, lead_ps)

    def receive(self, frame: Frame) -> None:
        """The last byte of a frame of the far end arrives now."""
        self._context.on_frame(self.node, self._stored(frame))

    def pass_on(self, frame: Frame, delay_ps: Ps) -> None:
        """Let a frame that has arrived go on in ``delay_ps``; called by :meth:`receive` of other ports."""
        engine = self._context.engine
        number, stored = self._note(engine.now_ps + delay_ps), self._stored(frame)

        def go_on() -> None:
            del self._announced[number]
            self._context.on_frame(self.node, stored)

        engine.at(engine.now_ps + delay_ps, go_on)

    def _stored(self, frame: Frame) -> Frame:
        """A frame whose head was held back for what its link stores (``LinkKind.stored_ps``)."""
        held_ps = min(self.link.stored_ps(frame.nbytes), frame.span_ps)
        return frame._replace(span_ps=frame.span_ps - held_ps) if held_ps else frame

    def _note(self, earliest_ps: Ps) -> int:
        self._count += 1
        self._announced[self._count] = earliest_ps
        return self._count
