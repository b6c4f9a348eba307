"""A bench: a command of ``ahbm-bench``, and the published rows that it claims. One is a module of ``benches``.

How a bench claims rows. :meth:`Bench.claim` is handed each row whose ``family`` is one of ``Bench.families``, and
answers with a :class:`Claim`, or with None, and then the row counts as a miss. A claim has the *case*, all that the
simulation has to know besides the chip, and which figure of it is the row's: that of ``nbytes`` and ``statistic``, in
the row's own ``metric``. It is a rule on what a row says was measured, never on its value or its id: ``claim`` is given
rows of files that nobody here has seen, with sizes, counts and notes of their own. So it looks at all that would change
the result, and answers None to what it does not simulate. Whatever a row leaves out is None or "".

A case is a frozen dataclass, so it is hashable and can go to another process; what a bench needs beside ``test``,
``channels``, ``hops`` and ``sizes`` are fields of a subclass. Rows with equal cases share a run, in which
:meth:`Bench.measure` gives all figures of the case; runs know nothing of each other and their order decides nothing.
The chip is not part of a case: ``measure`` is given chips of the row's architecture with the settings to be tried. What
a case needs of other settings it puts in front of those, ``machine.with_first("system.chip_params...=...")``, so that
an experiment has the last word.

    @dataclass(frozen=True)
    class FabricCase(Case):
        topology: str = "line"
        links: int = 1

    class FabricBandwidth(Bench[FabricCase]):
        families = ("fabric_edm_bandwidth_t3k",)

        def claim(self, row):
            if row.topology not in TOPOLOGIES or row.nbytes is None or not row.links:
                return None
            return Claim(FabricCase(row.test, sizes=(row.nbytes,), topology=row.topology, links=row.links),
                         row.nbytes, row.statistic)

        def measure(self, case, machine):
            told = machine.run("fabric_bandwidth", ...)
            return [Figure(case.test, case.sizes[0], "GB/s", "busiest_link", told[0]["GBps"])]
"""

import argparse
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from launcher.bench.machine import ARCHITECTURES, Machine
from launcher.bench.published import TO_REPRODUCE, Published
from sipsim.core.registry import Registry
from sipsim.core.units import PS_PER_NS, PS_PER_US

CHIPS = {architecture: chip for chip, architecture in ARCHITECTURES.items()}


@dataclass(frozen=True)
class Case:
    """A test as published figures name it, with ``channels`` buffers, over ``hops`` links; ``sizes`` in bytes."""

    test: str
    channels: int = 1
    hops: int = 1
    sizes: tuple[int, ...] = ()

    def columns(self) -> dict[str, Any]:
        """Its fields without ``test`` and ``sizes``; those of one bench's cases can be sorted."""
        names = (field.name for field in fields(self))
        return {name: getattr(self, name) for name in names if name not in ("test", "sizes")}


class Figure(NamedTuple):
    """What a case measured with ``nbytes``. ``test``: as published figures name it; ``metric``: its unit;
    ``statistic``: what it is of the case; ``note``: what was not as asked for.
    """

    test: str
    nbytes: int
    metric: str
    statistic: str
    value: float
    note: str = ""

    @property
    def meant(self) -> float:
        """The value with the digits that are meant: a time has whole ps."""
        per_ps = {"ns": PS_PER_NS, "us": PS_PER_US}.get(self.metric)
        return self.value if per_ps is None else round(self.value * per_ps) / per_ps


class Claim(NamedTuple):
    """The case that is a row's, and which of its figures."""

    case: Case
    nbytes: int
    statistic: str


AnyCase = TypeVar("AnyCase", bound=Case)


class Bench(ABC, Generic[AnyCase]):
    """``about``: a line for the help. ``families``: of published rows, from which it claims. ``sizes``, ``channels``:
    of packets and buffers, what it measures if not told otherwise; a bench without them has no such flag.
    """

    about: ClassVar[str]
    families: ClassVar[tuple[str, ...]]
    sizes: ClassVar[tuple[int, ...]] = ()
    channels: ClassVar[tuple[int, ...]] = ()

    @abstractmethod
    def add_flags(self, group: "argparse._ArgumentGroup") -> None:
        """Its own flags, besides ``--sizes`` and ``--channels``."""

    def check(self, chosen: argparse.Namespace, machine: Machine) -> None:
        """Check what flags ask of the chips, before anything is started.

        Raises:
            ConfigError: for what they do not have.
        """

    @abstractmethod
    def cases(self, chosen: argparse.Namespace) -> list[AnyCase]:
        """What its flags ask for."""

    @abstractmethod
    def claim(self, row: Published) -> Claim | None:
        """What answers a published row to be reproduced; None for a row that it does not simulate."""

    def effort(self, case: AnyCase) -> float:
        """How long a case takes, in a unit of one's own: of several processes none should start a long one last."""
        return float(sum(case.sizes))

    @abstractmethod
    def measure(self, case: AnyCase, machine: Machine) -> list[Figure]:
        """Simulate a case, each of its sizes in a run of its own: no figure depends on what was measured before.

        Raises:
            ConfigError: for settings or sizes that cannot be.
            SimulationError: when a run fails.
        """


BENCHES: Registry[Bench[Any]] = Registry(
    "bench",
    {
        "launcher.bench.benches.ccl": ("ccl",),
        "launcher.bench.benches.ethernet": (
            "eth-bandwidth",
            "eth-ping",
            "ring-latency",
        ),
        "launcher.bench.benches.fabric": (
            "fabric-bandwidth",
            "fabric-latency",
            "fabric-mux",
        ),
    },
)


class Request(NamedTuple):
    """What a row asks of a bench on a chip; without ``claim`` nobody claims it, and ``reason`` may say why."""

    bench: str
    chip: str
    claim: Claim | None
    reason: str = ""


def request_of(row: Published) -> Request:
    """What a row asks for. A bench that cannot make sense of a row does not claim it."""
    chip = CHIPS.get(row.architecture, "")
    if row.kind != TO_REPRODUCE or not chip or row.problem:
        return Request("", chip, None, row.problem)
    for name in BENCHES.names():
        bench = BENCHES.get(name)
        if row.family not in bench.families:
            continue
        try:
            claim = bench.claim(row)
        except Exception as problem:  # A row of a file that nobody has seen; no other row may suffer.
            return Request(name, chip, None, one_line(f"{type(problem).__name__}: {problem}"))
        if claim is not None:
            return Request(name, chip, claim)
    return Request("", chip, None)


def one_line(text: str) -> str:
    """The first line of a text that says something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "failed without a message")
