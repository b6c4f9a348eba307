"""``ahbm-launch`` as a process of its own, and what it must clean up: its temporary folder, its descendants.

Every launch has a temporary folder of its own. Nothing here waits by the clock: a script's line is read from a
pipe, an exit is waited for on a pidfd.
"""

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil

CHECKOUT = Path(__file__).resolve().parents[2]
STALLS = re.compile(r"^ahbm-launch: (?:stalled: |moves again after ).*\n(?:  .*\n)*", re.MULTILINE)
"""Warnings that any run may print on a busy machine, where it may stand for three seconds."""
END_S = 600
"""Nobody needs as long; only for a test not to hang."""


ALL_REDUCE = "dist.intercube_all_reduce(torch.ones(4, 8))"
STAND = "print('stands', os.getpid(), flush=True); os.read(os.pipe()[0], 1)"
"""Lines for :func:`script`; who stands waits for ever and has told its pid. To be the first line: SIPs do not end a
collective at the same time, and one that stands in the middle of a window may keep another from ending it at all."""


class Done(NamedTuple):
    """A finished launch. ``stderr``: without warnings of a stall. ``made_files``: whether anything was ever made in its
    temporary folder.
    """

    exit_code: int
    stdout: str
    stderr: str
    document: Any
    made_files: bool
    left_files: list[str]

    @property
    def digest(self) -> str:
        """The digest at the end of the table."""
        return next(line.split()[-1] for line in self.stdout.splitlines() if line.startswith("# digest"))

    @property
    def own_lines(self) -> list[str]:
        """The launcher's lines on standard error."""
        return [line for line in self.stderr.splitlines() if not line.startswith("[rank ")]


def environment(temp: str | Path, **more: str) -> dict[str, str]:
    """This environment, with the checkout to import from and a temporary folder."""
    path = os.pathsep.join(filter(None, [str(CHECKOUT), more.pop("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "TMPDIR": str(temp), **more}


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Short enough for the names of sockets, which ``tmp_path`` need not be."""
    folder = tempfile.mkdtemp(prefix="t-")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder)


class Launch:
    """A running launch. Use :func:`launching`."""

    def __init__(self, argv: tuple[object, ...], temp: Path, cwd: Path | None, env: dict[str, str]) -> None:
        words = [str(word) for word in argv]
        self.temp = temp
        self._json = Path(words[words.index("--json") + 1]) if "--json" in words else None
        self._before = temp.stat().st_mtime_ns
        self._err: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "launcher", *words],
            cwd=cwd,
            env=environment(temp, **env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._handles: dict[int, int] = {}

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self, wanted: Callable[[str], bool]) -> str:
        """Read standard error until a line is wanted; blocks."""
        for line in self.process.stderr:
            self._err.append(line)
            if wanted(line):
                return line
        raise AssertionError(f"the launch ended first, having said: {''.join(self._err)}")

    def words(self, first: str, count: int) -> dict[int, str]:
        """What ``count`` ranks' scripts print after the word ``first``, by rank."""
        said: dict[int, str] = {}
        while len(said) < count:
            _, rank, rest = self.line(lambda line: f"] {first}" in line).split(maxsplit=2)
            said[int(rank.rstrip("]"))] = rest.split(first, 1)[1].strip()
        return said

    def watch(self) -> dict[int, list[int]]:
        """Open a pidfd of every descendant there is now; the tree as {pid: its children}."""
        tree = descendants(self.pid)
        for pid in {pid for children in tree.values() for pid in children}:
            self._handles[pid] = os.pidfd_open(pid)
        return tree

    def end(self) -> Done:
        """Wait for the end of the launcher, and of every process that was watched."""
        stdout, stderr = self.process.communicate(timeout=END_S)
        for pid, handle in self._handles.items():
            assert select.select([handle], [], [], END_S)[0], f"process {pid} outlives the launcher"
        document = json.loads(self._json.read_text()) if self._json is not None and self._json.is_file() else None
        made = self.temp.stat().st_mtime_ns != self._before
        left = sorted(str(path.relative_to(self.temp)) for path in self.temp.rglob("*"))
        said = "".join(self._err) + stderr
        return Done(self.process.returncode, stdout, STALLS.sub("", said), document, made, left)

    def close(self) -> None:
        """Leave nothing running."""
        for handle in self._handles.values():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def launching(*argv: object, cwd: Path | None = None, **env: str) -> Iterator[Launch]:
    """``ahbm-launch`` with these arguments; ``env`` is added to its environment."""
    with temporary_folder() as temp:
        launch = Launch(argv, temp, cwd, env)
        try:
            yield launch
        finally:
            launch.close()


def launched(*argv: object, cwd: Path | None = None, **env: str) -> Done:
    """``ahbm-launch`` from start to end; its temporary folder must be empty again."""
    with launching(*argv, cwd=cwd, **env) as launch:
        done = launch.end()
    assert done.left_files == []
    return done


def descendants(pid: int) -> dict[int, list[int]]:
    """The descendants of a process as {pid: its children}."""
    tree: dict[int, list[int]] = {pid: []}
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            tree.setdefault(process.ppid(), []).append(process.pid)
            tree.setdefault(process.pid, [])
    return tree


def script(folder: Path, body: str) -> Path:
    """A worker that is in the process group and does ``body``."""
    lines = ["dist = torch.distributed", "dist.init_process_group()", *body.strip().splitlines()]
    path = folder / "script.py"
    path.write_text("import os, signal, sys\n" + "\n    ".join(["def worker(rank, world_size, torch):", *lines]) + "\n")
    return path
