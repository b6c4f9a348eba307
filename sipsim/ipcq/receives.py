"""A receive as it was posted: what ``tl.recv`` waits for at once, and ``tl.recv_async`` gives to ``tl.wait``."""

from typing import NamedTuple

from sipsim.ipcq.messages import Received
from sipsim.task import Task

Ps = int


class CopyTo(NamedTuple):
    """Where a message of so many bytes is to be copied."""

    address: int
    nbytes: int


class Receive:
    """Posted at ``since_ps``. ``copy_to``: where to copy the message to, None to get its slot (ADR-0023 D9.5).

    A message of another size is not copied: the waiter raises on a size mismatch. It has ended once the credit for its
    slot has been emitted: then ``received`` holds the message, ``on_complete`` has been called, and ``task``, which
    waits for it, goes on.
    """

    __slots__ = ("copy_to", "ended", "received", "since_ps", "task")

    def __init__(self, since_ps: Ps, copy_to: CopyTo | None = None) -> None:
        self.since_ps = since_ps
        self.copy_to = copy_to
        self.received: Received | None = None
        self.ended = False
        self.task: Task | None = None

    def end(self) -> None:
        """The message is the kernel's."""
        self.ended = True
        self.on_complete()
        if self.task is not None:
            self.task.resume()

    def on_complete(self) -> None:
        """For whoever keeps a log of receives."""
