"""What a fit moves: the keys that the chips' files call fitted, and those that follow them."""

import re
from pathlib import Path

import pytest
from tenstorrent.fit import NEUTRAL, Key, Model, Parameter, model, project_model, read_keys

from launcher.bench.machine import LINKS, Machine
from sipsim.config.load import default_dir
from sipsim.core.errors import ConfigError

MOST = 15
"""Parameters that an architecture may have, over all revisions of its protocol."""
FIRST = """
clock_MHz: 1000  # [MHz] source: a
risc:
  noc_command_ns: 40  # [ns] source: fitted (a page)
  poll_ns: 6  # [ns] source: assumption: a load
fabric:
  costs:
    credit_ns: 40  # [ns] source: risc.noc_command_ns: a NoC command
    sent_ns: 40  # [ns] source: as credit_ns
    look_ns: 6  # [ns] source: risc.poll_ns: it is one
"""
SECOND = """
clock_MHz: 2000  # [MHz] source: a
noc:
  cores: [[0, 0], [1, 0],
          [2, 0]]
  rows: [1, 2]  # [rows] source: a
  columns: 2  # [columns] source: as rows
risc:
  noc_command_ns: 20  # [ns] source: assumption: Wormhole's at the faster clock
  poll_ns: 3  # [ns] source: assumption: Wormhole's at the faster clock
fabric:
  copy_bytes: 1500  # [bytes] source: fitted: of a packet
  costs:
    round_ns: 30  # [ns] source: fitted
    send_ns: 20  # [ns] source: risc.noc_command_ns: a NoC command
  revisions:
    2024: {}
    2025:
      costs:
        round_ns: 60  # [ns] source: fitted
        send_ns: 20  # [ns] source: the fabric's
    2026:
      costs:
        round_ns: 60  # [ns] source: as 2025
        send_ns: 30  # [ns] source: as round_ns, with a text behind
    2027:
      costs: null  # [-] source: the fabric's
"""


def keys_of(tmp_path: Path, **texts: str) -> list[Key]:
    found = []
    for chip, text in texts.items():
        path = tmp_path / f"{chip}.yaml"
        path.write_text(text)
        found += read_keys(chip, path)
    return found


@pytest.fixture
def small(tmp_path: Path) -> Model:
    return model(keys_of(tmp_path, wormhole=FIRST, blackhole=SECOND))


def test_parameters_are_the_keys_that_are_fitted(small: Model) -> None:
    assert [each.name for each in small.parameters] == [
        "wormhole:risc.noc_command_ns",
        "blackhole:fabric.copy_bytes",
        "blackhole:fabric.costs.round_ns",
        "blackhole:fabric.revisions.2025.costs.round_ns",
    ]


def test_followers_move_with_their_parameter(small: Model) -> None:
    values = {
        "wormhole:risc.noc_command_ns": 81.0,
        "blackhole:fabric.copy_bytes": 700.0,
        "blackhole:fabric.costs.round_ns": 7.5,
        "blackhole:fabric.revisions.2025.costs.round_ns": 9.0,
    }
    found = {chip: {each[len("system.chip_params.") :] for each in own} for chip, own in small.settings(values).items()}
    assert found == {
        "wormhole": {"risc.noc_command_ns=81", "fabric.costs.credit_ns=81", "fabric.costs.sent_ns=81"},
        "blackhole": {
            "fabric.copy_bytes=700",
            "fabric.costs.round_ns=7.5",
            "fabric.revisions.2025.costs.round_ns=9",
            "risc.noc_command_ns=40",
            "fabric.costs.send_ns=40",
            "fabric.revisions.2025.costs.send_ns=40",
            "fabric.revisions.2026.costs.round_ns=9",
            "fabric.revisions.2026.costs.send_ns=9",
        },
    }


def test_followers_of_a_chip_that_is_not_fitted_stay(tmp_path: Path) -> None:
    alone = model(keys_of(tmp_path, blackhole=SECOND))
    assert "system.chip_params.risc.noc_command_ns=20" not in alone.settings(alone.chosen)["blackhole"]
    assert {each.leader.split(":")[0] for each in alone.followers} == {"blackhole"}


@pytest.mark.parametrize(
    ("key", "says", "message"),
    [
        ("fabric.costs.sent_ns", "as credits_ns", "there is no key credits_ns"),
        ("fabric.costs.further_ns", "the fabric's", "follows itself"),
        ("fabric.strange_ns", "fitted", "without a neutral value"),
        ("fabric.costs.sent_ns", "fabric.costs.credits_ns: a credit", "there is no key fabric.costs.credits_ns"),
    ],
)
def test_a_source_that_says_nothing_is_refused(key: str, says: str, message: str) -> None:
    clock = Key("wormhole", ("clock_MHz",), "1000", "MHz", "a")
    with pytest.raises(ConfigError, match=message):
        model([clock, Key("wormhole", tuple(key.split(".")), "1", "ns", says)])


@pytest.mark.parametrize(
    ("unit", "start", "floor", "least", "most"),
    [
        ("ns", 30.0, 0.0, 7.5, 120.0),
        ("packets", 2.0, 0.0, 1.0, 8.0),
        ("ns", 0.2, 0.0, 0.1, 0.8),
        ("GB/s", 16.0, 12.5, 12.5, 64.0),
    ],
)
def test_bounds_are_about_the_start(unit: str, start: float, floor: float, least: float, most: float) -> None:
    found = Parameter(Key("wormhole", ("ccl", "a"), "1", unit, "fitted"), start, floor)
    assert (found.least, found.most) == (least, most)


def test_a_neutral_value_of_cycles_is_shorter_at_a_faster_clock() -> None:
    page, add = NEUTRAL["ccl.page_ns"], NEUTRAL["ccl.add_GBps"]
    assert page.value(2000) == page.value(1000) / 2
    assert add.value(2000) == add.value(1000) * 2


PROJECT = project_model()


@pytest.mark.parametrize("chip", LINKS)
def test_the_projects_parameters_are_those_of_its_files_and_few(chip: str) -> None:
    text = (default_dir() / "chips" / f"{chip}.yaml").read_text()
    wanted = re.findall(r"^ *(\w+): \S+  # \[[^\]]*\] source: fitted", text, re.MULTILINE)
    own = [each.key.path[-1] for each in PROJECT.parameters if each.key.chip == chip]
    assert own == wanted
    assert 0 < len(own) <= MOST


def test_a_file_name_in_a_source_is_no_key() -> None:
    clock = Key("wormhole", ("clock_MHz",), "1000", "MHz", "a")
    assert not model([clock, Key("wormhole", ("slots",), "1", "ns", "allocator.cpp: rings")]).followers


def test_each_neutral_value_is_of_a_parameter() -> None:
    assert {".".join(each.key.path[-2:]) for each in PROJECT.parameters} == set(NEUTRAL)


def test_the_projects_followers_have_the_values_of_their_parameters() -> None:
    """Those of another chip are rounded to whole ns there."""
    for each in PROJECT.followers:
        slack = 0 if each.factor == 1 else 1
        assert float(each.key.text) == pytest.approx(each.value(PROJECT.chosen), abs=slack), each.key.name


@pytest.mark.parametrize("end", ["start", "least", "most"])
def test_every_value_that_a_fit_may_try_is_a_setting(end: str) -> None:
    values = {each.name: getattr(each, end) for each in PROJECT.parameters}
    for chip, settings in PROJECT.settings(values).items():
        Machine(chip=chip, settings=settings).check()
