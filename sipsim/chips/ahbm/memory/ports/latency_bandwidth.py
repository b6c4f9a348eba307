"""A latency, and a bandwidth that reads and writes share: the fast model of a memory, for sweeps.

An access of ``n`` bytes has the memory's one half-duplex bus for ``n / bandwidth_GBps``, in the order of arrival:

* a read's first byte leaves ``read_latency_ns`` after the bus is its own, its last one ``n / bandwidth`` later;
* a write has the bus from when its first byte came, and ends ``write_latency_ns`` after both the last byte's arrival
  and its time on the bus.

An access costs one event and O(1) arithmetic.

Limits: no banks, rows, refresh or turnaround; a long access holds the bus to its end, so a short one behind it waits
for all of it; a write whose data come more slowly than the bus takes them claims the bus as one piece, from its head
on.
"""

from sipsim.chips.ahbm.memory.ports.bus import Bus, BusWitness
from sipsim.chips.ahbm.memory.ports.port import MEMORY_KINDS, Ps, StreamingPort
from sipsim.chips.ahbm.memory.store.store import MemoryStore
from sipsim.config.schema.components import MemoryCost, Positive, TcmCost
from sipsim.config.schema.section import Section
from sipsim.core.engine import Engine
from sipsim.core.units import drain_ps, gbytes_per_s_to_bps, ns_to_ps

LATENCY_BANDWIDTH = "latency_bandwidth"
OTHERS = "other accesses"


class Bandwidth(Section, frozen=True):
    """``bandwidth_GBps``: of reads and writes together."""

    bandwidth_GBps: Positive


class BusPort(StreamingPort):
    """A port with a bus for reads and one for writes, which may be the same."""

    keeps_order = True

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, store: MemoryStore, is_shared: bool) -> None:
        super().__init__(cost, engine, store)
        self.least_read_ps = ns_to_ps(cost.read_latency_ns)
        self.least_write_ps = ns_to_ps(cost.write_latency_ns)
        self._bps = gbytes_per_s_to_bps(self.params.bandwidth_GBps)
        self._reads = Bus()
        self._writes = self._reads if is_shared else Bus()

    def check_buses(self) -> None:
        for bus, what in ((self._writes, "writes"), (self._reads, "reads")):
            bus.witness = BusWitness(f"{self.node}, {what}")

    def read_span_ps(self, nbytes: int) -> Ps:
        return drain_ps(nbytes, self._bps)

    def write_span_ps(self, nbytes: int) -> Ps:
        return drain_ps(nbytes, self._bps)

    def copy_span_ps(self, src: int, dst: int, nbytes: int) -> Ps:
        """Of one bus: the write has it after the read, whose latency passes meanwhile."""
        span_ps = drain_ps(nbytes, self._bps)
        return max(span_ps, 2 * span_ps - self.least_read_ps) if self._reads is self._writes else span_ps

    def claim_read(self, address: int, nbytes: int) -> tuple[Ps, Ps]:
        now_ps, span_ps = self.engine.now_ps, drain_ps(nbytes, self._bps)
        wait_ps = self._reads.take(now_ps, span_ps) - now_ps
        first_ps = wait_ps + self.least_read_ps
        if wait_ps:
            self.note_wait(True, address, nbytes, now_ps + first_ps + span_ps, (OTHERS, wait_ps))
        return first_ps, span_ps

    def claim_write(self, address: int, nbytes: int, span_ps: Ps) -> Ps:
        now_ps, drain = self.engine.now_ps, drain_ps(nbytes, self._bps)
        came_ps = now_ps - span_ps
        start_ps = self._writes.take(came_ps, drain)
        rest_ps = max(start_ps + drain - now_ps, 0)
        wait_ps = rest_ps - max(drain - span_ps, 0)
        end_ps = rest_ps + self.least_write_ps
        if wait_ps:
            self.note_wait(False, address, nbytes, now_ps + end_ps, (OTHERS, wait_ps))
        return end_ps


@MEMORY_KINDS.register(LATENCY_BANDWIDTH)
class LatencyBandwidth(BusPort):
    """``read_latency_ns`` and ``write_latency_ns`` of the section, ``params.bandwidth_GBps`` shared by both."""

    Params = Bandwidth

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, store: MemoryStore) -> None:
        super().__init__(cost, engine, store, is_shared=True)
