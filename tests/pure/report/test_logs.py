"""The output of ranks: whole lines with the rank, copied byte for byte, its end available for reports."""

import errno
import io
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.options import Options
from launcher.report.outcome import LongReport, Outcome, RunError
from launcher.supervise import logs
from launcher.supervise.logs import LAST_LINES, Logs, prepare_log_dir, write_error_files
from launcher.supervise.run import Run
from sipsim.core.errors import ConfigError


class Bench:
    """Logs of a run of three SIPs on hosts ``a`` (and ``b``), and files to write to as its processes do."""

    def __init__(self, folder: Path, hosts: tuple[str, ...] = ("",), **settings: Any) -> None:
        self.folder = folder / "private"
        self.folder.mkdir()
        plan: Any = SimpleNamespace(system=SimpleNamespace(n_sips=3))
        job: Any = None
        self.out = io.StringIO()
        self.logs = Logs(Run(Options(**settings), plan, job, str(self.folder)), hosts, self.out)

    def write(self, name: str, data: bytes) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            log.write(data)

    def shown(self, to_the_end: bool = False) -> list[str]:
        self.out.seek(0)
        self.out.truncate()
        self.logs.forward(to_the_end)
        return self.out.getvalue().splitlines()


class TestShowing:
    def test_whole_lines_with_their_rank(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path)
        assert bench.shown() == []
        bench.write("sip-1", b"one\ntwo\nthr")
        bench.write("sip-0", b"zero\n")
        assert bench.shown() == ["[rank 0] zero", "[rank 1] one", "[rank 1] two"]
        assert bench.shown() == []
        bench.write("sip-1", b"ee\nfour")
        assert bench.shown() == ["[rank 1] three"]
        assert bench.shown(to_the_end=True) == ["[rank 1] four"]

    def test_ranks_that_were_chosen(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path, tee=(0, 2))
        for rank in range(3):
            bench.write(f"sip-{rank}", b"x\n")
        assert bench.shown() == ["[rank 0] x", "[rank 2] x"]

    def test_none(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path, tee=())
        bench.write("sip-1", b"x\n")
        assert bench.shown(to_the_end=True) == []

    def test_the_broker_is_no_rank(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path)
        bench.write("broker", b"x\n")
        assert bench.shown(to_the_end=True) == []

    def test_hosts_are_named_when_there_are_several(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path, ("a", "b"))
        bench.logs.set_host(1, "b")
        bench.write("sip-1", b"x\n")
        assert bench.shown() == ["[rank 1 b] x"]
        bench.logs.set_host(1, "a")
        bench.write("sip-1", b"y\n")
        assert bench.shown() == ["[rank 1 a] y"]

    def test_one_host_is_not_named(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path, ("a",))
        bench.logs.set_host(1, "a")
        bench.write("sip-1", b"x\n")
        assert bench.shown() == ["[rank 1] x"]

    def test_much_at_once(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path)
        bench.write("sip-0", b"".join(b"%d\n" % number for number in range(400_000)))
        assert len(bench.shown()) == 400_000

    def test_a_line_without_end_does_not_grow_in_memory(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path)
        bench.write("sip-0", b"x" * 100_000)
        assert len(bench.shown()[0]) > 100_000

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path)
        bench.write("sip-0", b"\xff\xfe!\n")
        assert bench.shown() == ["[rank 0] \ufffd\ufffd!"]


class TestTheEnd:
    def test_the_last_lines(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path)
        bench.write("sip-2", b"".join(b"%d\n" % number for number in range(100)) + b"last")
        lines = bench.logs.tail_of(2)["last_lines"]
        assert lines == [*map(str, range(81, 100)), "last"]
        assert len(lines) == LAST_LINES

    def test_what_was_shown_is_in_it(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path)
        bench.write("sip-2", b"early\n")
        bench.shown()
        bench.write("sip-2", b"late\n")
        assert bench.logs.tail_of(2) == {"last_lines": ["early", "late"]}

    def test_a_process_without_output(self, tmp_path: Path) -> None:
        logs = Bench(tmp_path).logs
        assert logs.tail_of(2) == logs.tail_of(None) == {}

    def test_where_all_of_it_is(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path, log_dir=Path("/logs"))
        assert bench.logs.tail_of(2) == {"log": "/logs/rank-2.log"}
        assert bench.logs.tail_of(None) == {"log": "/logs/broker.log"}


class TestKeeping:
    def test_byte_for_byte(self, tmp_path: Path) -> None:
        folder = tmp_path / "logs"
        prepare_log_dir(folder, 3)
        bench = Bench(tmp_path, log_dir=folder, tee=())
        bench.write("sip-1", b"one\r\n\xff")
        bench.shown()
        bench.write("sip-1", b"two")
        bench.shown(to_the_end=True)
        assert (folder / "rank-1.log").read_bytes() == b"one\r\n\xfftwo"
        assert (folder / "rank-0.log").read_bytes() == b""

    def test_only_the_owner_reads_them(self, tmp_path: Path) -> None:
        folder = tmp_path / "logs"
        old = os.umask(0)
        try:
            prepare_log_dir(folder, 2)
        finally:
            os.umask(old)
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
            "broker.log": 0o600,
            "rank-0.log": 0o600,
            "rank-1.log": 0o600,
        }

    def test_an_earlier_runs_go(self, tmp_path: Path) -> None:
        (tmp_path / "rank-0.log").write_text("old")
        (tmp_path / "rank-0.log").chmod(0o644)
        (tmp_path / "error.json").write_text("old")
        (tmp_path / "mine").write_text("stays")
        prepare_log_dir(tmp_path, 1)
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
            "rank-0.log": "",
            "broker.log": "",
            "mine": "stays",
        }
        assert (tmp_path / "rank-0.log").stat().st_mode & 0o777 == 0o600

    def test_where_nothing_can_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        (tmp_path / "rank-0.log").symlink_to("file")
        for folder, named in ((tmp_path / "no/logs", "no/logs"), (tmp_path / "file", "file"), (tmp_path, "rank-0.log")):
            with pytest.raises(ConfigError) as caught:
                prepare_log_dir(folder, 1)
            assert str(caught.value).startswith("--log-dir ")
            assert named in str(caught.value)
            assert "\n" not in str(caught.value)

    def test_a_disk_that_is_full_at_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "replace", _full)
        with pytest.raises(ConfigError, match="No space left on device; name a writable folder"):
            prepare_log_dir(tmp_path, 1)

    def test_a_disk_that_fills(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The run continues, its lines are shown, and the loss is reported once."""
        monkeypatch.setattr(logs, "open_file", lambda *_: os.open("/dev/full", os.O_WRONLY))
        bench = Bench(tmp_path, log_dir=tmp_path)
        bench.write("sip-0", b"one\n")
        assert bench.shown() == ["[rank 0] one"]
        assert f"--log-dir {tmp_path}/rank-0.log: No space left on device; the logs" in bench.logs.trouble
        bench.write("sip-0", b"two\n")
        assert bench.shown() == ["[rank 0] two"]
        assert bench.logs.tail_of(0)["last_lines"] == ["one", "two"]
        bench.write("sip-1", b"three\n")
        assert bench.shown() == ["[rank 1] three"]
        assert not (tmp_path / "rank-1.log").exists()


class TestErrorFiles:
    def test_in_each_folder(self, tmp_path: Path) -> None:
        seen = Outcome(2)
        seen.fail(RunError("hung", 1, "x"))
        (tmp_path / "a").mkdir()
        write_error_files(seen, [tmp_path, tmp_path / "a"])
        told = [json.loads((folder / "error.json").read_text()) for folder in (tmp_path, tmp_path / "a")]
        assert told[0] == told[1]
        assert (told[0]["kind"], told[0]["rank"], told[0]["schema"]) == ("hung", 1, 1)

    def test_none_after_a_run_that_went_well(self, tmp_path: Path) -> None:
        (tmp_path / "error.json").write_text("of the run that was gone on with")
        write_error_files(Outcome(2), [tmp_path])
        assert not (tmp_path / "error.json").exists()

    def test_the_long_report_of_a_deadlock(self, tmp_path: Path) -> None:
        seen = Outcome(2)
        seen.fail(RunError("IpcqDeadlock", None, "x"))
        seen.long_report = LongReport("deadlock.txt", "every wait", "all of it")
        write_error_files(seen, [tmp_path])
        assert (tmp_path / "deadlock.txt").read_text() == "every wait"
        prepare_log_dir(tmp_path, 2)
        assert not (tmp_path / "deadlock.txt").exists()
        write_error_files(seen, [tmp_path])
        write_error_files(Outcome(2), [tmp_path])
        assert not (tmp_path / "deadlock.txt").exists()

    def test_one_that_cannot_be_written_is_reported(self, tmp_path: Path) -> None:
        seen = Outcome(2)
        seen.fail(RunError("hung", 1, "x"))
        write_error_files(seen, [tmp_path / "gone"])
        assert seen.troubles == [f"{tmp_path}/gone: cannot be written: No such file or directory"]


def _full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
