"""``tl``: the operations of a kernel. They block until they are done in simulated time and write to the op log.

One ``TL`` belongs to one run of a kernel on one PE. ``send`` and ``recv`` are from ADR-0023 D4. Operations on values,
except ``relu`` and ``gelu``, have the names of Triton. A block in Triton is a tensor of pointers; a block of ``tl`` is
a pointer, a shape and a stride.

Operands are handles of one type, and numbers, which are first rounded to that type. Shapes broadcast as in NumPy.
:mod:`sipsim.core.arithmetic.operations` defines the results. PE_MATH writes the values of ``zeros``, ``full`` and
``arange``, which takes time in proportion to their bytes.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, cast

from sipsim.chips.ahbm.address import SPACES, Block, PhysAddr
from sipsim.chips.ahbm.gemm.commands import BIAS, SCALE, UNARY, Dot, EpilogueStep, Gemm, Matrix
from sipsim.chips.ahbm.gemm.tiling import Product
from sipsim.chips.ahbm.ipcq.messages import CopyTo
from sipsim.chips.ahbm.pe.commands import (
    Cast,
    Completion,
    Delay,
    Direction,
    DmaRead,
    DmaWrite,
    IpcqRecv,
    IpcqRelease,
    IpcqSend,
    Join,
    Make,
    MathOp,
    Number,
    Rearrange,
    Reduce,
    View,
)
from sipsim.chips.ahbm.tl.arguments import (
    ALLOWED,
    AXES,
    F32,
    I8,
    I32,
    LONGEST_DELAY_NS,
    NAMES,
    SEPARATOR,
    HandleOrNumber,
    as_dtype,
    as_number,
    as_shape,
    axis_of,
    broadcast,
    check_name,
    mixed,
    pitches_of,
    pointee,
    product_of,
    rows_of,
    text_of,
    types_of,
)
from sipsim.chips.ahbm.tl.context import KernelContext
from sipsim.chips.ahbm.tl.futures import Future, RecvFuture, StoreFuture
from sipsim.chips.ahbm.tl.values import HANDLES, Pointer, Shape, TensorHandle, as_bytes
from sipsim.core.arithmetic.operations import OPERATIONS, result_dtype
from sipsim.core.dtypes import DType
from sipsim.core.errors import IpcqInvalidDirection, KernelError
from sipsim.core.registry import nearest
from sipsim.core.task import Task
from sipsim.core.units import format_time_ps, ns_to_ps

FUTURES = "tl.recv_async, load_async, store_async or gemm_async"
ENDED_TRANSFERS = 4
"""Number of a kernel's transfers above which ended transfers are first dropped."""


class Phase:
    """Named part of a kernel's code, by which reports divide the time.

    Commands inside ``with tl.phase(name):`` belong to the phase; an inner phase is named ``outer / inner``. A phase
    takes no simulated time. It may be entered again after it was left.
    """

    __slots__ = ("_before", "_is_entered", "_name", "_pe")

    def __init__(self, pe: KernelContext, name: str) -> None:
        self._pe = pe
        self._name = name
        self._before = ""
        self._is_entered = False

    def __enter__(self) -> None:
        if self._is_entered:
            raise KernelError(f"phase {self._name!r} is entered already; call tl.phase again for a new phase")
        self._is_entered = True
        before = self._before = self._pe.phase
        self._pe.enter_phase(f"{before}{SEPARATOR}{self._name}" if before else self._name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_entered = False
        self._pe.enter_phase(self._before)


class TL:
    """Operations of the kernel on one PE. ``translate(address, nbytes)`` returns the physical address."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            operations = [each for each in dir(type(self)) if not each.startswith("_")]
            near = nearest(name, operations)
            hint = f"did you mean {near!r}? " if near else ""
            raise AttributeError(f"tl has no operation {name!r}; {hint}tl has {', '.join(operations)}")

    def __init__(self, pe: KernelContext, translate: Callable[[int, int], int]) -> None:
        self._pe = pe
        self._submit = pe.submit
        self._number_handle = pe.number_handle
        self._translate = translate
        self._translates_slots = pe.translates_slots
        self._here = f"{pe.sip}.{pe.cube}.{pe.pe}"
        self._futures: dict[RecvFuture, None] = {}
        self._transfers: OrderedDict[Completion, str] = OrderedDict()
        self._transfer_limit = ENDED_TRANSFERS
        self._has_ended = False

    @property
    def last_polled_dir(self) -> str | None:
        """The direction that served the last ``recv`` without a direction; the next search starts after it."""
        self._task()
        return self._pe.last_polled_dir

    def send(
        self,
        dir: str,
        src: TensorHandle | None = None,
        *,
        src_addr: int | None = None,
        nbytes: int | None = None,
        shape: int | Shape | None = None,
        dtype: object = None,
        space: str | None = None,
    ) -> None:
        """Send a handle, or the elements at ``src_addr``, to the peer in a direction.

        With an address, give ``shape`` or ``nbytes``, and ``dtype`` unless the pointer has a type; ``space`` (tcm, hbm,
        sram) is checked against the address. Blocks while the peer's ring is full, then reads the source and returns
        without waiting for the arrival. For a source outside the PE's TCM the message's time includes the transfer to
        the PE.

        Raises:
            IpcqInvalidDirection: for a direction that is not installed.
            IpcqMessageTooLarge: if the message does not fit a slot.
            KernelError: for an invalid source.
        """
        task = self._task()
        command = self._send_command(dir, src, src_addr, nbytes, shape, dtype, space)
        if self._translates_slots:
            self._pe.translate_slot(dir, command.nbytes)
        sending = self._submit(command)
        if not sending.ended:
            sending.wait(task)

    def recv(
        self,
        dir: str | None = None,
        shape: int | Shape | None = None,
        dtype: object = None,
        *,
        dst_addr: int | None = None,
        dst_space: str | None = None,
    ) -> TensorHandle:
        """Return the next message from a direction as an array of ``shape``; block until its slot is returned.

        Without ``dir`` the message may be from any direction; the search is round-robin after ``last_polled_dir``. With
        ``dst_addr`` (``copy_to_dst``) the message is copied there before its slot is returned.

        Raises:
            IpcqInvalidDirection: for a direction that is not installed.
            IpcqTypeMismatch: for a message of another size, and under ``strict_validation`` of another type or shape.
            KernelError: for an invalid shape, type or destination.
        """
        task = self._task()
        direction = Direction.ANY if dir is None else dir
        command, handle = self._recv_command(direction, shape, dtype, dst_addr, dst_space)
        self._submit(command).wait(task)
        return handle

    def recv_async(
        self,
        dir: str,
        shape: int | Shape | None = None,
        dtype: object = None,
        *,
        dst_addr: int | None = None,
        dst_space: str | None = None,
    ) -> RecvFuture:
        """Post a receive for the next message of a direction; :meth:`wait` returns the message. Receives are served in
        order. A kernel that ends before it has waited for all its receives raises an error (:func:`run_kernel`).

        Raises:
            IpcqInvalidDirection: for a direction that is not installed.
            KernelError: for an invalid shape, type or destination.
        """
        self._task()
        command, handle = self._recv_command(dir, shape, dtype, dst_addr, dst_space)
        future = RecvFuture(self._pe, self._submit(command), handle, dir, command)
        self._futures[future] = None
        return future

    def wait(self, future: Future) -> TensorHandle:
        """Block until a receive, load, store or gemm has ended; a second call returns the same handle.

        Returns the message of a receive, the values of a load, the stored handle of a store, None for a gemm. After the
        first wait for a store its future no longer holds the handle.

        Raises:
            IpcqTypeMismatch: as ``recv``.
            KernelError: for anything but a future of this kernel's PE; for a second wait for a store whose handle the
                kernel has dropped.
        """
        if not isinstance(future, Future):
            raise KernelError(f"tl.wait takes a future of {FUTURES}, not {future!r}")
        if future.pe is not self._pe:
            raise KernelError(f"tl.wait on PE {self._here} got a future of another PE; wait for it on that PE")
        task = self._task()
        if isinstance(future, RecvFuture):
            self._futures.pop(future, None)
        else:
            self._transfers.pop(future.completion, None)
        future.completion.wait(task)
        return future.result()

    def release(self, handle: TensorHandle) -> None:
        """Free a handle, which no command may use afterwards. If it refers to a slot (``latch: in_place``), return the
        slot, and block as ``recv`` does until the credit has been emitted. Also block until stores of the handle have
        ended; otherwise the release takes no time.

        Raises:
            KernelError: for anything but a handle that is not released.
        """
        task = self._task()
        self._check_handle(handle, "tl.release takes a handle")
        for store in [each for each, name in self._transfers.items() if name == handle.name]:
            store.wait(task)
        if handle.in_slot is not None:
            self._submit(IpcqRelease(handle)).wait(task)
        handle.is_released, handle.room = True, None

    def _note_transfer(self, completion: Completion, name: str = "") -> None:
        """Record a load, store or gemm of the handle ``name``, for which the kernel's end waits. Transfers that have
        ended without an error are dropped from time to time, so their number stays bounded.
        """
        if len(self._transfers) >= self._transfer_limit:
            for each in [each for each in self._transfers if each.ended and each.error is None]:
                del self._transfers[each]
            self._transfer_limit = 2 * len(self._transfers) + ENDED_TRANSFERS
        self._transfers[completion] = name

    def _check_handle(self, value: object, what: str) -> None:
        """Check that a command may use a handle."""
        if not isinstance(value, TensorHandle):
            raise KernelError(f"{what}, not {type(value).__name__}")
        if value._tl is not self:
            raise KernelError(
                f"{what} of this kernel; {value.name} is a handle of another kernel, "
                f"which must send its values, or store them for this kernel to load"
            )
        if value.is_released:
            raise KernelError(f"handle {value.name} was given to tl.release; no command can use a released handle")

    def _end(self) -> None:
        """Wait for the loads, stores and gemms that have not ended.

        A receive without a wait is an error: it would take a message of the next kernel, or lose its message.
        """
        while self._transfers:
            store, _ = self._transfers.popitem(last=False)
            store.wait(self._task())
        self._has_ended = True
        for future in self._futures:
            if future.completion.error is not None:
                raise future.completion.error
        if self._futures:
            future = next(iter(self._futures))
            what = f"{future.command.dtype}{list(future.command.dims)}"
            state = "has no message" if future.completion.value is None else "would lose its message"
            more = f", and for {len(self._futures) - 1} more" if len(self._futures) > 1 else ""
            raise KernelError(
                f"the kernel has ended without tl.wait for its recv_async {future.direction} of "
                f"{what}, posted at {format_time_ps(future.completion.start_ps)}, "
                f"which {state}{more}; call tl.wait for every future",
                direction=future.direction,
            )

    def _recv_command(
        self,
        dir: str | Direction,
        shape: int | Shape | None,
        dtype: object,
        dst_addr: int | None,
        dst_space: str | None,
    ) -> tuple[IpcqRecv, TensorHandle]:
        if shape is None:
            raise KernelError("tl.recv needs shape= and dtype= of the message")
        dims, copy_to = as_shape(shape), None
        if dst_addr is not None:
            kind = pointee(dst_addr, dtype)
            copy_to = self._destination(dst_addr, dst_space, dims, kind)
        elif dst_space is not None:
            raise KernelError("tl.recv has dst_space= without dst_addr=; give the address to copy the message to")
        else:
            kind = as_dtype(dtype)
        handle = TensorHandle(self, None, kind)
        return IpcqRecv(dir, dims, kind, copy_to, handle), handle

    def _destination(self, dst_addr: int, dst_space: str | None, dims: Shape, kind: DType) -> CopyTo:
        nbytes = math.prod(dims) * kind.itemsize
        address = self._translate(as_bytes(dst_addr), nbytes)
        self._check_place(address, nbytes, dst_space)
        return CopyTo(address, nbytes)

    def _send_command(
        self,
        dir: str,
        src: TensorHandle | None,
        src_addr: int | None,
        nbytes: int | None,
        shape: int | Shape | None,
        dtype: object,
        space: str | None,
    ) -> IpcqSend:
        if src is not None:
            if not isinstance(src, TensorHandle):
                raise KernelError(f"tl.send takes a handle, not {type(src).__name__}; give addresses as src_addr=")
            if not (src_addr is nbytes is shape is dtype is space is None):
                raise KernelError("tl.send takes either a handle, which has a type and a shape, or src_addr=; not both")
            self._check_handle(src, "tl.send takes a handle")
            return IpcqSend(dir, src, src.nbytes, src.shape, src.dtype)
        if src_addr is None or (shape is None and nbytes is None):
            raise KernelError("tl.send needs a handle, or src_addr and shape")
        if nbytes is not None and (not isinstance(nbytes, int) or nbytes < 1):
            raise KernelError(f"tl.send: nbytes={nbytes!r} is not a size; give at least 1 byte")
        kind = pointee(src_addr, dtype)
        dims = as_shape(shape) if shape is not None else (max((nbytes or 0) // kind.itemsize, 1),)
        size = math.prod(dims) * kind.itemsize
        if nbytes is not None and nbytes != size:
            raise KernelError(
                f"tl.send of nbytes={nbytes} does not agree with {kind}{list(dims)}, which has {size} bytes"
            )
        address = self._translate(as_bytes(src_addr), size)
        self._check_place(address, size, space)
        return IpcqSend(dir, address, size, dims, kind)

    def _check_place(self, address: int, nbytes: int, space: str | None) -> None:
        """Check that a range is in this SIP's memory and in the space that the kernel gives."""
        if space is not None and not (isinstance(space, str) and space in SPACES):
            raise KernelError(f"space {space!r} is not known; allowed: {', '.join(SPACES)}")
        self._pe.check_memory(address, nbytes)
        place = PhysAddr.decode(address)
        if space not in (None, place.space):
            raise KernelError(f"{place} is not in space {space}; give space {place.space}, or none")

    def _task(self) -> Task:
        """Return the task of this kernel, which must be running.

        Raises:
            KernelError: if another kernel is running, on another PE or later on this PE.
        """
        task = self._pe.task
        if task is None or not task.is_current or self._has_ended:
            raise KernelError(
                f"this tl belongs to another kernel, on PE {self._here} (SIP, cube, PE); "
                f"use the tl that the running kernel was called with"
            )
        return task

    def program_id(self, axis: int) -> int:
        """Return the index of this PE in its cube (axis 0), of its cube in the SIP (1), or of its SIP (2)."""
        return (self._pe.pe, self._pe.cube, self._pe.sip)[self._axis(axis)]

    def num_programs(self, axis: int) -> int:
        """Return the number of PEs per cube (axis 0), cubes per SIP (1), or SIPs (2); not the number of ranks."""
        return self._pe.sizes[self._axis(axis)]

    def phase(self, name: str) -> Phase:
        """Return a phase of this kernel as a context manager: ``with tl.phase("reduce rows"):``. It takes no time.

        Raises:
            KernelError: for a name that is not a short line of text.
        """
        self._task()
        return Phase(self._pe, check_name(name))

    def rank(self) -> int:
        """Return this PE's rank in the wiring, which counts PEs and not SIPs.

        Raises:
            KernelError: on a PE that takes no part.
        """
        self._task()
        if self._pe.rank is None:
            place = self._pe.sip, self._pe.cube, self._pe.pe
            raise KernelError(f"the PE {place} (SIP, cube, PE) has no rank; rank_per and world_size select the ranks")
        return self._pe.rank

    def world_size(self) -> int:
        """Return the number of ranks in the wiring.

        Raises:
            KernelError: on a PE that takes no part.
        """
        self.rank()
        return self._pe.world_size

    def ipcq_slots(self, dir: str) -> tuple[int, int]:
        """Return (n_slots, slot_size in bytes) of the peer's ring in a direction."""
        self._task()
        return self._pe.peer_ring(dir)

    def has_direction(self, dir: str) -> bool:
        """Return whether a direction is installed for sending."""
        self._task()
        if not isinstance(dir, str):
            raise IpcqInvalidDirection(f"direction {dir!r} is not a name; give a name such as 'E'")
        return self._pe.can_send(dir)

    def load(self, ptr: int, shape: int | Shape, dtype: object = None, *, stride: int | None = None) -> TensorHandle:
        """Read ``shape`` elements at an address through PE_DMA; block until the last byte has arrived.

        ``stride``: elements from row to row of a matrix, to read a two-dimensional block of it with one command.

        Raises:
            KernelError: for a stride that does not fit the shape.
        """
        task = self._task()
        command = self._load_command("tl.load", ptr, shape, dtype, stride)
        self._submit(command).wait(task)
        return cast(TensorHandle, command.result)

    def load_async(self, ptr: int, shape: int | Shape, dtype: object = None, *, stride: int | None = None) -> Future:
        """Start a load as :meth:`load`; :meth:`wait` returns its handle. The kernel's end waits for the load."""
        self._task()
        command = self._load_command("tl.load_async", ptr, shape, dtype, stride)
        result = cast(TensorHandle, command.result)
        future = Future(self._pe, self._submit(command), result)
        self._note_transfer(future.completion, result.name)
        return future

    def store(self, ptr: int, value: TensorHandle, *, stride: int | None = None) -> None:
        """Write a handle's elements to an address through PE_DMA; block until the write is acknowledged.

        ``stride``: as for :meth:`load`.

        Raises:
            KernelError: for a value that is not a handle; for a stride that does not fit its shape.
        """
        task = self._task()
        self._submit(self._store_command("tl.store", ptr, value, stride)).wait(task)

    def store_async(self, ptr: int, value: TensorHandle, *, stride: int | None = None) -> StoreFuture:
        """Start a store of a handle's elements; :meth:`wait` blocks until the write is acknowledged.

        The kernel's end waits for every store. Until then, another PE's load of the address may return the old values,
        and later stores to other addresses may complete first. Loads of this kernel return what it has stored, unless
        engines have no queues (``pe_scheduler.queue_depth: null``).

        Raises:
            KernelError: as :meth:`store`.
        """
        self._task()
        command = self._store_command("tl.store_async", ptr, value, stride)
        future = StoreFuture(self._pe, self._submit(command), value)
        self._note_transfer(future.completion, value.name)
        return future

    def delay(self, ns: float) -> None:
        """Keep PE_CPU busy for a time in ns, for example for code that the model does not time.

        Raises:
            KernelError: for anything but a number from 0 to ``LONGEST_DELAY_NS``.
        """
        task = self._task()
        is_time = isinstance(ns, int | float) and not isinstance(ns, bool) and 0 <= ns <= LONGEST_DELAY_NS
        if not is_time:
            raise KernelError(f"tl.delay takes a time in ns, from 0 to {LONGEST_DELAY_NS}, not {ns!r}")
        self._submit(Delay(ns_to_ps(ns))).wait(task)

    def _load_command(self, word: str, ptr: int, shape: int | Shape, dtype: object, stride: int | None) -> DmaRead:
        kind, dims = pointee(ptr, dtype), as_shape(shape)
        block = self._block(word, ptr, dims, kind, stride)
        return DmaRead(block, dims, kind, TensorHandle(self, None, kind))

    def _block(self, word: str, ptr: int, dims: Shape, dtype: DType, stride: int | None) -> Block:
        """Return the block of elements at a pointer: contiguous, or in rows ``stride`` elements apart."""
        nbytes = math.prod(dims) * dtype.itemsize
        rows = (1, nbytes, nbytes) if stride is None else rows_of(word, dims, dtype, stride)
        block = Block(as_bytes(ptr), *rows)
        address = self._translate(block.address, block.reach_bytes)
        return Block(address, block.rows, block.row_bytes, block.pitch)

    def _store_command(self, word: str, ptr: int, value: TensorHandle, stride: int | None) -> DmaWrite:
        if not isinstance(value, TensorHandle):
            raise KernelError(f"{word} takes an address and a handle, not {type(value).__name__}; {HANDLES}")
        self._check_handle(value, f"{word} takes a handle")
        if isinstance(ptr, Pointer) and ptr.dtype is not value.dtype:
            to = f"write x.to('{ptr.dtype}'), or give int(ptr) to write the bytes as they are"
            raise KernelError(f"{word} of {value!r} to an address of {ptr.dtype}: the types differ; {to}")
        return DmaWrite(self._block(word, ptr, value.shape, value.dtype, stride), value)

    def _axis(self, axis: int) -> int:
        self._task()
        if type(axis) is not int or axis not in range(len(AXES)):
            raise KernelError(f"axis {axis!r} does not exist; give 0 ({AXES[0]}), 1 ({AXES[1]}) or 2 ({AXES[2]})")
        return axis

    def dot(self, a: TensorHandle, b: TensorHandle, acc: TensorHandle | None = None) -> TensorHandle:
        """Return ``a @ b`` or ``acc + a @ b``, handles of shapes (M, K) and (K, N): (M, N) of f32, of i32 for integers.

        The products are added to ``acc``, or to +0, in the order of k (:mod:`sipsim.core.arithmetic.matmul`). Blocks
        until the result is in the TCM.

        Raises:
            KernelError: for types or shapes that do not fit.
        """
        task = self._task()
        for name, value in (("a", a), ("b", b), ("acc", acc)):
            if value is not None or name != "acc":
                self._check_handle(value, "tl.dot takes handles")
        if a.dtype is not b.dtype:
            raise KernelError(f"tl.dot takes operands of one type, not {a.dtype} and {b.dtype}; convert one by tl.cast")
        if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
            shapes = f"{list(a.shape)} and {list(b.shape)}"
            raise KernelError(f"tl.dot takes an (M, K) and a (K, N) handle, not {shapes}")
        product, kind = Product(*a.shape, b.shape[1]), a.dtype.accumulator
        if acc is not None and (acc.dtype is not kind or acc.shape != (product.m, product.n)):
            what = f"{acc.dtype}{list(acc.shape)}"
            raise KernelError(f"tl.dot adds to an acc of {kind}{[product.m, product.n]}, not of {what}")
        result = TensorHandle(self, None, kind)
        self._submit(Dot(a, b, acc, product, result)).wait(task)
        return result

    def gemm(
        self,
        a_ptr: int,
        b_ptr: int,
        c_ptr: int,
        shape: Sequence[int],
        *,
        strides: Sequence[int | None] | None = None,
        dtype: object = None,
        out_dtype: object = None,
        epilogue: object = (),
    ) -> None:
        """Compute ``c = epilogue(a @ b)`` of matrices in this SIP's memories, a composite command; block until c is
        written.

        ``shape``: (M, K, N). ``strides``: elements from row to row of a, b and c; None for contiguous rows. ``dtype``:
        type of a and b, ``out_dtype``: type of c, for untyped addresses. ``epilogue``: steps on the sums, of f32 or
        i32, before the cast: ``"relu"``, ``"gelu"``, ``("scale", number)``, ``("bias", address)`` of a row of N
        elements. The command takes at most ``pe_gemm.buffer_KiB`` of the TCM while it runs.

        Raises:
            KernelError: for types, shapes, strides or steps that do not fit, or if c overlaps an operand.
            MemoryAccessError: for a matrix outside the memories of this SIP.
            TcmFull: if the buffer does not fit.
        """
        self._submit(self._gemm("tl.gemm", a_ptr, b_ptr, c_ptr, shape, strides, dtype, out_dtype, epilogue)).wait(
            self._task()
        )

    def gemm_async(
        self,
        a_ptr: int,
        b_ptr: int,
        c_ptr: int,
        shape: Sequence[int],
        *,
        strides: Sequence[int | None] | None = None,
        dtype: object = None,
        out_dtype: object = None,
        epilogue: object = (),
    ) -> Future:
        """Start a gemm as :meth:`gemm`; :meth:`wait` blocks until c is written, as does the kernel's end.

        Raises:
            KernelError: as :meth:`gemm`; :meth:`wait` raises later errors.
        """
        command = self._gemm("tl.gemm_async", a_ptr, b_ptr, c_ptr, shape, strides, dtype, out_dtype, epilogue)
        future = Future(self._pe, self._submit(command), None)
        self._note_transfer(future.completion)
        return future

    def _gemm(
        self,
        word: str,
        a_ptr: int,
        b_ptr: int,
        c_ptr: int,
        shape: Sequence[int],
        strides: Sequence[int | None] | None,
        dtype: object,
        out_dtype: object,
        epilogue: object,
    ) -> Gemm:
        self._task()
        product = product_of(word, shape)
        m, k, n = product
        kind, out = types_of(word, (a_ptr, b_ptr, c_ptr), dtype, out_dtype)
        steps = self._steps(word, epilogue, n, kind.accumulator)
        places = ("a", a_ptr, m, k, kind), ("b", b_ptr, k, n, kind), ("c", c_ptr, m, n, out)
        pitches = pitches_of(word, strides)
        matrices, ranges = [], []
        for (name, ptr, rows, columns, each), pitch in zip(places, pitches, strict=True):
            if pitch is not None and pitch < columns:
                raise KernelError(f"{word}: stride {pitch} of {name} is too small; its rows have {columns} elements")
            step_bytes = (columns if pitch is None else pitch) * each.itemsize
            reach_bytes = (rows - 1) * step_bytes + columns * each.itemsize
            address = self._translate(as_bytes(ptr), reach_bytes)
            self._pe.check_memory(address, reach_bytes)
            matrices.append(Matrix(address, step_bytes))
            ranges.append((address, reach_bytes))
        ranges += [(each.address, n * each.dtype.itemsize) for each in steps if each.dtype is not None]
        self._check_apart(word, ranges)
        return Gemm(matrices[0], matrices[1], matrices[2], product, kind, out, steps)

    def _check_apart(self, word: str, ranges: list[tuple[int, int]]) -> None:
        """Check that c overlaps no operand. ``ranges``: address and bytes of a, b, c and of bias rows; a byte may have
        several addresses.
        """
        canonical = self._pe.canonical
        spans = [(canonical(address), canonical(address) + nbytes) for address, nbytes in ranges]
        begin, end = spans.pop(2)
        for index, (first, stop) in enumerate(spans):
            if begin < stop and first < end:
                name = ("a", "b", "the bias")[min(index, 2)]
                raise KernelError(f"{word}: c overlaps {name}, which is read while c is written; give c other memory")

    def _steps(self, word: str, epilogue: object, n: int, accumulator: DType) -> tuple[EpilogueStep, ...]:
        if isinstance(epilogue, str):
            epilogue = (epilogue,)
        if not isinstance(epilogue, tuple | list):
            raise KernelError(f"{word}: epilogue {epilogue!r} is no sequence of steps; allowed steps: {ALLOWED}")
        return tuple(self._step(word, each, n, accumulator) for each in epilogue)

    def _step(self, word: str, step: object, n: int, accumulator: DType) -> EpilogueStep:
        is_pair = isinstance(step, tuple | list) and len(step) == 2
        name: Any = step[0] if is_pair else step  # type: ignore[index]
        value: Any = step[1] if is_pair else None  # type: ignore[index]
        if name == BIAS and is_pair:
            kind = value.dtype if isinstance(value, Pointer) else accumulator
            if kind.accumulator is not accumulator:
                raise KernelError(f"{word}: sums of {accumulator} need a bias of {accumulator}, not of {kind}")
            nbytes = n * kind.itemsize
            address = self._translate(as_bytes(value), nbytes)
            self._pe.check_memory(address, nbytes)
            return EpilogueStep(BIAS, 0, address, kind)
        if name == SCALE and isinstance(value, int | float) and not isinstance(value, bool):
            if accumulator.is_float:
                return EpilogueStep(SCALE, float(value))
            if isinstance(value, int) and -(2**31) <= value < 2**31:
                return EpilogueStep(SCALE, value)
            raise KernelError(f"{word}: the scale of sums of {accumulator} must be an i32, not {value!r}")
        if name in UNARY and not is_pair:
            if OPERATIONS[str(name)].is_of_floats and not accumulator.is_float:
                raise KernelError(f"{word}: {name} is not defined for sums of {accumulator}; use operands of floats")
            return EpilogueStep(str(name))
        raise KernelError(f"{word}: {step!r} is no step of an epilogue; allowed steps: {ALLOWED}")

    def zeros(self, shape: int | Shape, dtype: object) -> TensorHandle:
        """Return an array of zeros."""
        return self._make("full", as_shape(shape), 0, as_dtype(dtype))

    def full(self, shape: int | Shape, value: Number, dtype: object) -> TensorHandle:
        """Return an array whose elements are all ``value``, rounded to the type."""
        return self._make("full", as_shape(shape), value, as_dtype(dtype))

    def arange(self, start: int, end: int, dtype: object = "i32") -> TensorHandle:
        """Return the integers from ``start`` to below ``end``, in one dimension.

        Raises:
            KernelError: if the range is empty, or has an integer that the type cannot represent.
        """
        kind = as_dtype(dtype)
        if type(start) is not int or type(end) is not int or end <= start:
            raise KernelError(f"tl.arange({start!r}, {end!r}): give two ints, the second larger than the first")
        limit = kind.exact_int
        if limit is not None and max(abs(start), abs(end - 1)) > limit:
            raise KernelError(f"tl.arange({start}, {end}): {kind} holds integers up to {limit} exactly; use 'i32'")
        as_number(end - 1, kind, "tl.arange")
        return self._make("arange", (end - start,), start, kind)

    def add(self, a: HandleOrNumber, b: HandleOrNumber) -> TensorHandle:
        """Return ``a + b``, element-wise, rounded once in their type; integers wrap.

        Raises:
            KernelError: if types differ, shapes do not broadcast, or an operand is neither a handle nor a number.
        """
        return self._operate("add", a, b)

    def maximum(self, a: HandleOrNumber, b: HandleOrNumber) -> TensorHandle:
        """Return the larger of each pair of elements, NaN if either is NaN; along an axis use :meth:`max`."""
        return self._operate("max", a, b)

    def minimum(self, a: HandleOrNumber, b: HandleOrNumber) -> TensorHandle:
        """Return the smaller of each pair of elements, NaN if either is NaN; along an axis use :meth:`min`."""
        return self._operate("min", a, b)

    def abs(self, x: TensorHandle) -> TensorHandle:
        """Return the absolute value of each element."""
        return self._operate("abs", x)

    def exp(self, x: TensorHandle) -> TensorHandle:
        """Return e to the power of each element; only for floats."""
        return self._operate("exp", x)

    def log(self, x: TensorHandle) -> TensorHandle:
        """Return the natural logarithm of each element; only for floats."""
        return self._operate("log", x)

    def sqrt(self, x: TensorHandle) -> TensorHandle:
        """Return the square root of each element; only for floats."""
        return self._operate("sqrt", x)

    def rsqrt(self, x: TensorHandle) -> TensorHandle:
        """Return the reciprocal of the square root of each element; only for floats."""
        return self._operate("rsqrt", x)

    def relu(self, x: TensorHandle) -> TensorHandle:
        """Return the larger of each element and 0."""
        return self._operate("relu", x)

    def gelu(self, x: TensorHandle) -> TensorHandle:
        """Return the GELU of each element, in its tanh form; only for floats."""
        return self._operate("gelu", x)

    def where(self, mask: TensorHandle, x: HandleOrNumber, y: HandleOrNumber) -> TensorHandle:
        """Return ``x`` where ``mask`` is not 0, else ``y``. ``mask`` is i8, the type of comparisons.

        If ``x`` and ``y`` are numbers, the result is f32, or i32 for two ints.

        Raises:
            KernelError: as :meth:`add`; for a mask of another type.
        """
        if not isinstance(mask, TensorHandle) or mask.dtype is not I8:
            what = f"{mask.name} of {mask.dtype}" if isinstance(mask, TensorHandle) else type(mask).__name__
            raise KernelError(f"tl.where takes a mask of i8, not {what}; a comparison such as x > 0 returns a mask")
        dtype = None
        if not isinstance(x, TensorHandle) and not isinstance(y, TensorHandle):
            dtype = I32 if isinstance(x, int) and isinstance(y, int) else F32
        return self._operate("where", x, y, mask=mask, dtype=dtype)

    def sum(self, x: TensorHandle, axis: int | None = None, keep_dims: bool = False) -> TensorHandle:
        """Return the sum along an axis, or of all elements, in f32 or i32; the order of additions is a tree."""
        return self._reduce("tl.sum", "sum", x, axis, keep_dims)

    def max(self, x: TensorHandle, axis: int | None = None, keep_dims: bool = False) -> TensorHandle:
        """Return the largest element along an axis, or of all elements; for two operands use :meth:`maximum`."""
        return self._reduce("tl.max", "reduce_max", x, axis, keep_dims)

    def min(self, x: TensorHandle, axis: int | None = None, keep_dims: bool = False) -> TensorHandle:
        """Return the smallest element along an axis, or of all elements; for two operands use :meth:`minimum`."""
        return self._reduce("tl.min", "reduce_min", x, axis, keep_dims)

    def cast(self, x: TensorHandle, dtype: object) -> TensorHandle:
        """Return the values in another type, rounded to nearest, ties to even; floats to integers towards zero, clamped
        to the range of the type. If ``x`` has that type already, ``x`` itself is returned.
        """
        task, kind = self._task(), as_dtype(dtype)
        self._check_handle(x, "tl.cast takes a handle")
        if x.dtype is kind:
            return x
        result = TensorHandle(self, None, kind)
        self._submit(Cast(x, result)).wait(task)
        return result

    def trans(self, x: TensorHandle) -> TensorHandle:
        """Return the transpose of a matrix, written by PE_MATH.

        Raises:
            KernelError: unless ``x`` has two dimensions.
        """
        self._check_handle(x, "tl.trans takes a handle")
        if len(x.shape) != 2:
            raise KernelError(f"tl.trans takes two dimensions, not {text_of(x)}; use tl.reshape first")
        return self._rearrange("trans", x, (x.shape[1], x.shape[0]))

    def broadcast_to(self, x: TensorHandle, shape: int | Shape) -> TensorHandle:
        """Return the elements repeated to a shape, written by PE_MATH. Operations broadcast without such a copy.

        Raises:
            KernelError: if ``x`` does not broadcast to ``shape``.
        """
        self._check_handle(x, "tl.broadcast_to takes a handle")
        dims = as_shape(shape)
        if dims == x.shape:
            return x
        if broadcast([x.shape, dims]) != dims:
            raise KernelError(f"tl.broadcast_to of {text_of(x)} to {list(dims)}: only sizes of 1 can be repeated")
        return self._rearrange("broadcast_to", x, dims)

    def reshape(self, x: TensorHandle, shape: int | Shape) -> TensorHandle:
        """Return the elements, in order, in another shape: a view, which takes no time and shares the space of ``x``.

        Raises:
            KernelError: if the number of elements differs.
        """
        self._check_handle(x, "tl.reshape takes a handle")
        dims = as_shape(shape)
        if math.prod(dims) != math.prod(x.shape):
            raise KernelError(f"tl.reshape of {text_of(x)} to {list(dims)}: give a shape of as many elements")
        return self._view(x, dims)

    def join(self, parts: Sequence[TensorHandle]) -> TensorHandle:
        """Return the elements of several handles as one dimension: a view, which takes no time and shares their space.

        The handles are assumed contiguous since they were made, so each can be joined once at most.

        Raises:
            KernelError: for no handles or several types; for a handle that cannot be contiguous with others: a view, a
                part of another join, a message in its slot.
        """
        task = self._task()
        if not parts:
            raise KernelError("tl.join needs at least one handle")
        for each in parts:
            self._check_handle(each, "tl.join takes handles")
            if each.dtype is not parts[0].dtype:
                raise mixed("tl.join", tuple(parts))
            if each.is_placed or each.in_slot is not None or each.slot_pa is not None:
                raise KernelError(f"tl.join takes no view, joined handle or message in a slot, such as {text_of(each)}")
            each.is_placed = True
        result = TensorHandle(self, None, parts[0].dtype)
        result.is_placed = True
        self._submit(Join(tuple(parts), result)).wait(task)
        return result

    @staticmethod
    def cdiv(a: int, b: int) -> int:
        """Return ``a / b`` rounded up, for Python ints; it takes no time."""
        return -(-a // b)

    def _operate(
        self, op: str, *operands: Any, mask: TensorHandle | None = None, dtype: DType | None = None
    ) -> TensorHandle:
        """Run an element-wise operation; ``mask`` is the first operand of ``where``."""
        task = self._task()
        if self._are_alike(operands) and mask is None:
            kind: DType = operands[0].dtype
            if kind.is_float or not OPERATIONS[op].is_of_floats:
                result = TensorHandle(self, None, result_dtype(op, kind))
                self._submit(MathOp(op, operands, result)).wait(task)
                return result
        name = NAMES.get(op, f"tl.{op}")
        for value in operands:
            if isinstance(value, TensorHandle):
                self._check_handle(value, f"{name} takes handles")
                dtype = dtype or value.dtype
                if value.dtype is not dtype:
                    raise mixed(name, operands)
        if dtype is None:
            raise KernelError(f"{name} takes a handle, not {type(operands[0]).__name__}; {HANDLES}")
        if OPERATIONS[op].is_of_floats and not dtype.is_float:
            raise KernelError(f"{name} takes floats, and an operand is {dtype}; write tl.cast(x, 'f32')")
        values = tuple([v if isinstance(v, TensorHandle) else as_number(v, dtype, name) for v in operands])
        if mask is not None:
            self._check_handle(mask, "tl.where takes handles")
            values = mask, *values
        result = TensorHandle(self, None, result_dtype(op, dtype))
        command = MathOp(op, values, result, self._dims(name, values), dtype)
        self._submit(command).wait(task)
        return result

    def _are_alike(self, operands: tuple[Any, ...]) -> bool:
        """Return whether all operands are usable handles of one type and shape: the common case."""
        first = operands[0]
        if not isinstance(first, TensorHandle):
            return False
        for each in operands:
            if each is not first and not (
                isinstance(each, TensorHandle) and each.dtype is first.dtype and each.array.shape == first.array.shape
            ):
                return False
            if each._tl is not self or each.is_released:
                return False
        return True

    @staticmethod
    def _dims(name: str, operands: tuple[HandleOrNumber, ...]) -> Shape | None:
        """Return the shape of the result; None if all operands are handles of that shape."""
        shapes = [each.shape for each in operands if isinstance(each, TensorHandle)]
        first = shapes[0]
        if len(shapes) == len(operands) and all(shape == first for shape in shapes):
            return None
        dims = broadcast(shapes)
        if dims is None:
            texts = " and ".join([text_of(each) for each in operands if isinstance(each, TensorHandle)])
            raise KernelError(
                f"{name} of {texts}: the shapes do not broadcast; from the last dimension on, sizes must be equal or 1 "
                f"(x[:, None] adds a dimension of 1)"
            )
        return dims

    def _reduce(self, name: str, op: str, x: TensorHandle, axis: object, keep_dims: bool) -> TensorHandle:
        task = self._task()
        self._check_handle(x, f"{name} takes a handle")
        shape, index = x.shape, axis_of(name, x, axis)
        if index is None:
            dims: Shape = (1,) * len(shape) if keep_dims else (1,)
        else:
            dims = (*shape[:index], *((1,) if keep_dims else ()), *shape[index + 1 :]) or (1,)
        result = TensorHandle(self, None, result_dtype(op, x.dtype))
        self._submit(Reduce(op, x, index, dims, result)).wait(task)
        return result

    def _make(self, op: str, dims: Shape, value: Number, dtype: DType) -> TensorHandle:
        task = self._task()
        result = TensorHandle(self, None, dtype)
        self._submit(Make(op, dims, as_number(value, dtype, "tl.full"), result)).wait(task)
        return result

    def _rearrange(self, op: str, x: TensorHandle, dims: Shape) -> TensorHandle:
        task = self._task()
        result = TensorHandle(self, None, x.dtype)
        self._submit(Rearrange(op, x, dims, result)).wait(task)
        return result

    def _view(self, x: TensorHandle, dims: Shape, first: int = 0) -> TensorHandle:
        task = self._task()
        self._check_handle(x, "a view needs a handle")
        result = TensorHandle(self, None, x.dtype)
        result.is_placed = True
        self._submit(View(x, dims, result, first)).wait(task)
        return result


def run_kernel(kernel: Callable[..., object], args: tuple[object, ...], tl: TL) -> None:
    """Run ``kernel(*args, tl)`` in the PE's task.

    Raises:
        KernelError: if the kernel ends with receives that it did not wait for.
        IpcqTypeMismatch: if the message of such a receive does not match it.
    """
    kernel(*args, tl)
    tl._end()
    tl._pe.settle()
