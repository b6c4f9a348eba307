"""Commands of a kernel that were submitted and not waited for: the arguments of ``tl.wait``."""

from sipsim.dtypes import DType
from sipsim.ipcq.messages import Received
from sipsim.pe.commands import Completion, IpcqRecv
from sipsim.tl.context import KernelPe
from sipsim.tl.values import Shape, TensorHandle


class Future:
    """A command of the kernel on ``pe``, and the handle that ``tl.wait`` returns."""

    __slots__ = ("completion", "handle", "pe")

    def __init__(self, pe: KernelPe, handle: TensorHandle, completion: Completion) -> None:
        self.pe = pe
        self.handle = handle
        self.completion = completion

    def is_completed(self) -> bool:
        """Whether ``tl.wait`` would return at once."""
        return self.completion.has_ended()


class StoreFuture(Future):
    """A store, the result of ``tl.store_async``. Its handle is the one that is written."""

    __slots__ = ()


class RecvFuture(Future):
    """A receive of ``dims`` elements of ``dtype``, the result of ``tl.recv_async``."""

    __slots__ = ("command", "direction")

    def __init__(
        self, pe: KernelPe, direction: str, command: IpcqRecv, handle: TensorHandle, completion: Completion
    ) -> None:
        super().__init__(pe, handle, completion)
        self.direction = direction
        self.command = command

    @property
    def dims(self) -> Shape:
        """The shape of its elements."""
        return self.command.dims

    @property
    def dtype(self) -> DType:
        """The type of its elements."""
        return self.command.dtype

    @property
    def received(self) -> Received | None:
        """The message, None until it has been taken."""
        message: Received | None = self.completion.value
        return message
