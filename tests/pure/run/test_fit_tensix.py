"""The search of parameters: it finds what rows were made with, spares runs, and judges tests that it has not seen."""

import math
from argparse import Namespace
from typing import Any

import pytest
from fake_benches import FakeBench, LineCase, install, published
from scripts_of_the_project import script

from launcher.bench.machine import Machine
from launcher.bench.published import Published
from launcher.bench.runner import Runner
from launcher.bench.validation import Verdict

FIT = script("fit_tensix")
A = FIT.Parameter("a", "wormhole", "key.a", 10.0, 4.0)
B = FIT.Parameter("b", "wormhole", "key.b", 0.0, 2.0, ("fake",))


def time_ns(case: LineCase, nbytes: int, machine: Machine) -> float:
    """``a`` for each byte, and ``b``; on other chips it fails."""
    settings = dict(setting.split("=") for setting in machine.settings)
    return float(settings["key.a"]) * nbytes + float(settings["key.b"])


def rows(tests: int = 1) -> list[Published]:
    """Rows that were made with a = 15, b = 3."""
    return [
        published(id=f"{test}-{nbytes}", test=f"test {test}", nbytes=nbytes, value=15.0 * nbytes + 3)
        for test in range(tests)
        for nbytes in (16, 1, 4)
    ]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> FakeBench:
    bench = FakeBench(time_ns)
    install(monkeypatch, bench)
    return bench


def test_it_finds_the_values_that_rows_were_made_with(bench: FakeBench) -> None:
    values, cost = FIT.Search([A, B], rows(), Runner(1)).fit({"a": 10.0, "b": 0.0}, 30)
    assert values == {"a": pytest.approx(15, abs=0.01), "b": pytest.approx(3, abs=0.05)}
    assert cost == pytest.approx(0, abs=1e-5)


def test_without_a_round_the_values_stay(bench: FakeBench) -> None:
    start = {"a": 10.0, "b": 0.0}
    values, cost = FIT.Search([A, B], rows(), Runner(1)).fit(start, 0)
    assert values == start
    assert cost == pytest.approx(
        sum(FIT.loss(Verdict(row, 10.0 * row.nbytes)) for row in rows() if row.nbytes is not None)
    )


def test_a_value_is_never_below_zero(bench: FakeBench) -> None:
    """The row would have b = -5."""
    search = FIT.Search([A._replace(step=0.0), B], [published(value=11.0)], Runner(1))
    assert search.fit({"a": 1.0, "b": 1.0}, 6)[0] == {"a": 1.0, "b": 0.0}


def test_rows_that_a_parameter_has_no_effect_on_are_not_simulated_again(bench: FakeBench) -> None:
    other = B._replace(families=("other",))
    FIT.Search([A, other], rows(), Runner(1)).fit({"a": 15.0, "b": 3.0}, 1)
    assert {settings[1] for _, _, settings in bench.ran} == {"key.b=3"}


def test_a_bad_try_ends_after_the_worst_runs(bench: FakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FIT, "BATCH", 1)
    tried = FIT.Search([A, B], rows(), Runner(1))
    tried.fit({"a": 15.0, "b": 3.0}, 1)
    runs = [settings for _, _, settings in bench.ran]
    assert runs.count(("key.a=15", "key.b=3")) == 3
    assert runs.count(("key.a=19", "key.b=3")) == 1


@pytest.mark.parametrize(("simulated", "times"), [(100 * math.e**0.01, 1), (None, 0), (-5.0, 0)])
def test_small_errors_count_as_squares_and_failures_as_ten_times_too_much(simulated: float | None, times: int) -> None:
    found = FIT.loss(Verdict(published(), simulated))
    assert found == pytest.approx(0.01**2 if times else FIT.loss(Verdict(published(), 1000.0)), rel=0.01)


def test_a_row_that_the_model_cannot_meet_pulls_less_than_its_square() -> None:
    one, two = (FIT.loss(Verdict(published(), 100 * math.e**log)) for log in (1.0, 2.0))
    assert 2 * one <= two < 2.5 * one


def test_rows_with_a_narrow_range_count_four_times() -> None:
    wide, tight = (FIT.loss(Verdict(published(tolerance=text), 120.0)) for text in ("10%", "~5%"))
    assert tight == pytest.approx(4 * wide)


def test_all_rows_of_a_test_are_in_one_fold_in_order_of_name() -> None:
    found = FIT.folds([*rows(5), *rows(5)[::-1]], 2)
    tests = [sorted({row.test for row in fold}) for fold in found]
    assert tests == [["test 0", "test 2", "test 4"], ["test 1", "test 3"]]
    assert sum(map(len, found)) == 30


def test_each_test_is_judged_with_values_that_were_fitted_to_the_others(bench: FakeBench, capsys: Any) -> None:
    """Of two tests that contradict each other, each is judged with what the other says."""
    ten = [published(id=f"x{nbytes}", test="ten", nbytes=nbytes, value=10.0 * nbytes) for nbytes in (1, 16)]
    six = [published(id=f"y{nbytes}", test="six", nbytes=nbytes, value=6.0 * nbytes) for nbytes in (1, 16)]
    chosen = Namespace(holdout=2, rounds=4)
    verdicts = FIT.hold_out([A, B], {"a": 10.0, "b": 0.0}, chosen, [*ten, *six], Runner(1))
    assert {each.row.id: each.simulated for each in verdicts} == {"x1": 6.0, "x16": 96.0, "y1": 10.0, "y16": 160.0}
    assert capsys.readouterr().out.count("0 of 2 rows within 15.0 %") == 2


def test_every_parameter_of_the_project_is_a_setting() -> None:
    for each in FIT.PARAMETERS:
        Machine(chip=each.chip, settings=(each.setting(each.start),)).check()
        assert each.step > 0
