"""Checks of a fabric's buffers while it runs: depth, credits, order, and one packet at a time on an edge."""

from collections import deque
from typing import TYPE_CHECKING

from sipsim.core.errors import InvariantViolation
from sipsim.fabric.buffered.ports import BufferedPacket

if TYPE_CHECKING:
    from sipsim.fabric.buffered.ports import Fifo, Output

Ps = int


class BufferWitness:
    """Independent count of every FIFO, fed by the fabric's calls.

    Raises:
        InvariantViolation: from any method, if a count is wrong; the message names the edge.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._reserved: dict[tuple[int, int], int] = {}
        self._order: dict[int, deque[BufferedPacket]] = {}
        self._busy_until_ps: dict[int, Ps] = {}
        self._together: dict[tuple[int, int], BufferedPacket] = {}

    def arrived(self, fifo: "Fifo", packet: BufferedPacket) -> None:
        """Note that a packet has arrived in a FIFO, at a place that was reserved for it."""
        order = self._order.setdefault(id(fifo), deque())
        order.append(packet)
        assert fifo.upstream is not None
        if len(order) > self._depth or len(order) > self._reserved.get((id(fifo.upstream), fifo.lane), 0):
            raise _violation(fifo.upstream, f"its buffer holds {len(order)} packets, and has room for {self._depth}")

    def credited(self, output: "Output", lane: int) -> None:
        """Note that a credit has returned: credits and used places must add up to the depth."""
        key = id(output), lane
        self._reserved[key] = self._reserved.get(key, 0) - 1
        self._check_credits(output, lane)

    def sent(self, output: "Output", fifo: "Fifo", packet: BufferedPacket, start_ps: Ps, tail_ps: Ps) -> None:
        """Note that the first packet of a FIFO has left it, and takes an edge for a time."""
        if fifo.upstream is not None and self._order[id(fifo)].popleft() is not packet:
            raise _violation(output, "a packet overtakes another in its FIFO")
        part_ps = packet.flow.path.steps[packet.hop].parts.part_ps(packet.index)
        if start_ps < self._busy_until_ps.get(id(output), start_ps) or tail_ps - start_ps < part_ps:
            raise _violation(output, f"from {start_ps} to {tail_ps} ps it carries two packets, or one too fast")
        if start_ps < packet.head_ps:
            raise _violation(output, f"a packet leaves at {start_ps} ps, before it has arrived")
        self._busy_until_ps[id(output)] = tail_ps
        lane = packet.flow.path.steps[packet.hop].lane
        if packet.flow.path.is_together:
            self._check_together(output, lane, packet)
        if lane is not None:
            key = id(output), lane
            self._reserved[key] = self._reserved.get(key, 0) + 1
            self._check_credits(output, lane)

    def _check_together(self, output: "Output", lane: int | None, packet: BufferedPacket) -> None:
        """Check that a frame with places at its link's far end follows a complete frame, packet by packet."""
        key = id(output), packet.flow.path.vc if lane is None else lane
        before = self._together.get(key)
        is_next = before is not None and before.flow is packet.flow and before.index + 1 == packet.index
        is_first = packet.index == 0 and (before is None or before.index == before.flow.path.packets - 1)
        if not (is_next or is_first):
            raise _violation(output, "a packet of another frame is between those of a frame")
        self._together[key] = packet

    def _check_credits(self, output: "Output", lane: int) -> None:
        free, used = len(output.slots[lane]), self._reserved[id(output), lane]
        if free + used != self._depth or used < 0:
            raise _violation(output, f"{free} credits and {used} places in use, of {self._depth}")


def _violation(output: "Output", what: str) -> InvariantViolation:
    return InvariantViolation(f"edge {output.edge.name}: {what}")
