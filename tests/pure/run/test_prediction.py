"""What a run takes: the costs in the file, scaled to this host, times what is counted."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from broker.ids import Channel
from launcher.options import parse
from launcher.predict import prediction as machine
from launcher.predict.forecaster import described, expectation
from launcher.predict.prediction import (
    Costs,
    Host,
    MeasuredHost,
    measure,
    measure_beside,
    predict,
    read_costs,
    window_ps,
)
from launcher.run.prepare import prepare
from sipsim.chips.api.forecast import STEPS, JobForecast, SizeForecast
from sipsim.core.errors import ConfigError
from sipsim.records.job import Job

MIB = 2**20
COSTS = read_costs()
HERE = Host(MeasuredHost(COSTS.host.event_us, 1.0, COSTS.host.round_trip_us), 0.5, 40.0)


def size(nbytes: int = MIB, commands: int = 1000) -> SizeForecast:
    curve_ps = tuple(10**7 * step // STEPS for step in range(STEPS + 1))
    counts = {"recv": commands}
    return SizeForecast(
        n_elem=nbytes,
        nbytes=nbytes,
        elements=nbytes // 2,
        counts=counts,
        commands=commands,
        duration_ps=10**7,
        curve_ps=curve_ps,
    )


def plan(n_sips: int = 4) -> Any:
    channels = [Channel(0, 1, 14_000, "a"), Channel(1, 0, 50_000, "b")] if n_sips > 1 else []
    return SimpleNamespace(
        system=SimpleNamespace(n_sips=n_sips),
        channels=channels,
        egress_ps=[6000] * n_sips,
        reactions_ps=[5000] * n_sips,
    )


def predicted(host: Host = HERE, n_sips: int = 4, in_process: bool = True, verify: bool = True, **changes: Any) -> Any:
    sizes = changes.get("sizes", (size(),))
    forecast = JobForecast(sizes=sizes, iterations=changes.get("iterations", 1), gap_ps=0)
    return predict(forecast, Job(verify_data=verify), plan(n_sips), in_process, host, COSTS)


def test_the_file_is_complete_and_strict(tmp_path: Path) -> None:
    assert all(value > 0 for part in msgspec.to_builtins(COSTS).values() for value in part.values())
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("host: {event_us: 1, round_trip_us: 2, more: 3}\ntimes: {}\nmemory: {}\n")
    with pytest.raises(msgspec.ValidationError, match="unknown field `more`"):
        read_costs(wrong)
    assert isinstance(COSTS, Costs)


def test_commands_and_windows_make_the_time() -> None:
    made = predicted(verify=False)
    assert made.command_s == pytest.approx((COSTS.times.command_us + 4 * COSTS.times.command_us_per_sip) / 1e6)
    windows = 4 * 1e6 / 25_000
    assert window_ps(plan()) == 25_000
    assert made.us_s == pytest.approx(windows * COSTS.times.window_us / 1e6)
    assert predicted(in_process=False).us_s == pytest.approx(
        windows * COSTS.times.window_round_trips * COSTS.host.round_trip_us / 1e6
    )
    assert predicted(n_sips=1).us_s == 0.0


def test_a_slower_host_takes_longer() -> None:
    slow = Host(MeasuredHost(3 * COSTS.host.event_us, 1.0, COSTS.host.round_trip_us), 0.5, 40.0)
    here, there = predicted(), predicted(slow)
    assert there.total_s - 0.5 == pytest.approx(3 * (here.total_s - 0.5))
    assert there.memory_MiB == here.memory_MiB


def test_processes_share_the_processors_that_there_are() -> None:
    two = Host(MeasuredHost(COSTS.host.event_us, 2.0, COSTS.host.round_trip_us), 0.5, 40.0)
    assert predicted(two, in_process=False).command_s == pytest.approx(predicted(in_process=False).command_s / 2)
    assert predicted(two, n_sips=1, in_process=False).command_s == predicted(n_sips=1, in_process=False).command_s


def test_a_check_takes_time_and_memory() -> None:
    for in_process, checked in ((True, 1), (False, 4)):
        without, checks = predicted(in_process=in_process, verify=False), predicted(in_process=in_process)
        again = 4 * COSTS.memory.second_pass_copies * (1 + COSTS.memory.ring_MiB)
        assert checks.memory_MiB - without.memory_MiB == pytest.approx(checked * COSTS.memory.check_copies + again)
        assert checks.command_s - without.command_s == pytest.approx(COSTS.times.replayed_us / 1e6)
        assert checks.setup_s[0] > without.setup_s[0]
        assert (checks.check_s[0] > 0, without.check_s[0]) == (True, 0.0)


def test_tensors_of_all_sizes_stay_and_equal_ones_do_not_count_twice() -> None:
    sweeps = ((size(),), (size(),) * 3, (size(), size(MIB // 2)))
    one, again, more = (predicted(verify=False, sizes=sizes) for sizes in sweeps)
    assert again.memory_MiB == one.memory_MiB
    assert more.memory_MiB - one.memory_MiB == pytest.approx(4 * 0.5)


def test_as_text() -> None:
    made = msgspec.structs.replace(predicted(n_sips=1), memory_MiB=99.6)
    text = described(made)
    assert text.startswith(f"about {made.total_s:.1f} s of wall time, 100 MiB in 1 process, 1000 commands of kernels, ")
    assert text.endswith("about 10.000 us of simulated time")
    assert described(made, 10**6).endswith("about 1.000 us of simulated time")


def test_this_host_can_be_measured() -> None:
    for number in (1, 2):
        found = measure(number)
        assert 0 < found.parallel <= number + 0.1
        assert found.event_us > 0
        assert (found.round_trip_us > 0) is (number > 1)


@pytest.mark.parametrize(("number", "parallel"), [(1, 0.25), (4, 1.0), (16, 2.0)])
def test_this_host_beside_a_run(monkeypatch: pytest.MonkeyPatch, number: int, parallel: float) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    monkeypatch.setattr(machine, "_events_s", lambda number: (4.0, 1.0))
    found = measure_beside(number, 40.0)
    assert found == (1e6 / machine.EVENTS, parallel, 40e6 / machine.EVENTS)


class TestDryRun:
    SMALL = ("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2", "--sips", "2", "--n-elem", "64")

    @pytest.mark.ideal
    def test_the_built_in_job(self) -> None:
        line = expectation(prepare(parse([*self.SMALL])), 0.0)
        assert "58 commands of kernels" in line
        assert "MiB in 5 processes" in line

    def test_a_script(self, tmp_path: Path) -> None:
        (tmp_path / "s.py").write_text("def worker(rank, world_size, torch):\n    1 / 0\n")
        made = prepare(parse([str(tmp_path / "s.py")]))
        assert expectation(made, 0.0) == "wall time and memory of a script are not known before it runs"

    @pytest.mark.parametrize("body", ["tl.load(t_ptr, 1).array[0]", "print('loud'); import os; os._exit(3)"])
    def test_kernels_that_cannot_be_counted(self, tmp_path: Path, body: str, capfd: Any) -> None:
        (tmp_path / "own.py").write_text(
            "def neighbors(rank, size, ways):\n    return {'E': rank + 1} if rank + 1 < size else {'W': rank - 1}\n"
            f"def kernel_args(size, n_elem):\n    return ()\ndef kernel(t_ptr, tl):\n    {body}\n"
        )
        (tmp_path / "ccl.yaml").write_text(f"algorithms: {{own: {{module: {tmp_path}/own.py, topology: none}}}}\n")
        words = [*self.SMALL, "--ccl", str(tmp_path / "ccl.yaml"), "--algorithm", "own"]
        made = prepare(parse([*words, "--set", "sip.cube_mesh.w=1", "--set", "sip.cube_mesh.h=1"]))
        assert "cannot be counted" in expectation(made, 0.0)
        assert capfd.readouterr() == ("", "")

    def test_mistakes_are_found_as_before(self) -> None:
        with pytest.raises(ConfigError):
            prepare(parse(["--sips", "3", "--topology", "torus_2d"]))
