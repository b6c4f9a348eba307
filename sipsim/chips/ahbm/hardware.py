"""The controller of queue pairs as hardware: its registers and steps, and the estimates of ADR-0023 for them.

Registers count as sizes. Delays, areas and power are estimates of the record (D21, 2 nm, 8 directions): they change no
simulated time and no result. ``ahbm-probe --hardware`` prints all of them for a config.
"""

from typing import NamedTuple

REGISTERS = {
    "my_head": "sender's write position",
    "my_tail": "receiver's read position",
    "peer_head_cache": "last known head of the peer, written by the meta extractor",
    "peer_tail_cache": "last known tail of the peer, written by the credit receiver",
    "rx_base_pa": "base of this PE's receive ring",
    "peer_rx_base_pa": "base of the peer's receive ring",
    "n_slots": "slots of a ring",
    "slot_size": "bytes of a slot",
    "peer_credit_tgt": "address to which credits return",
}
"""Registers of one direction, each with its meaning. Source: ADR-0023 D17."""
REGISTER_BYTES = 8
"""Bytes of a register. Source: ADR-0023 D17: 64 bits each."""
QUEUE_PAIR_BYTES = len(REGISTERS) * REGISTER_BYTES
"""Bytes of a queue pair's metadata; 576 B for 8 directions (ADR-0023 D17)."""
MAX_DIRECTIONS = 8
"""Directions for which a PE has registers (ADR-0023 D17); checked only under ``hw_strict``, also for groups."""


class Module(NamedTuple):
    """Estimate of a module for :data:`MAX_DIRECTIONS` directions: area in mm2, and ``amount`` of ``unit``.

    ``scales``: each direction has a share of the module; else all directions use one.
    """

    name: str
    unit: str
    amount: int
    mm2: float
    scales: bool
    is_controller: bool = True


FLIP_FLOPS, GATES = "FF", "gates"
MODULES = (
    Module("register file", FLIP_FLOPS, MAX_DIRECTIONS * QUEUE_PAIR_BYTES * 8, 0.002, True),
    Module("slot address generator, backpressure", GATES, 5_000, 0.001, False),
    Module("meta extractor, credit logic", GATES, 3_000, 0.001, True),
    Module("PE_DMA: messages on vc_comm", GATES, 2_000, 0.002, False, is_controller=False),
)
"""Modules in 2 nm. Source: ADR-0023 D21, area estimate. Comparators of the third are one per direction."""
DELAYS_NS = {
    "backpressure: subtract, compare": 0.3,
    "slot address: mask, shift, add": 0.5,
    "meta extractor: 8 range matches": 0.4,
    "credit receiver: 8 comparisons": 0.3,
}
"""Delays of paths in 2 nm, in ns. Source: ADR-0023 D21, timing."""
ACTIVE_MW = 1
"""Power while sending or receiving, in mW; idle: leakage only. Source: ADR-0023 D21, power."""


class Step(NamedTuple):
    """Step of the controller: ``least`` to ``most`` cycles in the record, and whether the simulator charges
    ``pe_ipcq.overhead_ns`` for it. ``why``: what is charged, or why nothing is.
    """

    name: str
    least: int
    most: int
    is_charged: bool
    why: str


STEPS = (
    Step("slot address generator", 1, 2, True, "pe_ipcq.overhead_ns, a pass per send"),
    Step("backpressure comparator", 1, 1, False, "in the pass of the send"),
    Step(
        "meta extractor", 1, 1, False, "in the step that moves the pointer: the write of the slot (I6), or a doorbell"
    ),
    Step("credit injector", 1, 1, True, "pe_ipcq.overhead_ns, a pass per credit"),
    Step("credit receiver", 1, 1, False, "in the step in which the credit arrives"),
)
"""Steps. Source: ADR-0023 D17, latencies."""
