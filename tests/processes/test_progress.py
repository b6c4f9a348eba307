"""What a run shows before its end: rows as they finish, lines of progress; and a run that stops at a simulated time."""

import re
import signal

import pytest
from launch import launched, launching
from runs import run
from sweeps import some

pytestmark = pytest.mark.processes

SMALL = ("--sips", "2", "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2")
TWO_SIZES = (*SMALL, "--bytes", "1K,256K")
LATER = "6us"
"""A simulated time at which the first size of ``TWO_SIZES`` has ended on all ranks, and the second has not."""


def rows(text):
    return [line.split()[0] for line in text.splitlines() if line and not line.startswith("#")]


def test_a_row_appears_before_the_run_ends(tmp_path):
    """SIP 1 is stopped in the second size, so the run cannot end by itself."""
    flags = ("--fault", f"stop:1@{LATER}", "--no-timeouts", "--json", tmp_path / "out.json")
    with launching(*TWO_SIZES, *flags) as launch:
        shown = [launch.process.stdout.readline() for _ in range(4)]
        assert [line[0] for line in shown] == ["#", "#", "#", " "]
        assert shown[3].split()[0] == "1024"
        assert launch.process.poll() is None
        launch.line(lambda line: "is injected" in line)
        launch.process.send_signal(signal.SIGINT)
        done = launch.end()
    assert done.exit_code == 130
    assert done.stdout.splitlines()[-1] == "# interrupted: partial result, no digest"
    assert rows(done.stdout) == []
    assert [each["bytes"] for each in done.document["runs"]] == [1024]


def test_a_failed_run_keeps_the_rows_that_had_finished(tmp_path):
    files = ("--json", tmp_path / "out.json", "--csv", tmp_path / "o.csv")
    done = launched(*TWO_SIZES, "--fault", f"kill:1@{LATER}", *files)
    assert (done.exit_code, done.document["error"]["kind"]) == (4, "process_died")
    assert rows(done.stdout) == ["1024"]
    assert done.stdout.splitlines()[-1] == "# failed: partial result, no digest"
    assert done.document["runs"] == [run(*TWO_SIZES).document["runs"][0]]
    assert len((tmp_path / "o.csv").read_text().splitlines()) == 2


def test_a_restarted_rank_repeats_no_row(tmp_path):
    done = launched(*TWO_SIZES, "--fault", f"kill:1@{LATER}", "--max-restarts", "1", "--json", tmp_path / "out.json")
    assert (done.exit_code, rows(done.stdout)) == (0, ["1024", "262144"])
    assert done.document["runs"] == run(*TWO_SIZES).document["runs"]


@pytest.mark.parametrize("limit", some(["1500ns", LATER], LATER))
def test_a_limit_of_simulated_time_stops_all_engines_alike(tmp_path, limit):
    flags = (*TWO_SIZES, "--max-sim-time", limit)
    done, alike = launched(*flags, "--json", tmp_path / "out.json"), run(*flags)
    assert (done.exit_code, alike.outcome.exit_code) == (124, 124)
    assert done.document["status"] == "interrupted"
    assert done.document["error"] == alike.document["error"]
    assert done.document["runs"] == alike.document["runs"]
    assert rows(done.stdout) == [str(each["bytes"]) for each in alike.document["runs"]]
    for here, there in zip(done.document["ranks"], alike.document["ranks"], strict=True):
        for key in ("sim_end_ps", "tensor_sha256", "oplog_sha256", "packets_sent"):
            assert here[key] == there[key], key
    first = done.stderr.splitlines()[0]
    assert first.startswith("ahbm-launch: simulated time has reached ")
    assert re.search(r"PE 0: .* at sipsim/chips/ahbm/collectives/algorithms/intercube_allreduce\.py:", done.stderr)


def test_a_limit_after_the_end_changes_nothing():
    assert launched(*SMALL, "--max-sim-time", "1s").digest == launched(*SMALL).digest


@pytest.mark.parametrize("engine", some(["local", "inproc"], "local"))
def test_lines_of_progress(engine):
    """A pipe gets them on request. The run would take long on any host; it is stopped at a line with all figures."""
    flags = ("--sips", "4", "--topology", "torus_2d", "--bytes", "64M", "--no-verify-data", "--engine", engine)
    lines: list[str] = []

    def is_whole(line: str) -> bool:
        lines.append(line)
        return "%, simulated" in line and line.rstrip().endswith(" s left")

    with launching(*flags, "--progress", "-q") as launch:
        launch.line(is_whole)
        launch.process.send_signal(signal.SIGINT)
        done = launch.end()
    assert (done.exit_code, done.stdout) == (130, "")
    assert all(line.startswith("ahbm-launch: ") and " simulated " in line for line in lines)


def test_a_run_with_lines_of_progress_prints_nothing_else():
    done = launched(*SMALL, "--progress", "-q")
    assert (done.exit_code, done.stdout) == (0, "")
    assert all(line.startswith("ahbm-launch: ") and " simulated " in line for line in done.stderr.splitlines())
