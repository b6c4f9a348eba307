"""As ``ahbm.py``, on chips of tiles. Not a test."""

import sys

import numpy as np
from meter import Meter

from sipsim.chips.tensix.fabric.connection import FabricSender
from sipsim.chips.tensix.fabric.packet import Direction, multicast, write_and_increment, write_to

NAME, MESSAGES, POINTS, FILE = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
N = 64
"""Bytes of a message."""


# --- on one chip: writes, reads and semaphores between two tiles -----------------------------------------------------


def writer(there, semaphore, own, meter, df):
    x, y = there
    for number in range(MESSAGES // 4):
        df.noc_async_write(0x20000, df.get_noc_addr(x, y, 0x30000), N)
        df.noc_async_write_one_packet_with_trid(0x20000, df.get_noc_addr(x, y, 0x31000), N, 3)
        df.wait_until(lambda: df.are_writes_sent(3), "a write to leave")
        df.noc_async_read(df.get_noc_addr(x, y, 0x30000), 0x40000, N)
        df.noc_async_read_barrier()
        df.noc_async_write_barrier()
        df.noc_semaphore_inc(df.get_noc_addr(x, y, semaphore), 1)
        df.noc_semaphore_wait_min(own, number + 1)
        meter.tick(4)


def reader(there, semaphore, own, df):
    x, y = there
    for number in range(MESSAGES // 4):
        df.noc_semaphore_wait_min(own, number + 1)
        df.noc_semaphore_inc(df.get_noc_addr(x, y, semaphore), 1)


def noc(tt, rank, meter):
    program, here, there = tt.create_program(), tt.workers[0], tt.workers[20]
    own, far = tt.create_semaphore(program, here), tt.create_semaphore(program, there)
    tt.create_kernel(program, writer, here, args=(there, far, own, meter))
    tt.create_kernel(program, reader, there, args=(here, own, far))
    tt.enqueue_program(program)
    tt.finish()


def nothing(df):
    df.instructions(10)


def programs(tt, rank, meter):
    """A program a message."""
    for _ in range(MESSAGES):
        program = tt.create_program()
        tt.create_kernel(program, nothing, tt.workers[0])
        tt.enqueue_program(program)
        tt.finish()
        meter.tick()


# --- over a link -----------------------------------------------------------------------------------------------------


def link_to(far, rank, tt):
    ends = [(core, tt.get_connected_ethernet_core(core)[1]) for core in tt.ethernet_cores_to(far)]
    return min(ends, key=lambda end: end[rank > far])[0]


def link_sender(buffer, meter, df):
    for _ in range(MESSAGES):
        df.eth_send_bytes_over_channel(buffer, buffer, N, 1)
        df.eth_wait_for_receiver_channel_done(1)
        meter.tick()


def link_receiver(buffer, df):
    for _ in range(MESSAGES):
        df.eth_wait_for_bytes_on_channel(1)
        df.eth_receiver_channel_ack(1, df.ack_address)
        df.eth_receiver_channel_done(1)


def link(tt, rank, meter):
    program, core = tt.create_program(), link_to(1 - rank, rank, tt)
    buffer = tt.l1_base(core) + 64
    kernel, args = (link_receiver, (buffer,)) if rank else (link_sender, (buffer, meter))
    tt.create_kernel(program, kernel, core, args=args)
    tt.enqueue_program(program)
    tt.finish()


def pushes(edm, semaphore, meter, messages, df):
    x, y, buffer, edm_semaphore = edm
    for _ in range(messages):
        df.noc_semaphore_wait(semaphore, 1)
        df.noc_semaphore_set(semaphore, 0)
        df.noc_async_write(0x40000, df.get_noc_addr(x, y, buffer), N)
        df.noc_semaphore_inc(df.get_noc_addr(x, y, edm_semaphore), 1)
        meter.tick()


def pulls(edm, semaphore, messages, df):
    x, y, buffer, edm_semaphore = edm
    for _ in range(messages):
        df.noc_semaphore_wait(semaphore, 1)
        df.noc_semaphore_set(semaphore, 0)
        df.noc_async_read(df.get_noc_addr(x, y, buffer), 0x40000, N)
        df.noc_async_read_barrier()
        df.noc_semaphore_inc(df.get_noc_addr(x, y, edm_semaphore), 1)


def mover(tt, rank, meter, messages=MESSAGES):
    program, core, place = tt.create_program(), link_to(1 - rank, rank, tt), tt.workers[0]
    edm, semaphore = tt.edm_builder(1, N), tt.create_semaphore(program, place)
    add = edm.add_receiver_channel if rank else edm.add_sender_channel
    interface = (*core, *add(semaphore, messages, place, N))
    edm.generate_edm_kernel(program, core)
    kernel, args = (pulls, (interface, semaphore)) if rank else (pushes, (interface, semaphore, meter))
    tt.create_kernel(program, kernel, place, args=(*args, messages))
    tt.enqueue_program(program)
    tt.finish()


def movers(tt, rank, meter):
    """A data mover a message."""
    for _ in range(MESSAGES):
        mover(tt, rank, meter, 1)


# --- over a fabric ---------------------------------------------------------------------------------------------------


def fabric_sender(endpoint, number, core, semaphore, meter, df):
    sender = FabricSender(endpoint, df)
    sender.open()
    route = multicast(1, number, Direction.E)
    for at in range(MESSAGES):
        target = write_to(core, 0x50000) if at % 2 else write_and_increment(core, 0x50000, core, semaphore)
        sender.send(route, target, 0x40000, N)
        meter.tick()
    sender.close()


def fabric(tt, rank, meter, topology="line"):
    opened, program = tt.open_fabric(topology), tt.create_program()
    core, far = tt.workers[0], tt.workers[-1]
    semaphore = tt.create_semaphore(program, far)
    if opened.position == 0:
        endpoint = opened.connect(core, "forward")
        tt.create_kernel(program, fabric_sender, core, args=(endpoint, tt.world_size - 1, far, semaphore, meter))
    tt.enqueue_program(program)
    tt.finish()


def ring(tt, rank, meter):
    fabric(tt, rank, meter, "ring")


def mux_sender(endpoint, core, semaphore, meter, df):
    sender = FabricSender(endpoint, df)
    sender.open()
    for _ in range(MESSAGES):
        sender.send(multicast(1, 1, Direction.E), write_and_increment(core, 0x50000, core, semaphore), 0x40000, N)
        if meter is not None:
            meter.tick()
    sender.close()


def mux(tt, rank, meter):
    opened, program = tt.open_fabric("line"), tt.create_program()
    far = tt.workers[-1]
    semaphore = tt.create_semaphore(program, far)
    if opened.position == 0:
        made = opened.create_mux(program, tt.workers[8], "forward", 2)
        for channel in (0, 1):
            place = tt.workers[channel]
            endpoint = opened.connect_to_mux(made, channel, place)
            args = (endpoint, far, semaphore, None if channel else meter)
            tt.create_kernel(program, mux_sender, place, args=args)
    tt.enqueue_program(program)
    tt.finish()


def operations(tt, rank, meter):
    """Of which every command of a tile is a message."""
    tensor, log = tt.tensor(np.ones((tt.world_size * 4, 64), np.float32)), tt._chip.oplog
    done = log.total
    for _ in range(max(MESSAGES // 1000, 8)):
        for operation in (tt.all_gather, tt.reduce_scatter, tt.all_reduce, tt.all_to_all):
            operation(tensor, 0)
        tt.finish()
        if meter is not None:
            meter.tick(log.total - done)
            done = log.total


PROGRAMS = {each.__name__: each for each in (noc, programs, link, mover, movers, fabric, ring, mux, operations)}


def worker(rank, world_size, tt):
    meter = Meter(MESSAGES, POINTS) if rank == 0 else None
    PROGRAMS[NAME](tt, rank, meter)
    if meter:
        meter.write(FILE)
