"""Banked SRAM: addresses are interleaved over banks, each of which serves one access at a time.

An address offset selects, from the lowest bit: a byte of the interleave unit, the bank, the bank's word. A bank needs
``interleave_bytes / bank_bandwidth_GBps`` for each interleave unit that an access touches, whole or in part. All banks
together are one edge, and each bank is another edge: an access uses the joint edge and, unless it touches all banks,
the edge of each bank that it touches.

Limits: accesses to all banks share the joint bandwidth and never wait for a single bank; the path between port and
banks has the bandwidth of the port's edges.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta

from sipsim.chips.ahbm.address import OFFSET_BITS, Block
from sipsim.chips.ahbm.memory.ports import MEMORY_KINDS, Load, MemoryPort, Refusal
from sipsim.config.check import no_power_of_two
from sipsim.config.schema import MemoryCost, Positive, Section, TcmCost
from sipsim.core.engine import Engine
from sipsim.core.units import gbytes_per_s_to_bps
from sipsim.fabric.graph import Node

_OFFSET_MASK = (1 << OFFSET_BITS) - 1


class Banks(Section, frozen=True):
    """Parameters. ``interleave_bytes``: size of the interleave unit. ``bank_bandwidth_GBps``: bandwidth per bank."""

    banks: Annotated[int, Meta(ge=1, le=1024)]
    interleave_bytes: Annotated[int, Meta(ge=1, le=2**20)]
    bank_bandwidth_GBps: Positive


class BankSet:
    """Set of banks, interleaved every ``1 << stretch_bits`` bytes: one edge per name of ``names``, and edge ``every``
    for all banks together. Without ``names`` the set is one bank, with edge ``every``.
    """

    def __init__(self, every: str, names: Sequence[str], stretch_bits: int) -> None:
        self._every = every
        self._names = names
        self._stretch_bits = stretch_bits

    def bandwidths(self, bank_bps: int) -> dict[str, int]:
        """Return the bandwidth of each edge by name, in B/s."""
        return {self._every: max(len(self._names), 1) * bank_bps, **dict.fromkeys(self._names, bank_bps)}

    def loads(self, block: Block) -> tuple[Load, ...]:
        """Return the edges that an access to a block uses, with the bytes that count on each edge."""
        bits, banks = self._stretch_bits, max(len(self._names), 1)
        pieces = [0] * banks
        for address in block.addresses:
            offset = address & _OFFSET_MASK
            first, last = offset >> bits, offset + block.row_bytes - 1 >> bits
            rounds, more = divmod(last - first + 1, banks)
            for index in range(banks if rounds else more):
                pieces[(first + index) % banks] += rounds + (index < more)
        every = (self._every, sum(pieces) << bits)
        if all(pieces):
            return (every,)
        return (every, *[(name, count << bits) for name, count in zip(self._names, pieces, strict=True) if count])


@MEMORY_KINDS.register("banked_sram")
class BankedSram(MemoryPort):
    """SRAM with the section's ``read_latency_ns`` and ``write_latency_ns``, and with banks."""

    Params = Banks
    depends_on_address = True
    bandwidth_key = "params.bank_bandwidth_GBps"

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, node: Node) -> None:
        super().__init__(cost, engine, node)
        names = [f"bank {number}" for number in range(self.params.banks)]
        self._banks = BankSet("banks", names, self.params.interleave_bytes.bit_length() - 1)
        self.bandwidths = self._banks.bandwidths(gbytes_per_s_to_bps(self.params.bank_bandwidth_GBps))

    @classmethod
    def refusal(cls, params: Any, capacity_bytes: int) -> Refusal | None:
        for name in ("banks", "interleave_bytes"):
            if what := no_power_of_two(getattr(params, name)):
                return Refusal(name, f"{what}: address bits select the bank")
        return None

    def loads(self, block: Block, is_read: bool) -> tuple[Load, ...]:
        return self._banks.loads(block)
