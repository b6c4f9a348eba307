"""``--run-dir`` and ``--resume``: a folder with the command line of a run and the packets that its SIPs sent.

``run.json`` holds schema, version, argv, cwd, the digest that SIPs join with, how often the run was ``started``, and
its ``status``: ``running`` until it has ended, then ``ok``, ``failed`` or ``interrupted``; all but ``ok`` can be gone
on with. ``lock`` is held, by ``flock``, for as long as any process of the run lives on this host, and holds the pid of
the launcher. Packet logs beside them are the SIPs' business.
"""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Any

import msgspec

from launcher.run.options import Options, Usage, given, parse
from launcher.run.prepare import Prepared
from sipsim import VERSION
from sipsim.errors import ConfigError
from sipsim.node.sip_node import run_digest

SCHEMA = 1
RUN_FILE = "run.json"
LOCK_FILE = "lock"
LONGEST_FILE = 2**20
ALSO_WHEN_RESUMED = frozenset(
    {"resume", "json", "csv", "trace_ccl", "log_dir", "tee", "quiet", "verbose", "explain_sync", "timeout_s", "dry_run"}
)
"""Options that may be given anew: what is written and shown, and how long this command may take."""


class SavedRun(msgspec.Struct, frozen=True, kw_only=True):
    """``run.json``."""

    schema: int
    version: str
    argv: list[str]
    cwd: str
    run_digest: str
    status: str = "running"
    started: int = 1


class RunFolder:
    """A folder that this launcher holds. Use :meth:`begin` or :meth:`go_on`, and :meth:`close` in the end."""

    def __init__(self, folder: Path, flag: str) -> None:
        self.folder = folder
        self._flag = flag
        self._lock = _locked(folder, flag)
        self._kept: SavedRun | None = None
        self._before: SavedRun | None = None
        self._is_ours = False

    @classmethod
    def begin(cls, folder: Path, argv: list[str], prepared: Prepared) -> "RunFolder":
        """Make the folder, or take an empty one.

        Raises:
            ConfigError: one line, when it is not empty, or cannot be written, or is full.
        """
        check_new(folder)
        is_new = not folder.exists()
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise _cannot_write(folder, error, "--run-dir") from None
        digest = run_digest(prepared.plan.digest, prepared.job)
        try:
            made = cls(folder, "--run-dir")
        except ConfigError:
            if is_new:
                folder.rmdir()
            raise
        made._is_ours = is_new
        try:
            made._write(SavedRun(schema=SCHEMA, version=VERSION, argv=argv, cwd=os.getcwd(), run_digest=digest))
        except ConfigError:
            made.abandon()
            raise
        return made

    @classmethod
    def go_on(cls, folder: Path, prepared: Prepared) -> "RunFolder":
        """Take up the run of a folder.

        Raises:
            ConfigError: one line, when it runs still, has changed or cannot be written.
        """
        made = cls(folder, "--resume")
        try:
            kept = read(folder)
            check_same(folder, kept, prepared)
            made._before = kept
            made._write(msgspec.structs.replace(kept, status="running", started=kept.started + 1))
        except BaseException:
            os.close(made._lock)
            raise
        return made

    def close(self, status: str) -> None:
        """The run has ended, or this launcher's part of it."""
        if self._kept is not None:
            with contextlib.suppress(ConfigError):
                self._write(msgspec.structs.replace(self._kept, status=status))
        os.close(self._lock)

    def abandon(self) -> None:
        """Nothing has been started: leave the folder as it was found."""
        if self._before is not None:
            self._write(self._before)
            os.close(self._lock)
            return
        for name in (RUN_FILE, LOCK_FILE):
            (self.folder / name).unlink(missing_ok=True)
        if self._is_ours:
            self.folder.rmdir()
        os.close(self._lock)

    @property
    def resumed(self) -> int:
        """How often the run has been gone on with, this time included."""
        return self._kept.started - 1 if self._kept is not None else 0

    def _write(self, kept: SavedRun) -> None:
        beside = self.folder / f".{RUN_FILE}.{os.getpid()}"
        try:
            beside.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
            os.replace(beside, self.folder / RUN_FILE)
        except OSError as error:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            raise _cannot_write(self.folder, error, self._flag) from None
        self._kept = kept


def check_new(folder: Path) -> None:
    """Whether a run may be kept there.

    Raises:
        ConfigError: one line, when something is there already, or nothing can be made.
    """
    try:
        if folder.is_dir() and any(folder.iterdir()):
            hint = f"; --resume {folder} goes on with it" if (folder / RUN_FILE).is_file() else ""
            raise ConfigError(f"--run-dir {folder}: is not empty; name an empty folder or a new one{hint}")
    except OSError as error:
        raise _cannot_write(folder, error, "--run-dir") from None
    where = folder if folder.exists() else folder.parent
    if not where.is_dir() or not os.access(where, os.W_OK | os.X_OK):
        raise ConfigError(f"--run-dir {folder}: cannot be written; name a folder in one that exists")


def read(folder: Path) -> SavedRun:
    """The run of a folder.

    Raises:
        ConfigError: one line, when there is none, or it cannot be gone on with.
    """
    path = folder / RUN_FILE
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_uid not in (os.geteuid(), 0):
                raise ConfigError(f"--resume {path}: belongs to another user, whose command line would run as you")
            data = file.read(LONGEST_FILE)
        version = msgspec.json.decode(data, type=dict[str, Any])
        if version.get("schema") != SCHEMA or version.get("version") != VERSION:
            said = version.get("version")
            raise ConfigError(f"--resume {folder}: it was begun by version {said}, this is {VERSION}; use that one")
        kept = msgspec.json.decode(data, type=SavedRun)
    except FileNotFoundError:
        raise ConfigError(f"--resume {folder}: no {RUN_FILE} there; name what --run-dir named") from None
    except OSError as error:
        raise ConfigError(f"--resume {path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--resume {path}: is not the file of a run: {error}") from None
    if kept.status == "ok":
        raise ConfigError(f"--resume {folder}: that run has ended well, nothing is left to do; begin another one")
    return kept


def resumed_options(folder: Path, argv: list[str], options: Options) -> Options:
    """The options of the run in ``folder``, but for output what the new command line says; moves to its folder.

    Raises:
        ConfigError: one line, for flags that a run cannot change on its way, and as :func:`read`.
    """
    for name, flag in given(argv).items():
        if name not in ALSO_WHEN_RESUMED:
            raise ConfigError(f"{flag}: --resume takes the command line of the run; only output may be said anew")
    kept = read(folder)
    try:
        old = parse(kept.argv)
    except Usage as usage:
        raise ConfigError(f"--resume {folder}: {RUN_FILE}: {usage.text.partition(': ')[2]}") from None
    fields = {name: getattr(options, name) for name in given(argv) if name != "resume"}
    fields |= {name: value.absolute() for name, value in fields.items() if isinstance(value, Path)}
    home = folder.absolute()
    try:
        os.chdir(kept.cwd)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"--resume {folder}: its working directory {kept.cwd}: {why}") from None
    return old.changed(**fields, run_dir=None, resume=home)


def check_same(folder: Path, kept: SavedRun, prepared: Prepared) -> None:
    """Whether what is to run is what ran.

    Raises:
        ConfigError: one line, when it is not.
    """
    if kept.run_digest != run_digest(prepared.plan.digest, prepared.job):
        what = f"the system, its algorithm{' or the script' if prepared.job.script else ''} has changed since"
        raise ConfigError(f"--resume {folder}: {what}; put back what the run was begun with")


def _locked(folder: Path, flag: str) -> int:
    """An open, locked file; every fork of this process holds it too."""
    path = folder / LOCK_FILE
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _cannot_write(folder, error, flag) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        pid = os.pread(lock, 32, 0).decode(errors="replace").strip()
        os.close(lock)
        raise ConfigError(f"{flag} {folder}: that run is under way, by process {pid}; wait for its end") from None
    except OSError as error:
        path.unlink(missing_ok=True)
        os.close(lock)
        raise _cannot_write(folder, error, flag) from None
    return lock


def _cannot_write(folder: Path, error: OSError, flag: str) -> ConfigError:
    return ConfigError(f"{flag} {folder}: cannot be written: {error.strerror}; name a folder with room")
