"""Memory kind ``tcm_ports``: the ports of a PE's TCM, and of its banks if it has banks.

Without banks a TCM has a read port and a write port, or one port for both; with banks each bank has these. Lines of the
TCM are interleaved over the banks. ADR-0023 D20 gives the rings of PE_IPCQ a separate bank, so that arriving messages
and computing engines use different banks (D22). Each port is an edge; one more edge stands for all interleaved banks
together (:class:`~sipsim.chips.ahbm.memory.banked_sram.BankSet`).
"""

from typing import Annotated, Any, Literal

from msgspec import Meta

from sipsim.chips.ahbm.address import OFFSET_BITS, Block, Region, TcmMap
from sipsim.chips.ahbm.memory.banked_sram import BankSet
from sipsim.chips.ahbm.memory.ports import MEMORY_KINDS, Load, MemoryPort, Refusal
from sipsim.config.schema import MemoryCost, Positive, Section, TcmCost
from sipsim.core.engine import Engine
from sipsim.core.units import gbytes_per_s_to_bps
from sipsim.fabric.graph import Node

OWN = "own"
_LINE_BITS = 6
"""A line has ``1 << _LINE_BITS`` bytes."""


class TcmParams(Section, frozen=True):
    """Parameters of ``tcm_ports``. ``bandwidth_GBps``: of each port. ``ports``: a read port and a write port, or a
    shared port. ``banks``: number of banks, each with these ports; None for no banks. ``ipcq_bank``: the rings have
    the last bank alone (``own``), or their lines are ``interleaved`` over all banks.
    """

    bandwidth_GBps: Positive
    ports: Literal["read_and_write", "shared"] = "read_and_write"
    banks: Annotated[int, Meta(ge=1, le=1024)] | None = None
    ipcq_bank: Literal["own", "interleaved"] = "own"


@MEMORY_KINDS.register("tcm_ports")
class TcmPorts(MemoryPort):
    """Ports of a TCM. Accesses also take ``read_latency_ns`` or ``write_latency_ns`` of its section.

    Loads and stores of the PE, copies, messages that arrive in its rings, operations of PE_MATH, and fetches and stores
    of PE_GEMM (:mod:`sipsim.chips.ahbm.gemm.pipeline`) use the same ports.

    Limits: with banks, one access may use the ports of all banks at once, so the bandwidth of a TCM grows with the
    number of banks. Accesses to the same banks share bandwidth; hardware does so once one access follows the other
    by a bank. A bank has the size that its contents need. The first byte of an access decides its region, and a handle
    in several gaps counts as contiguous from its first byte. Fetches and stores of PE_GEMM use the start of the kernel
    region as their address; so do all handles if ``handles_take_room`` is false.
    """

    Params = TcmParams

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, node: Node) -> None:
        super().__init__(cost, engine, node)
        self._kinds = ("port",) if self.params.ports == "shared" else ("read port", "write port")
        self._bps = gbytes_per_s_to_bps(self.params.bandwidth_GBps)
        self.depends_on_address = self.params.banks is not None
        self.bandwidths = dict.fromkeys(self._kinds, self._bps)
        self._rings: Region | None = None
        self._sets: list[BankSet] = []
        self._ring_sets: list[BankSet] = []

    def lay_out(self, regions: TcmMap | None) -> None:
        banks = self.params.banks
        if banks is None:
            return
        if regions is not None and self.params.ipcq_bank == OWN:
            banks, self._rings = banks - 1, regions.ipcq
            self._ring_sets = [BankSet(f"{kind} of the rings' bank {banks}", (), _LINE_BITS) for kind in self._kinds]
        for kind in self._kinds:
            names = [f"{kind} of bank {number}" for number in range(banks)]
            self._sets.append(BankSet(f"{kind}s of the banks", names, _LINE_BITS))
        all_sets = (*self._sets, *self._ring_sets)
        self.bandwidths = {name: bps for each in all_sets for name, bps in each.bandwidths(self._bps).items()}

    @classmethod
    def refusal(cls, params: Any, capacity_bytes: int) -> Refusal | None:
        if params.banks is None and params.ipcq_bank != OWN:
            return Refusal("ipcq_bank", "there are no banks; set banks=4, for example, or ipcq_bank=own")
        if params.banks == 1 and params.ipcq_bank == OWN:
            return Refusal("banks", "the rings need a separate bank; set banks to at least 2, or ipcq_bank=interleaved")
        return None

    def loads(self, block: Block, is_read: bool) -> tuple[Load, ...]:
        if not self._sets:
            # A port moves the bytes of the access, even if the fabric carries them in flits.
            return ((self._kinds[0 if is_read else -1], block.nbytes if self.in_flits else 0),)
        bank_sets = self._ring_sets if self._is_ring(block.address) else self._sets
        return bank_sets[0 if is_read else -1].loads(block)

    def _is_ring(self, address: int) -> bool:
        rings, offset = self._rings, address & (1 << OFFSET_BITS) - 1
        return rings is not None and rings.offset <= offset < rings.offset + rings.size
