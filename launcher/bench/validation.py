"""Published figures beside simulated ones: every row of a file that a bench claims, and how far off it is."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from launcher.bench.base import BENCHES, Request, request_of
from launcher.bench.published import TO_REPRODUCE, Published
from launcher.bench.runner import Job, Outcome, Runner

NEAR = 0.15
Settings = Mapping[str, tuple[str, ...]]
"""By chip, as of ``--set``."""


class Verdict(NamedTuple):
    """A published row; ``simulated`` and ``error`` (relative) are None where there is no figure. ``claimed``: by a
    bench; ``reason``: why there is no figure, where there is more to say than that nobody claims the row.
    """

    row: Published
    simulated: float | None
    claimed: bool = True
    reason: str = ""

    @property
    def error(self) -> float | None:
        """Simulated over published, less 1."""
        if self.simulated is None or not self.row.value:
            return None
        return self.simulated / self.row.value - 1

    @property
    def has_failed(self) -> bool:
        """Whether the run of the row's case has failed."""
        return self.claimed and self.simulated is None


class Summary(NamedTuple):
    """Of rows to be reproduced: how many, how many claimed, how many within ``NEAR``; over those with a figure, errors'
    median and RMS of their logarithms. None where there is no figure."""

    rows: int
    claimed: int
    near: int
    median: float | None
    log_rms: float | None


def validate(
    rows: Iterable[Published], settings: Settings | None = None, runner: Runner | None = None
) -> list[Verdict]:
    """Simulate all rows that are to be reproduced; a case that fails gives its rows a ``reason``. ``runner``: in this
    process, if not given."""
    wanted = list(rows)
    requests = [request_of(row) for row in wanted]
    jobs = _jobs(requests, settings or {})
    outcomes = (runner or Runner(1)).outcomes(jobs.values())
    return [
        _verdict(row, request, outcomes.get(jobs[run_of(request)]) if request.claim else None)
        for row, request in zip(wanted, requests, strict=True)
    ]


def summary(verdicts: Sequence[Verdict]) -> Summary:
    """Of rows to be reproduced; one without a figure is not near."""
    counted = [verdict for verdict in verdicts if verdict.row.kind == TO_REPRODUCE]
    errors = sorted(abs(verdict.error) for verdict in counted if verdict.error is not None)
    logs = [math.log(verdict.error + 1) for verdict in counted if verdict.error is not None and verdict.error > -1]
    log_rms = math.sqrt(sum(each * each for each in logs) / len(logs)) if logs else None
    near, claimed = sum(error <= NEAR for error in errors), sum(verdict.claimed for verdict in counted)
    return Summary(len(counted), claimed, near, errors[len(errors) // 2] if errors else None, log_rms)


def run_of(request: Request) -> tuple[object, ...]:
    """Equal for rows that share a run."""
    assert request.claim is not None
    return request.bench, request.chip, request.claim.case


def effort_of(request: Request) -> float:
    """What the case of a claim takes, in the unit of its bench."""
    assert request.claim is not None
    return BENCHES.get(request.bench).effort(request.claim.case)


def _jobs(requests: Iterable[Request], settings: Settings) -> dict[tuple[object, ...], Job]:
    """The job of each run."""
    return {
        run_of(request): Job(request.bench, request.claim.case, request.chip, settings.get(request.chip, ()))
        for request in requests
        if request.claim is not None
    }


def _verdict(row: Published, request: Request, outcome: Outcome | None) -> Verdict:
    claim = request.claim
    if claim is None or outcome is None:
        return Verdict(row, None, claimed=False, reason=request.reason)
    if outcome.error:
        return Verdict(row, None, reason=outcome.error)
    for figure in outcome.figures:
        if (figure.nbytes, figure.statistic, figure.metric) == (claim.nbytes, claim.statistic, row.metric):
            return Verdict(row, figure.meant)
    return Verdict(row, None, claimed=False, reason=f"no figure of {claim.statistic} in {row.metric}")
