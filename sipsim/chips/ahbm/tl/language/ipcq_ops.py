"""The kernel operations that send and receive (ADR-0023 D4), a base of
:class:`~sipsim.chips.ahbm.tl.language.language.TL`.
"""

import math
from collections import OrderedDict
from collections.abc import Callable

from sipsim.chips.ahbm.address import SPACES, PhysAddr
from sipsim.chips.ahbm.ipcq.messages.requests import CopyTo
from sipsim.chips.ahbm.pe.commands import Completion, Direction, IpcqRecv, IpcqRelease, IpcqSend
from sipsim.chips.ahbm.tl.context import KernelMmu, KernelPe, KernelSip
from sipsim.chips.ahbm.tl.futures import Future, RecvFuture
from sipsim.chips.ahbm.tl.values import HandleOps, Shape, TensorHandle, as_bytes, as_dtype, as_shape, pointee
from sipsim.core.dtypes import DType
from sipsim.core.errors import KernelError
from sipsim.core.task import Task
from sipsim.core.units import format_time_ps

FUTURES = "tl.recv_async, load_async, store_async or gemm_async"
ENDED_TRANSFERS = 4
"""So many of a kernel's are kept until there are more."""


class IpcqOps(HandleOps):
    """``send``, ``recv``, ``recv_async`` and ``wait`` for the kernel on one PE."""

    def __init__(self, sip: KernelSip, pe: KernelPe, translate: Callable[[int, int], int]) -> None:
        self._sip = sip
        self._pe = pe
        self._submit = pe.submit
        self._number_handle = pe.number_handle
        self._translate = translate
        self._here = f"{sip.sip}.{pe.cube}.{pe.pe}"
        self._futures: dict[RecvFuture, None] = {}
        self._transfers: OrderedDict[Completion, str] = OrderedDict()
        self._most_transfers = ENDED_TRANSFERS
        self._has_ended = False

    @property
    def last_polled_dir(self) -> str | None:
        """The direction that served the last ``recv`` without a direction; the next search starts after it."""
        self._task()
        return self._pe.ipcq.last_polled_dir

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

        With an address, give ``shape`` or ``nbytes``, and ``dtype`` unless the pointer has one; ``space`` (tcm, hbm,
        sram) is checked against the address. Blocks while the peer's ring is full, then returns at once. The source
        is read in that step. For a source outside the PE's own memory the message's time includes the transfer to
        the PE.

        Raises:
            IpcqInvalidDirection: a direction that is not installed.
            IpcqMessageTooLarge: more bytes than a slot.
            KernelError: an invalid source.
        """
        task = self._task()
        command = self._send_command(dir, src, src_addr, nbytes, shape, dtype, space)
        if self._pe.mmu is not None:
            self._translate_slot(self._pe.mmu, dir, command.nbytes)
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
        """The next message from a direction, as ``shape`` elements; blocks until its slot has been returned.

        Without ``dir``: the next message of any direction, searched in turn from ``last_polled_dir`` on. With
        ``dst_addr`` (``copy_to_dst``) the message is copied there before its slot is returned.

        Raises:
            IpcqInvalidDirection: a direction that is not installed.
            IpcqTypeMismatch: a message of another size, and under ``strict_validation`` of another type or shape.
            KernelError: an invalid shape, type or destination.
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
        """Post a receive for the next message of a direction; :meth:`wait` returns it. Futures are served in order.

        The kernel must wait for every future before it ends, or its end is an error (:func:`run_kernel`).

        Raises:
            IpcqInvalidDirection: a direction that is not installed.
            KernelError: an invalid shape, type or destination.
        """
        self._task()
        command, handle = self._recv_command(dir, shape, dtype, dst_addr, dst_space)
        future = RecvFuture(self._pe, dir, command, handle, self._submit(command))
        self._futures[future] = None
        return future

    def wait(self, future: Future) -> TensorHandle:
        """Block until a receive, a load or a store has ended; a second call returns the same handle.

        Returns the message of a receive, what a load has read, and the value that was stored of a store. A store that
        was waited for does not hold its value any more.

        Raises:
            IpcqTypeMismatch: as ``recv``.
            KernelError: for anything but a future of this kernel's PE; for a second call for a store whose value the
                kernel has dropped.
        """
        if not isinstance(future, Future):
            raise KernelError(f"tl.wait takes what {FUTURES} returned, not {future!r}")
        if future.pe is not self._pe:
            raise KernelError(f"tl.wait on PE {self._here} was given a future of another PE; wait for it there")
        task = self._task()
        if isinstance(future, RecvFuture):
            self._futures.pop(future, None)
        else:
            self._transfers.pop(future.completion, None)
        future.completion.wait(task)
        return future.result()

    def release(self, handle: TensorHandle) -> None:
        """No command will name a handle any more. If it stands for a slot (``latch: in_place``), that is returned, and
        the word blocks as ``recv`` does, until the credit has been emitted. It blocks for stores of the handle, too;
        else it takes no time.

        Raises:
            KernelError: for anything but a handle that was not released yet.
        """
        task = self._task()
        self._check_handle(handle, "tl.release takes a handle")
        for store in [each for each, name in self._transfers.items() if name == handle.name]:
            store.wait(task)
        if handle.in_slot is not None:
            self._submit(IpcqRelease(handle)).wait(task)
        handle.is_released, handle.room = True, None

    def _note_transfer(self, completion: Completion, name: str = "") -> None:
        """The kernel's end waits for a load, a store or a gemm, ``name`` its handle's; not for those that have ended
        without an error, of which so many as have not ended are kept at most, or a few.
        """
        if len(self._transfers) >= self._most_transfers:
            for each in [each for each in self._transfers if each.ended and each.error is None]:
                del self._transfers[each]
            self._most_transfers = 2 * len(self._transfers) + ENDED_TRANSFERS
        self._transfers[completion] = name

    def _check_handle(self, value: object, what: str) -> None:
        """Check that a command may name a handle."""
        if not isinstance(value, TensorHandle):
            raise KernelError(f"{what}, not {type(value).__name__}")
        if value._tl is not self:
            raise KernelError(
                f"{what} of this kernel; {value.name} is another's, whose values its PE held: "
                f"store them there, and load them here, or send them"
            )
        if value.is_released:
            raise KernelError(f"handle {value.name} was given to tl.release; no command can name it any more")

    def _end(self) -> None:
        """Wait for the stores and loads that have not ended.

        Raises if a receive was not waited for: it would take a message of the next kernel, or its message is lost.
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
            state = "has no message" if future.received is None else "would lose its message"
            more = f", and {len(self._futures) - 1} more" if len(self._futures) > 1 else ""
            raise KernelError(
                f"the kernel has ended without tl.wait for its recv_async {future.direction} of "
                f"{future.dtype}{list(future.dims)}, posted at {format_time_ps(future.completion.start_ps)}, "
                f"which {state}{more}; wait for every future",
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
            raise KernelError("tl.recv needs the shape of the message, and its dtype")
        dims, copy_to = as_shape(shape), None
        if dst_addr is not None:
            kind = pointee(dst_addr, dtype)
            copy_to = self._destination(dst_addr, dst_space, dims, kind)
        elif dst_space is not None:
            raise KernelError("dst_space without dst_addr; give the address to copy the message to")
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
                raise KernelError(f"tl.send takes a handle as src, not {type(src).__name__}; an address is src_addr=")
            if not (src_addr is nbytes is shape is dtype is space is None):
                raise KernelError("tl.send takes either a handle, which has a type and a shape, or src_addr=; not both")
            self._check_handle(src, "tl.send takes a handle")
            return IpcqSend(dir, src, src.nbytes, src.shape, src.dtype)
        if src_addr is None or (shape is None and nbytes is None):
            raise KernelError("tl.send needs a handle, or src_addr and shape")
        if nbytes is not None and (not isinstance(nbytes, int) or nbytes < 1):
            raise KernelError(f"nbytes={nbytes!r} is not a size; give at least 1")
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

    def _translate_slot(self, mmu: KernelMmu, dir: str, nbytes: int) -> None:
        """Have the peer's slot translated, of a send that will be found right."""
        queue = self._pe.ipcq.queues.get(dir) if isinstance(dir, str) else None
        if queue is not None and queue.can_send and queue.has_va and nbytes <= queue.peer.slot_size:
            mmu.translate(queue.last_tx_slot_va(), nbytes)

    def _check_place(self, address: int, nbytes: int, space: str | None) -> None:
        """Check that an address is in this SIP's memory and in the space that the kernel names."""
        if space is not None and not (isinstance(space, str) and space in SPACES):
            raise KernelError(f"space {space!r} is not known; allowed: {', '.join(SPACES)}")
        self._sip.memory.check(address, nbytes)
        place = PhysAddr.decode(address)
        if space not in (None, place.space):
            raise KernelError(f"{place} is not in space {space}")

    def _task(self) -> Task:
        """The task of this kernel, which is running.

        Raises:
            KernelError: when another kernel is: another PE's, or a later one.
        """
        task = self._pe.task
        if task is None or not task.is_current or self._has_ended:
            raise KernelError(
                f"this tl is that of another kernel, on PE {self._here} (SIP, cube, PE); "
                f"a kernel uses the tl that it was called with"
            )
        return task
