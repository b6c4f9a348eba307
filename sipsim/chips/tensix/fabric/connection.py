"""Connection of a worker to sender channel 0 of a router: the router's side, and the calls of a kernel.

To connect, a worker writes 1 and its coordinates and semaphores into the connection's words. The router answers with a
credit per free slot, and later sends a credit for each slot that is freed. To close, the worker writes 2 and waits for
the answer; the router's slots then contain all packets of the worker. In the first revision, the worker writes 0, and
there is no answer: the word follows the packets. Source: pull request 14923 of tt-metal,
``edm_fabric_worker_adapters.hpp``.
"""

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from sipsim.chips.tensix.dataflow import Dataflow, NocAddress
from sipsim.chips.tensix.fabric.channels import Ring, SenderChannel, no_upstream
from sipsim.chips.tensix.fabric.packet import (
    Direction,
    NocCommand,
    Route,
    Target,
    increment_of,
    pack,
    unicast,
)
from sipsim.chips.tensix.fabric.termination import Signal, TerminationInfo
from sipsim.chips.tensix.memory import ATOMIC_BYTES
from sipsim.chips.tensix.noc import Core
from sipsim.core.errors import KernelMisuse

Ps = int
WORDS: Final = struct.Struct("<IHHII")
"""State, tile (x, y), address of the semaphore for credits, address of the semaphore for the end."""
CONNECTION_BYTES: Final = 2 * WORDS.size
"""The connection's words, and the count of packets written so far, from which the next worker continues."""
TEARDOWN, OPEN, CLOSE = 0, 1, 2
WORKER_BYTES = 128
"""Bytes per connection, at the end of a worker's L1."""
MOST_CONNECTIONS = 96
"""The most connections per worker at a time. The semaphores of collective operations have lower addresses."""


class ConnectionWords:
    """Allocator of the words of a chip's connections, for all fabrics. ``end``: the end of a worker's L1."""

    def __init__(self, end: int) -> None:
        self._end = end
        self._taken: dict[Core, set[int]] = {}

    @property
    def floor(self) -> int:
        """The lowest address that a connection may have."""
        return self._end - MOST_CONNECTIONS * WORKER_BYTES

    def take(self, worker: Core) -> int:
        """Allocate the words of one more connection, and return their address.

        Raises:
            KernelMisuse: if the worker has the maximum of connections.
        """
        taken = self._taken.setdefault(worker, set())
        number = next((each for each in range(1, MOST_CONNECTIONS + 1) if each not in taken), None)
        if number is None:
            what = f"worker {worker} has {MOST_CONNECTIONS} connections, the maximum"
            raise KernelMisuse(f"{what}; connect once, and pass the endpoint to every kernel")
        taken.add(number)
        return self._end - number * WORKER_BYTES

    def give_back(self, worker: Core, address: int) -> None:
        """Free the words of a connection to a fabric that has ended."""
        self._taken[worker].remove((self._end - address) // WORKER_BYTES)


class WorkerConnection:
    """Router's side of a worker's connection to a channel. ``name``: the channel's name. ``notify(core, address, value,
    at_ps)`` adds ``value`` to the word at ``address`` of worker ``core``. ``has_answer``: whether a worker that closes
    writes ``CLOSE`` and gets an answer, or writes ``TEARDOWN``.
    """

    def __init__(
        self, name: str, channel: SenderChannel, notify: Callable[[Core, int, int, Ps], None], has_answer: bool = True
    ) -> None:
        self._close = CLOSE if has_answer else TEARDOWN
        self.name = name
        self.worker: Core | None = None
        self._channel = channel
        self._notify = notify
        self._notified_ps = 0

    def words_written(self, words: bytes) -> None:
        """Open or close the connection, as a worker has written its words.

        Raises:
            KernelMisuse: if another worker is connected, or the connection to close is not open.
        """
        state, x, y, credits_at, ended_at = WORDS.unpack(words)
        worker, channel = Core(x, y), self._channel
        if state == OPEN:
            if self.worker is not None:
                what = f"worker {worker} connects to {self.name}, to which worker {self.worker} is connected"
                raise KernelMisuse(f"{what}; one worker at a time: close the first connection, or take another link")
            self.worker = worker
            channel.return_credits = partial(self._notify_in_order, worker, credits_at)
            channel.return_credits(channel.ring.slots - channel.written + channel.freed, 0)
        elif state == self._close:
            if self.worker != worker:
                raise KernelMisuse(f"worker {worker} closes a connection to {self.name} that it has not opened")
            self.worker = None
            channel.return_credits = no_upstream
            if state == CLOSE:
                self._notify_in_order(worker, ended_at, 1, 0)
        else:
            what = f"write {OPEN} to open, {self._close} to close"
            raise KernelMisuse(f"{self.name}: the connection's word is {state}; {what}")

    def _notify_in_order(self, worker: Core, address: int, value: int, at_ps: Ps) -> None:
        """Add to a worker's word in the order of the calls, so that no credit arrives after the end's notice."""
        self._notified_ps = max(self._notified_ps, at_ps)
        self._notify(worker, address, value, self._notified_ps)

    def header_written(self, address: int) -> None:
        """Check a header that was written into the channel's ring.

        Raises:
            KernelMisuse: without a connection, or for a slot that is not the next one or not free.
        """
        channel = self._channel
        if self.worker is None:
            raise KernelMisuse(f"a packet was written into {self.name}, to which no worker is connected; connect first")
        if channel.written - channel.freed >= channel.ring.slots:
            raise KernelMisuse(
                f"worker {self.worker} wrote into {self.name}, whose slots are all taken; wait for a credit"
            )
        if address != channel.ring.address(channel.written):
            what = f"the next slot is at 0x{channel.ring.address(channel.written):x}"
            raise KernelMisuse(f"worker {self.worker} wrote a packet at 0x{address:x} of {self.name}; {what}")


class FabricEndpoint(NamedTuple):
    """Worker's side of a connection to sender channel 0 of a router. ``router``: the router's tile. ``connection``:
    address of the connection's words on that tile. ``words``: first address of the connection in the worker's L1: 16
    bytes each for credits, end, and the packet count that the worker reads, then a header. ``way``: direction of the
    router's link. ``most_hops``: longest route that packets may take, in hops; None if any. ``has_answer``: whether the
    router answers when the connection is closed.
    """

    router: Core
    connection: int
    ring: Ring
    header_bytes: int
    payload_bytes: int
    is_short: bool
    words: int
    way: Direction
    most_hops: int | None = None
    has_answer: bool = True


class FabricSender:
    """Calls of a worker's kernel for one endpoint (``WorkerToFabricEdmSender``). ``df``: the kernel's last argument."""

    def __init__(self, endpoint: FabricEndpoint, df: Dataflow) -> None:
        self._endpoint = endpoint
        self._df = df
        self._credits, self._ended = endpoint.words, endpoint.words + 16
        self._read, self._header = endpoint.words + 32, endpoint.words + 48
        self._first = self._sent = 0
        self._is_open = False

    def open(self) -> None:
        """Connect: read the number of the next slot, then announce this worker to the router.

        Raises:
            KernelMisuse: if the connection is open already.
        """
        endpoint, df = self._endpoint, self._df
        if self._is_open:
            raise KernelMisuse(f"worker {df.core}: its connection to router {endpoint.router} is open already")
        df.noc_async_read(NocAddress(endpoint.router, endpoint.connection + WORDS.size), self._read, 16)
        df.noc_async_read_barrier()
        self._first, self._sent = df.read_word(self._read), 0
        df.write_word(self._credits, 0)
        df.write_word(self._ended, 0)
        self._is_open = True
        self._announce(OPEN)

    def wait_for_empty_write_slot(self) -> None:
        """Wait until the channel has a free slot."""
        address, df, sent = self._credits, self._df, self._sent
        df.wait_until(lambda: df.peek_word(address) > sent, f"a slot of router {self._endpoint.router}")

    def send(self, route: Route, target: Target, source: int, nbytes: int) -> None:
        """Wait for a free slot, then send ``nbytes`` from address ``source`` of this L1 to the chips of a route: first
        the payload and then the header, over the NoC. The bytes are copied when the NoC command is issued.

        Raises:
            KernelMisuse: if the connection is not open, or the route, the payload's size or the target does not fit.
        """
        endpoint, df = self._endpoint, self._df
        self._check(route, nbytes, target)
        self.wait_for_empty_write_slot()
        if nbytes:
            df.noc_async_write_copy(source, NocAddress(endpoint.router, self._slot + endpoint.header_bytes), nbytes)
        self._send_header(route, target, nbytes)

    def send_header(self, route: Route, target: Target, nbytes: int) -> None:
        """Send a packet by its header alone: the payload is whatever the next slot contains. A program that measures
        routers thus avoids the payload's NoC write (``edm_fabric_writer.cpp`` of tt-metal). See :meth:`send`.
        """
        self._check(route, nbytes, target)
        self.wait_for_empty_write_slot()
        self._send_header(route, target, nbytes)

    @property
    def _slot(self) -> int:
        """The address of the next packet's slot."""
        return self._endpoint.ring.address(self._first + self._sent)

    def _send_header(self, route: Route, target: Target, nbytes: int) -> None:
        endpoint, df = self._endpoint, self._df
        df.store(self._header, pack(route, target, nbytes, endpoint.is_short))
        df.noc_async_write_copy(self._header, NocAddress(endpoint.router, self._slot), endpoint.header_bytes)
        df.owe_noc_command()
        self._sent += 1

    def forward(self, address: int, payload_bytes: int) -> None:
        """Send a packet from ``address`` of this L1, where the header is in front of the payload. See :meth:`send`."""
        endpoint, df = self._endpoint, self._df
        self.wait_for_empty_write_slot()
        df.noc_async_write_copy(address, NocAddress(endpoint.router, self._slot), endpoint.header_bytes + payload_bytes)
        df.owe_noc_command()
        self._sent += 1

    def close(self) -> None:
        """Close the connection, and wait for the router's answer, if any, and until all writes have arrived.

        Raises:
            KernelMisuse: if the connection is not open.
        """
        if not self._is_open:
            raise KernelMisuse(f"worker {self._df.core}: its connection to router {self._endpoint.router} is not open")
        self._is_open = False
        endpoint, df = self._endpoint, self._df
        df.write_word(self._read, self._first + self._sent)
        df.noc_async_write_copy(self._read, NocAddress(endpoint.router, endpoint.connection + WORDS.size), 4)
        if endpoint.has_answer:
            self._announce(CLOSE)
            df.noc_semaphore_wait(self._ended, 1)
        else:
            df.store(self._header, TEARDOWN.to_bytes(ATOMIC_BYTES, "little"))
            df.noc_async_write_copy(self._header, NocAddress(endpoint.router, endpoint.connection), ATOMIC_BYTES)
        df.noc_async_write_barrier()

    def _announce(self, state: int) -> None:
        endpoint, df = self._endpoint, self._df
        df.store(self._header, WORDS.pack(state, *df.core, self._credits, self._ended))
        df.noc_async_write_copy(self._header, NocAddress(endpoint.router, endpoint.connection), WORDS.size)

    def _check(self, route: Any, nbytes: Any, target: Any) -> None:
        endpoint, core = self._endpoint, self._df.core
        if not self._is_open:
            raise KernelMisuse(
                f"worker {core} sends to router {endpoint.router} without a connection; call open() first"
            )
        if not isinstance(route, Route) or not isinstance(target, Target) or not isinstance(nbytes, int):
            what = f"send(route={route!r}, target={target!r}, nbytes={nbytes!r})"
            raise KernelMisuse(f"worker {core}: {what}; use unicast, write_to and the like, and whole bytes")
        if route.way is not endpoint.way and not endpoint.is_short:
            what = f"the route begins {route.way.name}, but the link of router {endpoint.router} leads"
            raise KernelMisuse(f"worker {core}: {what} {endpoint.way.name}; give way=Direction.{endpoint.way.name}")
        if endpoint.most_hops is not None and len(route.nibbles) > endpoint.most_hops:
            what = f"the route has {len(route.nibbles)} hops, but this ring allows at most {endpoint.most_hops}"
            raise KernelMisuse(f"worker {core}: {what}; for whole turns, call open_fabric(spare_slots=[])")
        if not 0 <= nbytes <= endpoint.payload_bytes:
            raise KernelMisuse(f"worker {core}: the payload is {nbytes} B; the limit is {endpoint.payload_bytes} B")
        if target.command is not NocCommand.SCATTER and target.increment_address % ATOMIC_BYTES:
            what = f"a semaphore at 0x{target.increment_address:x} of tile {target.increment_core}"
            raise KernelMisuse(f"worker {core}: {what}; give an address that is a multiple of {ATOMIC_BYTES}")
        if bool(nbytes) is not target.takes_payload:
            what = f"command {target.command.name} {target.wanted_payload}, but has {nbytes} B"
            raise KernelMisuse(f"worker {core}: {what}")


def terminate_fabric(sender: FabricSender, infos: Sequence[TerminationInfo], signal: Signal, df: Dataflow) -> None:
    """Send a termination signal to all routers of a fabric, in the order of ``infos``, from a kernel on its first chip,
    and close the connection. ``sender``: an open connection in direction E.
    """
    for info in infos:
        if info.distance:
            sender.send(unicast(info.distance), increment_of(info.core, info.address, signal), 0, 0)
    sender.close()
    for info in infos:
        if not info.distance:
            df.noc_semaphore_inc(NocAddress(info.core, info.address), int(signal))
