"""The op log of a chip: each access of a NoC command when it has arrived, each Ethernet message when it was taken and
when it came. A tile's coordinates stand where other chips have cube and PE.
"""

from sipsim.chips.tensix.noc.floor_plan import Core
from sipsim.core.engine import Engine
from sipsim.records.oplog.oplog import OpLog, record_kind, values_as_text

NOC_WRITE = record_kind("noc.write", "dst", "addr", "nbytes", "values")
NOC_READ = record_kind("noc.read", "dst", "addr", "nbytes", "values")
NOC_INCREMENT = record_kind("noc.increment", "dst", "addr", "value")
ETH_SEND = record_kind("eth.send", "queue", "src", "dst_addr", "nbytes", "left_ps", "arrival_ps")
ETH_ARRIVE = record_kind("eth.arrive", "addr", "nbytes", "values")
HOST_WRITE = record_kind("host.write_tile", "addr", "nbytes", "values")


class TileLog:
    """Appends to ``oplog``; ``engine`` has the time."""

    def __init__(self, oplog: OpLog, engine: Engine) -> None:
        self._oplog = oplog
        self._engine = engine

    def noc_write(self, start_ps: int, src: Core, dst: Core, address: int, data: bytes) -> None:
        """Bytes of ``src`` have come to ``dst``."""
        self._append(NOC_WRITE, start_ps, src, str(dst), address, len(data), values_as_text(data))

    def noc_read(self, start_ps: int, src: Core, dst: Core, address: int, data: bytes) -> None:
        """Bytes of ``src`` have come to ``dst``, which had asked for them."""
        self._append(NOC_READ, start_ps, src, str(dst), address, len(data), values_as_text(data))

    def noc_increment(self, start_ps: int, src: Core, dst: Core, address: int, value: int) -> None:
        """A word of ``dst`` is ``value`` now."""
        self._append(NOC_INCREMENT, start_ps, src, str(dst), address, value)

    def eth_send(self, core: Core, queue: int, src: int, dst: int, nbytes: int, left_ps: int, arrival_ps: int) -> None:
        """A command was taken."""
        self._append(ETH_SEND, self._engine.now_ps, core, queue, src, dst, nbytes, left_ps, arrival_ps)

    def eth_arrive(self, core: Core, address: int, data: bytes) -> None:
        """A message is there."""
        self._append(ETH_ARRIVE, self._engine.now_ps, core, address, len(data), values_as_text(data))

    def host_wrote(self, core: Core, address: int, data: bytes) -> None:
        """The host wrote: no operation, so in the log's file only."""
        now_ps = self._engine.now_ps
        self._oplog.note(HOST_WRITE, now_ps, now_ps, core.x, core.y, address, len(data), values_as_text(data))

    def _append(self, kind: str, start_ps: int, core: Core, *fields: object) -> None:
        self._oplog.append(kind, start_ps, self._engine.now_ps, core.x, core.y, *fields)
