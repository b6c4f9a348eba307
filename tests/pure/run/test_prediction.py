"""What a run takes: short runs and the costs in the file make wall time and memory; what ``--dry-run`` says of them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from launcher.options import parse
from launcher.predict import forecaster, prediction
from launcher.predict.forecaster import described, expectation
from launcher.predict.prediction import BY_ESTIMATE, BY_SHORT_RUNS, predict, read_costs
from launcher.predict.short_run import ShortRun, ShortRuns
from launcher.report.progress import Prediction
from launcher.run.prepare import prepare
from sipsim.core.errors import ConfigError

COSTS = read_costs()
SMALL = ("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2")
MADE = Prediction(source=BY_SHORT_RUNS, rows_ps=(10**7,), rows_s=(2.0,), startup_s=0.5, memory_MiB=99.6, processes=1)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """An iteration of 1 us, 1000 events of 1 ms and 10 grants a SIP, on a host with two processors."""

    def by_size(runs: ShortRuns, run: Any) -> dict[int, ShortRun]:
        runs.event_s = 0.001
        return dict.fromkeys(run.job.n_elems, ShortRun(10**6, 10**6, 10**5, 1000, 10))

    monkeypatch.setattr(ShortRuns, "by_size", by_size)
    monkeypatch.setattr(prediction.os, "sched_getaffinity", lambda _pid: {0, 1})


def predicted(*words: object) -> Prediction:
    made = predict(prepare(parse([*SMALL, *map(str, words)])), 0.5, 40.0)
    assert made is not None
    return made


def test_the_file_is_complete_and_strict(tmp_path: Path) -> None:
    assert all(value > 0 for value in msgspec.to_builtins(COSTS).values())
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text((prediction.default_dir() / prediction.FILE).read_text() + "more: 3\n")
    with pytest.raises(msgspec.ValidationError, match="unknown field `more`"):
        read_costs(wrong)


@pytest.mark.usefixtures("measured")
def test_events_and_grants_make_the_wall_time() -> None:
    one, two, checked = (
        predicted("--sips", 4, "--bytes", "1K", *more).rows_s[0]
        for more in (("--engine", "inproc", "--no-verify-data"), ("--no-verify-data",), ())
    )
    assert one == pytest.approx(4.0)
    assert two == pytest.approx((4.0 + 0.04 * COSTS.grant_events) / 2)
    assert checked == pytest.approx(two * COSTS.verified)


@pytest.mark.usefixtures("measured")
def test_iterations_and_rows_follow_each_other_after_a_gap() -> None:
    made = predicted("--bytes", "1K,2K", "--iters", 2, "--warmup", 1)
    assert made.rows_ps == (3 * 10**6 + 3 * 10**5, 3 * 10**6 + 2 * 10**5)


@pytest.mark.usefixtures("measured")
def test_tensors_of_all_sizes_stay_and_equal_ones_do_not_count_twice() -> None:
    one, again, more = (
        predicted("--sips", 4, "--engine", "inproc", "--no-verify-data", "--bytes", sizes).memory_MiB
        for sizes in ("1M", "1M,1M,1M", "1M,512K")
    )
    assert again == one
    assert more - one == pytest.approx(4 * 0.5)


@pytest.mark.usefixtures("measured")
def test_other_hosts_are_not_measured() -> None:
    made = predicted("--engine", "manual", "--bytes", "1K", "--no-verify-data")
    assert (made.rows_s, made.memory_MiB) == ((), 0.0)
    assert sum(made.rows_ps) > 0


def test_as_text() -> None:
    text = described(MADE)
    assert text == "about 10.000 us of simulated time, by short runs; 2.5 s of wall time; 100 MiB in 1 process"
    assert described(MADE, 10**6).startswith("about 1.000 us of simulated time")
    without = described(msgspec.structs.replace(MADE, source=BY_ESTIMATE, rows_s=()))
    assert BY_ESTIMATE in without
    assert "wall" not in without


def own_kernel(folder: Path, body: str, *words: str) -> list[str]:
    """The words of a command whose kernels have this body."""
    (folder / "own.py").write_text(
        "def neighbors(rank, size, ways):\n    return {'E': rank + 1} if rank + 1 < size else {'W': rank - 1}\n"
        f"def kernel_args(size, n_elem):\n    return ()\ndef kernel(t_ptr, tl):\n    {body}\n"
    )
    (folder / "ccl.yaml").write_text(f"algorithms: {{own: {{module: {folder}/own.py, topology: none}}}}\n")
    flags = ["--ccl", str(folder / "ccl.yaml"), "--algorithm", "own"]
    return [*words, *flags, "--set", "sip.cube_mesh.w=1", "--set", "sip.cube_mesh.h=1"]


class TestDryRun:
    SMALL = (*SMALL, "--sips", "2", "--n-elem", "64")

    @pytest.mark.ideal
    def test_the_built_in_job(self) -> None:
        line = expectation(prepare(parse([*self.SMALL])), 0.0)
        assert BY_SHORT_RUNS in line
        assert "MiB in 5 processes" in line

    def test_a_collective_over_a_group(self) -> None:
        line = expectation(prepare(parse([*self.SMALL, "--collective", "all_reduce"])), 0.0)
        assert BY_ESTIMATE in line

    def test_a_script(self, tmp_path: Path) -> None:
        (tmp_path / "s.py").write_text("def worker(rank, world_size, torch):\n    1 / 0\n")
        made = prepare(parse([str(tmp_path / "s.py")]))
        assert expectation(made, 0.0) == "wall time and memory of a script are not known before the script runs"

    @pytest.mark.parametrize("body", ["1 / 0", "print('loud'); import os; os._exit(3)"])
    def test_kernels_that_fail(self, tmp_path: Path, body: str, capfd: Any) -> None:
        made = prepare(parse(own_kernel(tmp_path, body, *self.SMALL)))
        assert "no prediction: " in expectation(made, 0.0)
        assert capfd.readouterr() == ("", "")

    def test_a_kernel_that_never_ends_takes_no_more_than_its_processor_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(forecaster, "LONGEST_S", 1)
        made = prepare(parse(own_kernel(tmp_path, "while True: pass", *self.SMALL)))
        beside = forecaster.Forecaster(made, 0.0)
        try:
            beside.ask()
            assert beside.prediction(60.0) is None
            assert not beside.is_pending
        finally:
            beside.close()

    def test_mistakes_are_found_as_before(self) -> None:
        with pytest.raises(ConfigError):
            prepare(parse(["--sips", "3", "--topology", "torus_2d"]))
