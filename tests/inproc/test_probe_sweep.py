"""``ahbm-probe --sweep-bytes``: each figure is that of a simulated run, and the rates are explained by their bounds."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweeps import crossed

from launcher.probe.command import main, parse_probe, probe, probe_sweep
from launcher.probe.simulate import ProbeRun
from sipsim.chips.ahbm.costs.probe import ProbePlan

NEAR, FAR = ["--from", "0.0.0", "--to", "0.1.0"], ["--from", "0.0.0", "--to", "1.3.0"]
FLITS = ("--set", "links.ucie.params.flit_bytes=256")


def swept(*words: object) -> dict[str, Any]:
    return probe_sweep(parse_probe([str(word) for word in words]))


@pytest.mark.parametrize(("ends", "mode"), crossed([NEAR, FAR], ["fast_path", "fabric", "piggyback", "auto"]))
def test_a_size_of_one_message_takes_what_the_pair_takes(ends: list[str], mode: str) -> None:
    system = ["--set", f"defaults.credit_return_mode={mode}"]
    least = 2 if mode == "fast_path" else 512
    for point in swept(*ends, *system, "--sweep-bytes", f"{least}:4096")["sizes"]:
        alone = probe(parse_probe([*ends, *system, "--bytes", str(point["bytes"])]))
        assert point["time_ps"] == alone["pair"]["simulated_ps"] == alone["pair"]["sum_ps"]
        assert point["messages"] == 1
        assert point["GBps"] == point["bytes"] * 1000 / point["time_ps"]


@pytest.mark.ideal
def test_a_larger_size_is_sent_as_messages_of_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """10000 B: two messages of 4096 B and the rest, in one simulated run."""
    ran: list[list[int]] = []
    simulate = ProbeRun.__init__

    def noted(self: ProbeRun, plan: ProbePlan, sizes: list[int]) -> None:
        ran.append(sizes)
        simulate(self, plan, sizes)

    monkeypatch.setattr(ProbeRun, "__init__", noted)
    (point,) = swept(*NEAR, "--sweep-bytes", "10000:10000")["sizes"]
    assert ran == [[4096, 4096, 1808]]
    assert (point["messages"], point["time_ps"]) == (3, 32_350 + 10_000 * 1000 // 64)


@pytest.mark.ideal
def test_by_hand_within_a_sip() -> None:
    """Cube 0 to 1: 32,350 ps and 64 B a nanosecond; half of that rate at the size that needs 32,350 ps to drain."""
    told = swept(*NEAR, "--sweep-bytes")
    model, rate = told["one_message"], told["one_after_another"]
    assert (model["t0_ps"], model["half_bytes"], model["off_ps"]) == (32_350, round(32.35 * 64), 0)
    assert model["r_inf_GBps"] == 64
    assert model["bounded_by"].startswith("sip0.cube0.pe0>sip0.cube0.router0, 64 GB/s, and ")
    assert (rate["bytes"], rate["interval_ps"], rate["off_ps"]) == (4096, 64_000, 0)
    assert rate["bounded_by"] == "the drain of sip0.cube0.pe0>sip0.cube0.router0"


@pytest.mark.ideal
def test_framing_of_a_link_bounds_the_rate() -> None:
    """UCIe: 240 of 256 B are payload."""
    model = swept(*FAR, *FLITS, "--sweep-bytes", "64:128")["one_message"]
    assert model["r_inf_GBps"] == pytest.approx(60)
    assert model["bounded_by"] == "link 0.E>1.W, 64 GB/s, of which framing leaves 60 GB/s"


@pytest.mark.ideal
def test_credits_that_meet_in_the_first_round_are_not_counted() -> None:
    """A credit takes eight times as long as a message of 2 B; the first ones come closer together than those later."""
    system = ["--set", "defaults.credit_return_mode=fabric", "--set", "ucie_port.bandwidth_GBps=7"]
    rate = swept("--from", "0.0.0", "--to", "0.1.0", *system, "--sweep-bytes", "2:2")["one_after_another"]
    assert (rate["bounded_by"], rate["off_ps"]) == ("the ring's 8 slots: each is free again after a round trip", 0)


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("system", "bounded_by"),
    [
        ([], "tl.recv, to the end of its wait for the credit (fast_path)"),
        (["--set", "defaults.credit_return_mode=fabric", *FLITS], "the drain of link 0.E>1.W"),
        (
            ["--set", "defaults.n_slots=2", "--link", "ethernet_100g"],
            "the ring's 2 slots: each is free again after a round trip",
        ),
        (
            ["--set", "defaults.n_slots=2", "--set", "defaults.credit_return_mode=piggyback"],
            "the ring's 2 slots: each is free again after a round trip",
        ),
    ],
)
def test_what_bounds_messages_one_after_another(system: list[str], bounded_by: str) -> None:
    rate = swept(*FAR, *system, "--sweep-bytes", "4096:4096")["one_after_another"]
    assert (rate["bounded_by"], rate["off_ps"]) == (bounded_by, 0)


@pytest.mark.ideal
@settings(max_examples=25)
@given(
    st.tuples(st.integers(0, 15), st.integers(0, 7)),
    st.tuples(st.integers(0, 2), st.integers(0, 15), st.integers(0, 7)),
    st.integers(1, 2048),
    st.fixed_dictionaries(
        {
            "defaults.credit_return_mode": st.sampled_from(["fast_path", "fabric", "piggyback"]),
            "defaults.n_slots": st.sampled_from([1, 2, 8]),
            "defaults.buffer_kind": st.sampled_from(["tcm", "hbm", "sram"]),
            "defaults.hw_strict": st.booleans(),
            "ucie_port.bandwidth_GBps": st.sampled_from([7, 64]),
            "system.sips.link": st.sampled_from(["ucie", "ethernet_100g"]),
        }
    ),
)
def test_the_bounds_explain_the_simulated_rate(
    src: tuple[int, int], dst: tuple[int, int, int], elements: int, parts: dict[str, Any]
) -> None:
    """Any two PEs of three SIPs, any size: the longest bound is the simulated time between messages."""
    if (0, *src) == dst:
        return
    flags = [word for key, value in parts.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    ends = ["--from", f"0.{src[0]}.{src[1]}", "--to", ".".join(map(str, dst)), "--sips", 3]
    rate = swept(*ends, *flags, "--sweep-bytes", f"{2 * elements}:{2 * elements}")["one_after_another"]
    assert rate["off_ps"] == 0, rate


def test_the_output_shows_the_figures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = [tmp_path / "sweep.json", tmp_path / "sweep.csv"]
    assert main([*FAR, "--sweep-bytes", "1K:8K", "--json", str(files[0]), "--csv", str(files[1])]) == 0
    document = json.loads(files[0].read_text())
    rows = list(csv.DictReader(files[1].read_text().splitlines()))
    lines = capsys.readouterr().out.splitlines()
    shown = [line.split() for line in lines if not line.startswith("#")]
    assert [point["bytes"] for point in document["sizes"]] == [1024, 2048, 4096, 8192]
    for point, row, line in zip(document["sizes"], rows, shown, strict=True):
        assert row == {key: str(point.get(key, "")) for key in row}
        assert line[:4] == [
            str(point["bytes"]),
            str(point["messages"]),
            f"{point['time_ps'] / 1000:.3f}",
            f"{point['GBps']:.3f}",
        ]
        onward = [f"{point['interval_GBps']:.3f}"] if point["messages"] == 1 else []
        assert line[4:-1] == onward
    assert "# above 4096 B (slot_size) a size is sent as messages of 4096 B, one right after the other" in lines


def test_only_sizes_above_a_slot(capsys: pytest.CaptureFixture[str]) -> None:
    """Then there is no size of one message to set against the model."""
    assert main([*NEAR, "--sweep-bytes", "8K:16K"]) == 0
    assert "n_1/2" not in capsys.readouterr().out
