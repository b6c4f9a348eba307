"""The operations that a host script has called, for reports on ranks that have called others."""

from collections import Counter
from collections.abc import Iterable, Sequence

from sipsim.collectives.call.calls import WORLD, GroupCall, OpenCall
from sipsim.core.task import Task


class Called:
    """The operations that the host script of one chip has called; ``calls``: all, in order."""

    def __init__(self) -> None:
        self.calls: list[GroupCall] = []
        self._counts: Counter[int] = Counter()
        self._open: list[tuple[OpenCall, Sequence[Task]]] = []

    def note(self, text: str, group: int, chips: tuple[int, ...], tasks: Sequence[Task]) -> None:
        """Note a call that all chips of a group make; ``tasks``: its kernels on this chip."""
        self._counts[group] += 1
        self.calls.append(GroupCall(text, group, () if group == WORLD else chips))
        self._open = [each for each in self._open if _runs(each[1])]
        self._open.append((OpenCall(group, chips, self._counts[group], text), tasks))

    def open_calls(self) -> Iterable[OpenCall]:
        """The calls whose kernels have not all ended."""
        return [call for call, tasks in self._open if _runs(tasks)]


def _runs(tasks: Sequence[Task]) -> bool:
    return any(not task.ended for task in tasks)
