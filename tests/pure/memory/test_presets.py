"""The devices of ``configs/hbm.yaml``: figures by hand, and one line for each mistake in the file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sipsim.chips.ahbm.memory.presets import FILE, presets, read_presets
from sipsim.config.check import flow
from sipsim.config.load import default_dir
from sipsim.config.yaml import read_mapping
from sipsim.core.errors import ConfigError

Keys = tuple[str, ...]


def test_stacks_have_their_published_rates() -> None:
    """JESD238 at 6.4 Gb/s, 9.6 Gb/s on the same pins, JESD270-4 at 8 Gb/s on twice as many."""
    rates = {name: device.stack_GBps for name, device in presets().items()}
    assert rates == pytest.approx({"hbm3_6400": 819.2, "hbm3e_9600": 1228.8, "hbm4_8000": 2048})


@pytest.mark.parametrize("name", presets())
def test_the_buses_of_all_channels_give_the_published_rate(name: str) -> None:
    """A burst of 32 B on each of two pseudo channels; a clock in whole ps is up to 0.1 % off."""
    device = presets()[name]
    buses_GBps = device.stack_channels * 2 * 32 / device.timings.burst * 1000
    assert buses_GBps == pytest.approx(device.stack_GBps, rel=1e-3)


def test_times_are_whole_clocks() -> None:
    timings = presets()["hbm3_6400"].timings
    assert (timings.burst, timings.cl, timings.rcd_read, timings.rp) == (1_250, 12_500, 19_375, 16_250)
    assert (timings.rfc, timings.refi) == (350_000, 3_900_000)


def leaves(value: Any, path: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    else:
        yield path, value


DEVICES = read_mapping(default_dir() / FILE)
KEYS = [path for path, _ in leaves({"hbm4_8000": DEVICES["hbm4_8000"]})]


def line_with(folder: Path, path: Keys, *value: Any) -> str:
    """The refusal of the file with another value, or without the key."""
    devices = read_mapping(default_dir() / FILE)
    *above, key = path
    section = devices
    for name in above:
        section = section[name]
    section.pop(key)
    if value:
        section[key] = value[0]
    file = folder / FILE
    file.write_text(flow(devices))
    with pytest.raises(ConfigError) as caught:
        read_presets(file)
    line = str(caught.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize("wrong", [-1, "much", None])
@pytest.mark.parametrize("path", KEYS, ids=".".join)
def test_a_wrong_value_is_named_with_file_key_and_remedy(tmp_path: Path, path: Keys, wrong: Any) -> None:
    line = line_with(tmp_path, path, wrong)
    shown = "null" if wrong is None else repr(wrong)
    assert line.startswith(f"{tmp_path / FILE}: {'.'.join(path)} = {shown}: must be ")


@pytest.mark.parametrize("path", KEYS, ids=".".join)
def test_a_missing_key_is_named(tmp_path: Path, path: Keys) -> None:
    assert line_with(tmp_path, path).startswith(f"{tmp_path / FILE}: {'.'.join(path)}: missing")


def test_an_unknown_key_has_the_nearest_one(tmp_path: Path) -> None:
    file = tmp_path / FILE
    file.write_text((default_dir() / FILE).read_text().replace("rcd_read", "rcd_raed", 1))
    with pytest.raises(ConfigError, match=r"unknown key 'rcd_raed' in hbm3_6400\.clocks; did you mean 'rcd_read'\?"):
        read_presets(file)


@pytest.mark.parametrize(
    ("key", "value"), [("refi_ns", 366), ("groups", 3), ("banks_per_group", 12), ("rfc_ns", 3900), ("row_bytes", 1000)]
)
def test_values_that_do_not_fit_others(tmp_path: Path, key: str, value: int) -> None:
    """A device that has no time between two refreshes would never end a read; a row is whole bursts."""
    named = "refi_ns" if key == "rfc_ns" else key
    line = line_with(tmp_path, ("hbm3_6400", key), value)
    assert line.startswith(f"{tmp_path / FILE}: hbm3_6400.{named} = ")
    assert "must be " in line
