"""The progress of a run as lines: when they are printed, and what they say with a prediction and without one."""

import sys
from typing import Any

import msgspec
import pytest
from outcomes import record

from broker.wire import RankRecord, RunStarted, Status
from launcher.report import progress
from launcher.report.outcome import Outcome
from launcher.report.progress import Prediction, Progress, _duration

US = 1_000_000


class Clock:
    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


class Known:
    """A prediction of 10 s for 100 us, which is there once it was asked for ``delay`` times."""

    def __init__(self, delay: int = 0) -> None:
        self.left = delay + 1
        self.closed = False

    def ask(self) -> None:
        self.left = max(self.left - 1, 0)

    @property
    def is_pending(self) -> bool:
        return self.left > 0

    def prediction(self) -> Prediction | None:
        if self.left:
            return None
        return Prediction(
            source="short runs", rows_ps=(100 * US,), rows_s=(10.0,), startup_s=0.0, memory_MiB=1.0, processes=1
        )

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def lines_of(shown: Progress, clock: Clock, seconds: int, capsys: Any) -> list[str]:
    """What is printed in a run that does a tenth of the work each second."""
    shown.note(RunStarted(), Outcome(2))
    for second in range(seconds + 1):
        clock.now_s = 100.0 + second
        if shown.due():
            shown.note(Status(2, 10 * second * US, 7, 10 * second * US), Outcome(2))
    shown.close()
    return capsys.readouterr().err.splitlines()


def test_what_was_told_a_while_ago_is_not_taken_for_the_present(clock: Clock, capsys: Any) -> None:
    shown = Progress(quiet=False, lines=True, predictor=Known)
    shown.note(RunStarted(), Outcome(2))
    clock.now_s = 102.5
    assert shown.due()
    shown.note(Status(2, 24 * US, 7, 20 * US, 500_000_000), Outcome(2))
    (line,) = capsys.readouterr().err.splitlines()
    assert line == ("ahbm-launch: 20%, simulated 24.000 us of about 100.000 us in 2.5 s, 7 grants, about 8 s left")


def test_a_run_that_is_longer_than_predicted_says_no_share(clock: Clock, capsys: Any) -> None:
    shown = Progress(quiet=False, lines=True, predictor=Known)
    shown.note(RunStarted(), Outcome(2))
    clock.now_s = 102.5
    assert shown.due()
    shown.note(Status(2, 150 * US, 7, 150 * US), Outcome(2))
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "ahbm-launch: simulated 150.000 us in 2.5 s, 7 grants"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_run_of_less_than_a_second_shows_nothing(
    clock: Clock, capsys: Any, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    monkeypatch.setattr(Progress, "_draw", lambda _self, text: print(text, file=sys.stderr))
    shown = Progress(quiet=False, lines=not is_terminal)
    for seconds, is_shown in ((0.6, False), (0.99, False), (1.2, True)):
        clock.now_s = 100 + seconds
        assert shown.due()
        shown.note(Status(2, 10 * US, 7, 10 * US), Outcome(2))
        assert ("simulated 10.000 us" in capsys.readouterr().err) == is_shown
    shown.close()


def test_every_five_seconds_from_the_first_on(clock: Clock, capsys: Any) -> None:
    lines = lines_of(Progress(quiet=True, lines=True, predictor=Known), clock, 9, capsys)
    assert lines == [
        "ahbm-launch: 10%, simulated 10.000 us of about 100.000 us in 1.0 s, 7 grants, about 9 s left",
        "ahbm-launch: 60%, simulated 60.000 us of about 100.000 us in 6.0 s, 7 grants, about 4 s left",
    ]


def test_the_first_line_waits_for_the_prediction(clock: Clock, capsys: Any) -> None:
    lines = lines_of(Progress(quiet=False, lines=True, predictor=lambda: Known(2)), clock, 4, capsys)
    assert [line.split(",")[0] for line in lines] == ["ahbm-launch: 30%"]


def test_but_not_for_long(clock: Clock, capsys: Any) -> None:
    lines = lines_of(Progress(quiet=False, lines=True, predictor=lambda: Known(1000)), clock, 6, capsys)
    assert lines == ["ahbm-launch: simulated 50.000 us in 5.0 s, 7 grants"]


def test_without_a_forecast(clock: Clock, capsys: Any) -> None:
    lines = lines_of(Progress(quiet=False, lines=True), clock, 2, capsys)
    assert lines == ["ahbm-launch: simulated 10.000 us in 1.0 s, 7 grants"]


def test_a_limit_is_no_guess(clock: Clock, capsys: Any) -> None:
    lines = lines_of(Progress(quiet=False, lines=True, limit_ps=50 * US, predictor=Known), clock, 2, capsys)
    assert lines == ["ahbm-launch: 20%, simulated 10.000 us of 50.000 us in 1.0 s, 7 grants, about 4 s left"]


@pytest.mark.parametrize("quiet", [True, False])
def test_without_a_terminal_nothing_is_printed_unasked_and_nothing_predicted(
    clock: Clock, capsys: Any, quiet: bool
) -> None:
    assert lines_of(Progress(quiet=quiet, predictor=lambda: pytest.fail("asked for")), clock, 9, capsys) == []


def test_the_prediction_ends_with_the_run(clock: Clock, capsys: Any) -> None:
    known = Known()
    shown = Progress(quiet=False, lines=True, predictor=lambda: known)
    shown.close()
    shown.close()
    assert known.closed


def test_records_are_told_at_once(capsys: Any) -> None:
    told: list[Outcome] = []
    outcome = Outcome(1)
    Progress(quiet=True, on_record=told.append).note(RankRecord(0, 0, msgspec.json.encode(record())), outcome)
    assert told == [outcome]
    assert (capsys.readouterr().err, sys.stderr.isatty()) == ("", False)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (119, "119 s"), (120, "2 min 0 s"), (7199, "119 min 59 s"), (7200, "2 h 0 min")],
)
def test_spans_of_time(seconds: float, text: str) -> None:
    assert _duration(seconds) == text
