"""The kernels of a worker: `reader` fills a circular buffer, `adder` adds up what is in a place of it, and `writer`
empties it into the fabric. Each goes on with the next packet while the one behind it has this one.
"""

from functools import partial
from typing import Final

from sipsim.chips.tensix.ccl.tensors.tensor import add
from sipsim.chips.tensix.ccl.workers.work import Packet, Until, Work
from sipsim.chips.tensix.dataflow import Dataflow
from sipsim.chips.tensix.fabric.connection import FabricSender
from sipsim.chips.tensix.fabric.packet import increment_of, write_and_increment, write_to

SIGN: Final = 0x80000000


def reader(work: Work, df: Dataflow) -> None:
    """Reads packets, ``batch`` at a time: a batch is in the buffer when its last byte is."""
    df.owe(work.launch_ns)
    words, buffer, packets = work.words, work.buffer, work.packets
    df.store(words.popped, bytes(4))
    done = 0
    while done < len(packets):
        batch = packets[done : done + min(work.batch, buffer.slots)]
        _wait_for_room(work, done + len(batch), df)
        count = _until_missing(batch, df)
        for number, packet in enumerate(batch[:count], done):
            at = buffer.address(number)
            for operand, place in enumerate(packet.reads):
                df.noc_async_read(place, at + operand * buffer.operand_bytes, packet.nbytes)
        df.noc_async_read_barrier()
        done += count
        df.store(words.pushed, done.to_bytes(4, "little"))


def adder(work: Work, df: Dataflow) -> None:
    """Adds up the operands of each packet."""
    words, buffer = work.words, work.buffer
    for number, packet in enumerate(work.packets):
        df.wait_until(partial(_is_more, df, words.pushed, number), "operands")
        if len(packet.reads) > 1:
            _add(work, packet, buffer.address(number), df)
        df.store(words.summed, (number + 1).to_bytes(4, "little"))


def writer(work: Work, df: Dataflow) -> None:
    """Tells the other chips that it has begun, waits for them, and passes the packets on."""
    df.instructions(work.launch_ns)
    words, buffer = work.words, work.buffer
    fabric = None
    if work.endpoint is not None:
        fabric = FabricSender(work.endpoint, df)
        fabric.open()
        for route, semaphore in work.hellos:
            fabric.send(route, increment_of(semaphore.core, semaphore.address), 0, 0)
    _wait_for(work.begin, df)
    filled = words.summed if work.adds else words.pushed
    for number, packet in enumerate(work.packets):
        df.wait_until(partial(_is_more, df, filled, number), "a page to pass on")
        df.owe(work.page_ns * packet.pages)
        _pass_on(packet, buffer.address(number), fabric, df)
        df.store(words.popped, (number + 1).to_bytes(4, "little"))
    _wait_for(work.end, df)
    if fabric is not None:
        fabric.close()
    df.noc_async_write_barrier()
    for word in (words.pushed, words.summed):
        df.store(word, bytes(4))


def _pass_on(packet: Packet, address: int, fabric: FabricSender | None, df: Dataflow) -> None:
    """Write it here, send it on, and wait until its bytes have left."""
    if packet.route is not None and packet.target is not None:
        assert fabric is not None
        target = write_to(packet.target.core, packet.target.address)
        if packet.signal is not None:
            target = write_and_increment(*packet.target, *packet.signal)
        fabric.send(packet.route, target, address, packet.nbytes)
    if packet.local is not None:
        df.noc_async_write(address, packet.local, packet.nbytes)
    df.noc_async_writes_flushed()
    if packet.told is not None:
        df.noc_async_write_barrier()
        df.noc_semaphore_inc(packet.told, 1)


def _add(work: Work, packet: Packet, address: int, df: Dataflow) -> None:
    """The sum of a packet's operands, in place of the first."""
    count, nbytes, stride = len(packet.reads), packet.nbytes, work.buffer.operand_bytes
    parts = [df.peek(address + operand * stride, nbytes) for operand in range(count)]
    df.owe((count - 1) * nbytes * work.add_ns_per_byte)
    df.put(address, add(work.dtype, parts))


def _wait_for_room(work: Work, end: int, df: Dataflow) -> None:
    popped, least = work.words.popped, end - work.buffer.slots
    if least > 0:
        df.wait_until(lambda: df.peek_word(popped) >= least, "room in its buffer")


def _until_missing(batch: tuple[Packet, ...], df: Dataflow) -> int:
    """Wait for what the first packet needs.

    Returns:
        How many of the batch have come.
    """
    _wait_for(batch[0].after, df)
    for count, packet in enumerate(batch):
        if not all(_has_come(df, word, value) for word, value in packet.after):
            return count
    return len(batch)


def _wait_for(conditions: tuple[Until, ...], df: Dataflow) -> None:
    for word, value in conditions:
        df.wait_until(partial(_has_come, df, word, value), f"the semaphore at 0x{word:x} to be {value} or more")


def _is_more(df: Dataflow, word: int, number: int) -> bool:
    return df.peek_word(word) > number


def _has_come(df: Dataflow, word: int, value: int) -> bool:
    """Whether a word that only grows, and begins again behind 2**32 - 1, is at a value or behind it."""
    return not df.peek_word(word) - value & SIGN
