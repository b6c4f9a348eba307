"""The transmitting side of an Ethernet core, and what crosses its link: bytes for the far core's memory."""

from collections.abc import Callable
from functools import partial

from sipsim.chips.tensix.jitter import Delays
from sipsim.chips.tensix.memory import Pin
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.params import EthernetParams
from sipsim.chips.tensix.tiles import Tiles
from sipsim.chips.tensix.transmit_queues import TransmitQueue, TransmitQueues, TransmitTimes
from sipsim.core.errors import KernelMisuse
from sipsim.core.units import drain_ps, gbytes_per_s_to_bps
from sipsim.fabric.links.frames import Address, Data, Packet, packet_kind
from sipsim.fabric.links.outages import Losses, OutageUse
from sipsim.records.report import LinkUse


@packet_kind
class EthWrite(Packet, tag=20):
    """``data`` for ``address`` of the far core's L1; all of it is there when the packet arrives."""

    address: Address
    data: Data


Ps = int
WORD_BYTES = 16
"""Addresses and sizes of Ethernet commands are multiples of it."""


class Transmitter:
    """One direction of a link between two Ethernet cores. ``name``: of the link. ``core``: the near one.

    Commands go into a queue, take the link, and arrive without a notice. A message takes the wire
    (:mod:`sipsim.chips.tensix.transmit_queues`), and each of the two Ethernet subsystems of the link moves all of it
    between L1 and its own memory, one message at a time and in order. Both moves stand behind the wire here: for a
    message by itself it is the same, and the slowest of the three bounds the rate wherever it stands. Only when the
    last byte is in L1 does the far core see any. With one queue in use all is known when a command is taken, so a
    message costs one event, its arrival; with two (``ethernet.queues``) one more.

    ``send(arrival_ps, message)``: to the far core's L1, which is as large as this one. ``delays``: of arrivals, if
    any, and of those of :meth:`send_between`.
    """

    def __init__(
        self,
        name: str,
        queue: TransmitQueue | TransmitQueues,
        params: EthernetParams,
        core: Core,
        tiles: Tiles,
        send: Callable[[Ps, EthWrite], None],
        delays: tuple[Delays | None, Delays | None] = (None, None),
    ) -> None:
        self.core = core
        self._name = name
        self._memory = tiles.memory(core)
        self._engine = engine = tiles.engine
        self._send = send
        self._log = tiles.log
        self._jitter, self._credit_jitter = delays
        self._losses = Losses(name, engine)
        self._copy_bps = None if params.copy_GBps is None else gbytes_per_s_to_bps(params.copy_GBps)
        self._copy_bytes = params.copy_bytes
        self._read_ps = self._written_ps = self._between_ps = 0
        self._one = queue if isinstance(queue, TransmitQueue) else None
        self._both = queue if isinstance(queue, TransmitQueues) else None
        self.bytes_sent = self._commands = self._words_bytes = 0

    def is_busy(self, queue: int) -> bool:
        """Whether a queue takes no command now.

        Raises:
            KernelMisuse: for a queue that does not exist.
        """
        return self._queue(queue).is_busy(queue, self._engine.now_ps)

    def free_at_ps(self, queue: int) -> Ps:
        """When a queue takes a command, if the other one gets none."""
        return self._queue(queue).free_at_ps(queue, self._engine.now_ps)

    def all_started_ps(self, now_ps: Ps) -> Ps:
        """When every command of queue 0 has started, from ``now_ps`` on."""
        assert self._one is not None, "a router has one queue"
        return self._one.all_started_ps(now_ps)

    def send_at(self, time_ps: Ps, destination: int, data: bytes, stored_bytes: int) -> Ps:
        """Put a command for ``data`` into queue 0 at ``time_ps``, now or later, for a sender that is the queue's only
        one and never asks too much of it. ``stored_bytes``: that each subsystem stores of it at most.

        Returns:
            When the last byte has left.
        """
        self._count(len(data))
        assert self._one is not None, "a router has one queue"
        times = self._one.submit(0, max(time_ps, self._one.free_at_ps(0, time_ps)), len(data))
        assert times is not None, "the queue is free then"
        self._on_its_way(0, 0, EthWrite(destination, data), times, stored_bytes)
        return times.tail_left_ps

    def send_between(self, time_ps: Ps, destination: int, data: bytes) -> None:
        """Put a short command into the queue that the other commands do not use, at ``time_ps``, now or later."""
        self._count(len(data))
        self._words_bytes += len(data)
        assert self._one is not None, "a router has one queue"
        times = self._one.submit_between(time_ps, len(data))
        if times.loss is not None:
            self._losses.add(times.loss, len(data), EthWrite(destination, data))
            return
        # The store of a word takes less than a wire's packet, and words keep their order.
        self._between_ps = max(self._between_ps, times.arrival_ps)
        arrival_ps = self._between_ps
        if self._credit_jitter is not None:
            arrival_ps = self._credit_jitter.later_ps(arrival_ps)
        self._log.eth_send(self.core, 1, 0, destination, len(data), times.tail_left_ps, arrival_ps)
        self._send(arrival_ps, EthWrite(destination, data))

    def submit(self, queue: int, source: int, destination: int, nbytes: int) -> None:
        """Put a command into a queue: ``nbytes`` from here to an address there, which are taken now.

        Raises:
            MemoryAccessError: outside of L1.
            KernelMisuse: into a queue that is busy, or does not exist.
        """
        self._memory.check(destination, nbytes)
        message = EthWrite(destination, self._memory.read(source, nbytes))
        if self.is_busy(queue):
            what = f"core {self.core}: transmit queue {queue} is busy"
            raise KernelMisuse(f"{what}; ask eth_txq_is_busy before a command")
        pin = self._memory.pin(source, nbytes, "an Ethernet transmission", self._engine.now_ps)
        self._count(nbytes)
        told = partial(self._told, queue, source, message, pin)
        if self._both is not None:
            self._both.submit(queue, self._engine.now_ps, nbytes, told)
        else:
            assert self._one is not None
            times = self._one.submit(queue, self._engine.now_ps, nbytes)
            assert times is not None, "it was not busy"
            told(times)

    def link_use(self) -> LinkUse:
        """What has left over the link so far; the words of :meth:`send_between` are its credits."""
        wire, data_bytes = self._in_use.use(), self.bytes_sent - self._words_bytes
        return LinkUse(self._name, self._commands, data_bytes, self._words_bytes, wire.nbytes, wire.busy_ps)

    def outages_used(self) -> tuple[OutageUse, ...]:
        """What each outage of the link has cost so far, this way."""
        return self._in_use.outages_used(self._name)

    @property
    def _in_use(self) -> TransmitQueue | TransmitQueues:
        queues = self._both or self._one
        assert queues is not None
        return queues

    def _count(self, nbytes: int) -> None:
        self.bytes_sent += nbytes
        self._commands += 1

    def _told(self, queue: int, source: int, message: EthWrite, pin: Pin, times: TransmitTimes) -> None:
        """The times of a command are known."""
        pin.until_ps = times.tail_left_ps
        self._on_its_way(queue, source, message, times, self._copy_bytes)

    def _on_its_way(self, queue: int, source: int, message: EthWrite, times: TransmitTimes, stored_bytes: int) -> None:
        """Through both subsystems, to the far core."""
        nbytes = len(message.data)
        if times.loss is not None:
            self._losses.add(times.loss, nbytes, message)
            return
        # What is longer than a store is copied behind the wire, which is no faster: the last store remains.
        copy_ps = 0 if self._copy_bps is None else drain_ps(min(nbytes, stored_bytes), self._copy_bps)
        self._read_ps = max(self._read_ps, times.arrival_ps) + copy_ps
        self._written_ps = max(self._written_ps, self._read_ps) + copy_ps
        left_ps, arrival_ps = times.tail_left_ps, self._written_ps
        if self._jitter is not None:
            arrival_ps = self._jitter.later_ps(arrival_ps)
        self._log.eth_send(self.core, queue, source, message.address, nbytes, left_ps, arrival_ps)
        self._send(arrival_ps, message)

    def _queue(self, queue: int) -> TransmitQueue | TransmitQueues:
        if self._both is not None and queue in (0, 1):
            return self._both
        if self._one is None or queue != 0:
            only = "0 alone is in use; set system.chip_params.ethernet.queues=2" if queue == 1 else "0 and 1"
            raise KernelMisuse(f"core {self.core}: there is no transmit queue {queue}; {only}")
        return self._one
