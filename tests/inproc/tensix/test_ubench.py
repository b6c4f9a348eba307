"""Microbenchmarks on simulated chips: figures by hand where only the link takes time, and what checks them."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sweeps import some

from launcher.bench.base import BENCHES, Case, Figure
from launcher.bench.command import main
from launcher.bench.machine import Machine
from launcher.bench.programs.ends import Receiver, Sender
from sipsim.chips.tensix.dataflow import Dataflow
from sipsim.chips.tensix.eth_dataflow import EthDataflow
from sipsim.chips.tensix.tiles import Tiles
from sipsim.core.errors import ConfigError, SimulationError

CHIP = "system.chip_params"
IDEAL = Machine(
    link="tenstorrent_100g",
    samples=40,
    settings=(
        f"{CHIP}.ethernet.copy_GBps=null",
        *(f"{CHIP}.risc.{name}_ns=0" for name in ("noc_command", "eth_command")),
        *(f"{CHIP}.risc.{name}_ns=0.001" for name in ("poll", "l1_access", "timer")),
        *(f"{CHIP}.data_mover.{name}_visit_ns=0" for name in ("sender", "receiver")),
        *(f"{CHIP}.noc.{name}_cycles=0" for name in ("hop", "niu")),
        "links.tenstorrent_100g.params.latency_ns=400",
    ),
)
"""Chips that spend nothing but the link's time and the NoC's flits; looks take 1 ps."""
L, WORD = 400, 66 / 12.5
"""Latency of the link, and the time of 16 B with 50 B of overhead, in ns."""
NEAR_NS = 0.2
"""For looks and loads of 1 ps."""


def wire(nbytes: int) -> float:
    """The time of a message on the link, in ns: packets of 1500 B, with 50 B of overhead each."""
    return (nbytes + 50 * -(-nbytes // 1500)) / 12.5


def values(bench: str, case: Case, sizes: list[int], machine: Machine = IDEAL) -> dict[tuple[str, int], float]:
    """The figures of a case by test and statistic, and size."""
    figures: list[Figure] = BENCHES.get(bench).measure(replace(case, sizes=tuple(sizes)), machine)
    return {(f"{each.test} {each.statistic}", each.nbytes): each.value for each in figures}


def test_a_ping_takes_payload_and_word_there_and_a_word_back() -> None:
    found = values("eth-ping", Case("single_link_round_trip", 1, 1), [16, 2048])
    for nbytes in (16, 2048):
        round_ns = wire(nbytes) + WORD + L + WORD + L
        assert found["single_link_round_trip round_trip", nbytes] == pytest.approx(round_ns, abs=NEAR_NS)
        assert found["single_link_one_way one_way_midpoint", nbytes] == pytest.approx(round_ns / 2, abs=NEAR_NS)
        assert found["initiate_send erisc_cost", nbytes] == pytest.approx(0, abs=NEAR_NS)
        component = round_ns / 2 - nbytes / 12.5
        assert found["eth_subsystem_plus_wire one_way_component", nbytes] == pytest.approx(component, abs=NEAR_NS)


@pytest.mark.parametrize("nbytes", [16, 512, 8192])
def test_one_message_in_a_loop_takes_its_merged_packet_and_a_word_back(nbytes: int) -> None:
    found = values("eth-ping", Case("test_erisc_latency_uni_dir", 16, 1), [nbytes])
    assert list(found.values()) == [pytest.approx(wire(nbytes + 16) + L + WORD + L, abs=NEAR_NS)]


def test_a_worker_adds_the_flits_that_leave_before_the_buffer_is_free() -> None:
    """4096 B are 128 flits and a header, one a ns."""
    found = values("eth-ping", Case("test_erisc_write_worker_latency_uni_dir", 16, 1), [4096])
    assert list(found.values()) == [pytest.approx(wire(4112) + L + 129 + WORD + L, abs=NEAR_NS)]


@pytest.mark.parametrize("channels", [1, 4, 16])
def test_bandwidth_is_of_the_wire_or_of_the_buffers(channels: int) -> None:
    """So many messages are under way at most, each until its buffer is free again: a round trip."""
    n, nbytes = 40, 4096
    found = values("eth-bandwidth", Case("test_erisc_bw_uni_dir", channels, 1), [nbytes])
    message, trip = wire(nbytes + 16), wire(nbytes + 16) + L + WORD + L
    laps, rest = divmod(n - 1, channels)
    loop_ns = laps * max(trip, channels * message) + rest * message + trip
    assert list(found.values()) == [pytest.approx(n * nbytes / loop_ns, rel=1e-3)]


def test_in_both_directions_each_message_shares_the_wire_with_a_word() -> None:
    """The time of a further message, by runs of different length: never below both on the wire, and at most 6 % above,
    for words that wait behind messages which were put into the queue ahead of them.
    """
    times = []
    for samples in (100, 200):
        machine = Machine(link=IDEAL.link, settings=IDEAL.settings, samples=samples)
        (value,) = values("eth-bandwidth", Case("test_erisc_bw_bi_dir", 16, 1), [4096], machine).values()
        times.append(samples * 4096 / value)
    assert 1 <= (times[1] - times[0]) / 100 / (wire(4112) + WORD) < 1.06


@pytest.mark.parametrize(("test", "message"), [
    ("ring_ping_no_edm", lambda nbytes: wire(nbytes) + WORD),
    ("ring_ping_no_edm_merged_sync", lambda nbytes: wire(nbytes + 16)),
])  # fmt: skip
def test_a_hop_takes_the_message_and_the_flits_to_the_sender(test: str, message: Any) -> None:
    """A write of whole flits with a header, and behind it the semaphore's two flits."""
    for hops in (2, 3, 8):
        found = values("ring-latency", Case(test, 1, hops), [16, 1024])
        for nbytes in (16, 1024):
            hop_ns = message(nbytes) + L + (-(-nbytes // 32) + 1) + 2
            assert found[f"{test} per_hop", nbytes] == pytest.approx(hop_ns, abs=NEAR_NS)
            assert found[f"{test} total_{hops}_hops", nbytes] == pytest.approx(hops * hop_ns / 1000, abs=NEAR_NS / 100)


def test_packets_at_once_follow_each_other_on_the_wire() -> None:
    (one, four) = (
        values("ring-latency", Case("ring_ping_no_edm_merged_sync", n, 3), [1024])[
            "ring_ping_no_edm_merged_sync total_3_hops", 1024
        ]
        for n in (1, 4)
    )
    assert one + 3 * wire(1040) / 1000 <= four + 1e-3
    assert four < 2 * one


def no_wait(self: Any) -> bool:
    """As if every buffer were free."""
    return bool(self._sent < self._messages)


def not_written(self: Any, *args: object) -> None:
    """As if a NoC write were lost."""


def frees_before_it_takes(self: Any) -> None:
    """As ``Receiver.work``, but the buffer is free before the payload has left it."""
    if self._has_arrived():
        self._taken += 1
        self._df.write_word(self._slots.sync(self._freed), 0)
        self._df.eth_send_packet(0, self._slots.sync(self._freed) // 16, self._slots.sync(self._freed) // 16, 1)
        self._df.instructions(self._visit_ns)
        self._taken -= 1
        self._take()
        self._taken += 1
        self._freed += 1


SLOW = Machine(samples=9, settings=(f"{CHIP}.data_mover.receiver_visit_ns=3000",))
"""A receiver that is later than any sender."""
MUTANTS = [
    (Sender, "_may_send", no_wait, "none", "was sent"),
    (Tiles, "write", not_written, "flush", "was sent"),
    (Dataflow, "noc_async_write_one_packet_with_trid", not_written, "ids", "was sent"),
    (Receiver, "work", frees_before_it_takes, "none", "was sent"),
    (EthDataflow, "eth_send_packet", not_written, "none", "wait"),
]
"""A planted bug each: of whom, what, by what, with which worker mode, and what is told."""


@pytest.mark.parametrize(("owner", "name", "planted", "worker", "told"), MUTANTS)
def test_a_planted_bug_ends_the_run(
    owner: type, name: str, planted: Any, worker: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, planted)
    suffix = {"none": ("", ""), "ids": ("_write_worker", ""), "flush": ("_write_worker", "_no_trid")}[worker]
    with pytest.raises(SimulationError, match=told):
        values("eth-bandwidth", Case(f"test_erisc{suffix[0]}_bw_uni_dir{suffix[1]}", 2, 1), [256], SLOW)


def test_buffers_that_do_not_fit_are_fewer_and_said_so() -> None:
    bench, case = BENCHES.get("eth-bandwidth"), Case("test_erisc_bw_bi_dir", 16, 1, (8192,))
    (figure,) = bench.measure(case, Machine(samples=20))
    assert figure.note == "only 8 channels fit"
    with pytest.raises(ConfigError, match="--sizes 131072: 2 x 131072 B"):
        bench.measure(replace(case, sizes=(131072,)), Machine(samples=1))


@pytest.mark.parametrize("chip", some(["wormhole", "blackhole"], "blackhole"))
def test_every_bench_runs_on_every_chip(chip: str, capsys: pytest.CaptureFixture[str]) -> None:
    for flags in (
        ["eth-bandwidth", "--samples", "8", "--channels", "1,4"], ["eth-ping"], ["ring-latency", "--hops", "3"],
    ):  # fmt: skip
        assert main([*flags, "--chip", chip, "--sizes", "16,256,4096"]) == 0
        shown = capsys.readouterr().out
        assert f"chip {chip}" in shown
        assert "(* simulated, o published)" in shown


def test_figures_go_to_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = tmp_path / "a.json", tmp_path / "a.csv"
    flags = ["eth-ping", "--sizes", "16", "--worker", "none", "--json", str(files[0]), "--csv", str(files[1])]
    assert main(flags) == 0
    document = json.loads(files[0].read_text())
    assert (document["bench"], document["chip"]) == ("eth-ping", "wormhole")
    assert [figure["id"] for figure in document["figures"]] == ["TT0005", "TT0006", "TT0007", "TT0008", "TT0011"]
    assert len(files[1].read_text().splitlines()) == 6
    assert "TT0011" in capsys.readouterr().out
    assert main([*flags[:5], "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == document


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_the_cases_that_have_ended(
    signum: signal.Signals,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It comes with the second of two cases."""
    simulate = Machine.run
    scripts: list[str] = []

    def run(self: Machine, script: str, *more: Any, **how: Any) -> list[dict[str, Any]]:
        scripts.append(script)
        if len(scripts) == 2:
            signal.raise_signal(signum)
        return simulate(self, script, *more, **how)

    flags = ["eth-ping", "--sizes", "16", "--worker", "none", "--samples", "1"]
    assert main([*flags, "--json", str(tmp_path / "all.json")]) == 0
    monkeypatch.setattr(Machine, "run", run)
    capsys.readouterr()
    assert main([*flags, "--json", str(tmp_path / "some.json")]) == code
    told = capsys.readouterr()
    whole, part = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("all", "some"))
    assert (whole.pop("status"), part.pop("status")) == ("ok", "interrupted")
    kept = len(part["figures"])
    assert 0 < kept < len(whole["figures"])
    assert part == {**whole, "figures": whole["figures"][:kept]}
    assert told.out.splitlines()[-1].startswith("# interrupted: partial result")
    assert (told.err.count("\n"), told.err.startswith("ahbm-bench: ")) == (1, True)
