"""Transfers on the fabric with finite buffers, watched by its witness. Not a test."""

from collections.abc import Callable

from sipsim.engine import Engine
from sipsim.noc.arbitration import Arbitration
from sipsim.noc.buffered.depth import Buffers
from sipsim.noc.buffered.fabric import BufferedFabric
from sipsim.noc.buffered.witness import BufferWitness

DEEP = 2000
"""Packets: more than a transfer of ``plain_fabric`` has."""


def watched(engine: Engine, arbitration: Arbitration, depth: int, packet_bytes: int) -> BufferedFabric:
    """A fabric with a witness."""
    fabric = BufferedFabric(engine, arbitration, Buffers(depth, packet_bytes))
    fabric.witness = BufferWitness(depth)
    return fabric


def buffered(depth: int, packet_bytes: int = 0) -> Callable[[Engine, Arbitration], BufferedFabric]:
    """What makes such fabrics, for ``plain_fabric.Traffic``; packets of a chunk, if not said otherwise."""
    return lambda engine, arbitration: watched(engine, arbitration, depth, packet_bytes or arbitration.chunk_bytes)
