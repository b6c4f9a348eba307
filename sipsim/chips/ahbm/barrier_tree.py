"""Tree of links for the barrier, which every process derives from the plan."""

from collections.abc import Sequence

from broker.ids import Channel
from sipsim.fabric.sips import SipNetwork

Ps = int
ROOT = 0


class BarrierTree:
    """Tree of links along which all SIPs agree on a common start (:mod:`sipsim.chips.ahbm.barrier`).

    ``parent``, ``children``: by SIP. Attribute ``channels``: channel index by (source, destination). ``gap_ps``: time
    from the latest end to the common start. Arguments: the plan's channels, and per SIP its least event-to-packet time.
    """

    def __init__(self, system: SipNetwork, channels: Sequence[Channel], egress_ps: Sequence[Ps]) -> None:
        self.parent: dict[int, int] = {}
        self.children: dict[int, list[int]] = {sip: [] for sip in range(system.n_sips)}
        self.channels: dict[tuple[int, int], int] = {}
        for sip in range(system.n_sips):
            if sip == ROOT:
                continue
            up = system.far_ends[sip, system.next_port(sip, ROOT)]
            self.parent[sip] = up.sip
            self.children[up.sip].append(sip)
            self.channels[sip, up.sip] = up.channel
            self.channels[up.sip, sip] = system.far_ends[up.sip, up.port].channel
        self.hop_ps = {
            (src, dst): egress_ps[src] + channels[channel].delay_ps for (src, dst), channel in self.channels.items()
        }
        self.gap_ps = self._longest_ps(up=True) + self._longest_ps(up=False)

    def _longest_ps(self, up: bool) -> Ps:
        """Return the time in ps of the longest path to the root (``up``), or from the root."""
        reached_ps, waiting = {ROOT: 0}, [ROOT]
        for sip in waiting:
            for child in self.children[sip]:
                reached_ps[child] = reached_ps[sip] + self.hop_ps[(child, sip) if up else (sip, child)]
                waiting.append(child)
        return max(reached_ps.values())
