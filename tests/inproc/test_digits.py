"""Times in result files have the digits that are meant: whole ps, so three behind ns and six behind us."""

import csv
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from runs import run

from launcher import options
from launcher.bench.base import Figure
from launcher.result import document as result

DIGITS = {"_ns": 3, "_us": 6, "_ps": 0}
FLAGS = ("--sips", "2", "--collective", "all_reduce", "--bytes", "64K", "-n", "3")


def times(value: Any, digits: int | None = None) -> Iterator[tuple[float, int]]:
    """Each number whose key, or that of what it stands in, has a unit of time; and the digits that it may have."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from times(item, DIGITS.get(key[-3:], digits))
    elif isinstance(value, list):
        for item in value:
            yield from times(item, digits)
    elif digits is not None and value is not None:
        yield value, digits


def behind_the_point(number: object) -> int:
    return max(-Decimal(str(number)).normalize().as_tuple().exponent, 0)  # type: ignore[operator]


def test_means_of_iterations_are_whole_ps(tmp_path: Path) -> None:
    done = run(*FLAGS)
    (row,) = done.document["runs"]
    told = {key: done.document[key] for key in done.document.keys() - {"config"}}
    found = list(times(told))
    assert len(found) > 20
    assert [number for number, digits in found if behind_the_point(number) > digits] == []
    assert isinstance(row["time_ps"], int)
    assert row["time_ps"] == round(row["time_ns"] * 1000)

    result.write(options.parse([*FLAGS, "--csv", str(tmp_path / "rows.csv")]), done.document)
    (line,) = csv.DictReader((tmp_path / "rows.csv").read_text().splitlines())
    assert {"time_ns", "launch_ns"} <= line.keys()
    assert all(behind_the_point(line[name]) <= DIGITS[name[-3:]] for name in line if name[-3:] in DIGITS)


@pytest.mark.parametrize(("metric", "value", "meant"), [("us", 20899.789 / 1000, 20.899789), ("ns", 0.1 + 0.2, 0.3)])
def test_figures_of_benches_too(metric: str, value: float, meant: float) -> None:
    assert Figure("a test", 16, metric, "mean", value).meant == meant
