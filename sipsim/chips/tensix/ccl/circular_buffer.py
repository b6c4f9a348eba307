"""Circular buffer by which the kernels of a worker of an operation pass packets on."""

from functools import partial
from typing import NamedTuple

from sipsim.chips.tensix.ccl.tensors import BUFFER_BYTES
from sipsim.chips.tensix.dataflow import Dataflow
from sipsim.chips.tensix.fabric.channels import Ring
from sipsim.chips.tensix.formats import Format
from sipsim.chips.tensix.memory import ATOMIC_BYTES
from sipsim.chips.tensix.params import CclParams


def slots_for(slot_bytes: int, ccl: CclParams) -> int:
    """Return the number of slots of a circular buffer."""
    return min(max(BUFFER_BYTES // slot_bytes, 1), ccl.buffer_packets)


class CircularBuffer(NamedTuple):
    """Circular buffer of packets in the L1 of a worker. A slot has space for operands, ``operand_bytes`` apart.

    ``pushed``, ``summed``, ``popped``: addresses of words that count packets. ``add_ns_per_byte``: time of an addition.
    ``hint``: text after the name of a wait.
    """

    ring: Ring
    operand_bytes: int
    pushed: int
    summed: int
    popped: int
    add_ns_per_byte: float
    hint: str = ""

    def wait_for_room(self, number: int, df: Dataflow) -> int:
        """Wait for the slot of packet ``number``; return the slot's address."""
        least = number + 1 - self.ring.slots
        if least > 0:
            df.wait_until(partial(_is_more, df, self.popped, least - 1), f"room in its circular buffer{self.hint}")
        return self.ring.address(number)

    def wait_for_packet(self, number: int, word: int, df: Dataflow) -> int:
        """Wait until the count at ``word``, ``pushed`` or ``summed``, has packet ``number``; return its address."""
        df.wait_until(partial(_is_more, df, word, number), f"a packet in its circular buffer{self.hint}")
        return self.ring.address(number)

    def add(self, number: int, dtype: Format, nbytes: int, operands: int, df: Dataflow) -> None:
        """Replace the first operand of packet ``number`` with the sum of all operands."""
        df.owe((operands - 1) * nbytes * self.add_ns_per_byte)
        df.put_sum(self.ring.address(number), dtype, nbytes, self.operand_bytes, operands)

    @staticmethod
    def advance(number: int, word: int, df: Dataflow) -> None:
        """Set the count at a word to the packets up to ``number``."""
        df.store(word, (number + 1).to_bytes(ATOMIC_BYTES, "little"))


def _is_more(df: Dataflow, word: int, number: int) -> bool:
    return df.peek_word(word) > number
