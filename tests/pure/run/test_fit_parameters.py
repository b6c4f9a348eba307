"""What a fit moves: the keys that the chips' files call fitted, and those that follow them."""

import re

import pytest
from tenstorrent.fit import FOLLOWERS, STARTS, bounded, followed, in_file, rounded, settings

from launcher.bench.machine import LINKS, Machine
from sipsim.config.load import default_dir

MOST = 15
"""Parameters that an architecture may have, over all revisions of its protocol."""


@pytest.mark.parametrize("chip", LINKS)
def test_the_parameters_are_the_keys_that_the_file_calls_fitted_and_few(chip: str) -> None:
    text = (default_dir() / "chips" / f"{chip}.yaml").read_text()
    wanted = re.findall(r"^ *(\w+): \S+  # \[[^\]]*\] source: fitted", text, re.MULTILINE)
    assert [name.split(".")[-1] for name in STARTS if name.startswith(f"{chip}:")] == wanted
    assert 0 < len(wanted) <= MOST


def test_followers_have_the_values_of_their_parameters_in_the_files() -> None:
    """Those of another chip are rounded to whole ns there."""
    assert set(FOLLOWERS.values()) <= set(STARTS)
    for name, value in followed({name: in_file(name) for name in STARTS}).items():
        slack = 0 if name.split(":")[0] == FOLLOWERS[name].split(":")[0] else 1
        assert in_file(name) == pytest.approx(value, abs=slack), name


def test_followers_move_with_their_parameter() -> None:
    found = settings({"wormhole:risc.eth_command_ns": 81.0, "blackhole:fabric.revisions.2025-03.costs.round_ns": 7.5})
    assert {chip: {each.removeprefix("system.chip_params.") for each in own} for chip, own in found.items()} == {
        "wormhole": {"risc.eth_command_ns=81", "fabric.costs.send_ns=81", "fabric.costs.sent_ns=81"},
        "blackhole": {
            "risc.eth_command_ns=60",
            "fabric.revisions.2025-03.costs.round_ns=7.5",
            "fabric.revisions.2025-11.costs.round_ns=7.5",
        },
    }


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("wormhole:data_mover.sender_visit_ns", 7.5, 120.0),
        ("blackhole:ccl.read_packets", 1.0, 8.0),
        ("wormhole:ethernet.copy_GBps", 12.5, 64.0),
    ],
)
def test_bounds_are_about_the_start(name: str, least: float, most: float) -> None:
    assert (bounded(name, 0), bounded(name, 1e9)) == (least, most)
    assert bounded(name, STARTS[name]) == rounded(name, STARTS[name]) == STARTS[name]


@pytest.mark.parametrize("value", [0.0, 1e9])
def test_every_value_that_a_fit_may_try_is_a_setting(value: float) -> None:
    for chip, own in settings({name: bounded(name, value) for name in STARTS}).items():
        Machine(chip=chip, settings=own).check()
