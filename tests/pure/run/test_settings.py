"""The settings of a run in its rows: what its config has besides the defaults, however that was given."""

import csv
import io
from pathlib import Path

import pytest
from msgspec import to_builtins

from launcher.options import parse
from launcher.result.document import SEPARATOR, settings_of
from launcher.run.prepare import resolve

PRESET = """
links: {mine: {kind: ucie, source: "of; mine", params: {bandwidth_GBps: 32, fdi_to_fdi_ns: 2, reach_mm: 1,
  ns_per_mm: 0.01, retimers: 0, retimer_ns: 0, flit_bytes: null, flit_overhead_bytes: 0}}}
hbm: {kind: latency_bandwidth, params: {bandwidth_GBps: 50}}
"""
FLAGS = {
    "defaults": "",
    "flags": "--sips 4 --topology torus_2d --shape 2x2 --link ethernet_400g",
    "set": '--set pe_mmu=null --set defaults.slot_size=1024 --set system.sips.links={"0.E":"ethernet_100g"}',
    "variant": "--variant ideal",
    "outage": "--link ethernet_100g --fault link:0.E@5us:2us",
    "file": "--config FILE --link mine --set hbm.write_latency_ns=3.5",
    "chip": "--chip wormhole --topology n300",
}


def line(words: str, folder: Path) -> str:
    (folder / "file.yaml").write_text(PRESET)
    return settings_of(resolve(parse(words.replace("FILE", str(folder / "file.yaml")).split())))


@pytest.mark.parametrize("words", FLAGS.values(), ids=FLAGS)
def test_a_run_with_these_settings_is_of_the_same_system(words: str, tmp_path: Path) -> None:
    """Each as ``--set`` takes it, and in one order."""
    told = line(words, tmp_path)
    again = [word for each in told.split(SEPARATOR) if each for word in ("--set", each)]
    (tmp_path / "file.yaml").write_text(PRESET)
    flags = words.replace("FILE", str(tmp_path / "file.yaml")).split()
    assert to_builtins(resolve(parse(again))) == to_builtins(resolve(parse(flags)))
    assert settings_of(resolve(parse(again))) == told


def test_they_do_not_say_how_they_were_given(tmp_path: Path) -> None:
    told = "system.sips.count=4;pe_cpu.issue_ns=7"
    assert line("--sips 4 --set pe_cpu.issue_ns=7", tmp_path) == told
    assert line("--set pe_cpu.issue_ns=7.0 --set system.sips.count=4", tmp_path) == told
    (tmp_path / "other.yaml").write_text("pe_cpu: {issue_ns: 7}\nsystem: {sips: {count: 4}}\n")
    assert line(f"--config {tmp_path}/other.yaml", tmp_path) == told


def test_a_row_that_tells_them_does_not_hide_that_a_run_reads_none(tmp_path: Path) -> None:
    resolved = resolve(parse(["--set", "defaults.vc_chunk_size=64"]))
    resolved.reads.is_counting = True
    assert settings_of(resolved) == "defaults.vc_chunk_size=64"
    assert not resolved.reads.seen


def test_nothing_is_told_of_defaults_and_of_the_algorithm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AHBM_VARIANT", raising=False)
    for words in ("", "--sips 2 --set pe_cpu.issue_ns=15", "--algorithm ring"):
        assert line(words, tmp_path) == ""


def test_a_variant_of_the_environment_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AHBM_VARIANT", "ideal")
    told = line("", tmp_path)
    monkeypatch.delenv("AHBM_VARIANT")
    assert told == line("--variant ideal", tmp_path) != ""


def test_a_row_of_csv_can_be_split(tmp_path: Path) -> None:
    told = line(FLAGS["file"], tmp_path)
    assert "of; mine" not in told
    file = io.StringIO()
    csv.writer(file).writerow([told])
    assert next(csv.reader(io.StringIO(file.getvalue()))) == [told]
    assert all("=" in each for each in told.split(SEPARATOR))
