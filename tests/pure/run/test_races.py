"""``ahbm-races``: which runs are the same, and which seed is the first. Its refusals are transcripts."""

import pytest

from launcher.commands.races import Race, SearchRun, difference, first_race, main

SUM = {(0, "sum"): "a", (1, "sum"): "b"}


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (SearchRun("", SUM, 99), ""),
        (SearchRun("", {**SUM, (1, "sum"): "c"}, 5), "different results: sum of rank 1"),
        (SearchRun("", {(1, "sum"): "c"}, 5), "different results: sum of rank 0, sum of rank 1"),
        (SearchRun("", {**SUM, (1, "more"): "b"}, 5), "different results: more of rank 1"),
        (SearchRun("IpcqDeadlock: a cycle", {}, 0), "IpcqDeadlock: a cycle"),
    ],
)
def test_times_are_not_compared(other: SearchRun, what: str) -> None:
    assert difference(SearchRun("", SUM, 5), other) == what


def test_the_search_ends_at_the_first_seed() -> None:
    asked = []

    def run(seed: int) -> SearchRun:
        asked.append(seed)
        return SearchRun("exception: no" if seed >= 4 else "", SUM, 0)

    assert first_race(SearchRun("", SUM, 0), run, range(2, 9)) == Race(4, "exception: no")
    assert asked == [2, 3, 4]
    assert first_race(SearchRun("", SUM, 0), run, range(1, 4)) is None


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: ahbm-races [--seeds N or A-B] ")
