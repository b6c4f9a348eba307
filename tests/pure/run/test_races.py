"""``ahbm-races``: which runs are the same, which seed is the first, and mistakes in one line."""

import pytest

from launcher.cli.races import main
from launcher.run.races import Ended, Race, difference, first_race

SUM = {(0, "sum"): "a", (1, "sum"): "b"}


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (Ended("", SUM, 99), ""),
        (Ended("", {**SUM, (1, "sum"): "c"}, 5), "other results: sum of rank 1"),
        (Ended("", {(1, "sum"): "c"}, 5), "other results: sum of rank 0, sum of rank 1"),
        (Ended("", {**SUM, (1, "more"): "b"}, 5), "other results: more of rank 1"),
        (Ended("IpcqDeadlock: a cycle", {}, 0), "IpcqDeadlock: a cycle"),
    ],
)
def test_times_are_not_compared(other: Ended, what: str) -> None:
    assert difference(Ended("", SUM, 5), other) == what


def test_the_search_ends_at_the_first_seed() -> None:
    asked = []

    def run(seed: int) -> Ended:
        asked.append(seed)
        return Ended("exception: no" if seed >= 4 else "", SUM, 0)

    assert first_race(Ended("", SUM, 0), run, range(2, 9)) == Race(4, "exception: no")
    assert asked == [2, 3, 4]
    assert first_race(Ended("", SUM, 0), run, range(1, 4)) is None


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("", "ahbm-races: which script? see ahbm-races --help"),
        ("--topology n300", "ahbm-races: which script? see ahbm-races --help"),
        ("--seeds", "ahbm-races: --seeds '': write N for 1 to N, or A-B"),
        ("--seeds 5-x a.py", "ahbm-races: --seeds '5-x': write N for 1 to N, or A-B"),
        ("--seeds 5-2 a.py", "ahbm-races: --seeds 5-2: from 1 to 10000 seeds, in order"),
        ("--seeds=0 a.py", "ahbm-races: --seeds 0: from 1 to 10000 seeds, in order"),
        ("--seeds 3 --json a.json a.py", "ahbm-races: --json: belongs to a run by itself; leave it out"),
        ("--jitter 3 a.py", "ahbm-races: --jitter: belongs to a run by itself; leave it out"),
        ("--topolgy n300 a.py", "ahbm-races: unknown flag --topolgy; did you mean --topology?"),
        (
            "--sips 2 a.py",
            "ahbm-races: --jitter 1: chip ahbm has no jitter; chips of tiles do, such as --chip wormhole",
        ),
        ("--topology n300 a.py", "ahbm-races: a.py: no such file"),
    ],
)
def test_mistakes(words: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words.split()]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith(line)


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: ahbm-races [--seeds N or A-B] ")
