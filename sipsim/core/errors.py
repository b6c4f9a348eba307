"""Named failures of a simulated system, each with its exit code (``docs/faults.md``).

A failure has a kind from a closed list, one line with a remedy and, if known, a place: rank, cube, PE, direction,
simulated time.
"""

import contextlib
import signal
import sys
from typing import ClassVar


class Halt(BaseException):
    """Exception by which the simulator ends a user's code; not an error of that code."""


def pass_on_halt(error: BaseException) -> None:
    """Raise ``error`` again if it is a :class:`Halt` or a Ctrl-C, which are no errors of the user's code.

    A KeyboardInterrupt is a Ctrl-C only while Python's SIGINT handler is installed; else the user's code raised it.
    """
    is_interrupt = issubclass(type(error), KeyboardInterrupt)
    if issubclass(type(error), Halt) or (
        is_interrupt and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        raise error


def note(line: str) -> None:
    """Print a line for the user on standard error. Write errors, such as for a closed stream, are ignored."""
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


def error_text(error: BaseException) -> str:
    """Return an exception as ``ValueError: message``; works even if the exception's methods raise."""
    name: str = type.__dict__["__name__"].__get__(type(error))
    try:
        # join() also converts a user's subclass of str to a plain str.
        text = "".join((str(error),))
    except BaseException as failed:
        pass_on_halt(failed)
        return f"{name} (its __str__ raises {type.__dict__['__name__'].__get__(type(failed))})"
    return f"{name}: {text}" if text else name


HOST_MEMORY = "host_memory"
"""Kind of failure when a process cannot allocate more memory on its host."""
NO_MEMORY = "this host gives the process no more memory: see ulimit -v, or use smaller sizes"


ERROR_KINDS: dict[str, int] = {
    "wrong_numbers": 1,
    "config": 2,
    "refused": 2,
    "process_died": 4,
    HOST_MEMORY: 4,
    "lost_packet": 4,
    "host_lost": 4,
    "hung": 4,
    "not_joined": 4,
    "peer_lost": 4,
    "nondeterministic": 4,
    "bad_message": 4,
    "not_kept": 4,
    "agent_failed": 4,
    "internal": 4,
    "exception": 5,
    "timeout": 124,
    "interrupted": 130,
    "terminated": 143,
}
"""Every value of ``error.kind``, with its exit code; each subclass of :class:`SimulationError` adds an entry."""


class AhbmError(Exception):
    """Base of every named failure. ``kind`` is the value of ``error.kind`` in the result file.

    ``cube``, ``pe`` and ``direction``: the place of the failure on the SIP; None or "" if unknown.
    ``rank``: the SIP that is at fault, if another SIP found the failure.
    """

    kind: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 4

    def __init__(
        self,
        *args: object,
        cube: int | None = None,
        pe: int | None = None,
        direction: str = "",
        rank: int | None = None,
    ) -> None:
        super().__init__(*args)
        self.rank = rank
        self.cube = cube
        self.pe = pe
        self.direction = direction


class ConfigError(AhbmError):
    """An invalid config file, flag, algorithm module or host script; found before any process starts."""

    kind = "config"
    exit_code = 2


class SimulationError(AhbmError):
    """The simulated program broke a rule of the machine; every SIP stops.

    The kind of a subclass in this module is the class name; a subclass in another module has its base's kind.
    """

    kind = "simulation"
    exit_code = 3

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__:
            cls.kind = vars(cls).get("kind", cls.__name__)
            ERROR_KINDS[cls.kind] = cls.exit_code


class IpcqInvalidDirection(SimulationError):
    """A send or recv names a direction that is not installed (ADR-0023 F1)."""


class IpcqMessageTooLarge(SimulationError):
    """A send larger than the peer's slot; algorithms must split such messages into chunks."""


class IpcqTypeMismatch(SimulationError):
    """A recv whose dtype, shape or size differs from the message's, with ``strict_validation`` (ADR-0023 F2)."""


class Deadlock(SimulationError):
    """No event is left while kernels or scripts still wait, on chips without IPCQ."""


class IpcqDeadlock(Deadlock):
    """No event is left while kernels or scripts still wait, on chips with IPCQ (ADR-0023 F3 and F5)."""


class IpcqUnreadMessages(SimulationError):
    """Messages that were sent and never received, at the end of a run with ``--check-invariants``."""


class IpcqInUse(SimulationError):
    """Queue pairs cannot be closed, or a row cannot start: a ring has unread messages, or a send or recv waits."""


class InvariantViolation(SimulationError):
    """An invariant of the queues (ADR-0023 D14) or of the fabric is violated: a bug in the simulator."""


class KernelError(SimulationError):
    """A call of a kernel operation with an invalid argument."""


class MemoryAccessError(SimulationError):
    """An access to an address outside the memory."""


class OutOfMemoryError(MemoryAccessError):
    """A tensor that does not fit in the free memory."""


class MmuFault(MemoryAccessError):
    """A virtual address that the page table of the PE does not map, such as the address of a freed tensor."""


class TcmFull(SimulationError):
    """A handle that does not fit in the free part of the kernel region of its PE's TCM."""


class CollectiveMismatch(SimulationError):
    """A collective that ranks call with different types, counts or operations."""


class ProcessMisuse(SimulationError):
    """A process of a part named a time that is no int of ps, ran the events itself, or sent where a part may not."""


class SourceReused(SimulationError):
    """A write to bytes of a tile that an Ethernet transmission had not read yet."""


class KernelMisuse(SimulationError):
    """A kernel of a tile named a core, queue or channel that does not exist, or an address that is not aligned."""


class NoSuchCall(KernelMisuse, AttributeError):
    """A host script on a chip of tiles used a call that does not exist; an AttributeError too, for ``hasattr``."""

    kind = KernelMisuse.kind


class LinkLoss(SimulationError):
    """A link went down while frames were on it, and links of this kind do not retransmit.

    The loss at the earliest simulated time ends the run; of several at that time, the one that the lowest rank finds.
    """


class NondeterministicReplay(AhbmError):
    """A restarted process did not repeat the packets of its predecessor, so no result can be trusted."""

    kind = "nondeterministic"


class BadMessage(AhbmError):
    """A process of the run sent bytes that are not a message, or a message that contradicts earlier messages."""

    kind = "bad_message"


class OutputError(AhbmError):
    """An output of a running simulation, such as the packet log or a trace, cannot be written."""

    kind = "not_kept"
