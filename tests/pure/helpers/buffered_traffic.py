"""Transfers on the fabric with finite buffers, watched by its witness. Not a test."""

from collections.abc import Callable

from sipsim.core.engine import Engine
from sipsim.fabric.buffered.fabric import BufferedFabric
from sipsim.fabric.buffered.ports import Buffers
from sipsim.fabric.buffered.witness import BufferWitness
from sipsim.fabric.channels import Arbitration
from sipsim.fabric.graph import Edge

DEEP = 2000
"""Packets: more than a transfer of ``plain_fabric`` has."""


def watched(
    engine: Engine, arbitration: Arbitration, depth: int, packet_bytes: int, link_depth: int | None = None
) -> BufferedFabric:
    """A fabric with a witness."""
    fabric = BufferedFabric(engine, arbitration, Buffers(depth, packet_bytes, link_depth))
    fabric.witness = BufferWitness(depth)
    return fabric


class FarEnd:
    """A port of the fabric, and the far end of its link: it gives the places of a frame back ``after_ps``.

    ``held``: frames that have come over the link and are in this end's buffer.
    """

    def __init__(self, engine: Engine, fabric: BufferedFabric, link: Edge, after_ps: int) -> None:
        self.held = 0
        self._engine = engine
        self._fabric = fabric
        self._link = link
        self._after_ps = after_ps
        fabric.join(link, self)

    def announce(self) -> int:
        self.held += 1
        return self.held

    def left(self, number: int, vc: int, places: int) -> None:
        assert self.held > 0
        assert places > 0
        self.held -= 1

    def arrived(self, vc: int, places: int, tail_ps: int) -> None:
        """A frame is through the link."""

        def give_back() -> None:
            assert self._fabric.credit(self._link, vc, places)

        self._engine.at(tail_ps + self._after_ps, give_back)


def buffered(depth: int, packet_bytes: int = 0) -> Callable[[Engine, Arbitration], BufferedFabric]:
    """What makes such fabrics, for ``plain_fabric.Traffic``; packets of a chunk, if not said otherwise."""
    return lambda engine, arbitration: watched(engine, arbitration, depth, packet_bytes or arbitration.chunk_bytes)
