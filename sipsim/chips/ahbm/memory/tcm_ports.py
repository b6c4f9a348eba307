"""A PE's own memory: ports for reads and writes, or banks with such ports each, where the rings may have their own.

With banks, lines of the TCM go round them. ADR-0023 D20 gives the rings of PE_IPCQ a bank of their own, so that a
message that arrives and an engine that computes never meet (D22). Each port is an edge, and so are the ports of all
banks together (:class:`~sipsim.chips.ahbm.memory.banked_sram.BankSet`).
"""

from typing import Annotated, Any, Literal

from msgspec import Meta

from sipsim.chips.ahbm.address import OFFSET_BITS, Region, TcmMap
from sipsim.chips.ahbm.memory.banked_sram import BankSet
from sipsim.chips.ahbm.memory.ports import MEMORY_KINDS, Load, MemoryPort, Refusal
from sipsim.chips.ahbm.memory.store import Block
from sipsim.config.schema import MemoryCost, Positive, Section, TcmCost
from sipsim.core.engine import Engine
from sipsim.core.units import gbytes_per_s_to_bps
from sipsim.fabric.graph import Node

OWN = "own"
_LINE_BITS = 6
"""Of a line of 64 B."""
_READ: tuple[Load, ...] = (("read port", 0),)
_WRITE: tuple[Load, ...] = (("write port", 0),)
_BOTH: tuple[Load, ...] = (("port", 0),)


class TcmParams(Section, frozen=True):
    """``bandwidth_GBps``: of each port. ``ports``: one for reads and one for writes, or one for both. ``banks``: how
    many there are, each with such ports; None: no banks. ``ipcq_bank``: the last bank is that of the rings, or these
    are ``interleaved`` with all else.
    """

    bandwidth_GBps: Positive
    ports: Literal["read_and_write", "shared"] = "read_and_write"
    banks: Annotated[int, Meta(ge=1, le=1024)] | None = None
    ipcq_bank: Literal["own", "interleaved"] = "own"


@MEMORY_KINDS.register("tcm_ports")
class TcmPorts(MemoryPort):
    """The ports of a TCM. ``read_latency_ns`` and ``write_latency_ns`` of its section come on top.

    Loads and stores of the PE, copies, messages that arrive in its rings, operations of PE_MATH, and what PE_GEMM
    fetches and stores (:mod:`sipsim.chips.ahbm.gemm.pipeline`) use the same ports.

    Limits: with banks, an access may take all ports at a time, so the bandwidth of a TCM grows with their number. Two
    accesses that go round the same banks share what these give together: in hardware, too, once one is a bank behind
    the other. Banks are as large as their regions need. An access is in the region of its first byte, and a handle in
    several gaps counts as one run from the first. What PE_GEMM fetches and stores, and every handle where
    ``handles_take_room`` is false, lies at the start of the kernel's region.
    """

    Params = TcmParams

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, node: Node) -> None:
        super().__init__(cost, engine, node)
        self._is_shared = self.params.ports == "shared"
        self._kinds = ("port",) if self._is_shared else ("read port", "write port")
        self._bps = gbytes_per_s_to_bps(self.params.bandwidth_GBps)
        self.depends_on_address = self.params.banks is not None
        self._rings: Region | None = None
        self._sets: list[BankSet] = []
        self._ring_sets: list[BankSet] = []
        if self.params.banks is None:
            self.bandwidths = dict.fromkeys(self._kinds, self._bps)
        else:
            self._divide(self.params.banks)

    def lay_out(self, regions: TcmMap) -> None:
        if self.params.banks is not None and self.params.ipcq_bank == OWN:
            self._rings = regions.ipcq
            own = f"bank {self.params.banks - 1}"
            self._ring_sets = [BankSet(f"{kind} of the rings' {own}", (), _LINE_BITS) for kind in self._kinds]
            self._divide(self.params.banks - 1)

    def _divide(self, banks: int) -> None:
        """Lay everything but rings with a bank of their own round ``banks`` banks, line by line."""
        names = [[f"{kind} of bank {number}" for number in range(banks)] for kind in self._kinds]
        self._sets = [
            BankSet(f"{kind}s of the banks", some, _LINE_BITS) for kind, some in zip(self._kinds, names, strict=True)
        ]
        self.bandwidths = {
            name: bps for each in (*self._sets, *self._ring_sets) for name, bps in each.bandwidths(self._bps).items()
        }

    @classmethod
    def refusal(cls, params: Any, capacity_bytes: int) -> Refusal | None:
        if params.banks is None and params.ipcq_bank != OWN:
            return Refusal("ipcq_bank", "there are no banks; set banks, such as 4, or leave it at own")
        if params.banks == 1 and params.ipcq_bank == OWN:
            return Refusal("banks", "the rings have a bank of their own; give at least 2, or ipcq_bank=interleaved")
        return None

    def loads(self, block: Block, is_read: bool) -> tuple[Load, ...]:
        if not self._sets:
            return _BOTH if self._is_shared else _READ if is_read else _WRITE
        some = self._ring_sets if self._is_ring(block.address) else self._sets
        return some[0 if is_read else -1].loads(block)

    def _is_ring(self, address: int) -> bool:
        rings, offset = self._rings, address & (1 << OFFSET_BITS) - 1
        return rings is not None and rings.offset <= offset < rings.offset + rings.size
