"""Safe file access in folders where another user may have placed links, pipes, devices or files (TOCTOU-safe).

A folder is opened once and checked. Its files are opened relative to it without following links, and checked after
opening. So the checked file is the file that is read or written, even if names change meanwhile.
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
"""Modes of new files: for keys and a user's data, and for files that others may read. The umask applies to both."""
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
REWRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
ROOT = 0
HINT = "name a folder of your own in which no other user can write"
"""The advice in messages about a folder that is :class:`Unsafe`."""


class Unsafe(OSError):
    """A file or folder that another user may have prepared; ``strerror`` gives the reason."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(errno.EPERM, what, str(path))


class Folder:
    """An open folder. ``is_checked``: require that the folder belongs to this user or root, and that either no other
    user can write in the folder, or the folder has the sticky bit.

    Raises:
        OSError: when the folder cannot be opened; :class:`Unsafe` when the check fails.
    """

    def __init__(self, path: Path, is_checked: bool = True) -> None:
        self.path = path
        self._fd = _following_own_links(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        why = _why_unsafe(os.fstat(self._fd)) if is_checked else ""
        if why:
            os.close(self._fd)
            raise Unsafe(path, why)

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
            why = {errno.ELOOP: "is a link", errno.ENXIO: "is no regular file"}.get(error.errno or 0)
            if why:
                raise Unsafe(path, why) from None
            raise OSError(error.errno, error.strerror, str(path)) from None
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise Unsafe(path, "is no regular file")
            if found.st_uid != os.geteuid():
                raise Unsafe(path, f"belongs to {user_name(found.st_uid)}")
            if found.st_nlink > 1 and flags & os.O_ACCMODE != os.O_RDONLY:
                raise Unsafe(path, "has a second name, a hard link")
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
        """Context with the descriptor of a new read-write file, which is renamed to ``name`` at the end on success.

        Raises:
            OSError: as :meth:`write`.
        """
        beside = f".{name}.{os.getpid()}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        try:
            fd = self.open(beside, flags, mode)
        except FileExistsError:
            # Left by a killed process, or placed by another user: remove the name, but not the target of a link.
            self.remove(beside)
            fd = self.open(beside, flags, mode)
        try:
            with naming(self.path / name):
                yield fd
                os.replace(beside, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except BaseException:
            with suppress(OSError):
                self.remove(beside)
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
    """Open for reading a file that the run itself has written.

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
    """Open a path that the user gave, which may be a pipe, a device or a link of this user; return its descriptor.

    Raises:
        OSError: when the path cannot be opened; :class:`Unsafe` for a link of another user.
    """
    return _following_own_links(path, flags | os.O_CLOEXEC, mode)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Context that adds the path to each OSError without a file name, such as of a write to a full disk."""
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
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode) and found.st_uid not in (os.geteuid(), ROOT):
        raise Unsafe(path, f"is a link of {user_name(found.st_uid)}")


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


def _why_unsafe(folder: os.stat_result) -> str:
    """The reason why other users may change the names in a folder; "" if no other user can."""
    if folder.st_uid not in (os.geteuid(), ROOT):
        return f"belongs to {user_name(folder.st_uid)}"
    mode = stat.S_IMODE(folder.st_mode)
    others = mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not _is_own_group(folder.st_gid))
    return f"others may write there (mode {mode:04o})" if others and not mode & stat.S_ISVTX else ""


def _is_own_group(gid: int) -> bool:
    """Whether a group has the name of this user and no other member."""
    try:
        name, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == name and set(group.gr_mem) <= {name}


LONGEST_WAIT_S = 10.0
"""Timeout for the next bytes of a pipe or terminal."""


def read_limited(path: Path, most: int) -> bytes | None:
    """Read all bytes of a file, pipe or terminal that a user gave; None if there are more than ``most``.

    At most ``most + 1`` bytes are read. Waiting for a pipe or a terminal is bounded too.

    Raises:
        OSError: when the path cannot be read; TimeoutError when no data arrives within ``LONGEST_WAIT_S``.
    """
    with open(path, "rb", buffering=0, opener=_without_waiting) as file:
        poller, left = select.poll(), most + 1
        parts: list[bytes] = []
        poller.register(file, select.POLLIN)
        while left > 0:
            if not poller.poll(LONGEST_WAIT_S * 1000):
                raise TimeoutError(errno.ETIMEDOUT, f"no data arrived within {LONGEST_WAIT_S:g} s", str(path))
            part = file.read(left)
            if part is None:
                continue
            if not part:
                return b"".join(parts)
            parts.append(part)
            left -= len(part)
    return None


def _without_waiting(path: str, flags: int) -> int:
    """Open without blocking; otherwise opening a pipe waits for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)
