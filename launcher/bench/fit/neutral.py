"""Where a fit begins: a value for each parameter that comes from what the hardware has to do, not from a fit.

A store or load of L1 or of a register is taken as 5 cycles, Wormhole's ``risc.l1_access_ns``. None of these values
is changed when a fit has found another: a hold-out is worth nothing if it begins with values that saw all rows.
"""

from typing import NamedTuple

BYTES_A_CYCLE, CYCLES, PLAIN = "bytes a cycle", "cycles", "plain"


class Neutral(NamedTuple):
    """``amount``: in cycles of the chip's clock, in bytes a cycle, or as the parameter has it; ``reason``: whence.
    ``least``: in the parameter's own unit, what the configuration takes.
    """

    amount: float
    of: str
    reason: str
    least: float = 0.0

    def value(self, clock_MHz: float) -> float:
        """In the parameter's own unit: ns, GB/s, or what it counts."""
        if self.of == CYCLES:
            return self.amount * 1000 / clock_MHz
        return self.amount * clock_MHz / 1000 if self.of == BYTES_A_CYCLE else self.amount


NEUTRAL = {
    "ethernet.copy_GBps": Neutral(16, BYTES_A_CYCLE, "a port of L1 has 16 B a cycle", 12.5),
    "risc.noc_command_ns": Neutral(40, CYCLES, "eight registers of the NoC's interface are written"),
    "risc.eth_command_ns": Neutral(25, CYCLES, "four registers of a transmit queue are written, one is read"),
    "risc.timer_ns": Neutral(20, CYCLES, "two halves of the timer are read and stored"),
    "data_mover.sender_visit_ns": Neutral(30, CYCLES, "six loads and stores: pointers, a counter, a flag"),
    "fabric.copy_bytes": Neutral(1500, PLAIN, "a MAC has the whole of an Ethernet packet before it sends"),
    "fabric.mux_visit_ns": Neutral(100, CYCLES, "a round of the loop and a NoC command"),
    "costs.round_ns": Neutral(60, CYCLES, "calls and branches of a loop over five channels, twelve instructions each"),
    "costs.look_ns": Neutral(12, CYCLES, "two loads of L1, a comparison and a branch"),
    "costs.send_ns": Neutral(25, CYCLES, "an Ethernet command"),
    "costs.sent_ns": Neutral(20, CYCLES, "four loads and stores: pointers and counters"),
    "costs.forward_ns": Neutral(40, CYCLES, "a NoC command"),
    "costs.further_ns": Neutral(40, CYCLES, "a NoC command"),
    "costs.completion_ns": Neutral(25, CYCLES, "an Ethernet command"),
    "costs.ack_ns": Neutral(45, CYCLES, "an Ethernet command, four loads and stores"),
    "ccl.launch_ns": Neutral(1000, CYCLES, "a kernel loads some hundred arguments and stores them, and sets up"),
    "ccl.skew_ns": Neutral(
        1000, PLAIN, "a host writes to one chip after the other; a write over PCIe takes about 1 us"
    ),
    "ccl.page_ns": Neutral(40, CYCLES, "a NoC command"),
    "ccl.add_GBps": Neutral(64 / 3, BYTES_A_CYCLE, "32 lanes of bf16; two loads and a store an addition"),
    "ccl.read_packets": Neutral(2, PLAIN, "while one is sent, the next is read"),
    "ccl.copier_bytes": Neutral(2**20, PLAIN, "from about what fits into the L1 of one worker"),
}
"""By the last two parts of a key: a revision's own costs begin as the fabric's."""


def neutral(key: str) -> Neutral:
    """What a key of a chip's file begins with.

    Raises:
        KeyError: for a key that has none; it is to be added above, with its reason.
    """
    return NEUTRAL[".".join(key.split(".")[-2:])]
