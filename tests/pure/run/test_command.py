"""What the commands have in common: a signal ends each with its exit code, and one line."""

import signal
from pathlib import Path

import pytest

from launcher.commands import Stopped, run_command, until_stopped, write_file
from launcher.isolation import opened
from sipsim.core.errors import OutputError


@pytest.mark.parametrize(
    ("signum", "code", "what"),
    [
        (signal.SIGINT, 130, "interrupted by Ctrl-C"),
        (signal.SIGTERM, 143, "terminated by a signal"),
        (signal.SIGHUP, 143, "terminated by a signal"),
    ],
)
def test_a_signal_ends_a_command(
    signum: signal.Signals, code: int, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # Whoever starts the tests may ignore it, as nohup does.
    inherited = signal.signal(signum, signal.default_int_handler)
    before = signal.getsignal(signum)

    def work() -> int:
        try:
            signal.raise_signal(signum)
        except Stopped:
            print("half of it")
            raise
        return 0

    assert until_stopped("ahbm-x", work) == code
    assert capsys.readouterr() == ("half of it\n", f"ahbm-x: {what}\n")
    assert signal.getsignal(signum) is before
    signal.signal(signum, inherited)


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run_command("ahbm-x", lambda: signal.raise_signal(signal.SIGHUP)) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_full_disk_names_the_file() -> None:
    with pytest.raises(OSError, match="No space") as caught, opened(Path("/dev/full")) as file:
        file.write("x")
    assert caught.value.filename == "/dev/full"
    with pytest.raises(OutputError, match=r"^/dev/full: cannot be written: No space left on device$"):
        write_file(Path("/dev/full"), "x" * 100_000)
