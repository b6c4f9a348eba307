"""A memory port: where a transfer meets a memory, and what an access takes there on top of the fabric's time.

A port serves the accesses of one node; its kind decides how long each takes. It is one module of this package,
registered by name and chosen by ``kind`` of the memory's section in ``components.yaml``. Bytes are in
:mod:`sipsim.memory.store`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec

from sipsim.config.model import MemoryCost, NoParams, Section, TcmCost
from sipsim.engine import Engine
from sipsim.memory.store import MemoryStore
from sipsim.noc.graph import Node
from sipsim.noc.parts.base import MemoryPart
from sipsim.registry import Registry

Ps = int
FIXED_LATENCY = "fixed_latency"
"""The kind of a memory whose section names none."""


class MemoryPort(ABC):
    """One port, made at its first use. ``Params``: what ``params`` of its section may hold.

    ``least_read_ps`` and ``least_write_ps``: no access takes less. An access begins at the call, when the last byte of
    its command or of its data is at the port, and its end is an event of the engine, later than the call.
    ``is_constant``: every access takes just that, so its end may be computed in advance, without an event.
    """

    Params: ClassVar[type[Section]] = NoParams
    is_constant: ClassVar[bool] = False
    least_read_ps: Ps
    least_write_ps: Ps

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, store: MemoryStore) -> None:
        self.params: Any = msgspec.convert(cost.params, self.Params)
        self.engine = engine
        self._store = store

    @abstractmethod
    def time_read(self, address: int, nbytes: int, done: Callable[[], None]) -> None:
        """Call ``done()`` at the end of a read. The bytes are the caller's to take."""

    @abstractmethod
    def time_write(self, address: int, nbytes: int, done: Callable[[], None]) -> None:
        """Call ``done()`` at the end of a write. The bytes are the caller's to put there, in that step."""

    def read(self, address: int, nbytes: int, done: Callable[[bytes], None]) -> None:
        """Read ``nbytes`` at a physical address; ``done(data)`` with what is there at the end of the access.

        Raises:
            MemoryAccessError: at its end, outside the memory.
        """
        store = self._store
        self.time_read(address, nbytes, lambda: done(store.read(address, nbytes)))

    def write(self, address: int, data: bytes, done: Callable[[], None]) -> None:
        """Write ``data`` at a physical address; ``done()`` in the step in which the bytes are there.

        Raises:
            MemoryAccessError: at its end, outside the memory.
        """

        def written() -> None:
            self._store.write(address, data)
            done()

        self.time_write(address, len(data), written)


MEMORY_KINDS: Registry[type[MemoryPort]] = Registry("memory kind", "sipsim.memory")


class MemoryPorts:
    """The memory ports of one SIP. ``memories``: the part that serves each space."""

    def __init__(self, memories: Mapping[str, MemoryPart], engine: Engine, store: MemoryStore) -> None:
        self._memories = memories
        self._engine = engine
        self._store = store
        self._ports: dict[tuple[str, Node], MemoryPort] = {}

    def at(self, space: str, node: Node) -> MemoryPort:
        """The port of a memory space at the node that serves it."""
        port = self._ports.get((space, node))
        if port is None:
            cost = self._memories[space].memory().cost
            kind = MEMORY_KINDS.get(cost.kind or FIXED_LATENCY)
            port = self._ports[space, node] = kind(cost, self._engine, self._store)
        return port
