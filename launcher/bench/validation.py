"""Published figures beside simulated ones: every row of a file that a bench knows, and how far off it is."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from launcher.bench.base import BENCHES, Bench, Case, Figure
from launcher.bench.machine import ARCHITECTURES, Machine
from launcher.bench.published import Published

TO_REPRODUCE = "output"
NEAR = 0.15


class Verdict(NamedTuple):
    """A published row; ``simulated`` and ``error`` (relative) are None where no bench knows the row."""

    row: Published
    simulated: float | None

    @property
    def error(self) -> float | None:
        """Simulated over published, less 1."""
        if self.simulated is None or not self.row.value:
            return None
        return self.simulated / self.row.value - 1


class Summary(NamedTuple):
    """Of rows to be reproduced: how many, how many within ``NEAR``; over those with a figure, errors' median and RMS
    of their logarithms. None where there is no figure."""

    rows: int
    near: int
    median: float | None
    log_rms: float | None


def validate(rows: Iterable[Published], settings: dict[str, tuple[str, ...]] | None = None) -> list[Verdict]:
    """Simulate all rows that are to be reproduced. ``settings``: by chip, as of ``--set``.

    Raises:
        SimulationError: when a run fails.
    """
    wanted = list(rows)
    machines = {
        name: Machine(chip=chip, settings=(settings or {}).get(chip, ())) for chip, name in ARCHITECTURES.items()
    }
    figures = {name: _figures(wanted, machine) for name, machine in machines.items()}
    return [Verdict(row, _answer(row, figures.get(row.architecture, []))) for row in wanted]


def summary(verdicts: Sequence[Verdict]) -> Summary:
    """Of rows to be reproduced; one without a figure is not near."""
    counted = [verdict for verdict in verdicts if verdict.row.kind == TO_REPRODUCE]
    errors = sorted(abs(verdict.error) for verdict in counted if verdict.error is not None)
    logs = [
        math.log(verdict.simulated / verdict.row.value)
        for verdict in counted
        if verdict.simulated is not None and verdict.simulated > 0 and verdict.row.value > 0
    ]
    log_rms = math.sqrt(sum(each * each for each in logs) / len(logs)) if logs else None
    near = sum(error <= NEAR for error in errors)
    return Summary(len(counted), near, errors[len(errors) // 2] if errors else None, log_rms)


def bench_of(row: Published) -> Bench | None:
    """The bench that simulates a row, if there is one."""
    if row.kind != TO_REPRODUCE or row.nbytes is None:
        return None
    benches = (BENCHES.get(name) for name in BENCHES.names())
    return next((bench for bench in benches if row.family in bench.families and bench.knows(row.test)), None)


def _figures(rows: Iterable[Published], machine: Machine) -> list[Figure]:
    """What the benches measure for all rows of an architecture; each case once, with all its sizes."""
    sizes: dict[tuple[str, Case], set[int]] = {}
    benches: dict[str, Bench] = {}
    for row in rows:
        bench = bench_of(row) if row.architecture == machine.architecture else None
        if bench is not None and row.nbytes is not None:
            key = type(bench).__name__, bench.case_of(row.test, row.channels, row.hops)
            benches[key[0]] = bench
            sizes.setdefault(key, set()).add(row.nbytes)
    return [
        figure for (name, case), each in sizes.items() for figure in benches[name].measure(case, sorted(each), machine)
    ]


def _answer(row: Published, figures: Iterable[Figure]) -> float | None:
    if bench_of(row) is None:
        return None
    return next((figure.value for figure in figures if row.is_answered_by(figure)), None)
