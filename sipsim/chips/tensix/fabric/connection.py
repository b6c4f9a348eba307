"""The connection of a worker to sender channel 0 of a router: the router's side of it, and what a kernel calls.

A worker writes its tile, its semaphores and 1 into the connection's words; the router answers with a credit for each
free slot, and then with one for each slot that gets free. To close, it writes 2, and waits for the router's answer: all
that it has sent is in the router's slots then. Source: pull request 14923 of tt-metal,
``edm_fabric_worker_adapters.hpp``.
"""

import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from sipsim.chips.tensix.dataflow import Dataflow, NocAddress
from sipsim.chips.tensix.fabric.channels import Ring, SenderChannel, nobody
from sipsim.chips.tensix.fabric.packet import ATOMIC_BYTES, Command, Route, Target, Way, pack
from sipsim.chips.tensix.noc import Core
from sipsim.core.errors import KernelMisuse

Ps = int
WORDS: Final = struct.Struct("<IHHII")
"""State, tile, semaphore for credits, semaphore for the end."""
CONNECTION_BYTES: Final = 2 * WORDS.size
"""These, and behind them the packets written so far, from which the next worker goes on."""
OPEN, CLOSE = 1, 2
WORKER_BYTES = 128
"""At the end of a worker's L1, for each connection."""
MOST_CONNECTIONS = 96
"""Of a worker, of all fabrics; below them lie the semaphores of operations (``ccl/store.py``)."""


class ConnectionWords:
    """Where the connections of a chip's workers lie, of all its fabrics. ``end``: of a worker's L1."""

    def __init__(self, end: int) -> None:
        self._end = end
        self._counts: dict[Core, int] = {}

    @property
    def floor(self) -> int:
        """The lowest address that a connection may have."""
        return self._end - MOST_CONNECTIONS * WORKER_BYTES

    def take(self, worker: Core) -> int:
        """The words of one more connection.

        Raises:
            KernelMisuse: for more than a worker has room for.
        """
        count = self._counts.get(worker, 0) + 1
        if count > MOST_CONNECTIONS:
            what = f"worker {worker} has {MOST_CONNECTIONS} connections, and no room for more"
            raise KernelMisuse(f"{what}; connect once, and give the endpoint to every kernel")
        self._counts[worker] = count
        return self._end - count * WORKER_BYTES


class Connection:
    """To a channel, which messages call ``name``. ``tell(core, address, value, at_ps)`` adds to a word of a worker."""

    def __init__(self, name: str, channel: SenderChannel, tell: Callable[[Core, int, int, Ps], None]) -> None:
        self.name = name
        self.worker: Core | None = None
        self._channel = channel
        self._tell = tell
        self._told_ps = 0

    def told(self, words: bytes) -> None:
        """A worker has written the connection's words.

        Raises:
            KernelMisuse: for a second worker, or the end of a connection that there is not.
        """
        state, x, y, credits_at, ended_at = WORDS.unpack(words)
        worker, channel = Core(x, y), self._channel
        if state == OPEN:
            if self.worker is not None:
                what = f"worker {worker} connects to {self.name}, and worker {self.worker} is connected"
                raise KernelMisuse(f"{what}; one worker at a time: close the first connection, or take another link")
            self.worker = worker
            channel.tell_free = partial(self._tell_in_order, worker, credits_at)
            channel.tell_free(channel.ring.slots - channel.written + channel.freed, 0)
        elif state == CLOSE:
            if self.worker != worker:
                raise KernelMisuse(f"worker {worker} closes its connection to {self.name}, and has none")
            self.worker = None
            channel.tell_free = nobody
            self._tell_in_order(worker, ended_at, 1, 0)
        else:
            raise KernelMisuse(f"{self.name}: its connection's word is {state}; {OPEN} opens and {CLOSE} closes it")

    def _tell_in_order(self, worker: Core, address: int, value: int, at_ps: Ps) -> None:
        """No credit comes behind the end of its connection, where the worker's next one would take it."""
        self._told_ps = max(self._told_ps, at_ps)
        self._tell(worker, address, value, self._told_ps)

    def written(self, address: int) -> None:
        """A header was written into the channel's ring.

        Raises:
            KernelMisuse: without a connection, into a slot that is not the next one, or that is not free.
        """
        channel = self._channel
        if self.worker is None:
            raise KernelMisuse(f"a packet was written into {self.name}, to which no worker is connected; open it first")
        if channel.written - channel.freed >= channel.ring.slots:
            raise KernelMisuse(
                f"worker {self.worker} wrote into {self.name}, whose slots are all taken; wait for a credit"
            )
        if address != channel.ring.address(channel.written):
            what = f"the next slot is at 0x{channel.ring.address(channel.written):x}"
            raise KernelMisuse(f"worker {self.worker} wrote a packet at 0x{address:x} of {self.name}; {what}")


class FabricEndpoint(NamedTuple):
    """A sender channel 0 as the kernel of a worker needs it. ``router``: its tile. ``connection``: the address of the
    connection's words there. ``words``: of the worker's L1, three times 16 bytes: credits, end, and what is read;
    then room for a header. ``way``: of the router's link. ``most_hops``: of a route; None: of any that a
    header holds.
    """

    router: Core
    connection: int
    ring: Ring
    header_bytes: int
    payload_bytes: int
    is_short: bool
    words: int
    way: Way
    most_hops: int | None = None


class FabricSender:
    """``WorkerToFabricEdmSender``: in the kernel of a worker, with its last argument."""

    def __init__(self, endpoint: FabricEndpoint, df: Dataflow) -> None:
        self._endpoint = endpoint
        self._df = df
        self._credits, self._ended = endpoint.words, endpoint.words + 16
        self._read, self._header = endpoint.words + 32, endpoint.words + 48
        self._first = self._sent = 0
        self._is_open = False

    def open(self) -> None:
        """Connect: read which slot is next, then tell the router who is here.

        Raises:
            KernelMisuse: for a connection that is open.
        """
        endpoint, df = self._endpoint, self._df
        if self._is_open:
            raise KernelMisuse(f"worker {df.core}: its connection to router {endpoint.router} is open")
        df.noc_async_read(NocAddress(endpoint.router, endpoint.connection + WORDS.size), self._read, 16)
        df.noc_async_read_barrier()
        self._first, self._sent = df.read_word(self._read), 0
        df.write_word(self._credits, 0)
        df.write_word(self._ended, 0)
        self._is_open = True
        self._tell(OPEN)

    def wait_for_empty_write_slot(self) -> None:
        """Wait for a credit."""
        at, df, sent = self._credits, self._df, self._sent
        df.wait_until(lambda: df.peek_word(at) > sent, f"a slot of router {self._endpoint.router}")

    def send(self, route: Route, target: Target, source: int, nbytes: int) -> None:
        """Send ``nbytes`` from this L1 to the chips of a route, when there is a slot: payload, then header, over the
        NoC. The bytes are taken when the NoC command is issued.

        Raises:
            KernelMisuse: for a connection that is not open, a route another way, a payload that a packet does not hold,
                or a target that takes none.
        """
        endpoint, df = self._endpoint, self._df
        self._check(route, nbytes, target)
        self.wait_for_empty_write_slot()
        if nbytes:
            df.noc_async_write(source, NocAddress(endpoint.router, self._slot + endpoint.header_bytes), nbytes)
        self._send_header(route, target, nbytes)

    def send_header(self, route: Route, target: Target, nbytes: int) -> None:
        """As :meth:`send`, with the payload that the next slot has from the packet before: a program that measures
        routers does not wait for its worker's payloads (``edm_fabric_writer.cpp`` of tt-metal).
        """
        self._check(route, nbytes, target)
        self.wait_for_empty_write_slot()
        self._send_header(route, target, nbytes)

    @property
    def _slot(self) -> int:
        """The address of the next packet's."""
        return self._endpoint.ring.address(self._first + self._sent)

    def _send_header(self, route: Route, target: Target, nbytes: int) -> None:
        endpoint, df = self._endpoint, self._df
        df.store(self._header, pack(route, target, nbytes, endpoint.is_short))
        df.noc_async_write(self._header, NocAddress(endpoint.router, self._slot), endpoint.header_bytes)
        df.owe_noc_command()
        self._sent += 1

    def pass_on(self, address: int, payload_bytes: int) -> None:
        """As :meth:`send`, for a packet that lies in this L1 with its header in front."""
        endpoint, df = self._endpoint, self._df
        self.wait_for_empty_write_slot()
        df.noc_async_write(address, NocAddress(endpoint.router, self._slot), endpoint.header_bytes + payload_bytes)
        df.owe_noc_command()
        self._sent += 1

    def close(self) -> None:
        """End the connection, and wait for the router to say so.

        Raises:
            KernelMisuse: for a connection that is not open.
        """
        if not self._is_open:
            raise KernelMisuse(f"worker {self._df.core}: its connection to router {self._endpoint.router} is not open")
        self._is_open = False
        endpoint, df = self._endpoint, self._df
        df.write_word(self._read, self._first + self._sent)
        df.noc_async_write(self._read, NocAddress(endpoint.router, endpoint.connection + WORDS.size), 4)
        self._tell(CLOSE)
        df.noc_semaphore_wait(self._ended, 1)
        df.noc_async_write_barrier()

    def _tell(self, state: int) -> None:
        endpoint, df = self._endpoint, self._df
        df.store(self._header, WORDS.pack(state, *df.core, self._credits, self._ended))
        df.noc_async_write(self._header, NocAddress(endpoint.router, endpoint.connection), WORDS.size)

    def _check(self, route: Any, nbytes: Any, target: Any) -> None:
        endpoint, core = self._endpoint, self._df.core
        if not self._is_open:
            raise KernelMisuse(
                f"worker {core} sends to router {endpoint.router} without a connection; call open() first"
            )
        if not isinstance(route, Route) or not isinstance(target, Target) or not isinstance(nbytes, int):
            what = f"send(route={route!r}, target={target!r}, nbytes={nbytes!r})"
            raise KernelMisuse(f"worker {core}: {what}; give what unicast, write_to and such return, and whole bytes")
        if route.way is not endpoint.way and not endpoint.is_short:
            what = f"a route that begins {route.way.name}, and the link of router {endpoint.router} goes"
            raise KernelMisuse(f"worker {core}: {what} {endpoint.way.name}; give way=Way.{endpoint.way.name}")
        if endpoint.most_hops is not None and len(route.nibbles) > endpoint.most_hops:
            what = f"a route of {len(route.nibbles)} hops on a ring where packets go up to {endpoint.most_hops}"
            raise KernelMisuse(f"worker {core}: {what}; open_fabric(spare_slots=[]) lets them make whole turns")
        if not 0 <= nbytes <= endpoint.payload_bytes:
            raise KernelMisuse(f"worker {core}: a payload of {nbytes} B; packets hold up to {endpoint.payload_bytes} B")
        if target.command is not Command.SCATTER and target.increment_address % ATOMIC_BYTES:
            what = f"a semaphore at 0x{target.increment_address:x} of tile {target.increment_core}"
            raise KernelMisuse(f"worker {core}: {what}; words are at multiples of {ATOMIC_BYTES}")
        if bool(nbytes) is not target.takes_payload:
            what = f"command {target.command.name} {target.wanted_payload}, and was given {nbytes} B"
            raise KernelMisuse(f"worker {core}: {what}")
