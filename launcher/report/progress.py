"""Progress of a run: a line that is redrawn on a terminal; elsewhere, with ``--progress``, a line every few seconds.

If a prediction exists, the line shows the finished share of the work and the remaining time, otherwise only the
simulated time so far. :class:`Prediction` and :func:`estimate` are pure.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import msgspec

from broker.wire import RankRecord, RunStarted, Status, ToLauncher
from launcher.report.outcome import Outcome
from sipsim.core.units import format_time_ps

Ps = int
TRUSTED_SHARE = 0.1
"""Above this finished share of the work, only measured speed counts; below, a mean of measured and predicted speed."""


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """Prediction of a run on this host, row by row. ``source``: the source of the simulated times, as text.

    ``rows_ps``: simulated time of each row with all iterations. ``rows_s``: wall time of each row; empty if unknown.
    ``startup_s``: wall time until all SIPs have joined. ``memory_MiB``: sum of the peak memory of all ``processes``.
    """

    source: str
    rows_ps: tuple[Ps, ...]
    rows_s: tuple[float, ...]
    startup_s: float
    memory_MiB: float
    processes: int

    def work(self, now_ps: Ps) -> float:
        """Return the work done until ``now_ps``: the predicted wall time in seconds from the start of the simulation,
        or simulated time in ps if wall times are unknown.
        """
        done, start_ps = 0.0, 0
        for row_ps, row in zip(self.rows_ps, self.rows_s or self.rows_ps, strict=True):
            done += row * min(max(now_ps - start_ps, 0) / max(row_ps, 1), 1.0)
            start_ps += row_ps
        return done


class Estimate(NamedTuple):
    """Estimate of a run: ``share``, the finished part of the work, 0 to 1; ``total_ps``, simulated time of the whole
    run; ``left_s``, remaining wall time in seconds, None if unknown.
    """

    share: float
    total_ps: Ps
    left_s: float | None


def estimate(prediction: Prediction, elapsed_s: float, now_ps: Ps, limit_ps: Ps | None = None) -> Estimate:
    """Return the prediction of a run, corrected by the progress so far: SIPs have reached ``now_ps``, ``elapsed_s``
    seconds after the start of the simulation. ``limit_ps``: value of ``--max-sim-time``, None without a limit.
    """
    total_ps = max(sum(prediction.rows_ps), now_ps)
    if limit_ps is not None:
        total_ps = min(total_ps, limit_ps)
    done, whole = prediction.work(now_ps), prediction.work(total_ps)
    share = min(done / whole, 1.0) if whole else 1.0
    if prediction.rows_s:
        return Estimate(share, total_ps, (whole - done) * _scale(elapsed_s, done, whole))
    return Estimate(share, total_ps, elapsed_s * (1 - share) / share if share else None)


def _scale(measured: float, predicted: float, whole: float) -> float:
    """Return the factor for the predicted remaining time: 1 at first, measured / predicted time so far later on."""
    if predicted <= 0 or measured <= 0:
        return 1.0
    weight = min(predicted / whole / TRUSTED_SHARE, 1.0)
    return 1 + (measured / predicted - 1) * weight


ASK_AFTER_S = 0.5
SHOW_AFTER_S = 1.0
EVERY_S = 0.2
LINE_EVERY_S = 5.0


class Predictor(Protocol):
    """Source of a run's prediction, which becomes available some time after the request :meth:`ask`."""

    def ask(self) -> None:
        """Request the prediction."""

    def prediction(self) -> Prediction | None:
        """Return the prediction; None before the prediction is known."""

    @property
    def is_pending(self) -> bool:
        """Whether a prediction may still arrive."""

    def close(self) -> None:
        """Release the resources of the predictor."""


class Progress:
    """Progress line on standard error, so that tables stay clean. ``is_on``: whether progress is shown.

    ``lines``: print lines if standard error is no terminal. ``limit_ps``: value of ``--max-sim-time``. ``on_record`` is
    called after a rank has completed a collective, while the progress line is removed.
    """

    def __init__(
        self,
        quiet: bool,
        lines: bool = False,
        limit_ps: int | None = None,
        on_record: Callable[[Outcome], None] = lambda _outcome: None,
        predictor: Callable[[], Predictor] | None = None,
    ) -> None:
        self._is_terminal = sys.stderr.isatty()
        self.is_on = lines or (self._is_terminal and not quiet)
        self._limit_ps = limit_ps
        self._on_record = on_record
        self._began_s = time.monotonic()
        self._simulating_s = self._began_s
        self._next_s = self._began_s + ASK_AFTER_S
        self._next_line_s = self._began_s
        self._furthest_ps = 0
        self._predictor = predictor() if self.is_on and predictor is not None else None
        self._live: Any = None

    def due(self) -> bool:
        """Whether the line should be updated now: the caller then requests a ``Status`` from the broker."""
        if not self.is_on or time.monotonic() < self._next_s:
            return False
        self._next_s = time.monotonic() + EVERY_S
        if self._predictor is not None:
            self._predictor.ask()
        return True

    def note(self, message: ToLauncher, outcome: Outcome) -> None:
        """Update the line by a message of the broker, which ``outcome`` has already noted."""
        match message:
            case RunStarted():
                self._simulating_s = time.monotonic()
            case Status():
                self._show(message)
            case RankRecord():
                with self._hidden():
                    self._on_record(outcome)

    def close(self) -> None:
        """Remove the line and close the predictor."""
        if self._live is not None:
            self._live.stop()
        if self._predictor is not None:
            self._predictor.close()
            self._predictor = None

    def _show(self, status: Status) -> None:
        """Draw the line, unless the run has begun less than ``SHOW_AFTER_S`` ago."""
        now_s = time.monotonic()
        if not self.is_on or now_s < self._began_s + SHOW_AFTER_S:
            return
        self._furthest_ps = max(self._furthest_ps, status.now_ps)
        if self._is_terminal:
            self._draw(self._text(status, now_s))
        elif now_s >= self._next_line_s:
            text = self._text(status, now_s)
            waits = self._predictor is not None and self._predictor.is_pending
            if not waits or now_s >= self._began_s + LINE_EVERY_S:
                self._next_line_s = now_s + LINE_EVERY_S
                print(f"ahbm-launch: {text}", file=sys.stderr, flush=True)

    def _text(self, status: Status, now_s: float) -> str:
        elapsed = f"in {now_s - self._began_s:.1f} s, {status.grants} grants"
        prediction = None if self._predictor is None else self._predictor.prediction()
        if prediction is None or status.reported_ps > sum(prediction.rows_ps):
            # The run is longer than predicted, by an unknown time.
            return f"simulated {format_time_ps(self._furthest_ps)} {elapsed}"
        # The share is from the last reports of SIPs, which are ``age_ns`` old on average.
        age_s = min(status.age_ns / 1e9, now_s - self._simulating_s)
        elapsed_s = now_s - self._simulating_s - age_s
        found = estimate(prediction, elapsed_s, status.reported_ps, self._limit_ps)
        of = f"of {'' if found.total_ps == self._limit_ps else 'about '}{format_time_ps(found.total_ps)}"
        simulated = f"simulated {format_time_ps(self._furthest_ps)} {of} {elapsed}"
        left = "" if found.left_s is None else f", about {_duration(found.left_s - age_s)} left"
        return f"{found.share:.0%}, {simulated}{left}"

    def _draw(self, text: str) -> None:
        if self._live is None:
            # Imported late: most runs are too short for a progress line.
            from rich.console import Console
            from rich.progress import Progress as Bar
            from rich.progress import SpinnerColumn, TextColumn

            columns = (SpinnerColumn(), TextColumn("{task.description}"))
            # Standard output is not redirected: it may be a file.
            self._live = Bar(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
            self._task = self._live.add_task("")
            self._live.start()
        self._live.update(self._task, description=text)

    @contextlib.contextmanager
    def _hidden(self) -> Iterator[None]:
        """Remove the line in the body of the ``with``: standard output may be the same terminal."""
        if self._live is None:
            yield
            return
        self._live.stop()
        try:
            yield
        finally:
            self._live.start()


def _duration(seconds: float) -> str:
    """Return a span of wall time as text, such as "3 min 5 s"."""
    whole = round(seconds)
    if whole < 120:
        return f"{max(whole, 1)} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 120 else f"{minutes} min {rest} s"
