"""Copies between the host and the tensors of a SIP, and maps of new tensors: the time that a host script waits for."""

from collections.abc import Sequence
from typing import Any

from sipsim.chips.ahbm.control.copies import BlockCopy
from sipsim.chips.ahbm.host.memory import Access, AddressSpace, Block, Storage
from sipsim.chips.ahbm.host.stream import Stream
from sipsim.chips.ahbm.sip import Sip


class DeviceMemory(Access):
    """Access of a host script to the HBM of its SIP, which takes simulated time unless ``host_copies`` is ``free``.

    A copy waits for the earlier launches that have a tensor in the same memory among their arguments. Limit: a launch
    that got an address as a number is not among these; wait for it before the copy.
    """

    def __init__(self, sip: Sip, space: AddressSpace, stream: Stream) -> None:
        self._sip = sip
        self._space = space
        self._stream = stream

    def write(self, storage: Storage, blocks: Sequence[tuple[Block, memoryview]]) -> None:
        self._wait_for_launches(storage)
        if self._sip.copies is None:
            self._space.free.write(storage, blocks)
        else:
            self._copy("a copy to the device", [BlockCopy(*block, data) for block, data in blocks])

    def read(self, storage: Storage, blocks: Sequence[Block]) -> list[bytes]:
        self._wait_for_launches(storage)
        if self._sip.copies is None:
            return self._space.free.read(storage, blocks)
        return self._copy("a copy to the host", [BlockCopy(*block) for block in blocks])

    def map_new(self) -> None:
        """Wait for the maps and unmaps of the tensors that were allocated and freed since the last call."""
        messages = self._space.take_messages()
        if self._sip.copies is None or not messages:
            return
        host = self._stream.host_task()

        def mapped(span: int) -> None:
            host.span = span
            host.resume()

        self._stream.note_copy()
        self._sip.copies.map(messages, mapped, host.span)
        host.wait("a map of tensors")

    def _wait_for_launches(self, storage: Storage) -> None:
        for work in self._stream.unfinished():
            if work.uses(storage):
                work.wait()

    def _copy(self, what: str, blocks: list[BlockCopy]) -> list[bytes]:
        host: Any = self._stream.host_task()
        assert self._sip.copies is not None

        def copied(data: list[bytes], span: int) -> None:
            host.span = span
            host.resume(data)

        self._stream.note_copy()
        self._sip.copies.copy(blocks, copied, host.span)
        found: list[bytes] = host.wait(what)
        return found
