"""How far a run of the built-in job is, and what is left: its forecast, corrected by what has been seen. Pure."""

from bisect import bisect_right
from typing import NamedTuple

import msgspec

from sipsim.chips.api.forecast import JobForecast

Ps = int
TRUSTED_SHARE = 0.1
"""From this share of the work on, what has been measured counts alone; before, in part."""


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What a run takes on this host, by its ``forecast``.

    ``startup_s``: until all SIPs have joined. ``setup_s`` of each size: to make its data. Every iteration takes
    ``command_s`` a command, ``us_s`` a microsecond of simulated time, and ``check_s`` of its size.
    ``end_s``: after the last one. ``memory_MiB``: at most, of all ``processes``. ``share``: the part of the processors
    which the run could use that others leave it, from 0 to 1.
    """

    forecast: JobForecast
    startup_s: float
    setup_s: tuple[float, ...]
    check_s: tuple[float, ...]
    command_s: float
    us_s: float
    end_s: float
    memory_MiB: float
    processes: int
    share: float = 1.0

    @property
    def total_s(self) -> float:
        """Wall time of the whole command."""
        return self.startup_s + self.work_s(self.forecast.commands) + self.end_s

    def work_s(self, commands: int) -> float:
        """Wall time from the start of simulation until so many commands have ended."""
        forecast, total_s = self.forecast, 0.0
        for size, setup_s, check_s in zip(forecast.sizes, self.setup_s, self.check_s, strict=True):
            if commands <= 0:
                break
            ended = min(commands, size.commands * forecast.iterations)
            iteration_s = size.commands * self.command_s + size.duration_ps / 1e6 * self.us_s + check_s
            whole, rest = divmod(ended, size.commands)
            part_s = rest * (self.command_s + check_s / size.commands) + size.time_ps(rest) / 1e6 * self.us_s
            total_s += setup_s + whole * iteration_s + (part_s if rest else 0.0)
            commands -= ended
        return total_s


class Estimate(NamedTuple):
    """``share`` of the work that is done; the simulated time of the whole run; wall time that is left."""

    share: float
    total_ps: Ps
    left_s: float


class Estimator:
    """Estimates one run. ``limit_ps``: where it stops (``--max-sim-time``), None for its end."""

    def __init__(self, prediction: Prediction, limit_ps: Ps | None = None) -> None:
        self._prediction = prediction
        self._limit_ps = limit_ps

    def estimate(self, elapsed_s: float, now_ps: Ps, commands: int) -> Estimate:
        """The estimate ``elapsed_s`` after the start of simulation, when ``commands`` have ended on all ranks."""
        forecast, prediction = self._prediction.forecast, self._prediction
        commands = min(commands, forecast.commands)
        scale = _scale(now_ps, forecast.time_ps(commands), forecast.duration_ps)
        total_ps = now_ps + round((forecast.duration_ps - forecast.time_ps(commands)) * scale)
        last = forecast.commands
        if self._limit_ps is not None and self._limit_ps < total_ps:
            last = max(commands, self._commands_at(round(self._limit_ps / scale)))
            total_ps = self._limit_ps
        done_s, whole_s = prediction.work_s(commands), prediction.work_s(last)
        if not commands:
            # The data of the first size are being made.
            done_s = min(elapsed_s, prediction.setup_s[0])
        left_s = (whole_s - done_s) * _scale(elapsed_s, done_s, whole_s)
        return Estimate(min(done_s / whole_s, 1.0), total_ps, left_s)

    def _commands_at(self, time_ps: Ps) -> int:
        forecast = self._prediction.forecast
        return bisect_right(range(forecast.commands + 1), time_ps, key=forecast.time_ps) - 1


def _scale(measured: float, predicted: float, whole: float) -> float:
    """By what to multiply the prediction of what is left: 1 at first, and the measured factor once there is enough."""
    if predicted <= 0 or measured <= 0:
        return 1.0
    weight = min(predicted / whole / TRUSTED_SHARE, 1.0)
    return 1 + (measured / predicted - 1) * weight
