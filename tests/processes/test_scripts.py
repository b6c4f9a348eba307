"""The scripts of a checkout: their help, and how they make and refresh its environment.

The checkout is a copy of the scripts; the Python that they find writes down how it is called, and makes an environment
of itself.
"""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
END_S = 600.0
SETUP_FAILED = 69
FIRST, UPDATE = "ahbm: setting up .venv (first use)\n", "ahbm: updating .venv\n"

pytestmark = pytest.mark.processes

PYTHON = """#!/bin/sh
echo "$*" >>"{folder}/calls"
case "$*" in
*"-m venv -- "*) for dir; do :; done; mkdir -p "$dir/bin"; cp "$0" "$dir/bin/python" ;;
*"-m pip "*)
    [ ! -p "{folder}/hold" ] || read -r _ <"{folder}/hold"
    [ ! -e "{folder}/offline" ] || {{ echo "no network"; exit 1; }}
    printf '#!/bin/sh\\necho "launched $*"\\n' >"${{0%/*}}/ahbm-launch"
    chmod +x "${{0%/*}}/ahbm-launch" ;;
esac
"""


class Checkout:
    """Scripts, what an environment is made from, and a Python of its own, in ``folder/here``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "here"
        without = shutil.ignore_patterns("*.py", "*.json*", "__pycache__")
        shutil.copytree(ROOT / "scripts", self.root / "scripts", ignore=without, symlinks=True)
        for name in ("pyproject.toml", "constraints.txt", "constraints-oldest.txt"):
            shutil.copy(ROOT / name, self.root / name)
        self.python = folder / "python3"
        self.python.write_text(PYTHON.format(folder=folder))
        self.python.chmod(0o755)

    @property
    def installs(self) -> list[str]:
        """What each call of pip installed."""
        calls = (self.folder / "calls").read_text().splitlines() if (self.folder / "calls").exists() else []
        return [call.split()[-1] for call in calls if " pip " in call]

    def start(self, *words: str) -> "subprocess.Popen[str]":
        command = [str(self.root / "scripts" / words[0]), *words[1:]]
        env = {**os.environ, "AHBM_PYTHON": str(self.python)}
        pipe = subprocess.PIPE
        pipes = {"stdin": pipe, "stdout": pipe, "stderr": pipe}
        return subprocess.Popen(command, cwd=self.folder, text=True, env=env, start_new_session=True, **pipes)

    def run(self, *words: str) -> tuple[int, str, str]:
        return ended(self.start(*words))

    def change(self) -> None:
        """Change a pin of what the environment is made from."""
        with (self.root / "constraints.txt").open("a") as file:
            file.write("# changed\n")


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=END_S)
    return process.returncode, out, err


def test_the_first_use_and_a_change_set_up(checkout: Checkout) -> None:
    assert checkout.run("ahbm-launch", "--sips", "2") == (0, "launched --sips 2\n", FIRST)
    assert checkout.run("ahbm-launch") == (0, "launched \n", "")
    checkout.change()
    assert checkout.run("ahbm-launch") == (0, "launched \n", UPDATE)
    assert checkout.installs == [".", "."]


def test_a_refresh_takes_no_extra_away(checkout: Checkout) -> None:
    checkout.run("ahbm-launch")
    checkout.run("test", "tests/pure")
    assert checkout.run("ahbm-launch")[2] == ""
    checkout.change()
    assert checkout.run("ahbm-launch")[2] == UPDATE
    assert checkout.installs == [".", ".[test]", ".[test]"]


@pytest.mark.skipif(shutil.which("flock") is None, reason="without flock, set-ups are not kept apart")
def test_two_first_uses_at_a_time_set_up_once(checkout: Checkout) -> None:
    hold = checkout.folder / "hold"
    os.mkfifo(hold)
    runs = [checkout.start("ahbm-launch"), checkout.start("ahbm-launch")]
    try:
        first_lines = [run.stderr.readline() for run in runs if run.stderr is not None]
        assert sorted(first_lines) == [FIRST, "ahbm: waiting for another set-up of .venv\n"]
        hold.write_text("go on\n")
        assert [ended(run) for run in runs] == [(0, "launched \n", "")] * 2
    finally:
        for run in runs:
            if run.returncode is None:
                os.killpg(run.pid, signal.SIGKILL)
                run.communicate()
    assert checkout.installs == ["."]


def test_an_interrupted_set_up_begins_anew(checkout: Checkout) -> None:
    checkout.run("ahbm-launch")
    (checkout.root / ".venv" / ".ahbm-stamp").unlink()
    assert checkout.run("ahbm-launch") == (0, "launched \n", FIRST)


def test_a_moved_checkout_does_not_run_the_code_of_the_old_place(checkout: Checkout) -> None:
    checkout.run("ahbm-launch")
    checkout.root = checkout.root.rename(checkout.folder / "there")
    assert checkout.run("ahbm-launch") == (0, "launched \n", FIRST)


def test_an_environment_of_somebody_else_is_kept(checkout: Checkout) -> None:
    theirs = checkout.root / ".venv" / "bin" / "theirs"
    theirs.parent.mkdir(parents=True)
    theirs.touch()
    assert checkout.run("ahbm-launch")[::2] == (
        SETUP_FAILED,
        "ahbm: .venv exists but holds no Python: move it away\n",
    )
    shutil.copy(checkout.python, theirs.with_name("python"))
    assert checkout.run("ahbm-launch") == (0, "launched \n", UPDATE)
    assert theirs.exists()


def test_without_network_the_failure_is_named_and_what_was_there_runs(checkout: Checkout) -> None:
    offline = checkout.folder / "offline"
    failed = "setting up failed: pip (its last lines are above, all of them in .venv/setup.log)"
    offline.touch()
    assert checkout.run("ahbm-launch") == (SETUP_FAILED, "", f"{FIRST}no network\nahbm: {failed}\n")
    offline.unlink()
    assert checkout.run("ahbm-launch") == (0, "launched \n", FIRST)
    offline.touch()
    assert checkout.run("test", "tests/pure")[0] == SETUP_FAILED
    assert checkout.run("ahbm-launch") == (0, "launched \n", "")
    checkout.change()
    assert checkout.run("ahbm-launch")[0] == SETUP_FAILED
    offline.unlink()
    assert checkout.run("ahbm-launch") == (0, "launched \n", UPDATE)


def test_a_link_to_a_command_may_have_any_name(checkout: Checkout) -> None:
    (checkout.folder / "go").symlink_to("here/scripts/ahbm-launch")
    (checkout.root / "scripts" / "there").symlink_to(checkout.folder / "go")
    assert checkout.run("there") == (0, "launched \n", FIRST)


@pytest.mark.parametrize(
    ("words", "line"),
    [(["test", "--oldest", "-h"], "scripts/test [--all] "), (["relock", "--help"], "Writes constraints.txt: ")],
)
def test_help_only_helps(checkout: Checkout, words: list[str], line: str) -> None:
    code, out, err = checkout.run(*words)
    assert (code, err, out.startswith(line)) == (0, "", True)
    assert not any(text.startswith("#") for text in out.splitlines())
    assert not (checkout.root / ".venv").exists()
