"""What kernel operations see of the hardware. :class:`sipsim.chips.ahbm.sip.Pe` fits."""

from typing import Any, Protocol

from sipsim.chips.ahbm.pe.commands import Completion
from sipsim.core.task import Task


class KernelContext(Protocol):
    """The PE ``pe`` of cube ``cube`` of SIP ``sip`` that a kernel runs on, and its queue pairs.

    ``sizes``: PEs of a cube, cubes of a SIP, SIPs. ``task``: of the kernel; ``phase``: that it is in, empty for none.
    """

    sip: int
    cube: int
    pe: int
    sizes: tuple[int, int, int]
    task: Task | None
    phase: str

    @property
    def rank(self) -> int | None:
        """The PE's rank in the wiring, None for one that takes no part."""

    @property
    def world_size(self) -> int:
        """The number of ranks in the wiring."""

    @property
    def last_polled_dir(self) -> str | None:
        """The direction that served the last receive without a direction."""

    @property
    def translates_slots(self) -> bool:
        """Whether a send has the peer's slot translated first."""

    def submit(self, command: Any) -> Completion:
        """Start a command."""

    def settle(self) -> None:
        """The kernel ends: block it until PE_CPU has done all that it was given; free the slots in the kernel's use."""

    def enter_phase(self, phase: str) -> None:
        """Its kernel is in a phase from now on."""

    def number_handle(self) -> int:
        """The number of the next handle."""

    def check_memory(self, address: int, nbytes: int) -> None:
        """``MemoryAccessError`` for a range that is not within a memory of this SIP."""

    def canonical(self, address: int) -> int:
        """The first of all addresses of the same byte."""

    def can_send(self, direction: str) -> bool:
        """Whether a direction is installed for sending."""

    def peer_ring(self, direction: str) -> tuple[int, int]:
        """The slots of the peer's ring and their size in bytes; ``IpcqInvalidDirection`` where none is installed."""

    def translate_slot(self, direction: str, nbytes: int) -> None:
        """Have the peer's slot translated, of a send that will be found right; the kernel waits for the page table."""
