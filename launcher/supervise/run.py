"""Run: options, system and work, passed from preparation to engine and result file. Plain data."""

from dataclasses import dataclass, field

from launcher.options import Options
from launcher.report.progress import Progress
from sipsim.chips.api.run_plan import RunPlan
from sipsim.records.job import Job


def _no_progress() -> Progress:
    return Progress(quiet=True)


@dataclass(frozen=True)
class Run:
    """Options, system (``plan``) and work (``job``) of a run.

    ``scratch_dir``: private folder for sockets, logs and recorded data. ``started_s``: monotonic time of the start.
    """

    options: Options
    plan: RunPlan
    job: Job
    scratch_dir: str = ""
    started_s: float = 0.0
    progress: Progress = field(default_factory=_no_progress)
