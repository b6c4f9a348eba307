"""Every file that a run writes in a folder that the user names: no trap at its name leads to another file."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from traps import FOLDERS, TRAPS

from broker.wire import PacketBatch, encode
from launcher.processes.ticket import read_private, write_private
from launcher.report.outcome import DEADLOCK_FILE, LongReport, Outcome, RunError
from launcher.run.folder import RunFolder, check_new
from launcher.supervise.logs import prepare_log_dir, write_error_files
from sipsim.core.errors import ConfigError, OutputError
from sipsim.node.packet_log import PacketLog
from sipsim.records.job import Job
from sipsim.records.oplog import LineFile

PREPARED: Any = SimpleNamespace(plan=SimpleNamespace(digest="d"), job=Job())
Use = Callable[[Path], object]


def keep_a_run(folder: Path) -> None:
    """Begin a run in the folder, or resume the one there."""
    goes_on = os.path.lexists(folder / "run.json")
    held = RunFolder.resume(folder, PREPARED) if goes_on else RunFolder.begin(folder, ["--sips", "2"], PREPARED)
    try:
        log = PacketLog(str(folder), 0, "d" * 64)
        log.append(1, encode(PacketBatch(0, 0, ((0, 5, b"x"),))))
        log.close()
    finally:
        held.close("failed")


def keep_logs(folder: Path) -> None:
    prepare_log_dir(folder, 2)
    seen = Outcome(2)
    seen.fail(RunError("hung", 1, "x"))
    seen.long_report = LongReport(DEADLOCK_FILE, "every wait", "waits")
    write_error_files(seen, [folder])
    assert not seen.troubles


def write_a_ticket(folder: Path) -> None:
    write_private(folder / "sip-0.ticket", "secret")
    assert read_private(folder / "sip-0.ticket") == "secret"


def record(folder: Path) -> None:
    try:
        LineFile(folder / "trace.csv", "the trace", "--trace-ccl").close()
    except OSError as error:
        raise OutputError(str(error)) from None


def refusal(use: Use, folder: Path) -> str:
    """The line with which it is refused, if it is."""
    try:
        use(folder)
    except (ConfigError, OutputError) as error:
        return str(error)
    return ""


USES = [keep_a_run, keep_logs, write_a_ticket, record]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_at_any_name(tmp_path: Path, use: Use, trap: str) -> None:
    """At the names that are there after a first run, and at their temporary ones: the next one is refused, or replaces
    the trap.
    """
    first = tmp_path / "first"
    first.mkdir(0o700)
    use(first)
    names = os.listdir(first)
    assert names
    for name in [*names, *(f".{name}.{os.getpid()}" for name in names)]:
        folder, victim = tmp_path / f"next-{name}", tmp_path / f"victims-{name}" / "file"
        for made in (folder, victim.parent):
            made.mkdir(0o700)
        use(folder)
        before = (folder / name).read_bytes() if name in names else b"the victim's"
        victim.write_bytes(before)
        (folder / name).unlink(missing_ok=True)
        TRAPS[trap](folder / name, victim)
        said = refusal(use, folder)
        assert not said or name.removeprefix(".").removesuffix(f".{os.getpid()}") in said
        assert "\n" not in said
        assert (os.listdir(victim.parent), victim.read_bytes()) == (["file"], before)


@pytest.mark.parametrize("spoil", FOLDERS)
@pytest.mark.parametrize("use", [check_new, keep_a_run, keep_logs])
def test_a_folder_of_others_is_refused_before_anything_is_written(tmp_path: Path, use: Use, spoil: Use) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    spoil(folder)
    with pytest.raises(ConfigError) as caught:
        use(folder)
    assert str(folder) in str(caught.value)
    assert os.listdir(folder) == []


@pytest.mark.parametrize("spoil", FOLDERS)
def test_a_run_is_not_resumed_where_others_may_have_written_it(tmp_path: Path, spoil: Use) -> None:
    keep_a_run(tmp_path / "kept")
    before = {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()}
    spoil(tmp_path / "kept")
    with pytest.raises(ConfigError):
        RunFolder.resume(tmp_path / "kept", PREPARED)
    assert {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()} == before
