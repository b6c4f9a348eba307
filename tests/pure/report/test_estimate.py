"""How far a run is: from its prediction and what has been seen of it."""

import msgspec
import pytest

from launcher.report.progress import Prediction, estimate
from sipsim.chips.api.forecast import STEPS, JobForecast, SizeForecast

US = 1_000_000


def size(commands: int, duration_ps: int, late: bool = False) -> SizeForecast:
    """A size whose commands end evenly; if ``late``, half of them in the last tenth of its time."""
    even = [duration_ps * step // STEPS for step in range(STEPS + 1)]
    half = [*(step * 9 // 5 for step in even[: STEPS // 2]), *(duration_ps * 9 // 10,) * (STEPS // 2), duration_ps]
    return SizeForecast(
        n_elem=1,
        nbytes=8,
        elements=4,
        counts={},
        commands=commands,
        duration_ps=duration_ps,
        curve_ps=tuple(half if late else even),
    )


def prediction(*sizes: SizeForecast, iterations: int = 1, **costs: object) -> Prediction:
    made = Prediction(
        forecast=JobForecast(sizes=sizes, iterations=iterations, gap_ps=0),
        startup_s=0.5,
        setup_s=(0.0,) * len(sizes),
        check_s=(0.0,) * len(sizes),
        command_s=0.01,
        us_s=0.0,
        end_s=0.25,
        memory_MiB=1.0,
        processes=1,
    )
    return msgspec.structs.replace(made, **costs)


EVEN = prediction(size(1000, 100 * US))


def test_what_goes_as_predicted() -> None:
    found = estimate(EVEN, 2.0, 20 * US, 200)
    assert (found.share, found.total_ps, found.left_s) == (pytest.approx(0.2), 100 * US, pytest.approx(8.0))


@pytest.mark.parametrize(("factor", "share"), [(0.5, 0.2), (3.0, 0.2), (3.0, 0.6)])
def test_a_host_of_another_speed_and_a_system_with_contention(factor: float, share: float) -> None:
    found = estimate(EVEN, 10 * share * factor, round(100 * US * share * factor), round(1000 * share))
    assert found.left_s == pytest.approx(10 * (1 - share) * factor)
    assert found.total_ps == pytest.approx(100 * US * factor)


def test_at_first_the_prediction_counts_and_not_what_has_hardly_been_measured() -> None:
    found = estimate(EVEN, 5.0, 1 * US, 10)
    assert 9.9 < found.left_s < 9.9 * 50 / 8
    assert estimate(EVEN, 0.0, 0, 0) == (0.0, 100 * US, pytest.approx(10.0))


def test_simulated_time_does_not_follow_commands() -> None:
    found = estimate(prediction(size(1000, 100 * US, late=True)), 4.0, 72 * US, 400)
    assert found.share == pytest.approx(0.4)
    assert found.total_ps == pytest.approx(100 * US, rel=0.03)


def test_data_are_made_before_commands_end() -> None:
    made = prediction(size(1000, 100 * US), setup_s=(10.0,))
    for elapsed_s, left_s in ((0.0, 20.0), (4.0, 16.0)):
        assert estimate(made, elapsed_s, 0, 0).left_s == pytest.approx(left_s)
    assert estimate(made, 25.0, 0, 0).left_s >= 10.0


def test_sizes_and_iterations_follow_each_other() -> None:
    made = prediction(
        size(10, 1 * US), size(100, 2 * US), iterations=2, setup_s=(1.0, 2.0), check_s=(0.5, 1.0), us_s=0.1
    )
    small, large = 10 * 0.01 + 0.1 + 0.5, 100 * 0.01 + 0.2 + 1.0
    assert made.work_s(0) == 0.0
    assert made.work_s(20) == pytest.approx(1 + 2 * small)
    assert made.work_s(120) == pytest.approx(1 + 2 * small + 2 + large)
    assert made.work_s(220) == pytest.approx(1 + 2 * small + 2 + 2 * large)
    assert made.total_s == pytest.approx(0.75 + made.work_s(220))
    steps = [made.work_s(commands) for commands in range(221)]
    assert steps == sorted(steps)


@pytest.mark.parametrize(("limit_ps", "left_s", "total_ps"), [(50 * US, 3.0, 50 * US), (200 * US, 8.0, 100 * US)])
def test_a_run_that_stops_earlier(limit_ps: int, left_s: float, total_ps: int) -> None:
    found = estimate(EVEN, 2.0, 20 * US, 200, limit_ps)
    assert (found.total_ps, found.left_s) == (total_ps, pytest.approx(left_s, rel=0.02))


def test_more_commands_than_were_counted_are_the_end() -> None:
    assert estimate(EVEN, 20.0, 100 * US, 2000) == (1.0, 100 * US, 0.0)
