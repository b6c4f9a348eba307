"""Watches the buffers of a fabric while it runs: depth, credits, order, and one packet at a time on an edge."""

from collections import deque
from typing import TYPE_CHECKING

from sipsim.core.errors import InvariantViolation
from sipsim.fabric.buffered.ports import Packet

if TYPE_CHECKING:
    from sipsim.fabric.buffered.ports import Fifo, Output

Ps = int


class BufferWitness:
    """Keeps its own count of every FIFO, from what it is told.

    Raises:
        InvariantViolation: from every method, with the edge.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._reserved: dict[tuple[int, int], int] = {}
        self._order: dict[int, deque[Packet]] = {}
        self._busy_until_ps: dict[int, Ps] = {}
        self._together: dict[tuple[int, int], Packet] = {}

    def arrived(self, fifo: "Fifo", packet: Packet) -> None:
        """A packet has come into a FIFO: into a place that was kept for it."""
        order = self._order.setdefault(id(fifo), deque())
        order.append(packet)
        assert fifo.upstream is not None
        if len(order) > self._depth or len(order) > self._reserved.get((id(fifo.upstream), fifo.lane), 0):
            raise _violation(fifo.upstream, f"its buffer holds {len(order)} packets, and has room for {self._depth}")

    def credited(self, output: "Output", lane: int) -> None:
        """A credit has come back: there are as many credits and places in use as the buffer is deep."""
        key = id(output), lane
        self._reserved[key] = self._reserved.get(key, 0) - 1
        self._check_credits(output, lane)

    def sent(self, output: "Output", fifo: "Fifo", packet: Packet, start_ps: Ps, tail_ps: Ps) -> None:
        """A packet has left a FIFO, as the first that came there, and takes an edge from one time to another."""
        if fifo.upstream is not None and self._order[id(fifo)].popleft() is not packet:
            raise _violation(output, "a packet overtakes another in its FIFO")
        part_ps = packet.flow.way.legs[packet.hop].parts.part_ps(packet.index)
        if start_ps < self._busy_until_ps.get(id(output), start_ps) or tail_ps - start_ps < part_ps:
            raise _violation(output, f"from {start_ps} to {tail_ps} ps it carries two packets, or one too fast")
        if start_ps < packet.head_ps:
            raise _violation(output, f"a packet leaves at {start_ps} ps, before it has come")
        self._busy_until_ps[id(output)] = tail_ps
        lane = packet.flow.way.legs[packet.hop].lane
        if packet.flow.way.is_together:
            self._check_together(output, lane, packet)
        if lane is not None:
            key = id(output), lane
            self._reserved[key] = self._reserved.get(key, 0) + 1
            self._check_credits(output, lane)

    def _check_together(self, output: "Output", lane: int | None, packet: Packet) -> None:
        """A frame that takes places at its link's far end follows one that is through, packet by packet."""
        key = id(output), packet.flow.way.vc if lane is None else lane
        before = self._together.get(key)
        is_next = before is not None and before.flow is packet.flow and before.index + 1 == packet.index
        is_first = packet.index == 0 and (before is None or before.index == before.flow.way.packets - 1)
        if not (is_next or is_first):
            raise _violation(output, "another's packet is between those of a frame")
        self._together[key] = packet

    def _check_credits(self, output: "Output", lane: int) -> None:
        free, used = len(output.slots[lane]), self._reserved[id(output), lane]
        if free + used != self._depth or used < 0:
            raise _violation(output, f"{free} credits and {used} places in use, of {self._depth}")


def _violation(output: "Output", what: str) -> InvariantViolation:
    return InvariantViolation(f"edge {output.edge.name}: {what}")
