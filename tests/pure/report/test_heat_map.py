"""Matrices as text: which form fits how many columns, the scale, and colours only on a terminal."""

import re
import sys
from itertools import pairwise

import pytest

from launcher.probe.heat_map import SHADES, Grid, heat_map, show


def grid(size: int) -> Grid:
    """From n to m takes 100 ns and what they are apart."""
    names = [str(number) for number in range(size)]
    return Grid("from a (row) to b (column)", names, names, [
        [None if row == column else 100.0 + abs(row - column) for column in range(size)] for row in range(size)
    ])  # fmt: skip


def text(size: int, columns: int) -> list[str]:
    return ["".join(run.text for run in line).rstrip() for line in heat_map([grid(size)], columns)]


@pytest.mark.parametrize(
    ("size", "columns", "line"),
    [
        (3, 80, "0     - 101.0 102.0"),
        (3, 19, "0     - 101.0 102.0"),
        (3, 18, "0   - 101 102"),
        (3, 12, "0   ..@@"),
        (3, 7, "0  .@"),
        (64, 80, " 0  .......:::::::-------=======+++++++*******%%%%%%%#######@@@@@@@"),
        (64, 40, " 0  .......:::::::-------=======+++++++*******%%%%%%%#######@@@@@@@"),
    ],
)
def test_the_most_exact_form_that_fits(size: int, columns: int, line: str) -> None:
    lines = text(size, columns)
    assert lines[2] == line
    assert max(map(len, lines[1:-3])) <= max(columns, len(" 0 ") + size)


def test_the_scale_names_each_shade_in_use() -> None:
    lines = text(64, 80)
    scale = " ".join(lines[lines.index("") + 1 :])
    found = re.findall(r"(\S) (\d+\.\d) to (\d+\.\d)", scale)
    assert "".join(shade for shade, _, _ in found) == SHADES
    assert (found[0][1], found[-1][2]) == ("101.0", "163.0")
    assert all(high == low for (_, _, high), (_, low, _) in pairwise(found))
    drawn = set("".join(line[3:] for line in lines[2:66])) - {" "}
    assert drawn == set(SHADES)


def test_one_value_has_one_shade() -> None:
    lines = text(2, 80)
    assert lines[-1] == "scale, ns:  . 101.0 to 101.0"


def test_colours_on_a_terminal_only(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """And the characters are the same."""
    lines = heat_map([grid(4)], 80)
    show(lines)
    plain = capsys.readouterr().out
    assert "\x1b" not in plain
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    show(lines)
    coloured = capsys.readouterr().out
    assert "\x1b[" in coloured
    stripped = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines()]
    assert stripped == plain.splitlines()
