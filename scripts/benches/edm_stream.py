"""Packets over one link from chip 0 to chip 1: arguments ``raw`` or ``edm``, packets, bytes of each, channels.

``raw``: a kernel of the Ethernet core sends them one behind the other. ``edm``: workers give them to a data mover, and
workers at the far end take them, as in the CCL developer guide. Workers lie beside the Ethernet core.
"""

import sys

HOW, PACKETS, NBYTES, CHANNELS = sys.argv[1], *(int(word) for word in sys.argv[2:5])
HERE = 0x40000


def send_raw(buffer, df):
    words = buffer // 16
    for _ in range(PACKETS):
        df.eth_send_packet(0, words, words, NBYTES // 16)


def writer(core, interface, semaphore, df):
    buffer, edm_semaphore = (df.get_noc_addr(*core, address) for address in interface)
    for _ in range(PACKETS // CHANNELS):
        df.noc_semaphore_wait(semaphore, 1)
        df.noc_semaphore_set(semaphore, 0)
        df.noc_async_write(HERE, buffer, NBYTES)
        df.noc_semaphore_inc(edm_semaphore, 1)


def reader(core, interface, semaphore, df):
    buffer, edm_semaphore = (df.get_noc_addr(*core, address) for address in interface)
    for _ in range(PACKETS // CHANNELS):
        df.noc_semaphore_wait(semaphore, 1)
        df.noc_semaphore_set(semaphore, 0)
        df.noc_async_read(buffer, HERE, NBYTES)
        df.noc_async_read_barrier()
        df.noc_semaphore_inc(edm_semaphore, 1)


def edm_program(rank, core, program, tt):
    edm = tt.edm_builder(CHANNELS, 1024)
    for place in sorted(tt.workers, key=lambda place: (place.x != core.x, place))[:CHANNELS]:
        semaphore = tt.create_semaphore(program, place)
        add = edm.add_receiver_channel if rank else edm.add_sender_channel
        interface = add(semaphore, PACKETS // CHANNELS, place, NBYTES)
        # NoC 1 goes up: one hop from a worker below the core.
        config = tt.DataMovementConfig(noc=0 if rank else 1)
        tt.create_kernel(program, reader if rank else writer, place, config, (core, interface, semaphore))
    edm.generate_edm_kernel(program, core)


def worker(rank, world_size, tt):
    program = tt.create_program()
    core = tt.ethernet_cores_to(1 - rank)[0]
    if HOW == "edm":
        edm_program(rank, core, program, tt)
    elif rank == 0:
        tt.create_kernel(program, send_raw, core, args=(tt.l1_base(core),))
    tt.enqueue_program(program)
    tt.finish()
