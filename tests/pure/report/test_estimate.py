"""How far a run is: from its prediction and what has been seen of it."""

import pytest

from launcher.report.progress import Prediction, estimate

US = 1_000_000


def prediction(*rows: tuple[int, float]) -> Prediction:
    """Of rows with their simulated and wall times; no wall times if those are 0."""
    return Prediction(
        source="short runs",
        rows_ps=tuple(ps for ps, _ in rows),
        rows_s=tuple(s for _, s in rows if s),
        startup_s=0.5,
        memory_MiB=1.0,
        processes=1,
    )


EVEN = prediction((100 * US, 10.0))


def test_what_goes_as_predicted() -> None:
    found = estimate(EVEN, 2.0, 20 * US)
    assert (found.share, found.total_ps, found.left_s) == (pytest.approx(0.2), 100 * US, pytest.approx(8.0))


@pytest.mark.parametrize(("factor", "share"), [(0.5, 0.2), (3.0, 0.2), (3.0, 0.6)])
def test_a_host_of_another_speed(factor: float, share: float) -> None:
    found = estimate(EVEN, 10 * share * factor, round(100 * US * share))
    assert found.left_s == pytest.approx(10 * (1 - share) * factor)


def test_at_first_the_prediction_counts_and_not_what_has_hardly_been_measured() -> None:
    found = estimate(EVEN, 5.0, 1 * US)
    assert found.left_s is not None
    assert 9.9 < found.left_s < 9.9 * 50 / 8
    assert estimate(EVEN, 0.0, 0) == (0.0, 100 * US, pytest.approx(10.0))


def test_a_run_that_takes_no_time_is_done() -> None:
    """As a collective of one SIP, whose estimate has no messages."""
    assert estimate(prediction((0, 0)), 3.0, 0) == (1.0, 0, 0.0)


def test_rows_follow_each_other() -> None:
    made = prediction((10 * US, 1.0), (20 * US, 9.0))
    assert [made.work(now * US) for now in (0, 5, 10, 20, 30, 40)] == pytest.approx([0.0, 0.5, 1.0, 5.5, 10.0, 10.0])


def test_without_a_wall_time_the_run_itself_tells_what_is_left() -> None:
    made = prediction((100 * US, 0))
    found = estimate(made, 3.0, 20 * US)
    assert (found.share, found.left_s) == (pytest.approx(0.2), pytest.approx(12.0))
    assert estimate(made, 3.0, 0).left_s is None


@pytest.mark.parametrize(("limit_ps", "left_s", "total_ps"), [(50 * US, 3.0, 50 * US), (200 * US, 8.0, 100 * US)])
def test_a_run_that_stops_earlier(limit_ps: int, left_s: float, total_ps: int) -> None:
    found = estimate(EVEN, 2.0, 20 * US, limit_ps)
    assert (found.total_ps, found.left_s) == (total_ps, pytest.approx(left_s, rel=0.02))


def test_a_run_that_takes_longer_is_at_its_end() -> None:
    assert estimate(EVEN, 20.0, 120 * US) == (1.0, 120 * US, 0.0)
