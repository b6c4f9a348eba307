"""The op log of a chip of tiles, and the bytes that a race search compares."""

import hashlib
from collections.abc import Callable, Iterable
from functools import partial

from sipsim.chips.tensix.memory import PAGE_BYTES, TileMemory
from sipsim.chips.tensix.noc import Core
from sipsim.core.engine import Engine
from sipsim.core.errors import KernelMisuse
from sipsim.records.oplog import OpLog, record_kind, values_as_text

NOC_WRITE = record_kind("noc.write", "dst", "addr", "nbytes", "values")
NOC_READ = record_kind("noc.read", "dst", "addr", "nbytes", "values")
NOC_INCREMENT = record_kind("noc.increment", "dst", "addr", "value")
ETH_SEND = record_kind("eth.send", "queue", "src", "dst_addr", "nbytes", "left_ps", "arrival_ps")
ETH_ARRIVE = record_kind("eth.arrive", "addr", "nbytes", "values")
HOST_WRITE = record_kind("host.write_tile", "addr", "nbytes", "values")


class TileLog:
    """The op log of a chip: appends to ``oplog``; ``engine`` has the time.

    It has each access of a NoC command when it has arrived, each Ethernet message when it was taken and when it came. A
    tile's coordinates stand where other chips have cube and PE.
    """

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
        self._oplog.note((HOST_WRITE, now_ps, now_ps, core.x, core.y, address, len(data), values_as_text(data)))

    def _append(self, kind: str, start_ps: int, core: Core, *fields: object) -> None:
        self._oplog.append((kind, start_ps, self._engine.now_ps, core.x, core.y, *fields))


class Results:
    """The bytes of tiles that a host script has declared as its results, by name: what a race search compares.

    Without any, all of what programs have in workers and in DRAM. Not the L1 of Ethernet cores, nor the semaphores of
    workers, nor the words of connections to a fabric and of operations, nor the packets of a mux: in which of its
    buffers a data mover has left what, and how far a counter has come, may differ in good runs.
    """

    def __init__(self) -> None:
        self._declared: dict[str, Callable[[], bytes]] = {}
        self._left_out: dict[Core, set[range]] = {}

    def declare(self, name: str, core: Core, memory: TileMemory, address: int, nbytes: int) -> None:
        """Add a range; without a ``name`` it is called by its tile and address.

        Raises:
            MemoryAccessError: outside of the memory.
            KernelMisuse: for a name that another one has.
        """
        memory.check(address, nbytes)
        name = name or f"{nbytes} B at 0x{address:x} of {core}"
        if name in self._declared:
            raise KernelMisuse(f"a result is called {name!r} already; give each a name of its own")
        self._declared[name] = partial(memory.read, address, nbytes)

    def leave_out(self, core: Core, addresses: range) -> None:
        """Addresses of a tile whose bytes do not count where nothing is declared."""
        self._left_out.setdefault(core, set()).add(addresses)

    def digests(self, others: Iterable[tuple[str, Core, TileMemory, int]]) -> dict[str, str]:
        """SHA-256 by name. ``others``: without declared ones, memories by the name under which they are taken
        together, their tile and the first address that counts.
        """
        if self._declared:
            return {name: _sha256([read()]) for name, read in sorted(self._declared.items())}
        parts: dict[str, list[bytes]] = {}
        for name, core, memory, first in others:
            found = parts.setdefault(name, [])
            left_out = range(first), *self._left_out.get(core, ())
            for page, data in memory.pages():
                kept = _without(data, page * PAGE_BYTES, left_out)
                if any(kept):
                    found += [f"{core} {page} ".encode(), kept]
        return {name: _sha256(found) for name, found in parts.items()}


def _without(data: bytes, base: int, left_out: Iterable[range]) -> bytes:
    """The bytes from address ``base`` on, with 0 at the addresses that are left out."""
    found = bytearray(data)
    for each in left_out:
        first, end = max(each.start - base, 0), min(each.stop - base, len(data))
        if first < end:
            found[first:end] = bytes(end - first)
    return bytes(found)


def _sha256(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
