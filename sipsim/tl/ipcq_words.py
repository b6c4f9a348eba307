"""The words of a kernel that send and receive (ADR-0023 D4). :class:`~sipsim.tl.words.TL` has them.

What is received in ``return_slot`` mode lies in its slot: a ring in HBM or SRAM is read when the values are first used
(``+``, ``store``; a ``send`` passes them on from there), a ring in the PE's own TCM is at hand. Bytes are latched when
the receive takes the message, so that its slot may be written again.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sipsim.address import SPACES, PhysAddr
from sipsim.dtypes import DType
from sipsim.errors import IpcqTypeMismatch, KernelError
from sipsim.pe.ipcq import Source
from sipsim.pe.ipcq_messages import Message, Received
from sipsim.pe.receives import CopyTo, Receive
from sipsim.pe.task import Task
from sipsim.tl.values import Shape, TensorHandle, as_dtype, as_shape, as_text, pointee
from sipsim.trace import TraceLine

if TYPE_CHECKING:
    from sipsim.sip import Pe, Sip

RETURN_SLOT, COPY_TO_DST = "return_slot", "copy_to_dst"


class RecvFuture:
    """What ``tl.recv_async`` gives and ``tl.wait`` takes."""

    __slots__ = ("dims", "direction", "dtype", "handle", "mode", "pe", "receive")

    def __init__(self, pe: "Pe", direction: str, dims: Shape, dtype: DType, mode: str) -> None:
        self.pe = pe
        self.direction = direction
        self.dims = dims
        self.dtype = dtype
        self.mode = mode
        self.receive: Receive | None = None
        self.handle: TensorHandle | None = None

    def is_completed(self) -> bool:
        """Whether ``tl.wait`` would return at once."""
        return self.receive is not None and self.receive.ended


class IpcqWords:
    """``send``, ``recv``, ``recv_async`` and ``wait`` for the kernel on one PE."""

    def __init__(self, sip: "Sip", pe: "Pe", translate: Callable[[int, int], int]) -> None:
        self._sip = sip
        self._pe = pe
        self._engine = sip.engine
        self._translate = translate
        self._strict = sip.plan.ipcq.strict_validation
        self._here = f"{sip.sip}.{pe.cube}.{pe.pe}"

    @property
    def last_polled_dir(self) -> str | None:
        """Where the last ``recv`` without a direction found its message; the next one starts behind it."""
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
        """Send a handle, or what lies at ``src_addr``, to the peer in a direction.

        At an address, give ``shape`` or ``nbytes``; ``dtype`` unless the pointer knows it; ``space`` (tcm, hbm, sram)
        is checked against it. Blocks while the peer's ring is full, then returns at once. The source is read in
        that step; from another memory than the PE's own, its way to the PE is part of the message's time.

        Raises:
            IpcqInvalidDirection: a direction that is not installed.
            IpcqMessageTooLarge: more bytes than a slot.
            KernelError: a source that cannot be.
        """
        source = self._source(src, src_addr, nbytes, shape, dtype, space)
        slot_pa, seq = self._pe.ipcq.send(self._task(), dir, source)
        message, peer = source.message, self._pe.ipcq.queues[dir].peer
        self._trace("send", dir, message.nbytes)
        self._log(
            "ipcq.send",
            self._engine.now_ps,
            self._here,
            f"{peer.sip}.{peer.cube}.{peer.pe}",
            peer.buffer_kind,
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
        """The next message from a direction, as ``shape`` elements; blocks until it is here and its slot is returned.

        Without ``dir``: from whichever direction has one, in turn from ``last_polled_dir`` on. With ``dst_addr``
        (``copy_to_dst``) it is copied there before its slot is returned.

        Raises:
            IpcqInvalidDirection: a direction that is not installed.
            IpcqTypeMismatch: a message of another size, and under ``strict_validation`` of another type or shape.
            KernelError: a shape, type or destination that cannot be.
        """
        start_ps = self._engine.now_ps
        wanted = self._wanted("" if dir is None else dir, shape, dtype, dst_addr)
        copy_to = self._destination(wanted, dst_addr, dst_space)
        if dir is None:
            wanted.direction = self._pe.ipcq.any_direction(self._task())
        return self.wait(self._post(wanted, copy_to, start_ps))

    def recv_async(
        self,
        dir: str,
        shape: int | Shape | None = None,
        dtype: object = None,
        *,
        dst_addr: int | None = None,
        dst_space: str | None = None,
    ) -> RecvFuture:
        """Ask for the next message of a direction and go on; :meth:`wait` gives it. Messages go to futures in order.

        Raises:
            IpcqInvalidDirection: a direction that is not installed.
            KernelError: a shape, type or destination that cannot be.
        """
        wanted = self._wanted(dir, shape, dtype, dst_addr)
        return self._post(wanted, self._destination(wanted, dst_addr, dst_space), self._engine.now_ps)

    def wait(self, future: RecvFuture) -> TensorHandle:
        """Block until a receive has ended; its message, again when asked again.

        Raises:
            IpcqTypeMismatch: as ``recv``.
            KernelError: for anything but a future of this kernel's PE.
        """
        if not isinstance(future, RecvFuture) or future.receive is None:
            raise KernelError(f"tl.wait takes what tl.recv_async gave, not {future!r}")
        if future.pe is not self._pe:
            raise KernelError(f"tl.wait on PE {self._here} was given a future of another PE; wait for it there")
        if future.handle is not None:
            return future.handle
        received = self._pe.ipcq.wait(self._task(), future.direction, future.receive)
        self._check_match(received, future)
        values = np.frombuffer(received.data, future.dtype.numpy).reshape(future.dims)
        far = future.mode == RETURN_SLOT and self._sip.plan.ipcq.buffer_kind != "tcm"
        future.handle = TensorHandle(self, values, future.dtype, received.slot_pa if far else None)
        return future.handle

    def _wanted(self, dir: str, shape: int | Shape | None, dtype: object, dst_addr: int | None) -> RecvFuture:
        if shape is None:
            raise KernelError("tl.recv needs the shape of the message, and its dtype")
        kind = as_dtype(dtype) if dst_addr is None else pointee(dst_addr, dtype)
        return RecvFuture(self._pe, dir, as_shape(shape), kind, RETURN_SLOT if dst_addr is None else COPY_TO_DST)

    def _destination(self, wanted: RecvFuture, dst_addr: int | None, dst_space: str | None) -> CopyTo | None:
        if dst_addr is None:
            if dst_space is not None:
                raise KernelError("dst_space without dst_addr; give the address to copy the message to")
            return None
        nbytes = math.prod(wanted.dims) * wanted.dtype.itemsize
        address = self._translate(int(dst_addr), nbytes)
        self._check_place(address, nbytes, dst_space)
        return CopyTo(address, nbytes)

    def _post(self, wanted: RecvFuture, copy_to: CopyTo | None, start_ps: int) -> RecvFuture:
        def done(receive: Receive) -> None:
            assert receive.received is not None
            self._note_received(receive.received, wanted, start_ps)

        wanted.receive = self._pe.ipcq.post(wanted.direction, copy_to, done)
        return wanted

    def _note_received(self, received: Received, wanted: RecvFuture, start_ps: int) -> None:
        direction, nbytes = received.direction, received.message.nbytes
        peer = self._pe.ipcq.queues[direction].peer
        self._trace("recv", direction, nbytes)
        self._log(
            "ipcq.recv",
            start_ps,
            wanted.mode,
            f"{peer.sip}.{peer.cube}.{peer.pe}",
            self._here,
            peer.buffer_kind,
            received.slot_pa,
            nbytes,
            direction,
            wanted.dtype.name,
            as_text(wanted.dims),
            received.consumer_seq,
        )

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
                raise KernelError("tl.send takes a handle, which knows its type and shape, or src_addr=; not both")
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
        address = self._translate(int(src_addr), size)
        self._check_place(address, size, space)
        memory = self._sip.memory
        return Source(lambda: memory.read(address, size), address, Message(size, kind.name, dims))

    def _check_place(self, address: int, nbytes: int, space: str | None) -> None:
        """An address of this SIP's memory, in the space that the kernel says."""
        if space is not None and space not in SPACES:
            raise KernelError(f"space {space!r} is not known; allowed: {', '.join(SPACES)}")
        self._sip.memory.check(address, nbytes)
        place = PhysAddr.decode(address)
        if space not in (None, place.space):
            raise KernelError(f"{place} is not in space {space}")

    def _check_match(self, received: Received, wanted: RecvFuture) -> None:
        message, kind, dims = received.message, wanted.dtype, wanted.dims
        nbytes = math.prod(dims) * kind.itemsize
        same_type = (message.dtype, message.shape) == (kind.name, dims)
        if message.nbytes != nbytes or (self._strict and not same_type):
            raise IpcqTypeMismatch(
                f"recv {received.direction} expects {kind}{list(dims)} ({nbytes} bytes), but the message is "
                f"{message.dtype}{list(message.shape)} ({message.nbytes} bytes); make send and recv agree",
                direction=received.direction,
            )

    def _task(self) -> Task:
        task = self._pe.task
        assert task is not None
        return task

    def _trace(self, op: str, direction: str, nbytes: int) -> None:
        tracer = self._sip.tracer
        if tracer is not None:
            where = self._sip.sip, self._pe.cube, self._pe.pe
            tracer(TraceLine(*where, self._engine.now_ps, op, direction, nbytes))

    def _log(self, kind: str, start_ps: int, *fields: Any) -> None:
        self._sip.oplog.append(kind, start_ps, self._engine.now_ps, self._pe.cube, self._pe.pe, *fields)
