"""An SRAM of banks: neighbouring stretches of addresses are in neighbouring banks, and each serves one access a time.

Of the offset in the memory, the bits above those of ``interleave_bytes`` choose the bank, the bits above these its
word. A bank needs ``interleave_bytes / bank_bandwidth_GBps`` for each stretch that an access touches, be it the whole
of it or a byte. With ``rounds`` the most stretches that an access has in one bank:

* a read's first byte leaves ``read_latency_ns`` after its first bank is free, its last one when the last bank is
  through: ``(rounds - 1) * stretch`` later if none is busy;
* a write's banks are busy from when its first byte came; it ends ``write_latency_ns`` after both its last byte's
  arrival and the end of the last bank.

An access costs one event and O(banks) arithmetic.

Limits: a long access claims all of its stretches when it begins, so a short one waits for all of those in its bank; the
way between port and banks has the bandwidth of the port's edges.
"""

from typing import Annotated, Any

from msgspec import Meta

from sipsim.chips.ahbm.address import OFFSET_BITS
from sipsim.chips.ahbm.memory.ports import MEMORY_KINDS, Bus, BusWitness, Ps, Refusal, StreamingPort
from sipsim.chips.ahbm.memory.store import MemoryStore
from sipsim.config.document import no_power_of_two
from sipsim.config.schema import MemoryCost, Positive, Section, TcmCost
from sipsim.core.engine import Engine
from sipsim.core.units import drain_ps, gbytes_per_s_to_bps, ns_to_ps

_OFFSET_MASK = (1 << OFFSET_BITS) - 1
CONFLICTS = "bank conflicts"
"""With other accesses, and of an access that touches a bank more often than one of its size must."""


class Banks(Section, frozen=True):
    """``banks``: their number. ``interleave_bytes``: a stretch. ``bank_bandwidth_GBps``: of each bank."""

    banks: Annotated[int, Meta(ge=1, le=1024)]
    interleave_bytes: Annotated[int, Meta(ge=1, le=2**20)]
    bank_bandwidth_GBps: Positive


@MEMORY_KINDS.register("banked_sram")
class BankedSram(StreamingPort):
    """``read_latency_ns`` and ``write_latency_ns`` of the section, and its banks."""

    Params = Banks
    bandwidth_key = "params.bank_bandwidth_GBps"

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, store: MemoryStore) -> None:
        super().__init__(cost, engine, store)
        self.least_read_ps = ns_to_ps(cost.read_latency_ns)
        self.least_write_ps = ns_to_ps(cost.write_latency_ns)
        self._stretch_bits = self.params.interleave_bytes.bit_length() - 1
        self._stretch_ps = drain_ps(self.params.interleave_bytes, gbytes_per_s_to_bps(self.params.bank_bandwidth_GBps))
        self._banks = [Bus() for _ in range(self.params.banks)]

    @classmethod
    def refusal(cls, params: Any, capacity_bytes: int) -> Refusal | None:
        for name in ("banks", "interleave_bytes"):
            if what := no_power_of_two(getattr(params, name)):
                return Refusal(name, f"address bits choose the bank, so it {what}")
        return None

    def check_buses(self) -> None:
        for number, bank in enumerate(self._banks):
            bank.witness = BusWitness(f"{self.node}, bank {number}")

    def read_span_ps(self, nbytes: int) -> Ps:
        return max(self.write_span_ps(nbytes) - self._stretch_ps, 0)

    def write_span_ps(self, nbytes: int) -> Ps:
        rounds: int = -(-nbytes // (len(self._banks) << self._stretch_bits))
        return rounds * self._stretch_ps

    def copy_span_ps(self, src: int, dst: int, nbytes: int) -> Ps:
        """A bank serves the write after the read, whose latency passes meanwhile."""
        read, written = ([rounds * self._stretch_ps for rounds in self._rounds(at, nbytes)] for at in (src, dst))
        latency_ps = self.least_read_ps
        ends = (max(free_ps, latency_ps) + ps for free_ps, ps in zip(read, written, strict=True) if ps)
        return max(max(read) - self._stretch_ps, max(ends) - latency_ps)

    def _rounds(self, address: int, nbytes: int) -> list[int]:
        """The stretches of an access in each bank."""
        banks, offset = len(self._banks), address & _OFFSET_MASK
        first, last = offset >> self._stretch_bits, offset + nbytes - 1 >> self._stretch_bits
        return [(last - bank) // banks - (first - 1 - bank) // banks for bank in range(banks)]

    def claim_read(self, address: int, nbytes: int) -> tuple[Ps, Ps]:
        now_ps, span_ps = self.engine.now_ps, self.read_span_ps(nbytes)
        start_ps, end_ps = self._occupy(address, nbytes, now_ps)
        first_ps = start_ps - now_ps + self.least_read_ps
        rest_ps = max(end_ps - start_ps - self._stretch_ps, 0)
        wait_ps = first_ps + rest_ps - self.least_read_ps - span_ps
        if wait_ps:
            self.note_wait(True, address, nbytes, now_ps + first_ps + rest_ps, (CONFLICTS, wait_ps))
        return first_ps, rest_ps

    def claim_write(self, address: int, nbytes: int, span_ps: Ps) -> Ps:
        now_ps = self.engine.now_ps
        rest_ps = max(self._occupy(address, nbytes, now_ps - span_ps)[1] - now_ps, 0)
        wait_ps = rest_ps - max(self.write_span_ps(nbytes) - span_ps, 0)
        end_ps = rest_ps + self.least_write_ps
        if wait_ps:
            self.note_wait(False, address, nbytes, now_ps + end_ps, (CONFLICTS, wait_ps))
        return end_ps

    def _occupy(self, address: int, nbytes: int, from_ps: Ps) -> tuple[Ps, Ps]:
        """When the access has its first bank, and when the last one is through."""
        offset, banks = address & _OFFSET_MASK, self._banks
        first = offset >> self._stretch_bits
        stretches = (offset + nbytes - 1 >> self._stretch_bits) - first + 1
        rounds, more = divmod(stretches, len(banks))
        start_ps, end_ps = 0, from_ps
        for index in range(min(stretches, len(banks))):
            bank = banks[(first + index) % len(banks)]
            began_ps = bank.take(from_ps, (rounds + (index < more)) * self._stretch_ps)
            if index == 0:
                start_ps = began_ps
            if bank.free_ps > end_ps:
                end_ps = bank.free_ps
        return start_ps, end_ps
