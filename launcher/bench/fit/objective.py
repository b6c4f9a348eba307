"""What values cost: a robust loss of logarithms of simulated over published.

Of small errors it is their square, of great ones their size, so that a row which the model cannot meet does not pull.
Rows that are published with 5 %, or as a range of that width, count four times as much as the others; a row whose case
fails counts as ten times too great.
"""

import math
from collections.abc import Iterable

from launcher.bench.base import request_of
from launcher.bench.fit.parameters import Model
from launcher.bench.fit.search import Values
from launcher.bench.fit.subset import rows_for
from launcher.bench.published import Published
from launcher.bench.runner import Runner
from launcher.bench.validation import NEAR, Verdict, run_of, validate

TIGHT = ("~5%", "530-620")
FAILED = math.log(10)
BATCH = 2
"""Runs, of which all are done before a try can end."""


def weight(row: Published) -> float:
    """How much a row counts."""
    return 4.0 if row.tolerance in TIGHT else 1.0


def loss(verdict: Verdict) -> float:
    """Of a row: the square of small logarithms, and twice the size of great ones in units of ``NEAR``."""
    error = verdict.error
    log = FAILED if error is None or error <= -1 else math.log(error + 1)
    return weight(verdict.row) * 2 * NEAR**2 * (math.sqrt(1 + (log / NEAR) ** 2) - 1)


class Objective:
    """The cost of values over rows. ``evaluations``: how many costs were asked for."""

    def __init__(self, model: Model, rows: Iterable[Published], runner: Runner) -> None:
        known = list(rows)
        self.evaluations = 0
        self.rows = {each.name: rows_for(each, model, known) for each in model.parameters}
        self._model, self._runner = model, runner
        self._losses: dict[str, float] = {}

    def cost(self, name: str, values: Values, limit: float) -> float:
        """Over the rows that a parameter is searched over; infinite as soon as it is not below ``limit``.

        The runs with the worst rows come first, so that a bad try ends early.
        """
        self.evaluations += 1
        runs: dict[object, list[Published]] = {}
        for row in self.rows[name]:
            runs.setdefault(run_of(request_of(row)), []).append(row)
        worst = sorted(runs.values(), key=lambda run: -sum(self._losses.get(row.id, 0.0) for row in run))
        found: dict[str, float] = {}
        for first in range(0, len(worst), BATCH):
            batch = [row for run in worst[first : first + BATCH] for row in run]
            judged = validate(batch, self._model.settings(values), self._runner)
            found.update((each.row.id, loss(each)) for each in judged)
            if math.fsum(found.values()) >= limit:
                return math.inf
        self._losses.update(found)
        # The order of the runs changes from try to try, and the sum must not.
        return math.fsum(found.values())
