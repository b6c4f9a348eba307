"""Commands of a PE as records, and the completion of a command.

A function of ``tl`` creates a command and submits it (:mod:`sipsim.chips.ahbm.pe.engine`); the engine of its type times
it, performs it on bytes and records it. A command with a ``result`` and ``result_bytes`` takes space in the TCM
(:mod:`sipsim.chips.ahbm.pe.tcm`). Addresses are physical. ``dims`` and ``dtype`` describe the moved elements.
"""

import math
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from sipsim.chips.ahbm.address import Block
from sipsim.chips.ahbm.ipcq.messages import CopyTo, TakenSlot
from sipsim.chips.ahbm.pe.tcm import Array, Handle
from sipsim.core.arithmetic.operations import OPERATIONS
from sipsim.core.dtypes import DType
from sipsim.core.errors import InvariantViolation
from sipsim.core.task import Task

Ps = int
Dims = tuple[int, ...]
Number = int | float


class Direction(Enum):
    """Value for the direction of a receive that takes the next message of any direction."""

    ANY = "any"


class Const(msgspec.Struct, frozen=True):
    """Values that the kernel computed in Python."""

    values: Array
    result: Handle

    @property
    def result_bytes(self) -> int:
        """Bytes of the values."""
        return self.values.nbytes


class DmaRead(msgspec.Struct, frozen=True):
    """Read a block of a memory into ``result``."""

    block: Block
    dims: Dims
    dtype: DType
    result: Handle

    @property
    def result_bytes(self) -> int:
        """Bytes of the block."""
        return self.block.nbytes


class DmaWrite(msgspec.Struct, frozen=True):
    """Write the values of ``operand`` to a block of a memory."""

    block: Block
    operand: Handle


class MathOp(msgspec.Struct, frozen=True):
    """An element-wise operation; ``op`` is a key of ``sipsim.core.arithmetic.operations.OPERATIONS``.

    ``operands``: handles and numbers of type ``dtype``, broadcast to ``dims``; the first operand of ``where`` is i8.
    Without ``dims`` all operands are handles of the result's shape; without ``dtype`` the last handle sets the type.
    """

    op: str
    operands: tuple[Handle | Number, ...]
    result: Handle
    dims: Dims | None = None
    dtype: DType | None = None

    @property
    def handles(self) -> tuple[Handle, ...]:
        """The operands that are handles."""
        if self.dims is None:
            return self.operands  # type: ignore[return-value]
        return tuple([each for each in self.operands if isinstance(each, Handle)])

    @property
    def of_type(self) -> DType:
        """The type of the operands."""
        return self.dtype or self.handles[-1].dtype

    @property
    def shape(self) -> Dims:
        """Shape of the result."""
        return self.handles[0].shape if self.dims is None else self.dims

    @property
    def result_bytes(self) -> int:
        """Bytes of the result."""
        if self.dims is None:
            last = self.handles[-1]
            return last.nbytes // last.dtype.itemsize * self.result.dtype.itemsize
        return math.prod(self.dims) * self.result.dtype.itemsize

    @property
    def work(self) -> tuple[int, bool]:
        """Bytes that PE_MATH processes, and whether the function is special. Bytes: elements of the result, in the
        operands' type, times the operation's passes.
        """
        operation = OPERATIONS[self.op]
        if self.dims is None:
            return self.handles[-1].nbytes * operation.passes, operation.is_special
        return math.prod(self.dims) * self.of_type.itemsize * operation.passes, operation.is_special


class Reduce(msgspec.Struct, frozen=True):
    """A reduction of ``operand`` to ``shape`` along ``axis``, or of all elements in order if ``axis`` is None. ``op``
    is a key of ``sipsim.core.arithmetic.operations.REDUCTIONS``.
    """

    op: str
    operand: Handle
    axis: int | None
    shape: Dims
    result: Handle

    @property
    def handles(self) -> tuple[Handle, ...]:
        """The operand."""
        return (self.operand,)

    @property
    def result_bytes(self) -> int:
        """Bytes of the result."""
        return math.prod(self.shape) * self.result.dtype.itemsize

    @property
    def work(self) -> tuple[int, bool]:
        """Bytes that PE_MATH processes (the operand's), and False: the function is never special."""
        return self.operand.nbytes, False


class Cast(msgspec.Struct, frozen=True):
    """The values of ``operand`` in the type of ``result``."""

    operand: Handle
    result: Handle

    @property
    def op(self) -> str:
        """Name of the operation."""
        return "cast"

    @property
    def shape(self) -> Dims:
        """Shape of the operand."""
        return self.operand.shape

    @property
    def handles(self) -> tuple[Handle, ...]:
        """The operand."""
        return (self.operand,)

    @property
    def result_bytes(self) -> int:
        """Bytes of the result."""
        return math.prod(self.operand.shape) * self.result.dtype.itemsize

    @property
    def work(self) -> tuple[int, bool]:
        """Bytes that PE_MATH processes (in the wider type), and False: the function is never special."""
        return max(self.operand.nbytes, self.result_bytes), False


class Rearrange(msgspec.Struct, frozen=True):
    """The values of ``operand`` in another order or repeated, in ``shape``; ``op``: one of ``REARRANGEMENTS``."""

    op: str
    operand: Handle
    shape: Dims
    result: Handle

    @property
    def handles(self) -> tuple[Handle, ...]:
        """The operand."""
        return (self.operand,)

    @property
    def result_bytes(self) -> int:
        """Bytes of the result."""
        return math.prod(self.shape) * self.result.dtype.itemsize

    @property
    def work(self) -> tuple[int, bool]:
        """Bytes that PE_MATH processes (the result's), and False: the function is never special."""
        return self.result_bytes, False


class Make(msgspec.Struct, frozen=True):
    """New values of ``shape``: all ``value`` (``full``), or counting up from ``value`` (``arange``)."""

    op: str
    shape: Dims
    value: Number
    result: Handle

    @property
    def handles(self) -> tuple[Handle, ...]:
        """Empty: the command has no operand."""
        return ()

    @property
    def result_bytes(self) -> int:
        """Bytes of the result."""
        return math.prod(self.shape) * self.result.dtype.itemsize

    @property
    def work(self) -> tuple[int, bool]:
        """Bytes that PE_MATH processes (the result's), and False: the function is never special."""
        return self.result_bytes, False


class TcmPiece(NamedTuple):
    """Bytes in the TCM at a physical ``address``, or at the start of the kernel's region if ``address`` is None."""

    address: int | None
    nbytes: int


class MathWork(NamedTuple):
    """Work of a PE_MATH operation: it processes ``nbytes`` in all passes, reads ``operands`` in the TCM and writes
    ``result`` there. ``is_special``: its function takes ``special_factor`` times as long.
    """

    nbytes: int
    is_special: bool
    operands: tuple[TcmPiece, ...]
    result: TcmPiece


def math_work(command: MathOp | Reduce | Cast | Rearrange | Make) -> MathWork:
    """Return the work of a PE_MATH command; call it before the command claims the slots of its operands."""
    operands = tuple([TcmPiece(each.tcm_pa, each.nbytes) for each in command.handles])
    return MathWork(*command.work, operands, TcmPiece(command.result.tcm_pa, command.result_bytes))


class View(msgspec.Struct, frozen=True):
    """The values of ``operand`` from element ``first`` on, in shape ``dims``. No bytes move, and the view takes no TCM
    space.
    """

    operand: Handle
    dims: Dims
    result: Handle
    first: int = 0


class Join(msgspec.Struct, frozen=True):
    """The values of ``operands``, which are contiguous in the TCM, as one handle. No bytes move."""

    operands: tuple[Handle, ...]
    result: Handle


class Delay(msgspec.Struct, frozen=True):
    """Keep PE_CPU busy for ``ps`` picoseconds."""

    ps: Ps


class IpcqSend(msgspec.Struct, frozen=True):
    """Send the values of a handle, or the ``nbytes`` at an address, to the peer in a direction."""

    direction: str
    source: Handle | int
    nbytes: int
    dims: Dims
    dtype: DType


class IpcqRecv(msgspec.Struct, frozen=True):
    """Receive the next message of a direction into ``result``; with ``copy_to`` also write it to a memory."""

    direction: str | Direction
    dims: Dims
    dtype: DType
    copy_to: CopyTo | None
    result: Handle

    @property
    def result_bytes(self) -> int:
        """Bytes of the expected message."""
        return math.prod(self.dims) * self.dtype.itemsize


class IpcqRelease(msgspec.Struct, frozen=True):
    """Free the slot that a handle refers to and that no command has read."""

    handle: Handle


class Completion(msgspec.Struct, eq=False):
    """Progress of a command that starts at ``start_ps`` because of span ``cause``.

    ``error``: exception with which the command failed, or None. ``value``: data of the engine, such as the received
    message, perhaps before the end. ``reason``: the resource that the command waits for, or None. ``waiter``: task
    that waits for the end. ``taken_ps``: when the engine took the command from the queue; ``then``: starts the queue's
    next commands. ``reads``: slots that the command still has to read in place.
    """

    command: Any
    start_ps: Ps
    cause: int = 0
    ended: bool = False
    error: Exception | None = None
    reason: object = None
    value: Any = None
    waiter: Task | None = None
    taken_ps: Ps = 0
    then: Callable[[], None] | None = None
    reads: tuple[TakenSlot, ...] = ()

    def has_ended(self) -> bool:
        """Return whether the command has ended. A kernel that polls this may run differently under other timings."""
        return self.ended

    def end(self) -> None:
        """End the command and resume its waiter.

        Raises:
            InvariantViolation: for a command that has ended already.
        """
        if self.ended:
            raise InvariantViolation(f"a {type(self.command).__name__} ended a second time")
        self.ended = True
        then, self.then = self.then, None
        if then is not None:
            then()
        if self.waiter is not None:
            self.waiter.resume()

    def fail(self, error: Exception) -> None:
        """End the command with an error, which its waiter raises."""
        self.error = error
        self.end()

    def waits(self, reason: object) -> None:
        """Set the resource that the command waits for now."""
        self.reason = reason
        if self.waiter is not None:
            self.waiter.waits_for = reason

    def wait(self, task: Task) -> None:
        """Block the running task until the command has ended.

        Raises:
            Exception: the command's error.
        """
        self.wait_for_end(task)
        if self.error is not None:
            raise self.error

    def wait_for_end(self, task: Task) -> None:
        """Block a task as :meth:`wait` does, but ignore the command's error: the command may be another task's."""
        if not self.ended:
            self.waiter = task
            task.wait(self.reason or type(self.command).__name__)
