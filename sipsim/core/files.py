"""Safe file access in folders where another user may have placed links, pipes, devices or files (TOCTOU-safe).

A folder is opened once and checked. Files are opened relative to the open folder, without following links, and checked
after opening. So the checked file is the file that is read or written, even if names change meanwhile.
"""

import errno
import grp
import os
import pwd
import select
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from broker.security import retry_with_spares

PRIVATE, READABLE = 0o600, 0o644
"""Modes of new files: for keys and users' data, and for files that others may read. The umask applies to both."""
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
REWRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
ROOT = 0
HINT = "name a folder of your own in which no other user can write"
"""The advice in messages about a folder that is :class:`Unsafe`."""


class Unsafe(OSError):
    """Error for a file or folder that another user may have made; callers add advice to the reason, ``strerror``."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(errno.EPERM, what, str(path))


class Folder:
    """Open folder. ``is_checked``: require that the folder belongs to this user or root, and that either no other user
    can write in the folder, or the folder has the sticky bit.

    Raises:
        OSError: when the folder cannot be opened; :class:`Unsafe` when the check fails.
    """

    def __init__(self, path: Path, is_checked: bool = True) -> None:
        self.path = path
        self._fd = _following_own_links(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        reason = _reason_unsafe(os.fstat(self._fd)) if is_checked else ""
        if reason:
            os.close(self._fd)
            raise Unsafe(path, reason)

    def close(self) -> None:
        """Close the folder; its open files stay open."""
        os.close(self._fd)

    def __enter__(self) -> "Folder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, name: str, flags: int, mode: int = PRIVATE) -> int:
        """Open a regular file of this user; return its descriptor. A file to write must not have a second hard link.

        Raises:
            OSError: when the file cannot be opened; :class:`Unsafe` when it is a link, a device, or another user's.
        """
        path = self.path / name
        try:
            fd = _opened(name, flags & ~os.O_TRUNC | _SAFE, mode, self._fd)
        except OSError as error:
            reason = {errno.ELOOP: "is a symbolic link", errno.ENXIO: "is no regular file"}.get(error.errno or 0)
            if reason:
                raise Unsafe(path, reason) from None
            raise OSError(error.errno, error.strerror, str(path)) from None
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise Unsafe(path, "is no regular file")
            if status.st_uid != os.geteuid():
                raise Unsafe(path, f"belongs to {user_name(status.st_uid)}")
            if status.st_nlink > 1 and flags & os.O_ACCMODE != os.O_RDONLY:
                raise Unsafe(path, "has a second name (a hard link)")
            os.set_blocking(fd, True)
            if flags & os.O_TRUNC:
                os.ftruncate(fd, 0)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return at most the first ``most_bytes`` bytes of a file.

        Raises:
            OSError: as :meth:`open`.
        """
        with os.fdopen(self.open(name, os.O_RDONLY), "rb") as file:
            return file.read(most_bytes)

    def write(self, name: str, data: bytes, mode: int = PRIVATE) -> None:
        """Write a file atomically, replacing any file of the name.

        Raises:
            OSError: as :meth:`open`, or when the disk is full.
        """
        with self.replacing(name, mode) as fd, os.fdopen(os.dup(fd), "wb") as file:
            file.write(data)

    @contextmanager
    def replacing(self, name: str, mode: int = PRIVATE) -> Iterator[int]:
        """Return a context with the descriptor of a new read-write file, renamed to ``name`` at the end on success.

        Raises:
            OSError: as :meth:`write`.
        """
        temporary = f".{name}.{os.getpid()}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        try:
            fd = self.open(temporary, flags, mode)
        except FileExistsError:
            # Left by a killed process, or placed by another user: remove the name, but not the target of a link.
            self.remove(temporary)
            fd = self.open(temporary, flags, mode)
        try:
            with naming(self.path / name):
                yield fd
                os.replace(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except BaseException:
            with suppress(OSError):
                self.remove(temporary)
            raise
        finally:
            os.close(fd)

    def remove(self, name: str) -> None:
        """Remove a file or link; no-op if the name does not exist.

        Raises:
            OSError: when the name cannot be removed.
        """
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)


def open_file(path: Path, flags: int, mode: int = PRIVATE) -> int:
    """Open a file by :meth:`Folder.open` in its parent folder, and return its descriptor.

    Raises:
        OSError: as :meth:`Folder.open` and :class:`Folder`.
    """
    with Folder(path.parent) as folder:
        return folder.open(path.name, flags, mode)


def reader(path: Path) -> BinaryIO:
    """Return a file that the run itself has written, open for reading.

    Raises:
        OSError: as :func:`open_file`.
    """
    return os.fdopen(open_file(path, os.O_RDONLY), "rb")


def write_file(path: Path, data: bytes, mode: int = PRIVATE) -> None:
    """Write a file by :meth:`Folder.write` in its parent folder.

    Raises:
        OSError: as :meth:`Folder.write` and :class:`Folder`.
    """
    with Folder(path.parent) as folder:
        folder.write(path.name, data, mode)


def open_named(path: Path, flags: int, mode: int = READABLE) -> int:
    """Open a path that the user gave, such as a file, pipe, device or link of this user; return the descriptor.

    Raises:
        OSError: when the path cannot be opened; :class:`Unsafe` for a link of another user.
    """
    return _following_own_links(path, flags | os.O_CLOEXEC, mode)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Return a context that adds the path to an OSError without a file name, such as of a write to a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def check_link(path: Path) -> None:
    """Check that a path is not a link of another user.

    Raises:
        Unsafe: when the path is a link of another user.
        OSError: when the path cannot be examined.
    """
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode) and status.st_uid not in (os.geteuid(), ROOT):
        raise Unsafe(path, f"is a symbolic link that {user_name(status.st_uid)} has made")


def user_name(uid: int) -> str:
    """Return ``user NAME``, or ``user UID`` if the user has no name."""
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"


def _following_own_links(path: Path, flags: int, mode: int = PRIVATE) -> int:
    try:
        return _opened(path, flags | os.O_NOFOLLOW, mode)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        check_link(path)
        return _opened(path, flags, mode)


def _opened(path: Path | str, flags: int, mode: int, folder: int | None = None) -> int:
    return retry_with_spares(lambda: os.open(path, flags, mode, dir_fd=folder))


def _reason_unsafe(folder: os.stat_result) -> str:
    """Return the reason why other users can change the names in a folder; "" if no other user can."""
    if folder.st_uid not in (os.geteuid(), ROOT):
        return f"belongs to {user_name(folder.st_uid)}"
    mode = stat.S_IMODE(folder.st_mode)
    others = mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not _is_own_group(folder.st_gid))
    return f"lets other users write (mode {mode:04o})" if others and not mode & stat.S_ISVTX else ""


def _is_own_group(gid: int) -> bool:
    """Whether a group has the name of this user and no other member."""
    try:
        name, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == name and set(group.gr_mem) <= {name}


LONGEST_WAIT_S = 10.0
"""Timeout, in seconds, for the next bytes of a pipe or terminal."""


def read_limited(path: Path, limit_bytes: int) -> bytes | None:
    """Return all bytes of a file, pipe or terminal that a user gave; None if there are more than ``limit_bytes``.

    At most ``limit_bytes + 1`` bytes are read, so that an endless input ends too.

    Raises:
        OSError: when the path cannot be read; TimeoutError when no data arrives within ``LONGEST_WAIT_S``.
    """
    with open(path, "rb", buffering=0, opener=_without_waiting) as file:
        poller, remaining = select.poll(), limit_bytes + 1
        parts: list[bytes] = []
        poller.register(file, select.POLLIN)
        while remaining > 0:
            if not poller.poll(LONGEST_WAIT_S * 1000):
                raise TimeoutError(errno.ETIMEDOUT, f"no data arrived within {LONGEST_WAIT_S:g} s", str(path))
            part = file.read(remaining)
            if part is None:
                continue
            if not part:
                return b"".join(parts)
            parts.append(part)
            remaining -= len(part)
    return None


def _without_waiting(path: str, flags: int) -> int:
    """Open a path without blocking; otherwise the opening of a pipe waits for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)
