"""A PE's own memory: a port for reads and one for writes, or one for both, each of a bandwidth.

An access of ``n`` bytes has its port for ``n / bandwidth_GBps``, in the order of arrival, and takes the section's
latency besides: a read's first byte leaves the latency after the port is its own, a write ends the latency after its
last byte is taken in. Loads and stores of the PE, copies, and messages that arrive in its rings use the same ports.

What PE_GEMM fetches and stores passes them, too (:mod:`sipsim.chips.ahbm.gemm.pipeline.pipeline`).

Limits: no banks within a port; what PE_MATH reads and writes is not counted.
"""

from typing import Literal

from sipsim.chips.ahbm.memory.ports.latency_bandwidth import BusPort
from sipsim.chips.ahbm.memory.ports.port import MEMORY_KINDS
from sipsim.chips.ahbm.memory.store.store import MemoryStore
from sipsim.config.schema.components import MemoryCost, Positive, TcmCost
from sipsim.config.schema.section import Section
from sipsim.core.engine import Engine


class Ports(Section, frozen=True):
    """``ports``: one for reads and one for writes, or one for both. ``bandwidth_GBps``: of each."""

    bandwidth_GBps: Positive
    ports: Literal["read_and_write", "shared"] = "read_and_write"


@MEMORY_KINDS.register("tcm_ports")
class TcmPorts(BusPort):
    """``read_latency_ns`` and ``write_latency_ns`` of the section, ``params.bandwidth_GBps`` a port."""

    Params = Ports

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, store: MemoryStore) -> None:
        super().__init__(cost, engine, store, is_shared=cost.params.get("ports") == "shared")
