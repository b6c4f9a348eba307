"""A bench: a command of ``ahbm-bench``. One is a module of ``benches`` and a host script of ``programs``.

A case is all that a simulation has to know besides the chip, as a frozen dataclass: it is hashable and can go to
another process. What a bench needs beside ``test``, ``channels``, ``hops`` and ``sizes`` are fields of a subclass. A
run simulates one case: :meth:`Bench.measure` gives all its figures; runs know nothing of each other and their order
decides nothing. :meth:`Bench.measure` is given chips of an architecture with the settings to be tried. What a case
needs of other settings it puts in front of those, ``machine.with_first("system.chip_params...=...")``, so that an
experiment has the last word.

A published figure is that of a case (column ``case`` of ``configs/published``), its first size, a statistic and a
metric.

    @dataclass(frozen=True)
    class FabricCase(Case):
        topology: str = "line"
        links: int = 1

    class FabricBandwidth(Bench[FabricCase]):
        case_type = FabricCase

        def measure(self, case, machine):
            told = machine.run("fabric_bandwidth", ...)
            return [Figure(case.test, case.sizes[0], "GB/s", "busiest_link", told[0]["GBps"])]
"""

import argparse
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from launcher.bench.machine import Machine
from sipsim.config.yaml import one_line
from sipsim.core.registry import Registry, UnknownName
from sipsim.core.units import PS_PER_NS, PS_PER_US


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


AnyCase = TypeVar("AnyCase", bound=Case)


class Bench(ABC, Generic[AnyCase]):
    """``about``: a line for the help. ``case_type``: the class of its cases. ``sizes``, ``channels``: of packets and
    buffers, what it measures without flags; a bench without them has no such flag.
    """

    about: ClassVar[str]
    case_type: ClassVar[type[Case]] = Case
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
    objects_of=Bench,
)


def case_text(bench: str, case: Case) -> str:
    """A case as a cell of a table of published figures: the bench, and as JSON the fields that are not the defaults."""
    changed = {each.name: getattr(case, each.name) for each in fields(case) if getattr(case, each.name) != each.default}
    return f"{bench} {json.dumps(changed)}"


def case_of(text: str) -> tuple[str, Case]:
    """The bench and the case of such a cell.

    Raises:
        ValueError: with what cannot be read.
    """
    name, _, values = text.partition(" ")
    try:
        if name not in BENCHES.names():  # A dotted name would import a module.
            raise ValueError(f"there is no bench {name[:60]!r}")
        given = {key: _tuples(value) for key, value in json.loads(values).items()}
        case = BENCHES.get(name).case_type(**given)
        if not (isinstance(case.sizes, tuple) and case.sizes and all(type(each) is int for each in case.sizes)):
            raise ValueError("sizes must be whole numbers")
        return name, case
    except (UnknownName, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"case {text[:60]!r} cannot be read: {one_line(str(error))[:200]}") from None


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        raise ValueError("a field holds a mapping")
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
