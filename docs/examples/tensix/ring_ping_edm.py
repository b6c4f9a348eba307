"""A ping around a ring of chips through ERISC data movers: a worker of each chip takes the packet and passes it on.

    ahbm-launch --chip wormhole --sips 4 --topology ring_1d docs/examples/tensix/ring_ping_edm.py [BYTES [N]]

On each chip the data mover of the link from the chip before has a receiver channel, that of the link to the next one a
sender channel. Chip 0 starts a ping and takes its time; there are N. The first one opens the ring.
"""

import sys

NBYTES = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
PINGS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
HERE = 0x40000  # of the packet, in the L1 of each worker


def push(edm, semaphore, df):
    """The packet into the sender channel."""
    x, y, buffer, edm_semaphore = edm
    df.noc_semaphore_wait(semaphore, 1)
    df.noc_semaphore_set(semaphore, 0)
    df.noc_async_write(HERE, df.get_noc_addr(x, y, buffer), NBYTES)
    df.noc_semaphore_inc(df.get_noc_addr(x, y, edm_semaphore), 1)


def pull(edm, semaphore, df):
    """The packet out of the receiver channel."""
    x, y, buffer, edm_semaphore = edm
    df.noc_semaphore_wait(semaphore, 1)
    df.noc_semaphore_set(semaphore, 0)
    df.noc_async_read(df.get_noc_addr(x, y, buffer), HERE, NBYTES)
    df.noc_async_read_barrier()
    df.noc_semaphore_inc(df.get_noc_addr(x, y, edm_semaphore), 1)


def relay(into, into_semaphore, out, out_semaphore, df):
    for _ in range(PINGS + 1):
        pull(into, into_semaphore, df)
        push(out, out_semaphore, df)


def master(into, into_semaphore, out, out_semaphore, took_ns, df):
    for number in range(PINGS + 1):
        packet = bytes((number + each) % 256 for each in range(NBYTES))
        df.write_bytes(HERE, packet)
        begin_ns = df.get_timestamp_ns()
        push(out, out_semaphore, df)
        pull(into, into_semaphore, df)
        took_ns.append(df.get_timestamp_ns() - begin_ns)
        assert df.read_bytes(HERE, NBYTES) == packet, f"ping {number} came back changed"


def link_to(far, rank, nth, tt):
    """This chip's Ethernet core of a link that both chips choose: of those between them the nth at the lower rank."""
    ends = [(core, tt.get_connected_ethernet_core(core)[1]) for core in tt.ethernet_cores_to(far)]
    return sorted(ends, key=lambda end: end[rank > far])[nth][0]


def worker(rank, world_size, tt):
    program, place = tt.create_program(), tt.workers[0]
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    # Two chips have two links: one for the way there, one for the way back.
    out = link_to(after, rank, rank if world_size == 2 else 0, tt)
    into = link_to(before, rank, before if world_size == 2 else 0, tt)
    args, took_ns = [], []
    for core in (into, out):
        edm = tt.edm_builder(1, 256)
        semaphore = tt.create_semaphore(program, place)
        add = edm.add_receiver_channel if core == into else edm.add_sender_channel
        interface = add(semaphore, PINGS + 1, place, NBYTES)
        edm.generate_edm_kernel(program, core)
        args += [(*core, *interface), semaphore]
    if rank == 0:
        tt.create_kernel(program, master, place, args=(*args, took_ns))
    else:
        tt.create_kernel(program, relay, place, args=tuple(args))
    tt.enqueue_program(program)
    tt.finish()
    if rank == 0:
        for ns in took_ns[1:]:
            print(f"{world_size} hops with {NBYTES} B: {ns:.0f} ns, {ns / world_size:.0f} ns a hop")
