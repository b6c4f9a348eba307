"""Repeats kept op logs with NumPy alone: nothing of the second pass, nor of what engines compute with. Not a test.

Each SIP's records in log order, and a receive not before the send of its message. Two kernels never use the same bytes
at the same time here, so the order of records is that of the program.
"""

from typing import Any

import numpy as np

from sipsim.chips.ahbm.memory.store import MemoryStore
from sipsim.records.oplog import FIELDS

Array = np.ndarray[Any, Any]
TYPES = {"f16": "<f2", "f32": "<f4", "i32": "<i4"}


class Offline:
    """``memories``: by SIP, as they were before the first record of ``logs``; afterwards as after the last."""

    def __init__(self, memories: list[MemoryStore], logs: list[list[tuple[Any, ...]]]) -> None:
        self.memories = memories
        self.handles: dict[tuple[int, int, int, str], Array] = {}
        self.messages: dict[tuple[int, int], bytes] = {}
        left = [list(reversed(log)) for log in logs]
        while any(left):
            before = sum(map(len, left))
            for sip, log in enumerate(left):
                while log and self.perform(sip, *log[-1]):
                    log.pop()
            assert sum(map(len, left)) < before, "receives without a message"

    def perform(self, sip: int, kind: str, _start: int, _end: int, cube: int, pe: int, *values: Any) -> bool:
        """Repeat one record; False for a receive whose message has not been sent."""
        get, memory, data = dict(zip(FIELDS[kind], values, strict=True)), self.memories[sip], b""

        def held(name: str) -> Array:
            return self.handles[sip, cube, pe, name]

        match kind:
            case "const":
                data = bytes.fromhex(get["values"].removeprefix("0x"))
            case "dma_read":
                data = memory.read(get["addr"], get["nbytes"])
            case "dma_write":
                memory.write(get["addr"], held(get["operand"]).tobytes())
            case "math":
                assert get["op"] == "add"
                a, b = map(held, get["operands"].split(","))
                data = (a + b).tobytes()
            case "ipcq.send":
                source, to = get["source"], int(get["dst"].split(".")[0])
                sent = held(source).tobytes() if isinstance(source, str) else memory.read(source, get["nbytes"])
                self.messages[get["addr"], get["sender_seq"]] = sent
                self.memories[to].write(get["addr"], sent)
            case "ipcq.recv":
                message = (get["addr"], get["consumer_seq"] - 1)
                if message not in self.messages:
                    return False
                data = self.messages.pop(message)
                if get["dst_addr"] != "-":
                    memory.write(get["dst_addr"], data)
            case _:
                raise AssertionError(f"records of kind {kind} are not repeated here")
        if "result" in get:
            array = np.frombuffer(data, TYPES[get["dtype"]]).reshape([int(size) for size in get["shape"].split("x")])
            self.handles[sip, cube, pe, get["result"]] = array
        return True
