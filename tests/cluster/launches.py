"""``ahbm-launch`` on ``head``, with SIPs on the other hosts."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hosts import WAIT_S, Hosts
from launch import CHECKOUT, launched

END_S = 60
"""Nobody needs as long; only for a test not to hang."""

FLAGS = {
    "ssh": ["--engine", "ssh"],
    "slurm": ["--engine", "slurm"],
    "openmpi": ["--engine", "mpi"],
    "mpich": ["--engine", "mpi"],
}
"""By kind of cluster."""

DEFAULT = ("--sips", "4", "--topology", "torus_2d")
DIGEST = re.search(r"# digest (\w{64})", (CHECKOUT / "README.md").read_text(encoding="utf-8"))[1]
"""Of the command they all start with, as the README shows it."""

ROUNDS = 16
ROUNDS_SCRIPT = f"""
def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group()
    for n in range({ROUNDS}):
        dist.intercube_all_reduce(torch.ones(16, 256))
        if rank == 0:
            print("round", n, flush=True)
"""


class Done(NamedTuple):
    """A launch that is over."""

    exit_code: int
    stdout: str
    stderr: str
    document: Any

    @property
    def digest(self) -> str:
        """The digest that stands at the end of the table."""
        found = [line.split()[-1] for line in self.stdout.splitlines() if line.startswith("# digest")]
        assert found, f"exit code {self.exit_code}, no digest:\n{self.stdout}{self.stderr}"
        return found[0]

    @property
    def error(self) -> dict[str, Any]:
        """The failure."""
        assert self.document is not None, f"exit code {self.exit_code}, no result:\n{self.stdout}{self.stderr}"
        assert self.document["error"] is not None, f"exit code {self.exit_code}, no failure:\n{self.stdout}"
        return self.document["error"]


class Launch:
    """A launch that is on its way. Use :func:`launching`."""

    def __init__(self, hosts: Hosts, argv: tuple[object, ...], env: dict[str, str]) -> None:
        self._json = hosts.folder / "result.json"
        words = [sys.executable, "-m", "launcher", "--hosts", hosts.names, "--json", self._json, *argv]
        path = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
        self._err: list[str] = []
        self._out = hosts.folder / "stdout"
        with self._out.open("w") as out:
            self.process = hosts.head.run(
                words,
                env={**os.environ, **env, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.PIPE,
                text=True,
            )

    def line(self, wanted: Callable[[str], bool]) -> str:
        """Read standard error until a line is as wanted; blocks."""
        for line in self.process.stderr:
            self._err.append(line)
            if wanted(line):
                return line
        raise AssertionError(f"the launch ended first, having said: {''.join(self._err)}")

    def round(self, number: int) -> None:
        """Wait until rank 0 of :data:`ROUNDS_SCRIPT` has come so far."""
        self.line(lambda line: line.endswith(f" round {number}\n"))

    def end(self, within_s: float = END_S) -> Done:
        """Wait for the end of the launcher."""
        _, rest = self.process.communicate(timeout=within_s)
        document = json.loads(self._json.read_text()) if self._json.is_file() else None
        return Done(self.process.returncode, self._out.read_text(), "".join(self._err) + rest, document)


@contextlib.contextmanager
def launching(hosts: Hosts, env: dict[str, str], *argv: object) -> Iterator[Launch]:
    """``ahbm-launch --hosts h1,..`` with these words on ``head``; ``env`` is what the cluster wants."""
    launch = Launch(hosts, argv, env)
    try:
        yield launch
    finally:
        launch.process.kill()
        launch.process.wait(WAIT_S)


def launched_on(hosts: Hosts, env: dict[str, str], *argv: object) -> Done:
    """``ahbm-launch`` from start to end; nothing of it may be left on any host."""
    with launching(hosts, env, *argv) as launch:
        done = launch.end()
    nothing_left(hosts)
    return done


def nothing_left(hosts: Hosts, grace_s: float = 5) -> None:
    """No process of a run on any host."""
    for host in [hosts.head, *hosts]:
        assert host.left(grace_s) == {}, f"left on {host.name}"


def rounds_script(folder: Path) -> Path:
    """The script in a file."""
    path = folder / "rounds.py"
    path.write_text(ROUNDS_SCRIPT)
    return path


@cache
def digest_of_rounds() -> str:
    """What :data:`ROUNDS_SCRIPT` comes to in one process."""
    with tempfile.TemporaryDirectory() as folder:
        return launched(*DEFAULT, "--engine", "inproc", rounds_script(Path(folder))).digest


@cache
def why_no_engine(name: str) -> str:
    """Why this checkout cannot start SIPs so; empty when it can."""
    listing = [sys.executable, "-m", "launcher", "--list", "engines"]
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    said = subprocess.run(listing, env=env, capture_output=True, text=True, timeout=WAIT_S).stdout
    return "" if name in said.split() else f"this checkout has no engine {name!r} yet"
