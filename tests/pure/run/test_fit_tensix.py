"""The command line of the fit."""

import sys
from pathlib import Path
from typing import Any

import pytest
from scripts_of_the_project import script

FIT = script("fit_tensix")


def test_a_family_that_no_row_has_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["fit_tensix.py", "--family", "strange"])
    assert FIT.main() == 2
    assert capsys.readouterr().err == "fit_tensix.py: --family: no row has the family 'strange'\n"


def test_without_rows_all_stays_neutral_and_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    told = tmp_path / "told.json"
    flags = ["--chip", "blackhole", "--family", "seed_ubench", "--json", str(told), "--jobs", "1"]
    monkeypatch.setattr(sys, "argv", ["fit_tensix.py", *flags])
    assert FIT.main() == 0
    values = FIT.json.loads(told.read_text())["values"]
    assert values == {name: start for name, start in FIT.STARTS.items() if name.startswith("blackhole:")}
    shown = capsys.readouterr().out
    assert all(name in shown for name in values)
    assert "0 evaluations, 0 runs" in shown
