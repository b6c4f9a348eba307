"""The benches run and write their documented rows. Their speed is not tested."""

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench import kit
from launch import environment

ROOT = Path(__file__).resolve().parents[3]
QUICK = ["--repeat", "1", "--hops", "40", "--until", "4000", "--windows", "8", "--events", "20"]
ROW = {"tool", "transport", "pattern", "members", "ops_per_s", "us_each", "cpu_us_each"}

pytestmark = pytest.mark.processes


def script(folder: Path, name: str, *words: str) -> "tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]":
    """Run a script to its end; what it printed, and its rows."""
    out = folder / "rows.json"
    command = [sys.executable, str(ROOT / "scripts" / name), *words, "--json", str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment("/tmp"), timeout=600)
    return ran, json.loads(out.read_text())["rows"] if out.is_file() else []


@pytest.mark.parametrize("name", kit.benches())
@pytest.mark.parametrize("flags", [[], ["--quick"]], ids=["usual", "quick"])
def test_every_bench_has_flags_and_a_measure(name: str, flags: list[str]) -> None:
    bench = importlib.import_module(f"bench.{name}")
    chosen = vars(kit.parser_of(name, bench, bool(flags)).parse_args(flags))
    assert callable(bench.measure)
    assert {key: type(chosen[key]) for key in bench.FLAGS} == {
        key: type(each.usual) for key, each in bench.FLAGS.items()
    }


def test_the_command_lists_the_benches(capsys: pytest.CaptureFixture[str]) -> None:
    assert kit.main([], "") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(kit.benches())
    assert kit.main(["fabrik"], "") == 2
    assert "fabric" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        kit.main(["sync", "--patterns", "ring,rung"], "")
    assert "rung is none of ring, phold, step, work" in capsys.readouterr().err


@pytest.mark.slow
def test_a_claim_that_does_not_hold_is_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "rows.json"
    words = ["hbm", "--targets", "1", "--json", str(out)]
    assert kit.main(words, "") == 0
    monkeypatch.setattr(importlib.import_module("bench.hbm"), "WITHIN", 0.0)
    assert kit.main(words, "") == 1
    assert len(json.loads(out.read_text())["rows"]) == 1


def test_sync(tmp_path: Path) -> None:
    """Every pattern over every mail; a member that counts operations it has not done would change the sums."""
    ran, rows = script(tmp_path, "bench", "sync", *QUICK, "--members", "2,3")
    assert ran.returncode == 0, ran.stderr
    assert all(row.keys() >= ROW for row in rows)
    ours = {(row["transport"], row["pattern"], row["members"]) for row in rows if row["tool"] == "ahbm"}
    assert ours == {
        (mail, pattern, members)
        for mail in ("zmq", "unix")
        for pattern in ("ring", "phold", "step", "work")
        for members in (2, 3)
    }
    floors = {(row["transport"], row["pattern"]) for row in rows if row["tool"] == "floor"}
    assert floors == {("zmq", "ping"), ("unix", "ping"), ("zmq", "work"), ("unix", "work")}
    assert all(row["ops_per_s"] > 0 and row["us_each"] > 0 for row in rows)
    assert len(ran.stdout.splitlines()) == 1 + len(rows)


@pytest.mark.skipif(importlib.util.find_spec("helics") is not None, reason="HELICS is installed here")
def test_sync_reports_missing_tools(tmp_path: Path) -> None:
    ran, rows = script(tmp_path, "bench", "sync", *QUICK, "--vs", "helics")
    assert (ran.returncode, ran.stdout, rows) == (2, "", [])
    assert ran.stderr == "bench sync: HELICS is not installed here; pip install helics\n"


@pytest.mark.skipif(importlib.util.find_spec("helics") is None, reason="HELICS, an optional extra, is not installed")
def test_sync_against_helics(tmp_path: Path) -> None:
    ran, rows = script(tmp_path, "bench", "sync", *QUICK, "--members", "2", "--vs", "helics", "--cores", "ipc")
    assert ran.returncode == 0, ran.stderr
    assert {row["pattern"] for row in rows if row["tool"] == "helics"} == {"ring", "phold", "step", "work"}
    assert all("vs_helics_fastest" in row for row in rows if row["tool"] == "ahbm")


def test_ipcq(tmp_path: Path) -> None:
    """The row to watch and its two figures; a pair takes four events on the fast path."""
    ran, rows = script(tmp_path, "bench", "ipcq", "--repeat", "1", "--messages", "60")
    assert ran.returncode == 0, ran.stderr
    told = json.loads((tmp_path / "rows.json").read_text())
    assert rows[0]["what"] == "stream"
    assert all(told[key] == rows[0][key] for key in ("pairs_per_cpu_s", "events_per_pair"))
    assert 4 <= told["events_per_pair"] < 4.1, "it leaves, arrives, is written; a credit; the start of two kernels"
    assert all(row["pairs_per_cpu_s"] > 0 and row["of_bare"] > 0 for row in rows)
    assert len(ran.stdout.splitlines()) == 2 + len(rows)


@pytest.mark.slow
def test_speedup(tmp_path: Path) -> None:
    ran, rows = script(tmp_path, "bench", "speedup", "--repeat", "1", "--sips", "2", "--bytes", "64K")
    assert ran.returncode == 0, ran.stderr
    assert [(row["sips"], row["engine"], row["mail"]) for row in rows] == [
        (2, engine, mail) for engine, mail in (("inproc", None), ("local", "zmq"), ("local", "unix"))
    ]
    keys = ("wall_s", "cpu_s", "pss_mib_per_sip", "startup_s", "simulate_s", "speedup", "cpu_us_per_event")
    assert all(row[key] > 0 for row in rows for key in keys)
    assert len({row["digest"] for row in rows}) == 1


def test_gemm(tmp_path: Path) -> None:
    """Parts of the time add up; what is missing of the bound is told where it is more than a tenth."""
    ran, rows = script(tmp_path, "bench", "gemm", "--shapes", "2")
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert len(lines) == 1 + len(rows) == 3
    for row, line in zip(rows, lines[1:], strict=True):
        assert sum(row["parts"].values()) == pytest.approx(1)
        assert ("cycles" in line) == (row["reached"] < 0.9)


@pytest.mark.slow
def test_grid_of_collectives(tmp_path: Path) -> None:
    """A cell has its cases, on whole numbers and on any; a ``-`` where an algorithm does not run."""
    where = "--sips", "2,3", "--topologies", "line,custom", "--collective", "reduce_scatter", "--cases", "4"
    ran, rows = script(tmp_path, "ccl_grid.py", *where)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert {row["column"] for row in rows} == {"line 2", "line 3", "custom 2", "custom 3"}
    assert all((row["cases"], row["wrong"]) == (4, 0) for row in rows if row["algorithm"] != "halving_doubling")
    lines = ran.stdout.splitlines()
    assert len(lines) == 3 + len({row["algorithm"] for row in rows})
    assert lines[-1].startswith(f"{sum(row['cases'] for row in rows)} cases in {len(rows)} cells, 0 wrong")


def test_edm(tmp_path: Path) -> None:
    """An event a packet at the far end of a link; with data movers more, and their rate is below that of the wire."""
    ran, rows = script(tmp_path, "bench", "edm", "--packets", "64", "--channels", "2")
    assert ran.returncode == 0, ran.stderr
    raw, edm = rows
    assert (raw["how"], edm["how"]) == ("raw", "edm")
    assert raw["events_a_packet"][1] == 1 < edm["events_a_packet"][1] < 20
    assert 0 < edm["GBps"] < raw["GBps"] < 12.5


def test_allreduce(tmp_path: Path) -> None:
    """By its other name; all transfers are counted, by their bytes."""
    ran, rows = script(tmp_path, "bench_allreduce.py", "--sizes", "1", "--repeat", "1")
    assert ran.returncode == 0, ran.stderr
    (row,) = rows
    assert row["mib"] == 1
    assert row["transfers"] == sum(row["sizes"].values())
    # Both SIPs load their tensors and store the sums.
    assert sum(int(nbytes) * count for nbytes, count in row["sizes"].items()) > 2 * 2 * 2**20
    assert row["cpu_us_a_transfer"] * row["transfers"] == pytest.approx(row["cpu_s"] * 1e6)
    assert row["simulated_us"] > 1


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--sizes", "4,0"], "--sizes"),
        (["--repeat", "0"], "--repeat"),
        (["--vs", "simgrid", "--python", "/no/python"], "apt-get install python3-simgrid"),
        (["--instructions"], "install Debian's valgrind"),
        (["--record"], "commit launcher/changed.py first"),
    ],
)
def test_allreduce_refuses_in_a_line_before_anything_runs(
    words: list[str], named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = importlib.import_module("bench.allreduce")
    for name in ("run", "command"):
        monkeypatch.delattr(bench, name)
    monkeypatch.setattr(bench.shutil, "which", lambda _name: None)
    monkeypatch.setattr(bench, "_git", lambda *_words: " M launcher/changed.py")
    with pytest.raises(SystemExit) as refused:
        kit.main(["allreduce", *words], "")
    said = capsys.readouterr().err
    assert refused.value.code == 2
    assert named in said
    assert said.startswith("bench allreduce: ")
    assert said.count("\n") == 1


def test_allreduce_appends_rows_and_edits_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row has a cell for each column of the page."""
    bench = importlib.import_module("bench.allreduce")
    monkeypatch.setattr(bench, "_git", lambda *_words: "0123abcd")
    text = bench.PAGE.read_text()
    page = tmp_path / "performance.md"
    page.write_text(text)
    figures = {"mib": 4, "transfers": 12416, "cpu_s": 2.5, "cpu_us_a_transfer": 201.4, "simulated_us": 63.067806}
    bench.record(figures, page)
    bench.record({**figures, "mib": 16}, page)
    assert page.read_text().startswith(text)
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in page.read_text()[len(text) :].splitlines()]
    assert [row[1:2] + row[3:] for row in rows] == [
        ["0123abcd", mib, "12416", "2.50", "201.4", "63.068"] for mib in ("4", "16")
    ]
    assert {len(row) for row in rows} == {text.rstrip().splitlines()[-1].count("|") - 1}
