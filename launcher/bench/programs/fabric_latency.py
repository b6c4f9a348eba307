"""Host script ``fabric_latency``: packets to a worker of another chip, which answers, or around a ring, one at a time.

Settings: ``fabric`` (arguments of ``tt.open_fabric``), ``sender`` and ``receiver`` by position, the routes ``there``
and ``back`` as flows of ``fabric_traffic``; ``nbytes``, ``samples``, ``command``. Without ``back`` the packet comes
back by itself, around the ring. The receiver looks for the last word of the payload, or for its semaphore where the
command has an increment. Told are the mean round trip, and the time that the receiver has spent between a packet's
arrival and its answer.
"""

from collections.abc import Callable
from typing import Any

from launcher.bench.programs.common import check, pattern, settings, tell
from launcher.bench.programs.fabric_traffic import first_way, route_of
from sipsim.chips.tensix.dataflow import Dataflow
from sipsim.chips.tensix.fabric.connection import FabricEndpoint, FabricSender
from sipsim.chips.tensix.fabric.packet import Route, Target, increment_of, write_and_increment, write_to

WORD = 4


class Place:
    """Where packets come to on a worker, and how it sees them. ``nbytes``: of a payload, 0 for an increment alone."""

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
        """Packet ``number``, from 1."""
        if self._nbytes >= WORD:
            df.write_word(self.source + self._nbytes - WORD, number)
        sender.send(route, self.target, self.source, self._nbytes)

    def wait(self, number: int, df: Dataflow) -> None:
        """For packet ``number``."""
        at = self.semaphore if self._has_semaphore else self.arrival + self._nbytes - WORD
        df.wait_until(lambda: df.peek_word(at) == number, f"packet {number}")


def ping(
    endpoint: FabricEndpoint,
    route: Route,
    place: Place,
    samples: int,
    now_ns: Callable[[], float],
    times: list[float],
    df: Dataflow,
) -> None:
    """The kernel of the sender."""
    sender = FabricSender(endpoint, df)
    sender.open()
    sender.wait_for_empty_write_slot()
    for number in range(1, samples + 1):
        begin_ns = now_ns()
        place.send(sender, route, number, df)
        place.wait(number, df)
        times.append(now_ns() - begin_ns)
    sender.close()


def pong(
    endpoint: FabricEndpoint,
    route: Route,
    place: Place,
    samples: int,
    now_ns: Callable[[], float],
    times: list[float],
    df: Dataflow,
) -> None:
    """The kernel of the receiver."""
    sender = FabricSender(endpoint, df)
    sender.open()
    sender.wait_for_empty_write_slot()
    for number in range(1, samples + 1):
        place.wait(number, df)
        begin_ns = now_ns()
        place.send(sender, route, number, df)
        times.append(now_ns() - begin_ns)
    sender.close()


def worker(rank: int, world_size: int, tt: Any) -> None:
    """One chip: a sender, a receiver, or a chip between them."""
    asked = settings()
    nbytes, samples = asked["nbytes"], asked["samples"]
    fabric = tt.open_fabric(**asked["fabric"])
    is_sender, is_receiver = fabric.position == asked["sender"], fabric.position == asked["receiver"]
    is_end = is_sender or (is_receiver and "back" in asked)
    times = list[float]()
    core = tt.workers[0]
    place = Place(core, tt.l1_base(core), nbytes, asked["command"])
    program = tt.create_program()
    if is_end:
        flow = asked["there"] if is_sender else asked["back"]
        tt.write(core, place.source, pattern(nbytes, 1))
        endpoint = fabric.connect(core, first_way(flow))
        args = endpoint, route_of(flow), place, samples, tt.now_ns, times
        config = tt.DataMovementConfig(noc=tt.nearer_noc(core, endpoint.router))
        tt.create_kernel(program, ping if is_sender else pong, core, config, args)
    tt.enqueue_program(program)
    tt.finish()
    if nbytes > WORD and (is_receiver or (is_sender and "back" in asked)):
        check(f"chip {fabric.position}", tt.read(core, place.arrival, nbytes - WORD), pattern(nbytes, 1)[:-WORD])
    if times:
        tell(sender=is_sender, mean_ns=sum(times) / len(times))
