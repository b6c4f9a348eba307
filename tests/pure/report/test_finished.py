"""Records of all ranks become rows by group and call: groups may be disjoint, and ends in any order."""

from typing import Any

import pytest
from outcomes import record

from launcher.report.outcome import finished_runs
from sipsim.records.report import RunRecord


def of(group: int, call: int, end_ps: int, *sips: int, run: int | None = None) -> RunRecord:
    return record(group=group, call=call, sips=sips, spans_ps=((0, end_ps),), run=run)


A1, A2 = of(1, 1, 10, 0, 1), of(1, 2, 30, 0, 1)
B1, B2 = of(2, 1, 20, 3, 2), of(2, 2, 40, 3, 2)
W1, W2 = of(0, 1, 50, 0, 1, 2, 3), of(0, 2, 60, 0, 1, 2, 3)
CASES: dict[str, tuple[list[list[RunRecord]], list[tuple[RunRecord, tuple[int, ...], tuple[int, ...]]]]] = {
    "disjoint groups": (
        [[A1, A2, W1], [A1, A2, W1], [B1, B2, W1], [B1, B2, W1]],
        [(A1, (0, 1), (0, 0)), (B1, (3, 2), (0, 0)), (A2, (0, 1), (1, 1)), (B2, (3, 2), (1, 1)),
         (W1, (0, 1, 2, 3), (2, 2, 2, 2))],
    ),
    "only some ranks are in groups": (
        [[A1, W1], [A1, W1], [W1], [W1]],
        [(A1, (0, 1), (0, 0)), (W1, (0, 1, 2, 3), (1, 1, 0, 0))],
    ),
    "a member has not ended": ([[A1], [], [B1], [B1]], [(B1, (3, 2), (0, 0))]),
    "ends in another order on a rank": (
        [[W1, W2], [W2, W1], [W1, W2], [W1, W2]],
        [(W1, (0, 1, 2, 3), (0, 1, 0, 0)), (W2, (0, 1, 2, 3), (1, 0, 1, 1))],
    ),
    "numbers by starts": (
        [[of(1, 2, 5, 0, run=1), of(1, 1, 9, 0, run=0)], [], [], []],
        [(of(1, 2, 5, 0, run=1), (0,), (1,)), (of(1, 1, 9, 0, run=0), (0,), (0,))],
    ),
    "a chip without groups": (
        [[record(), record()]] * 4, [(record(), (0, 1, 2, 3), (0,) * 4), (record(), (0, 1, 2, 3), (1,) * 4)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_rows(case: str) -> None:
    told, expected = CASES[case]
    found: list[Any] = [(run.records[0], run.ranks, run.runs) for run in finished_runs(told)]
    assert found == expected
    assert all(len(run.records) == len(run.ranks) for run in finished_runs(told))
