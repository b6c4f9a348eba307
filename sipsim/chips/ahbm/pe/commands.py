"""Commands of a PE: what a kernel asks of it, as records; and the completion of a command.

A word of ``tl`` makes one and submits it to :mod:`sipsim.chips.ahbm.pe.engine`; the engine of its type times
it, performs it on bytes and records it. One with a ``result`` and its ``result_bytes`` takes room in the TCM
(:mod:`sipsim.chips.ahbm.pe.tcm`). Addresses are physical. ``dims`` and ``dtype`` are of the elements that are
moved.
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
    """A direction that is no name: the next message of ``ANY`` direction."""

    ANY = "any"


class Const(msgspec.Struct, frozen=True):
    """Values that come from no command: the kernel made them itself."""

    values: Array
    result: Handle

    @property
    def result_bytes(self) -> int:
        """Of the values."""
        return self.values.nbytes


class DmaRead(msgspec.Struct, frozen=True):
    """Read a block of a memory into ``result``."""

    block: Block
    dims: Dims
    dtype: DType
    result: Handle

    @property
    def result_bytes(self) -> int:
        """Of all that is read."""
        return self.block.nbytes


class DmaWrite(msgspec.Struct, frozen=True):
    """Write the values of ``operand`` to a block of a memory."""

    block: Block
    operand: Handle


class MathOp(msgspec.Struct, frozen=True):
    """An element-wise operation; ``op`` is a key of ``sipsim.core.arithmetic.operations.OPERATIONS``.

    ``operands`` are handles and numbers of type ``dtype`` (the first one of ``where`` of i8), broadcast to ``dims``.
    Without ``dims`` all are handles of the result's shape; without ``dtype`` they have that of the last.
    """

    op: str
    operands: tuple[Handle | Number, ...]
    result: Handle
    dims: Dims | None = None
    dtype: DType | None = None

    @property
    def handles(self) -> tuple[Handle, ...]:
        """The operands that are no numbers."""
        if self.dims is None:
            return self.operands  # type: ignore[return-value]
        return tuple([each for each in self.operands if isinstance(each, Handle)])

    @property
    def of_type(self) -> DType:
        """The type of the operands."""
        return self.dtype or self.handles[-1].dtype

    @property
    def shape(self) -> Dims:
        """Of the result."""
        return self.handles[0].shape if self.dims is None else self.dims

    @property
    def result_bytes(self) -> int:
        """Of its elements."""
        if self.dims is None:
            last = self.handles[-1]
            return last.nbytes // last.dtype.itemsize * self.result.dtype.itemsize
        return math.prod(self.dims) * self.result.dtype.itemsize

    @property
    def work(self) -> tuple[int, bool]:
        """Bytes that PE_MATH goes over, and whether by a special function: as many elements as the result has, in the
        operands' type, as often as the operation needs."""
        operation = OPERATIONS[self.op]
        if self.dims is None:
            return self.handles[-1].nbytes * operation.passes, operation.is_special
        return math.prod(self.dims) * self.of_type.itemsize * operation.passes, operation.is_special


class Reduce(msgspec.Struct, frozen=True):
    """A reduction of ``operand`` along ``axis``, None for all elements in their order, to ``shape``; ``op`` is a
    key of ``sipsim.core.arithmetic.operations.REDUCTIONS``."""

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
        """Of its elements."""
        return math.prod(self.shape) * self.result.dtype.itemsize

    @property
    def work(self) -> tuple[int, bool]:
        """As of :class:`MathOp`: the bytes of the operand."""
        return self.operand.nbytes, False


class Cast(msgspec.Struct, frozen=True):
    """The values of ``operand`` in the type of ``result``."""

    operand: Handle
    result: Handle

    @property
    def op(self) -> str:
        """Its name."""
        return "cast"

    @property
    def shape(self) -> Dims:
        """Of the operand."""
        return self.operand.shape

    @property
    def handles(self) -> tuple[Handle, ...]:
        """The operand."""
        return (self.operand,)

    @property
    def result_bytes(self) -> int:
        """Of its elements."""
        return math.prod(self.operand.shape) * self.result.dtype.itemsize

    @property
    def work(self) -> tuple[int, bool]:
        """As of :class:`MathOp`: the bytes of the wider type."""
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
        """Of its elements."""
        return math.prod(self.shape) * self.result.dtype.itemsize

    @property
    def work(self) -> tuple[int, bool]:
        """As of :class:`MathOp`: the bytes of the result."""
        return self.result_bytes, False


class Make(msgspec.Struct, frozen=True):
    """Values of ``shape``: all ``value`` (``full``), or counted from it (``arange``)."""

    op: str
    shape: Dims
    value: Number
    result: Handle

    @property
    def handles(self) -> tuple[Handle, ...]:
        """It has no operand."""
        return ()

    @property
    def result_bytes(self) -> int:
        """Of its elements."""
        return math.prod(self.shape) * self.result.dtype.itemsize

    @property
    def work(self) -> tuple[int, bool]:
        """As of :class:`MathOp`: the bytes of the result."""
        return self.result_bytes, False


class Piece(NamedTuple):
    """Bytes in the TCM at a physical ``address``; None: at the start of the kernel's region."""

    address: int | None
    nbytes: int


class MathWork(NamedTuple):
    """The work of an operation of PE_MATH: it goes over ``nbytes`` in all its passes, reads ``operands`` in the TCM and
    writes ``result`` there. ``is_special``: its function takes ``special_factor`` times as long.
    """

    nbytes: int
    is_special: bool
    operands: tuple[Piece, ...]
    result: Piece


def math_work(command: MathOp | Reduce | Cast | Rearrange | Make) -> MathWork:
    """The work of a command of PE_MATH, with the addresses of its operands before it claims their slots."""
    operands = tuple([Piece(each.tcm_pa, each.nbytes) for each in command.handles])
    return MathWork(*command.work, operands, Piece(command.result.tcm_pa, command.result_bytes))


class View(msgspec.Struct, frozen=True):
    """The values of ``operand`` in another shape, or a part of them: as many as fill ``dims``, from the one of number
    ``first`` on. No bytes move, and it takes no room of its own.
    """

    operand: Handle
    dims: Dims
    result: Handle
    first: int = 0


class Join(msgspec.Struct, frozen=True):
    """The values of ``operands``, which lie one behind the other, as one. No bytes move."""

    operands: tuple[Handle, ...]
    result: Handle


class Delay(msgspec.Struct, frozen=True):
    """The kernel waits for ``ps``."""

    ps: Ps


class IpcqSend(msgspec.Struct, frozen=True):
    """Send the values of a handle, or the ``nbytes`` at an address, to the peer in a direction."""

    direction: str
    source: Handle | int
    nbytes: int
    dims: Dims
    dtype: DType


class IpcqRecv(msgspec.Struct, frozen=True):
    """Receive the next message of a direction into ``result``, and into a memory with ``copy_to``."""

    direction: str | Direction
    dims: Dims
    dtype: DType
    copy_to: CopyTo | None
    result: Handle

    @property
    def result_bytes(self) -> int:
        """Of the message that is expected."""
        return math.prod(self.dims) * self.dtype.itemsize


class IpcqRelease(msgspec.Struct, frozen=True):
    """Give back the slot that a handle stands for, which no command has named."""

    handle: Handle


class Completion(msgspec.Struct, eq=False):
    """The progress of a command that was submitted at ``start_ps``, released by span ``cause``.

    Once it has ended, ``error`` is its error, if it has one. ``value``: what an engine tells of it, such as the message
    that was received, which may be before its end. ``reason`` says what it waits for, None for its own work, and
    ``waiter`` is the task that waits for its end. ``taken_ps``: when its engine took it from its queue; ``then`` starts
    those behind it there. ``reads``: slots that it reads in place, and has not yet.
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
        """What a kernel is told that asks: the answer depends on time."""
        return self.ended

    def end(self) -> None:
        """The command has ended: its waiter resumes.

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
        """The command has ended with an error, which its waiter raises."""
        self.error = error
        self.end()

    def waits(self, reason: object) -> None:
        """Note what the command waits for now."""
        self.reason = reason
        if self.waiter is not None:
            self.waiter.waits_for = reason

    def wait(self, task: Task) -> None:
        """Block a task, which is running, until the command has ended; at once if it has.

        Raises:
            Exception: the command's error.
        """
        self.wait_for_end(task)
        if self.error is not None:
            raise self.error

    def wait_for_end(self, task: Task) -> None:
        """Block a task as :meth:`wait` does, whose command this need not be: an error is left to who waits for that."""
        if not self.ended:
            self.waiter = task
            task.wait(self.reason or type(self.command).__name__)
