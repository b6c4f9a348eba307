"""Host script ``eth_bandwidth``: messages over one link, in one or both directions, to an Ethernet core or a worker.

An Ethernet core has ``channels`` buffers per direction and one polling loop, which visits the sender and receiver of
the core (:mod:`launcher.bench.programs.ends`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from launcher.bench.programs.common import Slots, begin, check, end, pattern, report, settings
from launcher.bench.programs.ends import Receiver, Sender
from sipsim.chips.tensix.eth_dataflow import SYNC_BYTES, EthDataflow
from sipsim.chips.tensix.noc import Core

KIB = 2**10


def end_of_link(number: int, makers: list[Callable[[EthDataflow], Any]], times: list[float], tt: Any, df: Any) -> None:
    """Run the kernel of an Ethernet core, and append the time of the kernel's loop in ns to ``times``."""
    begin(number, df)
    sides = [make(df) for make in makers]
    began_ns = tt.now_ns()
    while not all(side.is_done for side in sides):
        df.wait_until(lambda: any(side.has_work() for side in sides), "a message or a free buffer")
        for side in sides:
            if side.has_work():
                side.work()
    times.append(tt.now_ns() - began_ns)
    end(number, df)


def worker(rank: int, world_size: int, tt: Any) -> None:
    """Run on both chips, size by size; each sender reports ``nbytes``, ``loop_ns`` and ``channels``."""
    chosen = settings()
    core = tt.ethernet_cores_to(1 - rank)[0]
    for number, nbytes in enumerate(chosen["sizes"], 1):
        _run(number, nbytes, rank, core, chosen, tt)


def _run(number: int, nbytes: int, rank: int, core: Core, chosen: Any, tt: Any) -> None:
    senders = (0, 1) if chosen["is_bidirectional"] else (0,)
    rings = _rings(nbytes, len(senders), chosen["channels"], core, tt)
    messages, mode = chosen["samples"], chosen["worker"]
    far_tile = None if mode == "none" else nearest_worker(core, tt)
    makers: list[Callable[[EthDataflow], Any]] = []
    for sender, slots in zip(senders, rings, strict=True):
        for each in range(slots.buffers):
            filled = pattern(nbytes, each) if sender == rank else bytes(nbytes)
            tt.write(core, slots.payload(each), filled + bytes(16))
        if sender == rank:
            makers.append(partial(Sender, slots, messages, tt))
        else:
            makers.append(partial(Receiver, slots, messages, far_tile, mode, tt))
    times: list[float] = []
    program = tt.create_program()
    tt.create_kernel(program, end_of_link, core, args=(number, makers, times, tt))
    tt.enqueue_program(program)
    tt.finish()
    _check_last(nbytes, rank, core, senders, rings, messages, far_tile, tt)
    if rank in senders:
        report(nbytes=nbytes, loop_ns=times[0], channels=rings[0].buffers, rank=rank)


def _rings(nbytes: int, n_rings: int, channels: int, core: Core, tt: Any) -> list[Slots]:
    """Return the ring of buffers of each direction, with ``channels`` buffers, or fewer if not all fit into L1."""
    base = tt.l1_base(core)
    fitting = (tt.params.ethernet.l1_KiB * KIB - base) // n_rings // (nbytes + SYNC_BYTES)
    rings = [Slots(base, nbytes, min(channels, fitting))]
    for _ in range(1, n_rings):
        rings.append(rings[-1]._replace(base=rings[-1].end))
    return rings


def _check_last(
    nbytes: int, rank: int, core: Core, senders: Any, rings: Any, messages: int, far_tile: Any, tt: Any
) -> None:
    for sender, slots in zip(senders, rings, strict=True):
        if sender != rank:
            last = messages - 1
            sent = pattern(16, last) + pattern(nbytes, last % slots.buffers)[16:]
            check(f"the last message of {nbytes} B", tt.read(core, slots.payload(last), nbytes), sent)
            if far_tile is not None:
                check(f"{nbytes} B on {far_tile}", tt.read(far_tile, tt.l1_base(far_tile), nbytes), sent)


def nearest_worker(core: Core, tt: Any) -> Core:
    """Return the worker with the fewest hops of NoC 0 from ``core``."""
    nearest: Core = min(tt.workers, key=lambda each: (tt.noc_hops(0, core, each), each))
    return nearest
