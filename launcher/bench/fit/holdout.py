"""Fits, and how they do on tests that they have not seen.

A *test* is what rows name so, together with their family. The tests of a family go to folds in turn, in the order of a
digest of their names, and the next family goes on where the last one has ended. For each fold the parameters are
fitted from neutral values to the rows of the other folds, and then its rows are simulated with them.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from launcher.bench import tables
from launcher.bench.base import CHIPS
from launcher.bench.fit.objective import Objective
from launcher.bench.fit.parameters import Model
from launcher.bench.fit.search import Values, searched
from launcher.bench.fit.subset import SECTIONS, section_of
from launcher.bench.published import TO_REPRODUCE, Published
from launcher.bench.runner import Runner
from launcher.bench.validation import Verdict, summary, validate

Test = tuple[str, str]
"""Its family and its name."""


class Fit(NamedTuple):
    """``evaluations``: of values. ``runs``: cases that were simulated for it, and not known before. ``rows``: by
    parameter, the ids of the rows that it was searched over."""

    values: Values
    evaluations: int
    runs: int
    rows: dict[str, list[str]]


class Fold(NamedTuple):
    """The tests that were left out, the fit without them, and what it gives for them."""

    tests: list[Test]
    fit: Fit
    verdicts: list[Verdict]


def fit(model: Model, start: Values, rows: Iterable[Published], runner: Runner, probes: int, sweeps: int = 1) -> Fit:
    """The values that rows ask for; section by section, of one chip after the other. ``probes``, ``sweeps``: as of
    :func:`~launcher.bench.fit.search.searched`.
    """
    ran, objective = runner.runs, Objective(model, rows, runner)
    values = dict(start)
    for chip in dict.fromkeys(each.key.chip for each in model.parameters):
        for section in SECTIONS:
            own = [each for each in model.parameters if (each.key.chip, section_of(each)) == (chip, section)]
            movable = [each for each in own if objective.rows[each.name]]
            values = searched(values, movable, objective.cost, probes, sweeps)
    shown = {name: [row.id for row in own] for name, own in objective.rows.items()}
    return Fit(values, objective.evaluations, runner.runs - ran, shown)


def folds(rows: Sequence[Published], count: int) -> list[list[Published]]:
    """The rows in ``count`` folds; all rows of a test are in one."""
    tests = sorted({(row.family, row.test) for row in rows}, key=lambda test: (test[0], _digest(test)))
    where = {test: number % count for number, test in enumerate(tests)}
    return [[row for row in rows if where[row.family, row.test] == fold] for fold in range(count)]


def _digest(test: Test) -> str:
    return hashlib.sha256("/".join(test).encode()).hexdigest()


def hold_out(
    model: Model, rows: Sequence[Published], count: int, runner: Runner, probes: int, sweeps: int = 1
) -> Iterator[Fold]:
    """Each fold, when it is judged. Rows that are not to be reproduced are in none."""
    wanted = [row for row in rows if row.kind == TO_REPRODUCE and row.architecture in CHIPS]
    for left_out in folds(wanted, count):
        ids = {row.id for row in left_out}
        found = fit(model, model.neutral, [row for row in wanted if row.id not in ids], runner, probes, sweeps)
        tests = sorted({(row.family, row.test) for row in left_out})
        yield Fold(tests, found, validate(left_out, model.settings(found.values), runner))


def by_architecture(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    """The verdicts of each architecture, and of all."""
    names = sorted({each.row.architecture for each in verdicts})
    return {
        **{name: [each for each in verdicts if each.row.architecture == name] for name in names},
        "all": [*verdicts],
    }


def document(found: Sequence[Fold]) -> dict[str, Any]:
    """A hold-out for machines: summaries by architecture, and for each fold its tests, fit and rows."""
    every = [each for fold in found for each in fold.verdicts]
    return {
        "summary": {name: summary(own)._asdict() for name, own in by_architecture(every).items()},
        "folds": [
            {"tests": fold.tests, **fold.fit._asdict(), "held_out": tables.document(fold.verdicts)["rows"]}
            for fold in found
        ],
    }
