"""``ahbm-bench``: mistakes are one line, before anything is simulated; files of published figures; tables and plots."""

from pathlib import Path

import pytest
from tenstorrent.compare import NEAR, Verdict, summary
from tenstorrent.rows import request_of

from launcher.bench import command as bench
from launcher.bench.base import BENCHES, Case, Figure
from launcher.bench.command import main, parse_bench
from launcher.bench.published import COLUMNS, Published, default_files, read_published
from launcher.bench.report import LEAST_POINTS, ResultRow, best_channels, csv_text, plots, tables
from launcher.options import ParserExit
from sipsim.core.errors import ConfigError

HEAD = ",".join(COLUMNS)
ROW = "A1,wormhole_b0,eth_link_bandwidth_no_edm,test_erisc_bw_uni_dir,1,16,16,GB/s,0.28,output,per_direction"


def test_without_matplotlib_a_picture_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ParserExit, match="--plot: matplotlib is not installed"):
        parse_bench(["eth-ping", "--plot", "a.png"])


def test_a_field_that_is_too_long_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "figures.csv"
    path.write_text("\n".join([HEAD, ROW.replace("A1", "A" * 200_000)]))
    with pytest.raises(ConfigError, match=": is not CSV: field larger than field limit"):
        read_published(path)


def test_rows_that_are_left_out_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "figures.csv"
    path.write_text("\n".join([f"{HEAD},case", f"{ROW},nobody {{}}", "B2"]))
    assert bench._published(path) == []
    said = "row 'A1' is left out (and 1 more): case 'nobody {}' cannot be read: "
    assert capsys.readouterr().err.startswith(f"ahbm-bench: {path}: {said}")


def test_bytes_that_are_no_text_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "figures.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not text in UTF-8"):
        read_published(tmp_path / "figures.csv")


def published(**changed: object) -> Published:
    values = {
        "id": "A1", "architecture": "wormhole_b0", "family": "eth_link_bandwidth_no_edm",
        "test": "test_erisc_bw_uni_dir", "hops": 1, "nbytes": 16, "channels": 16, "metric": "GB/s", "value": 0.28,
        "kind": "output",
        "statistic": "per_direction",
    }  # fmt: skip
    return Published(**{**values, **changed})  # type: ignore[arg-type]


CASE = Case("test_erisc_bw_uni_dir", 16)
FIGURE = Figure("test_erisc_bw_uni_dir", 16, "GB/s", "per_direction", 0.28)
PING = {"family": "seed_ubench", "test": "single_link_round_trip", "channels": 1, "metric": "ns"}
RING = {"family": "seed_ubench", "test": "ring_ping_no_edm", "channels": 1, "hops": 8, "metric": "us"}


@pytest.mark.parametrize(
    ("changed", "bench", "case"),
    [
        ({}, "eth-bandwidth", Case("test_erisc_bw_uni_dir", 16, 1, (16,))),
        ({"architecture": "blackhole"}, "eth-bandwidth", Case("test_erisc_bw_uni_dir", 16, 1, (16,))),
        ({"hops": None, "channels": None}, "eth-bandwidth", Case("test_erisc_bw_uni_dir", 1, 1, (16,))),
        ({**PING, "statistic": "round_trip", "hops": 0}, "eth-ping", Case("single_link_round_trip", 1, 1, (16,))),
        ({**RING, "statistic": "total_8_hops"}, "ring-latency", Case("ring_ping_no_edm", 1, 8, (16,))),
    ],
)
def test_a_row_is_claimed_with_its_case(changed: dict[str, object], bench: str, case: Case) -> None:
    row = published(**changed)
    found = request_of(row)
    assert (found.bench, found.case) == (bench, case)


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "input"}, {"family": "ccl_perf"}, {"architecture": "grayskull"}, {"problem": "value 'a' is no number"},
        {"test": "test_erisc_bw_uni_dir_fast"},
        {"nbytes": None}, {"nbytes": 0}, {"nbytes": 17}, {"channels": 0}, {"hops": 2}, {"statistic": "round_trip"},
        {**PING, "statistic": "one_way_midpoint"}, {**PING, "statistic": "round_trip", "channels": 2},
        {**RING, "statistic": "total_4_hops"}, {**RING, "statistic": "per_hop", "hops": None},
        {**RING, "statistic": "per_hop", "hops": 1}, {**RING, "statistic": "per_hop", "hops": 65},
    ],
)  # fmt: skip
def test_what_no_bench_simulates_is_not_claimed(changed: dict[str, object]) -> None:
    row = published(**changed)
    assert request_of(row).case is None
    assert request_of(row).reason == row.problem


def test_every_row_of_raw_links_that_comes_with_the_project_is_claimed() -> None:
    rows = [row for path in default_files() if path.name == "ethernet.csv" for row in read_published(path)]
    assert [row.id for row in rows if row.kind == "output" and request_of(row).case is None] == []
    assert len([row for row in rows if row.kind == "output"]) == 38


def test_a_row_without_a_figure_is_a_miss_and_one_at_the_limit_is_near() -> None:
    values = [1.0, 1 + NEAR, 0.5, None]
    found = summary([Verdict(published(value=1.0), value) for value in values])
    assert (found.rows, found.near, found.median) == (4, 2, pytest.approx(NEAR))
    assert summary([Verdict(published(kind="input"), 1.0)]).rows == 0


def test_tables_and_plots_show_simulated_beside_published() -> None:
    lines = [
        ResultRow("wormhole_b0", CASE, FIGURE._replace(nbytes=nbytes, value=value), row)
        for nbytes, value, row in (
            (16, 1.0, None), (128, 4.0, None), (1024, 6.0, published(value=8.0)), (8192, 10.0, published(value=8.0)),
        )
    ]  # fmt: skip
    shown = tables(lines).splitlines()
    assert shown[1] == "test_erisc_bw_uni_dir: per_direction in GB/s, channels 16, hops 1"
    assert [row.split() for row in shown[3:]] == [
        ["16", "1.00", "-", "-"], ["128", "4.00", "-", "-"],
        ["1024", "6.00", "8", "-25.0%", "A1"], ["8192", "10.00", "8", "+25.0%", "A1"],
    ]  # fmt: skip
    rows = [row.partition("|")[2] for row in plots(lines).splitlines() if "|" in row]
    assert [(row.index("*"), number) for number, row in enumerate(rows) if "*" in row] == [
        (63, 0),
        (42, 5),
        (21, 8),
        (0, 12),
    ]
    assert rows[3].count("o") == 2
    assert plots(lines[: LEAST_POINTS - 1]) == ""
    assert csv_text(lines).splitlines()[3].endswith(",6.0,8.0,-0.25,A1")


def test_of_several_numbers_of_channels_the_best_is_told() -> None:
    lines = [
        ResultRow("wormhole_b0", Case("test_erisc_bw_uni_dir", n), FIGURE._replace(value=value), None)
        for n, value in ((4, 2.0), (16, 3.0))
    ]
    assert best_channels(lines[:1]) == ""
    last = best_channels(lines).splitlines()[-1]
    assert last.split() == ["16", "3.00", "16", "test_erisc_bw_uni_dir"]


def test_help_names_every_bench(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(f"  {name} " in told for name in BENCHES.names())
