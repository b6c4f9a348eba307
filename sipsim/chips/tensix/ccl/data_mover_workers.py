"""Kernels of operations over data movers, as in the CCL developer guide, and their records.

A unit of an all-gather has two cores: the *sender* core (kernels ``gather_reader``, ``gather_sender``) with the sender
channel, and the *receiver* core (``gather_receiver``, ``gather_writer``) with the receiver channel. A unit of a
reduce-scatter has one core with both channels (``scatter_reader``, ``scatter_adder``, ``scatter_writer``). The kernels
of a core share a circular buffer of packets.
"""

from typing import NamedTuple

from sipsim.chips.tensix.ccl.circular_buffer import CircularBuffer
from sipsim.chips.tensix.ccl.packets import Packet
from sipsim.chips.tensix.dataflow import Dataflow, NocAddress
from sipsim.chips.tensix.edm.layout import ChannelBufferInterface
from sipsim.chips.tensix.edm.worker import EdmReceiver, EdmSender
from sipsim.chips.tensix.formats import Format
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.params import CclParams

INPUT, OUTPUT = 0, 1
"""Numbers of a packet's tensors."""


class ChannelEnd(NamedTuple):
    """Worker's end of a data mover's channel: the Ethernet core, the channel, and the worker's semaphore."""

    core: Core
    channel: ChannelBufferInterface
    semaphore: int

    def sender(self, df: Dataflow, hint: str = "") -> EdmSender:
        """Return the end for a kernel that sends."""
        return EdmSender(self.core, self.channel, self.semaphore, df, hint)

    def receiver(self, df: Dataflow, hint: str = "") -> EdmReceiver:
        """Return the end for a kernel that receives."""
        return EdmReceiver(self.core, self.channel, self.semaphore, df, hint)


class SenderUnit(NamedTuple):
    """Sender core of an all-gather's worker unit. ``own``: number of leading packets that are the chip's input; the
    others are forwarded from the output, each after one more increment of semaphore ``arrived``. ``copies``: whether
    the sender writes its own packets to the output, too.
    """

    packets: list[Packet]
    own: int
    copies: bool
    arrived: int
    end: ChannelEnd
    buffer: CircularBuffer
    ccl: CclParams


class ReceiverUnit(NamedTuple):
    """Receiver core of an all-gather's worker unit. ``forwarded``: number of leading packets for each of which the
    receiver increments the sender's semaphore ``arrived``.
    """

    packets: list[Packet]
    forwarded: int
    arrived: NocAddress
    end: ChannelEnd
    buffer: CircularBuffer
    ccl: CclParams


def gather_reader(unit: SenderUnit, df: Dataflow) -> None:
    """Kernel that reads packets of the input, and those of the output that the receiver has committed."""
    df.owe(unit.ccl.launch_ns)
    for number, packet in enumerate(unit.packets):
        slot = unit.buffer.wait_for_room(number, df)
        forwarded = number - unit.own
        if forwarded >= 0:
            df.noc_semaphore_wait_min(unit.arrived, forwarded + 1)
        df.owe(unit.ccl.page_ns * packet.pages)
        packet.read(INPUT if forwarded < 0 else OUTPUT, slot, df)
        df.noc_async_read_barrier()
        unit.buffer.advance(number, unit.buffer.pushed, df)


def gather_sender(unit: SenderUnit, df: Dataflow) -> None:
    """Kernel that writes packets to the data mover, and its own packets to the output, too."""
    df.instructions(unit.ccl.launch_ns)
    sender = unit.end.sender(df)
    for number, packet in enumerate(unit.packets):
        slot = unit.buffer.wait_for_packet(number, unit.buffer.pushed, df)
        sender.send(slot, packet.nbytes)
        if number < unit.own and unit.copies:
            df.owe(unit.ccl.page_ns * packet.pages)
            packet.write(OUTPUT, slot, df)
        df.noc_async_writes_flushed()
        unit.buffer.advance(number, unit.buffer.popped, df)
    df.noc_async_write_barrier()


def gather_receiver(unit: ReceiverUnit, df: Dataflow) -> None:
    """Kernel that takes payloads from the data mover."""
    df.owe(unit.ccl.launch_ns)
    receiver = unit.end.receiver(df)
    for number, packet in enumerate(unit.packets):
        receiver.receive(unit.buffer.wait_for_room(number, df), packet.nbytes)
        unit.buffer.advance(number, unit.buffer.pushed, df)


def gather_writer(unit: ReceiverUnit, df: Dataflow) -> None:
    """Kernel that writes payloads to the output, and signals each committed packet to the sender core."""
    df.instructions(unit.ccl.launch_ns)
    for number, packet in enumerate(unit.packets):
        slot = unit.buffer.wait_for_packet(number, unit.buffer.pushed, df)
        df.owe(unit.ccl.page_ns * packet.pages)
        packet.write(OUTPUT, slot, df)
        if number < unit.forwarded:
            df.noc_async_write_barrier()
            df.noc_semaphore_inc(unit.arrived, 1)
        else:
            df.noc_async_writes_flushed()
        unit.buffer.advance(number, unit.buffer.popped, df)
    df.noc_async_write_barrier()


class ScatterOp(NamedTuple):
    """Step of a reduce-scatter's worker for one packet. ``is_first``: the packet is sent without reduction, else it is
    added to a payload from the data mover. ``is_last``: the sum goes to the output, else to the data mover.
    """

    packet: Packet
    is_first: bool
    is_last: bool


class ScatterUnit(NamedTuple):
    """Worker of a reduce-scatter. ``receives``, ``sends``: the worker's ends of its two channels. A slot of the buffer
    has space for two operands.
    """

    ops: list[ScatterOp]
    receives: ChannelEnd
    sends: ChannelEnd
    buffer: CircularBuffer
    dtype: Format
    ccl: CclParams


def scatter_reader(unit: ScatterUnit, df: Dataflow) -> None:
    """Kernel that reads the packets of the input and takes partial sums from the data mover."""
    df.owe(unit.ccl.launch_ns)
    receiver = unit.receives.receiver(df, unit.buffer.hint)
    for number, op in enumerate(unit.ops):
        slot = unit.buffer.wait_for_room(number, df)
        df.owe(unit.ccl.page_ns * op.packet.pages)
        op.packet.read(INPUT, slot if op.is_first else slot + unit.buffer.operand_bytes, df)
        if op.is_first:
            df.noc_async_read_barrier()
        else:
            receiver.receive(slot, op.packet.nbytes)
        unit.buffer.advance(number, unit.buffer.pushed, df)


def scatter_adder(unit: ScatterUnit, df: Dataflow) -> None:
    """Kernel that adds the chip's packet to the partial sum."""
    for number, op in enumerate(unit.ops):
        unit.buffer.wait_for_packet(number, unit.buffer.pushed, df)
        if not op.is_first:
            unit.buffer.add(number, unit.dtype, op.packet.nbytes, 2, df)
        unit.buffer.advance(number, unit.buffer.summed, df)


def scatter_writer(unit: ScatterUnit, df: Dataflow) -> None:
    """Kernel that writes partial sums to the data mover, and sums to the output."""
    df.instructions(unit.ccl.launch_ns)
    sender = unit.sends.sender(df, unit.buffer.hint)
    for number, op in enumerate(unit.ops):
        slot = unit.buffer.wait_for_packet(number, unit.buffer.summed, df)
        if op.is_last:
            df.owe(unit.ccl.page_ns * op.packet.pages)
            op.packet.write(OUTPUT, slot, df)
        else:
            sender.send(slot, op.packet.nbytes)
        df.noc_async_writes_flushed()
        unit.buffer.advance(number, unit.buffer.popped, df)
    df.noc_async_write_barrier()
