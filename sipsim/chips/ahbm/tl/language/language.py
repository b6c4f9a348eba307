"""``tl``: the operations of a kernel. They block until they are done in simulated time and write to the op log.

One ``TL`` belongs to one run of a kernel on one PE. Sources: ADR-0023 D4 (send, recv), Triton (the shape of the
language; a block there is a tensor of pointers, and here a pointer, a shape and a stride).
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, cast

from sipsim.chips.ahbm.pe.commands import Delay, DmaRead, DmaReadBlock, DmaWrite, DmaWriteBlock
from sipsim.chips.ahbm.tl.futures import LoadFuture, StoreFuture
from sipsim.chips.ahbm.tl.language.gemm_ops import GemmOps
from sipsim.chips.ahbm.tl.language.math_ops import MathOps
from sipsim.chips.ahbm.tl.language.phases import Phase, check_name
from sipsim.chips.ahbm.tl.values import HANDLES, Pointer, Shape, TensorHandle, as_bytes, as_shape, pointee
from sipsim.core.dtypes import DType
from sipsim.core.errors import IpcqInvalidDirection, KernelError
from sipsim.core.registry.registry import nearest
from sipsim.core.units import ns_to_ps

LONGEST_DELAY_NS = 10**9
AXES = ("PE in its cube", "cube in its SIP", "SIP")


class TL(GemmOps, MathOps):
    """The operations of the kernel on one PE. ``translate`` turns a kernel's addresses into physical ones."""

    def program_id(self, axis: int) -> int:
        """The index of this PE in its cube (axis 0), of its cube in the SIP (1), or of its SIP (2)."""
        return (self._pe.pe, self._pe.cube, self._sip.sip)[self._axis(axis)]

    def num_programs(self, axis: int) -> int:
        """The number of PEs in a cube, cubes in a SIP, or SIPs; not the number of ranks."""
        system = self._sip.plan.system
        return (system.n_pes, system.n_cubes, system.n_sips)[self._axis(axis)]

    def phase(self, name: str) -> Phase:
        """A phase of this kernel, as a context: ``with tl.phase("reduce rows"):``. Reports name it; it takes no time.

        Raises:
            KernelError: for a name that is no short line of text.
        """
        self._task()
        return Phase(self._pe, check_name(name))

    def rank(self) -> int:
        """This PE's rank in the wiring, which counts PEs and not SIPs.

        Raises:
            KernelError: on a PE that takes no part.
        """
        self._task()
        if self._pe.rank is None:
            place = self._pe.ipcq.place
            raise KernelError(f"the PE {place} (SIP, cube, PE) has no rank; rank_per and world_size say which PEs have")
        return self._pe.rank

    def world_size(self) -> int:
        """The number of ranks in the wiring.

        Raises:
            KernelError: on a PE that takes no part.
        """
        self.rank()
        return self._pe.ipcq.world_size

    def ipcq_slots(self, dir: str) -> tuple[int, int]:
        """(n_slots, slot_size in bytes) of the peer's ring in a direction."""
        self._task()
        queue = self._pe.ipcq.queue(dir)
        return queue.peer.n_slots, queue.peer.slot_size

    def has_direction(self, dir: str) -> bool:
        """Whether a direction is installed for sending."""
        self._task()
        if not isinstance(dir, str):
            raise IpcqInvalidDirection(f"direction {dir!r} is not a name, such as 'E'")
        queue = self._pe.ipcq.queues.get(dir)
        return queue is not None and queue.can_send

    def load(self, ptr: int, shape: int | Shape, dtype: object = None, *, stride: int | None = None) -> TensorHandle:
        """Read ``shape`` elements at an address through PE_DMA; blocks until the last byte has arrived.

        With ``stride``, the elements from row to row, it reads a block of a matrix: two dimensions, by one command.

        Raises:
            KernelError: for a stride that does not fit the shape.
        """
        task = self._task()
        command = self._load_command("tl.load", ptr, shape, dtype, stride)
        self._submit(command).wait(task)
        return cast(TensorHandle, command.result)

    def load_async(
        self, ptr: int, shape: int | Shape, dtype: object = None, *, stride: int | None = None
    ) -> LoadFuture:
        """Start to read as :meth:`load` does; :meth:`wait` returns what was read. The kernel's end waits for it."""
        self._task()
        command = self._load_command("tl.load_async", ptr, shape, dtype, stride)
        result = cast(TensorHandle, command.result)
        future = LoadFuture(self._pe, result, self._submit(command))
        self._note_transfer(future.completion, result.name)
        return future

    def store(self, ptr: int, value: TensorHandle, *, stride: int | None = None) -> None:
        """Write a handle's elements to an address through PE_DMA; blocks until the write is acknowledged.

        ``stride``: as of :meth:`load`.

        Raises:
            KernelError: for a value that is not a handle; for a stride that does not fit its shape.
        """
        task = self._task()
        self._submit(self._store_command("tl.store", ptr, value, stride)).wait(task)

    def store_async(self, ptr: int, value: TensorHandle, *, stride: int | None = None) -> StoreFuture:
        """Start to write a handle's elements to an address; :meth:`wait` blocks until the write is acknowledged.

        The kernel's end waits for every store. Until then, a load of the same address may find what was there before.

        Raises:
            KernelError: as :meth:`store`.
        """
        self._task()
        command = self._store_command("tl.store_async", ptr, value, stride)
        future = StoreFuture(self._pe, value, self._submit(command))
        self._note_transfer(future.completion, value.name)
        return future

    def delay(self, ns: float) -> None:
        """Let PE_CPU be busy for a time in ns, such as that of code which the model does not time.

        Raises:
            KernelError: for anything but a time.
        """
        task = self._task()
        is_time = isinstance(ns, int | float) and not isinstance(ns, bool) and 0 <= ns <= LONGEST_DELAY_NS
        if not is_time:
            raise KernelError(f"tl.delay takes a time in ns, from 0 to {LONGEST_DELAY_NS}, not {ns!r}")
        self._submit(Delay(ns_to_ps(ns))).wait(task)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            known = [each for each in dir(type(self)) if not each.startswith("_")]
            near = nearest(name, known)
            hint = f"did you mean {near!r}? " if near else ""
            raise AttributeError(f"tl has no operation {name!r}; {hint}it has {', '.join(known)}")

    def _load_command(
        self, word: str, ptr: int, shape: int | Shape, dtype: object, stride: int | None
    ) -> DmaRead | DmaReadBlock:
        kind, dims = pointee(ptr, dtype), as_shape(shape)
        rows = None if stride is None else _rows(word, dims, kind, stride)
        result = TensorHandle(self, None, kind)
        if rows is None:
            nbytes = math.prod(dims) * kind.itemsize
            return DmaRead(self._translate(as_bytes(ptr), nbytes), nbytes, dims, kind, result)
        return DmaReadBlock(self._translate(as_bytes(ptr), _reach(*rows)), *rows, dims, kind, result)

    def _store_command(self, word: str, ptr: int, value: TensorHandle, stride: int | None) -> DmaWrite | DmaWriteBlock:
        if not isinstance(value, TensorHandle):
            raise KernelError(f"{word} takes an address and a handle, not {type(value).__name__}; {HANDLES}")
        self._check_handle(value, f"{word} takes a handle")
        if isinstance(ptr, Pointer) and ptr.dtype is not value.dtype:
            to = f"write x.to('{ptr.dtype}'), or give int(ptr) to write the bytes as they are"
            raise KernelError(f"{word} of {value!r} to elements of {ptr.dtype}; {to}")
        rows = None if stride is None else _rows(word, value.shape, value.dtype, stride)
        if rows is None:
            return DmaWrite(self._translate(as_bytes(ptr), value.nbytes), value)
        return DmaWriteBlock(self._translate(as_bytes(ptr), _reach(*rows)), *rows, value)

    def _axis(self, axis: int) -> int:
        self._task()
        if type(axis) is not int or axis not in range(len(AXES)):
            raise KernelError(f"axis {axis!r} does not exist; 0 is {AXES[0]}, 1 {AXES[1]}, 2 {AXES[2]}")
        return axis


def _rows(word: str, dims: Shape, dtype: DType, stride: object) -> tuple[int, int, int] | None:
    """Rows, their bytes, and bytes from row to row, of a matrix whose rows are ``stride`` elements apart; None if they
    are one piece.

    Raises:
        KernelError: for other than two dimensions, and for rows that overlap.
    """
    if len(dims) != 2:
        raise KernelError(f"{word} with stride= takes two dimensions, rows and columns, not {list(dims)}")
    rows, columns = dims
    if type(stride) is not int or stride < columns:
        raise KernelError(
            f"{word}: rows of {columns} elements cannot be stride={stride!r} apart; give {columns} or more"
        )
    return None if rows == 1 or stride == columns else (rows, columns * dtype.itemsize, stride * dtype.itemsize)


def _reach(rows: int, row_bytes: int, pitch: int) -> int:
    """From the first to the last byte."""
    return (rows - 1) * pitch + row_bytes


def run_kernel(kernel: Callable[..., object], args: tuple[object, ...], tl: TL) -> None:
    """Run ``kernel(*args, tl)``; called in the PE's task.

    Raises:
        KernelError: when the kernel ends with futures that it did not wait for.
        IpcqTypeMismatch: when the message of such a future does not match it.
    """
    kernel(*args, tl)
    tl._end()
    tl._pe.settle()
