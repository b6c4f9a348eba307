"""Plan of a run, which every process derives before simulated time begins: SIPs, channels, bounds, digest."""

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
    """Reduction of a row: names of collective, algorithm and operation, type, and number of elements."""

    collective: str
    algorithm: str
    op: str
    dtype: DType
    n_elem: int


class RunPlan(ABC):
    """Plan of a run. The subclass of a chip kind adds the data that its SIPs need (``sipsim.chips``)."""

    resolved: Resolved
    system: SipNetwork

    @cached_property
    def channels(self) -> list[Channel]:
        """The data channels, one per link, then the chip's additional channels."""
        return [*self.data_channels(), *self.extra_channels()]

    def data_channels(self) -> list[Channel]:
        """Return the data channels, one per link."""
        return self.system.data_channels()

    def extra_channels(self) -> list[Channel]:
        """Return the chip's channels in addition to those of the links, each with its lookahead."""
        return []

    @cached_property
    def pair_delay_ps(self) -> dict[tuple[int, int], Ps]:
        """Least delay of the channels from one SIP to another."""
        return pair_delays_ps(self.channels)

    @property
    @abstractmethod
    def egress_ps(self) -> list[Ps]:
        """Per SIP, the least time from any event on it to a packet that the event causes.

        A packet is *sent at t* if it does not arrive before ``t`` plus the pair's least delay.
        """

    @property
    def n_rows(self) -> int:
        """Rows of a SIP's tensors, each of ``n_elems`` elements of the job, for estimates of a run's length."""
        return 1

    @property
    def n_cubes(self) -> int | None:
        """Cubes per SIP; None for a chip without cubes."""
        return None

    def has_transit(self) -> bool:
        """Return whether frames may pass through a SIP that is not their destination."""
        return True

    @cached_property
    def reactions_ps(self) -> list[Ps]:
        """Per SIP, the least time from an arrival over a link to a packet that it causes.

        A packet in transit takes the path between two ports, minus the part that the lookahead includes. A port may
        answer an arrival itself.
        """
        least_ps = reactions_ps(self.system, self.egress_ps, self.has_transit())
        return [min([least_ps[sip], *self.more_reactions_ps(sip)]) for sip in range(self.system.n_sips)]

    def more_reactions_ps(self, sip: int) -> list[Ps]:
        """Return further least times from an arrival to a packet that it causes, for mechanisms of the chip."""
        return []

    def canonical_view(self) -> dict[str, Any]:
        """Return the system, and the algorithm if any, for digests."""
        return self.system.canonical_view()

    def canonical_text(self) -> str:
        """Return the canonical view as text."""
        return msgspec.json.encode(self.canonical_view(), order="sorted").decode()

    @cached_property
    def digest(self) -> str:
        """SHA-256 over program version, config, :meth:`digest_lines`, the source of users' modules, and channels."""
        lines = [VERSION, self.canonical_text(), *self.digest_lines(), *self.sources, *map(str, self.channels)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @cached_property
    def sources(self) -> list[str]:
        """Name and source hash of each user definition that the SIPs use.

        Raises:
            UnknownName: for a module that is missing.
        """
        return source_lines(self.definitions())

    def definitions(self) -> list[str]:
        """Return the registered names that the config selects for the SIPs."""
        system = self.resolved.topology.system
        return [system.chip, system.sips.topology, *self.system.link_kind_names]

    def digest_lines(self) -> list[str]:
        """Return further values that must be the same in every process, as text."""
        return []

    @property
    def reference(self) -> Callable[..., Any] | None:
        """Reference function for the check of recorded collectives (``reference`` of an algorithm's module)."""
        return None

    def group_results(self, run: RunRecord, sources: Sequence[Array | None]) -> list[Array | None]:
        """Return the expected result of a collective of a group (``workers`` of its record) on each of its ranks, given
        their flat source arrays; None for a rank without a result.
        """
        raise NotImplementedError(f"{type(self).__name__} has no groups")

    def has_tensors(self, run: RunRecord, rank: int) -> tuple[bool, bool]:
        """Return whether a rank of the collective's group has an input before it, and a result after it."""
        raise NotImplementedError(f"{type(self).__name__} has no groups")

    def rows_differ(self, added: Added) -> bool:
        """Return whether rows that are equal in exact arithmetic may differ in rounding; False if unknown."""
        return False

    def sync_notes(self) -> list[str]:
        """Return lines about the limits of the SIPs' windows, for ``--explain-sync``."""
        return []

    def notes(self) -> list[str]:
        """Return lines about the plan for the user."""
        return []


def reactions_ps(system: SipNetwork, egress_ps: Sequence[Ps], has_transit: bool) -> list[Ps]:
    """Return per SIP the least time from an arrival over a link to a packet of a part, of a port, or in transit."""
    bounds = [[egress, *system.answers_ps(sip)] for sip, egress in enumerate(egress_ps)]
    if has_transit:
        for sip, of_sip in enumerate(bounds):
            of_sip.append(system.transit_reaction_ps(sip))
    return [min(of_sip) for of_sip in bounds]
