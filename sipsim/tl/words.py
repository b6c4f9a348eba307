"""``tl``: the words of a kernel. Each looks blocking, takes simulated time, and leaves a line in the op log.

One ``TL`` belongs to one run of a kernel on one PE. Sources: ADR-0023 D4 (send, recv), Triton (the shape of
the language).
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sipsim.ccl.install import PePlace
from sipsim.dtypes import DType
from sipsim.errors import IpcqTypeMismatch, KernelError
from sipsim.pe.ipcq import Message
from sipsim.tl.values import Pointer, Shape, TensorHandle, as_dtype, as_shape

if TYPE_CHECKING:
    from sipsim.sip import Pe, Sip

AXES = ("PE in its cube", "cube in its SIP", "SIP")


class TL:
    """The words for the kernel on one PE. ``translate`` turns the addresses a kernel sees into physical ones."""

    def __init__(self, sip: "Sip", pe: "Pe", translate: Callable[[int, int], int]) -> None:
        self._sip = sip
        self._pe = pe
        self._engine = sip.engine
        self._translate = translate
        self._strict = sip.plan.ipcq.strict_validation

    def program_id(self, axis: int) -> int:
        """Where this kernel runs: axis 0 the PE in its cube, 1 the cube in its SIP, 2 the SIP."""
        return (self._pe.pe, self._pe.cube, self._sip.sip)[self._axis(axis)]

    def num_programs(self, axis: int) -> int:
        """How many places there are along an axis; not the size of a collective's group."""
        system = self._sip.plan.system
        return (system.n_pes, system.n_cubes, system.n_sips)[self._axis(axis)]

    def rank(self) -> int:
        """This PE's rank in the wiring, which counts places and not SIPs.

        Raises:
            KernelError: on a PE that takes no part.
        """
        place = self._pe.ipcq.place
        rank = self._sip.plan.rank_of.get(PePlace(*place))
        if rank is None:
            raise KernelError(f"the PE {place} (SIP, cube, PE) has no rank; rank_per and world_size say which PEs have")
        return rank

    def world_size(self) -> int:
        """How many ranks the wiring has.

        Raises:
            KernelError: on a PE that takes no part.
        """
        self.rank()
        return self._sip.plan.world_size

    def ipcq_slots(self, dir: str) -> tuple[int, int]:
        """(n_slots, slot_size in bytes) of the peer's ring in a direction: how to chunk, how far to run ahead."""
        queue = self._pe.ipcq.queue(dir)
        return queue.peer.n_slots, queue.peer.slot_size

    def has_direction(self, dir: str) -> bool:
        """Whether a direction is installed for sending."""
        queue = self._pe.ipcq.queues.get(dir)
        return queue is not None and queue.can_send

    def load(self, ptr: int, shape: int | Shape, dtype: object = None) -> TensorHandle:
        """Read ``shape`` elements at an address through PE_DMA; blocks until they are here."""
        kind = _pointee(ptr, dtype)
        dims = as_shape(shape)
        nbytes = math.prod(dims) * kind.itemsize
        start, task = self._engine.now_ps, self._task()
        address = self._translate(int(ptr), nbytes)
        self._pe.dma.read(address, nbytes, task.resume)
        data = task.wait(f"load of {nbytes} bytes at {address:#x}")
        self._log("dma_read", start, address, nbytes, kind.name, _text(dims))
        return TensorHandle(self, np.frombuffer(data, kind.numpy).reshape(dims), kind)

    def store(self, ptr: int, value: TensorHandle) -> None:
        """Write a handle's elements to an address through PE_DMA; blocks until the write is acknowledged."""
        start, task = self._engine.now_ps, self._task()
        address = self._translate(int(ptr), value.nbytes)
        self._pe.dma.write(address, value.array.tobytes(), task.resume)
        task.wait(f"store of {value.nbytes} bytes at {address:#x}")
        self._log("dma_write", start, address, value.nbytes, value.dtype.name, _text(value.shape))

    def add(self, a: TensorHandle, b: TensorHandle) -> TensorHandle:
        """``a + b`` element by element, rounded once in their type; i32 wraps.

        Raises:
            KernelError: when types or shapes differ.
        """
        if a.dtype is not b.dtype or a.shape != b.shape:
            raise KernelError(f"cannot add {a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}; make them equal")
        start, task = self._engine.now_ps, self._task()
        self._engine.at(start + self._pe.math.latency_ps(a.nbytes), task.resume)
        task.wait("add")
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.add(a.array, b.array)
        total.flags.writeable = False
        self._log("math", start, "add", a.dtype.name, _text(a.shape))
        return TensorHandle(self, total, a.dtype)

    def send(
        self,
        dir: str,
        src: TensorHandle | None = None,
        *,
        src_addr: int | None = None,
        shape: int | Shape | None = None,
        dtype: object = None,
    ) -> None:
        """Send a handle, or ``shape`` elements at ``src_addr``, to the peer in a direction.

        Blocks while the peer's ring is full, then returns at once. The source is read in that step.

        Raises:
            IpcqInvalidDirection: a direction that is not installed.
            IpcqMessageTooLarge: more bytes than a slot.
        """
        snapshot, message = self._source(src, src_addr, shape, dtype)
        slot_pa, seq = self._pe.ipcq.send(self._task(), dir, snapshot, message)
        here, peer, space = self._ends(dir)
        what = (message.nbytes, dir, message.dtype, _text(message.shape))
        self._log("ipcq.send", self._engine.now_ps, here, peer, space, slot_pa, *what, seq)

    def recv(self, dir: str, shape: int | Shape, dtype: object) -> TensorHandle:
        """The next message from a direction, as ``shape`` elements; blocks until it is here and its slot is returned.

        Raises:
            IpcqInvalidDirection: a direction that is not installed.
            IpcqTypeMismatch: a message of another size, and under ``strict_validation`` of another type or shape.
        """
        kind, dims = as_dtype(dtype), as_shape(shape)
        start = self._engine.now_ps
        received = self._pe.ipcq.receive(self._task(), dir)
        self._check_match(dir, received.message, kind, dims)
        nbytes = received.message.nbytes
        here, peer, space = self._ends(dir)
        what = (nbytes, dir, kind.name, _text(dims))
        self._log("ipcq.recv", start, "return_slot", peer, here, space, received.slot_pa, *what, received.consumer_seq)
        return TensorHandle(self, np.frombuffer(received.data, kind.numpy).reshape(dims), kind)

    def _ends(self, direction: str) -> tuple[str, str, str]:
        """This PE, its peer in a direction, and the memory that their rings lie in, as the op log names them."""
        peer = self._pe.ipcq.queue(direction, sending=False).peer
        here = f"{self._sip.sip}.{self._pe.cube}.{self._pe.pe}"
        return here, f"{peer.sip}.{peer.cube}.{peer.pe}", peer.buffer_kind

    def _source(
        self, src: TensorHandle | None, src_addr: int | None, shape: int | Shape | None, dtype: object
    ) -> tuple[Callable[[], bytes], Message]:
        if src is not None:
            return src.array.tobytes, Message(src.nbytes, src.dtype.name, src.shape)
        if src_addr is None or shape is None:
            raise KernelError("tl.send needs a handle, or src_addr and shape")
        kind, dims = _pointee(src_addr, dtype), as_shape(shape)
        nbytes = math.prod(dims) * kind.itemsize
        address = self._translate(int(src_addr), nbytes)
        return lambda: self._sip.memory.read(address, nbytes), Message(nbytes, kind.name, dims)

    def _check_match(self, direction: str, message: Message, kind: DType, dims: Shape) -> None:
        nbytes = math.prod(dims) * kind.itemsize
        same_type = (message.dtype, message.shape) == (kind.name, dims)
        if message.nbytes != nbytes or (self._strict and not same_type):
            raise IpcqTypeMismatch(
                f"recv {direction} expects {kind}{list(dims)} ({nbytes} bytes), but the message is "
                f"{message.dtype}{list(message.shape)} ({message.nbytes} bytes); make send and recv agree"
            )

    def _task(self) -> Any:
        task = self._pe.task
        assert task is not None
        return task

    def _log(self, kind: str, start_ps: int, *fields: Any) -> None:
        self._sip.oplog.append(kind, start_ps, self._engine.now_ps, self._pe.cube, self._pe.pe, *fields)

    def _axis(self, axis: int) -> int:
        if axis not in range(len(AXES)):
            raise KernelError(f"axis {axis!r} does not exist; 0 is {AXES[0]}, 1 {AXES[1]}, 2 {AXES[2]}")
        return axis


def _pointee(ptr: int, dtype: object) -> DType:
    if dtype is not None:
        return as_dtype(dtype)
    if isinstance(ptr, Pointer):
        return ptr.dtype
    raise KernelError(f"address {int(ptr):#x} has no type; say dtype=")


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))
