"""A host script, no test: random packets around a ring, which count at their targets and are checked there.

The first argument in JSON: ``seed``, ``packets`` of each worker, ``nbytes`` and ``revision``; ``way`` if all go the
same one; ``reach`` of a packet in chips, 1 if it is not said, 0 for the longest way to one chip, else up to so many
chips; ``pause_ns`` between packets.
"""

import json
import random
import sys

from sipsim.chips.tensix.fabric.connection import FabricSender
from sipsim.chips.tensix.fabric.packet import Direction, multicast, write_and_increment

PLACE, SOURCE = 0x40000, 0x30000


def data(rank, way, nbytes):
    return bytes((rank * 37 + way * 11 + each * 3 + 1) % 251 for each in range(nbytes))


def send(endpoint, routes, targets, nbytes, pause_ns, df):
    fabric = FabricSender(endpoint, df)
    fabric.open()
    for route, target in zip(routes, targets, strict=True):
        fabric.send(route, target, SOURCE, nbytes)
        if pause_ns:
            df.instructions(pause_ns)
    fabric.close()


def collect(semaphore, expected, df):
    df.noc_semaphore_wait(semaphore, expected)


def drawn(asked, rank, way, size):
    """Start and number of chips of each packet of a worker."""
    numbers, found = random.Random(f"{asked['seed']} {rank} {way}"), []
    for _ in range(asked["packets"]):
        reach = asked.get("reach", 1)
        start = numbers.randint(1, size - 1) if reach else size - 1
        number = numbers.randint(1, min(reach, size - start)) if reach else 1
        found.append((start, number))
    return found


def worker(rank, world_size, tt):
    asked = json.loads(sys.argv[1])
    fabric = tt.open_fabric("ring", revision=asked["revision"])
    size, nbytes, target = fabric.size, asked["nbytes"], tt.workers[-1]
    semaphore, program, expected = tt.l1_base(target), tt.create_program(), 0
    ways = [Direction[asked["way"]]] if "way" in asked else [Direction.E, Direction.W]
    came = {}
    for index, way in enumerate(ways):
        core = tt.workers[index]
        for other in range(size):
            sign = 1 if way is Direction.E else -1
            for start, number in drawn(asked, other, way, size):
                if rank in [(other + sign * hop) % size for hop in range(start, start + number)]:
                    came[other, way] = came.get((other, way), 0) + 1
        to = PLACE + (2 * rank + index) * nbytes
        routes = [multicast(start, number, way) for start, number in drawn(asked, rank, way, size)]
        packet = write_and_increment(target, to, target, semaphore, is_flushed=False)
        tt.write(core, SOURCE, data(rank, way, nbytes))
        endpoint = fabric.connect(core, way)
        args = (endpoint, routes, [packet] * len(routes), nbytes, asked.get("pause_ns", 0))
        tt.create_kernel(program, send, core, tt.DataMovementConfig(noc=tt.nearer_noc(core, endpoint.router)), args)
    expected = sum(came.values())
    tt.create_kernel(program, collect, target, args=(semaphore, expected))
    tt.enqueue_program(program)
    tt.finish()
    for other, way in came:
        at = PLACE + (2 * other + ways.index(way)) * nbytes
        assert tt.read(target, at, nbytes) == data(other, way, nbytes), (other, way)
