"""What the processes of a run print: shown line by line with the rank, kept in ``--log-dir``, its end for failures.

The processes write to files in the run's private folder (an agent's are written there as they come); here those are
read as they grow.
"""

import json
import os
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from broker.process import THE_BROKER
from launcher.engines.base import Request
from launcher.processes.names import BROKER_NAME, rank_of, sip_name
from launcher.report.failure import error_file_of
from launcher.report.outcome import Outcome
from sipsim.errors import ConfigError

LAST_LINES = 20
LONGEST_LINE = 64 * 1024
"""A line that is longer, and has not ended yet, is shown in pieces."""
ERROR_FILE = "error.json"
READ_BYTES = 2**20


def log_file(name: str) -> str:
    """What the log of a process is called in ``--log-dir``."""
    rank = rank_of(name)
    return f"{BROKER_NAME}.log" if rank is None else f"rank-{rank}.log"


def prepare_log_dir(folder: Path, n_sips: int) -> None:
    """Make the folder and an empty log for each rank, readable by its owner alone; what an earlier run left goes.

    Raises:
        ConfigError: one line with the file that cannot be written.
    """
    where = folder
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for name in (BROKER_NAME, *map(sip_name, range(n_sips))):
            where = folder / log_file(name)
            os.close(os.open(where, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            os.chmod(where, 0o600)
        where = folder / ERROR_FILE
        where.unlink(missing_ok=True)
        _try_to_write(folder / f".{ERROR_FILE}.{os.getpid()}")
    except OSError as error:
        told = f"--log-dir {where}: {error.strerror}; name a folder in one that exists, with room, that can be written"
        raise ConfigError(told) from None


def _try_to_write(path: Path) -> None:
    """A full disk lets files be made, but not filled."""
    try:
        path.write_bytes(b"\n" * 4096)
    finally:
        path.unlink(missing_ok=True)


def write_error_files(outcome: Outcome, folders: Sequence[Path]) -> None:
    """``error.json`` in each folder, or none there after a run that ended well."""
    told = error_file_of(outcome)
    for folder in folders:
        path = folder / ERROR_FILE
        try:
            path.unlink(missing_ok=True)
            if told is not None:
                path.write_text(json.dumps(told, indent=1) + "\n")
        except OSError as error:
            outcome.troubles.append(f"{path}: cannot be written: {error.strerror}")


class _Log:
    """One process's: how far it has been read, and its last lines."""

    def __init__(self, name: str, folder: Path) -> None:
        self.path = folder / f"{name}.log"
        self.host = ""
        self.tail: deque[str] = deque(maxlen=LAST_LINES)
        self._read = 0
        self._partial = b""

    def new_bytes(self) -> bytes:
        """What has been added since the last call, a piece of it if it is much."""
        try:
            with self.path.open("rb") as log:
                log.seek(self._read)
                new = log.read(READ_BYTES)
        except OSError:
            return b""
        self._read += len(new)
        return new

    def lines(self, new: bytes, to_the_end: bool) -> list[str]:
        """The whole lines that ``new`` completes; at the end, what is left."""
        data = self._partial + new
        cut = len(data) if to_the_end or len(data) - data.rfind(b"\n") > LONGEST_LINE else data.rfind(b"\n") + 1
        self._partial = data[cut:]
        lines = data[:cut].decode(errors="replace").splitlines()
        self.tail.extend(lines)
        return lines


class Logs:
    """One run's. Call ``pass_on`` often; ``placed`` says where a rank's next process runs."""

    def __init__(self, request: Request, hosts: Sequence[str] = (), out: Any = None) -> None:
        folder = Path(request.scratch_dir)
        ranks = range(request.plan.system.n_sips)
        self._logs = {name: _Log(name, folder) for name in (BROKER_NAME, *map(sip_name, ranks))}
        self._shown = {sip_name(rank) for rank in ranks if request.tee is None or rank in request.tee}
        self._several_hosts = len(hosts) > 1
        self._log_dir = request.log_dir
        self._out = out
        self.trouble = ""

    def placed(self, name: str, host: str) -> None:
        """The next process of that name runs on ``host``."""
        self._logs[name].host = host

    def pass_on(self, to_the_end: bool = False) -> None:
        """Show and keep what is new; at the end, also a line that has not ended."""
        for name, log in self._logs.items():
            while new := log.new_bytes():
                self._keep(name, new)
                self._show(name, log, log.lines(new, False))
                if len(new) < READ_BYTES:
                    break
            if to_the_end:
                self._show(name, log, log.lines(b"", True))

    def end_of(self, name: str) -> dict[str, Any]:
        """The last lines of a process that has ended and where all of them lie, as ``report`` has them."""
        log = self._logs.get(name)
        if log is None:
            return {}
        self.pass_on()
        lines = [*log.tail, *log._partial.decode(errors="replace").splitlines()][-LAST_LINES:]
        known: dict[str, Any] = {"last_lines": lines} if lines else {}
        if self._log_dir:
            known["log"] = str(Path(self._log_dir) / log_file(name))
        return known

    def _show(self, name: str, log: _Log, lines: list[str]) -> None:
        """With its rank, on standard error; of the broker's only what it has to tell of strangers."""
        if name == BROKER_NAME:
            for line in lines:
                if line.startswith(f"{THE_BROKER}: "):
                    print(f"ahbm-launch: {line}", file=self._out or sys.stderr)
        if name in self._shown:
            host = f" {log.host}" if self._several_hosts and log.host else ""
            for line in lines:
                print(f"[rank {rank_of(name)}{host}] {line}", file=self._out or sys.stderr)

    def _keep(self, name: str, new: bytes) -> None:
        if not self._log_dir or self.trouble:
            return
        path = Path(self._log_dir) / log_file(name)
        try:
            with path.open("ab") as file:
                file.write(new)
        except OSError as error:
            self.trouble = f"--log-dir {path}: {error.strerror}; the logs there lack what was printed after that"
