"""``ahbm-probe --hardware``: registers and shares of the TCM by hand, and the estimates of ADR-0023 D21."""

from typing import Any

import pytest

from launcher.options import ParserExit
from launcher.probe.command import main, parse_probe, probe_hardware
from launcher.probe.text import FIXED, hardware
from sipsim.core.errors import ConfigError

LARGE = ("defaults.slot_size=65536", "tcm_layout.kernel_MiB=11", "tcm_layout.ipcq_MiB=4")
"""Slots of 64 KiB; 4 of 16 MiB are for rings."""
TORUS = ("--sips", "4", "--topology", "torus_2d")


def shown(*words: str, sets: tuple[str, ...] = ()) -> dict[str, Any]:
    return probe_hardware(parse_probe(["--hardware", *words, *(word for each in sets for word in ("--set", each))]))


def test_nine_registers_of_64_bits() -> None:
    told = shown()
    assert [each["bits"] for each in told["registers"]] == [64] * 9
    assert len({each["name"] for each in told["registers"]}) == 9
    assert told["register_bytes"] == 72
    assert told["files"][1]["register_bytes"] == 576


CASES = [
    # directions, bytes of registers and of rings, of the region, of the TCM; the last four with 8 directions
    ((), (), (6, 432, 196_608, 0.1875, 0.01171875), (576, 262_144, 0.25, 0.015625)),
    (TORUS, LARGE, (8, 576, 4 << 20, 1.0, 0.25), (576, 4 << 20, 1.0, 0.25)),
    ((), ("defaults.n_slots=40",), (6, 432, 983_040, 0.9375, 0.05859375), (576, 1_310_720, 1.25, 0.078125)),
    ((), ("defaults.algorithm=ring",), (2, 144, 131_072, 0.125, 0.0078125), (576, 524_288, 0.5, 0.03125)),
    ((), ("defaults.buffer_kind=hbm",), (6, 432, 196_608, 3 * 2**-15, 0.0), (576, 262_144, 2**-13, 0.0)),
]


@pytest.mark.parametrize(("words", "sets", "installed", "built"), CASES)
def test_the_share_of_rings(
    words: tuple[str, ...], sets: tuple[str, ...], installed: tuple[float, ...], built: tuple[float, ...]
) -> None:
    """The second is the record's open question, a quarter of the TCM; by the third, eight rings would not fit."""
    told = shown(*words, sets=sets)
    keys = "register_bytes", "ring_bytes", "of_region", "of_tcm"
    first, second = told["files"]
    assert (first["directions"], *(first[key] for key in keys)) == installed
    assert (second["directions"], *(second[key] for key in keys)) == (8, *built)
    assert len(told["directions"]) == installed[0]
    assert ("do not fit" in hardware(told)) == (built[2] > 1)


def test_estimates_scale_with_the_directions() -> None:
    """Six of eight: 3/4 of the registers and of the comparators, and all of the address generator and of PE_DMA."""
    rows = [(each["count"], each["mm2"], each["built_count"], each["built_mm2"]) for each in shown()["modules"]]
    assert rows == [
        (3_456, pytest.approx(0.0015), 4_608, 0.002),
        (5_000, 0.001, 5_000, 0.001),
        (2_250, pytest.approx(0.00075), 3_000, 0.001),
        (2_000, 0.002, 2_000, 0.002),
        (10_706, pytest.approx(0.00325), 12_608, pytest.approx(0.004)),
        (12_706, pytest.approx(0.00525), 14_608, pytest.approx(0.006)),
    ]


@pytest.mark.parametrize(("clock_GHz", "margins"), [(1, [3.33, 2, 2.5, 3.33]), (2, [1.67, 1, 1.25, 1.67])])
def test_margins_are_to_the_clock(clock_GHz: int, margins: list[float]) -> None:
    told = shown(sets=(f"pe_gemm.clock_GHz={clock_GHz}",))
    assert told["clock_ps"] == 1000 / clock_GHz
    assert [each["margin"] for each in told["delays"]] == pytest.approx(margins, abs=0.01)


def test_steps_beside_what_is_charged() -> None:
    told = shown(sets=("pe_ipcq.overhead_ns=3",))
    assert [(each["cycles"], each["charged_ps"]) for each in told["steps"]] == [
        *(([1, 2], 3_000), ([1, 1], 0), ([1, 1], 0)),
        *(([1, 1], 3_000), ([1, 1], 0)),
    ]


def test_each_row_has_a_source_and_says_if_it_does_not_scale() -> None:
    told = shown()
    lines = hardware(told).splitlines()
    for row in (*told["modules"], *told["delays"], *told["steps"]):
        assert row["source"].startswith("ADR-0023 D")
    for name, scales in [(each["module"], each["scales"]) for each in told["modules"]] + [
        (each["path"], False) for each in told["delays"]
    ]:
        (line,) = (each for each in lines if each.startswith(f"  {name} ") and "ADR-0023" in each)
        assert (FIXED in line) is not scales


@pytest.mark.parametrize(
    "words",
    [
        ["--from", "0.0.0"],
        ["--from", "0.0.0", "--to", "0.1.0", "--bytes", "64"],
        ["--matrix"],
        ["--sweep-bytes"],
        ["--short"],
        ["--csv", "a.csv"],
    ],
)
def test_what_belongs_to_a_transfer_is_refused(words: list[str]) -> None:
    with pytest.raises(ParserExit) as caught:
        parse_probe(["--hardware", *words])
    assert caught.value.exit_code == 2
    assert "--hardware" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_key_without_effect_and_another_chip_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"algorithms\.ring\.n_slots"):
        shown(sets=("defaults.algorithm=ring", "defaults.n_slots=2"))
    with pytest.raises(ConfigError, match="ahbm-probe supports only chip ahbm"):
        shown("--chip", "wormhole", "--topology", "n300")


def test_the_command_prints_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--hardware", *TORUS]) == 0
    assert capsys.readouterr().out == hardware(shown(*TORUS)) + "\n"
