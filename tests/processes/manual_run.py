"""A run whose broker and SIPs are started one by one, as ``ahbm-broker`` and ``ahbm-sip`` do."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from launch import CHECKOUT, environment

SMALL = ("--sips", "3", "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2")
CALL = "import sys; from launcher.commands import by_hand; sys.exit(by_hand.{}(sys.argv[1:]))"
Process = subprocess.Popen[str]


class ByHand:
    """A broker that has written its tickets, and the processes started with them."""

    def __init__(self, temp: Path, *argv: object) -> None:
        self.folder = temp / "tickets"
        self._env = environment(temp)
        self._started: list[Process] = []
        # Where all addresses of this machine are loopback the broker must be told which one to use.
        self.broker = self._run("broker_main", "--bind", "127.0.0.1", "--tickets", self.folder, *argv)
        assert self.broker.stderr is not None
        self.said = []
        last = int(argv[argv.index("--sips") + 1]) - 1  # type: ignore[call-overload]
        while not self.said or f"sip-{last}.ticket" not in self.said[-1]:
            line = self.broker.stderr.readline()
            assert line, f"the broker ended: {self.said}"
            self.said.append(line)

    def _run(self, main: str, *argv: object) -> Process:
        command = [sys.executable, "-c", CALL.format(main), *map(str, argv)]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, env=self._env, cwd=CHECKOUT, **pipes)
        self._started.append(process)
        return process

    def ticket(self, rank: int) -> Path:
        return self.folder / f"sip-{rank}.ticket"

    def start(self, rank: int) -> Process:
        return self.start_with(self.ticket(rank))

    def start_with(self, ticket: Path) -> Process:
        return self._run("sip_main", ticket)

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@contextlib.contextmanager
def by_hand(temp: Path, *argv: object) -> Iterator[ByHand]:
    run = ByHand(temp, *argv)
    try:
        yield run
    finally:
        run.close()
