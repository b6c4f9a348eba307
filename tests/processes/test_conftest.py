"""The checks of ``tests/conftest.py`` find each kind of leak, made in a session of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

PREAMBLE = """
import os, socket, subprocess, sys, tempfile
import pytest
WAIT = [sys.executable, "-c", "import sys; sys.stdin.read()"]
KEPT = []
"""


def session(folder: Path, body: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on ``body`` under a copy of the conftest; its output is in ``stdout``."""
    shutil.copy(Path(__file__).parents[1] / "conftest.py", folder)
    (folder / "test_planted.py").write_text(PREAMBLE + body)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    processes: as in the project\n")
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *args, str(folder)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )


def test_each_leak_is_reported_for_its_own_test(tmp_path):
    done = session(
        tmp_path,
        """
KEPT_PIPE = os.pipe()
def test_child():
    KEPT.append(subprocess.Popen(WAIT, stdin=KEPT_PIPE[0]))
def test_descriptor():
    KEPT.append(open(os.devnull))
def test_socket_file():
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(tempfile.mktemp())
def test_socket_file_in_tmp_path(tmp_path):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / "s"))
@pytest.mark.processes
def test_orphan():
    subprocess.run(["sh", "-c", "sleep 60 >&- 2>&- &"], check=True)
def test_clean(tmp_path):
    with socket.socket(socket.AF_UNIX) as s, open(os.devnull), tempfile.TemporaryFile():
        name = tempfile.mktemp()
        s.bind(name)
    os.unlink(name)
    subprocess.run(["true"], check=True)
""",
    )
    assert done.returncode == 1, done.stdout
    assert "6 passed, 5 errors" in done.stdout
    for said in ("child process: ", "open descriptor: ", "socket file: ", "process: "):
        assert f"left behind:\n  {said}" in done.stdout, said
    assert "at teardown of test_clean" not in done.stdout
    assert "sleep 60" in done.stdout


def test_what_a_session_leaves_fails_it(tmp_path):
    done = session(
        tmp_path,
        """
@pytest.fixture(scope="session")
def kept():
    KEPT.append(subprocess.Popen(WAIT, stdin=subprocess.PIPE))
def test_one(kept):
    pass
""",
    )
    assert done.returncode == 1, done.stdout
    assert "1 passed" in done.stdout
    assert "the session has left behind:\n  child process: " in done.stdout


@pytest.mark.parametrize(
    ("body", "args", "code"),
    [
        ("def test_one():\n    pytest.skip('always')\n", (), 5),
        ("def test_one():\n    pass\n", ("-k", "nothing"), 5),
        ("def test_one():\n    pass\n", ("--collect-only",), 0),
        ("@pytest.mark.xfail(strict=True)\ndef test_one():\n    assert 0\n", (), 0),
        ("def test_one():\n    pass\n", (), 0),
    ],
    ids=["skipped", "deselected", "collect-only", "xfail", "passed"],
)
def test_a_session_without_a_test_that_ran_is_a_failure(tmp_path, body, args, code):
    assert session(tmp_path, body, *args).returncode == code


def test_the_temporary_directory_is_gone_afterwards(tmp_path):
    done = session(tmp_path, "def test_one():\n    print('AT', tempfile.gettempdir(), os.environ['TMPDIR'])\n", "-s")
    first, second = next(line.split("AT ")[1].split() for line in done.stdout.splitlines() if "AT " in line)
    assert first == second
    assert not os.path.exists(first)
