"""Host script ``fabric_latency``: single packets to a worker of another chip that answers each, or around a ring.

Settings: ``fabric`` (arguments of ``tt.open_fabric``), ``sender`` and ``receiver`` by position, the routes ``there``
and ``back`` as flows of ``fabric_traffic``, ``nbytes``, ``samples``, ``command``. Without ``back``, the route ``there``
leads around the ring back to the sender. The receiver polls the last word of the payload, or a semaphore if the command
has an increment. Reported are the mean round trip, and the mean time from a packet's arrival until the answer is sent.
"""

from collections.abc import Callable
from typing import Any

from launcher.bench.programs.common import check, pattern, report, settings
from launcher.bench.programs.fabric_traffic import first_way, route_of
from sipsim.chips.tensix.dataflow import Dataflow
from sipsim.chips.tensix.fabric.connection import FabricEndpoint, FabricSender
from sipsim.chips.tensix.fabric.packet import Route, Target, increment_of, write_and_increment, write_to

WORD = 4


class Mailbox:
    """Destination of packets on a worker, with detection of arrivals. ``nbytes``: payload, 0 for an increment only."""

    def __init__(self, core: Any, base: int, nbytes: int, command: str) -> None:
        self.source, self.arrival, self.semaphore = base + 64, base + 64 + max(nbytes, WORD), base
        self._nbytes = nbytes
        self._has_semaphore = command != "write" or nbytes < WORD
        self.target = self._target(core)

    def _target(self, core: Any) -> Target:
        if not self._nbytes:
            return increment_of(core, self.semaphore)
        if self._has_semaphore:
            return write_and_increment(core, self.arrival, core, self.semaphore)
        return write_to(core, self.arrival)

    def send(self, sender: FabricSender, route: Route, number: int, df: Dataflow) -> None:
        """Send packet ``number``, counted from 1."""
        if self._nbytes >= WORD:
            df.write_word(self.source + self._nbytes - WORD, number)
        sender.send(route, self.target, self.source, self._nbytes)

    def wait(self, number: int, df: Dataflow) -> None:
        """Wait until packet ``number`` has arrived."""
        address = self.semaphore if self._has_semaphore else self.arrival + self._nbytes - WORD
        df.wait_until(lambda: df.peek_word(address) == number, f"packet {number}")


def ping(
    endpoint: FabricEndpoint,
    route: Route,
    mailbox: Mailbox,
    samples: int,
    now_ns: Callable[[], float],
    times: list[float],
    df: Dataflow,
) -> None:
    """Run the sender's kernel; append the time of each round trip, in ns, to ``times``."""
    sender = FabricSender(endpoint, df)
    sender.open()
    sender.wait_for_empty_write_slot()
    for number in range(1, samples + 1):
        begin_ns = now_ns()
        mailbox.send(sender, route, number, df)
        mailbox.wait(number, df)
        times.append(now_ns() - begin_ns)
    sender.close()


def pong(
    endpoint: FabricEndpoint,
    route: Route,
    mailbox: Mailbox,
    samples: int,
    now_ns: Callable[[], float],
    times: list[float],
    df: Dataflow,
) -> None:
    """Run the receiver's kernel; append the time of each answer, in ns, to ``times``."""
    sender = FabricSender(endpoint, df)
    sender.open()
    sender.wait_for_empty_write_slot()
    for number in range(1, samples + 1):
        mailbox.wait(number, df)
        begin_ns = now_ns()
        mailbox.send(sender, route, number, df)
        times.append(now_ns() - begin_ns)
    sender.close()


def worker(rank: int, world_size: int, tt: Any) -> None:
    """Run on each chip, as sender, as receiver, or without kernels."""
    chosen = settings()
    nbytes, samples = chosen["nbytes"], chosen["samples"]
    fabric = tt.open_fabric(**chosen["fabric"])
    is_sender, is_receiver = fabric.position == chosen["sender"], fabric.position == chosen["receiver"]
    is_end = is_sender or (is_receiver and "back" in chosen)
    times = list[float]()
    core = tt.workers[0]
    mailbox = Mailbox(core, tt.l1_base(core), nbytes, chosen["command"])
    program = tt.create_program()
    if is_end:
        flow = chosen["there"] if is_sender else chosen["back"]
        tt.write(core, mailbox.source, pattern(nbytes, 1))
        endpoint = fabric.connect(core, first_way(flow))
        args = endpoint, route_of(flow), mailbox, samples, tt.now_ns, times
        config = tt.DataMovementConfig(noc=tt.nearer_noc(core, endpoint.router))
        tt.create_kernel(program, ping if is_sender else pong, core, config, args)
    tt.enqueue_program(program)
    tt.finish()
    if nbytes > WORD and (is_receiver or (is_sender and "back" in chosen)):
        check(f"chip {fabric.position}", tt.read(core, mailbox.arrival, nbytes - WORD), pattern(nbytes, 1)[:-WORD])
    if times:
        report(sender=is_sender, mean_ns=sum(times) / len(times))
