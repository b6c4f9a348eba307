"""Choice between the two fabrics of a SIP."""

from collections.abc import Iterator
from typing import Any

from sipsim.core.engine import Engine
from sipsim.fabric.buffered.fabric import BufferedFabric, delayed_packets
from sipsim.fabric.buffered.ports import Buffers
from sipsim.fabric.buffered.witness import BufferWitness
from sipsim.fabric.channels import Arbitration
from sipsim.fabric.delays import Delayed, delayed
from sipsim.fabric.flows import FlowFabric
from sipsim.fabric.transport import Transport


def open_fabric(
    engine: Engine, arbitration: Arbitration, buffers: Buffers | None, is_watched: bool, history: list[Any] | None
) -> FlowFabric | BufferedFabric:
    """Make the fabric of a SIP: a fabric of flows or, if ``buffers`` is given, of packets in finite input buffers.

    ``is_watched``: whether the fabric checks its invariants. ``history``: the list to which the fabric adds its
    transfers, for :func:`delayed_transfers`; None if no history is recorded.
    """
    if buffers is None:
        fabric = FlowFabric(engine, arbitration)
        fabric.is_watched = is_watched
        fabric.history = history
        return fabric
    buffered = BufferedFabric(engine, arbitration, buffers)
    buffered.witness = BufferWitness(buffers.depth) if is_watched else None
    buffered.history = history
    return buffered


def delayed_transfers(fabric: Transport) -> Iterator[Delayed]:
    """Yield the transfers in the fabric's history that others delayed, in the order of their starts."""
    if isinstance(fabric, FlowFabric):
        return delayed(fabric.history or ())
    assert isinstance(fabric, BufferedFabric)
    return delayed_packets(fabric.history or ())
