"""Carries out kept op logs again, with NumPy alone: from the bytes of all memories before, to those after. Not a test.

The order: each SIP's records in log order, and a receive not before the send of its message. A record is written when
its command has ended (a send's when its bytes have been read), so an access that the program orders after another is
recorded after it; the programs here have no others. A message is that of its slot and sequence number, and as each
ring has one sender, the slots end as the last messages left them.
"""

from typing import Any

import numpy as np

from sipsim.dtypes import DTYPES
from sipsim.memory.store import PAGE_BYTES, MemoryStore
from sipsim.record.oplog import FIELDS
from sipsim.topology.address import OFFSET_BITS

Array = np.ndarray[Any, Any]
Image = dict[int, Array]
"""Pages that are not all zero, by address."""


def image(store: MemoryStore) -> Image:
    """What is in a SIP's memories."""
    pages = {
        (bank << OFFSET_BITS) + page * PAGE_BYTES: np.frombuffer(bytes(data), np.uint8)
        for bank, content in store._banks.items()
        for page, data in content.pages.items()
    }
    return {address: data for address, data in pages.items() if data.any()}


class Replay:
    """``memories``: by SIP, before the first record of ``logs``."""

    def __init__(self, memories: list[Image], logs: list[list[tuple[Any, ...]]]) -> None:
        self.memories = [{address: page.copy() for address, page in each.items()} for each in memories]
        self.logs = logs
        self.handles: dict[tuple[int, int, int, str], Array] = {}
        self.messages: dict[tuple[int, int], bytes] = {}

    def run(self) -> list[Image]:
        """The memories after the last record."""
        left = [list(reversed(log)) for log in self.logs]
        while any(left):
            before = sum(map(len, left))
            for sip, log in enumerate(left):
                while log and self.perform(sip, log[-1]):
                    log.pop()
            assert sum(map(len, left)) < before, f"no message for {[log[-1] for log in left if log]}"
        return [{at: page for at, page in memory.items() if page.any()} for memory in self.memories]

    def perform(self, sip: int, record: tuple[Any, ...]) -> bool:
        """Carry out one record; False for a receive whose message has not been sent."""
        kind, _start, _end, cube, pe, *values = record
        get = dict(zip(FIELDS[kind], values, strict=True))
        here, dtype, data = (sip, cube, pe), DTYPES[get["dtype"]].numpy, b""
        if kind == "const":
            assert get["values"].startswith("0x"), "only the hash of these values was recorded"
            data = bytes.fromhex(get["values"][2:])
        elif kind == "dma_read":
            data = self.read(sip, get["addr"], get["nbytes"])
        elif kind == "dma_write":
            self.write(sip, get["addr"], self.handles[*here, get["operand"]].tobytes())
        elif kind == "math":
            a, b = (self.handles[*here, name] for name in get["operands"].split(","))
            data = {"add": np.add}[get["op"]](a, b).tobytes()
        elif kind == "ipcq.send":
            source, nbytes = get["source"], get["nbytes"]
            is_held = isinstance(source, str)
            sent = self.handles[*here, source].tobytes() if is_held else self.read(sip, source, nbytes)
            self.messages[get["addr"], get["sender_seq"]] = sent
            self.write(int(get["dst"].split(".")[0]), get["addr"], sent)
        elif kind == "ipcq.recv":
            message = self.messages.pop((get["addr"], get["consumer_seq"] - 1), None)
            if message is None:
                return False
            data = message
            if get["dst_addr"] != "-":
                self.write(sip, get["dst_addr"], data)
        if "result" in get:
            shape = [int(size) for size in get["shape"].split("x")]
            self.handles[*here, get["result"]] = np.frombuffer(data, dtype).reshape(shape)
        return True

    def read(self, sip: int, address: int, nbytes: int) -> bytes:
        at = address % PAGE_BYTES
        first, rest = self.page(sip, address - at)[at : at + nbytes].tobytes(), nbytes - PAGE_BYTES + at
        return first if rest <= 0 else first + self.read(sip, address - at + PAGE_BYTES, rest)

    def write(self, sip: int, address: int, data: bytes) -> None:
        at = address % PAGE_BYTES
        first = data[: PAGE_BYTES - at]
        self.page(sip, address - at)[at : at + len(first)] = np.frombuffer(first, np.uint8)
        if len(first) < len(data):
            self.write(sip, address + len(first), data[len(first) :])

    def page(self, sip: int, address: int) -> Array:
        return self.memories[sip].setdefault(address, np.zeros(PAGE_BYTES, np.uint8))
