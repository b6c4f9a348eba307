"""The scripts of a checkout: their help, and that no run has its environment changed while it runs.

The checkout is a copy of the scripts around an environment whose Python does nothing.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
END_S = 30.0
SETUP_FAILED = 69

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(shutil.which("flock") is None, reason="without flock, runs are not protected"),
]

PYTHON = '#!/bin/sh\necho "$*" >>"{log}"\n'
LAUNCH = "#!/bin/sh\necho begins\nread -r _\necho ends\n"


class Checkout:
    """Scripts, what an environment is made from, and ``.venv``; ``installs`` is what its Python was called with."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(ROOT / "scripts", root / "scripts", ignore=shutil.ignore_patterns("*.py", "*.json"))
        for name in ("pyproject.toml", "constraints.txt", "constraints-oldest.txt"):
            shutil.copy(ROOT / name, root / name)
        self.log = root / "installs"
        self._program("python", PYTHON.format(log=self.log))
        self._program("ahbm-launch", LAUNCH)
        (root / ".venv" / ".ahbm-stamp").write_text(f"runtime\n{self._identity()}")

    def _program(self, name: str, text: str) -> None:
        path = self.root / ".venv" / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def _identity(self) -> str:
        code = 'root=$1; . "$root/scripts/_env.sh"; identity runtime'
        done = subprocess.run(["bash", "-c", code, "bash", self.root], capture_output=True, text=True, check=True)
        return done.stdout

    @property
    def installs(self) -> list[str]:
        """The calls of its pip."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if " pip " in line]

    def start(self, *words: str) -> "subprocess.Popen[str]":
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [str(self.root / "scripts" / words[0]), *words[1:]]
        env = {**os.environ, "TMPDIR": str(self.root)}
        return subprocess.Popen(command, cwd=self.root, text=True, env=env, **pipes)

    @contextlib.contextmanager
    def running(self) -> Iterator["subprocess.Popen[str]"]:
        """A run that has begun; it ends when a line is written to it."""
        process = self.start("ahbm-launch")
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begins\n"
            yield process
        finally:
            process.kill()
            process.communicate()

    def change(self) -> None:
        """What the environment is made from."""
        with (self.root / "constraints.txt").open("a") as file:
            file.write("# changed\n")


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def ended(process: "subprocess.Popen[str]", text: str = "") -> tuple[int, str, str]:
    out, err = process.communicate(text, timeout=END_S)
    return process.returncode, out, err


def test_runs_share_an_environment_that_is_up_to_date(checkout: Checkout) -> None:
    with checkout.running() as first, checkout.running() as second:
        assert ended(second, "\n") == (0, "ends\n", "")
        assert ended(first, "\n") == (0, "ends\n", "")
    assert checkout.installs == []


def test_an_environment_in_use_is_not_changed(checkout: Checkout) -> None:
    with checkout.running() as run:
        checkout.change()
        code, out, err = ended(checkout.start("ahbm-launch"))
        what = f"ahbm: .venv must be updated, and is in use by process {run.pid}: wait for its end, or end it\n"
        assert (code, out, err) == (SETUP_FAILED, "", what)
        assert checkout.installs == []
        assert ended(run, "\n") == (0, "ends\n", "")
    # Nobody uses it now.
    code, out, err = ended(checkout.start("ahbm-launch"), "\n")
    assert (code, out, err) == (0, "begins\nends\n", "ahbm: updating .venv\n")
    assert len(checkout.installs) == 1


def test_an_extra_is_not_added_to_one_in_use(checkout: Checkout) -> None:
    """scripts/test needs more than a run."""
    with checkout.running() as run:
        code, _, err = ended(checkout.start("test", "tests/pure"))
        assert (code, checkout.installs) == (SETUP_FAILED, [])
        assert f"in use by process {run.pid}: " in err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["test", "--help"], "scripts/test [--all] "),
        (["test", "--oldest", "-h"], "scripts/test [--all] "),
        (["relock", "--help"], "Writes constraints.txt: "),
        (["relock", "-h"], "Writes constraints.txt: "),
    ],
)
def test_help_only_helps(checkout: Checkout, words: list[str], line: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in checkout.root.rglob("*")}
    code, out, err = ended(checkout.start(*words))
    assert (code, err, out.startswith(line)) == (0, "", True)
    assert not any(text.startswith("#") for text in out.splitlines())
    assert {path: path.stat().st_mtime_ns for path in checkout.root.rglob("*")} == before


def test_relock_takes_no_arguments(checkout: Checkout) -> None:
    assert ended(checkout.start("relock", "--now")) == (
        2,
        "",
        "ahbm: scripts/relock takes no arguments, not --now; see scripts/relock --help\n",
    )
