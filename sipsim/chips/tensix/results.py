"""Op log of a Tensix chip, and the bytes that a race search compares."""

import hashlib
from collections.abc import Callable, Iterable
from functools import partial

from sipsim.chips.tensix.durations import KernelTimes
from sipsim.chips.tensix.memory import PAGE_BYTES, TileMemory
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.plan import TensixPlan
from sipsim.chips.tensix.replay import Replay
from sipsim.core.engine import Engine
from sipsim.core.errors import KernelMisuse
from sipsim.records.oplog import OpLog, TraceFile, TraceLine, record_kind, values_as_text

NOC_WRITE = record_kind("noc.write", "dst", "addr", "nbytes", "values")
NOC_READ = record_kind("noc.read", "dst", "addr", "nbytes", "values")
NOC_INCREMENT = record_kind("noc.increment", "dst", "addr", "value")
ETH_SEND = record_kind("eth.send", "queue", "src", "dst_addr", "nbytes", "left_ps", "arrival_ps")
ETH_ARRIVE = record_kind("eth.arrive", "addr", "nbytes", "values")
KERNEL = record_kind("kernel", "name", "processor")
HOST_WRITE = record_kind("host.write_tile", "addr", "nbytes", "values")


class KernelTrace:
    """Trace of a chip's kernels, and of the messages of its links.

    A message has the direction ``ethCHANNEL`` of its core, and is traced without a row, as rows share routers.
    """

    def __init__(self, rank: int, plan: TensixPlan, file: TraceFile) -> None:
        self._rank = rank
        self._plan = plan
        self._file = file

    def kernel(self, kernel: KernelTimes, run: int | None) -> None:
        """Write the line of a kernel that has ended."""
        core, start_ps, name = kernel.core, kernel.start_ps, kernel.name
        line = TraceLine(self._rank, core.x, core.y, kernel.end_ps, "kernel", "", 0, run, start_ps, "", name)
        self._file.append(line)

    def message(self, what: str, core: Core, start_ps: int, end_ps: int, nbytes: int) -> None:
        """Write the line of a message that left (``send``) or arrived (``recv``) at ``end_ps``."""
        channel = self._plan.floor_plan.ethernet.index(core)
        link = self._plan.links[self._rank][channel]
        far = self._plan.floor_plan.ethernet[link.far_channel]
        peer = f"{link.far_sip}.{far.x}.{far.y}"
        line = TraceLine(self._rank, *core, end_ps, what, f"eth{channel}", nbytes, None, start_ps, peer, "")
        self._file.append(line)


class TileLog:
    """Op log of a chip: appends records to ``oplog``, with the time of ``engine``. ``trace``: the chip's trace, or
    None. ``replay``: feed of the second pass, or None.

    The log contains each memory access of a NoC command when the access happens, and each Ethernet message twice: at
    the command and at the arrival. A tile's x and y are in the fields that other chips use for cube and PE.
    """

    def __init__(
        self, oplog: OpLog, engine: Engine, trace: KernelTrace | None = None, replay: Replay | None = None
    ) -> None:
        self._oplog = oplog
        self._engine = engine
        self._trace = trace
        self.replay = replay

    def noc_write(self, start_ps: int, src: Core, dst: Core, address: int, data: bytes) -> None:
        """Log a write: bytes of ``src`` have arrived at ``dst``."""
        self._append(NOC_WRITE, start_ps, src, str(dst), address, len(data), values_as_text(data))

    def noc_read(self, start_ps: int, src: Core, dst: Core, address: int, data: bytes) -> None:
        """Log a read: bytes of ``src``, requested by ``dst``, have arrived."""
        self._append(NOC_READ, start_ps, src, str(dst), address, len(data), values_as_text(data))

    def noc_increment(self, start_ps: int, src: Core, dst: Core, address: int, value: int) -> None:
        """Log an increment: a word of ``dst`` is ``value`` now."""
        self._append(NOC_INCREMENT, start_ps, src, str(dst), address, value)

    def eth_send(self, core: Core, queue: int, src: int, dst: int, nbytes: int, left_ps: int, arrival_ps: int) -> None:
        """Log an Ethernet command that the queue has taken."""
        self._append(ETH_SEND, self._engine.now_ps, core, queue, src, dst, nbytes, left_ps, arrival_ps)
        if self._trace is not None:
            self._trace.message("send", core, self._engine.now_ps, left_ps, nbytes)

    def eth_arrive(self, core: Core, address: int, data: bytes) -> None:
        """Log the arrival of an Ethernet message."""
        self._append(ETH_ARRIVE, self._engine.now_ps, core, address, len(data), values_as_text(data))
        if self._trace is not None:
            self._trace.message("recv", core, self._engine.now_ps, self._engine.now_ps, len(data))

    def kernel(self, kernel: KernelTimes, run: int | None) -> None:
        """Log a kernel that has ended, in the log's file and in the trace. ``run``: number of the kernel's row.

        The op log does not count this record, as a kernel is no operation.
        """
        facts = kernel.name, kernel.processor
        self._oplog.note((KERNEL, kernel.start_ps, kernel.end_ps, *kernel.core, *facts))
        if self._trace is not None:
            self._trace.kernel(kernel, run)

    def host_wrote(self, core: Core, address: int, data: bytes) -> None:
        """Log a write of the host. This record is only in the log's file, as a host write is no chip operation."""
        now_ps = self._engine.now_ps
        if self.replay is not None:
            self.replay.host_wrote(core, address, data)
        self._oplog.note((HOST_WRITE, now_ps, now_ps, core.x, core.y, address, len(data), values_as_text(data)))

    def _append(self, kind: str, start_ps: int, core: Core, *fields: object) -> None:
        self._oplog.append((kind, start_ps, self._engine.now_ps, core.x, core.y, *fields))


class Results:
    """Results of a host script that a race search compares: declared ranges of tile memory, by name.

    Without declarations, a race search compares the workers' L1 and the DRAM, except ranges that may differ between
    correct runs: semaphores, words of connections and operations, and packets of a mux. The L1 of Ethernet cores is
    never compared without a declaration.
    """

    def __init__(self) -> None:
        self._declared: dict[str, Callable[[], bytes]] = {}
        self._excluded: dict[Core, set[range]] = {}

    def declare(self, name: str, core: Core, memory: TileMemory, address: int, nbytes: int) -> None:
        """Add a range of bytes as a result. If ``name`` is empty, the name is made from tile and address.

        Raises:
            MemoryAccessError: for a range outside of the memory.
            KernelMisuse: for a name that another result has.
        """
        memory.check(address, nbytes)
        name = name or f"{nbytes} B at 0x{address:x} of {core}"
        if name in self._declared:
            raise KernelMisuse(f"two results have the name {name!r}; give each result a different name")
        self._declared[name] = partial(memory.read, address, nbytes)

    def exclude(self, core: Core, addresses: range) -> None:
        """Exclude addresses of a tile from the results that are compared without declarations."""
        self._excluded.setdefault(core, set()).add(addresses)

    def digests(self, others: Iterable[tuple[str, Core, TileMemory, int]]) -> dict[str, str]:
        """Return the SHA-256 of each result by name. ``others``: memories to compare if nothing is declared, each as
        (name of the combined result, tile, memory, first address to compare).
        """
        if self._declared:
            return {name: _sha256([read()]) for name, read in sorted(self._declared.items())}
        parts: dict[str, list[bytes]] = {}
        for name, core, memory, first in others:
            chunks = parts.setdefault(name, [])
            excluded = range(first), *self._excluded.get(core, ())
            for page, data in memory.pages():
                compared = _without(data, page * PAGE_BYTES, excluded)
                if any(compared):
                    chunks += [f"{core} {page} ".encode(), compared]
        return {name: _sha256(chunks) for name, chunks in parts.items()}


def _without(data: bytes, base: int, excluded: Iterable[range]) -> bytes:
    """Return the bytes at ``base``, with 0 at excluded addresses."""
    masked = bytearray(data)
    for each in excluded:
        first, end = max(each.start - base, 0), min(each.stop - base, len(data))
        if first < end:
            masked[first:end] = bytes(end - first)
    return bytes(masked)


def _sha256(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
