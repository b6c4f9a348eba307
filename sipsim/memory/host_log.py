"""What the host writes to memories, as lines of the op log's file: it is no operation, and not in the log itself."""

from collections.abc import Callable
from hashlib import sha256

from sipsim.record.oplog import OpLog, record_kind
from sipsim.topology.address import PhysAddr

HOST_WRITE = record_kind("host.write", "addr", "nbytes", "values")
HOST_CLEAR = record_kind("host.clear", "addr", "nbytes")
MOST_BYTES = 32
"""Of values that are written as hexadecimal digits; of more, the SHA-256 is."""


class HostLog:
    """Notes them in ``oplog``. ``now()``: in ps."""

    def __init__(self, oplog: OpLog, now: Callable[[], int]) -> None:
        self._oplog = oplog
        self._now = now

    def host_wrote(self, address: int, data: bytes | memoryview) -> None:
        """As :class:`sipsim.memory.store.HostWrites`."""
        text = f"0x{bytes(data).hex()}" if len(data) <= MOST_BYTES else f"sha256:{sha256(data).hexdigest()}"
        self._note(HOST_WRITE, address, len(data), text)

    def host_cleared(self, address: int, nbytes: int) -> None:
        """The same."""
        self._note(HOST_CLEAR, address, nbytes)

    def _note(self, kind: str, address: int, *fields: object) -> None:
        now_ps, place = self._now(), PhysAddr.decode(address)
        self._oplog.note(kind, now_ps, now_ps, place.cube, place.pe, address, *fields)
