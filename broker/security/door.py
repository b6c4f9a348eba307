"""The door of a listening TCP socket: it is shut while this process has few open files left.

libzmq accepts every connection and holds it for the time of a handshake, so whoever connects often enough takes all
files of a process, and then its own work fails. A door keeps some files as spares. Where connections would take the
last ones besides, it is shut: the kernel drops what asks for a new connection (which a member's system repeats), those
that wait are closed, and the spares are there for this process. It opens when strangers have gone.
"""

import contextlib
import ctypes
import errno
import os
import resource
import socket
import struct
import threading
from collections.abc import Callable
from typing import TypeVar

SPARES = 16
MARGIN = 8
"""Files that are left besides the spares when the door is shut, and twice when it opens."""
MOST_WAITING = 1000
"""Connections that wait to be accepted and are closed when the door is shut."""
OPEN_FILES = "/proc/self/fd"
LOOK_MS = 200
"""How often a door that is shut is looked at."""
_RETURN_0 = struct.pack("=HBBI", 0x06, 0, 0, 0)
"""A program of the classic packet filter: nothing passes."""
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_DOORS: "set[Door]" = set()
Thing = TypeVar("Thing")


def make_room() -> bool:
    """Shut all doors of this process, where it has no file left; whether that has made room."""
    have = [door.shut() for door in list(_DOORS)]
    return any(have)


def with_room(take: Callable[[], Thing]) -> Thing:
    """The result of ``take``, which opens files; it is called once more if strangers held all files of this process."""
    try:
        return take()
    except Exception as error:
        if getattr(error, "errno", None) != errno.EMFILE or not make_room():
            raise
        return take()


class Door:
    """The guard of a listening socket ``fd``, which another object owns.

    ``on_shut`` is called with the limit of open files when the door is shut for the first time, by any thread.
    """

    def __init__(self, fd: int, on_shut: Callable[[int], None]) -> None:
        self._socket = socket.socket(fileno=os.dup(fd))
        self._socket.setblocking(False)
        self._on_shut = on_shut
        self._lock = threading.Lock()
        self._spares: list[int] = []
        self._is_shut = False
        self._was_shut = False
        self._take_spares()
        _DOORS.add(self)

    def fileno(self) -> int:
        """The socket's descriptor: readable when a connection is to be accepted."""
        return self._socket.fileno()

    @property
    def is_shut(self) -> bool:
        """Whether no connection is let in."""
        return self._is_shut

    def look(self) -> None:
        """Shut it, or open it again, if it is time."""
        left = _left()
        if left < MARGIN:
            self.shut()
        elif self._is_shut and left >= SPARES + 2 * MARGIN:
            self._open()

    def shut(self) -> bool:
        """Let nobody in, and give the spares back; whether there were any."""
        with self._lock:
            had_spares = bool(self._spares)
            if not self._is_shut:
                self._is_shut = True
                self._refuse()
            for fd in self._spares:
                os.close(fd)
            self._spares.clear()
            is_first, self._was_shut = not self._was_shut, True
        if is_first:
            self._on_shut(_limit())
        return had_spares

    def close(self) -> None:
        """Leave the socket as it is."""
        _DOORS.discard(self)
        with self._lock:
            for fd in self._spares:
                os.close(fd)
            self._spares.clear()
            self._socket.close()

    def _open(self) -> None:
        with self._lock:
            self._is_shut = False
            self._take_spares()
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)

    def _refuse(self) -> None:
        program = ctypes.create_string_buffer(_RETURN_0)
        filter_ = struct.pack("@HP", 1, ctypes.addressof(program))
        # A system without such filters has strangers take what they can; the spares are there all the same.
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_)
        if self._spares:
            os.close(self._spares.pop())
        with contextlib.suppress(OSError):
            for _ in range(MOST_WAITING):
                self._socket.accept()[0].close()

    def _take_spares(self) -> None:
        with contextlib.suppress(OSError):
            while len(self._spares) < SPARES:
                self._spares.append(os.dup(self._socket.fileno()))


def _left() -> int:
    """How many more files this process can open; many where that is not known."""
    try:
        return _limit() - len(os.listdir(OPEN_FILES))
    except OSError as error:
        return 0 if error.errno in (errno.EMFILE, errno.ENFILE) else 1 << 30


def _limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 30
