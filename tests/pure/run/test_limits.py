"""The needs of a run, the limits of the host, and output that cannot be written."""

import os
from pathlib import Path

import pytest

from launcher import options
from launcher.isolation import SafeStream
from launcher.processes import this_host
from launcher.run.prepare import prepare
from sipsim.chips.ahbm.plan import Plan
from sipsim.core.errors import ConfigError

SMALL = "--set sip.cube_mesh.w=2 --set sip.cube_mesh.h=2"


def plan_of(words: str) -> Plan:
    return prepare(options.parse([*words.split(), *SMALL.split()])).plan


@pytest.mark.parametrize(
    ("words", "files", "far", "near"),
    [
        ("--sips 1", 57, 57, 56),
        ("--sips 4", 68, 60, 68),
        ("--sips 16 --topology torus_2d", 80, 72, 80),
        ("--sips 64 --topology torus_2d", 120, 120, 80),
    ],
)
def test_files(words: str, files: int, far: int, near: int) -> None:
    """Of the broker, or of a SIP with two or four peers; with remote SIPs of the broker alone."""
    plan = plan_of(words)
    assert this_host.files_needed(plan, sips=True, broker=True) == files
    assert this_host.files_needed(plan, sips=False, broker=True) == far
    assert this_host.files_needed(plan, sips=True, broker=False) == near


def test_processes() -> None:
    assert [this_host.processes_needed(4, mail) for mail in ("zmq", "unix")] == [19, 7]


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The own cgroup, two below the top."""
    here = tmp_path / "pids/around/ours"
    here.mkdir(parents=True)
    monkeypatch.setattr(this_host, "CGROUP_ROOT", tmp_path)
    monkeypatch.setattr(this_host, "OWN_CGROUP", tmp_path / "proc")
    (tmp_path / "proc").write_text("9:cpu:/x\n8:pids:/around/ours\n")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return here


def allow(folder: Path, most: str, now: int) -> None:
    (folder / "pids.max").write_text(f"{most}\n")
    (folder / "pids.current").write_text(f"{now}\n")


def test_cgroups_all_the_way_up(cgroup: Path) -> None:
    """This process is one of those counted."""
    allow(cgroup, "max", 3)
    allow(cgroup.parent, "30", 11)
    assert this_host.process_limits() == {f"{cgroup.parent}/pids.max": 20}


def test_no_cgroups_no_limit(cgroup: Path) -> None:
    (this_host.OWN_CGROUP).unlink()
    assert this_host.process_limits() == {}


@pytest.mark.parametrize(("current", "is_enough"), [(12, True), (13, False)])
def test_the_line(cgroup: Path, current: int, is_enough: bool) -> None:
    allow(cgroup, "30", current)
    chosen = options.parse(["--sips", "4", "--engine", "local", *SMALL.split()])
    plan = prepare(chosen).plan
    if is_enough:
        this_host.check_limits(chosen.engine, chosen.mail, plan)
        return
    line = f"4 SIPs need 19 processes and threads; raise {cgroup}/pids.max from 18, or use fewer --sips"
    with pytest.raises(ConfigError) as error:
        this_host.check_limits(chosen.engine, chosen.mail, plan)
    assert str(error.value) == line


def test_one_process_asks_for_nothing(cgroup: Path) -> None:
    allow(cgroup, "1", 1)
    chosen = options.parse(["--sips", "4", "--engine", "inproc"])
    this_host.check_limits(chosen.engine, chosen.mail, prepare(chosen).plan)


# --- output ---------------------------------------------------------------------------------------------------


def test_a_pipe_without_a_reader_is_no_trouble() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs, "w") as stream:
        out = SafeStream(stream)
        for _ in range(3):
            assert out.write("word\n") == 5
            out.flush()
        assert out.trouble == ""


def test_a_full_disk_is() -> None:
    with open("/dev/full", "w") as stream:
        out = SafeStream(stream)
        for _ in range(3):
            out.write("word\n")
            out.flush()
        assert out.trouble == "No space left on device"
        assert out.fileno() == stream.fileno()
