"""The folder that a run is kept in: who may begin one there, who may go on with it, and what each mistake says."""

import errno
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.options import parse
from launcher.run import folder as run_folder
from launcher.run.folder import RUN_FILE, RunFolder, check_new, read, resumed_options
from sipsim import VERSION
from sipsim.core.errors import ConfigError
from sipsim.records.job import Job

ARGV = ["--sips", "3", "--json", "o.json", "--run-dir", "kept"]


def prepared(digest: str = "d", **job: Any) -> Any:
    return SimpleNamespace(plan=SimpleNamespace(digest=digest), job=Job(**job))


def begun(folder: Path, status: str = "failed", **changes: Any) -> Path:
    """A folder that a run was begun in; with another status, or other words in its file."""
    RunFolder.begin(folder, ARGV, prepared()).close(status)
    if changes:
        file = folder / RUN_FILE
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    return folder


def refused(action: Any, *args: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        action(*args)
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestBeginning:
    @pytest.mark.parametrize("exists", [False, True])
    def test_in_a_new_folder_or_an_empty_one(self, tmp_path: Path, exists: bool) -> None:
        folder = tmp_path / "kept"
        if exists:
            folder.mkdir()
        held = RunFolder.begin(folder, ARGV, prepared())
        told = json.loads((folder / RUN_FILE).read_text())
        assert (told["schema"], told["version"], told["argv"], told["cwd"]) == (1, VERSION, ARGV, os.getcwd())
        assert (told["status"], told["started"], held.n_resumed) == ("running", 1, 0)
        held.close("ok")
        assert json.loads((folder / RUN_FILE).read_text())["status"] == "ok"
        assert {path.name for path in folder.iterdir()} == {"run.json", "lock"}

    def test_not_where_something_is(self, tmp_path: Path) -> None:
        (tmp_path / "mine").write_text("")
        line = f"--run-dir {tmp_path}: is not empty; name an empty folder or a new one"
        assert refused(check_new, tmp_path) == line
        assert refused(RunFolder.begin, tmp_path, ARGV, prepared()) == line
        assert refused(check_new, begun(tmp_path / "kept")).endswith(f"--resume {tmp_path}/kept resumes the run")

    def test_not_where_nothing_can_be(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        for folder in (tmp_path / "no/kept", tmp_path / "file", tmp_path / "file/kept"):
            line = refused(check_new, folder)
            assert line.startswith(f"--run-dir {folder}: cannot be written")

    @pytest.mark.parametrize("function", ["replace", "pwrite"])
    @pytest.mark.parametrize("exists", [False, True])
    def test_a_full_disk_leaves_what_was_there(
        self, tmp_path: Path, function: str, exists: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "kept"
        if exists:
            folder.mkdir()
        monkeypatch.setattr(run_folder.os, function, _full)
        file = {"replace": "run.json", "pwrite": "lock"}[function]
        line = refused(RunFolder.begin, folder, ARGV, prepared())
        assert (
            line
            == f"--run-dir {folder}/{file}: cannot be written: No space left on device; name a folder with free space"
        )
        assert folder.exists() is exists
        assert not exists or list(folder.iterdir()) == []

    @pytest.mark.parametrize("exists", [False, True])
    def test_a_run_that_was_not_started_after_all(self, tmp_path: Path, exists: bool) -> None:
        folder = tmp_path / "kept"
        if exists:
            folder.mkdir()
        RunFolder.begin(folder, ARGV, prepared()).abandon()
        assert folder.exists() is exists


class TestResuming:
    @pytest.mark.parametrize("status", ["running", "failed", "interrupted"])
    def test_with_what_has_not_ended_well(self, tmp_path: Path, status: str) -> None:
        folder = begun(tmp_path / "kept", status)
        for times in (1, 2):
            held = RunFolder.resume(folder, prepared())
            assert (held.n_resumed, read(folder).status) == (times, "running")
            held.close("failed")

    def test_not_with_what_has(self, tmp_path: Path) -> None:
        folder = begun(tmp_path / "kept", "ok")
        line = f"--resume {folder}: the run has succeeded, so nothing is left to resume; begin a new run"
        assert refused(RunFolder.resume, folder, prepared()) == refused(read, folder) == line

    def test_not_while_it_runs(self, tmp_path: Path) -> None:
        held = RunFolder.begin(tmp_path / "kept", ARGV, prepared())
        line = refused(RunFolder.resume, tmp_path / "kept", prepared())
        assert line == f"--resume {tmp_path}/kept: process {os.getpid()} still executes this run; wait for its end"
        held.close("failed")
        RunFolder.resume(tmp_path / "kept", prepared()).close("failed")

    def test_not_with_another_system_or_job(self, tmp_path: Path) -> None:
        folder = begun(tmp_path / "kept")
        for other in (prepared("e"), prepared(seed=1)):
            assert refused(RunFolder.resume, folder, other) == (
                f"--resume {folder}: the system or the algorithm differs from the saved run; "
                "undo the change, or begin a new run"
            )
        assert read(folder).status == "failed"

    def test_one_that_is_not_started_stays_as_it_was(self, tmp_path: Path) -> None:
        folder = begun(tmp_path / "kept", "interrupted")
        RunFolder.resume(folder, prepared()).abandon()
        assert (read(folder).status, read(folder).started) == ("interrupted", 1)


class TestFiles:
    def test_no_run(self, tmp_path: Path) -> None:
        line = "the folder has no run.json; name the folder of --run-dir"
        assert refused(read, tmp_path) == f"--resume {tmp_path}: {line}"
        assert refused(read, tmp_path / "gone") == f"--resume {tmp_path}/gone: {line}"

    def test_another_version(self, tmp_path: Path) -> None:
        line = refused(read, begun(tmp_path / "kept", version="0.0.9"))
        assert line.endswith(f"the run is of version 0.0.9, this is {VERSION}; use 0.0.9")
        assert "version" in refused(read, begun(tmp_path / "other", schema=2))

    @pytest.mark.parametrize("text", ["", "{", "[]", "\x00", '{"schema": 1}', "é"])
    def test_rubbish(self, tmp_path: Path, text: str) -> None:
        (tmp_path / RUN_FILE).write_bytes(text.encode("latin-1"))
        assert refused(read, tmp_path).startswith(f"--resume {tmp_path}")

    def test_a_field_of_another_type(self, tmp_path: Path) -> None:
        line = refused(read, begun(tmp_path / "kept", argv="--sips 3"))
        assert "run.json: is not a saved run" in line
        assert "argv" in line


class TestCommandLines:
    def test_the_saved_command_line_with_new_output(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        begun(tmp_path / "kept")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        argv = ["--resume", "../kept", "--csv", "o.csv", "--timeout", "5", "--tee", "0", "-v"]
        chosen = resumed_options(Path("../kept"), argv, parse(argv))
        assert (chosen.sips, chosen.json, chosen.run_dir) == (3, Path("o.json"), None)
        assert (chosen.csv, chosen.timeout_s, chosen.tee) == (tmp_path / "elsewhere/o.csv", 5.0, (0,))
        assert (chosen.verbose, chosen.quiet) == (True, False)
        assert chosen.resume is not None
        assert chosen.resume.resolve() == tmp_path / "kept"
        assert Path.cwd() == tmp_path

    def test_standard_output_is_no_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        begun(tmp_path / "kept")
        argv = ["--resume", "kept", "--csv", "-"]
        chosen = resumed_options(Path("kept"), argv, parse(argv))
        assert (chosen.csv, chosen.to_standard_output) == (Path("-"), ("--csv",))

    @pytest.mark.parametrize(
        ("words", "flag"),
        [
            ("--sips 3", "--sips"),
            ("--max-restarts 1", "--max-restarts"),
            ("--fault kill:0@1us", "--fault"),
            ("--no-timeouts", "--no-timeouts"),
            ("--run-dir x", "--run-dir"),
            ("-n 3", "--iters"),
            ("other.py", "other.py"),
            ("-m other", "-m other"),
        ],
    )
    def test_other_options_are_refused(self, tmp_path: Path, words: str, flag: str) -> None:
        folder = begun(tmp_path / "kept")
        argv = ["--resume", str(folder), *words.split()]
        assert refused(resumed_options, folder, argv, parse(argv)) == (
            f"{flag}: --resume uses the command line of the saved run; give output options only"
        )

    def test_a_folder_that_is_gone(self, tmp_path: Path) -> None:
        folder = begun(tmp_path / "kept", cwd=str(tmp_path / "gone"))
        argv = ["--resume", str(folder)]
        assert refused(resumed_options, folder, argv, parse(argv)) == (
            f"--resume {folder}: working directory {tmp_path}/gone: No such file or directory; create it again"
        )

    def test_a_command_line_that_is_none(self, tmp_path: Path) -> None:
        folder = begun(tmp_path / "kept", argv=["--sips", "x"])
        argv = ["--resume", str(folder)]
        line = refused(resumed_options, folder, argv, parse(argv))
        assert line.startswith(f"--resume {folder}: run.json: argument --sips: 'x' must be a whole number")


def _full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
