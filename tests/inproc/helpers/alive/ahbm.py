"""A host script: one of its programs, for so many messages, and what is alive meanwhile. Not a test.

Arguments: the program's name, messages, points, and the file that rank 0 writes.
"""

import sys

from meter import Meter

from sipsim.chips.ahbm.host.layout import DPPolicy

NAME, MESSAGES, POINTS, FILE = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
N = 64
"""Elements of a message: so few that its bytes are in a small block, too."""


# --- kernels: one round on each of two PEs; ``way`` leads to the other one -----------------------------------------


def pingpong(tl, is_first, way, p, x):
    if is_first:
        tl.send(way, x)
        return tl.recv(way, N, "f32")
    x = tl.recv(way, N, "f32")
    tl.send(way, x)
    return x


def exchange(tl, is_first, way, p, x):
    """All ways to send and to receive, and loads and stores beside them."""
    load = tl.load_async(p, N)
    tl.send(way, x)
    tl.send(way, src_addr=p, shape=N, dtype="f32")
    tl.send(way, x + 1)
    tl.send(way, tl.load(p, N))
    tl.store_async(p + 4096, x)
    one = tl.recv_async(way, N, "f32")
    two = tl.recv_async(way, N, "f32", dst_addr=p + 8192)
    tl.wait(two)
    x = tl.recv(None, N, "f32")
    y = tl.recv(way, N, "f32", dst_addr=p + 8192)
    tl.release(y)
    tl.wait(load)
    return x + tl.wait(one)


def views(tl, is_first, way, p, x):
    tl.send(way, x)
    y = tl.recv(way, N, "f32")
    a, b = y[0:32], tl.reshape(y, (8, 8))
    tl.send(way, b)
    tl.store(p + 4096, a)
    return tl.recv(way, N, "f32")


def loads(tl, is_first, way, p, x):
    one, two = tl.load_async(p, N), tl.load_async(p, (4, 16), stride=64)
    tl.load_async(p + 4096, N)
    y = tl.load(p, (4, 16), stride=64)
    tl.wait(one)
    tl.wait(two)
    return tl.reshape(y, N)


def stores(tl, is_first, way, p, x):
    one = tl.store_async(p + 4096, x)
    tl.store_async(p + 8192, x)
    tl.store(p + 4096, tl.reshape(x, (4, 16)), stride=64)
    tl.store(p + 8192, x)
    tl.wait(one)
    return x


def math(tl, is_first, way, p, x):
    y, z = tl.exp(x), tl.maximum(x, 1) * 2
    tl.sum(y)
    tl.cast(z, "f16")
    tl.trans(tl.reshape(x, (8, 8)))
    tl.where(x > 0, y, z)
    tl.join([tl.exp(x), tl.abs(x)])
    tl.broadcast_to(tl.full((4, 4), 1, "f32")[None], (2, 4, 4))
    tl.arange(0, N)
    tl.delay(5)
    with tl.phase("one"):
        return tl.minimum(x, x)


def products(tl, is_first, way, p, x):
    square = tl.reshape(x, (8, 8))
    tl.dot(square, square, square)
    tl.gemm(p, p + 4096, p + 8192, (8, 8, 8), dtype="f32", epilogue=["relu", ("bias", p)])
    more = tl.gemm_async(p, p + 4096, p + 8192, (8, 8, 8), dtype="f32")
    tl.gemm_async(p, p + 4096, p + 12288, (8, 8, 8), dtype="f32")
    tl.wait(more)
    return x


def crowd(tl, is_first, way, p, x):
    """Of many PEs: accesses that meet each other."""
    one = tl.load_async(p, 1024)
    tl.store_async(p + 4096, x)
    tl.load(p, 512)
    tl.wait(one)
    return x


KERNELS = {each.__name__: each for each in (pingpong, exchange, views, loads, stores, math, products, crowd)}
A_ROUND = {"pingpong": 2, "exchange": 8, "views": 4, "loads": 4, "stores": 4, "crowd": 12, "math": 12, "products": 5}
"""Messages and accesses; else a round counts as one."""


def kernel(p, rounds, meter, rank, tl):
    body, is_first = KERNELS[NAME], tl.program_id(1) == 0 if rank is None else rank == 0
    way = ("E" if is_first else "W") if rank is None else "global_E" if is_first else "global_W"
    ticks = meter is not None and is_first and tl.program_id(0) == 0
    x = tl.load(p, N)
    for _ in range(rounds):
        x = body(tl, is_first, way, p, x)
        if ticks:
            meter.tick(A_ROUND.get(NAME, 1))


# --- host programs: one turn ----------------------------------------------------------------------------------------


def launches(torch, rank, x):
    torch.launch(lambda p, tl: tl.load(p, N), x, cubes=0)
    torch.launch(lambda p, tl: tl.load(p, N), x, cubes=[0, 1], async_op=True).wait()


def tensors(torch, rank, x):
    """So large that dropped ones return soon; nothing is written."""
    y = torch.zeros((16, 2**20), dtype="f32", dp=DPPolicy())
    y.narrow(0, 0, 8)


def tensor_math(torch, rank, x):
    torch.softmax(torch.relu(x + x))


def collectives(torch, rank, x):
    dist = torch.distributed
    dist.all_reduce(x)
    dist.broadcast(x, 0)
    dist.all_reduce(x, async_op=True).wait()
    dist.barrier()


def point_to_point(torch, rank, x):
    """Between ranks 0 and the last but one: with more than two SIPs, through the one between."""
    dist = torch.distributed
    far = max(dist.get_world_size() - 2, 1)
    if rank == 0:
        dist.send(x, far)
        dist.recv(x, far)
    elif rank == far:
        dist.recv(x, 0)
        dist.isend(x, 0).wait()


def groups(torch, rank, x):
    dist = torch.distributed
    group = dist.new_group([0, 1])
    dist.all_reduce(x, group=group)
    dist.destroy_process_group(group)


def sizes(torch, rank, x):
    """No two calls alike, and the algorithm chosen for each."""
    global elements
    elements += 1
    torch.distributed.all_reduce(torch.ones((1, elements), dtype="f32", dp=DPPolicy(num_cubes=1)))


elements = 0
HOST = {each.__name__: each for each in (launches, tensors, tensor_math, collectives, point_to_point, groups, sizes)}


def worker(rank, world_size, torch):
    torch.distributed.init_process_group()
    meter = Meter(MESSAGES, POINTS) if rank == 0 else None
    if NAME in HOST:
        x = torch.ones((16, 1024), dtype="f32", dp=DPPolicy(num_cubes=1))
        for _ in range(MESSAGES):
            HOST[NAME](torch, rank, x)
            if meter:
                meter.tick()
    else:
        x, rounds = torch.ones((16, 8192), dtype="f32", dp=DPPolicy()), MESSAGES // A_ROUND.get(NAME, 1)
        if world_size == 1:
            torch.launch(kernel, x, rounds, meter, None, cubes=[0, 1], pes=range(4) if NAME == "crowd" else 0)
        elif rank < 2:
            torch.launch(kernel, x, rounds, meter, rank, cubes=0)
    if meter:
        meter.write(FILE)
