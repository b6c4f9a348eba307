"""``tl``: the words of a kernel. Each looks blocking, takes simulated time, and leaves a line in the op log.

One ``TL`` belongs to one run of a kernel on one PE. Sources: ADR-0023 D4 (send, recv), Triton (the shape of
the language).
"""

import math
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from sipsim.errors import KernelError
from sipsim.tl.ipcq_words import IpcqWords
from sipsim.tl.values import Shape, TensorHandle, as_shape, as_text, pointee
from sipsim.topology.address import PePlace

HANDLES = "a handle is what tl.load, tl.recv and + give"
NOT_WORDS = ("note_received",)
AXES = ("PE in its cube", "cube in its SIP", "SIP")


class TL(IpcqWords):
    """The words for the kernel on one PE. ``translate`` turns the addresses a kernel sees into physical ones."""

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
        kind = pointee(ptr, dtype)
        dims = as_shape(shape)
        nbytes = math.prod(dims) * kind.itemsize
        start, task = self._engine.now_ps, self._task()
        address = self._translate(int(ptr), nbytes)
        self._pe.dma.read(address, nbytes, task.resume)
        data = task.wait(f"load of {nbytes} bytes at {address:#x}")
        self._log("dma_read", start, address, nbytes, kind.name, as_text(dims))
        return TensorHandle(self, np.frombuffer(data, kind.numpy).reshape(dims), kind)

    def store(self, ptr: int, value: TensorHandle) -> None:
        """Write a handle's elements to an address through PE_DMA; blocks until the write is acknowledged.

        Raises:
            KernelError: for a value that is no handle.
        """
        if not isinstance(value, TensorHandle):
            raise KernelError(f"tl.store takes an address and a handle, not {type(value).__name__}; {HANDLES}")
        start, task = self._engine.now_ps, self._task()
        self._fetch(value)
        address = self._translate(int(ptr), value.nbytes)
        self._pe.dma.write(address, value.array.tobytes(), task.resume)
        task.wait(f"store of {value.nbytes} bytes at {address:#x}")
        self._log("dma_write", start, address, value.nbytes, value.dtype.name, as_text(value.shape))

    def add(self, a: TensorHandle, b: TensorHandle) -> TensorHandle:
        """``a + b`` element by element, rounded once in their type; i32 wraps.

        Raises:
            KernelError: when types or shapes differ, or one is no handle.
        """
        for value in (a, b):
            if not isinstance(value, TensorHandle):
                raise KernelError(f"cannot add {type(value).__name__} to a handle; {HANDLES}")
        if a.dtype is not b.dtype or a.shape != b.shape:
            raise KernelError(f"cannot add {a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}; make them equal")
        start, task = self._engine.now_ps, self._task()
        self._fetch(a)
        self._fetch(b)
        self._engine.at(self._engine.now_ps + self._pe.math.latency_ps(a.nbytes), task.resume)
        task.wait("add")
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.add(a.array, b.array)
        total.flags.writeable = False
        self._log("math", start, "add", a.dtype.name, as_text(a.shape))
        return TensorHandle(self, total, a.dtype)

    def _fetch(self, handle: TensorHandle) -> None:
        """The values of a slot in another memory than the PE's own come to the PE before they are first used."""
        if handle.slot_pa is None:
            return
        task = self._task()
        self._pe.dma.read(handle.slot_pa, handle.nbytes, task.resume)
        task.wait(f"the slot at {handle.slot_pa:#x}")
        handle.slot_pa = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """A word that does not exist: say which do."""
            words = ", ".join(word for word in dir(type(self)) if word not in NOT_WORDS and not word.startswith("_"))
            raise AttributeError(f"tl has no word {name!r}; it has {words}")

    def _axis(self, axis: int) -> int:
        if axis not in range(len(AXES)):
            raise KernelError(f"axis {axis!r} does not exist; 0 is {AXES[0]}, 1 {AXES[1]}, 2 {AXES[2]}")
        return axis
