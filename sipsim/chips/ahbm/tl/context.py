"""Interface of the hardware for kernel operations; :class:`sipsim.chips.ahbm.sip.Pe` implements it."""

from typing import Any, Protocol

from sipsim.chips.ahbm.pe.commands import Completion
from sipsim.core.task import Task


class KernelContext(Protocol):
    """PE ``pe`` of cube ``cube`` of SIP ``sip``, on which a kernel runs, and its queue pairs.

    ``sizes``: PEs per cube, cubes per SIP, SIPs. ``task``: the kernel's task. ``phase``: name of its phase, or empty.
    """

    sip: int
    cube: int
    pe: int
    sizes: tuple[int, int, int]
    task: Task | None
    phase: str

    @property
    def rank(self) -> int | None:
        """The PE's rank in the wiring; None if the PE takes no part."""

    @property
    def world_size(self) -> int:
        """The number of ranks in the wiring."""

    @property
    def last_polled_dir(self) -> str | None:
        """The direction that served the last receive without a direction."""

    @property
    def translates_slots(self) -> bool:
        """Whether the MMU translates the peer's slot before a send."""

    def submit(self, command: Any) -> Completion:
        """Start a command."""

    def settle(self) -> None:
        """Block the kernel, which ends, until PE_CPU has issued all commands; then free the kernel's slots."""

    def enter_phase(self, phase: str) -> None:
        """Set the phase of the kernel."""

    def number_handle(self) -> int:
        """Return the number of the next handle."""

    def check_memory(self, address: int, nbytes: int) -> None:
        """Raise ``MemoryAccessError`` for a range that is not within a memory of this SIP."""

    def canonical(self, address: int) -> int:
        """Return the lowest address of the byte at ``address``, which may have several addresses."""

    def can_send(self, direction: str) -> bool:
        """Return whether a direction is installed for sending."""

    def peer_ring(self, direction: str) -> tuple[int, int]:
        """Return (slots, bytes per slot) of the peer's ring; raise ``IpcqInvalidDirection`` if there is none."""

    def translate_slot(self, direction: str, nbytes: int) -> None:
        """Translate the peer's slot for a valid send; the kernel waits for the page walk."""
