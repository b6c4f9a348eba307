"""``ahbm-broker`` and ``ahbm-sip``: a run whose processes are started one by one, with keys, over TCP."""

import os
import re
import select
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from launch import CHECKOUT, END_S, launched
from manual_run import CALL, SMALL, Process, by_hand

import launcher.commands.by_hand as by_hand_cli
from launcher.commands import launch as cli
from launcher.options import parse

pytestmark = pytest.mark.processes


def test_the_same_digest_and_nothing_is_left(tmp_path):
    with by_hand(tmp_path, *SMALL) as run:
        assert [stat.S_IMODE(run.ticket(rank).stat().st_mode) for rank in range(3)] == [0o600] * 3
        sips = [run.start(rank) for rank in range(3)]
        table, _ = run.broker.communicate(timeout=END_S)
        ends = [sip.communicate(timeout=END_S) for sip in sips]
    assert (run.broker.returncode, [sip.returncode for sip in sips]) == (0, [0] * 3), ends
    assert table.splitlines()[-1] == f"# digest {launched(*SMALL).digest}"
    assert list(run.folder.iterdir()) == []


@pytest.mark.fault
def test_a_ticket_is_for_one_process(tmp_path):
    with by_hand(tmp_path, *SMALL) as run:
        twins = [run.start(1), run.start(1)]
        done = twins[0] if _first_end(twins) == 0 else twins[1]
        _, said = done.communicate(timeout=END_S)
        sips = [run.start(0), run.start(2)]
        run.broker.communicate(timeout=END_S)
        for sip in (*twins, *sips):
            sip.communicate(timeout=END_S)
    assert done.returncode == 4
    assert "which uses a ticket that another process already uses; give each process its own ticket" in said
    assert run.broker.returncode == 0


def _first_end(processes: list[Process]) -> int:
    """Which of them ends first; blocks."""
    handles = [os.pidfd_open(process.pid) for process in processes]
    try:
        ready = select.select(handles, [], [], END_S)[0]
        assert ready, "nobody was refused"
        return handles.index(ready[0])
    finally:
        for handle in handles:
            os.close(handle)


def test_a_sip_that_dies_is_missed_by_its_peers(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(
        "import os, signal\n"
        "def worker(rank, world_size, torch):\n"
        "    dist = torch.distributed\n"
        "    dist.init_process_group()\n"
        "    dist.all_reduce(torch.ones(4, 8))\n"
        "    if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    dist.all_reduce(torch.ones(4, 8))\n"
    )
    with by_hand(tmp_path, *SMALL, "--no-verify-data", path) as run:
        sips = [run.start(rank) for rank in range(3)]
        _, said = run.broker.communicate(timeout=END_S)
        for sip in sips:
            sip.communicate(timeout=END_S)
    assert (run.broker.returncode, sips[1].returncode) == (4, -signal.SIGKILL)
    assert "peer_lost: rank " in said
    assert " has lost its connection to rank 1, " in said or "rank 1 is lost: " in said


def script(folder: Path, does: str) -> Path:
    """Before SIPs have exchanged messages, rank 1 ``does`` something."""
    path = folder / "script.py"
    lines = ("import os, signal", "def worker(rank, world_size, torch):", f"    if rank == 1: {does}")
    path.write_text("\n".join([*lines, "    torch.distributed.init_process_group()", ALL_REDUCE]))
    return path


ALL_REDUCE = "    torch.distributed.all_reduce(torch.ones(4, 8))\n"


@pytest.mark.parametrize(
    ("does", "flags", "says"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", (), "peer_lost: rank 1 is lost: its connection to the broker is lost"),
        ("exec('while True: pass')", ("--progress-timeout", "1"), "hung: rank "),
    ],
    ids=["dies", "hangs"],
)
def test_a_sip_that_fails_before_it_has_peers(tmp_path: Path, does: str, flags: tuple[str, ...], says: str):
    """The launcher does not know its process, and no peer its address. On a slow machine another may be late first."""
    with by_hand(tmp_path, *SMALL, *flags, "--no-verify-data", script(tmp_path, does)) as run:
        for rank in range(3):
            run.start(rank)
        _, said = run.broker.communicate(timeout=END_S)
    assert (run.broker.returncode, says in said) == (4, True), said


def test_missing_ranks_are_printed(tmp_path: Path):
    with by_hand(tmp_path, *SMALL) as run:
        run.start(1)
        line = run.broker.stderr.readline()
        assert line == "ahbm-launch: joined ranks: 1; missing ranks: 0, 2\n"


def test_missing_ranks_end_the_run_at_the_deadline(tmp_path: Path):
    """Whether SIP 1 comes in time or not."""
    with by_hand(tmp_path, *SMALL, "--join-timeout", "1") as run:
        sip = run.start(1)
        _, said = run.broker.communicate(timeout=END_S)
        sip.communicate(timeout=END_S)
    assert (run.broker.returncode, sip.returncode) == (4, 4)
    assert re.search(r"ahbm-launch: not_joined: .*missing: 0, .*2 \(after 1 s, --join-timeout\)\n", said), said
    assert "moves again" not in said


@pytest.mark.parametrize(
    ("words", "join_timeout_s"), [([], 3600), (["--join-timeout", "30"], 30), (["--join-timeout=5"], 5)]
)
def test_people_have_an_hour_unless_they_say_otherwise(
    monkeypatch: pytest.MonkeyPatch, words: list[str], join_timeout_s: float
):
    monkeypatch.setenv("AHBM_TICKETS", "")
    monkeypatch.setattr(cli, "main", lambda argv: parse(argv))
    assert by_hand_cli.broker_main(["--tickets", "t", *words]).join_timeout_s == join_timeout_s


@pytest.mark.parametrize("words", [["--sips", "2"], ["--sips", "2", "--tickets"], ["--tickets=", "--sips", "2"]])
def test_without_a_folder(words: list[str]):
    command = [sys.executable, "-c", CALL.format("broker_main"), *words]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=END_S)
    assert (done.returncode, done.stderr) == (
        2,
        "ahbm-broker: give --tickets DIR, the folder for the tickets of all ranks\n",
    )


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("{}", 0o600, " is no ticket of ahbm-launch: "),
        ("{}", 0o640, " has mode 0640 and can be read by others; run: chmod 600 "),
        (None, 0, " cannot be read: "),
    ],
)
def test_an_invalid_ticket_is_one_line(tmp_path, text, mode, said):
    path = tmp_path / "x.ticket"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    command = [sys.executable, "-c", CALL.format("sip_main"), str(path)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=END_S)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"ahbm-sip: {path}{said}")
