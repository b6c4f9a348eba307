"""What every process derives before simulated time begins, whatever the chip: SIPs, channels, bounds, one digest."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np

from broker.ids import Channel, pair_delays_ps
from sipsim import VERSION
from sipsim.config.schema import Resolved
from sipsim.core.dtypes import DType
from sipsim.core.registry import source_lines
from sipsim.fabric.sips import SipNetwork
from sipsim.records.report import RunRecord

Ps = int
Array = np.ndarray[Any, Any]


class Added(NamedTuple):
    """What combined values: names, the type, and the elements of a row."""

    collective: str
    algorithm: str
    op: str
    dtype: DType
    n_elem: int


class RunPlan(ABC):
    """The plan of a run. A chip kind's own plan adds what its SIPs need (``sipsim.chips``)."""

    resolved: Resolved
    system: SipNetwork

    @cached_property
    def channels(self) -> list[Channel]:
        """The data channels, one a link, then the chip's own."""
        return [*self.data_channels(), *self.own_channels()]

    def data_channels(self) -> list[Channel]:
        """One a link."""
        return self.system.data_channels()

    def own_channels(self) -> list[Channel]:
        """Channels besides those of the links, each with its lookahead."""
        return []

    @cached_property
    def pair_delay_ps(self) -> dict[tuple[int, int], Ps]:
        """The least delay of the channels from one SIP to another."""
        return pair_delays_ps(self.channels)

    @property
    @abstractmethod
    def egress_ps(self) -> list[Ps]:
        """By SIP: the least time from any event on it to a packet that the event causes.

        A packet is *sent at t* if it arrives no sooner than ``t`` plus the pair's least delay.
        """

    @property
    def n_rows(self) -> int:
        """Rows of a SIP's tensors, each of ``n_elems`` elements of the job. Estimates of a run's length count them."""
        return 1

    @property
    def n_cubes(self) -> int | None:
        """Cubes of a SIP; None for a chip without cubes."""
        return None

    def has_transit(self) -> bool:
        """Whether some frames pass through a SIP that is not their destination."""
        return True

    @cached_property
    def reactions_ps(self) -> list[Ps]:
        """By SIP: the least time from an arrival over a link to a packet that it causes.

        A packet in transit leaves after the path between two ports, but for what of it the lookahead counts. A port may
        answer what arrives there.
        """
        least_ps = reactions_ps(self.system, self.egress_ps, self.has_transit())
        return [min([least_ps[sip], *self.more_reactions_ps(sip)]) for sip in range(self.system.n_sips)]

    def more_reactions_ps(self, sip: int) -> list[Ps]:
        """Least times from an arrival to a packet that it causes, by what the chip adds."""
        return []

    def canonical_view(self) -> dict[str, Any]:
        """The system, and what runs on it, for digests."""
        return self.system.canonical_view()

    def canonical_text(self) -> str:
        """The canonical view as text."""
        return msgspec.json.encode(self.canonical_view(), order="sorted").decode()

    @cached_property
    def digest(self) -> str:
        """SHA-256 over program version, config, what the chip adds, the source of users' modules, and channels."""
        lines = [VERSION, self.canonical_text(), *self.digest_lines(), *self.sources, *map(str, self.channels)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @cached_property
    def sources(self) -> list[str]:
        """Name and hash of the source of each definition of a user that the SIPs are made of.

        Raises:
            UnknownName: for a module that is missing.
        """
        return source_lines(self.definitions())

    def definitions(self) -> list[str]:
        """The registered names that the config chooses and that the SIPs are made of."""
        system = self.resolved.topology.system
        return [system.chip, system.sips.topology, *self.system.link_kind_names]

    def digest_lines(self) -> list[str]:
        """What else must be the same in every process, as text."""
        return []

    @property
    def reference(self) -> Callable[..., Any] | None:
        """What recorded collectives are checked with (``reference`` of an algorithm's module), if there is such."""
        return None

    def group_results(self, run: RunRecord, sources: Sequence[Array | None]) -> list[Array | None]:
        """What a collective that ran in a group (``workers`` of its record) leaves on each of its ranks, from these
        ranks' sources, flat arrays; None where nothing is needed.
        """
        raise NotImplementedError(f"{type(self).__name__} has no groups")

    def has_tensors(self, run: RunRecord, rank: int) -> tuple[bool, bool]:
        """Whether a rank of the group of such a collective has something before it, and needs something after it."""
        raise NotImplementedError(f"{type(self).__name__} has no groups")

    def rows_differ(self, added: Added) -> bool:
        """Whether rows that are equal in exact numbers end with different last bits; False where that is not known."""
        return False

    def sync_notes(self) -> list[str]:
        """Lines about what bounds the windows of SIPs, for ``--explain-sync``."""
        return []

    def notes(self) -> list[str]:
        """Lines about the plan for the user."""
        return []


def reactions_ps(system: SipNetwork, egress_ps: Sequence[Ps], has_transit: bool) -> list[Ps]:
    """By SIP: the least time from an arrival over a link to a packet of a part, of a port, or in transit."""
    bounds = [[egress, *system.answers_ps(sip)] for sip, egress in enumerate(egress_ps)]
    if has_transit:
        for sip, of_sip in enumerate(bounds):
            of_sip.append(system.transit_reaction_ps(sip))
    return [min(of_sip) for of_sip in bounds]
