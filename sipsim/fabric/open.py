"""The two fabrics of a SIP, and which of them a config asks for."""

from collections.abc import Iterator
from typing import Any

from sipsim.core.engine import Engine
from sipsim.fabric.buffered.fabric import BufferedFabric, delayed_packets
from sipsim.fabric.buffered.ports import Buffers
from sipsim.fabric.buffered.witness import BufferWitness
from sipsim.fabric.noc.arbitration import Arbitration
from sipsim.fabric.noc.delays import Delayed, delayed
from sipsim.fabric.noc.fabric import Fabric
from sipsim.fabric.noc.witness import FabricWitness


def open_fabric(
    engine: Engine, arbitration: Arbitration, buffers: Buffers | None, is_watched: bool, history: list[Any] | None
) -> Fabric | BufferedFabric:
    """The fabric of a SIP: one that buffers without limit, or with ``buffers`` one of finite input buffers.

    ``is_watched``: it has a witness of its invariants. ``history``: where its transfers are kept, for
    :func:`delayed_transfers`; None: nowhere.
    """
    if buffers is None:
        fabric = Fabric(engine, arbitration)
        fabric.witness = FabricWitness(arbitration.chunk_bytes) if is_watched else None
        fabric.history = history
        return fabric
    buffered = BufferedFabric(engine, arbitration, buffers)
    buffered.witness = BufferWitness(buffers.depth) if is_watched else None
    buffered.history = history
    return buffered


def delayed_transfers(fabric: Fabric | BufferedFabric) -> Iterator[Delayed]:
    """The transfers that came later than alone, in the order of their starts; of a fabric that keeps its history."""
    if isinstance(fabric, Fabric):
        return delayed(fabric.history or ())
    return delayed_packets(fabric.history or ())
