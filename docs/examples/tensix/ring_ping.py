"""A ping around a ring of chips without a data mover: receiver and sender kernels of the CCL developer guide.

    ahbm-launch --chip wormhole --sips 8 --topology ring_1d docs/examples/tensix/ring_ping.py [BYTES [PINGS [RANKS]]]
    ahbm-launch --topology t3000 docs/examples/tensix/ring_ping.py 16 3 0,4,5,1,2,6,7,3
    ahbm-launch --topology t3000 docs/examples/tensix/ring_ping.py 16 3 0,1,2,3
    ahbm-launch --topology n300 docs/examples/tensix/ring_ping.py

On each chip a kernel on the Ethernet core of the link from the chip before passes the packet on, over the NoC, to one
on the core of the link to the next chip. Chip 0 starts a ping and takes its time. The first one opens the ring. RANKS:
in their order around the ring, such as 0,4,5,1,2,6,7,3 on a T3000, where neighbours have other numbers; chips that are
not among them have no kernels. On two chips with one link for programs, as on an n300, one kernel has both directions.
"""

import sys

NBYTES = int(sys.argv[1]) if len(sys.argv) > 1 else 16
PINGS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
ORDER = [int(rank) for rank in sys.argv[3].split(",")] if len(sys.argv) > 3 else []
CHANNEL = 1  # channel 0 is for the handshake
BACK = 2  # of the way back, where both ways are on one core


def handshake(scratch, is_master, df):
    """Neither end sends anything else before both kernels run."""
    if is_master:
        df.eth_send_bytes(scratch, scratch, 16)
        df.eth_wait_for_receiver_done()
    else:
        df.eth_wait_for_bytes(16)
        df.eth_receiver_channel_done(0)


def pass_on(buffer, onward, semaphore, df):
    """To the sender kernel of this chip, which knows of it when all of it is there."""
    x, y = onward
    df.noc_async_write(buffer, df.get_noc_addr(x, y, buffer), NBYTES)
    df.noc_semaphore_inc(df.get_noc_addr(x, y, semaphore), 1)


def receiver(scratch, buffer, onward, semaphore, df):
    handshake(scratch, False, df)
    for _ in range(PINGS + 1):
        df.eth_wait_for_bytes_on_channel(CHANNEL)
        pass_on(buffer, onward, semaphore, df)
        df.eth_receiver_channel_ack(CHANNEL, df.ack_address)  # the far end need not wait for the NoC
        df.eth_noc_async_write_barrier()
        df.eth_receiver_channel_done(CHANNEL)


def master_receiver(scratch, buffer, onward, semaphore, took_ns, df):
    handshake(scratch, False, df)
    for number in range(PINGS + 1):
        packet = bytes((number + each) % 256 for each in range(NBYTES))
        df.write_bytes(buffer, packet)
        begin_ns = df.get_timestamp_ns()
        pass_on(buffer, onward, semaphore, df)
        df.eth_wait_for_bytes_on_channel(CHANNEL)
        took_ns.append(df.get_timestamp_ns() - begin_ns)
        assert df.read_bytes(buffer, NBYTES) == packet, f"ping {number} came back changed"
        df.eth_receiver_channel_ack(CHANNEL, df.ack_address)
        df.eth_receiver_channel_done(CHANNEL)


def sender(scratch, buffer, semaphore, df):
    handshake(scratch, True, df)
    for _ in range(PINGS + 1):
        df.noc_semaphore_wait(semaphore, 1)
        df.noc_semaphore_set(semaphore, 0)
        df.eth_send_bytes_over_channel(buffer, buffer, NBYTES, CHANNEL)
        df.eth_wait_for_receiver_channel_done(CHANNEL)


def there_and_back(scratch, buffer, took_ns, is_master, df):
    """Both ways over one link, whose core has one kernel, so that no packet crosses the NoC."""
    handshake(scratch, is_master, df)
    onward, back = (CHANNEL, BACK) if is_master else (BACK, CHANNEL)
    for number in range(PINGS + 1):
        packet = bytes((number + each) % 256 for each in range(NBYTES))
        if is_master:
            df.write_bytes(buffer, packet)
            begin_ns = df.get_timestamp_ns()
        else:
            df.eth_wait_for_bytes_on_channel(back)
        df.eth_send_bytes_over_channel(buffer, buffer, NBYTES, onward)
        if is_master:
            df.eth_wait_for_bytes_on_channel(back)
            took_ns.append(df.get_timestamp_ns() - begin_ns)
            assert df.read_bytes(buffer, NBYTES) == packet, f"ping {number} came back changed"
        df.eth_receiver_channel_done(back)
        df.eth_wait_for_receiver_channel_done(onward)


def link_to(far, rank, nth, tt):
    """This chip's Ethernet core of a link that both chips choose: of those between them the nth at the lower rank."""
    ends = [(core, tt.get_connected_ethernet_core(core)[1]) for core in tt.ethernet_cores_to(far)]
    return sorted(ends, key=lambda end: end[rank > far])[nth][0]


def worker(rank, world_size, tt):
    ring = ORDER or list(range(world_size))
    if rank not in ring:
        return
    hops, place, program, took_ns = len(ring), ring.index(rank), tt.create_program(), []
    after, before = ring[(place + 1) % hops], ring[place - 1]
    if hops == 2 and len(tt.ethernet_cores_to(after)) == 1:
        core = link_to(after, rank, 0, tt)
        scratch = tt.l1_base(core)
        tt.create_kernel(program, there_and_back, core, args=(scratch, scratch + 64, took_ns, place == 0))
    else:
        # Two chips have two links: one for the way there, one for the way back.
        out = link_to(after, rank, place if hops == 2 else 0, tt)
        into = link_to(before, rank, 1 - place if hops == 2 else 0, tt)
        scratch, buffer = tt.l1_base(out), tt.l1_base(out) + 64
        semaphore = tt.create_semaphore(program, out)
        args = (scratch, buffer, out, semaphore)
        if place == 0:
            tt.create_kernel(program, master_receiver, into, args=(*args, took_ns))
        else:
            tt.create_kernel(program, receiver, into, args=args)
        tt.create_kernel(program, sender, out, args=(scratch, buffer, semaphore))
    tt.enqueue_program(program)
    tt.finish()
    for ns in took_ns[1:]:
        print(f"{hops} hops with {NBYTES} B: {ns:.0f} ns, {ns / hops:.0f} ns a hop")
