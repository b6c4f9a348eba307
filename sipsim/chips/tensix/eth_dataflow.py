"""Calls of an Ethernet core's kernel for the core's link, besides those of ``Dataflow``. Names are as in the CCL guide.

``erisc_info.channels`` are the words of flow control of each channel, at the same address of every Ethernet core:
``bytes_sent``, ``receiver_ack``, ``src_id`` and a reserved word, 4 B each (``eth_channel_sync_t``). A sender sets
``bytes_sent`` and sends the words after the payload; the receiver clears the words when the buffer is free.
"""

import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from sipsim.chips.tensix.dataflow import Dataflow
from sipsim.chips.tensix.ethernet import WORD_BYTES, Transmitter
from sipsim.chips.tensix.firmware import Firmware
from sipsim.chips.tensix.memory import ATOMIC_BYTES
from sipsim.chips.tensix.processor import QUEUE, Processor
from sipsim.chips.tensix.tiles import Tiles
from sipsim.core.errors import KernelMisuse

CHANNELS = 32
SYNC_BYTES = 16
SYNC: Final = struct.Struct("<IIII")
"""The words of flow control of a channel."""
FREE: Final = SYNC.pack(0, 0, 0, 0)


class EthDataflow(Dataflow):
    """Commands of an Ethernet core's processor. ``transmitter``: sending end of the core's link; None without a link.

    ``info_base``: address of ``erisc_info.channels``; the word after this array is the source of acknowledgements.
    ``firmware``: the core's firmware, which retrains the link; None if the link has no outages.

    Calls whose names begin with ``eth_`` contain ``run_routing``, but for those that only look: ``eth_txq_is_busy``,
    ``eth_bytes_are_available_on_channel`` and ``eth_is_``.... A send runs the firmware once; a wait all through, at no
    cost but in ``eth_noc_``..., where each poll that finds nothing costs a call.
    """

    def __init__(
        self,
        processor: Processor,
        tiles: Tiles,
        transmitter: Transmitter | None,
        info_base: int,
        firmware: Firmware | None,
    ) -> None:
        super().__init__(processor, tiles)
        self._firmware = firmware
        self._transmitter = transmitter
        self._info_base = info_base
        self._buffers: dict[int, range] = {}
        """By channel, the far core's bytes of the last payload that this kernel has sent over the channel."""

    # --- commands -------------------------------------------------------------------------------------------------

    def eth_txq_is_busy(self, queue: int = 0) -> bool:
        """Whether the queue accepts no command now. The call takes the time of one access to L1."""
        self._processor.spend(self._processor.l1_access_ps)
        return self._link.is_busy(queue)

    def eth_send_packet(self, queue: int, source_words: int, destination_words: int, words: int) -> None:
        """Wait until the queue is not busy, then send ``words`` words of 16 B from this L1 to the far core's L1.

        The sender is not notified of departure or arrival: the source must not change before the receiver has
        acknowledged the payload.

        Raises:
            KernelMisuse: on a core without a link, or for a queue that does not exist.
        """
        link, processor = self._link, self._processor
        with self.routing():
            while link.is_busy(queue):
                processor.spend_until(link.free_at_ps(), "the transmit queue", QUEUE)
            processor.spend(processor.eth_command_ps)
        if words < 1:
            raise KernelMisuse(f"{processor.name}: an Ethernet command sends 1 word of 16 B or more, not {words} words")
        source, destination = source_words * WORD_BYTES, destination_words * WORD_BYTES
        link.submit(queue, source, destination, words * WORD_BYTES, processor.name)

    def eth_send_bytes(self, source: int, destination: int, nbytes: int) -> None:
        """Send ``nbytes`` over channel 0, as :meth:`eth_send_bytes_over_channel` does."""
        self.eth_send_bytes_over_channel(source, destination, nbytes, 0)

    def eth_send_bytes_over_channel(self, source: int, destination: int, nbytes: int, channel: int) -> None:
        """Send ``nbytes`` and, in a second command, the channel's words of flow control.

        Raises:
            KernelMisuse: if the destination has the words of flow control, or bytes that a channel uses: the receiver
                has not reported these bytes as free (:meth:`eth_receiver_channel_done`).
        """
        sync = self.sync_address(channel)
        self._check_buffer(destination, nbytes, channel)
        self._send(source, destination, nbytes)
        self._buffers[channel] = range(destination, destination + nbytes)
        self.write_bytes(sync, SYNC.pack(nbytes, 0, 0, 0))
        self._send(sync, sync, SYNC_BYTES)

    def sync_address(self, channel: int) -> int:
        """Return the address of a channel's words of flow control.

        Raises:
            KernelMisuse: for a channel that does not exist.
        """
        if not 0 <= channel < CHANNELS:
            raise KernelMisuse(f"{self._processor.name}: channel {channel} is not in 0 to {CHANNELS - 1}")
        return self._info_base + channel * SYNC_BYTES

    @property
    def ack_address(self) -> int:
        """The address of the word from which :meth:`eth_receiver_channel_ack` sends, after all channels' words."""
        return self._info_base + CHANNELS * SYNC_BYTES

    # --- the sender's side of a channel ---------------------------------------------------------------------------

    def eth_is_receiver_channel_send_acked(self, channel: int) -> bool:
        """Whether the receiver has the payload, so that the sender may reuse the source. Takes the time of a poll."""
        sent, ack = self._poll(channel)
        return sent == 0 or ack != 0

    def eth_is_receiver_channel_send_done(self, channel: int) -> bool:
        """Whether the receiver's buffer is free again. Takes the time of a poll."""
        return self._poll(channel)[0] == 0

    def eth_is_receiver_channel_done(self, channel: int) -> bool:
        """Alias of :meth:`eth_is_receiver_channel_send_done`, used in the guide's teardown."""
        return self.eth_is_receiver_channel_send_done(channel)

    def eth_wait_for_receiver_channel_ack(self, channel: int) -> None:
        """Wait until :meth:`eth_is_receiver_channel_send_acked` is true."""
        with self.routing():
            self.wait_until(lambda: self._ack(channel) != 0 or self._sent(channel) == 0,
                            f"the receiver of channel {channel} to have its payload")  # fmt: skip

    def eth_wait_for_receiver_channel_done(self, channel: int) -> None:
        """Wait until :meth:`eth_is_receiver_channel_send_done` is true."""
        with self.routing():
            self.wait_until(lambda: self._sent(channel) == 0, f"the receiver of channel {channel} to be done")

    def eth_wait_for_receiver_done(self) -> None:
        """Wait until :meth:`eth_is_receiver_channel_send_done` is true for channel 0."""
        self.eth_wait_for_receiver_channel_done(0)

    # --- the receiver's side --------------------------------------------------------------------------------------

    def eth_bytes_are_available_on_channel(self, channel: int) -> bool:
        """Whether a payload has arrived on a channel. Takes the time of a poll."""
        return self._poll(channel)[0] != 0

    def eth_wait_for_bytes(self, nbytes: int, channel: int = 0) -> None:
        """Wait until ``nbytes`` have arrived on a channel."""
        with self.routing():
            self.wait_until(lambda: self._sent(channel) == nbytes, f"{nbytes} bytes on channel {channel}")

    def eth_wait_for_bytes_on_channel(self, channel: int) -> None:
        """Wait until a payload has arrived on a channel."""
        with self.routing():
            self.wait_until(lambda: self._sent(channel) != 0, f"a payload on channel {channel}")

    def eth_receiver_channel_ack(self, channel: int, ack_address: int) -> None:
        """Acknowledge the payload to the sender. ``ack_address``: address in this L1 of the word to send."""
        self.write_bytes(ack_address, SYNC.pack(self._sent(channel), 1, 0, 0))
        self._send(ack_address, self.sync_address(channel), SYNC_BYTES)

    def eth_receiver_channel_done(self, channel: int) -> None:
        """Report a free buffer to the sender: clear the channel's words of flow control, and send the words."""
        sync = self.sync_address(channel)
        self.write_bytes(sync, FREE)
        self._send(sync, sync, SYNC_BYTES)

    # --- the guide's names for calls of the NoC that may switch to the firmware -----------------------------------

    def run_routing(self) -> None:
        """Let the base firmware run, which retrains the link after an outage. The call takes ``run_routing_ns``."""
        with self.routing():
            self._processor.spend(self._processor.routing_ps)

    def routing(self) -> AbstractContextManager[object]:
        """Let the firmware run all through a block, at no cost: library kernels call ``run_routing`` in loops."""
        return nullcontext() if self._firmware is None else self._firmware.running()

    def eth_noc_async_write_barrier(self) -> None:
        """Wait as :meth:`noc_async_write_barrier` does, with a call of ``run_routing`` per poll that finds nothing."""
        with self._routing_per_poll():
            self.noc_async_write_barrier()

    def eth_noc_async_read_barrier(self) -> None:
        """Wait as :meth:`noc_async_read_barrier` does, with a call of ``run_routing`` per poll that finds nothing."""
        with self._routing_per_poll():
            self.noc_async_read_barrier()

    def eth_noc_semaphore_wait(self, address: int, value: int) -> None:
        """Wait as :meth:`noc_semaphore_wait` does, with a call of ``run_routing`` per poll that finds nothing."""
        with self._routing_per_poll():
            self.noc_semaphore_wait(address, value)

    # --- inside ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _routing_per_poll(self) -> Iterator[None]:
        self._idle_ps = self._processor.routing_ps
        try:
            with self.routing():
                yield
        finally:
            self._idle_ps = 0

    @property
    def _link(self) -> Transmitter:
        if self._transmitter is None:
            raise KernelMisuse(f"{self._processor.name}: no link leads from this Ethernet core")
        return self._transmitter

    def _send(self, source: int, destination: int, nbytes: int) -> None:
        for name, value in (("source", source), ("destination", destination), ("size", nbytes)):
            if value % WORD_BYTES:
                raise KernelMisuse(f"{self._processor.name}: the {name} {value} is no multiple of {WORD_BYTES} B")
        self.eth_send_packet(0, source // WORD_BYTES, destination // WORD_BYTES, nbytes // WORD_BYTES)

    def _check_buffer(self, destination: int, nbytes: int, channel: int) -> None:
        def overlaps(used: range) -> bool:
            return destination < used.stop and used.start < destination + nbytes

        what = f"{self._processor.name}: the payload of channel {channel}, {nbytes} B for 0x{destination:x},"
        if overlaps(range(self._info_base, self.ack_address + SYNC_BYTES)):
            raise KernelMisuse(f"{what} covers words of flow control; give an address from tt.l1_base on")
        for other, used in self._buffers.items():
            if overlaps(used) and self._sent(other):
                raise KernelMisuse(
                    f"{what} overlaps {len(used)} B at 0x{used.start:x} of channel {other}, which the receiver has not "
                    "freed; give each channel its own buffer, and wait until the receiver is done with it"
                )

    def _sent(self, channel: int) -> int:
        return self._processor.memory.word(self.sync_address(channel))

    def _ack(self, channel: int) -> int:
        return self._processor.memory.word(self.sync_address(channel) + ATOMIC_BYTES)

    def _poll(self, channel: int) -> tuple[int, int]:
        """Return ``bytes_sent`` and ``receiver_ack`` as of the beginning of one poll."""
        seen = self._sent(channel), self._ack(channel)
        self._processor.spend(self._processor.poll_ps)
        return seen
