"""Runs with ``--explain``, and what holds for every path. Not a test."""

from typing import Any

import msgspec

from launcher.api import run
from sipsim.records.explanation import Explanation


def explained(reruns: int = 0, **flags: Any) -> tuple[dict[str, Any], Explanation]:
    outcome = run(**{"engine": "inproc", "verify_data": False, **flags}, explain=True, explain_reruns=reruns)
    assert outcome.error is None, outcome.error
    return outcome.document, msgspec.convert(outcome.document["explain"][-1], Explanation)


def check_path(document: dict[str, Any], told: Explanation) -> None:
    time_ps = told.until_ps - told.since_ps
    assert time_ps >= document["runs"][-1]["time_ns"] * 1000 - 1, "the longest iteration, not shorter than their mean"
    ends_ps = [told.since_ps, *(step.end_ps for step in told.steps)]
    assert [step.start_ps for step in told.steps] == ends_ps[:-1], "one step after the other"
    assert ends_ps[-1] == told.until_ps
    for step in told.steps:
        assert sum(part.ps for part in step.parts) == step.end_ps - step.start_ps > 0, step
        assert all(part.ps > 0 for part in step.parts), step
    assert sum(part.ps for part in told.parts) == time_ps
    assert sum(phase.path_ps for phase in told.phases) == time_ps
