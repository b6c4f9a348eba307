"""Tensor slices over a link, through the ERISC data mover: sender and receiver kernels of the CCL developer guide.

    ahbm-launch --chip wormhole --sips 2 --topology ring_1d docs/examples/tensix/slices.py [MODE [CHANNELS]]

Each chip sends the rows of its tensor to the other one, in both directions at once: a slice of rows for each channel, a
row a message, a worker for each end of a channel. MODE: ``MESSAGE_COUNT_REACHED`` or ``WORKER_INITIATED``.
"""

import sys

import numpy as np

MODE = sys.argv[1] if len(sys.argv) > 1 else "MESSAGE_COUNT_REACHED"
CHANNELS = int(sys.argv[2]) if len(sys.argv) > 2 else 2
ROWS, ROW_BYTES, PAGE_BYTES = 8, 4096, 1024
SLICE_AT = 0x40000  # in the L1 of each worker


def sender(edm, semaphore, ends_it, df):
    """The rows of a slice into the channel's buffer, each when it is free."""
    x, y, buffer, edm_semaphore = edm
    for row in range(ROWS):
        df.noc_semaphore_wait(semaphore, 1)
        df.noc_semaphore_set(semaphore, 0)  # before the data mover is told, which may answer at once
        df.noc_async_write(SLICE_AT + row * ROW_BYTES, df.get_noc_addr(x, y, buffer), ROW_BYTES)
        is_last = ends_it and row == ROWS - 1
        df.noc_semaphore_inc(df.get_noc_addr(x, y, edm_semaphore), 2 if is_last else 1)  # behind the write


def receiver(edm, semaphore, ends_it, df):
    """The rows of a slice out of the channel's buffer."""
    x, y, buffer, edm_semaphore = edm
    for row in range(ROWS):
        df.noc_semaphore_wait(semaphore, 1)
        df.noc_semaphore_set(semaphore, 0)
        df.noc_async_read(df.get_noc_addr(x, y, buffer), SLICE_AT + row * ROW_BYTES, ROW_BYTES)
        df.noc_async_read_barrier()
        is_last = ends_it and row == ROWS - 1
        df.noc_semaphore_inc(df.get_noc_addr(x, y, edm_semaphore), 2 if is_last else 1)


def tensor(rank):
    """Of one chip: a slice for each channel."""
    return np.random.default_rng(rank).integers(0, 2**16, (CHANNELS, ROWS, ROW_BYTES // 2), dtype=np.uint16)


def link_to(far, rank, tt):
    """This chip's Ethernet core of a link that both chips choose: of those between them the first at the lower rank."""
    ends = [(core, tt.get_connected_ethernet_core(core)[1]) for core in tt.ethernet_cores_to(far)]
    return min(ends, key=lambda end: end[rank > far])[0]


def worker(rank, world_size, tt):
    program, core = tt.create_program(), link_to(1 - rank, rank, tt)
    ends_it = MODE == "WORKER_INITIATED"
    edm = tt.edm_builder(2 * CHANNELS, PAGE_BYTES, termination=MODE)
    mine, theirs, received = tensor(rank), tensor(1 - rank), []
    for channel in range(2 * CHANNELS):
        # Channels 0, 2, 4 send from chip 0 to chip 1, the others back.
        sends = channel % 2 == rank
        place = tt.workers[channel]
        semaphore = tt.create_semaphore(program, place)
        add = edm.add_sender_channel if sends else edm.add_receiver_channel
        interface = add(semaphore, 0 if ends_it else ROWS, place, ROW_BYTES)
        kernel = sender if sends else receiver
        tt.create_kernel(program, kernel, place, args=((*core, *interface), semaphore, ends_it))
        if sends:
            tt.write(place, SLICE_AT, mine[channel // 2].tobytes())
        else:
            received.append((place, theirs[channel // 2]))
    edm.generate_edm_kernel(program, core)
    tt.enqueue_program(program)
    tt.finish()
    for place, expected in received:
        data = tt.read(place, SLICE_AT, ROWS * ROW_BYTES)
        assert data == expected.tobytes(), f"chip {rank}: the slice of tile {place} is wrong"
    nbytes, ns = CHANNELS * ROWS * ROW_BYTES, tt.now_ns()
    print(f"chip {rank}: {nbytes} B each way in {ns:.0f} ns, {nbytes / ns:.2f} GB/s, all as sent")
