"""What is claimed of published figures of raw links, and that each mechanism is needed for it."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from scripts_of_the_project import script
from sweeps import some
from tenstorrent import report as tables
from tenstorrent.compare import Verdict, summary, validate
from tenstorrent.mechanisms import MECHANISMS

from launcher.bench.published import Published, default_files, read_published

ROOT = Path(__file__).resolve().parents[3]
ROWS = [row for path in default_files() if path.name == "ethernet.csv" for row in read_published(path)]
HEAD = (
    "id,arch,family,test,hops,packet_size_bytes,channels,metric,value,kind,statistic\n"
    "A1,wormhole_b0,ccl_perf,all_gather,8,4096,1,us,10,output,mean\n"
    "A2,wormhole_b0,eth_link_latency_no_edm,test_erisc_latency_uni_dir,1,512,16,ns,984,output,sender_main_loop_1_sample\n"
    "A3,grayskull,eth_link_latency_no_edm,test_erisc_latency_uni_dir,1,512,16,ns,984,output,sender_main_loop_1_sample\n"
    "A4,wormhole_b0,seed_ubench,link_line_rate,1,,,GB/s,12.5,input,per_direction\n"
)


@pytest.mark.slow
def test_nine_rows_of_ten_are_near() -> None:
    found = summary(list(validate(ROWS)))
    assert found.rows == 38
    assert found.near >= 37
    assert found.median is not None
    assert found.median < 0.05


FEW = {"TT0001", "TT0004", "TT0005", "TT0006", "TT0008", "TT0011", "TT0014", "TT0015", "TT0019", "TT0025", "TT0026",
       "TT0032", "TT0045", "TT0058", "TT0059", "TT0062"}  # fmt: skip
"""Rows that take little time and show every mechanism."""
GUIDE = {"TT0001", "TT0002", "TT0003", "TT0004", "TT0005", "TT0006"}
SHARING = "TT0562"
"""A row of a short run whose transfers share edges of a NoC."""


def few() -> list[Published]:
    return [row for row in ROWS if row.id in FEW]


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Verdict]:
    """The verdict of each row that an ordinary run looks at, by its id."""
    return {verdict.row.id: verdict for verdict in validate(row for row in ROWS if row.id in {*FEW, *GUIDE})}


@pytest.mark.parametrize(
    ("row", "least", "most"),
    [
        ("TT0001", 0.95 * 690, 1.05 * 690),
        ("TT0002", 0.95 * 650, 1.05 * 650),
        ("TT0003", 0.95 * 5.2, 1.05 * 5.2),
        ("TT0004", 0.85 * 1000, 1.15 * 1000),
        ("TT0005", 530, 620),
        ("TT0006", 0.95 * 1100, 1.05 * 1100),
    ],
)
def test_the_guides_figures_are_met(row: str, least: float, most: float, verdicts: dict[str, Verdict]) -> None:
    """Within 5 %, or the published range; a hop of 1 KiB, published as "roughly", within 15 %."""
    simulated = verdicts[row].simulated
    assert simulated is not None
    assert least <= simulated <= most


def test_these_rows_are_all_near(verdicts: dict[str, Verdict]) -> None:
    assert summary([verdicts[row.id] for row in few()]).near == len(FEW)


WITHOUT = [
    ("messages are stored in both subsystems", 13),
    ("a timer takes time to read", 14),
    ("an Ethernet command takes time", 13),
    ("a NoC command takes time", 13),
    ("a link has latency", 9),
]


@pytest.mark.parametrize(("mechanism", "most_near"), some(WITHOUT, WITHOUT[3], names=2))
def test_without_a_mechanism_fewer_rows_are_near(mechanism: str, most_near: int) -> None:
    """Framing is no such one: it is 3 to 5 % of a packet that fills the line. ``test_ubench.py`` has it by hand."""
    assert summary(validate(few(), MECHANISMS[mechanism].off)).near <= most_near


def test_any_file_of_the_same_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    path, told = tmp_path / "a.csv", tmp_path / "a.json"
    path.write_text(HEAD)
    flags = ["--csv", str(path), "--json", str(told), "--jobs", "1"]
    monkeypatch.setattr(sys, "argv", ["validate_tenstorrent.py", *flags])
    assert script("validate_tenstorrent").main() == 0
    rows = {row["id"]: row for row in json.loads(told.read_text())["rows"]}
    assert list(rows) == ["A1", "A2", "A3", "A4"]
    assert [rows[name]["simulated"] for name in ("A1", "A3", "A4")] == [None, None, None]
    assert rows["A2"]["error"] == pytest.approx(rows["A2"]["simulated"] / 984 - 1)
    assert "1 of 3 rows within 15 %" in capsys.readouterr().out
    path.write_text("id\n")
    assert script("validate_tenstorrent").main() == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_page_has_the_figures_of_the_parameters_that_are() -> None:
    """Of a page that was made before a parameter changed, the tables say otherwise."""
    page, module = (ROOT / "docs" / "validation.md").read_text(), script("validate_tenstorrent")
    assert module.put(page, "parameters", module.parameters()) == page
    assert "| `latency_ns` | 422 | 434 |" in page


def test_the_page_has_the_rows_that_are_simulated(verdicts: dict[str, Verdict]) -> None:
    page = (ROOT / "docs" / "validation.md").read_text()
    sharing = validate(row for path in default_files() for row in read_published(path) if row.id == SHARING)
    assert [verdict.row.id for verdict in sharing] == [SHARING]
    lines = tables.rows([*verdicts.values(), *sharing]).splitlines()
    assert [line for line in lines if line not in page] == []
