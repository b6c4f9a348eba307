"""``ahbm-probe --matrix``: each number is what the simulated pair takes; files, and what the terminal shows."""

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest

from launcher.probe.command import main, parse_probe, probe, probe_matrix

MIXED = ["--set", "system.sips.links={0.E: ethernet_100g, 2.W: ethernet_400g}"]
LINE = ["--sips", "5", "--topology", "mesh_2d_no_wrap", "--shape", "5x1"]


def simulated_ps(src: list[int], dst: list[int], words: list[str]) -> int:
    ends = ["--from", ".".join(map(str, src)), "--to", ".".join(map(str, dst))]
    told: int = probe(parse_probe([*ends, *words]))["pair"]["simulated_ps"]
    return told


def pairs(document: dict[str, Any]) -> dict[tuple[tuple[int, ...], tuple[int, ...]], int | None]:
    return {
        (tuple(src), tuple(dst)): ps
        for matrix in document["matrices"]
        for src, row in zip(matrix["rows"], matrix["ps"], strict=True)
        for dst, ps in zip(matrix["columns"], row, strict=True)
    }


@pytest.mark.parametrize(
    ("what", "system", "shape"),
    [
        ("sips", ["--sips", "9", "--topology", "torus_2d"], [(9, 9)]),
        ("sips", [*LINE, *MIXED], [(5, 5)]),
        ("sips", [*LINE, *MIXED, "--set", "defaults.credit_return_mode=fabric"], [(5, 5)]),
        pytest.param("sips", ["--sips", "25", "--topology", "torus_2d"], [(25, 25)], marks=pytest.mark.slow),
        pytest.param("sips", ["--sips", "64", "--topology", "torus_2d"], [(64, 64)], marks=pytest.mark.slow),
        ("cubes", ["--set", "defaults.credit_return_mode=piggyback"], [(16, 16), (16, 16)]),
        ("cubes", ["--sips", "1", "--set", "defaults.hw_strict=true"], [(16, 16)]),
        ("cubes:4,2", [*LINE, *MIXED, "--set", "defaults.buffer_kind=hbm"], [(16, 16), (16, 16)]),
        ("cubes", ["--set", "sip.cube_mesh={w: 1, h: 1}"], [(1, 1)]),
    ],
)
def test_each_number_is_what_the_simulated_pair_takes(
    what: str, system: list[str], shape: list[tuple[int, int]]
) -> None:
    """A sample of the pairs; no number for a PE and itself."""
    words = [*system, "--bytes", "1500"]
    document, _ = probe_matrix(parse_probe(["--matrix", what, *words]))
    assert [(len(each["rows"]), len(each["columns"])) for each in document["matrices"]] == shape
    found = pairs(document)
    assert all((ps is None) == (src == dst) for (src, dst), ps in found.items())
    several = sorted(pair for pair, ps in found.items() if ps is not None)
    for src, dst in random.Random(7).sample(several, min(len(several), 3)):
        assert found[src, dst] == simulated_ps([*src], [*dst], words), (src, dst)
    extremes = {min(filter(None, found.values())), max(filter(None, found.values()))}
    assert {each["ps"] for each in document["checked"]} == extremes
    assert all(each["ps"] == each["simulated_ps"] for each in document["checked"])


def test_files_hold_the_numbers_that_are_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    files = {flag: tmp_path / f"matrix.{flag}" for flag in ("json", "csv")}
    words = [word for flag, file in files.items() for word in (f"--{flag}", str(file))]
    assert main(["--matrix", *LINE, *MIXED, *words]) == 0
    document = json.loads(files["json"].read_text())
    ps = document["matrices"][0]["ps"]
    rows = list(csv.reader(files["csv"].read_text().splitlines()))
    assert rows[0] == ["from", "to", "ps"]
    assert rows[1:] == [
        [f"{src}.0.0", f"{dst}.0.0", str(ps[src][dst])] for src in range(5) for dst in range(5) if src != dst
    ]
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert shown[3] == ["0", "1", "2", "3", "4"]
    for src in range(5):
        cells = ["-" if each is None else f"{each / 1000:.1f}" for each in ps[src]]
        assert shown[4 + src] == [str(src), *cells]


@pytest.mark.ideal
def test_a_part_that_no_sum_contains_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """The port of a user's link delays what arrives: the simulated time has it, the sum has not."""
    params = "params: {bandwidth_GBps: 8, latency_ns: 40, check_ns: 7}"
    link = f"links.parity={{kind: lab.parity_link, source: tests, {params}}}"
    assert main(["--matrix", "--set", link, "--link", "parity"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line == (
        "# all pairs: 749.525 ns from PE 0.0.0 to PE 1.0.0; simulated 756.525 ns: "
        "a component adds time that no sum contains"
    )
