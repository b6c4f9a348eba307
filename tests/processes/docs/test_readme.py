"""The README is true: its commands do what it shows, its script runs, its error line is the real one."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")

pytestmark = [pytest.mark.processes, pytest.mark.default_costs]


def command(words: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """``ahbm-launch`` with these words, from a folder that is not the checkout."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    full = [sys.executable, "-m", "launcher", *words]
    return subprocess.run(full, capture_output=True, text=True, cwd=folder, env=env, timeout=120)


def indented_block_after(words: str) -> str:
    """The first indented block after a text of the README, without its indent."""
    rest = README[README.index(words) + len(words) :]
    found = re.search(r"\n\n((?:    .*\n)+)", rest)
    assert found is not None
    return "".join(line[4:] for line in found[1].splitlines(keepends=True))


def test_first_command_prints_what_the_readme_shows(tmp_path: Path) -> None:
    first_line = indented_block_after("Python 3.11 or newer and git:").splitlines()[0]
    ran = command(shlex.split(first_line)[1:], tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == indented_block_after("The first makes `.venv` on first use")


def test_the_explanation_is_what_the_readme_shows(tmp_path: Path) -> None:
    first, shown = indented_block_after("says\nwhat bounds the run, and what to change first:").split("\n", 1)
    ran = command(shlex.split(first)[2:], tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == shown


def test_a_ring_sends_a_row_in_each_round(tmp_path: Path) -> None:
    """16 rows of 4096 B a rank; of a ring of four SIPs each sends three over the link to the next."""
    ran = command(["--sips", "4", "--json", "-"], tmp_path)
    assert [rank["bytes_sent"] for rank in json.loads(ran.stdout)["ranks"]] == [3 * 4096] * 4


def test_other_commands_run(tmp_path: Path) -> None:
    headings = ("## Choosing what is simulated", "### Collectives and algorithms")
    for line in "".join(map(indented_block_after, headings)).splitlines():
        ran = command(shlex.split(line, comments=True)[1:], tmp_path)
        assert (ran.returncode, ran.stderr) == (0, ""), line
        assert ran.stdout, line


def test_a_mistake_is_reported_as_the_readme_shows(tmp_path: Path) -> None:
    asked, told = indented_block_after("what is allowed, and nothing is started:").splitlines()
    ran = command(shlex.split(asked)[2:], tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", told + "\n")


def fenced_block_after(words: str, language: str) -> str:
    """The first fenced block in a language after a text of the README."""
    found = re.search(rf"```{language}\n(.*?)```", README[README.index(words) :], re.DOTALL)
    assert found is not None
    return found[1]


def probed(line: str, folder: Path, program: str = "probe") -> "subprocess.CompletedProcess[str]":
    """A line of the README with ``ahbm-probe``, or another program of ``launcher.cli``."""
    words = shlex.split(line.removeprefix("$ "), comments=True)[1:]
    full = [sys.executable, "-m", f"launcher.cli.{program}", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    return subprocess.run(full, capture_output=True, text=True, cwd=folder, env=env, timeout=120)


def test_probe_prints_what_the_readme_shows(tmp_path: Path) -> None:
    asked, *shown = indented_block_after("and the model `t0 + n / r_inf`:").splitlines()
    ran = probed(asked, tmp_path)
    assert (ran.returncode, ran.stderr, ran.stdout.splitlines()) == (0, "", shown)


def test_the_other_outputs_of_probe(tmp_path: Path) -> None:
    for line in indented_block_after("Three more outputs, each also with `--json FILE`:").splitlines():
        ran = probed(line, tmp_path)
        assert (ran.returncode, ran.stderr) == (0, ""), line
        assert ran.stdout, line


def test_bench_prints_what_the_readme_shows(tmp_path: Path) -> None:
    ping = README[README.index("    $ ahbm-bench eth-ping") :].partition("\n\nThree sizes")[0]
    asked, *shown = [line.removeprefix("    ") for line in ping.splitlines()]
    ran = probed(asked, tmp_path, "bench")
    assert (ran.returncode, ran.stderr, ran.stdout.splitlines()) == (0, "", shown)


def test_the_other_benches_run_in_one_process_and_in_several(tmp_path: Path) -> None:
    for line in indented_block_after("where there is one:").splitlines():
        few = line.partition("#")[0] + ("" if "--samples" in line else " --samples 4")
        told = [probed(f"{few} --json - --engine {engine}", tmp_path, "bench") for engine in ("inproc", "local")]
        assert [(each.returncode, each.stderr) for each in told] == [(0, "")] * 2, line
        assert told[0].stdout == told[1].stdout, line


def test_a_link_kind_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "my_lab").mkdir()
    (tmp_path / "my_lab/parity.py").write_text(fenced_block_after("### Link kinds, chips", "python"))
    (tmp_path / "lab.yaml").write_text(fenced_block_after("A preset gives it its numbers", "yaml"))
    words = shlex.split(indented_block_after("chooses the preset:").splitlines()[0])[1:]
    ran = command(words, tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "link parity, 16 cubes each" in ran.stdout


def test_algorithm_runs_and_is_right(tmp_path: Path) -> None:
    (tmp_path / "chain.py").write_text(fenced_block_after("## Writing an algorithm", "python"))
    (tmp_path / "my_ccl.yaml").write_text(fenced_block_after("## Writing an algorithm", "yaml"))
    words = shlex.split(indented_block_after("and chosen there:"))[1:]
    ran = command(words, tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[3].split()[-1] == "0", "wrong"


def test_host_script_runs(tmp_path: Path) -> None:
    (tmp_path / "my_script.py").write_text(fenced_block_after("## Running a host script", "python"))
    ran = command(["--sips", "4", "--topology", "torus_2d", "my_script.py", "its", "own", "arguments"], tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[3].split()[-1] == "0", "wrong"
    total = 16.0 * (1 + 2 + 3 + 4)
    assert sorted(ran.stderr.splitlines()) == [f"[rank {rank}] {rank} {total}" for rank in range(4)]


def test_runs_from_python_print_what_the_readme_shows(tmp_path: Path) -> None:
    code = fenced_block_after("## Runs from Python", "python")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=env, timeout=120
    )
    assert (ran.returncode, ran.stderr, os.listdir(tmp_path)) == (0, "", [])
    assert ran.stdout == indented_block_after('outcome.runs[0]["time_ns"])\n```')


def test_a_dry_run_says_what_the_readme_shows(tmp_path: Path) -> None:
    asked, *told = indented_block_after("## How long it takes").splitlines()
    ran = command(shlex.split(asked)[2:], tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    what, expected = ran.stdout.splitlines()
    assert what.startswith(told[0].removesuffix("..."))
    # Wall time and memory are those of the host; commands and simulated time are not.
    of_host = re.compile(r"[\d.]+ s of wall time( beside what .* by itself\))?, \d+ MiB")
    assert of_host.sub("#", expected) == of_host.sub("#", told[1])


def test_a_failure_looks_as_the_readme_shows_it() -> None:
    asked, *told = indented_block_after("the report says so.").splitlines()
    ran = command(shlex.split(asked)[2:], ROOT)
    assert ran.returncode == 4
    # What the broker knew of a SIP that is killed, and its pid, differ from run to run.
    numbers = re.compile(r"\d+(\.\d+ \wi?s)?\b")
    assert [numbers.sub("#", line) for line in ran.stderr.splitlines()] == [numbers.sub("#", line) for line in told]


def test_a_broken_run_ends_as_the_readme_says(tmp_path: Path) -> None:
    line = indented_block_after("However it is broken, a run ends")
    ran = command(shlex.split(line)[1:], tmp_path)
    first = indented_block_after("The first makes `.venv` on first use").splitlines()
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, first[-1])
