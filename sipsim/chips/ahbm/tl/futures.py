"""Futures of submitted commands, the arguments of ``tl.wait``."""

from typing import Any
from weakref import ref

from sipsim.chips.ahbm.pe.commands import Completion, IpcqRecv
from sipsim.chips.ahbm.tl.context import KernelContext
from sipsim.chips.ahbm.tl.values import TensorHandle
from sipsim.core.errors import KernelError


class Future:
    """Future of a command of the kernel on ``pe``: a load or a gemm; subclasses are for stores and receives.

    ``handle``: the handle that the future keeps alive; None for a composite command.
    """

    __slots__ = ("_handle", "completion", "pe")

    def __init__(self, pe: KernelContext, completion: Completion, handle: Any) -> None:
        self.pe = pe
        self.completion = completion
        self._handle = handle

    def result(self) -> TensorHandle:
        """Return the handle that ``tl.wait`` returns; None for a composite command."""
        handle: TensorHandle = self._handle
        return handle

    def is_completed(self) -> bool:
        """Return whether ``tl.wait`` would return at once."""
        return self.completion.has_ended()


class StoreFuture(Future):
    """Future of a store, the result of ``tl.store_async``. The future holds the stored handle until the first
    ``tl.wait`` returns, and a weak reference afterwards: then only the kernel's references keep the handle's TCM space.
    """

    __slots__ = ("_stored",)

    def __init__(self, pe: KernelContext, completion: Completion, handle: TensorHandle) -> None:
        super().__init__(pe, completion, handle)
        self._stored = ref(handle)

    def result(self) -> TensorHandle:
        """Return the stored handle.

        Raises:
            KernelError: if the handle was returned before and the kernel has dropped the handle since.
        """
        handle = self._stored()
        if handle is None:
            raise KernelError(
                "tl.wait has returned the handle of this store before, and the kernel has dropped the handle; keep it"
            )
        self._handle = None
        return handle


class RecvFuture(Future):
    """Future of a receive, the result of ``tl.recv_async``."""

    __slots__ = ("command", "direction")

    def __init__(
        self, pe: KernelContext, completion: Completion, handle: TensorHandle, direction: str, command: IpcqRecv
    ) -> None:
        super().__init__(pe, completion, handle)
        self.direction = direction
        self.command = command
