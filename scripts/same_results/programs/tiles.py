"""Kernels on tiles; the first argument chooses: what goes right, what hangs, and what is misused."""

import sys

from sipsim.chips.tensix.fabric.connection import FabricSender
from sipsim.chips.tensix.fabric.packet import unicast, write_to

HOW = sys.argv[1]
ROUNDS, CREDITS, DATA, FREE, HERE = 60, 2, 0x30000, 0x30010, 0x40000


def answer(buffer, nbytes, df):
    df.eth_wait_for_bytes(nbytes)
    df.eth_receiver_channel_done(0)


def ask(buffer, nbytes, df):
    begin = df.get_timestamp_ns()
    df.eth_send_bytes(buffer, buffer, nbytes)
    df.eth_wait_for_receiver_done()
    print(f"{nbytes} B there and a word back: {df.get_timestamp_ns() - begin} ns")


def hasty(buffer, nbytes, df):
    df.eth_send_packet(0, buffer // 16, buffer // 16, nbytes // 16)
    df.write_word(buffer + 16, 7)


def deaf(buffer, nbytes, df):
    df.eth_wait_for_bytes(nbytes + 16)


def hop(target, df):
    begin = df.get_timestamp_ns()
    df.noc_async_write(HERE, df.get_noc_addr(*target, HERE), 256)
    df.noc_async_write_barrier()
    written = df.get_timestamp_ns()
    df.noc_async_read(df.get_noc_addr(*target, HERE), HERE, 256)
    df.noc_async_read_barrier()
    print(f"to {target}: write {written - begin} ns, read {df.get_timestamp_ns() - written} ns")


def outside(target, df):
    df.read_word(1 << 24)


def nowhere(target, df):
    df.noc_async_write(HERE, df.get_noc_addr(63, 63, HERE), 16)


def producer(there, df):
    for number in range(1, ROUNDS + 1):
        df.noc_semaphore_wait_min(FREE, max(number - CREDITS, 0))
        df.instructions(300)
        df.noc_semaphore_inc(df.get_noc_addr(*there, DATA), 1)


def consumer(there, df):
    wait = df.noc_semaphore_wait if HOW == "race" else df.noc_semaphore_wait_min
    for number in range(1, ROUNDS + 1):
        wait(DATA, number)  # equal: of two increments at once the first is not seen
        df.noc_semaphore_inc(df.get_noc_addr(*there, FREE), 1)


def around(endpoint, hops, target, packets, df):
    fabric = FabricSender(endpoint, df)
    if HOW != "unopened":
        fabric.open()
    for _ in range(packets):
        fabric.send(unicast(hops), target, 0x30000, 1 << 20 if HOW == "long" else 512)
    fabric.close()


def worker(rank, world_size, tt):
    program = tt.create_program()
    if HOW in ("ping", "hasty", "deaf"):
        core = tt.ethernet_cores_to(rank ^ 1)[0]
        kernel = {"ping": (ask, answer), "hasty": (hasty, answer), "deaf": (ask, deaf)}[HOW][rank % 2]
        tt.create_kernel(program, kernel, core, args=(tt.l1_base(core), 64))
    elif HOW in ("hop", "outside", "nowhere"):
        kernel = {"hop": hop, "outside": outside, "nowhere": nowhere}[HOW]
        for target in (tt.workers[1], tt.workers[8], tt.workers[-1]) if rank == 0 else ():
            program = tt.create_program()
            tt.create_kernel(program, kernel, tt.workers[0], args=(target,))
            tt.enqueue_program(program)
        program = tt.create_program()
    elif HOW in ("credits", "race"):
        one, other = tt.workers[0], tt.workers[40]
        tt.create_kernel(program, producer, one, args=(other,))
        tt.create_kernel(program, consumer, other, args=(one,))
    else:
        fabric = tt.open_fabric("line" if HOW == "far" else "ring", revision=sys.argv[2])
        core, packets = tt.workers[0], int(sys.argv[3])
        hops = 2 * world_size if HOW == "far" else world_size - 1
        args = (fabric.connect(core, "forward"), hops, write_to(tt.workers[-1], HERE), packets) if rank < 3 else ()
        if args:
            tt.create_kernel(program, around, core, args=args)
    tt.enqueue_program(program)
    tt.finish()
