"""``ahbm-probe``: both sums, term by term, equal the simulated times of the same transfers (T5 of ADR-0023 D13)."""

import json
from pathlib import Path
from typing import Any

import pytest
from doorbells import heads
from hypothesis import given, settings
from hypothesis import strategies as st
from launch_flags import launch_flags

from launcher.probe.command import main, parse_probe, probe

MOST_OVERHEAD_PS = 100_000
"""What a send/recv pair may cost more than the raw DMA: T5."""


def probed(*words: object) -> dict[str, Any]:
    return probe(parse_probe([str(word) for word in words]))


def sums(told: dict[str, Any]) -> tuple[int, int]:
    return told["raw_dma"]["sum_ps"], told["pair"]["sum_ps"]


@pytest.mark.ideal
def test_sums_within_a_sip() -> None:
    """Cube 0 to 1: 14,550 ps of way, 64 B a nanosecond, 1 ns of TCM, 14,800 back for 16 B; PE_IPCQ 1 ns a side."""
    told = probed("--from", "0.0.0", "--to", "0.1.0", "--bytes", 4096)
    assert sums(told) == (14_550 + 64_000 + 1_000 + 14_800, 1_000 + 14_550 + 64_000 + 1_000 + 1_000 + 14_800)
    assert told["overhead_ps"] == 2_000


@pytest.mark.ideal
def test_sums_across_sips() -> None:
    """SIP 0 to SIP 1 of a ring over Ethernet: the link's 500 ns each way, its framing once each way, and nothing else
    that differs between a raw DMA and a pair but PE_IPCQ.
    """
    told = probed("--from", "0.0.0", "--to", "1.0.0", "--bytes", 1500, "--link", "ethernet_100g")
    terms = told["pair"]["terms"]
    assert [t["what"] for t in terms if t["ps"] == 500_000] == ["link 0.E>1.W", "link 1.W>0.E"]
    assert [t["ps"] for t in terms if t["what"].startswith("drain")] == [1550 * 80, 66 * 80]
    raw, pair = sums(told)
    assert pair == raw + 2_000 == told["pair"]["simulated_ps"]


def test_a_launch_is_no_part_of_a_transfer() -> None:
    way = "--from", "0.0.0", "--to", "1.3.1"
    assert probed(*way, *launch_flags(max_start_skew_ns=900)) == probed(*way)


SETTINGS = st.fixed_dictionaries(
    {
        "defaults.buffer_kind": st.sampled_from(["tcm", "hbm", "sram"]),
        "defaults.hw_strict": st.booleans(),
        "defaults.head_update": st.sampled_from(["piggyback", "doorbell"]),
        "defaults.vc_chunk_size": st.sampled_from([64, 256]),
        "defaults.vc_chunk_header_bytes": st.sampled_from([0, 16]),
        "router.buffer_packets": st.sampled_from([None, 16]),
        "router.overhead_ns": st.sampled_from([0, 1, 2.5]),
        "ucie_port.bandwidth_GBps": st.sampled_from([7, 64]),
        "hbm.bandwidth_GBps": st.sampled_from([20, 64]),
        "defaults.latch": st.sampled_from([None, "copy", "in_place"]),
        "pe_cpu.issue_ns": st.sampled_from([0, 15]),
        "pe_cpu.wakeup_ns": st.sampled_from([0, 30]),
        "pe_cpu.poll_ns": st.sampled_from([0, 5]),
        "pe_scheduler.queue_depth": st.sampled_from([None, 1, 16]),
        "defaults.backpressure": st.sampled_from(["sleep", "poll"]),
        "defaults.poll_interval_max_ns": st.sampled_from([None, 80]),
        "pe_ipcq.overhead_ns": st.sampled_from([0, 1, 3]),
        "system.sips.link": st.sampled_from(["ucie", "ethernet_100g", "ethernet_400g"]),
        "system.sips.links": st.sampled_from([{}, {"0.E": "ethernet_100g"}, {"0.E": "ucie", "1.E": "ethernet_400g"}]),
    }
)
BANKS = {"banks": 16, "interleave_bytes": 64, "bank_bandwidth_GBps": 8}
MEMORIES = st.fixed_dictionaries(
    {},
    optional={
        "tcm": st.one_of(
            st.builds(
                lambda rate, ports: {"kind": "tcm_ports", "params": {"bandwidth_GBps": rate, "ports": ports}},
                st.sampled_from([20, 64, 200]),
                st.sampled_from(["read_and_write", "shared"]),
            ),
            st.sampled_from([10, 128]).map(
                lambda rate: {"kind": "latency_bandwidth", "params": {"bandwidth_GBps": rate}}
            ),
            st.sampled_from([1, 16]).map(lambda banks: {"kind": "banked_sram", "params": {**BANKS, "banks": banks}}),
        ),
        "hbm": st.sampled_from(
            [
                {"kind": "hbm_controller", "params": {"preset": "hbm4_8000"}},
                {"kind": "latency_bandwidth", "params": {"bandwidth_GBps": 10}},
            ]
        ),
        "sram": st.just(
            {"kind": "banked_sram", "params": {"banks": 2, "interleave_bytes": 64, "bank_bandwidth_GBps": 5}}
        ),
    },
)
PLACES = st.tuples(st.integers(0, 2), st.integers(0, 15), st.integers(0, 7))


@settings(max_examples=60)
@given(
    PLACES,
    PLACES,
    st.integers(1, 2048),
    SETTINGS,
    MEMORIES,
    st.sampled_from(["fast_path", "fabric", "piggyback", "auto"]),
)
def test_the_sums_equal_the_simulated_times(
    src: tuple[int, int, int],
    dst: tuple[int, int, int],
    elements: int,
    parts: dict[str, Any],
    kinds: dict[str, Any],
    mode: str,
) -> None:
    """Any two PEs of three SIPs, any message of a slot: to the picosecond; and T5 where recv waits for the credit,
    unless it copies from another memory first, or within a slow TCM, or rests up to 80 ns between polls.
    """
    if src == dst:
        return
    flags = [word for key, value in {**parts, **kinds}.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    flags += ["--sips", 3, *(word for each in heads(parts, mode) for word in ("--set", each))]
    ends = ["--from", ".".join(map(str, src)), "--to", ".".join(map(str, dst))]
    told = probed(*ends, "--bytes", 2 * elements, *flags)
    raw, pair = sums(told)
    assert told["pair"]["simulated_ps"] == pair == sum(term["ps"] for term in told["pair"]["terms"])
    assert [sum(told[key]["kinds"].values()) for key in ("raw_dma", "pair")] == [raw, pair]
    assert told["raw_dma"]["simulated_ps"] in (raw, None)
    assert (told["raw_dma"]["simulated_ps"] is None) == (src[0] != dst[0])
    is_near = parts["defaults.buffer_kind"] == "tcm" or parts["defaults.latch"] != "copy"
    rests = parts["defaults.backpressure"] == "poll" and parts["defaults.poll_interval_max_ns"] is not None
    copies = "tcm" in kinds and parts["defaults.latch"] != "in_place"
    carries_head = parts["defaults.head_update"] == "piggyback"
    if carries_head and mode == "fast_path" and is_near and not (rests or copies):
        assert pair < raw + MOST_OVERHEAD_PS
        # Never less, where both ends of the way back are the same: a credit comes from the PE, an acknowledgement from
        # the memory, which may be nearer or farther.
        assert raw <= pair or parts["defaults.buffer_kind"] != "tcm"


@pytest.mark.parametrize(
    ("kind", "params", "copy_ps"),
    [
        ("tcm_ports", {"bandwidth_GBps": 128}, 32_000),
        ("tcm_ports", {"bandwidth_GBps": 128, "ports": "shared"}, 64_000),
        ("latency_bandwidth", {"bandwidth_GBps": 128}, 64_000),
        ("banked_sram", BANKS, 64_000),
        ("banked_sram", {**BANKS, "interleave_bytes": 2**20, "bank_bandwidth_GBps": 1 << 15}, 32_000),
    ],
)
def test_a_copy_within_a_memory_that_reads_and_writes_by_turns(kind: str, params: dict[str, Any], copy_ps: int) -> None:
    """4 KiB at 128 GB/s are 32 ns, twice; the read latency of 1 ns passes while they are read. In the last case slots
    and the kernel's region are in banks of their own.
    """
    flags = "--set", f"tcm={json.dumps({'kind': kind, 'params': params})}", "--set", "defaults.latch=copy"
    pair = probed("--from", "0.0.0", "--to", "0.1.0", *flags)["pair"]
    assert [term["ps"] for term in pair["terms"] if term["part"] == "copy"] == [1_000, copy_ps, 1_000]
    assert pair["sum_ps"] == pair["simulated_ps"]


@pytest.mark.ideal
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


@pytest.mark.parametrize("flags", [[], ["--short"]])
def test_a_sum_to_which_a_memory_adds_says_so(capsys: pytest.CaptureFixture[str], flags: list[str]) -> None:
    """The receiver's copy waits for the bank in which the same bytes were written."""
    told = "the sum is a lower bound: a memory or another component adds time that no sum contains"
    ends = ["--from", "0.0.0", "--to", "0.0.1", "--bytes", "100", *flags]
    assert main([*ends, "--set", "defaults.buffer_kind=hbm", "--set", "hbm.params.page_policy=closed"]) == 0
    assert told in capsys.readouterr().out
    assert main(ends) == 0
    assert told not in capsys.readouterr().out


def test_standard_output_in_place_of_the_terms(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--from", "0.0.0", "--to", "0.1.0", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == 4096
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("link", ["ucie", "ethernet_100g"])
def test_names_say_which_sip(link: str) -> None:
    """A message from SIP 0 to 2 of a line passes SIP 1, and its credit comes back the same way."""
    line = ["--sips", 3, "--topology", "mesh_2d_no_wrap", "--shape", "3x1", "--link", link]
    terms = probed("--from", "0.0.0", "--to", "2.3.0", *line)["pair"]["terms"]
    nodes = [term["what"].split(".")[0] for term in terms if term["what"].startswith("sip")]
    assert list(dict.fromkeys(nodes)) == ["sip0", "sip1", "sip2"]
    links = [term["what"].split(",")[0] for term in terms if term["kind"] == "links"]
    assert list(dict.fromkeys(links)) == ["link 0.E>1.W", "link 1.E>2.W", "link 2.W>1.E", "link 1.W>0.E"]
    places = [term["what"] for term in terms if term["what"].startswith(("sip1.io", "sip2.io", "sip0.io"))]
    out = ["sip0.io.E", "sip1.io.W", "sip1.io.E", "sip2.io.W"]
    assert places == [*out, *reversed(out)]


@pytest.mark.ideal
def test_kinds_by_hand(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Cube 0 to 1 of a SIP: 7 routers and 2 ports; the screen shows these sums, and fits one."""
    file = tmp_path / "probe.json"
    assert main(["--from", "0.0.0", "--to", "0.1.0", "--short", "--json", str(file)]) == 0
    told = json.loads(file.read_text())
    on_the_way = {"PE_DMA": 2000, "wires": 1550, "routers": 7000, "ports": 4000, "drain": 64000, "memory": 1000}
    assert told["raw_dma"]["kinds"] == {**on_the_way, "acknowledgement": 14800}
    assert told["pair"]["kinds"] == {**on_the_way, "PE_IPCQ": 1000, "credit": 15800}
    lines = capsys.readouterr().out.splitlines()
    shown = {line.split()[0]: line.split()[1:] for line in lines if line[0] != " "}
    assert shown["routers"] == ["7.000", "7.4%", "7.000", "7.3%"]
    assert shown["credit"] == ["-", "15.800", "16.4%"]
    assert shown["sum"] == shown["simulated"] == ["94.350", "96.350"]


@pytest.mark.parametrize("mode", ["fast_path", "fabric", "piggyback"])
def test_short_fits_a_screen(capsys: pytest.CaptureFixture[str], mode: str) -> None:
    """Far away in 64 SIPs, with HBM."""
    system = ["--sips", "64", "--topology", "ring_1d", "--set", "defaults.buffer_kind=hbm"]
    ends = ["--from", "0.15.7", "--to", "31.3.0", "--short"]
    assert main([*ends, *system, "--set", f"defaults.credit_return_mode={mode}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("words", [("--from", "0.0.0"), ("--from", "9.0.0", "--to", "0.1.0"), ("--no-such-flag",)])
def test_a_refused_probe_writes_its_error(words: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "probe.json"
    assert main([*words, "--json", str(file)]) == 2
    document = json.loads(file.read_text())
    assert (document["status"], document["error"]["kind"], document["argv"][0]) == ("failed", "config", words[0])


def test_a_refused_probe_leaves_its_input(tmp_path: Path) -> None:
    file = tmp_path / "system.yaml"
    file.write_text("system: {}\n")
    assert main(["--from", "0.0.0", "--to", "0.1.0", "--config", str(file), "--json", str(file)]) == 2
    assert file.read_text() == "system: {}\n"
