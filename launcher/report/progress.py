"""How far a run is: a line that is redrawn on a terminal, or with ``--progress`` lines one below the other.

With a prediction the line says how much is done and when the run will end; without one, only how much simulated time
has passed. :class:`Prediction` and :func:`estimate` are pure.
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
"""From this share of the work on, what has been measured counts alone; before, in part."""


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """The prediction of a run on this host, row by row. ``source``: where its simulated times are from, in a few words.

    ``rows_ps``: simulated time of each row, with all of its iterations. ``rows_s``: wall time of each; empty where that
    is not known. ``startup_s``: wall time until all SIPs have joined. ``memory_MiB``: at most, of all ``processes``.
    """

    source: str
    rows_ps: tuple[Ps, ...]
    rows_s: tuple[float, ...]
    startup_s: float
    memory_MiB: float
    processes: int

    def work(self, now_ps: Ps) -> float:
        """The work that is done at a simulated time: wall time from the start of simulation, or in place of that a
        part of the simulated time.
        """
        done, start_ps = 0.0, 0
        for row_ps, row in zip(self.rows_ps, self.rows_s or self.rows_ps, strict=True):
            done += row * min(max(now_ps - start_ps, 0) / max(row_ps, 1), 1.0)
            start_ps += row_ps
        return done


class Estimate(NamedTuple):
    """``share`` of the work that is done; the simulated time of the whole run; wall time that is left, None where
    nothing says how long it is.
    """

    share: float
    total_ps: Ps
    left_s: float | None


def estimate(prediction: Prediction, elapsed_s: float, now_ps: Ps, limit_ps: Ps | None = None) -> Estimate:
    """The prediction of a run, corrected by what has been seen ``elapsed_s`` after the start of simulation, when SIPs
    have come to ``now_ps``. ``limit_ps``: where the run stops (``--max-sim-time``), None for its end.
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
    """By what to multiply the prediction of what is left: 1 at first, and the measured factor once there is enough."""
    if predicted <= 0 or measured <= 0:
        return 1.0
    weight = min(predicted / whole / TRUSTED_SHARE, 1.0)
    return 1 + (measured / predicted - 1) * weight


ASK_AFTER_S = 0.5
SHOW_AFTER_S = 1.0
EVERY_S = 0.2
LINE_EVERY_S = 5.0


class Predictor(Protocol):
    """Where the prediction of the run comes from, some time after it was asked for."""

    def ask(self) -> None:
        """Begin to make it."""

    def prediction(self) -> Prediction | None:
        """The prediction, None while it is not known."""

    @property
    def is_pending(self) -> bool:
        """Whether a prediction may still come."""

    def close(self) -> None:
        """It is needed no more."""


class Progress:
    """Draws on standard error, which keeps tables clean. ``is_on``: it draws at all; ``due``: a ``Status`` is wanted.

    ``lines``: print lines where standard error is no terminal. ``limit_ps``: that of ``--max-sim-time``. ``on_record``
    is called when another collective has ended on a rank, while nothing is drawn.
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
        """Whether the line is to be updated now."""
        if not self.is_on or time.monotonic() < self._next_s:
            return False
        self._next_s = time.monotonic() + EVERY_S
        if self._predictor is not None:
            self._predictor.ask()
        return True

    def note(self, message: ToLauncher, outcome: Outcome) -> None:
        """Take a message of the broker, which the outcome has noted."""
        match message:
            case RunStarted():
                self._simulating_s = time.monotonic()
            case Status():
                self._show(message)
            case RankRecord():
                with self._hidden():
                    self._on_record(outcome)

    def close(self) -> None:
        """Remove the line."""
        if self._live is not None:
            self._live.stop()
        if self._predictor is not None:
            self._predictor.close()
            self._predictor = None

    def _show(self, status: Status) -> None:
        """Draw the line, unless the run is too short yet."""
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
        took = f"in {now_s - self._began_s:.1f} s, {status.grants} grants"
        prediction = None if self._predictor is None else self._predictor.prediction()
        if prediction is None or status.reported_ps > sum(prediction.rows_ps):
            # The run is longer than predicted, by an unknown time.
            return f"simulated {format_time_ps(self._furthest_ps)} {took}"
        # The share is as of the last reports of SIPs, which are ``age_ns`` old on average.
        age_s = min(status.age_ns / 1e9, now_s - self._simulating_s)
        elapsed_s = now_s - self._simulating_s - age_s
        found = estimate(prediction, elapsed_s, status.reported_ps, self._limit_ps)
        of = f"of {'' if found.total_ps == self._limit_ps else 'about '}{format_time_ps(found.total_ps)}"
        simulated = f"simulated {format_time_ps(self._furthest_ps)} {of} {took}"
        left = "" if found.left_s is None else f", about {_duration(found.left_s - age_s)} left"
        return f"{found.share:.0%}, {simulated}{left}"

    def _draw(self, text: str) -> None:
        if self._live is None:
            # Imported here: most runs are too short for it.
            from rich.console import Console
            from rich.progress import Progress as Bar
            from rich.progress import SpinnerColumn, TextColumn

            columns = (SpinnerColumn(), TextColumn("{task.description}"))
            # Standard output must not be drawn over: it may be another file.
            self._live = Bar(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
            self._task = self._live.add_task("")
            self._live.start()
        self._live.update(self._task, description=text)

    @contextlib.contextmanager
    def _hidden(self) -> Iterator[None]:
        """The line is removed meanwhile: standard output may be the same terminal."""
        if self._live is None:
            yield
            return
        self._live.stop()
        try:
            yield
        finally:
            self._live.start()


def _duration(seconds: float) -> str:
    """A span of wall time for people."""
    whole = round(seconds)
    if whole < 120:
        return f"{max(whole, 1)} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 120 else f"{minutes} min {rest} s"
