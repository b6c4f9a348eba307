"""The loop of one member of an intercube collective: its schedule, on the words of ``tl``.

All units of a worker are on their way at the same time, each in another phase. Loads go ahead of their first use, and a
store does not delay what follows it.
"""

from collections import deque
from typing import TYPE_CHECKING

from sipsim.chips.ahbm.collectives.intercube.schedule import STRIDE, Message, Step, Unit
from sipsim.chips.ahbm.collectives.intercube.tree import Act
from sipsim.chips.ahbm.collectives.kernel import combined
from sipsim.chips.ahbm.tl.futures import LoadFuture, RecvFuture
from sipsim.chips.ahbm.tl.values import Pointer, TensorHandle

if TYPE_CHECKING:
    from sipsim.chips.ahbm.tl.language import TL

LOADS_AHEAD = 8
"""Half of the places in PE_DMA's queue, so that stores find some."""
Posted = list[tuple[Message, RecvFuture]]


class Worker:
    """One member's part: ``units`` of the elements at ``data``, combined in place over ``members`` members."""

    def __init__(self, tl: "TL", data: Pointer, units: list[Unit], members: int, op: str) -> None:
        self._tl = tl
        self._data = data
        self._units = units
        self._divisor = members if op == "avg" else 1
        self._op = op
        self._values: dict[int, TensorHandle] = {}
        self._loads: dict[int, LoadFuture] = {}
        self._posted: deque[tuple[int, Posted]] = deque()
        self._next_load = 0

    def run(self, steps: list[Step]) -> None:
        """Perform the steps; the kernel's end waits for the stores."""
        for step in steps:
            self._load_until(step.round)
            self._post(step)
            while self._posted[0][0] <= step.round - STRIDE:
                self._receive_all(self._posted.popleft()[1])
            for message in step.sends:
                self._tl.send(message.direction, self._value(message.unit))
                if message.is_last_use:
                    del self._values[message.unit]
        for _, posted in self._posted:
            self._receive_all(posted)

    def _post(self, step: Step) -> None:
        if not self._posted or self._posted[-1][0] != step.round:
            self._posted.append((step.round, []))
        posted = self._posted[-1][1]
        for message in step.receives:
            shape = self._units[message.unit].length
            posted.append((message, self._tl.recv_async(message.direction, shape, self._data.dtype)))

    def _receive_all(self, posted: Posted) -> None:
        """All of a round, each unit's in the order of its events, whatever the parts of the round they came in."""
        for message, future in sorted(posted, key=_order):
            self._receive(message, future)

    def _receive(self, message: Message, future: RecvFuture) -> None:
        unit, value = message.unit, self._tl.wait(future)
        if message.act is Act.COMBINE:
            value = combined(self._op, self._value(unit), value, self._tl)
            if message.is_result and self._divisor > 1:
                value = value / self._divisor
        if message.is_result:
            self._tl.store_async(self._address(unit), value)
        if message.is_last_use:
            self._values.pop(unit, None)
        else:
            self._values[unit] = value

    def _load_until(self, now: int) -> None:
        """Start the loads of the units that have begun, and of some more."""
        units = self._units
        while self._next_load < len(units) and (
            len(self._loads) < LOADS_AHEAD or units[self._next_load].first_round <= now
        ):
            unit = self._next_load
            self._loads[unit] = self._tl.load_async(self._address(unit), units[unit].length)
            self._next_load += 1

    def _value(self, unit: int) -> TensorHandle:
        value = self._values.get(unit)
        if value is None:
            value = self._values[unit] = self._tl.wait(self._loads.pop(unit))
        return value

    def _address(self, unit: int) -> Pointer:
        return self._data + self._units[unit].start * self._data.dtype.itemsize


def _order(posted: tuple[Message, RecvFuture]) -> tuple[int, int]:
    return posted[0].unit, posted[0].event
