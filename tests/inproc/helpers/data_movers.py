"""A host script, no test: data movers one after the other on one link of two chips, drawn from a seed; all are right.

Both modes, directions and ways to end, with and without a wait between programs, messages of any size, also none. Some
payloads look like the data mover's own words of flow control.
"""

import random
import struct
import sys
from typing import NamedTuple

TAG = 0x0EDA7A00


class Channel(NamedTuple):
    """``is_forth``: from chip 0 to chip 1. ``ends_apart``: the sender's worker ends it behind its last message."""

    is_forth: bool
    nbytes: int
    messages: list[bytes]
    ends_apart: bool


class Mover(NamedTuple):
    """``waits``: by chip, whether its host waits for the program."""

    by_worker: bool
    is_merged: bool
    page_bytes: int
    channels: list[Channel]
    waits: tuple[bool, ...]
    before_read_ns: int


def payload(rng, nbytes):
    words = struct.pack("<IIII", nbytes, 0, rng.randrange(4), TAG)
    return rng.choice((bytes([rng.randrange(1, 256)]) * nbytes, words * (nbytes // 16), rng.randbytes(nbytes)))


def drawn(seed):
    rng = random.Random(seed)
    movers = []
    for _ in range(rng.randint(2, 4)):
        by_worker = rng.random() < 0.6
        channels = []
        for _ in range(rng.choice((1, 1, 2, 4))):
            nbytes = 16 * rng.choice((1, 2, 8, 31, 32, 64))
            messages = [payload(rng, nbytes) for _ in range(rng.randint(0 if by_worker else 1, 3))]
            channels.append(Channel(rng.random() < 0.5, nbytes, messages, rng.random() < 0.5))
        waits = (rng.random() < 0.5, rng.random() < 0.5)
        shape = (by_worker, rng.random() < 0.6, rng.choice((16, 512, 1024)), channels)
        movers.append(Mover(*shape, waits, rng.choice((0, 0, 500, 3000))))
    return movers


def push(edm, semaphore, source, channel, mover, df):
    x, y, buffer, edm_semaphore = edm
    told, count = df.get_noc_addr(x, y, edm_semaphore), len(channel.messages)
    ends_apart = mover.by_worker and (channel.ends_apart or not count)
    for number in range(count + ends_apart):
        df.noc_semaphore_wait(semaphore, 1)
        df.noc_semaphore_set(semaphore, 0)
        if number < count:
            df.noc_async_write(source + number * channel.nbytes, df.get_noc_addr(x, y, buffer), channel.nbytes)
        is_last = mover.by_worker and not ends_apart and number == count - 1
        df.noc_semaphore_inc(told, 3 if number == count else 2 if is_last else 1)


def pull(edm, semaphore, to, channel, mover, df):
    x, y, buffer, edm_semaphore = edm
    told, count = df.get_noc_addr(x, y, edm_semaphore), len(channel.messages)
    for number in range(count):
        df.noc_semaphore_wait(semaphore, 1)
        df.noc_semaphore_set(semaphore, 0)
        df.instructions(mover.before_read_ns)
        df.noc_async_read(df.get_noc_addr(x, y, buffer), to + number * channel.nbytes, channel.nbytes)
        df.noc_async_read_barrier()
        df.noc_semaphore_inc(told, 2 if mover.by_worker and number == count - 1 else 1)
    if not count:
        df.noc_semaphore_inc(told, 3)


def worker(rank, world_size, tt):
    core, checks = tt.ethernet_cores_to(1 - rank)[0], []
    for number, mover in enumerate(drawn(int(sys.argv[1]))):
        program, mode = tt.create_program(), "WORKER_INITIATED" if mover.by_worker else "MESSAGE_COUNT_REACHED"
        edm = tt.edm_builder(len(mover.channels), mover.page_bytes, "NOT_SHARED", mode, mover.is_merged)
        for place, channel in zip(tt.workers, mover.channels, strict=False):
            semaphore, base = tt.create_semaphore(program, place), 0x40000 + number * 0x4000
            sends = channel.is_forth is (rank == 0)
            add = edm.add_sender_channel if sends else edm.add_receiver_channel
            interface = add(semaphore, 0 if mover.by_worker else len(channel.messages), place, channel.nbytes)
            if sends:
                tt.write(place, base, b"".join(channel.messages))
            else:
                base += 0x40000
                checks.append((place, base, b"".join(channel.messages)))
            args = ((*core, *interface), semaphore, base, channel, mover)
            tt.create_kernel(program, push if sends else pull, place, args=args)
        edm.generate_edm_kernel(program, core)
        tt.enqueue_program(program)
        if mover.waits[rank]:
            tt.finish()
    tt.finish()
    for place, base, expected in checks:
        assert tt.read(place, base, len(expected)) == expected
