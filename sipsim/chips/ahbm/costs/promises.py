"""What a SIP of chip ``ahbm`` promises of its packets, derived before time begins: its credit channels and its egress.

Queue pairs may be made while time runs, so the bounds in force (:class:`ChipBounds`) are those of any PE and any peer.
Those of the plan's own queue pairs alone (:class:`InstalledBounds`) are greater at times; ``--explain-sync`` prints
what the difference costs (:func:`shortest_windows_ps`).

**Near credits.** On its own wire a credit takes its whole path's latency. Between SIPs that a link joins they have a
channel, whose lookahead is the least of any two PEs.

**Far credits**, to a SIP to which no link leads, have no channel (``Session.emit_far``): one must arrive no sooner than
the egress and the least chain of channels ``D`` after the event that makes it. ``D`` is at most the chain along the
credit's own links ``1..h``, of lookaheads ``A`` and reactions ``R`` of the SIPs between them. With ``L`` the latencies
of the links, and what a credit passes inside of SIPs, it takes at least

    PE_IPCQ + least way out + L(1) + ... + L(h) + (h - 1) * least way between two ports + least way in + drain

Where each SIP has ``R <= L(link) + least way between two ports - A(link)`` for the links that leave it
(:meth:`ChipBounds.transit_ps`), the sum of the chain from its second link on is no greater than that of the credit, so

    egress <= PE_IPCQ + least way out + L(1) - A(1) + least way in + drain

is enough (:meth:`ChipBounds.egress_ps`). A lookahead that would leave less than 0 is lowered to what it may be
(:meth:`ChipBounds.lookahead_ps`); no link kind of the project has one.
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
    """Those of any PE. ``credit_modes``: each ``credit_return_mode`` that queue pairs may have; ``credit_bytes``: the
    least size of their credits; ``overhead_ps``: PE_IPCQ's.
    """

    def __init__(self, system: AhbmSystem, credit_modes: set[str], credit_bytes: int, overhead_ps: Ps) -> None:
        self._system = system
        self._modes = credit_modes
        self._credit_bytes = credit_bytes
        self._overhead_ps = overhead_ps
        joined = {(link.src, link.dst) for link in system.links}
        self.all_are_joined = len(joined) == system.n_sips * (system.n_sips - 1)
        self.has_far_credits = not self.all_are_joined and any(map(self._is_fast, range(len(system.links))))

    def lookahead_ps(self, link: int, lookahead_ps: Ps) -> Ps:
        """That of a link's data channel, such that far credits keep it."""
        if not self.has_far_credits:
            return lookahead_ps
        system, src_port = self._system, self._system.links[link].src_port
        way_ps = min(system.least_transit_ps, system.least_out_ps(src_port) + self._least_in_ps)
        return min(lookahead_ps, system.link_kinds[link].latency_ps + way_ps)

    def credit_channels(self) -> list[Channel]:
        """One for each ordered pair of SIPs that a link joins, if credits over it have wires of their own."""
        least: PairDelays = {}
        for number, link in enumerate(self._system.links):
            if self._is_fast(number):
                pair, delay_ps = (link.src, link.dst), self._near_credit_ps(number, link)
                least[pair] = min(least.get(pair, delay_ps), delay_ps)
        return credit_channels(least)

    def egress_ps(self, channels: Sequence[Channel], pair_delay_ps: PairDelays) -> list[Ps]:
        """By SIP: the least time from an event to a packet on its way. ``channels``: those of the links come first."""
        system = self._system
        gains: list[list[Ps]] = [[] for _ in range(system.n_sips)]
        for number, link in enumerate(system.links):
            out_ps = self._overhead_ps + system.least_out_ps(link.src_port)
            gains[link.src].append(self._overhead_ps + system.least_mail_ps(number))
            if not self._is_fast(number):
                continue
            gains[link.src].append(self._near_credit_ps(number, link) - pair_delay_ps[link.src, link.dst])
            if self.has_far_credits:
                kind = system.link_kinds[number]
                beyond_ps = self._least_in_ps + kind.drain_ps(self._credit_bytes)
                gains[link.src].append(out_ps + kind.latency_ps - channels[number].delay_ps + beyond_ps)
        return [max(min(of_sip, default=0), 0) for of_sip in gains]

    def transit_ps(self, sip: int, channels: Sequence[Channel]) -> Ps:
        """The reaction of a SIP that far credits pass, at most."""
        system = self._system
        return min(
            system.link_kinds[number].latency_ps + system.least_transit_ps - channels[number].delay_ps
            for number in system.links_from[sip]
        )

    def _is_fast(self, link: int) -> bool:
        """Whether credits that leave by a link may do so on a wire of their own."""
        return FAST_PATH in self._modes or (AUTO in self._modes and self._system.link_kinds[link].is_die_to_die)

    def _near_credit_ps(self, number: int, link: SipLink) -> Ps:
        """The least from the freeing of a slot to the arrival of its credit over one link."""
        system, kind = self._system, self._system.link_kinds[number]
        ways_ps = system.least_out_ps(link.src_port) + system.least_in_ps(link.dst_port)
        return self._overhead_ps + ways_ps + kind.latency_ps + kind.drain_ps(self._credit_bytes)

    @cached_property
    def _least_in_ps(self) -> Ps:
        return min(self._system.least_in_ps(link.dst_port) for link in self._system.links)


class InstalledBounds:
    """Those of the queue pairs ``entries`` alone, where each ordered pair of SIPs with credits has a channel.

    ``data``: the channels of the links; ``overhead_ps``: PE_IPCQ's.
    """

    def __init__(self, system: AhbmSystem, entries: InstallPlan, data: Sequence[Channel], overhead_ps: Ps) -> None:
        self._system = system
        self._entries = entries
        self._overhead_ps = overhead_ps
        least: PairDelays = {}
        for place, entry in self._to_other_sips():
            if entry.credit_mode == FAST_PATH:
                pair, delay_ps = (place.sip, entry.peer.sip), overhead_ps + entry.credit_ps
                least[pair] = min(least.get(pair, delay_ps), delay_ps)
        self.channels = [*data, *credit_channels(least)]

    def egress_ps(self) -> list[Ps]:
        """By SIP: as :meth:`ChipBounds.egress_ps`; 0 where no queue pair leads to another SIP."""
        gains: list[list[Ps]] = [[] for _ in range(self._system.n_sips)]
        pair_delay_ps = pair_delays_ps(self.channels)
        for place, entry in self._to_other_sips():
            gains[place.sip].extend(self._gains(place, entry, pair_delay_ps))
        return [min(of_sip, default=0) for of_sip in gains]

    def has_transit(self) -> bool:
        """Whether messages of these queue pairs pass through a SIP that is not their destination."""
        joined = {(link.src, link.dst) for link in self._system.links}
        return any((place.sip, entry.peer.sip) not in joined for place, entry in self._to_other_sips())

    def _gains(self, place: PePlace, entry: IpcqInitEntry, pair_delay_ps: PairDelays) -> Iterator[Ps]:
        system, sip = self._system, place.sip
        if entry.credit_mode == FAST_PATH:
            yield self._overhead_ps + entry.credit_ps - pair_delay_ps[sip, entry.peer.sip]
        if entry.can_send or entry.credit_mode != FAST_PATH:
            port = system.port_towards(sip, entry.peer.sip, entry.direction)
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
    """The channels of credits, by the least delay of each ordered pair of SIPs."""
    return [Channel(src, dst, delay, f"{src}~credit~{dst}") for (src, dst), delay in sorted(least_ps.items())]


def shortest_windows_ps(
    n_sips: int, channels: Sequence[Channel], egress_ps: Sequence[Ps], reactions_ps: Sequence[Ps]
) -> list[Ps]:
    """By SIP: the shortest window, when all SIPs have an event now: until another one's earliest packet may arrive.

    That is the least over SIPs k of ``egress[k] + D[k]``; the shortest cycle counts, too. 0 where nothing arrives.
    """
    out = out_channels(n_sips, channels)
    windows: list[list[Ps]] = [[] for _ in range(n_sips)]
    for src in range(n_sips):
        for dst, delay_ps in enumerate(least_chains(src, out, reactions_ps)[0]):
            if delay_ps is not None:
                windows[dst].append(egress_ps[src] + delay_ps)
    return [min(of_sip, default=0) for of_sip in windows]
