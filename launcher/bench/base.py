"""Interface of benches, the subcommands of ``ahbm-bench``: each bench has a module in ``benches`` and host scripts.

A case contains all parameters of a simulation except the chip. The case is a frozen dataclass, hashable and picklable;
parameters besides ``test``, ``channels``, ``hops`` and ``sizes`` are fields of a subclass. :meth:`Bench.measure`
simulates one case and returns all figures of the case, independent of other cases. Its argument ``machine`` has the
user's chip and settings. ``machine.with_first("system.chip_params...=...")`` adds settings that a case needs, which the
user's settings override.

A published figure belongs to a case (column ``case`` of ``configs/published``), to the case's first size, and to a
statistic and a metric.

    @dataclass(frozen=True)
    class FabricCase(Case):
        topology: str = "line"
        links: int = 1

    class FabricBandwidth(Bench[FabricCase]):
        case_type = FabricCase

        def measure(self, case, machine):
            results = machine.run("fabric_bandwidth", ...)
            return [Figure(case.test, case.sizes[0], "GB/s", "busiest_link", results[0]["GBps"])]
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
    """Case of a bench. ``test``: name in published rows; ``hops``: number of links crossed; ``sizes``: in bytes."""

    test: str
    channels: int = 1
    hops: int = 1
    sizes: tuple[int, ...] = ()

    def columns(self) -> dict[str, Any]:
        """Return all fields except ``test`` and ``sizes`` by name. Cases of one bench can be sorted by the values."""
        names = (field.name for field in fields(self))
        return {name: getattr(self, name) for name in names if name not in ("test", "sizes")}


class Figure(NamedTuple):
    """Measured value of a case for size ``nbytes``. ``test``: name in published figures; ``metric``: unit of ``value``;
    ``statistic``: measured quantity; ``note``: how the run differs from the request, such as by fewer channels.
    """

    test: str
    nbytes: int
    metric: str
    statistic: str
    value: float
    note: str = ""

    @property
    def meant(self) -> float:
        """The value without floating-point noise: a time is rounded to whole ps."""
        per_ps = {"ns": PS_PER_NS, "us": PS_PER_US}.get(self.metric)
        return self.value if per_ps is None else round(self.value * per_ps) / per_ps


AnyCase = TypeVar("AnyCase", bound=Case)


class Bench(ABC, Generic[AnyCase]):
    """Base of benches. ``about``: a line for the help. ``case_type``: class of the bench's cases. ``sizes``,
    ``channels``: defaults of ``--sizes`` (bytes per packet) and ``--channels`` (buffers); if empty, the flag is absent.
    """

    about: ClassVar[str]
    case_type: ClassVar[type[Case]] = Case
    sizes: ClassVar[tuple[int, ...]] = ()
    channels: ClassVar[tuple[int, ...]] = ()

    @abstractmethod
    def add_flags(self, group: "argparse._ArgumentGroup") -> None:
        """Add the flags of the bench, besides ``--sizes`` and ``--channels``."""

    def check(self, chosen: argparse.Namespace, machine: Machine) -> None:
        """Check the flags against the chips, before any run.

        Raises:
            ConfigError: for features that the chips do not have.
        """

    @abstractmethod
    def cases(self, chosen: argparse.Namespace) -> list[AnyCase]:
        """Return the cases that the flags request."""

    def effort(self, case: AnyCase) -> float:
        """Return the relative wall time of a case, by which parallel runs start long cases first."""
        return float(sum(case.sizes))

    @abstractmethod
    def measure(self, case: AnyCase, machine: Machine) -> list[Figure]:
        """Simulate a case, with a separate run per size so that sizes do not affect one another; return the figures.

        Raises:
            ConfigError: for invalid settings or sizes.
            SimulationError: if a run fails.
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
    """Return a case as text for column ``case`` of published figures: the bench, then non-default fields as JSON."""
    changed = {each.name: getattr(case, each.name) for each in fields(case) if getattr(case, each.name) != each.default}
    return f"{bench} {json.dumps(changed)}"


def case_of(text: str) -> tuple[str, Case]:
    """Return the bench and the case from a text made by :func:`case_text`.

    Raises:
        ValueError: if the text cannot be read; the message quotes the text.
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
        raise ValueError("the value of a field is a mapping")
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
