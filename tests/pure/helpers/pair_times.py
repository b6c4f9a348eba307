"""Times of a pair of neighbours by the default config, and common operations of their kernels. Not a test.

The pair is PE 0 of cube 0 and PE 0 of its neighbour to the E. The head needs 14,550 ps for the route in either
direction: wires 0.5 + 4 * 2.5 + 0.5 + 1 + 0.5 + 2.5 + 0.5 = 15.5 mm at 0.1 ns, PE 1, seven routers of 1, two UCIe ports
of 2, PE 1. The drain is 64 B a nanosecond.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from hardware import Bench, pair_bench, tcm

from sipsim.chips.ahbm.ipcq.pe_ipcq import PeIpcq
from sipsim.chips.ahbm.tl.language import TL

IPCQ_PS = 1_000
PE_PS = 1_000
WAY_PS = 14_550
WRITE_PS = {"tcm": 1_000, "hbm": 20_000, "sram": 5_000}
READ_PS = {"tcm": 1_000, "hbm": 99_000, "sram": 5_000}
NEAR_PS = 3_100
"""PE 1, 0.5 mm, a router of 1, 0.5 mm, and the port of the HBM or SRAM beside it 1; or back."""
RETURN_PS = IPCQ_PS + WAY_PS + 250
"""From the step in which recv takes a message to the credit's arrival; on its own wire recv blocks for it."""


def drain_ps(nbytes: int) -> int:
    return -(-nbytes * 1000 // 64)


def arrival_ps(nbytes: int, kind: str = "tcm") -> int:
    """From a send to the step in which its data and the pointer are seen."""
    return IPCQ_PS + WAY_PS + drain_ps(nbytes) + WRITE_PS[kind]


def near_fetch_ps(kind: str) -> int:
    """How much later than from the PE's own TCM: a command, the read, and the route to the PE."""
    return NEAR_PS + drain_ps(16) + READ_PS[kind] + NEAR_PS - PE_PS


def load_ps(kind: str, nbytes: int = 64) -> int:
    """A PE's read: of its own TCM the latency; else a command, the latency, and the route with the drain."""
    if kind == "tcm":
        return READ_PS[kind]
    return NEAR_PS + drain_ps(16) + READ_PS[kind] + NEAR_PS + drain_ps(nbytes)


def store_ps(kind: str, nbytes: int = 64) -> int:
    """A PE's write: to its own TCM the latency; else the route with the drain, the latency, and 16 B back."""
    if kind == "tcm":
        return WRITE_PS[kind]
    return NEAR_PS + drain_ps(nbytes) + WRITE_PS[kind] + NEAR_PS + drain_ps(16)


def math_ps(nbytes: int = 64) -> int:
    """An operation of PE_MATH on operands of ``nbytes``: its start, and the bytes at 64 GB/s."""
    return 1_000 + drain_ps(nbytes)


def put(bench: Bench, address: int, values: Any, dtype: str = "<f4") -> None:
    bench.sip.memory.write(address, np.array(values, dtype).tobytes())


def queue_bench(**defaults: object) -> Bench:
    """The pair, with other values below ``defaults``."""
    return pair_bench({f"defaults.{name}": value for name, value in defaults.items()})


def run_pair(
    bench: Bench,
    sender: int | Callable[[TL], Any],
    receiver: Callable[[TL], Any] | None = None,
    late_ps: int = 0,
) -> Bench:
    """Run a kernel on each PE of the pair, the receiver's from ``late_ps`` on; or send so many messages of 64 B without
    pause, each full of its own number.
    """

    def numbered(tl: TL) -> None:
        for index in range(sender if isinstance(sender, int) else 0):
            put(bench, tcm(0, 0), [index] * 16, "<i4")
            send_i32(tl, tcm(0, 0))

    def late(tl: TL) -> None:
        if late_ps:
            bench.pause(1, 0, late_ps)
        if receiver is not None:
            receiver(tl)

    bench.kernel(0, 0, numbered if isinstance(sender, int) else sender)
    if receiver is not None:
        bench.kernel(1, 0, late)
    bench.run()
    assert not bench.sip.waiting(), "a kernel waits for ever"
    return bench


def send_i32(tl: TL, address: int, count: int = 16) -> None:
    tl.send("E", src_addr=address, shape=count, dtype="i32")


def recv_i32(tl: TL, count: int = 16, **more: Any) -> list[int]:
    values: list[int] = tl.recv("W", count, "i32", **more).array.tolist()
    return values


def note_credits(bench: Bench, ipcq: PeIpcq) -> list[tuple[int, int]]:
    """From now on: (time, consumer_seq) of each credit that arrives at a PE."""
    seen: list[tuple[int, int]] = []
    credit: Callable[..., None] = ipcq.credit

    def record(metadata: Any) -> None:
        seen.append((bench.engine.now_ps, metadata.consumer_seq))
        credit(metadata)

    ipcq.credit = record  # type: ignore[method-assign]
    return seen


def credits_of(
    bench: Bench, sender: int | Callable[[TL], Any], receiver: Callable[[TL], Any], late_ps: int = 0
) -> list[tuple[int, int]]:
    """Run the pair; (time, consumer_seq) of each credit that arrives at the sender."""
    seen = note_credits(bench, bench.ipcq(0, 0))
    run_pair(bench, sender, receiver, late_ps)
    return seen
