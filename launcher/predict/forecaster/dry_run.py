"""What ``--dry-run`` expects of a run: wall time, memory and simulated time, as far as they can be known."""

from launcher.options.options import Prepared
from launcher.predict.forecaster.forecaster import Forecaster
from launcher.report.progress.estimate import Estimator, Prediction
from sipsim.core.units import format_time_ps

HERE = ("local", "inproc")
"""The engines that run on this host alone, which is measured."""
LONGEST_S = 20.0
"""For the forecast. Its kernels are a user's, and may not end."""
LOADED = 0.7
"""With less of the processors than that, the prediction says how long the run would take by itself."""


def expectation(prepared: Prepared, limit_ps: int | None, started_s: float) -> str:
    """One line. ``limit_ps``: of ``--max-sim-time``; ``started_s``: when the command started, monotonic."""
    if prepared.job.script is not None:
        return "wall time and memory of a script are not known before it runs"
    if prepared.engine not in HERE:
        return f"wall time and memory are not known: --engine {prepared.engine} runs on other hosts"
    forecaster = Forecaster(prepared, started_s, is_beside_run=False)
    try:
        forecaster.ask()
        prediction, has_ended = forecaster.prediction(LONGEST_S), not forecaster.is_pending
    finally:
        forecaster.close()
    if not has_ended:
        return (
            f"wall time and memory are not known: its kernels had not been counted after {LONGEST_S:g} s; if one loops "
            f"for ever, a run with --progress-timeout 5 says where"
        )
    if prediction is None:
        return "wall time and memory are not known: the commands of its kernels cannot be counted before they run"
    return described(prediction, limit_ps)


def described(prediction: Prediction, limit_ps: int | None = None) -> str:
    """A prediction as text."""
    found = Estimator(prediction, limit_ps).estimate(0.0, 0, 0)
    wall_s = prediction.startup_s + found.left_s + prediction.end_s
    processes = "1 process" if prediction.processes == 1 else f"{prediction.processes} processes"
    by_itself = ""
    if prediction.share < LOADED:
        by_itself = f" beside what else loads this host (some {_rounded(wall_s * prediction.share)} s by itself)"
    return (
        f"about {_rounded(wall_s)} s of wall time{by_itself}, {round(prediction.memory_MiB)} MiB in {processes}, "
        f"{prediction.forecast.commands} commands of kernels, about {format_time_ps(found.total_ps)} of simulated time"
    )


def _rounded(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds < 10 else f"{seconds:.0f}"
