"""A host script, no test: numbers go around a ring of chips, over Ethernet and from core to core on each chip.

Each chip adds its rank + 1 to what passes, so the first one gets the sum back, lap by lap.
"""

import sys

NBYTES = 64


def forward(laps, buffer, sender, semaphore, df):
    """On the core to which the link from the last chip leads."""
    for _ in range(laps):
        df.eth_wait_for_bytes(NBYTES)
        df.noc_async_write(buffer, df.get_noc_addr(*sender, buffer), NBYTES)
        df.noc_semaphore_inc(df.get_noc_addr(*sender, semaphore), 1)
        df.noc_async_write_barrier()
        df.eth_receiver_channel_done(0)


def send(rank, laps, total, buffer, semaphore, df):
    """On the core whose link leads to the next chip."""
    for lap in range(laps):
        if rank == 0:
            df.write_word(buffer, lap)
        else:
            df.noc_semaphore_wait_min(semaphore, lap + 1)
        df.write_word(buffer, df.read_word(buffer) + rank + 1)
        df.eth_send_bytes_over_channel(buffer, buffer, NBYTES, 0)
        df.eth_wait_for_receiver_channel_done(0)
        if rank == 0:
            df.noc_semaphore_wait_min(semaphore, lap + 1)
            assert df.read_word(buffer) == lap + total


def worker(rank, world_size, tt):
    laps = int(sys.argv[1])
    program = tt.create_program()
    inward = tt.ethernet_cores_to((rank - 1) % world_size)[-1]
    outward = tt.ethernet_cores_to((rank + 1) % world_size)[0]
    buffer, semaphore = tt.l1_base(outward), tt.create_semaphore(program, outward)
    total = world_size * (world_size + 1) // 2
    tt.create_kernel(program, forward, inward, args=(laps, buffer, outward, semaphore))
    tt.create_kernel(program, send, outward, args=(rank, laps, total, buffer, semaphore))
    tt.enqueue_program(program)
    tt.finish()
