"""The phases of a kernel: parts of its code with a name, so that reports say in which of them the time went."""

from types import TracebackType

from sipsim.chips.ahbm.tl.context import KernelPe
from sipsim.core.errors import KernelError

LONGEST_NAME = 60
SEPARATOR = " / "


class Phase:
    """``with tl.phase(name):`` what runs inside belongs to the phase; an inner phase is named ``outer / inner``.

    It takes no simulated time. It may be entered again once it has been left.
    """

    __slots__ = ("_before", "_is_entered", "_name", "_pe")

    def __init__(self, pe: KernelPe, name: str) -> None:
        self._pe = pe
        self._name = name
        self._before = ""
        self._is_entered = False

    def __enter__(self) -> None:
        if self._is_entered:
            raise KernelError(f"phase {self._name!r} is entered already; make another one with tl.phase")
        self._is_entered = True
        before = self._before = self._pe.phase
        self._pe.enter_phase(f"{before}{SEPARATOR}{self._name}" if before else self._name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_entered = False
        self._pe.enter_phase(self._before)


def check_name(name: object) -> str:
    """The name of a phase.

    Raises:
        KernelError: for anything but a short line of text.
    """
    if isinstance(name, str) and name.isprintable() and 0 < len(name.strip()) <= LONGEST_NAME:
        return name.strip()
    raise KernelError(f"tl.phase takes a name of 1 to {LONGEST_NAME} printable characters, not {name!r:.80}")
