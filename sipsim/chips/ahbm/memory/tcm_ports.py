"""A PE's own memory: ports for reads and writes, or banks with such ports, one of which may be that of the rings.

With banks, lines of the TCM go round them. ADR-0023 D20 puts the rings of PE_IPCQ into a bank of their own, so that a
message that arrives and an engine that computes never want one bank (D22); then the other banks hold all else. Each
port is an edge, and so are the ports of all banks together (:class:`~sipsim.chips.ahbm.memory.banked_sram.BankSet`).
"""

from typing import Annotated, Any, Literal

from msgspec import Meta

from sipsim.chips.ahbm.address import OFFSET_BITS
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

    Limits: with banks, one access may take all ports at a time; two that go round the same banks share what these give
    together, as they do in hardware once one is a bank behind the other. What PE_GEMM fetches and stores lies at the
    start of the kernel's region.
    """

    Params = TcmParams

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, node: Node) -> None:
        super().__init__(cost, engine, node)
        params, self._is_shared = self.params, self.params.ports == "shared"
        kinds = ("port",) if self._is_shared else ("read port", "write port")
        bps, banks = gbytes_per_s_to_bps(params.bandwidth_GBps), params.banks
        self.depends_on_address = banks is not None
        self._has_ring_bank = params.ipcq_bank == OWN
        self._banks: list[BankSet] = []
        self._ring_bank: list[BankSet] = []
        if banks is None:
            self.bandwidths = dict.fromkeys(kinds, bps)
            return
        for kind in kinds:
            numbers = range(banks - self._has_ring_bank)
            self._banks.append(BankSet(f"{kind}s of the banks", [f"{kind} of bank {n}" for n in numbers], _LINE_BITS))
            self._ring_bank.append(BankSet(f"{kind} of the rings' bank", [f"{kind} of bank {banks - 1}"], _LINE_BITS))
        used = [*self._banks, *self._ring_bank] if self._has_ring_bank else self._banks
        self.bandwidths = {name: rate for each in used for name, rate in each.bandwidths(bps).items()}

    @classmethod
    def refusal(cls, params: Any, capacity_bytes: int) -> Refusal | None:
        if params.banks is None and params.ipcq_bank != OWN:
            return Refusal("ipcq_bank", "there are no banks; set banks, such as 4, or leave it at own")
        if params.banks == 1 and params.ipcq_bank == OWN:
            return Refusal("banks", "the rings have a bank of their own; give at least 2, or ipcq_bank=interleaved")
        return None

    def loads(self, block: Block, is_read: bool) -> tuple[Load, ...]:
        if not self._banks:
            return _BOTH if self._is_shared else _READ if is_read else _WRITE
        some = self._ring_bank if self._has_ring_bank and self._is_ring(block.address) else self._banks
        return some[0 if is_read else -1].loads(block)

    def _is_ring(self, address: int) -> bool:
        if self.regions is None:
            return False
        rings, offset = self.regions.ipcq, address & (1 << OFFSET_BITS) - 1
        return rings.offset <= offset < rings.offset + rings.size
