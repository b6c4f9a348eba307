"""Reads a file that a user names, whatever it is: bounded in size, and in waiting where it is a pipe or a terminal."""

import errno
import os
import select
from pathlib import Path

LONGEST_WAIT_S = 10.0
"""For the next bytes of what is no regular file."""


def read_limited(path: Path, most: int) -> bytes | None:
    """All bytes of a file; None where they are more than ``most``, of which no more are read.

    Raises:
        OSError: for what cannot be read, such as a pipe to which nobody writes.
    """
    with open(path, "rb", buffering=0, opener=_without_waiting) as file:
        poller, left = select.poll(), most + 1
        parts: list[bytes] = []
        poller.register(file, select.POLLIN)
        while left > 0:
            if not poller.poll(LONGEST_WAIT_S * 1000):
                raise TimeoutError(errno.ETIMEDOUT, f"nothing has come from it for {LONGEST_WAIT_S:g} s", str(path))
            part = file.read(left)
            if part is None:
                continue
            if not part:
                return b"".join(parts)
            parts.append(part)
            left -= len(part)
    return None


def _without_waiting(path: str, flags: int) -> int:
    """Open; a pipe without a writer would be waited for."""
    return os.open(path, flags | os.O_NONBLOCK)
