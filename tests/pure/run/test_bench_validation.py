"""Rows, claims, runs and verdicts: what is read, what shares a run, what fails alone, and what is told of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from fake_benches import FakeBench, LineCase, install, published
from scripts_of_the_project import script
from tenstorrent import report as tables
from tenstorrent.compare import Runner, Verdict, summary, validate
from tenstorrent.mechanisms import ALL_ON, MECHANISMS, Mechanism, joined, without_each

from launcher.bench.machine import LINKS, Machine
from launcher.bench.published import COLUMNS, FURTHER, read_published
from sipsim.core.errors import SimulationError

HEAD = ",".join((*COLUMNS, *FURTHER))
LINE = 'A1,wormhole_b0,fake,line,,16,,ns,100,output,time,ring,"2,4",3,65536,WRITE,"a; b=1",5%'


@pytest.mark.parametrize(
    ("replaced", "changed"),
    [
        (("", ""), {}),
        ((",,16,,", ",8,16,2,"), {"hops": 8, "channels": 2}),
        ((",16,", ",16.5,"), {"nbytes": None, "problem": "packet_size_bytes '16.5' is no whole number"}),
        ((",16,", ",-16,"), {"nbytes": None, "problem": "packet_size_bytes '-16' is no whole number"}),
        ((",100,", ",fast,"), {"value": None, "problem": "value 'fast' is no number above 0"}),
        ((",100,", ",nan,"), {"value": None, "problem": "value 'nan' is no number above 0"}),
        ((",100,", ",-5,"), {"value": None, "problem": "value '-5' is no number above 0"}),
        ((",100,", ",0,"), {"value": None, "problem": "value '0' is no number above 0"}),
        ((",100,", ",,"), {"value": None, "problem": "value '' is no number above 0"}),
        ((",3,65536,", ",x,y,"), {"links": None, "total_bytes": None,
                                  "problem": "num_links 'x' is no whole number; total_bytes 'y' is no whole number"}),
    ],
)  # fmt: skip
def test_a_row_is_read_or_has_a_problem(replaced: tuple[str, str], changed: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"{HEAD}\n{LINE.replace(*replaced, 1)}\n")
    expected = published(
        topology="ring", devices="2,4", links=3, total_bytes=65536, message="WRITE", note="a; b=1", tolerance="5%"
    )
    assert read_published(path) == [expected._replace(**changed)]


def test_columns_that_are_missing_at_the_end_say_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(",".join(COLUMNS) + "\nA1,wormhole_b0,fake,line,,16,,ns,100,output,time\n")
    assert read_published(path) == [published(links=None)]


def test_rows_of_one_case_share_a_run_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = FakeBench(lambda case, nbytes, machine: 100.0 * case.links + nbytes)
    install(monkeypatch, bench)
    rows = [
        published(id="A1"), published(id="A2", statistic="rate", metric="GB/s"), published(id="A3", nbytes=32),
        published(id="A4", links=2), published(id="A5", architecture="blackhole"),
    ]  # fmt: skip
    verdicts = validate(rows, {"blackhole": ("a=1",)})
    assert [verdict.simulated for verdict in verdicts] == [116, 116, 132, 216, 116]
    one, two, wide = (LineCase("line", sizes=(nbytes,), links=n) for nbytes, n in ((16, 1), (32, 1), (16, 2)))
    assert sorted(bench.ran, key=str) == sorted(
        [(one, "wormhole", ()), (two, "wormhole", ()), (wide, "wormhole", ()), (one, "blackhole", ("a=1",))], key=str
    )


def fails_on_two_links(case: LineCase, nbytes: int, machine: Machine) -> float:
    """As a case with a deadlock, and one with a bug."""
    if case.links == 2:
        raise SimulationError("deadlock\nof many lines")
    return 100.0 / (case.links - 3)


def test_a_case_that_fails_and_rows_that_nobody_claims_are_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeBench(fails_on_two_links))
    changes: dict[str, tuple[dict[str, Any], bool, str]] = {
        "A1": ({"links": 4}, True, ""),
        "A2": ({"links": 2}, True, "deadlock"),
        "A3": ({"links": 3}, True, "ZeroDivisionError: float division by zero"),
        "A4": ({"links": None}, False, ""),
        "A5": ({"family": "unknown"}, False, ""),
        "A6": ({"architecture": "grayskull"}, False, ""),
        "A7": ({"kind": "input"}, False, ""),
        "A8": ({"value": None, "problem": "value 'fast' is no number"}, False, "value 'fast' is no number"),
        "A9": ({"note": "bad"}, False, "KeyError: 'bad'"),
        "B1": ({"links": 4, "metric": "us"}, False, "no figure of time in us"),
    }
    verdicts = validate([published(id=name, **changed) for name, (changed, _, _) in changes.items()])
    assert {each.row.id: (each.claimed, each.reason) for each in verdicts} == {
        name: (claimed, reason) for name, (_, claimed, reason) in changes.items()
    }
    assert [each.row.id for each in verdicts if each.simulated is not None] == ["A1"]
    found = summary(verdicts)
    assert (found.rows, found.claimed, found.near, found.median) == (9, 3, 1, 0)
    assert tables.failures(verdicts) == "A2: deadlock\nA3: ZeroDivisionError: float division by zero"
    listed = tables.unclaimed(verdicts).splitlines()[2:]
    assert [line.split(" | ")[3:5] for line in listed] == [
        ["1", "A4"], ["1", "A5"], ["1", "A6"], ["1", "A8"], ["1", "A9"], ["1", "B1"],
    ]  # fmt: skip
    assert tables.line_of(found) == "1 of 9 rows within 15 %, 11.1 %, 33.3 % of the 3 claimed, median error 0.0 %"
    assert [line.split(" | ")[0] for line in tables.rows(verdicts).splitlines()[2:]] == ["| A1", "| A2", "| A3"]


def test_every_row_stands_in_the_document() -> None:
    verdicts = [
        Verdict(published(), 110.0),
        Verdict(published(id="A2", kind="input", value=12.5), None, claimed=False),
        Verdict(published(id="A3", value=None), None, claimed=False),
    ]
    assert tables.document(verdicts)["rows"] == [
        {"id": "A1", "kind": "output", "measured": 100.0, "simulated": 110.0, "error": pytest.approx(0.1)},
        {"id": "A2", "kind": "input", "measured": 12.5, "simulated": None, "error": None},
        {"id": "A3", "kind": "output", "measured": None, "simulated": None, "error": None},
    ]


def test_families_are_counted_by_architecture() -> None:
    verdicts = [
        Verdict(published(), 110.0), Verdict(published(), 130.0), Verdict(published(), None, claimed=False),
        Verdict(published(family="other"), 100.0), Verdict(published(architecture="blackhole"), 90.0),
    ]  # fmt: skip
    assert tables.families(verdicts).splitlines()[2:] == [
        "| wormhole_b0 | `fake` | 3 | 2 | 1 | 30.0 % |",
        "| wormhole_b0 | `other` | 1 | 1 | 1 | 0.0 % |",
        "| wormhole_b0 | all | 4 | 3 | 2 | 10.0 % |",
        "| blackhole | `fake` | 1 | 1 | 1 | 10.0 % |",
        "| blackhole | all | 1 | 1 | 1 | 10.0 % |",
    ]


MECHANISMS_OF_TWO = {
    "b": Mechanism({"wormhole": ("b=2",)}),
    "of other programs": Mechanism({"wormhole": ("b=2", "c=3")}, ("other",)),
}


def test_without_a_mechanism_its_settings_come_last_and_outcomes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = FakeBench(lambda case, nbytes, machine: 100.0 if "b=2" not in machine.settings else 200.0)
    install(monkeypatch, bench)
    monkeypatch.setattr("tenstorrent.mechanisms.MECHANISMS", MECHANISMS_OF_TWO)
    rows = [published(), published(id="A2", architecture="blackhole")]
    found = without_each(rows, {"wormhole": ("a=1",)}, Runner(1))
    assert [settings for _, _, settings in bench.ran] == [("a=1",), (), ("a=1", "b=2")]
    assert tables.without(found).splitlines()[2:] == [
        f"| {ALL_ON} | 2 of 2 | +0 | 0.0 % |",
        "| b | 1 of 2 | -1 | 100.0 % |",
        "| of other programs | 2 of 2 | +0 | 0.0 % |",
    ]


@pytest.mark.parametrize("name", MECHANISMS)
def test_what_switches_a_mechanism_off_is_a_setting_of_each_chip(name: str) -> None:
    for chip, settings in joined({}, MECHANISMS[name].off).items():
        assert settings
        Machine(chip=chip, settings=settings).check()


class Recorded:
    """In place of an object of matplotlib: what is called is noted."""

    def __init__(self) -> None:
        self.called: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *words, **named: self.called.append((name, words, named))


def test_the_picture_has_every_figure_by_unit_and_family() -> None:
    axes, figure = [Recorded(), Recorded()], Recorded()
    asked = []

    class Pyplot:
        @staticmethod
        def subplots(*shape: int, **_: Any) -> Any:
            asked.append(shape)
            return figure, [axes]

    verdicts = [
        Verdict(published(), 50.0), Verdict(published(metric="us", value=2.0, family="other"), 1.0),
        Verdict(published(metric="GB/s", value=12.0), 11.0), Verdict(published(), None),
    ]  # fmt: skip
    assert tables.scatter(verdicts, Pyplot) is figure
    assert asked == [(1, 2)]
    drawn = [
        {named["label"]: words[:2] for name, words, named in axis.called if name == "plot" and "label" in named}
        for axis in axes
    ]
    assert drawn[0] == {"fake": ((12.0,), (11.0,))}
    assert drawn[1] == {"fake": ((pytest.approx(0.1),), (pytest.approx(0.05),)), "other": ((2.0,), (1.0,))}
    assert [sum(name == "plot" for name, _, _ in axis.called) for axis in axes] == [4, 5]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """``validate_tenstorrent.py`` on a file of three rows with a fake bench; the flags are words."""
    bench = FakeBench(fails_on_two_links)
    install(monkeypatch, bench)
    path = tmp_path / "rows.csv"
    path.write_text(
        f"{HEAD}\nA1,wormhole_b0,fake,line,,16,,ns,100,output,time,,,4,,,,\n"
        "A2,blackhole,fake,line,,16,,ns,100,output,time,,,2,,,,\nA3,x,other,line,,,,ns,5,input,time,,,,,,,\n"
    )
    module = script("validate_tenstorrent")

    def run(words: str) -> int:
        monkeypatch.setattr("sys.argv", ["validate_tenstorrent.py", "--csv", str(path), "--jobs", "1", *words.split()])
        return int(module.main())

    return run


@pytest.mark.parametrize(
    ("flags", "code", "told"),
    [
        ("", 3, "failed:\nA2: deadlock"),
        ("--rows A1,A3", 0, ""),
        ("--rows A1 --set wormhole:system.chip_params.risc.poll_ns=3", 0, ""),
        ("--family other", 0, ""),
        ("--rows B7", 2, "--rows: no row has the id 'B7'"),
        ("--family no", 2, "--family: no row has the family 'no'"),
        ("--set a=1", 2, f"must be CHIP:KEY=VALUE, with a chip of {', '.join(LINKS)}"),
        ("--set wormhole:no_key=1", 2, "unknown key 'no_key'"),
    ],
)
def test_a_case_that_fails_is_told_at_the_end(
    flags: str, code: int, told: str, command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(flags) == code
    shown = capsys.readouterr()
    assert told in shown.err
    assert (shown.err == "") == (code == 0)
    assert ("rows within 15 %" in shown.out) == (code != 2)


def test_without_matplotlib_a_picture_is_refused(
    command: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert command("--rows A1 --plot a.png") == 2
    assert "--plot: matplotlib is not installed" in capsys.readouterr().err


def test_the_json_file_has_every_row_that_was_chosen(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    assert command(f"--json {path}") == 3
    assert [(row["id"], row["kind"], row["error"]) for row in json.loads(path.read_text())["rows"]] == [
        ("A1", "output", 0), ("A2", "output", None), ("A3", "input", None),
    ]  # fmt: skip


def test_a_page_gets_its_tables_between_the_lines_that_name_them(
    command: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.md"
    names = ("rows", "families", "unclaimed", "parameters", "mechanisms")
    path.write_text("\n".join(f"{name}\n<!-- {name} -->\nold\n<!-- end of {name} -->\n" for name in names))
    assert command(f"--rows A1 --page {path}") == 0
    assert path.read_text().count("old") == 1, "mechanisms take longer, and are asked for"
    assert command(f"--rows A1 --mechanisms --page {path}") == 0
    page = path.read_text()
    assert "old" not in page
    assert "| A1 | `line` | 16 | ns | 100 | 100 | +0.0 % |" in page
    assert page.count("| a link has latency |") == 1
    path.write_text("nothing")
    assert command(f"--rows A1 --page {path}") == 2
    assert "<!-- rows -->" in capsys.readouterr().err
