"""``ahbm-probe``: both sums, term by term, equal the simulated times of the same transfers (T5 of ADR-0023 D13)."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.cli.probe import main, probe
from launcher.run import options

MOST_OVERHEAD_PS = 100_000
"""What a send/recv pair may cost more than the raw DMA: T5."""


def probed(*words: object) -> dict[str, Any]:
    return probe(options.parse_probe([str(word) for word in words]))


def sums(told: dict[str, Any]) -> tuple[int, int]:
    return told["raw_dma"]["sum_ps"], told["pair"]["sum_ps"]


def test_sums_within_a_sip() -> None:
    """Cube 0 to 1: 14,550 ps of way, 64 B a nanosecond, 1 ns of TCM, 14,800 back for 16 B; PE_IPCQ 1 ns a side."""
    told = probed("--from", "0.0.0", "--to", "0.1.0", "--bytes", 4096)
    assert sums(told) == (14_550 + 64_000 + 1_000 + 14_800, 1_000 + 14_550 + 64_000 + 1_000 + 1_000 + 14_800)
    assert told["overhead_ps"] == 2_000


def test_sums_across_sips() -> None:
    """SIP 0 to SIP 1 of a ring over Ethernet: the link's 500 ns each way, its framing once each way, and nothing else
    that differs between a raw DMA and a pair but PE_IPCQ.
    """
    told = probed("--from", "0.0.0", "--to", "1.0.0", "--bytes", 1500, "--link", "ethernet_100g")
    terms = told["pair"]["terms"]
    assert [t["what"] for t in terms if t["ps"] == 500_000] == ["wire from io.E", "wire from io.W"]
    assert [t["ps"] for t in terms if t["what"].startswith("drain")] == [1550 * 80, 66 * 80]
    raw, pair = sums(told)
    assert pair == raw + 2_000 == told["pair"]["simulated_ps"]


SETTINGS = st.fixed_dictionaries(
    {
        "defaults.buffer_kind": st.sampled_from(["tcm", "hbm", "sram"]),
        "defaults.hw_strict": st.booleans(),
        "router.overhead_ns": st.sampled_from([0, 1, 2.5]),
        "ucie_port.bandwidth_GBps": st.sampled_from([7, 64]),
        "hbm.bandwidth_GBps": st.sampled_from([20, 64]),
        "pe_ipcq.overhead_ns": st.sampled_from([0, 1, 3]),
        "system.sips.link": st.sampled_from(["ucie", "ethernet_100g", "ethernet_400g"]),
        "system.sips.links": st.sampled_from([{}, {"0.E": "ethernet_100g"}, {"0.E": "ucie", "1.E": "ethernet_400g"}]),
    }
)
PLACES = st.tuples(st.integers(0, 2), st.integers(0, 15), st.integers(0, 7))


@settings(max_examples=60, deadline=None)
@given(PLACES, PLACES, st.integers(1, 2048), SETTINGS, st.sampled_from(["fast_path", "fabric", "piggyback"]))
def test_the_sums_equal_the_simulated_times(
    src: tuple[int, int, int], dst: tuple[int, int, int], elements: int, parts: dict[str, Any], mode: str
) -> None:
    """Any two PEs of three SIPs, any message of a slot: to the picosecond; and T5 where recv waits for the credit."""
    if src == dst:
        return
    flags = [word for key, value in parts.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    flags += ["--sips", 3, "--set", f"defaults.credit_return_mode={mode}"]
    ends = ["--from", ".".join(map(str, src)), "--to", ".".join(map(str, dst))]
    told = probed(*ends, "--bytes", 2 * elements, *flags)
    raw, pair = sums(told)
    assert told["pair"]["simulated_ps"] == pair == sum(term["ps"] for term in told["pair"]["terms"])
    assert told["raw_dma"]["simulated_ps"] in (raw, None)
    assert (told["raw_dma"]["simulated_ps"] is None) == (src[0] != dst[0])
    if mode == "fast_path":
        assert pair < raw + MOST_OVERHEAD_PS
        # Never less, where both ends of the way back are the same: a credit comes from the PE, an acknowledgement from
        # the memory, which may be nearer or farther.
        assert raw <= pair or parts["defaults.buffer_kind"] != "tcm"


def test_the_printed_terms_add_up(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Every term on a line of its own, whose figures add up to the sum below them."""
    file = tmp_path / "probe.json"
    assert main(["--from", "0.0.0", "--to", "1.3.2", "--bytes", "256", "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    starts = [index for index, line in enumerate(lines) if line.endswith(" ns")]
    for start, key in zip(starts, ("raw_dma", "pair"), strict=True):
        end = next(index for index in range(start, len(lines)) if lines[index].startswith("  sum"))
        every = [line for line in lines[start + 1 : end] if not line.startswith("  of which")]
        figures = [round(float(line.split()[-1]) * 1000) for line in every]
        parts = [round(float(line.split()[-1]) * 1000) for line in lines[start + 1 + len(every) : end]]
        told = json.loads(file.read_text())[key]
        assert figures == [term["ps"] for term in told["terms"]]
        assert sum(figures) == sum(parts) == round(float(lines[end].split()[-1]) * 1000) == told["sum_ps"]
    assert lines[-1].split()[-1] == "2.000"


def test_standard_output_in_place_of_the_terms(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--from", "0.0.0", "--to", "0.1.0", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == 4096
    assert list(tmp_path.iterdir()) == []


HERE = ["--from", "0.0.0", "--to"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([*HERE, "9.0.0"], "--to 9.0.0: there is no such PE; the last SIP, cube and PE are 1.15.7"),
        (
            ["--from", "0.16.0", "--to", "0.0.0"],
            "--from 0.16.0: there is no such PE; the last SIP, cube and PE are 1.15.7",
        ),
        ([*HERE, "0.0.0"], "--to 0.0.0: the same PE as --from; name another"),
        (["--from", "0.0", "--to", "0.0.0"], "argument --from: '0.0' is not a PE; write SIP.CUBE.PE, such as 0.3.0"),
        (["--to", "0.0.0"], "the following arguments are required: --from"),
        (
            [*HERE, "0.1.0", "--bytes", "8K"],
            "--bytes 8192: a message must fit a slot of 4096; raise defaults.slot_size",
        ),
        ([*HERE, "0.1.0", "--bytes", "3"], "--bytes 3: must be a multiple of 2, the size of an element"),
        ([*HERE, "0.1.0", "--byte", "3"], "unknown flag --byte; did you mean --bytes?"),
        (
            [*HERE, "0.1.0", "--set", "router.overhead_n=3"],
            "--set router.overhead_n=3: unknown key 'overhead_n' in router; did you mean 'overhead_ns'? "
            "allowed: bandwidth_GBps, overhead_ns",
        ),
    ],
)
def test_usage_errors_are_one_line(capsys: pytest.CaptureFixture[str], words: list[str], line: str) -> None:
    assert main(words) == 2
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"ahbm-probe: {line}\n")
