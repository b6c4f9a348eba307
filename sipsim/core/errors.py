"""Named failures of a simulated system, each with its exit code (``docs/faults.md``).

A failure has a kind from a closed list, one line with a remedy, and a place (rank, cube, PE, direction, simulated time)
if there is one.
"""

import contextlib
import signal
import sys
from typing import ClassVar


class Halt(BaseException):
    """Ends code of a user from outside: raised where it runs, by what runs it. Never an error of that code."""


def pass_on_halt(error: BaseException) -> None:
    """Raise it again if it is no error of the code that it comes from: a :class:`Halt`, or a Ctrl-C.

    Python raises KeyboardInterrupt for that where its own handler is installed; elsewhere only code does.
    """
    is_interrupt = issubclass(type(error), KeyboardInterrupt)
    if issubclass(type(error), Halt) or (
        is_interrupt and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        raise error


def note(line: str) -> None:
    """Print a line for the user on standard error; it is lost where a script has closed it or its disk is full."""
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


def error_text(error: BaseException) -> str:
    """``ValueError: what it says``: an exception as text, also one whose own methods fail."""
    name: str = type.__dict__["__name__"].__get__(type(error))
    try:
        # Its text may be of a class of its own, too.
        text = "".join((str(error),))
    except BaseException as failed:
        pass_on_halt(failed)
        return f"{name} (its __str__ raises {type.__dict__['__name__'].__get__(type(failed))})"
    return f"{name}: {text}" if text else name


HOST_MEMORY = "host_memory"
"""The kind of failure of a process that gets no more memory from its host."""
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
"""Every value that ``error.kind`` may have, and its exit code; each :class:`SimulationError` adds its own."""


class AhbmError(Exception):
    """Base of every named failure. ``kind`` is the value of ``error.kind`` in the result file.

    ``cube``, ``pe`` and ``direction`` are its place on the SIP, as far as it is known where the error is raised.
    ``rank``: the SIP that is to blame, where it is not the one that has found it.
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
    """A config file, flag, algorithm module or host script that cannot run; found before any process starts."""

    kind = "config"
    exit_code = 2


class SimulationError(AhbmError):
    """The simulated program broke a rule of the machine; every SIP stops.

    A class here is a kind of its own, by its name; one elsewhere is of its base's kind.
    """

    kind = "simulation"
    exit_code = 3

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__:
            cls.kind = vars(cls).get("kind", cls.__name__)
            ERROR_KINDS[cls.kind] = cls.exit_code


class IpcqInvalidDirection(SimulationError):
    """F1 of ADR-0023: a send or recv names a direction that is not installed."""


class IpcqMessageTooLarge(SimulationError):
    """A send larger than the peer's slot; algorithms chunk."""


class IpcqTypeMismatch(SimulationError):
    """F2 of ADR-0023: a recv whose dtype, shape or size disagrees with the message, under ``strict_validation``."""


class Deadlock(SimulationError):
    """No event is left, and kernels or scripts still wait, on chips without IPCQ."""


class IpcqDeadlock(Deadlock):
    """F3 and F5 of ADR-0023: the same on chips whose kernels talk through IPCQ, whatever waits there."""


class IpcqUnreadMessages(SimulationError):
    """Messages that were sent and never received, at the end of a run with ``--check-invariants``."""


class IpcqInUse(SimulationError):
    """Queue pairs are to be closed, or a row is to start, while rings hold unread messages, or a send or a receive
    waits.
    """


class InvariantViolation(SimulationError):
    """An invariant of ADR-0023 D14 or of the fabric is violated: a bug in the simulator, not in the program."""


class KernelError(SimulationError):
    """A kernel operation was called with an invalid argument."""


class MemoryAccessError(SimulationError):
    """An address outside its memory."""


class OutOfMemoryError(MemoryAccessError):
    """A tensor that does not fit the memory that is left."""


class MmuFault(MemoryAccessError):
    """A virtual address that the page table of the PE does not map, such as that of a freed tensor."""


class TcmFull(SimulationError):
    """A handle that does not fit what is left of the kernel region of its PE's TCM."""


class CollectiveMismatch(SimulationError):
    """Ranks that call a collective with another type, count or operation than each other."""


class SourceReused(SimulationError):
    """Bytes of a tile were changed that an Ethernet transmission had not read yet."""


class KernelMisuse(SimulationError):
    """A kernel of a tile named what does not exist: a core, a queue, a channel, an address that is not aligned."""


class NoSuchCall(KernelMisuse, AttributeError):
    """A host script on a chip of tiles named a call that is not there; ``hasattr`` knows it as any other."""

    kind = KernelMisuse.kind


class LinkLoss(SimulationError):
    """Frames were on a link when it went down, and its kind sends nothing again. The loss that is found at the earliest
    simulated time ends the run; at equal times the lowest rank's.
    """


class NondeterministicReplay(AhbmError):
    """A restarted process did not repeat the packets of its predecessor, so no result can be trusted."""

    kind = "nondeterministic"


class BadMessage(AhbmError):
    """A process of the run sent what no process of this version sends: bytes that are no message, or one that
    contradicts what it had sent before.
    """

    kind = "bad_message"


class OutputError(AhbmError):
    """An output of a running simulation cannot be written: packets for a restart, a trace, data for the check."""

    kind = "not_kept"
