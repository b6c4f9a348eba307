"""Posted receives: ``tl.recv`` waits for one at once, ``tl.recv_async`` returns it for ``tl.wait``."""

from typing import NamedTuple

from sipsim.ipcq.messages import Received
from sipsim.task import Task

Ps = int


class CopyTo(NamedTuple):
    """The destination of a copied message, and the size that the message must have."""

    address: int
    nbytes: int


class Receive:
    """A receive posted at ``since_ps``. ``copy_to``: the copy's destination, None to return the slot (ADR-0023 D9.5).

    A message of another size is not copied: the waiter raises on a size mismatch. The receive has ended once the credit
    for its slot has been emitted: ``received`` holds the message, ``on_complete`` has been called, and ``task``, if it
    waits for the receive, resumes.
    """

    __slots__ = ("copy_to", "ended", "received", "since_ps", "task")

    def __init__(self, since_ps: Ps, copy_to: CopyTo | None = None) -> None:
        self.since_ps = since_ps
        self.copy_to = copy_to
        self.received: Received | None = None
        self.ended = False
        self.task: Task | None = None

    def end(self) -> None:
        """End the receive and resume its task."""
        self.ended = True
        self.on_complete()
        if self.task is not None:
            self.task.resume()

    def on_complete(self) -> None:
        """A hook for the op log."""
