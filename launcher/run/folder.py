"""Folder of a resumable run (``--run-dir``, ``--resume``): the command line of the run and the packet logs of its SIPs.

``run.json`` contains schema, version, argv, cwd, the run's digest, how often the run was ``started``, and ``status``:
``running`` during the run, then ``ok``, ``failed`` or ``interrupted``. A run with any status but ``ok`` can be resumed.
``lock`` contains the launcher's pid and is locked with ``flock`` while any process of the run lives on this host. SIPs
write packet logs into the same folder.
"""

import contextlib
import fcntl
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec

from launcher.isolation import absolute
from launcher.options import FLAGS, Options, ParserExit, given_options, parse
from launcher.supervise.run import Run
from sipsim import VERSION
from sipsim.core.errors import ConfigError
from sipsim.core.files import HINT, READABLE, Folder, Unsafe
from sipsim.node.packet_log import PACKET_LOGS
from sipsim.node.sip_node import run_digest

SCHEMA = 1
RUN_FILE = "run.json"
LOCK_FILE = "lock"
LONGEST_FILE = 2**20


class SavedRun(msgspec.Struct, frozen=True, kw_only=True):
    """Content of ``run.json``; see the module's docstring."""

    schema: int
    version: str
    argv: list[str]
    cwd: str
    run_digest: str
    status: str = "running"
    started: int = 1


class RunFolder:
    """Locked folder of a run, created by :meth:`begin` or :meth:`resume` and released by :meth:`close`."""

    def __init__(self, folder: Path, flag: str) -> None:
        self.folder = folder
        self._flag = flag
        self._open = _opened(folder, flag)
        try:
            self._lock = _locked(self._open, flag)
        except ConfigError:
            self._open.close()
            raise
        self._saved: SavedRun | None = None
        self._before: SavedRun | None = None
        self._is_new = False

    @classmethod
    def begin(cls, folder: Path, argv: list[str], run: Run) -> "RunFolder":
        """Create ``folder``, or use an existing empty folder, for a new run.

        Raises:
            ConfigError: one line, if the folder is not empty, cannot be written, or its file system is full.
        """
        check_new(folder)
        is_new = not folder.exists()
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise _cannot_write(folder, error, "--run-dir") from None
        digest = run_digest(run.plan.digest, run.job)
        try:
            run_folder = cls(folder, "--run-dir")
        except ConfigError:
            if is_new:
                folder.rmdir()
            raise
        run_folder._is_new = is_new
        try:
            run_folder._write(SavedRun(schema=SCHEMA, version=VERSION, argv=argv, cwd=os.getcwd(), run_digest=digest))
        except ConfigError:
            run_folder.abandon()
            raise
        return run_folder

    @classmethod
    def resume(cls, folder: Path, run: Run) -> "RunFolder":
        """Lock and check the folder of an earlier run, to resume this run.

        Raises:
            ConfigError: one line, if the run is active, system or script has changed, or files cannot be written.
        """
        run_folder = cls(folder, "--resume")
        try:
            saved = read(folder, run_folder._open)
            check_same(folder, saved, run)
            run_folder._check_packet_logs()
            run_folder._before = saved
            run_folder._write(msgspec.structs.replace(saved, status="running", started=saved.started + 1))
        except BaseException:
            run_folder._release()
            raise
        return run_folder

    def _check_packet_logs(self) -> None:
        for path in self.folder.glob(PACKET_LOGS):
            try:
                os.close(self._open.open(path.name, os.O_RDWR))
            except OSError as error:
                raise _cannot_write(path, error, self._flag) from None

    def close(self, status: str) -> None:
        """Save the status and release the folder."""
        if self._saved is not None:
            with contextlib.suppress(ConfigError):
                self._write(msgspec.structs.replace(self._saved, status=status))
        self._release()

    def abandon(self) -> None:
        """Restore the folder, since no process of the run was started."""
        if self._before is not None:
            self._write(self._before)
            self._release()
            return
        for name in (RUN_FILE, LOCK_FILE):
            self._open.remove(name)
        if self._is_new:
            self.folder.rmdir()
        self._release()

    def _release(self) -> None:
        os.close(self._lock)
        self._open.close()

    @property
    def n_resumed(self) -> int:
        """The number of resumes of the run, including the current one."""
        return self._saved.started - 1 if self._saved is not None else 0

    def _write(self, saved: SavedRun) -> None:
        try:
            self._open.write(RUN_FILE, msgspec.json.format(msgspec.json.encode(saved), indent=1) + b"\n", READABLE)
        except OSError as error:
            raise _cannot_write(self.folder / RUN_FILE, error, self._flag) from None
        self._saved = saved


def check_new(folder: Path) -> None:
    """Check that the folder can be used for ``--run-dir``.

    Raises:
        ConfigError: one line, if the folder is not empty or cannot be created.
    """
    try:
        if folder.is_dir() and any(folder.iterdir()):
            hint = f"; --resume {folder} resumes the run" if (folder / RUN_FILE).is_file() else ""
            raise ConfigError(f"--run-dir {folder}: is not empty; name an empty folder or a new one{hint}")
    except OSError as error:
        raise _cannot_write(folder, error, "--run-dir") from None
    if folder.exists():
        _opened(folder, "--run-dir").close()
    parent = folder if folder.exists() else folder.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise ConfigError(f"--run-dir {folder}: cannot be written; name a folder whose parent exists")


def read(folder: Path, opened: Folder | None = None) -> SavedRun:
    """Return the saved run of ``folder``; ``opened`` is the same folder if the caller has opened the folder.

    Raises:
        ConfigError: one line, if there is no saved run, or the saved run cannot be resumed.
    """
    path = folder / RUN_FILE
    try:
        with nullcontext(opened) if opened is not None else Folder(folder) as files:
            data = files.read(RUN_FILE, LONGEST_FILE)
        version = msgspec.json.decode(data, type=dict[str, Any])
        if version.get("schema") != SCHEMA or version.get("version") != VERSION:
            other = version.get("version")
            raise ConfigError(f"--resume {folder}: the run is of version {other}, this is {VERSION}; use {other}")
        saved = msgspec.json.decode(data, type=SavedRun)
    except FileNotFoundError:
        raise ConfigError(f"--resume {folder}: the folder has no {RUN_FILE}; name the folder of --run-dir") from None
    except Unsafe as error:
        raise _unsafe(error, "--resume") from None
    except OSError as error:
        raise ConfigError(f"--resume {path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--resume {path}: is not a saved run: {error}") from None
    if saved.status == "ok":
        raise ConfigError(f"--resume {folder}: the run has succeeded, so nothing is left to resume; begin a new run")
    return saved


def resumed_options(folder: Path, argv: list[str], options: Options) -> Options:
    """Return the options of the run in ``folder`` with the output options of ``argv``; change to the run's ``cwd``.

    Raises:
        ConfigError: one line, if ``argv`` contains other options, or :func:`read` fails.
    """
    for name, flag in given_options(argv).items():
        if name not in FLAGS or not FLAGS[name].resumed:
            raise ConfigError(f"{flag}: --resume uses the command line of the saved run; give output options only")
    saved = read(folder)
    try:
        old = parse(saved.argv)
    except ParserExit as usage:
        raise ConfigError(f"--resume {folder}: {RUN_FILE}: {usage.text.partition(': ')[2]}") from None
    fields = {name: getattr(options, name) for name in given_options(argv) if name != "resume"}
    fields |= {name: absolute(value) for name, value in fields.items() if isinstance(value, Path)}
    absolute_folder = folder.absolute()
    try:
        os.chdir(saved.cwd)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"--resume {folder}: working directory {saved.cwd}: {reason}; create it again") from None
    return old.changed(**fields, run_dir=None, resume=absolute_folder)


def check_same(folder: Path, saved: SavedRun, run: Run) -> None:
    """Check that the prepared run has the digest of the saved run.

    Raises:
        ConfigError: one line, if system, algorithm or script has changed.
    """
    if saved.run_digest != run_digest(run.plan.digest, run.job):
        what = f"the system or the algorithm{' or the script' if run.job.script else ''} differs from the saved run"
        raise ConfigError(f"--resume {folder}: {what}; undo the change, or begin a new run")


def _opened(folder: Path, flag: str) -> Folder:
    try:
        return Folder(folder)
    except OSError as error:
        raise _cannot_write(folder, error, flag) from None


def _locked(folder: Folder, flag: str) -> int:
    """Open and lock the lock file; return the descriptor. Forks of this process inherit descriptor and lock."""
    path = folder.path / LOCK_FILE
    try:
        lock = folder.open(LOCK_FILE, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise _cannot_write(path, error, flag) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        pid = os.pread(lock, 32, 0).decode(errors="replace").strip()
        os.close(lock)
        raise ConfigError(f"{flag} {folder.path}: process {pid} still executes this run; wait for its end") from None
    except OSError as error:
        folder.remove(LOCK_FILE)
        os.close(lock)
        raise _cannot_write(path, error, flag) from None
    return lock


def _cannot_write(path: Path, error: OSError, flag: str) -> ConfigError:
    if isinstance(error, Unsafe):
        return _unsafe(error, flag)
    return ConfigError(f"{flag} {path}: cannot be written: {error.strerror}; name a folder with free space")


def _unsafe(error: Unsafe, flag: str) -> ConfigError:
    return ConfigError(f"{flag} {error.filename}: {error.strerror}; {HINT}")
