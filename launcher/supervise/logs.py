"""Output of a run's processes: printed line by line with the rank, copied to ``--log-dir``, last lines for errors.

Processes write to files in the run's private folder (output from other hosts is appended there); this module reads the
files as they grow.
"""

import json
import os
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from broker.process import BROKER_NAME
from launcher.processes.fork_server import process_name
from launcher.report.failure import error_file_of
from launcher.report.outcome import DEADLOCK_FILE, FoundFacts, Outcome
from launcher.supervise.run import Run
from sipsim.core.errors import ConfigError
from sipsim.core.files import APPEND, HINT, PRIVATE, READABLE, REWRITE, Folder, Unsafe, open_file, reader
from sipsim.records.code_place import CRASH, CodeLine, crash_place

LAST_LINES = 20
LONGEST_LINE = 64 * 1024
"""An unfinished line of more bytes is printed in pieces."""
ERROR_FILE = "error.json"
READ_BYTES = 2**20
MAX_CRASH_LINES = 128
"""Maximum number of stored lines of a crash report; Python's report has at most 100 frames."""


def log_file(rank: int | None) -> str:
    """Return the file name in ``--log-dir`` for the log of a rank, or of the broker if ``rank`` is None."""
    return f"{process_name(rank)}.log" if rank is None else f"rank-{rank}.log"


def prepare_log_dir(folder: Path, n_sips: int) -> None:
    """Create the folder, and an empty log for the broker and each rank, readable by the owner only.

    Raises:
        ConfigError: one line with the file that cannot be written.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        with Folder(folder) as files:
            for rank in (None, *range(n_sips)):
                fd = files.open(log_file(rank), REWRITE)
                os.fchmod(fd, PRIVATE)
                os.close(fd)
            files.remove(DEADLOCK_FILE)
            # On a full disk, files can be created but not written.
            files.write(ERROR_FILE, b"\n" * 4096)
            files.remove(ERROR_FILE)
    except Unsafe as error:
        raise ConfigError(f"--log-dir {error.filename}: {error.strerror}; {HINT}") from None
    except OSError as error:
        hint = "name a writable folder, with free space, whose parent exists"
        raise ConfigError(f"--log-dir {error.filename or folder}: {error.strerror}; {hint}") from None


def write_error_files(outcome: Outcome, folders: Sequence[Path]) -> None:
    """Write ``error.json`` and the long report of a deadlock into each folder; remove files of an earlier run."""
    document = error_file_of(outcome)
    texts = {ERROR_FILE: "" if document is None else json.dumps(document, indent=1) + "\n", DEADLOCK_FILE: ""}
    if outcome.long_report is not None:
        texts[outcome.long_report.file] = outcome.long_report.text
    for folder in folders:
        try:
            with Folder(folder) as files:
                for name, text in texts.items():
                    files.remove(name)
                    if text:
                        files.write(name, text.encode(), READABLE)
        except OSError as error:
            outcome.troubles.append(f"{error.filename}: cannot be written: {error.strerror}")


class _Log:
    """Log of one process: the read position and the last lines."""

    def __init__(self, rank: int | None, folder: Path) -> None:
        self.path = folder / f"{process_name(rank)}.log"
        self.host = ""
        self.tail: deque[str] = deque(maxlen=LAST_LINES)
        self.crash: list[str] = []
        self._read = 0
        self._partial = b""

    def new_bytes(self) -> bytes:
        """Return at most ``READ_BYTES`` of the output since the last call."""
        try:
            with reader(self.path) as log:
                log.seek(self._read)
                new = log.read(READ_BYTES)
        except OSError:
            return b""
        self._read += len(new)
        return new

    def lines(self, new: bytes, to_the_end: bool) -> list[str]:
        """Return the lines that ``new`` completes, and an unfinished last line if ``to_the_end``."""
        data = self._partial + new
        end = len(data) if to_the_end or len(data) - data.rfind(b"\n") > LONGEST_LINE else data.rfind(b"\n") + 1
        self._partial = data[end:]
        lines = data[:end].decode(errors="replace").splitlines()
        self.tail.extend(lines)
        for line in lines:
            if line.startswith(CRASH):
                self.crash = [line]
            elif self.crash and len(self.crash) < MAX_CRASH_LINES:
                self.crash.append(line)
        return lines


class Logs:
    """Logs of one run. Call ``forward`` often, and ``set_host`` before a process starts."""

    def __init__(self, run: Run, hosts: Sequence[str] = (), out: Any = None) -> None:
        folder = Path(run.scratch_dir)
        ranks = range(run.plan.system.n_sips)
        tee, log_dir = run.options.tee, run.options.log_dir
        self._logs = {rank: _Log(rank, folder) for rank in (None, *ranks)}
        self._shown = {rank for rank in ranks if tee is None or rank in tee}
        self._several_hosts = len(hosts) > 1
        self._log_dir = log_dir.absolute() if log_dir else None
        self._out = out
        self.trouble = ""

    def set_host(self, rank: int, host: str) -> None:
        """Set the host of the next process of ``rank``."""
        self._logs[rank].host = host

    def forward(self, to_the_end: bool = False) -> None:
        """Print and copy new output of all processes, and unfinished last lines if ``to_the_end``."""
        for rank, log in self._logs.items():
            while new := log.new_bytes():
                self._copy(rank, new)
                self._show(rank, log, log.lines(new, False))
                if len(new) < READ_BYTES:
                    break
            if to_the_end:
                self._show(rank, log, log.lines(b"", True))

    def tail_of(self, rank: int | None) -> FoundFacts:
        """Return the last lines of a process and the path of its log, as keys of a failure."""
        log = self._logs[rank]
        self.forward()
        lines = [*log.tail, *log._partial.decode(errors="replace").splitlines()][-LAST_LINES:]
        facts: FoundFacts = {"last_lines": lines} if lines else {}
        if self._log_dir:
            facts["log"] = str(self._log_dir / log_file(rank))
        return facts

    def crash_of(self, rank: int | None) -> CodeLine:
        """Return the line of code of a crash, from the report in the process's log; "" and 0 without a report."""
        return crash_place(self._logs[rank].crash)

    def _show(self, rank: int | None, log: _Log, lines: list[str]) -> None:
        """Print lines on standard error, with the rank; of the broker's log, print only warnings."""
        if rank is None:
            for line in lines:
                if line.startswith(f"{BROKER_NAME}: "):
                    print(f"ahbm-launch: {line}", file=self._out or sys.stderr)
        if rank in self._shown:
            host = f" {log.host}" if self._several_hosts and log.host else ""
            for line in lines:
                print(f"[rank {rank}{host}] {line}", file=self._out or sys.stderr)

    def _copy(self, rank: int | None, new: bytes) -> None:
        if not self._log_dir or self.trouble:
            return
        path = self._log_dir / log_file(rank)
        try:
            with os.fdopen(open_file(path, APPEND), "ab") as file:
                file.write(new)
        except OSError as error:
            self.trouble = f"--log-dir {path}: {error.strerror}; the logs there are incomplete"
