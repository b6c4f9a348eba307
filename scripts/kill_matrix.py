"""Kills processes of real runs at random moments, and checks what the README promises. A table; exit 1 when broken.

A cell is a victim and what the run may do about it:

    die      no restarts: exit 4, with the victim and the signal by name; "worst" is the longest time to the end
    restart  --max-restarts 3: the digest of an undisturbed run
    again    the same, and the process that takes the victim's place is killed too, in its replay
    resume   --run-dir, and --resume after the death: the digest of an undisturbed run
    pause    SIGSTOP, and SIGCONT half a second later: the digest of an undisturbed run

Moments are drawn evenly over the time that an undisturbed run takes, from the launcher's first breath; a victim
that does not exist yet is killed when it does. A run that was over first is made up for by one with an earlier
moment. After every run nothing may be left of it, no process and no file. ``agent`` runs have two hosts that
are this one, reached by what takes the place of ssh.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CELLS = (
    ("sip", "die"), ("server", "die"), ("broker", "die"), ("agent", "die"), ("launcher", "die"),
    ("sip", "restart"), ("agent", "restart"), ("sip", "again"), ("agent", "again"),
    ("broker", "resume"), ("launcher", "resume"), ("sip", "pause"), ("agent-sip", "pause"),
)  # fmt: skip
NAMES = {"sip": "ahbm-sip-", "agent-sip": "ahbm-sip-", "server": "ahbm-server", "broker": "ahbm-broker"}
NAMES |= {"agent": "ahbm-agent"}
SAYS = {"sip": "rank ", "server": "the server ", "broker": "the broker ", "agent": "agent"}
STALLS = ("ahbm-launch: stalled: ", "ahbm-launch: moves again after ")
"""Warnings that any run may print on a busy machine."""
END_S = 300.0
PAUSE_S = 0.5
TRIES = 12
"""Runs that are over before their victim is dead are made up for, up to so many a moment."""
LOCAL = ("--engine", "local")
AGENTS = ("--engine", "ssh", "--hosts", "a,b", "--bind", "127.0.0.1")
MARK = "AHBM_KILL_MATRIX"
SSH = '#!/bin/sh\nwhile case $1 in -o) shift;; -*) true;; *) false;; esac; do shift; done\nshift\nexec sh -c "$*"\n'


@dataclass
class Cell:
    """What came of the runs of one cell. ``late``: the run had its result before its victim was dead."""

    victim: str
    may: str
    runs: int = 0
    late: int = 0
    joining: int = 0
    nothing_kept: int = 0
    worst_s: float = 0.0
    broken: list[str] = field(default_factory=list)


class Run:
    """One launch, its temporary folder and its descendants. ``hosts``: ``LOCAL``, ``AGENTS``, or none to resume."""

    def __init__(self, folder: Path, argv: list[str], hosts: tuple[str, ...]) -> None:
        self._mark = uuid.uuid4().hex
        self.json = folder / f"{self._mark}.json"
        self._temp = folder / self._mark
        self._temp.mkdir()
        env = {**os.environ, MARK: self._mark, "TMPDIR": str(self._temp), "AHBM_SSH": str(folder / "ssh")}
        command = [sys.executable, "-m", "launcher", *hosts, "--json", str(self.json), *argv]
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.began_s = time.monotonic()
        self._process = subprocess.Popen(command, cwd=ROOT, env=env, text=True, **pipes)

    @property
    def has_ended(self) -> bool:
        """Whether the launcher has."""
        return self._process.poll() is not None

    def pids(self, name: str) -> list[int]:
        """Its descendants that ``ps`` would show by a name that begins so."""
        return [pid for pid in _descendants(self._process.pid) if _comm(pid).startswith(name)]

    def await_victim(self, victim: str, dice: random.Random, but: int = 0) -> int | None:
        """The pid of one, as soon as there is one; None when the run is over first."""
        if victim == "launcher":
            return self._process.pid
        while not (pids := [pid for pid in self.pids(NAMES[victim]) if pid != but]):
            if self.has_ended:
                return None
            time.sleep(0.001)
        return dice.choice(pids)

    def end(self, end_s: float = END_S) -> tuple[int, str, str, float]:
        """Exit code, standard output and error, and when the last process had gone."""
        out, err = self._process.communicate(timeout=end_s)
        until_s = time.monotonic() + END_S
        while self.left() and time.monotonic() < until_s:
            time.sleep(0.005)
        return self._process.returncode, out, err, time.monotonic()

    def left(self) -> list[int]:
        """Processes that carry the mark of this run, whoever their parent is now."""
        mark = f"{MARK}={self._mark}".encode()
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if mark in _environ(pid)]

    def left_files(self) -> list[str]:
        """What stands in its temporary folder."""
        return os.listdir(self._temp)

    def close(self) -> None:
        """Whatever went wrong."""
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._process.communicate()


def _read(pid: int, name: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


def _comm(pid: int) -> str:
    return _read(pid, "comm").decode().strip()


def _environ(pid: int) -> bytes:
    return _read(pid, "environ")


def _descendants(pid: int) -> list[int]:
    children = [int(word) for word in _read(pid, f"task/{pid}/children").split()]
    return children + [each for child in children for each in _descendants(child)]


class Matrix:
    """All cells, for runs of one command line."""

    def __init__(self, folder: Path, argv: list[str], seed: int) -> None:
        self._folder = folder
        self._argv = argv
        self._dice = random.Random(seed)
        (folder / "ssh").write_text(SSH)
        (folder / "ssh").chmod(0o700)
        self._undisturbed = {over_agents: self._fair(over_agents) for over_agents in (False, True)}
        self.digest = self._undisturbed[False][0]

    @contextlib.contextmanager
    def _run(self, *flags: str, over_agents: bool) -> Iterator[Run]:
        run = Run(self._folder, [*self._argv, *flags], AGENTS if over_agents else LOCAL)
        try:
            yield run
        finally:
            run.close()

    def _fair(self, over_agents: bool) -> tuple[str, float]:
        """The digest of an undisturbed run, and how long one takes."""
        with self._run(over_agents=over_agents) as run:
            code, out, err, ended_s = run.end()
        assert code == 0, err
        return _digest(out), ended_s - run.began_s

    def fill(self, victim: str, may: str, moments: int) -> Cell:
        """Run one cell."""
        cell = Cell(victim, may)
        before_s = usual_s = self._undisturbed[victim.startswith("agent")][1]
        while cell.runs - cell.late < moments and cell.runs < TRIES * moments:
            cell.runs += 1
            late, moment_s = cell.late, self._dice.random() * before_s
            problem = self._once(cell, moment_s)
            before_s = moment_s if cell.late > late else usual_s
            if problem:
                cell.broken.append(f"{victim}, {may}, at {moment_s:.3f} s: {problem}")
        return cell

    def _once(self, cell: Cell, moment_s: float) -> str:
        keep = self._folder / uuid.uuid4().hex
        flags = {"restart": ["--max-restarts", "3"], "again": ["--max-restarts", "3"]}.get(cell.may, [])
        flags += ["--run-dir", str(keep)] if cell.may == "resume" else []
        with self._run(*flags, over_agents=cell.victim.startswith("agent")) as run:
            time.sleep(max(run.began_s + moment_s - time.monotonic(), 0.0))
            pid = run.await_victim(cell.victim, self._dice)
            struck_s = time.monotonic()
            self._strike(cell, run, pid)
            try:
                code, out, err, ended_s = run.end()
            except subprocess.TimeoutExpired:
                return f"the launcher has not ended {END_S:g} s later"
            if run.left() or run.left_files():
                return f"processes {run.left()} and files {run.left_files()} are left"
        cell.worst_s = max(cell.worst_s, ended_s - struck_s) if cell.may == "die" else cell.worst_s
        if code == 0:
            cell.late += cell.may in ("die", "resume") or (cell.may != "pause" and "started again" not in err)
            return "" if _digest(out) == self.digest else "another digest"
        if cell.may == "die":
            return self._died(cell, run, code, err)
        if cell.may == "resume":
            return self._resumed(cell, keep)
        return f"exit code {code}: {err}"

    def _strike(self, cell: Cell, run: Run, pid: int | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            if pid is None:
                return
            if cell.may == "pause":
                os.kill(pid, signal.SIGSTOP)
                time.sleep(PAUSE_S)
                os.kill(pid, signal.SIGCONT)
                return
            os.kill(pid, signal.SIGKILL)
            if cell.may == "again":
                second = run.await_victim(cell.victim, self._dice, but=pid)
                time.sleep(self._dice.random() * self._undisturbed[cell.victim == "agent"][1] / 4)
                os.kill(second or pid, signal.SIGKILL)

    def _died(self, cell: Cell, run: Run, code: int, err: str) -> str:
        own = [line for line in err.splitlines() if line.startswith("ahbm-launch: ") and not line.startswith(STALLS)]
        said = next(iter(own), "")
        if cell.victim == "launcher":
            return "" if code == -signal.SIGKILL else f"exit code {code}"
        if not run.json.exists():
            return f"no result file, exit code {code}: {err}"
        cell.joining += not json.loads(run.json.read_text())["wall_s"]["startup"]
        # Of an agent the launcher knows only what ssh, or its stand-in, reports.
        named = SAYS[cell.victim] in said and ("SIGKILL" in said or cell.victim == "agent")
        return "" if code == 4 and named else f"exit code {code}: {err}"

    def _resumed(self, cell: Cell, keep: Path) -> str:
        env = {**os.environ, "TMPDIR": str(self._folder)}
        command = [sys.executable, "-m", "launcher", "--resume", str(keep)]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=END_S)
        if done.returncode == 2 and len(done.stderr.splitlines()) == 1 and not keep.exists():
            cell.nothing_kept += 1
            return ""
        same = done.returncode == 0 and _digest(done.stdout) == self.digest
        return "" if same else f"--resume: exit code {done.returncode}: {done.stderr}{done.stdout}"


def _digest(out: str) -> str:
    return next((line.split()[-1] for line in out.splitlines() if line.startswith("# digest")), "none")


HEAD = f"{'victim':<10}{'may':<9}{'runs':>5}{'too late':>9}{'joining':>9}{'not kept':>9}{'worst':>9}  broken"


def row(cell: Cell) -> str:
    """One line of the table."""
    worst = f"{cell.worst_s:.2f} s" if cell.may == "die" else "-"
    counts = f"{cell.runs:>5}{cell.late:>9}{cell.joining:>9}{cell.nothing_kept:>9}{worst:>9}"
    return f"{cell.victim:<10}{cell.may:<9}{counts}  {len(cell.broken) or 'none'}"


def main() -> int:
    """Fill the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=20, help="deaths in each cell (20)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments and victims (1)")
    parser.add_argument("--cells", default="all", help="such as sip:die,agent:restart (all)")
    parser.add_argument("--bytes", default="1M", help="size of the all-reduce (1M)")
    chosen = parser.parse_args()
    cells = list(CELLS) if chosen.cells == "all" else [tuple(cell.split(":")) for cell in chosen.cells.split(",")]
    if unknown := [":".join(cell) for cell in cells if cell not in CELLS]:
        parser.error(f"unknown cell {unknown[0]!r}; allowed: {', '.join(':'.join(cell) for cell in CELLS)}, all")
    # Not the system's, whose names may be too long for sockets.
    with tempfile.TemporaryDirectory(prefix="ahbm-kill-", dir="/tmp") as folder:
        matrix = Matrix(Path(folder), ["--bytes", chosen.bytes], chosen.seed)
        print(f"# digest {matrix.digest}\n{HEAD}")
        broken = []
        for victim, may in cells:
            cell = matrix.fill(victim, may, chosen.moments)
            print(row(cell), flush=True)
            broken += cell.broken
    print("\n".join(broken), end="\n" if broken else "")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
