"""Synchronization bounds of a SIP of chip ``ahbm``, derived before the run: credit channels, lookaheads and egress.

Queue pairs may be installed during the simulation, so the bounds in force (:class:`ChipBounds`) hold for any PE and any
peer. The bounds of only the plan's queue pairs (:class:`InstalledBounds`) are sometimes greater; ``--explain-sync``
prints the cost of the difference (:func:`shortest_windows_ps`).

**Near credits.** A credit on a dedicated wire takes the latency of its whole path. SIPs that a link joins have a credit
channel, whose lookahead is the minimum over all pairs of their PEs.

**Far credits**, to a SIP without a link from the sender, have no channel (``Session.emit_far``): a far credit must not
arrive earlier than its cause plus the egress and the shortest chain of channels ``D``. ``D`` is at most the chain along
the credit's links ``1..h``, with lookaheads ``A`` and reactions ``R`` of the SIPs between them. With link latencies
``L`` and the paths inside SIPs, a far credit takes at least

    PE_IPCQ + least path out + L(1) + ... + L(h) + (h - 1) * least path between ports + least path in + drain

If every SIP has ``R <= L(link) + least path between ports - A(link)`` for its outgoing links
(:meth:`ChipBounds.transit_ps`), the chain from its second link on is no longer than the credit's path, so

    egress <= PE_IPCQ + least path out + L(1) - A(1) + least path in + drain

is sufficient (:meth:`ChipBounds.egress_ps`). A lookahead that would make this negative is lowered
(:meth:`ChipBounds.lookahead_ps`); no built-in link kind has such a lookahead.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

from broker.channels import least_chains, out_channels
from broker.ids import Channel, pair_delays_ps
from sipsim.chips.ahbm.address import PePlace
from sipsim.chips.ahbm.collectives.queue_pairs import InstallPlan
from sipsim.chips.ahbm.ipcq.credits import AUTO, FAST_PATH
from sipsim.chips.ahbm.ipcq.messages import IpcqInitEntry
from sipsim.chips.ahbm.system import AhbmSystem
from sipsim.fabric.graph import Node
from sipsim.topology.links import SipLink

Ps = int
PairDelays = dict[tuple[int, int], Ps]


class ChipBounds:
    """Bounds that hold for any PE. ``credit_modes``: possible values of ``credit_return_mode``. ``credit_bytes``: least
    size of a credit. ``overhead_ps``: time that PE_IPCQ adds to a message or credit. ``acknowledges``: whether memories
    acknowledge messages, without PE_IPCQ; with finite buffers they may be nearer to a link than any PE.
    """

    def __init__(
        self,
        system: AhbmSystem,
        credit_modes: set[str],
        credit_bytes: int,
        overhead_ps: Ps,
        acknowledges: bool = False,
    ) -> None:
        self._system = system
        self._modes = credit_modes
        self._credit_bytes = credit_bytes
        self._overhead_ps = overhead_ps
        self._acknowledges = acknowledges
        joined = {(link.src, link.dst) for link in system.links}
        self.all_are_joined = len(joined) == system.n_sips * (system.n_sips - 1)
        self.has_far_credits = not self.all_are_joined and any(map(self._is_fast, range(len(system.links))))

    def lookahead_ps(self, link: int, lookahead_ps: Ps) -> Ps:
        """Return the lookahead of a link's data channel, lowered if necessary so that far credits respect it."""
        if not self.has_far_credits:
            return lookahead_ps
        system, src_port = self._system, self._system.links[link].src_port
        path_ps = min(system.least_transit_ps, system.least_out_ps(src_port) + self._least_in_ps)
        return min(lookahead_ps, system.link_kinds[link].latency_ps + path_ps)

    def credit_channels(self) -> list[Channel]:
        """Return one channel per ordered pair of SIPs with a link on which credits may have dedicated wires."""
        least: PairDelays = {}
        for number, link in enumerate(self._system.links):
            if self._is_fast(number):
                pair, delay_ps = (link.src, link.dst), self._near_credit_ps(number, link)
                least[pair] = min(least.get(pair, delay_ps), delay_ps)
        return credit_channels(least)

    def egress_ps(self, channels: Sequence[Channel], pair_delay_ps: PairDelays) -> list[Ps]:
        """Return per SIP the least time from an event to a packet that it causes. ``channels``: link channels first."""
        system = self._system
        gains: list[list[Ps]] = [[] for _ in range(system.n_sips)]
        for number, link in enumerate(system.links):
            out_ps = self._overhead_ps + system.least_out_ps(link.src_port)
            gains[link.src].append(self._overhead_ps + system.least_mail_ps(number))
            if self._acknowledges:
                gains[link.src].append(least_answer_ps(system, number))
            if not self._is_fast(number):
                continue
            gains[link.src].append(self._near_credit_ps(number, link) - pair_delay_ps[link.src, link.dst])
            if self.has_far_credits:
                kind = system.link_kinds[number]
                beyond_ps = self._least_in_ps + kind.drain_ps(self._credit_bytes)
                gains[link.src].append(out_ps + kind.latency_ps - channels[number].delay_ps + beyond_ps)
        return [max(min(of_sip, default=0), 0) for of_sip in gains]

    def transit_ps(self, sip: int, channels: Sequence[Channel]) -> Ps:
        """Return the greatest permitted reaction of a SIP that far credits pass through."""
        system = self._system
        return min(
            system.link_kinds[number].latency_ps + system.least_transit_ps - channels[number].delay_ps
            for number in system.links_from[sip]
        )

    def _is_fast(self, link: int) -> bool:
        """Return whether credits that leave by a link may have a dedicated wire."""
        return FAST_PATH in self._modes or (AUTO in self._modes and self._system.link_kinds[link].is_die_to_die)

    def _near_credit_ps(self, number: int, link: SipLink) -> Ps:
        """Return the least time from the freeing of a slot to the arrival of its credit over one link."""
        system, kind = self._system, self._system.link_kinds[number]
        paths_ps = system.least_out_ps(link.src_port) + system.least_in_ps(link.dst_port)
        return self._overhead_ps + paths_ps + kind.latency_ps + kind.drain_ps(self._credit_bytes)

    @cached_property
    def _least_in_ps(self) -> Ps:
        return min(self._system.least_in_ps(link.dst_port) for link in self._system.links)


def least_answer_ps(system: AhbmSystem, link: int) -> Ps:
    """Return the least time from a write to a memory to its acknowledgement over a link; 0 with finite buffers."""
    return 0 if system.has_buffers else system.least_mail_ps(link)


class InstalledBounds:
    """Bounds for the queue pairs ``entries`` only; each ordered pair of SIPs with credits has a channel.

    ``data``: channels of the links. ``overhead_ps``, ``acknowledges``: as for :class:`ChipBounds`.
    """

    def __init__(
        self,
        system: AhbmSystem,
        entries: InstallPlan,
        data: Sequence[Channel],
        overhead_ps: Ps,
        acknowledges: bool = False,
    ) -> None:
        self._system = system
        self._entries = entries
        self._overhead_ps = overhead_ps
        self._acknowledges = acknowledges
        least: PairDelays = {}
        for place, entry in self._to_other_sips():
            if entry.credit_mode == FAST_PATH:
                pair, delay_ps = (place.sip, entry.peer.sip), overhead_ps + entry.credit_ps
                least[pair] = min(least.get(pair, delay_ps), delay_ps)
        self.channels = [*data, *credit_channels(least)]

    def egress_ps(self) -> list[Ps]:
        """Return the egress per SIP as :meth:`ChipBounds.egress_ps`; 0 if no queue pair leads to another SIP."""
        gains: list[list[Ps]] = [[] for _ in range(self._system.n_sips)]
        pair_delay_ps = pair_delays_ps(self.channels)
        for place, entry in self._to_other_sips():
            gains[place.sip].extend(self._gains(place, entry, pair_delay_ps))
        return [min(of_sip, default=0) for of_sip in gains]

    def has_transit(self) -> bool:
        """Return whether messages of these queue pairs pass through a SIP that is not their destination."""
        joined = {(link.src, link.dst) for link in self._system.links}
        return any((place.sip, entry.peer.sip) not in joined for place, entry in self._to_other_sips())

    def _gains(self, place: PePlace, entry: IpcqInitEntry, pair_delay_ps: PairDelays) -> Iterator[Ps]:
        system, sip = self._system, place.sip
        if entry.credit_mode == FAST_PATH:
            yield self._overhead_ps + entry.credit_ps - pair_delay_ps[sip, entry.peer.sip]
        if self._acknowledges or entry.can_send or entry.credit_mode != FAST_PATH:
            port = system.port_towards(sip, entry.peer.sip, entry.direction)
            if self._acknowledges and entry.can_receive:
                yield least_answer_ps(system, system.far_ends[sip, port].channel)
            if system.has_buffers:
                path = system.graph.route(Node("pe", place.cube, place.pe), Node("io", -1, port))
                yield self._overhead_ps + path.head_ps()
            else:
                yield self._overhead_ps + system.least_mail_ps(system.far_ends[sip, port].channel)

    def _to_other_sips(self) -> Iterator[tuple[PePlace, IpcqInitEntry]]:
        return (
            (place, entry)
            for place, entries in self._entries.items()
            for entry in entries
            if entry.peer.sip != place.sip
        )


def credit_channels(least_ps: PairDelays) -> list[Channel]:
    """Return the credit channels, given the least delay of each ordered pair of SIPs."""
    return [Channel(src, dst, delay, f"{src}~credit~{dst}") for (src, dst), delay in sorted(least_ps.items())]


def shortest_windows_ps(
    n_sips: int, channels: Sequence[Channel], egress_ps: Sequence[Ps], reactions_ps: Sequence[Ps]
) -> list[Ps]:
    """Return the shortest window per SIP: the time until a packet may arrive if all SIPs have an event now.

    The window is the minimum over SIPs k of ``egress[k] + D[k]``, the shortest cycle included; 0 if nothing arrives.
    """
    out = out_channels(n_sips, channels)
    windows: list[list[Ps]] = [[] for _ in range(n_sips)]
    for src in range(n_sips):
        for dst, delay_ps in enumerate(least_chains(src, out, reactions_ps)[0]):
            if delay_ps is not None:
                windows[dst].append(egress_ps[src] + delay_ps)
    return [min(of_sip, default=0) for of_sip in windows]
