"""Benches that simulate nothing, for tests of reading, claiming, joining and fitting."""

from argparse import Namespace, _ArgumentGroup
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from launcher.bench.base import Bench, Case, Figure
from launcher.bench.machine import Machine
from launcher.bench.published import Published


@dataclass(frozen=True)
class LineCase(Case):
    """A case with a field of its own."""

    links: int = 1


class FakeBench(Bench[LineCase]):
    """Simulates rows of family ``fake`` that say how many links; ``value``: the figure of a case. ``ran``: what ran."""

    about: ClassVar[str] = "nothing"
    case_type: ClassVar[type[Case]] = LineCase
    sizes: ClassVar[tuple[int, ...]] = (16,)
    channels: ClassVar[tuple[int, ...]] = (1,)

    def __init__(self, value: Callable[[LineCase, int, Machine], float]) -> None:
        self.ran: list[tuple[LineCase, str, tuple[str, ...]]] = []
        self._value = value

    def add_flags(self, group: _ArgumentGroup) -> None:
        """None."""

    def cases(self, chosen: Namespace) -> list[LineCase]:
        """None."""
        return []

    @staticmethod
    def rule(row: Published) -> Case | None:
        """Rows with links; a note "bad" is a bug of the rule."""
        if row.note == "bad":
            raise KeyError(row.note)
        if row.links is None or row.nbytes is None:
            return None
        return LineCase(row.test, sizes=(row.nbytes,), links=row.links)

    def measure(self, case: LineCase, machine: Machine) -> list[Figure]:
        """A time and a rate of each size."""
        self.ran.append((case, machine.chip, machine.settings))
        return [
            Figure(case.test, nbytes, metric, statistic, self._value(case, nbytes, machine))
            for nbytes in case.sizes
            for statistic, metric in (("time", "ns"), ("rate", "GB/s"))
        ]


class FakeBenches:
    """In place of the registry of benches."""

    def __init__(self, **benches: Bench[Any]) -> None:
        self._benches = benches

    def names(self) -> list[str]:
        """All."""
        return sorted(self._benches)

    def get(self, name: str) -> Bench[Any]:
        """One."""
        return self._benches[name]


def install(monkeypatch: Any, bench: FakeBench) -> None:
    """Make it the only bench, of this process."""
    benches = FakeBenches(fake=bench)
    monkeypatch.setattr("tenstorrent.compare.BENCHES", benches)
    monkeypatch.setattr("tenstorrent.rows.RULES", {"fake": (("fake",), bench.rule)})
    monkeypatch.setattr("tenstorrent.fit.SECTIONS", {"": ("fake",)})


def published(**changed: Any) -> Published:
    """A row that the fake bench claims, but for what is changed."""
    values: dict[str, Any] = {
        "id": "A1",
        "architecture": "wormhole_b0",
        "family": "fake",
        "test": "line",
        "hops": None,
        "nbytes": 16,
        "channels": None,
        "metric": "ns",
        "value": 100.0,
        "kind": "output",
        "statistic": "time",
        "links": 1,
    }
    return Published(**{**values, **changed})
