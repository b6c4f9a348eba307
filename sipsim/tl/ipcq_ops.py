"""The kernel operations that send and receive (ADR-0023 D4), a base of :class:`~sipsim.tl.language.TL`.

In ``return_slot`` mode a received message stays in its slot. A slot in HBM or SRAM is read when the values are first
used (``+``, ``store``; a ``send`` reads it too); a slot in the PE's own TCM needs no read. The bytes are latched when
the receive takes the message, so the slot may be written again.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sipsim.dtypes import DType
from sipsim.errors import IpcqTypeMismatch, KernelError
from sipsim.ipcq.messages import Message, Received
from sipsim.ipcq.pe_ipcq import Source
from sipsim.ipcq.receives import CopyTo, Receive
from sipsim.record.trace import TraceLine
from sipsim.task import Task
from sipsim.tl.context import KernelPe, KernelSip
from sipsim.tl.values import HandleOps, Shape, TensorHandle, as_bytes, as_dtype, as_shape, as_text, pointee
from sipsim.topology.address import SPACES, PhysAddr
from sipsim.units import format_time_ps

RETURN_SLOT, COPY_TO_DST = "return_slot", "copy_to_dst"


class RecvFuture(Receive):
    """A receive of ``dims`` elements of ``dtype``: the result of ``tl.recv_async``, the argument of ``tl.wait``."""

    __slots__ = ("_ops", "dims", "direction", "dtype", "handle", "pe")

    def __init__(
        self, ops: "IpcqOps", direction: str, dims: Shape, dtype: DType, copy_to: CopyTo | None, since_ps: int
    ) -> None:
        super().__init__(since_ps, copy_to)
        self._ops = ops
        self.pe = ops._pe
        self.direction = direction
        self.dims = dims
        self.dtype = dtype
        self.handle: TensorHandle | None = None

    def is_completed(self) -> bool:
        """Whether ``tl.wait`` would return at once."""
        return self.ended

    def on_complete(self) -> None:
        """Write to the op log, and to the trace if there is one."""
        self._ops._log_received(self)


class IpcqOps(HandleOps):
    """``send``, ``recv``, ``recv_async`` and ``wait`` for the kernel on one PE."""

    def __init__(self, sip: KernelSip, pe: KernelPe, translate: Callable[[int, int], int]) -> None:
        self._sip = sip
        self._pe = pe
        self._engine = sip.engine
        self._translate = translate
        self._strict = sip.plan.ipcq.strict_validation
        self._append = sip.oplog.append
        self._rings_are_far = sip.plan.ipcq.buffer_kind != "tcm"
        self._here = f"{sip.sip}.{pe.cube}.{pe.pe}"
        self._futures: dict[RecvFuture, None] = {}
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
        source = self._source(src, src_addr, nbytes, shape, dtype, space)
        slot_pa, seq = self._pe.ipcq.send(task, dir, source)
        message, queue, now_ps = source.message, self._pe.ipcq.queues[dir], self._engine.now_ps
        self._trace("send", dir, message.nbytes)
        self._append(
            "ipcq.send",
            now_ps,
            now_ps,
            self._pe.cube,
            self._pe.pe,
            self._here,
            queue.peer_name,
            queue.peer.buffer_kind,
            slot_pa,
            message.nbytes,
            dir,
            message.dtype,
            as_text(message.shape),
            seq,
        )

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
        future = self._future("" if dir is None else dir, shape, dtype, dst_addr, dst_space)
        if dir is None:
            future.direction = self._pe.ipcq.any_direction(task)
        self._pe.ipcq.post(future.direction, future)
        return self.wait(future)

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
        future = self._future(dir, shape, dtype, dst_addr, dst_space)
        self._pe.ipcq.post(dir, future)
        self._futures[future] = None
        return future

    def wait(self, future: RecvFuture) -> TensorHandle:
        """Block until a receive has ended, and return its message; a second call returns the same handle.

        Raises:
            IpcqTypeMismatch: as ``recv``.
            KernelError: for anything but a future of this kernel's PE.
        """
        if not isinstance(future, RecvFuture):
            raise KernelError(f"tl.wait takes the result of tl.recv_async, not {future!r}")
        if future.pe is not self._pe:
            raise KernelError(f"tl.wait on PE {self._here} was given a future of another PE; wait for it there")
        task = self._task()
        self._futures.pop(future, None)
        if future.handle is None:
            received = self._pe.ipcq.wait(task, future.direction, future)
            self._check_match(received, future)
            values = np.frombuffer(received.data, future.dtype.numpy).reshape(future.dims)
            far = future.copy_to is None and self._rings_are_far
            future.handle = TensorHandle(self, values, future.dtype, received.slot_pa if far else None)
        return future.handle

    def _end(self) -> None:
        """Raise if a future was not waited for: it would take a message of the next kernel, or its message is lost."""
        self._has_ended = True
        for future in self._futures:
            if future.received is not None:
                self._check_match(future.received, future)
        if self._futures:
            future = next(iter(self._futures))
            state = "has no message" if future.received is None else "would lose its message"
            more = f", and {len(self._futures) - 1} more" if len(self._futures) > 1 else ""
            raise KernelError(
                f"the kernel has ended without tl.wait for its recv_async {future.direction} of "
                f"{future.dtype}{list(future.dims)}, posted at {format_time_ps(future.since_ps)}, "
                f"which {state}{more}; wait for every future",
                direction=future.direction,
            )

    def _log_received(self, future: RecvFuture) -> None:
        received = future.received
        assert received is not None
        direction, nbytes = received.direction, len(received.data)
        queue = self._pe.ipcq.queues[direction]
        self._trace("recv", direction, nbytes)
        self._append(
            "ipcq.recv",
            future.since_ps,
            self._engine.now_ps,
            self._pe.cube,
            self._pe.pe,
            RETURN_SLOT if future.copy_to is None else COPY_TO_DST,
            queue.peer_name,
            self._here,
            queue.peer.buffer_kind,
            received.slot_pa,
            nbytes,
            direction,
            future.dtype.name,
            as_text(future.dims),
            received.consumer_seq,
        )

    def _future(
        self, dir: str, shape: int | Shape | None, dtype: object, dst_addr: int | None, dst_space: str | None
    ) -> RecvFuture:
        if shape is None:
            raise KernelError("tl.recv needs the shape of the message, and its dtype")
        dims, now_ps = as_shape(shape), self._engine.now_ps
        if dst_addr is not None:
            kind = pointee(dst_addr, dtype)
            return RecvFuture(self, dir, dims, kind, self._destination(dst_addr, dst_space, dims, kind), now_ps)
        if dst_space is not None:
            raise KernelError("dst_space without dst_addr; give the address to copy the message to")
        return RecvFuture(self, dir, dims, as_dtype(dtype), None, now_ps)

    def _destination(self, dst_addr: int, dst_space: str | None, dims: Shape, kind: DType) -> CopyTo:
        nbytes = math.prod(dims) * kind.itemsize
        address = self._translate(as_bytes(dst_addr), nbytes)
        self._check_place(address, nbytes, dst_space)
        return CopyTo(address, nbytes)

    def _source(
        self,
        src: TensorHandle | None,
        src_addr: int | None,
        nbytes: int | None,
        shape: int | Shape | None,
        dtype: object,
        space: str | None,
    ) -> Source:
        if src is not None:
            if not isinstance(src, TensorHandle):
                raise KernelError(f"tl.send takes a handle as src, not {type(src).__name__}; an address is src_addr=")
            if not all(given is None for given in (src_addr, nbytes, shape, dtype, space)):
                raise KernelError("tl.send takes either a handle, which has a type and a shape, or src_addr=; not both")
            return Source(src.array.tobytes, src.slot_pa, Message(src.nbytes, src.dtype.name, src.shape))
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
        memory = self._sip.memory
        return Source(lambda: memory.read(address, size), address, Message(size, kind.name, dims))

    def _check_place(self, address: int, nbytes: int, space: str | None) -> None:
        """Check that an address is in this SIP's memory and in the space that the kernel names."""
        if space is not None and not (isinstance(space, str) and space in SPACES):
            raise KernelError(f"space {space!r} is not known; allowed: {', '.join(SPACES)}")
        self._sip.memory.check(address, nbytes)
        place = PhysAddr.decode(address)
        if space not in (None, place.space):
            raise KernelError(f"{place} is not in space {space}")

    def _check_match(self, received: Received, future: RecvFuture) -> None:
        kind, dims, arrived = future.dtype, future.dims, len(received.data)
        nbytes = math.prod(dims) * kind.itemsize
        if arrived != nbytes or (self._strict and (received.dtype, received.shape) != (kind.name, dims)):
            raise IpcqTypeMismatch(
                f"recv {received.direction} expects {kind}{list(dims)} ({nbytes} bytes), but the message is "
                f"{received.dtype}{list(received.shape)} ({arrived} bytes); make send and recv agree",
                direction=received.direction,
            )

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

    def _trace(self, op: str, direction: str, nbytes: int) -> None:
        tracer = self._sip.tracer
        if tracer is not None:
            where = self._sip.sip, self._pe.cube, self._pe.pe
            tracer(TraceLine(*where, self._engine.now_ps, op, direction, nbytes))

    def _log(self, kind: str, start_ps: int, *fields: Any) -> None:
        self._append(kind, start_ps, self._engine.now_ps, self._pe.cube, self._pe.pe, *fields)
