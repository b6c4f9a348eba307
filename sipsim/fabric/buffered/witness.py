"""Checks of a fabric's buffers while it runs: depth, credits, order, and one packet at a time on an edge."""

from collections import deque
from typing import TYPE_CHECKING

from sipsim.core.errors import InvariantViolation
from sipsim.fabric.buffered.ports import BufferedPacket

if TYPE_CHECKING:
    from sipsim.fabric.buffered.ports import Fifo, Output

Ps = int


class BufferWitness:
    """Independent count of the packets and places of every FIFO. The fabric calls it at each arrival and sending.

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
        """Note that a packet has arrived in a FIFO, at a place that was reserved for the packet."""
        order = self._order.setdefault(id(fifo), deque())
        order.append(packet)
        assert fifo.upstream is not None
        reserved = self._reserved.get((id(fifo.upstream), fifo.lane), 0)
        if len(order) > min(self._depth, reserved):
            places = f"{self._depth} places, of which {reserved} were reserved"
            raise _violation(fifo.upstream, f"{len(order)} packets are in its buffer of {places}")

    def credited(self, output: "Output", lane: int) -> None:
        """Note that a credit has returned: credits and used places must add up to the depth."""
        key = id(output), lane
        self._reserved[key] = self._reserved.get(key, 0) - 1
        self._check_credits(output, lane)

    def sent(self, output: "Output", fifo: "Fifo", packet: BufferedPacket, start_ps: Ps, tail_ps: Ps) -> None:
        """Note that the first packet of a FIFO has left, and takes an edge from ``start_ps`` to ``tail_ps``."""
        if fifo.upstream is not None and self._order[id(fifo)].popleft() is not packet:
            raise _violation(output, "a packet overtakes another one in the same FIFO")
        part_ps = packet.flow.path.steps[packet.hop].parts.part_ps(packet.index)
        if start_ps < self._busy_until_ps.get(id(output), start_ps) or tail_ps - start_ps < part_ps:
            raise _violation(output, f"two packets overlap, or one is too fast, from {start_ps} to {tail_ps} ps")
        if start_ps < packet.head_ps:
            raise _violation(output, f"a packet leaves at {start_ps} ps, but arrives only at {packet.head_ps} ps")
        self._busy_until_ps[id(output)] = tail_ps
        lane = packet.flow.path.steps[packet.hop].lane
        if packet.flow.path.is_together:
            self._check_together(output, lane, packet)
        if lane is not None:
            key = id(output), lane
            self._reserved[key] = self._reserved.get(key, 0) + 1
            self._check_credits(output, lane)

    def _check_together(self, output: "Output", lane: int | None, packet: BufferedPacket) -> None:
        """Check that the packets of a frame to a link follow each other, and that the frame before is complete."""
        key = id(output), packet.flow.path.vc if lane is None else lane
        before = self._together.get(key)
        is_next = before is not None and before.flow is packet.flow and before.index + 1 == packet.index
        is_first = packet.index == 0 and (before is None or before.index == before.flow.path.packets - 1)
        if not (is_next or is_first):
            raise _violation(output, "the packets of two frames are mixed")
        self._together[key] = packet

    def _check_credits(self, output: "Output", lane: int) -> None:
        free, used = len(output.slots[lane]), self._reserved[id(output), lane]
        if free + used != self._depth or used < 0:
            raise _violation(output, f"{free} credits and {used} places in use do not add up to {self._depth} places")


def _violation(output: "Output", what: str) -> InvariantViolation:
    return InvariantViolation(f"edge {output.edge.name}: {what}")
