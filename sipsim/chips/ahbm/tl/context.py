"""What kernel operations see of the SIP and the PE that they run on. ``sipsim.chips.ahbm.sip`` has the classes that
fit.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from sipsim.chips.ahbm.pe.commands import Completion
from sipsim.core.task import Task


class KernelRing(Protocol):
    """A peer's receive ring; ``slot_size`` is in bytes."""

    @property
    def n_slots(self) -> int: ...

    @property
    def slot_size(self) -> int: ...


class KernelQueue(Protocol):
    """A queue pair. ``can_send`` is false for a receive-only opposite."""

    can_send: bool

    @property
    def peer(self) -> KernelRing: ...

    @property
    def has_va(self) -> bool: ...

    def last_tx_slot_va(self) -> int:
        """The virtual address of the slot for a send that is made now."""


class KernelQueues(Protocol):
    """The queue pairs of a PE that its kernel sees, by direction; ``place`` is (SIP, cube, PE)."""

    place: tuple[int, int, int]

    @property
    def last_polled_dir(self) -> str | None: ...

    @property
    def world_size(self) -> int:
        """The number of ranks in the wiring."""

    @property
    def queues(self) -> Mapping[str, KernelQueue]: ...

    def queue(self, direction: str) -> KernelQueue:
        """The queue pair of a direction; ``IpcqInvalidDirection`` when it is not installed for sending."""


class KernelMmu(Protocol):
    """The MMU of a PE."""

    def translate(self, address: int, nbytes: int) -> int:
        """The physical address; the kernel waits while the page table is walked."""


class KernelPe(Protocol):
    """The PE that a kernel runs on. ``rank`` is its rank in the wiring, None for a PE that takes no part.

    ``phase``: the phase that its kernel is in, empty for none. ``mmu``: None where addresses are translated in no time.
    """

    cube: int
    pe: int
    task: Task | None
    phase: str

    @property
    def rank(self) -> int | None: ...
    @property
    def ipcq(self) -> KernelQueues: ...
    @property
    def mmu(self) -> KernelMmu | None: ...

    def submit(self, command: Any) -> Completion:
        """Start a command."""

    def settle(self) -> None:
        """The kernel ends: block it until PE_CPU has done all that it was given; free the slots in the kernel's use."""

    def enter_phase(self, phase: str) -> None:
        """Its kernel is in a phase from now on."""

    def number_handle(self) -> int:
        """The number of the next handle."""


class KernelMemory(Protocol):
    """The memories of a SIP."""

    def check(self, address: int, nbytes: int) -> None:
        """``MemoryAccessError`` for a range that is not within a memory of this SIP."""

    def canonical(self, address: int) -> int:
        """The first of all addresses of the same byte."""


class KernelSystem(Protocol):
    """Sizes of the system: PEs of a cube, cubes of a SIP, SIPs."""

    n_pes: int
    n_sips: int

    @property
    def n_cubes(self) -> int: ...


class KernelPlan(Protocol):
    """The system."""

    @property
    def system(self) -> KernelSystem: ...


class KernelSip(Protocol):
    """The SIP that a kernel runs on."""

    sip: int

    @property
    def memory(self) -> KernelMemory: ...

    @property
    def plan(self) -> KernelPlan: ...
