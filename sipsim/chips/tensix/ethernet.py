"""Transmitting side of an Ethernet core, and the message that crosses the core's link: bytes for the far core's L1."""

from collections.abc import Callable, Sequence

from msgspec import structs

from sipsim.chips.tensix.firmware import Firmware
from sipsim.chips.tensix.jitter import Delays, Parts
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.params import EthernetParams
from sipsim.chips.tensix.tiles import Tiles
from sipsim.chips.tensix.transmit_queue import TransmitQueue, TransmitTimes
from sipsim.core.errors import KernelMisuse
from sipsim.core.units import drain_ps, gbytes_per_s_to_bps
from sipsim.fabric.links.frames import Address, Data, Number, Packet, Small, packet_kind
from sipsim.fabric.links.outages import Losses, OutageUse
from sipsim.records.report import LinkUse


@packet_kind
class EthWrite(Packet, tag=20):
    """Message over a link: bytes that are written at ``address`` of the far core's L1, all at the arrival.
    ``is_word``: a router's word of flow control (:meth:`Transmitter.send_between`): it has a queue of its own and does
    not wait for the firmware of the far core. ``follows``: bytes of the same message that arrive later, in a message
    of their own. ``down_ps``, ``up_ps``: the last outage before the message crossed the link; both 0 without one.
    ``seq``, ``crc``: number of the message in its :meth:`direction` and a CRC, for the second pass; 0 without one.
    """

    address: Address
    data: Data
    is_word: bool
    follows: Number
    down_ps: Number
    up_ps: Number
    seq: Number
    crc: Number

    def direction(self, link: str) -> str:
        """Return the name, for the second pass, of the messages that the queue of this one sends over a link."""
        return f"link {link} queue {int(self.is_word)}"


def whole(address: int, data: bytes, is_word: bool = False) -> EthWrite:
    """Return a message that arrives at once, over a link that has had no outage."""
    return EthWrite(address, data, is_word, 0, 0, 0, 0, 0)


@packet_kind
class FabricWrite(EthWrite, tag=21):
    """Message of a router: a packet of the fabric. ``origin``: rank, tile and number of the packet at its first router,
    for reports; no bytes of the link.
    """

    origin: tuple[Small, Small, Small, Address]


Ps = int
WORD_BYTES = 16
"""Word of Ethernet commands in bytes; addresses and sizes are multiples of a word."""


class Transmitter:
    """Sending end of a link between two Ethernet cores, on ``core``. ``name``: the link's name.

    Commands enter a queue, are sent, and arrive without a notice to the sender. A message occupies the wire
    (:mod:`sipsim.chips.tensix.transmit_queue`), and the Ethernet subsystem at each end copies the message between L1
    and the subsystem's buffer, one message at a time and in order. The model places both copies after the wire, which
    changes neither the time of a single message nor the rate, as the slowest of wire and copies bounds the rate. The
    far core sees a message when the last byte is in L1. All times are known at the command, so a message needs one
    simulation event. ``send(arrival_ps, message)`` delivers to the far core's L1, which is as large as this core's.
    ``delays``: jitter of messages and jitter of :meth:`send_between`, None without jitter. ``parts``: divisions of
    kernels' messages, whose second parts arrive later than the first; None without jitter. ``firmware``: the core's
    firmware, which retrains the link for kernels' messages; None if the link has no outages.
    """

    def __init__(
        self,
        name: str,
        queue: TransmitQueue,
        params: EthernetParams,
        core: Core,
        tiles: Tiles,
        send: Callable[[Ps, EthWrite], None],
        delays: tuple[Delays | None, Delays | None] = (None, None),
        parts: Parts | None = None,
        firmware: Firmware | None = None,
    ) -> None:
        self.core = core
        self._name = name
        self._memory = tiles.memory(core)
        self._engine = engine = tiles.engine
        self._send = send
        self._log = tiles.log
        self._jitter, self._credit_jitter = delays
        self._parts = parts
        self._firmware = firmware
        self._losses = Losses(name, engine)
        self._copy_bps = None if params.copy_GBps is None else gbytes_per_s_to_bps(params.copy_GBps)
        self._copy_bytes = params.copy_bytes
        self._read_ps = self._written_ps = self._between_ps = self._sent_ps = 0
        self._queue = queue
        self.bytes_sent = self._commands = self._words_bytes = 0

    def is_busy(self, queue: int) -> bool:
        """Whether a transmit queue accepts no command now.

        Raises:
            KernelMisuse: for a queue other than 0, the only queue of kernels.
        """
        if queue != 0:
            raise KernelMisuse(f"core {self.core}: there is no transmit queue {queue}; kernels have queue 0")
        return self._queue.is_busy(self._engine.now_ps)

    def free_at_ps(self) -> Ps:
        """Return the earliest time, from now on, at which the queue accepts a command."""
        return self._queue.free_at_ps(self._engine.now_ps)

    def all_started_ps(self, now_ps: Ps) -> Ps:
        """Return the time, at least ``now_ps``, at which every command of the queue has started."""
        return self._queue.all_started_ps(now_ps)

    def send_at(
        self,
        time_ps: Ps,
        destination: int,
        data: bytes,
        stored_bytes: int,
        origin: tuple[int, int, int, int] | None = None,
    ) -> Ps:
        """Submit a command for ``data`` at ``time_ps``, now or later, or when the queue is next free. Each link may
        have only one caller of this method. ``stored_bytes``: the most bytes of the message that each subsystem stores
        before forwarding. ``origin``: of a packet of the fabric.

        Returns:
            The time at which the last byte has left.
        """
        self._count(len(data))
        times = self._queue.submit(max(time_ps, self._queue.free_at_ps(time_ps)), len(data))
        assert times is not None, "the queue is free then"
        message = whole(destination, data)
        if origin is not None:
            message = FabricWrite(**structs.asdict(message), origin=origin)
        self._deliver(0, message, times, stored_bytes, is_kernels=False)
        return times.tail_left_ps

    def send_between(self, time_ps: Ps, destination: int, data: bytes) -> None:
        """Submit a short command at ``time_ps``, now or later, to the second queue, which no other method uses."""
        self._count(len(data))
        self._words_bytes += len(data)
        times = self._queue.submit_between(time_ps, len(data))
        if times.loss is not None:
            self._losses.add(times.loss, len(data), whole(destination, data, is_word=True))
            return
        # The store of a word takes less than a packet of the wire, and words stay in order.
        self._between_ps = max(self._between_ps, times.arrival_ps)
        arrival_ps = self._between_ps
        if self._credit_jitter is not None:
            arrival_ps = self._credit_jitter.later_ps(arrival_ps)
        self._log.eth_send(self.core, 1, 0, destination, len(data), times.tail_left_ps, arrival_ps)
        self._send(arrival_ps, self._numbered(whole(destination, data, is_word=True)))

    def submit(self, queue: int, source: int, destination: int, nbytes: int, by: str) -> None:
        """Submit a command to a queue: ``nbytes`` from ``source`` in this L1, copied now, to ``destination`` in the far
        L1. ``by``: name of the kernel.

        Raises:
            MemoryAccessError: for an address outside of L1, or a destination in the firmware's part.
            KernelMisuse: for a busy queue, or a queue other than 0.
        """
        self._memory.check_target(destination, nbytes, f"{by}, over its link,")
        self._memory.check_whole(source, nbytes, by)
        message = whole(destination, self._memory.read(source, nbytes))
        if self._log.replay is not None:
            self._log.replay.loaded(self.core, source, message.data)
        if self.is_busy(queue):
            what = f"core {self.core}: transmit queue {queue} is busy"
            raise KernelMisuse(f"{what}; call eth_txq_is_busy before a command")
        self._count(nbytes)
        times = self._queue.submit(self._engine.now_ps, nbytes)
        assert times is not None, "the queue was not busy"
        self._memory.pin(source, nbytes, "an Ethernet transmission", self._engine.now_ps).until_ps = times.tail_left_ps
        self._deliver(source, message, times, self._copy_bytes, is_kernels=True)

    def link_use(self) -> LinkUse:
        """Return the use of the link so far; the words of :meth:`send_between` count as credits."""
        queue, data_bytes = self._queue, self.bytes_sent - self._words_bytes
        return LinkUse(self._name, self._commands, data_bytes, self._words_bytes, queue.taken_bytes, queue.busy_ps)

    def outages_used(self) -> tuple[OutageUse, ...]:
        """Return the cost of each outage of the link so far, in this direction."""
        return self._queue.outages_used(self._name)

    def _count(self, nbytes: int) -> None:
        self.bytes_sent += nbytes
        self._commands += 1

    def _deliver(
        self, source: int, message: EthWrite, times: TransmitTimes, stored_bytes: int, is_kernels: bool
    ) -> None:
        """Copy a message through both subsystems, and send it to the far core."""
        nbytes = len(message.data)
        if times.loss is not None:
            self._losses.add(times.loss, nbytes, message)
            return
        # Most of a long message is copied while the rest is on the wire, as copies are no slower: one store remains.
        copy_ps = 0 if self._copy_bps is None else drain_ps(min(nbytes, stored_bytes), self._copy_bps)
        self._read_ps = max(self._read_ps, times.arrival_ps) + copy_ps
        self._written_ps = max(self._written_ps, self._read_ps) + copy_ps
        left_ps, arrival_ps = times.tail_left_ps, self._written_ps
        if self._jitter is not None:
            arrival_ps = self._jitter.later_ps(arrival_ps)
        self._log.eth_send(self.core, 0, source, message.address, nbytes, left_ps, arrival_ps)
        sent = [(arrival_ps, message)]
        if is_kernels and self._parts is not None and self._jitter is not None and nbytes > WORD_BYTES:
            first = self._parts.first_words(nbytes // WORD_BYTES) * WORD_BYTES
            rest = structs.replace(message, address=message.address + first, data=message.data[first:])
            head = structs.replace(message, data=message.data[:first], follows=nbytes - first)
            sent = [(arrival_ps, head), (self._jitter.later_ps(arrival_ps), rest)]
        outage = self._queue.last_outage(times.arrival_ps) if is_kernels else None
        if self._firmware is None:
            self._send_all(sent)
            return
        down_ps, up_ps = (0, 0) if outage is None else (outage.down_ps, outage.up_ps)
        sent = [(at_ps, structs.replace(each, down_ps=down_ps, up_ps=up_ps)) for at_ps, each in sent]
        submitted_ps = self._engine.now_ps

        def retrained() -> None:
            now_ps = self._engine.now_ps
            late_ps = max(now_ps - up_ps, 0) if down_ps and now_ps > submitted_ps else 0
            self._send_all(sent, late_ps)

        # A message without an outage before it, such as a router's, does not overtake earlier messages that wait.
        self._firmware.when_run(down_ps, retrained)

    def _send_all(self, sent: Sequence[tuple[Ps, EthWrite]], late_ps: Ps = 0) -> None:
        for at_ps, message in sent:
            self._sent_ps = max(self._sent_ps, at_ps + late_ps)
            self._send(self._sent_ps, self._numbered(message))

    def _numbered(self, message: EthWrite) -> EthWrite:
        """Return a message with what the second pass of the far chip checks."""
        replay = self._log.replay
        if replay is None:
            return message
        seq, crc = replay.number(message.direction(self._name), message.address, message.data)
        return structs.replace(message, seq=seq, crc=crc)
