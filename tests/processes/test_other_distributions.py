"""Packages of the same names from elsewhere: each command, and a program's import, says so in one line."""

import os
import subprocess
import sys
from itertools import cycle
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ADVICE = "install ahbm-sim in a virtual environment of its own, and keep folders with that name off PYTHONPATH"
COMMANDS = {name: f"ahbm-{name}" for name in ("launch", "probe", "agent", "broker", "sip")}

pytestmark = pytest.mark.processes


def package(folder: Path, name: str, text: str = "raise SystemExit('another broker runs')\n") -> Path:
    file = folder / name / "__init__.py"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return file


def python(folder: Path, code: str) -> "subprocess.CompletedProcess[str]":
    """``folder`` goes before this project's."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True, timeout=600
    )


def called(function: str) -> str:
    return f"import sys, ahbm_sim; sys.argv[1:] = ['--version']; sys.exit(ahbm_sim.{function}())"


@pytest.mark.parametrize(
    ("function", "name"), list(zip(COMMANDS, cycle(("broker", "sipsim", "launcher")), strict=False))
)
def test_a_command_says_whose_package_it_finds(tmp_path: Path, function: str, name: str) -> None:
    """And does not import it."""
    file = package(tmp_path, name)
    done = python(tmp_path, called(function))
    finds = f"package {name} must be the one of ahbm-sim, in {ROOT}; Python finds {file}: {ADVICE}"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{COMMANDS[function]}: {finds}\n")


def test_the_other_distribution_is_named(tmp_path: Path) -> None:
    file = package(tmp_path, "broker")
    facts = tmp_path / "message_broker-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: message-broker\nVersion: 1.0\n")
    (facts / "top_level.txt").write_text("broker\n")
    done = python(tmp_path, called("launch"))
    assert done.returncode == 2
    assert f"; Python finds {file} of distribution message-broker: " in done.stderr


def test_an_import_fails_with_the_same_line(tmp_path: Path) -> None:
    file = package(tmp_path, "sipsim")
    done = python(tmp_path, "from launcher.api import run")
    last = done.stderr.splitlines()[-1]
    finds = f"package sipsim must be the one of ahbm-sim, in {ROOT}; Python finds {file}: {ADVICE}"
    assert (done.returncode, last) == (1, f"ImportError: {finds}")


@pytest.mark.parametrize("text", ["", "VERSION = 1\n"])
def test_a_package_that_was_written_over(tmp_path: Path, text: str) -> None:
    """Another distribution has put its files into the same folder."""
    for name in ("ahbm_sim", "sipsim", "launcher"):
        package(tmp_path, name, (ROOT / name / "__init__.py").read_text())
    file = package(tmp_path, "broker", text)
    done = python(tmp_path, called("probe"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"Python finds {file}" in done.stderr


def test_configs_of_nobody(tmp_path: Path) -> None:
    """Installed without them, beside another's folder configs."""
    for name in ("ahbm_sim", "broker", "sipsim", "launcher"):
        package(tmp_path, name, (ROOT / name / "__init__.py").read_text())
    (tmp_path / "configs").mkdir()
    done = python(tmp_path, called("launch"))
    what = f"{tmp_path} has no default configs of ahbm-sim (sipsim/_configs); install ahbm-sim again"
    assert (done.returncode, done.stderr) == (2, f"ahbm-launch: {what}\n")


@pytest.mark.parametrize("function", ["launch", "probe"])
def test_commands_of_this_distribution_run(tmp_path: Path, function: str) -> None:
    done = python(tmp_path, called(function))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{COMMANDS[function]} ")
