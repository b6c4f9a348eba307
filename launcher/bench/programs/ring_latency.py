"""Host script ``ring_latency``: the guide's example program, packets around a ring of chips without data movers.

On each chip, a receiver takes a packet from the previous link, writes the packet over the NoC to the sender, and
increments the sender's semaphore; the sender forwards the packet. The receiver of chip 0 is the master, which injects
the packets and times each lap but the first. Payload and flow control take two commands, or one (``is_merged``).
"""

from typing import Any

from launcher.bench.programs.common import Slots, begin, check, end, pattern, report, send_free, send_merged, settings
from launcher.bench.programs.eth_ping import mean
from sipsim.chips.tensix.eth_dataflow import EthDataflow
from sipsim.chips.tensix.noc import Core


class Separate:
    """Signalling with two commands: one for the payload, one for the channel's words of flow control."""

    def __init__(self, slots: Slots, df: EthDataflow) -> None:
        self._slots, self._df = slots, df

    def send(self, channel: int) -> None:
        """Send the payload of a channel."""
        address = self._slots.payload(channel)
        self._df.eth_send_bytes_over_channel(address, address, self._slots.nbytes, channel)

    def wait_for_done(self, channel: int) -> None:
        """Wait until the far buffer is free."""
        self._df.eth_wait_for_receiver_channel_done(channel)

    def wait_for_payload(self, channel: int) -> None:
        """Wait until a payload has arrived on a channel."""
        self._df.eth_wait_for_bytes_on_channel(channel)

    def received(self, channel: int) -> None:
        """Notify the sender that the payload has arrived."""
        self._df.eth_receiver_channel_ack(channel, self._df.ack_address)

    def done(self, channel: int) -> None:
        """Notify the sender that the buffer is free."""
        self._df.eth_receiver_channel_done(channel)


class Merged(Separate):
    """Signalling with one command for payload and word of flow control. The receiver reports only free buffers."""

    def send(self, channel: int) -> None:
        send_merged(self._slots, channel, self._df)

    def wait_for_done(self, channel: int) -> None:
        self._df.noc_semaphore_wait(self._slots.sync(channel), 0)

    def wait_for_payload(self, channel: int) -> None:
        self._df.noc_semaphore_wait(self._slots.sync(channel), self._slots.nbytes)

    def received(self, channel: int) -> None:
        """Send nothing: :meth:`done` suffices."""

    def done(self, channel: int) -> None:
        send_free(self._slots, channel, self._df)


def sender(number: int, laps: int, slots: Slots, signal: Any, semaphores: list[int], df: EthDataflow) -> None:
    """Run the kernel of a sender, which forwards the packets that the chip's receiver writes."""
    begin(number, df)
    channels = signal(slots, df)
    for _ in range(laps):
        for channel, semaphore in enumerate(semaphores):
            df.noc_semaphore_wait(semaphore, 1)
            df.noc_semaphore_set(semaphore, 0)
            channels.send(channel)
        for channel in range(len(semaphores)):
            channels.wait_for_done(channel)
    end(number, df)


def receiver(number: int, laps: int, slots: Slots, signal: Any, semaphores: list[int], to: Core, df: Any) -> None:
    """Run the kernel of a receiver, which passes arriving packets to the chip's sender on tile ``to``."""
    begin(number, df)
    channels = signal(slots, df)
    for _ in range(laps):
        for channel, semaphore in enumerate(semaphores):
            channels.wait_for_payload(channel)
            _pass_on(slots, channel, semaphore, to, df)
            channels.received(channel)
            df.noc_async_write_barrier()
            channels.done(channel)
    end(number, df)


def master(
    number: int, laps: int, slots: Slots, signal: Any, semaphores: list[int], to: Core, times: list[float], df: Any
) -> None:
    """Run the kernel of the master, which starts each lap; append the time in ns of each but the first to ``times``."""
    begin(number, df)
    channels = signal(slots, df)
    for lap in range(laps):
        began_ns = df.get_timestamp_ns()
        for channel, semaphore in enumerate(semaphores):
            _pass_on(slots, channel, semaphore, to, df)
        df.noc_async_write_barrier()
        for channel in range(len(semaphores)):
            channels.wait_for_payload(channel)
        if lap:
            times.append(df.get_timestamp_ns() - began_ns)
        for channel in range(len(semaphores)):
            channels.received(channel)
            channels.done(channel)
    end(number, df)


def _pass_on(slots: Slots, channel: int, semaphore: int, to: Core, df: Any) -> None:
    address = slots.payload(channel)
    df.noc_async_write(address, df.get_noc_addr(*to, address), slots.nbytes)
    df.noc_semaphore_inc(df.get_noc_addr(*to, semaphore), 1)


def worker(rank: int, world_size: int, tt: Any) -> None:
    """Run on each chip. Rank 0 reports the mean ``lap_ns`` of each size."""
    chosen = settings()
    before = (rank - 1) % world_size
    to = tt.ethernet_cores_to((rank + 1) % world_size)[_link(rank, world_size)]
    back = tt.ethernet_cores_to(before)[_link(before, world_size)]
    for number, nbytes in enumerate(chosen["sizes"], 1):
        slots = Slots(tt.l1_base(to), nbytes, chosen["channels"])
        for core in (to, back):
            tt.write(core, slots.base, bytes(slots.end - slots.base))
        program, times = tt.create_program(), list[float]()
        semaphores = [tt.create_semaphore(program, to) for _ in range(slots.buffers)]
        common = number, chosen["samples"] + 1, slots, Merged if chosen["is_merged"] else Separate, semaphores
        tt.create_kernel(program, sender, to, args=common)
        if rank:
            tt.create_kernel(program, receiver, back, args=(*common, to))
        else:
            for channel in range(slots.buffers):
                tt.write(back, slots.payload(channel), pattern(nbytes, channel))
            tt.create_kernel(program, master, back, args=(*common, to, times))
        tt.enqueue_program(program)
        tt.finish()
        for channel in range(slots.buffers):
            what = f"packet {channel} of {nbytes} B on chip {rank}"
            check(what, tt.read(back, slots.payload(channel), nbytes), pattern(nbytes, channel))
        if not rank:
            report(nbytes=nbytes, lap_ns=mean(times), hops=world_size)


def _link(rank: int, world_size: int) -> int:
    """Return the index of the link to the next chip; in a ring of two, both hops are between the same chips."""
    return 1 if world_size == 2 and rank == 1 else 0
