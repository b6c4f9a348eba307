"""The lifetime of a tensor's memory: it returns at reference count zero, never by cyclic garbage collection.

When Python collects cycles depends on everything in the process, which differs between engines: memory that returned
then would give the next tensor another address. So a tensor that dies in a collection keeps its memory to the end of
the run; ``del`` returns it only where no reference cycle holds the tensor.
"""

import gc
from typing import Any

from sipsim.host.allocator import AddressSpace, Allocation


class _Collector:
    """Whether Python's cyclic garbage collector is running."""

    is_running = False

    def note(self, phase: str, _info: dict[str, Any]) -> None:
        """Called by ``gc`` before (``start``) and after (``stop``) each collection."""
        self.is_running = phase == "start"


_COLLECTOR = _Collector()
gc.callbacks.append(_COLLECTOR.note)


class Storage:
    """Owns ``allocation`` in ``space``: its memory is freed when the last reference to this object is dropped."""

    def __init__(self, space: AddressSpace, allocation: Allocation) -> None:
        self.allocation = allocation
        self._space = space

    def __del__(self) -> None:
        if not _COLLECTOR.is_running:
            self._space.free(self.allocation)
