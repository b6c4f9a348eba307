"""Commands of a kernel that were submitted and not waited for: the arguments of ``tl.wait``."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from weakref import ref

from sipsim.chips.ahbm.ipcq.messages import Received
from sipsim.chips.ahbm.pe.commands import Completion, IpcqRecv
from sipsim.chips.ahbm.tl.context import KernelPe
from sipsim.chips.ahbm.tl.values import Shape, TensorHandle
from sipsim.core.dtypes import DType
from sipsim.core.errors import KernelError


class Future(ABC):
    """A command of the kernel on ``pe``."""

    __slots__ = ("completion", "pe")

    def __init__(self, pe: KernelPe, completion: Completion) -> None:
        self.pe = pe
        self.completion = completion

    @abstractmethod
    def result(self) -> TensorHandle:
        """The handle that ``tl.wait`` returns."""

    def is_completed(self) -> bool:
        """Whether ``tl.wait`` would return at once."""
        return self.completion.has_ended()


class StoreFuture(Future):
    """A store, the result of ``tl.store_async``. Its handle is the one that is written, which it holds until it has
    returned it: then that takes room only as long as the kernel itself holds it.
    """

    __slots__ = ("_handle",)

    def __init__(self, pe: KernelPe, handle: TensorHandle, completion: Completion) -> None:
        super().__init__(pe, completion)
        self._handle: Callable[[], TensorHandle | None] = lambda: handle

    def result(self) -> TensorHandle:
        """The handle that is written.

        Raises:
            KernelError: when it was returned before, and the kernel has dropped it since.
        """
        handle = self._handle()
        if handle is None:
            raise KernelError(
                "tl.wait has returned the value of this store before, and the kernel has dropped it since"
            )
        self._handle = ref(handle)
        return handle


class LoadFuture(Future):
    """A load, the result of ``tl.load_async``."""

    __slots__ = ("_handle",)

    def __init__(self, pe: KernelPe, handle: TensorHandle, completion: Completion) -> None:
        super().__init__(pe, completion)
        self._handle = handle

    def result(self) -> TensorHandle:
        """What is read."""
        return self._handle


class RecvFuture(Future):
    """A receive of ``dims`` elements of ``dtype``, the result of ``tl.recv_async``."""

    __slots__ = ("command", "direction", "handle")

    def __init__(
        self, pe: KernelPe, direction: str, command: IpcqRecv, handle: TensorHandle, completion: Completion
    ) -> None:
        super().__init__(pe, completion)
        self.handle = handle
        self.direction = direction
        self.command = command

    def result(self) -> TensorHandle:
        """The message."""
        return self.handle

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
