"""What the host writes to memories, as lines of the op log's file: it is no operation, and not in the log itself."""

from collections.abc import Callable

from sipsim.chips.ahbm.address import PhysAddr
from sipsim.records.oplog.oplog import OpLog, record_kind, values_as_text

HOST_WRITE = record_kind("host.write", "addr", "nbytes", "values")
HOST_CLEAR = record_kind("host.clear", "addr", "nbytes")


class HostLog:
    """Notes them in ``oplog``. ``now()``: in ps."""

    def __init__(self, oplog: OpLog, now: Callable[[], int]) -> None:
        self._oplog = oplog
        self._now = now

    def host_wrote(self, address: int, data: bytes | memoryview) -> None:
        """As :class:`sipsim.chips.ahbm.memory.store.store.HostWrites`."""
        self._note(HOST_WRITE, address, len(data), values_as_text(data))

    def host_cleared(self, address: int, nbytes: int) -> None:
        """The same."""
        self._note(HOST_CLEAR, address, nbytes)

    def _note(self, kind: str, address: int, *fields: object) -> None:
        now_ps, place = self._now(), PhysAddr.decode(address)
        self._oplog.note(kind, now_ps, now_ps, place.cube, place.pe, address, *fields)
