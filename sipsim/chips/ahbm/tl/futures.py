"""Commands of a kernel that were submitted and not waited for: the arguments of ``tl.wait``."""

from typing import Any
from weakref import ref

from sipsim.chips.ahbm.pe.commands import Completion, IpcqRecv
from sipsim.chips.ahbm.tl.context import KernelContext
from sipsim.chips.ahbm.tl.values import TensorHandle
from sipsim.core.errors import KernelError


class Future:
    """A command of the kernel on ``pe``: a load, a composite command, or one of the classes below.

    ``handle``: the handle that the future keeps alive; None for a composite command.
    """

    __slots__ = ("_handle", "completion", "pe")

    def __init__(self, pe: KernelContext, completion: Completion, handle: Any) -> None:
        self.pe = pe
        self.completion = completion
        self._handle = handle

    def result(self) -> TensorHandle:
        """The handle that ``tl.wait`` returns; None for a composite command."""
        handle: TensorHandle = self._handle
        return handle

    def is_completed(self) -> bool:
        """Whether ``tl.wait`` would return at once."""
        return self.completion.has_ended()


class StoreFuture(Future):
    """A store, the result of ``tl.store_async``. It keeps the stored handle until the first ``tl.wait`` has returned
    it, and refers to it weakly from then on: its room in the TCM follows the kernel's own references.
    """

    __slots__ = ("_stored",)

    def __init__(self, pe: KernelContext, completion: Completion, handle: TensorHandle) -> None:
        super().__init__(pe, completion, handle)
        self._stored = ref(handle)

    def result(self) -> TensorHandle:
        """The handle that is written.

        Raises:
            KernelError: when it was returned before, and the kernel has dropped it since.
        """
        handle = self._stored()
        if handle is None:
            raise KernelError(
                "tl.wait has returned the value of this store before, and the kernel has dropped it since"
            )
        self._handle = None
        return handle


class RecvFuture(Future):
    """A receive, the result of ``tl.recv_async``."""

    __slots__ = ("command", "direction")

    def __init__(
        self, pe: KernelContext, completion: Completion, handle: TensorHandle, direction: str, command: IpcqRecv
    ) -> None:
        super().__init__(pe, completion, handle)
        self.direction = direction
        self.command = command
