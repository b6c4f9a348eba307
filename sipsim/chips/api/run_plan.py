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
from sipsim.core.registry import source_lines
from sipsim.fabric.sips import SipNetwork
from sipsim.records.report import RunRecord

Ps = int
Array = np.ndarray[Any, Any]


class RowReduction(NamedTuple):
    """Reduction in one row of a job: names of collective, algorithm, operator and element type, and elements."""

    collective: str
    algorithm: str
    op: str
    dtype: str
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
        """Least delay, in ps, over the channels from one SIP to another, by (source, destination)."""
        return pair_delays_ps(self.channels)

    @property
    @abstractmethod
    def egress_ps(self) -> list[Ps]:
        """Least time per SIP from any event on the SIP to a packet that the event causes.

        A packet is *sent at t* if the packet does not arrive before ``t`` plus the pair's least delay.
        """

    @property
    def n_rows(self) -> int:
        """Number of rows of ``n_elems`` elements in the tensors of one SIP, for estimates of a run's length."""
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
        """Least time per SIP from an arrival over a link to a packet that the arrival causes.

        A packet in transit takes the path between two ports, minus the part that the lookahead includes. A port may
        answer an arrival without a PE.
        """
        least_ps = reactions_ps(self.system, self.egress_ps, self.has_transit())
        return [min([least_ps[sip], *self.more_reactions_ps(sip)]) for sip in range(self.system.n_sips)]

    def more_reactions_ps(self, sip: int) -> list[Ps]:
        """Return more least times in ps from an arrival to a packet that it causes, one per mechanism of the chip."""
        return []

    def canonical_view(self) -> dict[str, Any]:
        """Return the values that digests cover: the system, and the algorithm if there is one."""
        return self.system.canonical_view()

    def canonical_text(self) -> str:
        """Return :meth:`canonical_view` as JSON with sorted keys."""
        return msgspec.json.encode(self.canonical_view(), order="sorted").decode()

    @cached_property
    def digest(self) -> str:
        """SHA-256 over program version, config, :meth:`digest_lines`, the source of users' modules, and channels."""
        lines = [VERSION, self.canonical_text(), *self.digest_lines(), *self.sources, *map(str, self.channels)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @cached_property
    def sources(self) -> list[str]:
        """Lines of name and source hash, one per user definition that the SIPs use.

        Raises:
            UnknownName: for a module that is missing.
        """
        return source_lines(self.definitions())

    def definitions(self) -> list[str]:
        """Return the registered names that the config selects for the SIPs."""
        system = self.resolved.topology.system
        return [system.chip, system.sips.topology, *self.system.link_kind_names]

    def digest_lines(self) -> list[str]:
        """Return further values for the digest, as text: values that must be the same in every process."""
        return []

    @property
    def reference(self) -> Callable[..., Any] | None:
        """Reference function for the check of recorded collectives (``reference`` of an algorithm's module)."""
        return None

    def group_results(self, run: RunRecord, sources: Sequence[Array | None]) -> list[Array | None]:
        """Return the expected result per rank of a group's collective, given the flat source array per rank. The record
        ``run`` lists the group in ``workers``. A rank without a result has None.
        """
        raise NotImplementedError(f"{type(self).__name__} has no groups")

    def has_tensors(self, run: RunRecord, rank: int) -> tuple[bool, bool]:
        """Return whether a rank of the group has an input before the collective, and a result after the collective."""
        raise NotImplementedError(f"{type(self).__name__} has no groups")

    def rows_differ(self, added: RowReduction) -> bool:
        """Return whether rows with equal exact results may differ by rounding; False if unknown."""
        return False

    def sync_notes(self) -> list[str]:
        """Return lines about the limits of the SIPs' windows, for ``--explain-sync``."""
        return []

    def notes(self) -> list[str]:
        """Return lines about the plan for the user."""
        return []


def reactions_ps(system: SipNetwork, egress_ps: Sequence[Ps], has_transit: bool) -> list[Ps]:
    """Return per SIP the least time from an arrival over a link to a packet that a part sends, answers or passes on."""
    bounds = [[egress, *system.answers_ps(sip)] for sip, egress in enumerate(egress_ps)]
    if has_transit:
        for sip, of_sip in enumerate(bounds):
            of_sip.append(system.transit_reaction_ps(sip))
    return [min(of_sip) for of_sip in bounds]
