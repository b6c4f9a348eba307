"""``tl``: the operations of a kernel. They block until they are done in simulated time and write to the op log.

One ``TL`` belongs to one run of a kernel on one PE. Sources: ADR-0023 D4 (send, recv), Triton (the shape of the
language).
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from sipsim.errors import IpcqInvalidDirection, KernelError
from sipsim.pe.commands import DmaRead, DmaWrite, MathOp
from sipsim.tl.futures import StoreFuture
from sipsim.tl.ipcq_ops import IpcqOps
from sipsim.tl.phases import Phase, check_name
from sipsim.tl.values import Shape, TensorHandle, as_bytes, as_shape, pointee

HANDLES = "tl.load, tl.recv, tl.wait and + return handles"
AXES = ("PE in its cube", "cube in its SIP", "SIP")


class TL(IpcqOps):
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
        return self._sip.plan.world_size

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

    def load(self, ptr: int, shape: int | Shape, dtype: object = None) -> TensorHandle:
        """Read ``shape`` elements at an address through PE_DMA; blocks until the last byte has arrived."""
        kind = pointee(ptr, dtype)
        dims = as_shape(shape)
        nbytes = math.prod(dims) * kind.itemsize
        task = self._task()
        result = TensorHandle(self, None, kind)
        address = self._translate(as_bytes(ptr), nbytes)
        self._submit(DmaRead(address, nbytes, dims, kind, result)).wait(task)
        return result

    def store(self, ptr: int, value: TensorHandle) -> None:
        """Write a handle's elements to an address through PE_DMA; blocks until the write is acknowledged.

        Raises:
            KernelError: for a value that is not a handle.
        """
        task = self._task()
        self._submit(self._store_command("tl.store", ptr, value)).wait(task)

    def store_async(self, ptr: int, value: TensorHandle) -> StoreFuture:
        """Start to write a handle's elements to an address; :meth:`wait` blocks until the write is acknowledged.

        The kernel's end waits for every store. Until then, a load of the same address may find what was there before.

        Raises:
            KernelError: for a value that is not a handle.
        """
        self._task()
        future = StoreFuture(self._pe, value, self._submit(self._store_command("tl.store_async", ptr, value)))
        self._forget_ended_stores()
        self._stores[future.completion] = value.name
        return future

    def add(self, a: TensorHandle, b: TensorHandle) -> TensorHandle:
        """``a + b`` element by element, rounded once in their type; i32 wraps.

        Raises:
            KernelError: when types or shapes differ, or an operand is not a handle.
        """
        task = self._task()
        for value in (a, b):
            if not isinstance(value, TensorHandle):
                raise KernelError(f"cannot add {type(value).__name__} to a handle; {HANDLES}")
            self._check_handle(value, "tl.add takes handles")
        if a.dtype is not b.dtype or a.shape != b.shape:
            raise KernelError(f"cannot add {a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}; make them equal")
        result = TensorHandle(self, None, a.dtype)
        self._submit(MathOp("add", (a, b), result)).wait(task)
        return result

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            known = ", ".join(each for each in dir(type(self)) if not each.startswith("_"))
            raise AttributeError(f"tl has no operation {name!r}; it has {known}")

    def _forget_ended_stores(self) -> None:
        """Those that the end of the kernel has nothing to wait for, nor an error to raise of."""
        while self._stores:
            first = next(iter(self._stores))
            if not first.ended or first.error is not None:
                break
            del self._stores[first]

    def _store_command(self, word: str, ptr: int, value: TensorHandle) -> DmaWrite:
        if not isinstance(value, TensorHandle):
            raise KernelError(f"{word} takes an address and a handle, not {type(value).__name__}; {HANDLES}")
        self._check_handle(value, f"{word} takes a handle")
        return DmaWrite(self._translate(as_bytes(ptr), value.nbytes), value)

    def _axis(self, axis: int) -> int:
        self._task()
        if type(axis) is not int or axis not in range(len(AXES)):
            raise KernelError(f"axis {axis!r} does not exist; 0 is {AXES[0]}, 1 {AXES[1]}, 2 {AXES[2]}")
        return axis


def run_kernel(kernel: Callable[..., object], args: tuple[object, ...], tl: TL) -> None:
    """Run ``kernel(*args, tl)``; called in the PE's task.

    Raises:
        KernelError: when the kernel ends with futures that it did not wait for.
        IpcqTypeMismatch: when the message of such a future does not match it.
    """
    kernel(*args, tl)
    tl._end()
    tl._pe.settle()
