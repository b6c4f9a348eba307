"""Launches as lines below the table, and PEs in a few words."""

from typing import Any

import pytest

from launcher.result.table import MOST_LAUNCH_LINES, launch_lines
from sipsim.chips.ahbm.usage import combined
from sipsim.records.report import KernelUse, places_text


def launch(name: str, rank: int, end_ns: float, run: int | None = None, **busy_ns: float) -> dict[str, Any]:
    times = {"start_ns": 0.0, "end_ns": end_ns, "kernels_start_ns": 0.0, "kernels_end_ns": end_ns}
    return {"name": name, "rank": rank, "run": run, "pes": "cube 0, PE 0", "kernels": 2, "busy_ns": busy_ns, **times}


def test_equal_launches_are_one_line() -> None:
    some = [launch("scan", rank, 1000.0, load=500.0, math=0.0) for rank in (0, 1) for _ in range(3)]
    lines = list(launch_lines([*some, launch("sort", 1, 2000.0), launch("sort", 1, 3000.0, recv=5000.0)], 8, False))
    assert lines == [
        "launch scan on 2 ranks, 6 times (cube 0, PE 0): 1.000 us, 25.0 % load",
        "launch sort on rank 1, 2 times (cube 0, PE 0): 2.000 to 3.000 us, 50.0 % recv",
    ]


def test_the_way_of_a_launch_is_told_apart() -> None:
    some = {**launch("scan", 0, 3000.0, load=1500.0), "start_ns": 500.0, "kernels_start_ns": 1500.0}
    some["kernels_end_ns"] = 2400.0
    (line,) = launch_lines([some], 1, False)
    assert line == (
        "launch scan on rank 0 (cube 0, PE 0): 2.500 us from 0.500 us on, 1.600 us of which before and after all "
        "kernels, 30.0 % load"
    )


def test_collectives_have_rows_already() -> None:
    some = [launch("all_reduce", 0, 1000.0, 0)]
    assert list(launch_lines(some, 1, False)) == []
    assert list(launch_lines(some, 1, True)) == [
        "launch all_reduce on rank 0 (cube 0, PE 0): 1.000 us from 0.000 us on"
    ]


def test_there_are_few_lines() -> None:
    lines = list(launch_lines([launch(f"k{number}", 0, 1.0) for number in range(13)], 20, False))
    assert len(lines) == MOST_LAUNCH_LINES + 2
    assert lines[-2:] == ["3 more kinds of launches (--json)", "7 more launches, which are not listed"]


@pytest.mark.parametrize(
    ("places", "text"),
    [
        ([], "none"),
        ([(0, 0)], "cube 0, PE 0"),
        ([(2, 1), (0, 1), (1, 1)], "cubes 0-2, PE 1"),
        ([(0, 0), (0, 1), (0, 3), (5, 0), (5, 1), (5, 3)], "cubes 0,5, PE 0-1,3"),
        ([(0, 0), (2, 1)], "cube 0: PE 0; cube 2: PE 1"),
    ],
)
def test_pes_in_a_few_words(places: list[tuple[int, int]], text: str) -> None:
    assert places_text(places) == text


def test_use_is_added_and_subtracted() -> None:
    one, other = KernelUse(1, 10, 12, {"load": 4}), KernelUse(2, 20, 30, {"load": 1, "recv": 7})
    both = combined(one, other)
    assert both == KernelUse(3, 30, 42, {"load": 5, "recv": 7})
    assert combined(both, one, -1) == other
    assert combined(KernelUse(), one) == combined(one, KernelUse()) == combined(one, KernelUse(), -1) == one
